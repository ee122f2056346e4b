"""In which order does training see a corpus: every example exactly once an epoch?

The order of an epoch is a permutation that follows from (key, epoch) alone, so that a run that was
interrupted goes on with the very example it had come to. It is computed place by place: a Feistel
network over the least even number of bits that holds the corpus, walked along its cycle until the
value lies within (Black and Rogaway 2002, "Ciphers with arbitrary finite domains"), so that nothing
of the size of the corpus is made.
"""

import jax
import jax.numpy as jnp

from jaxfeat.data.holdout import mix
from jaxfeat.types import Array, check_whole

ROUNDS = 4
MOST = 2**30  # examples of a corpus that 32-bit integers hold


def epoch_rows(key: Array, step: Array, batch: int, count: int) -> Array:
    """Which examples an update sees, `[batch]` int32.

    Example n of a run (n = step * batch + 0, 1, ...) is place n mod `count` of epoch n // `count`;
    n counts up to 2^32.

    Args:
        key: of the run. step: of the update, from 0. batch, count: sizes of a batch, of the corpus.

    Raises:
        UserError: a size below 1, or a corpus above `MOST` examples.

    >>> rows = [epoch_rows(jax.random.key(0), s, 3, 6) for s in (0, 1)]
    >>> sorted(jnp.concatenate(rows).tolist())
    [0, 1, 2, 3, 4, 5]
    """
    check_whole("batch", batch, 1)
    check_whole("count", count, 1, MOST)
    n = jnp.asarray(step, jnp.uint32) * jnp.uint32(batch) + jnp.arange(batch, dtype=jnp.uint32)
    return shuffled(key, n // jnp.uint32(count), n % jnp.uint32(count), count)


def shuffled(key: Array, epoch: Array, place: Array, count: int) -> Array:
    """Entry `place` of the permutation of 0..count-1 of an epoch; arrays of one shape, int32."""
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    low = jnp.uint32(2**half - 1)
    keys = jax.random.bits(key, (ROUNDS,), jnp.uint32)

    def once(value: Array) -> Array:
        left, right = value >> half, value & low
        for r in range(ROUNDS):
            turn = mix(right ^ mix(epoch ^ mix(keys[r])))
            left, right = right, left ^ (turn & low)
        return (left << half) | right

    def outside(value: Array) -> Array:
        return value >= jnp.uint32(count)

    walk = lambda value: jnp.where(outside(value), once(value), value)
    first = once(jnp.asarray(place, jnp.uint32))
    return jax.lax.while_loop(lambda v: outside(v).any(), walk, first).astype(jnp.int32)
