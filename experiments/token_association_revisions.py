"""What do checkpoints of one model score against the leading terms of a text, and of noise?

Every checkpoint's scores are kept as `scores/NUMBER.npz` in the result folder, so that a run that
was stopped goes on at the next one.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.token_association_config import Config
from experiments.token_association_data import read_stories
from jaxfeat.corpus.pretrained_scores import (
    SCORES,
    Scores,
    Theories,
    cut_texts,
    make_theories,
    pretrained_scores,
)
from jaxfeat.corpus.sequences import shuffle_tokens
from jaxfeat.io.arrays import load_arrays, save_arrays
from jaxfeat.io.tokenizer import read_tokenizer
from jaxfeat.run import folder
from jaxfeat.run.progress import progress
from jaxfeat.train.revisions import Checkpoint, open_checkpoints
from jaxfeat.types import UserError

TEXT, CONTROL = "text", "shuffled text"
AT_ONCE = 1000  # texts that are cut into tokens together
FORMS = ("cosine", "beyond")


class Subject(NamedTuple):
    """The checkpoints, the sequences `[N, T+1]` of the text in their tokens, and its tale."""

    checkpoints: list[Checkpoint]
    tokens: np.ndarray
    told: str


def open_subject(config: Config) -> Subject:
    """Checkpoints and text, checked; no weight is read into memory.

    Raises:
        UserError: no checkpoints of one model, none with a tokenizer, no text that is long enough;
            the message names the option.
    """
    c, d = config, config.data
    try:
        checkpoints = open_checkpoints(c.models, seed=c.run, dtype=c.dtype)
    except UserError as error:
        option = "run" if str(error).startswith("seed:") else "models"
        raise UserError(f"--{option}: {str(error).removeprefix('seed: ')}") from None
    first = checkpoints[0]
    if first.tokenizer_at is None:
        raise UserError(f"--models: {first.name} has no tokenizer.json, text cannot be read")
    tokenizer = read_tokenizer(first.tokenizer_at)
    stories, source = read_stories(d, c.seed)
    ids: list[list[int]] = []
    for start in range(0, len(stories), AT_ONCE):
        part = tokenizer.encode_batch(stories[start : start + AT_ONCE], add_special_tokens=False)
        ids += [encoded.ids[: d.length + 1] for encoded in part]
    try:
        tokens, short = cut_texts(ids, d.length)
    except UserError as error:
        raise UserError(f"--data.length: {error}") from None
    tokens = tokens[: d.sequences or None]
    if (largest := int(tokens.max())) >= first.sizes.vocab:
        raise UserError(
            f"--models: the tokenizer of {first.name} gives the id {largest}, the model has "
            f"{first.sizes.vocab}"
        )
    told = (
        f"{source}: the first {d.length + 1} tokens of {len(tokens):,} texts, {short:,} are "
        f"shorter and left out; {len(np.unique(tokens)):,} of {first.sizes.vocab:,} tokens occur"
    )
    return Subject(checkpoints, tokens, told)


def measure(config: Config, subject: Subject, workdir: Path) -> Scores:
    """The scores of every checkpoint; those that are kept are not measured again."""
    checkpoints, places = subject.checkpoints, workdir / "scores"
    places.mkdir(exist_ok=True)
    files = [places / f"{n:04d}.npz" for n in range(len(checkpoints))]
    digest = hashlib.sha256(subject.tokens.tobytes())
    for checkpoint in checkpoints:
        digest.update(checkpoint.digest().encode())
    held = folder.read_json(workdir / folder.PROVENANCE).get("data_hash")
    if held not in (None, digest.hexdigest()):
        raise UserError(f"--models: the run in {workdir} scored other checkpoints or another text")
    folder.add_provenance(
        workdir, data_hash=digest.hexdigest(), text=subject.told,
        models=[c.name for c in checkpoints], analysis_precision="highest",
    )  # fmt: skip
    theories = None
    with progress(len(files), "score", every=1) as shown:
        for checkpoint, file in zip(checkpoints, files, strict=True):
            if not file.exists():
                theories = theories or _theories(config, subject)
                save_arrays(file, _flat(pretrained_scores([checkpoint], theories)))
            shown.tick()
    names, steps = (tuple(getattr(c, f) for c in checkpoints) for f in ("name", "step"))
    return _joined(names, steps, [load_arrays(file) for file in files])


def _theories(config: Config, subject: Subject) -> Mapping[str, Theories]:
    """Of the text, and of its tokens in random order (in float64: of the latter's covariance no
    more than 1e-9 is not the all-ones matrix)."""
    texts = {TEXT: subject.tokens, CONTROL: shuffle_tokens(subject.tokens, config.seed)}
    vocab = subject.checkpoints[0].sizes.vocab
    return {name: make_theories(x, vocab) for name, x in texts.items()}


def _flat(scores: Scores) -> dict[str, np.ndarray]:
    """One checkpoint's scores as named arrays: `cosine/text/post` and so on, `rows/text/value`."""
    flat = {
        f"{form}/{theory}/{score}": x
        for form in FORMS
        for theory, by_score in getattr(scores, form).items()
        for score, x in by_score.items()
    }
    rows = {f"rows/{name}": np.array(list(told.values())) for name, told in scores.rows.items()}
    return flat | rows


def _joined(names: tuple, steps: tuple, parts: list[dict[str, np.ndarray]]) -> Scores:
    """The scores of all checkpoints out of `_flat` ones."""
    forms = [
        {
            theory: {
                score: np.concatenate([p[f"{form}/{theory}/{score}"] for p in parts])
                for score in SCORES
            }
            for theory in (TEXT, CONTROL)
        }
        for form in FORMS
    ]
    rows: dict[str, dict[str, int]] = {
        name.removeprefix("rows/"): dict(zip(("rows", "unseen", "empty"), told.tolist()))
        for name, told in parts[0].items()
        if name.startswith("rows/")
    }
    return Scores(names, steps, forms[0], forms[1], rows)
