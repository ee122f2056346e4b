"""How does a figure reach the disk: as PNG and SVG, always with the numbers behind it?"""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxfeat.io.atomic import replacing
from jaxfeat.io.parquet import write_table
from jaxfeat.report.figures import BarPanel, LinePanel, MapPanel
from jaxfeat.report.style import STYLE
from jaxfeat.types import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def numbers_of(panels: Sequence[LinePanel | MapPanel | BarPanel]) -> dict[str, np.ndarray]:
    """The numbers behind panels as one long table, ready for `save_figure`.

    Lines give panel, label, x, y, low, high; maps panel, row, column, value; bars panel, x, part,
    value. Missing bounds are NaN.

    >>> numbers_of([BarPanel("a", [0, 1], {"direct": [0.5, -0.1]})])["value"].tolist()
    [0.5, -0.1]
    """
    rows: list[tuple] = []
    names: tuple[str, ...] = ()
    for panel in panels:
        if isinstance(panel, LinePanel):
            names = ("panel", "label", "x", "y", "low", "high")
            for line in panel.lines:
                blank = np.full(len(line.y), math.nan)
                bounds = [blank if b is None else b for b in (line.low, line.high)]
                rows += [(panel.title, line.label, *p) for p in zip(line.x, line.y, *bounds)]
        elif isinstance(panel, BarPanel):
            names = ("panel", "x", "part", "value")
            for part, values in panel.parts.items():
                rows += [(panel.title, x, part, v) for x, v in zip(panel.x, values)]
        else:
            names = ("panel", "row", "column", "value")
            value = np.asarray(panel.values, float)
            up, across = (
                np.arange(n) if given is None else given
                for n, given in zip(value.shape, (panel.y, panel.x))
            )
            rows += [
                (panel.title, r, c, value[i, j])
                for i, r in enumerate(up)
                for j, c in enumerate(across)
            ]
    return {name: np.array([row[j] for row in rows]) for j, name in enumerate(names)}


def save_figure(
    figure: "Figure",
    folder: str | os.PathLike,
    name: str,
    numbers: Mapping[str, Any],
    units: Mapping[str, str] | None = None,
) -> Path:
    """Write NAME.png (200 dpi), NAME.svg (text as text) and NAME.parquet (the numbers behind it).

    Both pictures are deterministic: no date, no version, fixed identifiers.

    Args:
        figure: from one of `jaxfeat.report.figures`, or any matplotlib figure.
        folder: made if it is missing.
        name: file name without an ending.
        numbers: column -> `[rows]`, all equally long (see `numbers_of`).
        units: column -> unit.

    Returns:
        The path of the PNG, which the page shows.

    Raises:
        UserError: `name` holds a path separator, or the columns differ in length.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    if name != Path(name).name:
        raise UserError(f"figure name {name!r}: give a plain name without a path")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / f"{name}.parquet", numbers, units)
    FigureCanvasAgg(figure)
    with rc_context(STYLE):
        for kind, metadata in (
            ("svg", {"Date": None, "Creator": None}),
            ("png", {"Software": None}),
        ):
            with replacing(folder / f"{name}.{kind}") as temporary:
                figure.savefig(temporary, format=kind, dpi=200, metadata=metadata)
    return folder / f"{name}.png"
