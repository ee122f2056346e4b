"""Which checkpoints of one model are there, in the order of its training?

A ladder that a run of `experiments.tinystories` left (`ladder/NAME` in its result folder), or
folders of Hugging Face's format, one a revision. Each is read when it is asked for, so that one is
in memory at a time.
"""

import json
import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxfeat.io.safetensors import tensor_files
from jaxfeat.io.tokenizer import load_tokenizer, read_tokenizer, tokenizer_digest
from jaxfeat.models.families import family_of
from jaxfeat.models.gpt2 import GPT2Config, make_gpt2
from jaxfeat.models.packaged import digest_of
from jaxfeat.models.pretrained import load
from jaxfeat.nn.decoder import Decoder
from jaxfeat.train.checkpoint import restore_checkpoint, saved_steps
from jaxfeat.train.variants import Variant, init_params, make_variant
from jaxfeat.types import Tree, UserError, check_whole

LADDER = "ladder"
STEP = re.compile(r"step[-_]?(\d+)")


class Checkpoint(NamedTuple):
    """One revision. `vocab` counts the tokens that its model has; `tokenizer` is the SHA-256 of
    its tokenizer, None without one, which `tokenizer_at` holds; `digest` gives one of its
    weights."""

    name: str
    step: int | None
    place: Path
    vocab: int
    tokenizer: str | None
    sizes: Any  # equal where the models have one shape
    load: Callable[[], tuple[Decoder, Tree]]
    digest: Callable[[], str]
    tokenizer_at: Path | None = None


def open_checkpoints(
    paths: Sequence[str | os.PathLike], *, seed: int = 0, dtype: str = "float32"
) -> list[Checkpoint]:
    """The checkpoints at these places, checked: of one ladder, or of folders one a revision.

    Args:
        paths: one `ladder/NAME` (or the result folder, where it holds one ladder), or folders with
            `config.json` and safetensors in the order of training.
        seed: which of a ladder's runs. dtype: of the parameters of folders.

    Raises:
        UserError: as the functions below.
    """
    given = [Path(os.path.expanduser(p)) for p in paths]
    if len(given) == 1 and (saved_steps(given[0]) or (given[0] / LADDER).is_dir()):
        found = ladder_checkpoints(given[0], seed=seed)
    else:
        found = pretrained_checkpoints(given, dtype=dtype)
    check_checkpoints(found)
    return found


def ladder_checkpoints(folder: str | os.PathLike, *, seed: int = 0) -> list[Checkpoint]:
    """The checkpoints of a ladder, by step, each of one seed.

    Args:
        folder: `ladder/NAME` in the result folder of `experiments.tinystories`, or that folder
            itself where it holds one ladder.
        seed: which of the runs, from 0.

    Raises:
        UserError: no checkpoint there, no config or tokenizer beside, a seed that was not run.
    """
    folder = _one_ladder(Path(os.path.expanduser(folder)))
    steps, result = saved_steps(folder), folder.parent.parent
    if not steps:
        raise UserError(f"no checkpoint in {folder}: give ladder/NAME of a result folder")
    try:
        raw = json.loads((result / "config.json").read_text(encoding="utf-8"))
        sizes = {name: raw[name] for name in ("length", "width", "heads", "layers")}
        seeds = int(raw["seeds"])
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{result} holds no config.json of experiments.tinystories") from None
    tokenizer = load_tokenizer(result / "tokenizer.json")
    check_whole("seed", seed, 0, seeds - 1)
    config = GPT2Config(tokenizer.get_vocab_size(), **sizes)
    decoder = make_gpt2(config)
    variant = make_variant(folder.name, m=1, length=config.length)
    told = tokenizer_digest(tokenizer)
    return [
        Checkpoint(
            f"step {step}", step, folder, decoder.vocab, told, config,
            partial(_of_ladder, decoder, variant, folder, step, seeds, seed),
            partial(_ladder_digest, folder, step, seed), result / "tokenizer.json",
        )
        for step in steps
    ]  # fmt: skip


def pretrained_checkpoints(
    paths: Sequence[str | os.PathLike], *, dtype: str = "float32"
) -> list[Checkpoint]:
    """Folders of Hugging Face's format as checkpoints, in the order given; no weight is read yet.

    The step is what a folder's name says (`step512`), else None.

    Raises:
        UserError: a folder that cannot be read.
    """
    return [_of_folder(Path(os.path.expanduser(path)), dtype) for path in paths]


def check_checkpoints(checkpoints: Sequence[Checkpoint]) -> None:
    """Refuse what are no checkpoints of one model.

    Raises:
        UserError: none at all; two vocabularies or sizes; a revision that stands twice: by place
            and step, or by its weights.
    """
    if not checkpoints:
        raise UserError("checkpoints: give at least one")
    first = checkpoints[0]
    for other in checkpoints[1:]:
        if other.vocab != first.vocab:
            raise UserError(
                f"checkpoints: {first.name} has {first.vocab} tokens, {other.name} {other.vocab}: "
                "one vocabulary needed"
            )
        if other.tokenizer != first.tokenizer:
            raise UserError(
                f"checkpoints: {first.name} and {other.name} have different tokenizers: "
                "one vocabulary needed"
            )
        if other.sizes != first.sizes:
            raise UserError(
                f"checkpoints: {first.name} and {other.name} have different sizes: one model needed"
            )
    places = [(c.place.resolve(), c.step) for c in checkpoints]
    _refuse_twice(checkpoints, places, "stand twice")
    if all(c.step is not None for c in checkpoints):
        _refuse_twice(checkpoints, [c.step for c in checkpoints], "are of one step")
    if len(checkpoints) > 1:
        _refuse_twice(checkpoints, [c.digest() for c in checkpoints], "hold the same weights")


def _refuse_twice(checkpoints: Sequence[Checkpoint], keys: Sequence[Any], told: str) -> None:
    """Refuse equal keys, and list whose they are."""
    groups: dict[Any, list[str]] = {}
    for checkpoint, key in zip(checkpoints, keys, strict=True):
        groups.setdefault(key, []).append(checkpoint.name)
    if twice := [" = ".join(names) for names in groups.values() if len(names) > 1]:
        raise UserError(f"checkpoints: revisions {told}: {', '.join(twice)}")


def _one_ladder(folder: Path) -> Path:
    """The ladder itself, where the folder around it is given and holds one."""
    around = folder / LADDER if (folder / LADDER).is_dir() else folder
    if saved_steps(around) or not around.is_dir():
        return around
    inside = [p for p in sorted(around.iterdir()) if p.is_dir() and saved_steps(p)]
    if len(inside) > 1:
        names = ", ".join(p.name for p in inside)
        raise UserError(f"{around} holds {len(inside)} ladders ({names}): give one of them")
    return inside[0] if inside else around


def _of_ladder(
    decoder: Decoder, variant: Variant, folder: Path, step: int, seeds: int, seed: int
) -> tuple[Decoder, Tree]:
    """The model and one seed's parameters at a step."""
    init = jax.vmap(lambda key: init_params(decoder, variant, key))
    like = jax.eval_shape(init, jax.random.split(jax.random.key(0), seeds))
    held = restore_checkpoint(folder, like, step)
    return decoder, jax.tree.map(lambda x: jax.numpy.asarray(x[seed]), held)


def _ladder_digest(folder: Path, step: int, seed: int) -> str:
    """What tells a rung of a ladder apart: no two have one step, so their weights are not read."""
    return f"{folder.resolve()}:{step}:{seed}"


def _of_folder(folder: Path, dtype: str) -> Checkpoint:
    """A folder's sizes, tokens and files."""
    file = folder / "config.json"
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except OSError:
        raise UserError(f"{folder} cannot be read: no config.json there") from None
    except ValueError:
        raise UserError(f"{file} is damaged: no JSON object") from None
    if not isinstance(raw, dict):
        raise UserError(f"{file} is damaged: no JSON object")
    files = list(dict.fromkeys(tensor_files(folder).values()))
    try:
        sizes = family_of(raw).read_config(raw, dtype)
    except (TypeError, ZeroDivisionError, OverflowError) as error:
        raise UserError(f"{file}: a value is no size of a model ({error})") from None
    vocab, tokenizer, place = sizes.vocab, None, None
    if (folder / "tokenizer.json").is_file() or (folder / "merges.txt").is_file():
        found = read_tokenizer(folder)
        vocab, tokenizer = min(vocab, found.get_vocab_size()), tokenizer_digest(found)
        place = folder

    def read() -> tuple[Decoder, Tree]:
        model = load(folder, dtype)
        return model.decoder, model.params

    step = STEP.search(folder.name)
    return Checkpoint(
        folder.name, int(step.group(1)) if step else None, folder, vocab, tokenizer, sizes, read,
        lambda: digest_of(files), place,
    )  # fmt: skip
