"""Which stretch of which story does an update see, and what stands at each of its positions?

The stories of one side of a split lie on the device as flat arrays. An epoch shows one window of
every story, in the order and at the place that follow from (key, epoch): a run that was interrupted
goes on with the very window it had come to. A story begins with an explicit marker (and ends with
one); markers are no words and are left out of features by mask.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.data.order import epoch_rows
from jaxfeat.data.tagged import DEPENDENCIES, POS_TAGS
from jaxfeat.data.tags import FEATURES, TokenTags
from jaxfeat.data.tokens import Tokens
from jaxfeat.types import Array, Batch, UserError, check_whole, make_batch


class Windows(NamedTuple):
    """Stories as flat arrays of their n tokens, markers included.

    ids `[n]` int32; text `[n]`: false at markers; place `[n]` int32: of a token among its story's,
    from 0 at the first of the text; pos, dep `[n]` int8: number of the tag, -1 for others. first,
    size `[S]` int32: where each of the S stories begins and how many tokens it has, both markers
    included.
    """

    ids: Array
    text: Array
    place: Array
    pos: Array
    dep: Array
    first: Array
    size: Array


class Cut(NamedTuple):
    """Windows of `length + 1` tokens: rows and offsets `[B]`, ids and what belongs to them.

    ids, index (into the flat arrays), mask `[B, length + 1]`; share `[B, length + 1]` float32: the
    place in the story over its last place.
    """

    ids: Array
    index: Array
    mask: Array
    share: Array


def make_windows(
    tokens: Tokens, marker: int, stories: np.ndarray, tags: Sequence[TokenTags] | None = None
) -> Windows:
    """The chosen stories, each begun with a marker (never two).

    Args:
        tokens: of all stories, each ended with a marker. marker: its id.
        stories: `[S]` numbers of the chosen ones, or booleans, one a story. tags: of every story's
            tokens, or None.

    Raises:
        UserError: no stories, numbers out of range, or tags of other lengths than their stories.
    """
    stories, count = np.asarray(stories), len(tokens.first) - 1
    stories = np.flatnonzero(stories) if stories.dtype == bool else stories
    if not len(stories):
        raise UserError("stories: none given, at least one needed")
    if stories.min() < 0 or stories.max() >= count:
        told = f"{stories.min()}..{stories.max()}"
        raise UserError(f"stories: numbers {told} given, valid are 0..{count - 1}")
    if tags is not None and len(tags) != count:
        raise UserError(f"tags: of {len(tags)} stories given, {count} needed")
    check_whole("marker", int(marker), 0, tokens.vocab - 1)
    flat: dict[str, list[np.ndarray]] = {name: [] for name in Windows._fields[:5]}
    for s in stories:
        ids = tokens.ids[tokens.first[s] : tokens.first[s + 1]]
        lead = int(len(ids) > 1 and ids[0] == marker)  # a text that brings its own
        none = np.full(len(ids), -1, np.int8)
        pos, dep = (none, none) if tags is None else tags[s]
        if len(pos) != len(ids) or len(dep) != len(ids):
            raise UserError(f"tags: story {s} has {len(ids)} tokens, {len(pos)} are tagged")
        flat["ids"].append(_begun(ids[lead:], marker))
        flat["place"].append(np.arange(-1, len(ids) - lead, dtype=np.int32))
        flat["text"].append(np.isin(flat["place"][-1], (-1, len(ids) - lead - 1), invert=True))
        flat["pos"].append(_begun(pos[lead:], -1))
        flat["dep"].append(_begun(dep[lead:], -1))
    size = np.array([len(x) for x in flat["ids"]], np.int32)
    first = np.concatenate([[0], np.cumsum(size)[:-1]]).astype(np.int32)
    arrays = {name: jnp.asarray(np.concatenate(parts)) for name, parts in flat.items()}
    return Windows(**arrays, first=jnp.asarray(first), size=jnp.asarray(size))


def _begun(values: np.ndarray, first: int) -> np.ndarray:
    """The values with one more before them, in their type."""
    return np.concatenate([np.array([first], values.dtype), values])


def epoch_windows(windows: Windows, key: Array, step: Array, batch: int, length: int) -> Cut:
    """What an update sees: `batch` stories, each once an epoch, each at a random place.

    A story shorter than `length + 1` is shown whole and padded.
    """
    count = windows.size.shape[0]
    rows = epoch_rows(key, step, batch, count)
    n = jnp.asarray(step, jnp.uint32) * jnp.uint32(batch) + jnp.arange(batch, dtype=jnp.uint32)
    epoch = n // jnp.uint32(count)

    def offset(row: Array, epoch: Array, slack: Array) -> Array:
        own = jax.random.fold_in(jax.random.fold_in(key, epoch), row)
        return jax.random.randint(own, (), 0, slack + 1)

    slack = jnp.maximum(windows.size[rows] - (length + 1), 0)
    return cut_windows(windows, rows, jax.vmap(offset)(rows, epoch, slack), length)


def cut_windows(windows: Windows, rows: Array, offset: Array, length: int) -> Cut:
    """`length + 1` tokens of each story from its offset on; what lies beyond its end is padding."""
    at = offset[:, None] + jnp.arange(length + 1)
    size = windows.size[rows][:, None]
    mask = at < size
    index = jnp.where(mask, windows.first[rows][:, None] + at, 0)
    last = jnp.maximum(size - 3, 1)  # the last text token's place
    share = windows.place[index] / last
    return Cut(windows.ids[index], index, mask, share.astype(jnp.float32))


def every_window(windows: Windows, length: int, stride: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and offsets `[W]` of windows, `stride` apart, that hold every target of every story.
    """
    check_whole("length", length, 1)
    check_whole("stride", stride, 1, length)
    rows, offsets = [], []
    for row, size in enumerate(np.asarray(windows.size).tolist()):
        beyond = max(0, size - 1 - length)  # targets that the first window does not hold
        starts = range(0, stride * -(-beyond // stride) + 1, stride)
        rows += [row] * len(starts)
        offsets += starts
    return np.array(rows, np.int32), np.array(offsets, np.int32)


def to_batch(cut: Cut) -> Batch:
    """Inputs and targets of windows."""
    return make_batch(cut.ids, cut.mask)


def features_of(windows: Windows, cut: Cut) -> tuple[Array, Array]:
    """The features of each input position, `[B, T, F]` float32 in `FEATURES`' order, and a mask.

    Returns:
        Features, and `[B, T]`: false at padding and markers, which have none.
    """
    index = cut.index[:, :-1]
    pos = windows.pos[index][..., None] == jnp.arange(len(POS_TAGS))
    dep = windows.dep[index][..., None] == jnp.arange(len(DEPENDENCIES))
    place = windows.place[index]
    own = jnp.stack([place.astype(jnp.float32), cut.share[:, :-1]], axis=-1)
    found = jnp.concatenate([pos.astype(jnp.float32), dep.astype(jnp.float32), own], axis=-1)
    assert found.shape[-1] == len(FEATURES)
    return found, cut.mask[:, :-1] & windows.text[index]
