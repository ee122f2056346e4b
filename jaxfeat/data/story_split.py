"""Which stories are kept from training?"""

import hashlib

import numpy as np

from jaxfeat.data.holdout import held_out
from jaxfeat.types import UserError


def held_out_stories(stories: list[str]) -> np.ndarray:
    """Which stories are kept from training, about one in eight: `[S]` booleans.

    A hash of the text decides, up to case and whitespace: copies of a story fall on one side,
    and a story's side is the same in every corpus.

    Raises:
        UserError: a side would be empty.
    """
    hashes = [int.from_bytes(_key(story)[:4], "big") for story in stories]
    held = np.asarray(held_out(np.array(hashes, np.uint32)), bool)
    if held.all() or not held.any():
        side = "training" if held.all() and len(held) else "held-out"
        raise UserError(
            f"stories: {len(stories)} of them leave the {side} side empty; more are needed, or "
            "another boundary between them"
        )
    return held


def overlap(stories: list[str], held: np.ndarray) -> int:
    """How many held-out stories also stand on the training side, up to case and whitespace.

    Args:
        stories: all of them. held: `[S]` booleans, true where a story is held out.
    """
    train = {_key(story) for story, out in zip(stories, held, strict=True) if not out}
    return sum(_key(story) in train for story, out in zip(stories, held, strict=True) if out)


def _key(story: str) -> bytes:
    """A hash of a story, the same for copies that differ in case or whitespace."""
    plain = " ".join(story.lower().split())
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).digest()
