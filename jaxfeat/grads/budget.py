"""Does tracking fit into memory, and how many rows can be batched in it?"""

from typing import Any

import jax

from jaxfeat import tree
from jaxfeat.grads.plan import Plan
from jaxfeat.grads.sweep import zero_parts
from jaxfeat.types import Tree, UserError

FEWEST = 16  # sequences worked on together below which products are too small
FLOWS = 3  # arrays [R, B, T, D] alive at once: cotangents, what flows, what is dealt out


def estimate_bytes(
    params: Tree,
    plan: Plan,
    *,
    batch: int,
    held: int,
    length: int,
    width: int,
    hidden: int,
    also_sgd: bool = False,
) -> int:
    """Bytes that a tracked update takes beyond a plain one, to within a factor of two.

    Component moments and steps are counted exactly, as are the ledger's sums; what flows between
    blocks is `[R, B, T, D]` with the columns of each chunk, and inside a block `at_once` rows hold
    `[B, T, 8 D + 4 F]`, where B is the plan's `examples` or all there are.

    Args:
        params: arrays or shapes. batch, held: sequences of an update and of E.
        length, width, hidden: T, D, F. also_sgd: as of the tracker.
    """
    size = max(x.dtype.itemsize for x in jax.tree.leaves(params))
    parts = tree.bytes_of(jax.eval_shape(lambda p: zero_parts(p, plan), params))
    rows, nodes = len(plan.rows), len(plan.nodes)
    examples = min(plan.examples, max(batch, held))
    columns = sum(len(chunk.index) * chunk.length for chunk in plan.chunks)
    flows = FLOWS * columns * examples * width * size
    inside = min(plan.at_once, rows) * examples * length * (8 * width + 4 * hidden) * size
    sums = nodes * size * (9 * held * width + 15 * width**2)
    held_parts = 4 if also_sgd else 2  # moments and steps; gradients and their sums
    return held_parts * parts + flows + inside + (2 if also_sgd else 1) * sums


def fit_plan(plan: Plan, params: Tree, memory_bytes: float, **sizes: Any) -> tuple[Plan, int]:
    """The plan with `at_once`, then `examples` halved until the memory holds what is tracked.

    Args:
        sizes: as for `estimate_bytes`.

    Returns:
        The plan and its estimate in bytes.

    Raises:
        UserError: even one row of `FEWEST` sequences at a time needs more.
    """
    while (need := estimate_bytes(params, plan, **sizes)) > memory_bytes:
        if plan.at_once > 1:
            plan = plan._replace(at_once=plan.at_once // 2)
        elif plan.examples > FEWEST:
            plan = plan._replace(examples=max(FEWEST, plan.examples // 2))
        else:
            raise UserError(
                f"--memory-gb: tracking {len(plan.nodes)} nodes needs about {need / 1e9:.2g} GB, "
                f"{memory_bytes / 1e9:.2g} GB allowed; track fewer nodes"
            )
    return plan, need
