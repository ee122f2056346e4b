"""Which stories does a corpus hold?

A corpus is a text file, JSON lines, a Parquet file, a folder that `datasets` saved, or the name of
a data set on the hub. Faults of encoding are repaired and counted; nothing else of a story changes.
The library `datasets` is imported on first use.
"""

import contextlib
import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jaxfeat.data.text_repair import decode, repair
from jaxfeat.types import UserError, check_whole

MARKER = b"<|endoftext|>"
BETWEEN = {"endoftext": re.escape(MARKER), "line": rb"(?<!\n)\n(?!\n)", "blank": rb"\n\n+"}
BOUNDARIES = ("auto", *BETWEEN, "opening")
SUFFIXES = (".txt", ".jsonl", ".json", ".parquet")
HEAD = 1 << 16  # bytes that tell a text from a binary file
SHORT_LINES = 20  # "auto" takes single newlines for boundaries from one break in so many on

# How a story begins, and how the one before it ended. On stories with known boundaries 98 % of the
# paragraphs that fit begin a story, and 70 % of the stories are found. "One day," alone is no
# opening: five times in six it continues a story.
_OPENS = re.compile(
    rb"(Once( upon\b| there\b|,)|Long ago\b|There (once )?(was|were|lived) an? )"
    rb"|[^.!?\n]* (named|called) [A-Z]"
    rb"|[A-Z]\w+ and [A-Z]\w+ (are|were) (\w+ )?(friends|twins|brother|sister|playing|best)\b"
)
_ENDED = re.compile(rb'(The end|lived happily ever after)[.!]"?$')
_HUB_NAME = re.compile(r"(?=.{1,96}$)\w[\w.-]*(/\w[\w.-]*)?")

Piece = tuple[str, bool]  # one text, "" for a missing one, and whether bytes had to be guessed


class Corpus(NamedTuple):
    """Stories, each non-empty and stripped, with where they come from.

    source is the path as given or the name of the data set; digest the SHA-256 of the stories;
    repaired counts the stories with repaired faults of encoding, dropped the empty or undecodable
    pieces that were left out.
    """

    stories: list[str]
    source: str
    digest: str
    repaired: int
    dropped: int


def read_corpus(
    source: str | os.PathLike,
    *,
    column: str = "text",
    boundary: str = "auto",
    split: str = "train",
    most: int = 0,
) -> Corpus:
    """The stories of a file, a folder, or a data set of the hub.

    Line ends become newlines. Bytes that are not UTF-8 are read as windows-1252, text that was
    decoded wrongly (such as `â€œ` for a quote) is repaired; curly quotes stay as they are.

    Args:
        source: a `.txt` (or suffixless), `.jsonl`, `.json` or `.parquet` file; a folder written by
            `save_to_disk` of `datasets`, or one with Parquet files such as a download of a data
            set (those named after `split`, if any are); else the name of a data set, such as
            "roneneldan/TinyStories", the only case in which the network is used.
        column: the column that holds the stories (not for text files).
        boundary: what separates the stories of a text file. "endoftext": the marker
            `<|endoftext|>`; "line": a single newline, blank lines separate paragraphs; "blank":
            blank lines; "opening": stories begin at paragraphs that open like one ("Once upon
            ...", "... a girl named Lily") or follow "The end.", an approximation for files in
            which blank lines separate both. "auto": the marker if it occurs, else "line" if at
            least one break in 20 is a single newline, else "blank"; never "opening".
        split: which part of a data set that has several.
        most: take at most so many stories (0: all).

    Returns:
        A `Corpus` with at least one story.

    Raises:
        UserError: an unknown boundary, column or split; nothing there, or nothing that can be
            read; no text; no story in it.

    >>> file = Path(tempfile.mkdtemp()) / "two.txt"
    >>> _ = file.write_text("Once there was a cat.<|endoftext|>Once there was a dog.")
    >>> read_corpus(file).stories
    ['Once there was a cat.', 'Once there was a dog.']
    """
    source, most = os.fspath(source), check_whole("most", most, 0)
    if boundary not in BOUNDARIES:
        raise UserError(f"boundary: {boundary!r} is none of {', '.join(BOUNDARIES)}")
    path = _existing(source)
    if path is None:
        pieces = _rows(_from_hub(source, split), source, column, split)
    elif path.is_file() and path.suffix.lower() in (".txt", ""):
        pieces = _text_pieces(path, boundary)
    else:
        pieces = _rows(_from_disk(path, split), source, column, split)
    stories, repaired, dropped = [], 0, 0
    for text, guessed in pieces:
        story = repair(text.strip())
        if not story.strip("\ufffd \t\n"):
            dropped += 1
            continue
        repaired += guessed or story != text.strip()
        stories.append(story.strip())
        if len(stories) == most:
            break
    if not stories:
        raise UserError(f"stories: {source} holds no story")
    return Corpus(stories, source, stories_digest(stories), repaired, dropped)


def stories_digest(stories: Iterable[str]) -> str:
    """SHA-256 of the stories in order, each after its length, in hexadecimal.

    >>> stories_digest(["ab", "c"]) == stories_digest(["a", "bc"])
    False
    """
    digest = hashlib.sha256()
    for story in stories:
        data = story.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def _existing(source: str) -> Path | None:
    """The path if something is there; None for what can only be a data set's name."""
    try:
        path = Path(source).expanduser()
        there = bool(source.strip()) and path.exists()
    except (OSError, RuntimeError, ValueError):  # a name too long, an unknown ~user, a NUL
        path, there = Path(source), False
    if there:
        if path.is_file() and path.suffix.lower() not in (*SUFFIXES, ""):
            raise UserError(f"stories: {source}: a file must end in {', '.join(SUFFIXES)}")
        return path
    if path.suffix.lower() in SUFFIXES or not _HUB_NAME.fullmatch(source):
        raise UserError(
            f"stories: no file at {source!r}; give the path of a {', '.join(SUFFIXES)} file, of a "
            "saved data set, or a name like roneneldan/TinyStories"
        )
    return None


def _text_pieces(path: Path, boundary: str) -> Iterator[Piece]:
    """The pieces of a text file, decoded one by one."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"stories: {path} cannot be read ({error.strerror})") from None
    data = data.removeprefix(b"\xef\xbb\xbf")
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    head = data[:HEAD].decode("utf-8", "surrogateescape")
    # Control characters but newline, tab, form feed; C1 and lone bytes are what is not UTF-8 here.
    strange = len(re.findall("[\x00-\x08\x0b\x0e-\x1f\x7f\udc80-\udcff]", head))
    if b"\0" in data or strange > 0.3 * len(head):
        raise UserError(f"stories: {path} is a binary file, not text in UTF-8")
    data = re.sub(rb"\n[ \t]+(?=\n)", b"\n", data).strip()  # a line of spaces is a blank line
    if boundary == "auto":
        single, blank = (len(re.findall(BETWEEN[kind], data)) for kind in ("line", "blank"))
        short = single > 0 and SHORT_LINES * single >= single + blank
        boundary = "endoftext" if MARKER in data else "line" if short else "blank"
    if boundary == "endoftext":
        data = data.removesuffix(MARKER)  # it ends the last story: no empty one follows
    for piece in _by_opening(data) if boundary == "opening" else _cut(data, BETWEEN[boundary]):
        yield decode(piece)


def _cut(data: bytes, between: bytes) -> Iterator[bytes]:
    """The pieces of a text one by one: no second copy of a large file is held."""
    at = 0
    for found in re.finditer(between, data):
        yield data[at : found.start()]
        at = found.end()
    yield data[at:]


def _by_opening(data: bytes) -> Iterator[bytes]:
    """Paragraphs put together to stories, a new one wherever one opens or the last has ended."""
    story: list[bytes] = []
    for paragraph in _cut(data, BETWEEN["blank"]):
        if story and (_OPENS.match(paragraph) or _ENDED.search(story[-1].rstrip())):
            yield b"\n\n".join(story)
            story = []
        story.append(paragraph)
    yield b"\n\n".join(story)


def _from_disk(path: Path, split: str) -> Any:
    """A data set of a file or a saved folder; nothing is written into the user's caches."""
    import datasets

    found = path.rglob("*.parquet") if path.is_dir() else [path]
    shards: list[Any] = sorted(str(p) for p in found)
    shards = [p for p in shards if Path(p).name.startswith(split)] or shards

    if path.is_file() and not _filled(path):
        raise UserError(f"stories: {path} is empty")
    json = path.is_file() and path.suffix != ".parquet"
    read = datasets.Dataset.from_json if json else datasets.Dataset.from_parquet
    try:
        with _quiet(), tempfile.TemporaryDirectory() as cache:
            if path.is_dir() and not shards:
                return datasets.load_from_disk(str(path))
            return read(shards, cache_dir=cache, keep_in_memory=True)
    except Exception as error:  # of many kinds, from pyarrow, json and datasets itself
        saved = "a data set saved by save_to_disk, or Parquet files"
        kind = saved if path.is_dir() else f"a {path.suffix} file"
        why = " ".join(str(error.__cause__ or error).split())[:120] or type(error).__name__
        raise UserError(f"stories: {path} cannot be read as {kind} ({why})") from None


def _filled(path: Path) -> bool:
    """Whether a file holds more than whitespace at its head."""
    try:
        with open(path, "rb") as handle:
            return bool(handle.read(HEAD).strip())
    except OSError as error:
        raise UserError(f"stories: {path} cannot be read ({error.strerror})") from None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No progress bar for a local file, and no log lines before the error that tells the same."""
    import datasets

    bars, level = not datasets.are_progress_bars_disabled(), datasets.logging.get_verbosity()
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    try:
        yield
    finally:
        datasets.logging.set_verbosity(level)
        if bars:
            datasets.enable_progress_bars()


def _from_hub(name: str, split: str) -> Any:
    """A data set of the hub, or of its cache on this disk where the hub cannot be asked."""
    import datasets
    from datasets import config
    from huggingface_hub import HfApi, constants

    places: tuple[Any, Any] = (config, constants)
    before = [place.HF_HUB_OFFLINE for place in places]
    absent = None
    try:
        try:
            HfApi().dataset_info(name, timeout=10)
        except Exception as error:  # the loader itself would try again for half a minute
            absent = error
            for place in places:
                place.HF_HUB_OFFLINE = True
        return datasets.load_dataset(name, split=split)
    except Exception as error:
        if absent is None:
            why = " ".join(str(error).split())[:200]
            raise UserError(f"stories: the data set {name} cannot be loaded: {why}") from None
        raise UserError(
            f"stories: no file at {name}, and the data set {name} cannot be fetched (no network? "
            f"{type(absent).__name__}): download it elsewhere, for instance by\n"
            f"hf download {name} --repo-type dataset, and give its path"
        ) from None
    finally:
        for place, offline in zip(places, before):
            place.HF_HUB_OFFLINE = offline


def _rows(data: Any, source: str, column: str, split: str) -> Iterator[Piece]:
    """The texts of one column of a data set; of several parts that of `split`."""
    import pyarrow as pa

    if isinstance(data, dict):
        if split not in data:
            raise UserError(f"split: {source} has no {split!r}; it has {', '.join(data)}")
        data = data[split]
    if column not in data.column_names:
        told = ", ".join(data.column_names) or "no column"
        raise UserError(f"column: {source} has no {column!r}; it has {told}")
    for batch in data.select_columns([column]).with_format("arrow").iter(1000):
        texts = batch[column]
        kind = texts.type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.null()):
            raise UserError(f"column: {column!r} of {source} holds {kind}, not text")
        # As bytes: neither Arrow nor the readers make sure that they are UTF-8.
        for row in texts.cast(pa.large_binary()).to_pylist():
            yield decode((row or b"").replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
