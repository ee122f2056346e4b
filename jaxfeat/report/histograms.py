"""How are positive values of several groups spread, on a logarithmic axis?"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxfeat.report.figures import Line, LinePanel, hues_of, legend
from jaxfeat.report.style import GRID, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def log_histogram(
    title: str, groups: dict[str, Any], *, x_label: str, y_label: str, bins: int = 18
) -> tuple["Figure", Sequence[LinePanel]]:
    """Steps of each group's share by bin, bins equally wide in the logarithm.

    Args:
        groups: name -> `[n]` values above 0; empty groups are left out.
        bins: over the range of all groups together.

    Returns:
        The figure, and a panel of its numbers: x is a bin's lower end, y the share of the group.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator

    values = {name: np.asarray(x, float) for name, x in groups.items() if len(x)}
    every = np.concatenate(list(values.values()))
    edges = np.geomspace(every.min() / 1.001, every.max() * 1.001, bins + 1)
    lines = [
        Line(f"{name} ({len(x)})", edges[:-1], np.histogram(x, edges)[0] / len(x))
        for name, x in values.items()
    ]
    with style():
        figure = Figure(figsize=(4.4, 3.0), layout="constrained")
        axes = figure.subplots()
        axes.set_title(title)
        axes.grid(color=GRID, linewidth=0.7)
        hues, handles = hues_of(lines), {}
        for line in lines:
            axes.stairs(line.y, edges, color=hues[line.label], alpha=0.18, fill=True)
            handles[line.label] = axes.stairs(line.y, edges, color=hues[line.label], linewidth=1.6)
        axes.set_xscale("log")
        wide = edges[-1] > 1000 * edges[0]
        axes.xaxis.set_major_locator(LogLocator(subs=(1,) if wide else (1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.xaxis.set_minor_locator(LogLocator(subs=()))
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        legend(figure, handles)
    return figure, [LinePanel(title, lines)]
