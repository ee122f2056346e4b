"""Which parts of the gradient does a training variant switch off?

`myopic` cuts what later positions send back (no pre-caching), `untied` gives positions < m and
>= m parameters of their own (no sharing across m), `both` does both, `fully_untied` gives every
position its own (arXiv 2603.14087; myopic: Wu, Morris, Levine 2024).
"""

from typing import NamedTuple

import jax

from jaxfeat.nn import route as routes
from jaxfeat.nn.copies import Copies, check_copies, stack_copies
from jaxfeat.nn.decoder import Decoder
from jaxfeat.types import Array, Tree, UserError

VARIANTS = ("standard", "myopic", "untied", "both", "fully_untied")


class Variant(NamedTuple):
    """A name, the route of its gradient and the segments of its parameters."""

    name: str
    route: object
    copies: Copies


def make_variant(name: str, *, m: int, length: int) -> Variant:
    """A variant for sequences of `length` positions, untied at position m.

    Raises:
        UserError: an unknown name, or m outside 1..length-1.

    >>> make_variant("both", m=2, length=4)
    Variant(name='both', route=Route(name='myopic', value=0.0), copies=(0, 2))
    """
    if name not in VARIANTS:
        raise UserError(f"variant {name!r} is unknown; valid: {', '.join(VARIANTS)}")
    if not 1 <= m < length:
        raise UserError(f"m: {m} is outside 1..{length - 1}")
    route = routes.myopic() if name in ("myopic", "both") else None
    copies = {"untied": (0, m), "both": (0, m), "fully_untied": tuple(range(length))}.get(name)
    return Variant(name, route, check_copies(copies, length))


def init_params(
    decoder: Decoder, variant: Variant, key: Array, *, independent: bool = False
) -> Tree:
    """Initial parameters of a variant: equal copies, or independently drawn ones.

    All variants of a key start as the same function when copies are equal.
    """
    if variant.copies is None:
        return decoder.init(key)
    count = len(variant.copies)
    if independent:
        return stack_copies([decoder.init(k) for k in jax.random.split(key, count)])
    return stack_copies([decoder.init(key)] * count)
