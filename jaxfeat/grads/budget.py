"""Does tracking fit into memory, and how many rows can be batched in it?"""

import jax

from jaxfeat import tree
from jaxfeat.grads.moments import zero_parts
from jaxfeat.grads.plan import Plan
from jaxfeat.types import Tree, UserError

FLOWS = 3  # arrays [R, B, T, D] alive at once: cotangents, what flows, what is dealt out


def estimate_bytes(
    params: Tree, plan: Plan, *, batch: int, held: int, length: int, width: int, hidden: int
) -> int:
    """Bytes that a tracked update takes beyond a plain one, to within a factor of two.

    Component moments and steps are counted exactly, as are the ledger's sums; what flows between
    blocks is `[R, B, T, D]`, and inside a block `at_once` rows hold `[B, T, 8 D + 4 F]`.

    Args:
        params: arrays or shapes. batch: sequences at once (the larger of an update's and of E's).
        held: sequences of E. length, width, hidden: T, D, F.
    """
    size = max(x.dtype.itemsize for x in jax.tree.leaves(params))
    parts = tree.bytes_of(jax.eval_shape(lambda p: zero_parts(p, plan), params))
    rows, nodes = len(plan.rows), len(plan.nodes)
    flows = FLOWS * rows * batch * length * width * size
    inside = min(plan.at_once, rows) * batch * length * (8 * width + 4 * hidden) * size
    sums = nodes * size * (9 * held * width + 15 * width**2)
    return 2 * parts + flows + inside + sums


def fit_plan(plan: Plan, params: Tree, memory_bytes: float, **sizes: int) -> Plan:
    """The plan with as many rows batched (at most its `at_once`) as the memory holds.

    Args:
        sizes: as for `estimate_bytes`.

    Raises:
        UserError: even one row at a time needs more.
    """
    at_once = plan.at_once
    while (need := estimate_bytes(params, plan._replace(at_once=at_once), **sizes)) > memory_bytes:
        if at_once == 1:
            raise UserError(
                f"--memory-gb: tracking {len(plan.nodes)} nodes needs about {need / 1e9:.2g} GB, "
                f"{memory_bytes / 1e9:.2g} GB allowed; track fewer nodes or examples at once"
            )
        at_once = max(1, at_once // 2)
    return plan._replace(at_once=at_once)
