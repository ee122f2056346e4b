"""Where do weights stay that took long to read, and when may they be read again?

A model out of a GGUF is kept as a folder like any other (`config.json`, safetensors,
`tokenizer.json`) under the digest of the file that it came from. The entry `complete.json` is
written last: without it, or if a file's checksum differs from it, the folder is made anew.
"""

import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

from jaxfeat.types import UserError

PLACE = "JAXFEAT_CACHE"  # the environment variable that names the folder
MARK = "complete.json"
FORMAT = 2  # raised whenever what is written changes


def cache_folder(cache: str | os.PathLike | None = None) -> Path:
    """The folder of the cache: the argument, else `JAXFEAT_CACHE`, else `~/.cache/jaxfeat`."""
    return Path(cache or os.environ.get(PLACE) or "~/.cache/jaxfeat").expanduser()


def cached(digest: str, cache: Path, write: Callable[[Path], None]) -> Path:
    """The folder of a digest; `write` fills an empty one where no complete folder is there.

    Two processes may write the same folder at once: the first that is done stays.

    Raises:
        UserError: the cache cannot be written.
    """
    place = cache / "weights" / digest[:32]
    if _complete(place, digest):
        return place
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        _forget_broken(place.parent, digest)
        made = Path(tempfile.mkdtemp(prefix=f".{digest[:32]}.{os.getpid()}.", dir=place.parent))
        try:
            write(made)
            sums = {file.name: _sum(file) for file in sorted(made.iterdir())}
            mark = {"digest": digest, "format": FORMAT, "sums": sums}
            (made / MARK).write_text(json.dumps(mark, indent=1), encoding="utf-8")
            made.chmod(0o755)
            if not _complete(place, digest):
                shutil.rmtree(place, ignore_errors=True)
                made.replace(place)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except OSError as error:
        told = error.strerror or error
        raise UserError(
            f"the cache {cache} cannot be written ({told}): name another folder by cache or {PLACE}"
        ) from None
    return place


def _complete(place: Path, digest: str) -> bool:
    """Whether a folder holds everything that was written, for this digest."""
    try:
        mark = json.loads((place / MARK).read_text(encoding="utf-8"))
        sums = {name: _sum(place / name) for name in mark["sums"]}
        return (mark["digest"], mark["format"], mark["sums"]) == (digest, FORMAT, sums)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _sum(file: Path) -> str:
    """A checksum that any damage changes; several times faster than a cryptographic one."""
    with open(file, "rb") as handle:
        found = 0
        while part := handle.read(2**24):
            found = zlib.crc32(part, found)
    return f"{file.stat().st_size}-{found:08x}"


def _forget_broken(folder: Path, digest: str) -> None:
    """Remove what killed processes left of this digest."""
    for left in folder.glob(f".{digest[:32]}.*"):
        owner = left.name.split(".")[2]
        try:
            os.kill(int(owner), 0)
        except (ProcessLookupError, ValueError):
            shutil.rmtree(left, ignore_errors=True)
        except OSError:
            continue
