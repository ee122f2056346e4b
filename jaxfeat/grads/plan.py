"""Which nodes are worked on together, and on how many columns?

The unit of work is a *row*: one component (direct or precached) of one node. Rows stand by
descending layer, so that those a block lies below are a prefix and those it ends at a slice. A
node at position i needs columns <= i only: rows are grouped by position into chunks, and below its
top block each chunk works on a static slice of columns.
"""

from typing import NamedTuple

import numpy as np

from jaxfeat.types import Node, check_nodes, check_whole

DIRECT, PRECACHED = 0, 1
EXAMPLES = 256  # sequences that are worked on together unless told otherwise


class Row(NamedTuple):
    """One component of one node."""

    layer: int
    position: int
    component: int


class Chunk(NamedTuple):
    """Rows that run on columns 0..length-1; `index` is where they stand among all rows."""

    index: tuple[int, ...]
    length: int


class Plan(NamedTuple):
    """The rows of a set of nodes, and how many rows and sequences are worked on together.

    `at_once` rows are batched into one product. Of the sequences of a batch or of E at most
    `examples` are worked on together (the largest divisor of their number).
    """

    nodes: tuple[Node, ...]
    rows: tuple[Row, ...]
    chunks: tuple[Chunk, ...]
    at_once: int
    examples: int = EXAMPLES

    @property
    def top(self) -> int:
        """The highest layer of a node: how many blocks are touched."""
        return self.rows[0].layer

    def ending(self, layer: int) -> slice:
        """The rows whose node is at this layer."""
        layers = [r.layer for r in self.rows]
        first = sum(k > layer for k in layers)
        return slice(first, first + layers.count(layer))

    def above(self, chunk: Chunk, layer: int) -> int:
        """How many rows of a chunk have their node above this layer: its first ones."""
        return sum(self.rows[n].layer > layer for n in chunk.index)


def make_plan(
    nodes,
    *,
    layers: int,
    length: int,
    precached: bool = True,
    chunks: int = 4,
    at_once: int = 1,
    examples: int = EXAMPLES,
) -> Plan:
    """Rows for nodes, in chunks of neighbouring positions.

    Args:
        nodes: pairs (layer, position).
        layers, length: N and T of the model.
        precached: whether precached parts exist: not in a myopic graph.
        chunks: into how many slices of columns the positions are grouped. More waste fewer
            columns and compile longer.
        at_once, examples: rows of a chunk that are batched into one product, sequences that are
            worked on together; memory grows with them, results depend on them by rounding alone.

    Raises:
        UserError: a node out of range, `chunks`, `at_once` or `examples` below 1.

    >>> plan = make_plan([(1, 0), (2, 3)], layers=2, length=4)
    >>> [(r.layer, r.position, r.component) for r in plan.rows]
    [(2, 3, 0), (1, 0, 0), (1, 0, 1)]
    """
    nodes = check_nodes(nodes, layers, length)
    for name, value in (("chunks", chunks), ("at_once", at_once), ("examples", examples)):
        check_whole(name, value, 1)
    # at layer N, and in a myopic graph, nothing later depends on the node
    rows = [
        Row(k, i, c)
        for k, i in nodes
        for c in (DIRECT, PRECACHED)
        if c == DIRECT or (precached and k < layers)
    ]
    rows.sort(key=lambda r: (-r.layer, r.position, r.component))
    positions = sorted({i for _, i in nodes})
    groups = [set(g.tolist()) for g in np.array_split(positions, min(chunks, len(positions)))]
    made = tuple(
        Chunk(tuple(n for n, r in enumerate(rows) if r.position in group), max(group) + 1)
        for group in groups
    )
    return Plan(nodes, tuple(rows), made, at_once, examples)


def row_index(plan: Plan) -> np.ndarray:
    """`[nodes, 2]`: where each node's direct and precached row is in `plan.rows`, -1 if none."""
    at = {row: n for n, row in enumerate(plan.rows)}
    return np.array([[at.get(Row(k, i, c), -1) for c in (0, 1)] for k, i in plan.nodes])
