"""How much of a component acted through the same copy of the parameters, and how much by tying?

Seen as if each segment of positions had parameters of its own, `I_c = sum_{p,q} <grad_p R, G_c,q>`:
p = q is the same copy, p != q comes by tying the copies. A run tracked with `Tracker.by_copy` keeps
a second ledger ("same_copy") of the first kind; the rest is the difference.
"""

from typing import Any, NamedTuple

import numpy as np

from jaxfeat.grads.ledger import Ledger, influence
from jaxfeat.types import COMPONENTS, UserError


class ByCopy(NamedTuple):
    """Influence of direct, precached, shared through the same and through other copies.

    Both `[3, n, F]`; they sum to the components' influence.
    """

    same: np.ndarray
    other: np.ndarray


def influence_by_copy(ledger: Ledger, same: Ledger, w: np.ndarray, **where: Any) -> ByCopy:
    """Each component's influence on features, parted by parameter copy.

    Args:
        ledger: of the run. same: its "same_copy" ledger, with the same ladder.
        w: as in `jaxfeat.grads.ledger.influence`, as are the keywords.

    Raises:
        UserError: ledgers of other nodes, steps or examples; what `influence` refuses.
    """
    if (ledger.nodes, ledger.steps) != (same.nodes, same.steps):
        raise UserError("same: the ledgers must have the same nodes and ladder")
    if not np.array_equal(ledger.resid, same.resid) or same.moved.shape[2] != len(COMPONENTS):
        raise UserError('same: the "same_copy" ledger of the same run on the same examples needed')
    whole, own = influence(ledger, w, **where), influence(same, w, **where)
    stack = lambda told: np.stack([getattr(told, name) for name in COMPONENTS])
    return ByCopy(stack(own), stack(whole) - stack(own))
