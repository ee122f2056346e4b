"""Which rows of a table that is read by token can a component have moved? Those that occur.

An embedding row of a token that is in no sequence of training and not in E has zero component
moments for ever and is read by no JVP, so that holding the rows of occurring tokens alone is exact.
The softmax keeps its whole vocabulary: rows of a tied table that never occur as inputs move by
`shared` alone.
"""

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.nn.copies import Copies
from jaxfeat.nn.decoder import Decoder
from jaxfeat.types import Array, Batch, Tree, UserError


def occurring_ids(tokens: np.ndarray, vocab: int) -> np.ndarray:
    """The ids that occur, `[K]` ascending.

    Args:
        tokens: any array of ids of all of training and of E. vocab: V.

    Raises:
        UserError: no token, or an id out of range.

    >>> occurring_ids(np.array([[3, 1], [3, 3]]), 5).tolist()
    [1, 3]
    """
    found = np.unique(np.asarray(tokens))
    whole = found.dtype.kind in "iu"
    if not found.size or not whole or found[0] < 0 or found[-1] >= vocab:
        told = f"{found[0]}..{found[-1]}" if found.size else "none"
        raise UserError(f"tokens: ids {told} given, some of 0..{vocab - 1} needed")
    return found.astype(np.int32)


def cut_tables(
    decoder: Decoder, tree: Tree, ids: np.ndarray | None, copies: Copies = None
) -> Tree:
    """Parameters, or values shaped like them, with the rows `ids` of `decoder.by_token` alone.

    Args:
        ids: `[K]`, or None: then nothing is cut.

    Raises:
        UserError: the model names no tables; ids that do not ascend or are out of range.
    """
    if ids is None:
        return tree
    ids = np.asarray(ids)
    if not np.array_equal(occurring_ids(ids, decoder.vocab), ids):
        raise UserError("occurring: ids must ascend, each once")
    if not decoder.by_token:
        raise UserError("occurring: the model names no tables that are read by token (by_token)")

    def cut(path, leaf: Array) -> Array:
        named = tuple(entry.key for entry in path) in decoder.by_token
        return jnp.take(leaf, ids, axis=int(copies is not None)) if named else leaf

    return tree | {"outer": jax.tree_util.tree_map_with_path(cut, tree["outer"])}


def renumber(batch: Batch, ids: np.ndarray | None, vocab: int) -> tuple[Batch, Array]:
    """The batch with each token's place among `ids`, and whether all real tokens are listed."""
    if ids is None:
        return batch, jnp.array(True)
    place = np.full(vocab, -1, np.int32)
    place[ids] = np.arange(len(ids), dtype=np.int32)
    token = jnp.asarray(place)[batch.token]
    listed = jnp.all((token >= 0) | ~batch.mask)
    return batch._replace(token=jnp.maximum(token, 0)), listed
