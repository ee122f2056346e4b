"""Which nodes are worked on together, and on how many columns?

The unit of work is a *row*: one component (direct or precached) of one node. A node at position i
needs columns <= i only, so rows are grouped by position into chunks that work on a static slice of
columns. Within a chunk rows stand by descending layer: the rows that block b touches (those of
layers above b) are then a prefix.
"""

from typing import NamedTuple

import numpy as np

from jaxfeat.types import Node, UserError, check_nodes

DIRECT, PRECACHED = 0, 1


class Row(NamedTuple):
    """One component of one node."""

    layer: int
    position: int
    component: int


class Chunk(NamedTuple):
    """Rows that run on columns 0..length-1."""

    rows: tuple[Row, ...]
    length: int

    def from_layer(self, layer: int) -> int:
        """How many rows stand at this layer or above: they are the first ones."""
        return sum(r.layer >= layer for r in self.rows)


class Plan(NamedTuple):
    """The rows of a set of nodes in chunks; `at_once` rows of a chunk run batched."""

    nodes: tuple[Node, ...]
    chunks: tuple[Chunk, ...]
    layers: int
    at_once: int

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows, chunk after chunk."""
        return tuple(r for c in self.chunks for r in c.rows)

    @property
    def top(self) -> int:
        """The highest layer of a node."""
        return max(k for k, _ in self.nodes)


def make_plan(
    nodes,
    *,
    layers: int,
    length: int,
    precached: bool = True,
    chunks: int = 4,
    at_once: int = 1,
) -> Plan:
    """Rows for nodes, in chunks of neighbouring positions.

    Args:
        nodes: pairs (layer, position).
        layers, length: N and T of the model.
        precached: whether precached parts exist: not in a myopic graph.
        chunks: into how many slices of columns the positions are grouped. More waste fewer
            columns and compile longer.
        at_once: rows of a chunk that are batched into one product; memory grows with it, results
            do not depend on it.

    Raises:
        UserError: a node out of range, `chunks` or `at_once` below 1.

    >>> plan = make_plan([(1, 0), (2, 3)], layers=2, length=4)
    >>> [(r.layer, r.position, r.component) for r in plan.rows]
    [(1, 0, 0), (1, 0, 1), (2, 3, 0)]
    """
    nodes = check_nodes(nodes, layers, length)
    if chunks < 1 or at_once < 1:
        raise UserError(f"chunks {chunks}, at_once {at_once}: both must be at least 1")
    positions = sorted({i for _, i in nodes})
    groups = [set(g.tolist()) for g in np.array_split(positions, min(chunks, len(positions)))]
    made = []
    for group in groups:
        rows = [
            Row(k, i, c)
            for k, i in nodes
            for c in (DIRECT, PRECACHED)
            # at layer N, and in a myopic graph, nothing later depends on the node
            if i in group and (c == DIRECT or (precached and k < layers))
        ]
        rows.sort(key=lambda r: (-r.layer, r.position, r.component))
        made.append(Chunk(tuple(rows), max(group) + 1))
    return Plan(nodes, tuple(made), layers, at_once)


def row_index(plan: Plan) -> np.ndarray:
    """`[nodes, 2]`: where each node's direct and precached row stands in `plan.rows`, -1 if none."""
    at = {row: n for n, row in enumerate(plan.rows)}
    return np.array([[at.get(Row(k, i, c), -1) for c in (0, 1)] for k, i in plan.nodes])
