"""Which examples are kept from training? About one in eight, by a hash of what they are."""

from typing import Any

import numpy as np


def mix(h: Any) -> Any:
    """MurmurHash3's finaliser of uint32 values (JAX or NumPy): every bit depends on all."""
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def held_out(h: Any) -> Any:
    """Whether hashes fall on the held-out eighth.

    >>> held_out(np.uint32(7)), held_out(np.uint32(2**31))
    (np.True_, np.False_)
    """
    return h >> np.uint32(29) == 0
