"""Which parts of the gradient does a training variant switch off?

`myopic` cuts what later positions send back (no pre-caching), `untied` gives positions < m and
>= m parameters of their own (no sharing across m), `both` does both, `fully_untied` gives every
position its own (arXiv 2603.14087; myopic: Wu, Morris, Levine 2024). `beta=X` multiplies what later
positions send back by X: 0 is myopic, 1 standard, 2 doubles it; `beta=X,Y` weighs block by block.
"""

from typing import NamedTuple

import jax

from jaxfeat.nn import route as routes
from jaxfeat.nn.copies import Copies, check_copies, stack_copies
from jaxfeat.nn.decoder import Decoder
from jaxfeat.types import Array, Tree, UserError, check_whole

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
    if not isinstance(name, str):
        raise UserError(f"variant {name!r}: a name needed; valid: {', '.join(VARIANTS)}, beta=X")
    m = check_whole("m", m, 1, check_whole("length", length, 2) - 1)
    if (betas := read_betas(name)) is not None:
        return Variant(name, routes.scaled(*betas), None)
    if name not in VARIANTS:
        raise UserError(f"variant {name!r} is unknown; valid: {', '.join(VARIANTS)}, beta=X")
    route = routes.myopic() if name in ("myopic", "both") else None
    copies = {"untied": (0, m), "both": (0, m), "fully_untied": tuple(range(length))}.get(name)
    return Variant(name, route, check_copies(copies, length))


def read_betas(name: str) -> tuple[float, ...] | None:
    """The weights in the name of a variant `beta=X` or `beta=X,Y`; None for other names.

    Raises:
        UserError: a weight that is no finite number of at least 0.

    >>> read_betas("beta=0.5,2"), read_betas("myopic")
    ((0.5, 2.0), None)
    """
    if not name.startswith("beta="):
        return None
    try:
        betas = tuple(float(word) for word in name.removeprefix("beta=").split(","))
        routes.resolve(routes.scaled(*betas), 1)
    except ValueError:
        raise UserError(f"variant {name!r}: beta takes finite numbers >= 0") from None
    return betas


def is_myopic(variant: Variant, length: int) -> bool:
    """Whether later positions send nothing back, so that nothing is precached."""
    return isinstance(routes.resolve(variant.route, length), str)


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
