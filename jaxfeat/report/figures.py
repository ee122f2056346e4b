"""How do results look: lines and points with intervals, maps, stacked component shares?

Matplotlib's object-oriented API, no pyplot and no global state.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxfeat.report.style import COLORS, CYCLE, GRID, INK, SOFT, style
from jaxfeat.types import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Line(NamedTuple):
    """One curve: `x`, `y` of shape `[points]`, its 95 % band and, if no fixed one, its colour."""

    label: str
    x: Any
    y: Any
    low: Any = None
    high: Any = None
    color: str | None = None


class LinePanel(NamedTuple):
    """A small set of axes with curves; `y_label` where a panel shows another quantity."""

    title: str
    lines: Sequence[Line]
    y_label: str | None = None


class MapPanel(NamedTuple):
    """A map: `values` `[rows, columns]`, row 0 at the bottom (the embedding); NaN is left blank."""

    title: str
    values: Any
    x: Sequence[Any] | None = None  # names of the columns, else 0, 1, ...
    y: Sequence[Any] | None = None  # names of the rows, else 0, 1, ...


class BarPanel(NamedTuple):
    """Bars at the places `x`, each a stack of `parts`: name -> `[bars]` of either sign."""

    title: str
    x: Sequence[Any]
    parts: Mapping[str, Any]


def line_panels(
    panels: Sequence[LinePanel],
    *,
    x_label: str,
    y_label: str,
    share_y: bool = True,
    columns: int = 3,
    zero: bool = False,
    log_x: bool = False,
    log_y: bool = False,
    x_ticks: Sequence[float] | None = None,
) -> "Figure":
    """Small panels of curves with shaded 95 % bands and one legend below them.

    Args:
        panels: what to draw; colours follow the labels (`COLORS`, else a cycle), the same in each.
        x_label, y_label: with units.
        share_y: one y range for all panels.
        columns: panels side by side.
        zero: draw the line y = 0.
        log_x, log_y: logarithmic axes.
        x_ticks: where the x axis is marked, if not at round numbers.
    """
    with style():
        figure, grid = _grid(len(panels), columns, (2.7, 2.15), share_y)
        hues = hues_of([line for panel in panels for line in panel.lines])
        handles: dict[str, Any] = {}
        for axes, panel in zip(grid, panels):
            axes.set_title(panel.title)
            axes.grid(color=GRID, linewidth=0.7)
            if zero:
                axes.axhline(0.0, color=SOFT, linewidth=0.8, zorder=1.5)
            for line in panel.lines:
                hue, x = hues[line.label], np.asarray(line.x)
                few = "o" if len(x) <= 12 else None
                dash = "--" if line.label == "untrained" else "-"
                (handle,) = axes.plot(x, line.y, dash, color=hue, marker=few, markersize=3.2)
                handles.setdefault(line.label, handle)
                if line.low is not None and line.high is not None:
                    axes.fill_between(x, line.low, line.high, color=hue, alpha=0.18, linewidth=0)
            if log_x:
                axes.set_xscale("log")
                axes.xaxis.set_minor_formatter("")
            else:
                _whole_ticks(axes, [v for line in panel.lines for v in np.asarray(line.x)])
            if x_ticks is not None:
                axes.set_xticks(x_ticks, [f"{x:.3g}" for x in x_ticks])
            if log_y:
                axes.set_yscale("log")
            axes.margins(x=0.03)
        _label(grid, columns, x_label, y_label)
        _finish(figure, grid, panels, handles)
    return figure


def interval_points(
    panels: Sequence[LinePanel],
    *,
    x_label: str = "",
    y_label: str,
    share_y: bool = True,
    columns: int = 3,
) -> "Figure":
    """Estimates with their 95 % intervals by category, one point a curve side by side.

    Args:
        panels: `Line`s whose `x` are the categories' names, the same in each line of a panel.
        x_label, y_label: with units.
        share_y: one y range for all panels.
        columns: panels side by side.
    """
    with style():
        most = max(len(line.x) for panel in panels for line in panel.lines)
        size = (min(max(2.7, 0.75 * most + 0.6), 5.0), 2.5)
        figure, grid = _grid(len(panels), columns, size, share_y)
        hues = hues_of([line for panel in panels for line in panel.lines])
        handles: dict[str, Any] = {}
        for axes, panel in zip(grid, panels):
            axes.set_title(panel.title)
            axes.grid(axis="y", color=GRID, linewidth=0.7)
            axes.axhline(0.0, color=SOFT, linewidth=0.8, zorder=1.5)
            for n, line in enumerate(panel.lines):
                place = np.arange(len(line.x)) + 0.22 * (n - (len(panel.lines) - 1) / 2)
                if line.low is not None and line.high is not None:
                    bounds = np.asarray(line.low, float), np.asarray(line.high, float)
                    axes.vlines(place, *bounds, color=hues[line.label], linewidth=1.6)
                (handle,) = axes.plot(place, line.y, "o", color=hues[line.label], markersize=4.5)
                handles.setdefault(line.label, handle)
            names = panel.lines[0].x
            axes.set_xticks(range(len(names)), [str(name) for name in names])
            axes.set_xlim(-0.6, len(names) - 0.4)
            axes.tick_params(axis="x", length=0)
        _label(grid, columns, x_label, y_label)
        _finish(figure, grid, panels, handles)
    return figure


def scatter_panels(
    panels: Sequence[LinePanel],
    *,
    x_label: str,
    y_label: str,
    share_y: bool = True,
    columns: int = 3,
    log_x: bool = False,
    log_y: bool = False,
    equal: bool = False,
) -> "Figure":
    """Clouds of points, one for each `Line` of a panel, with one legend below.

    Args:
        panels, x_label, y_label, share_y, columns: as in `line_panels`; nothing joins the points.
        log_x, log_y: logarithmic axes.
        equal: draw the diagonal, on which x = y.
    """
    with style():
        figure, grid = _grid(len(panels), columns, (3.2, 2.6), share_y)
        hues = hues_of([line for panel in panels for line in panel.lines])
        handles: dict[str, Any] = {}
        for axes, panel in zip(grid, panels):
            axes.set_title(panel.title)
            axes.grid(color=GRID, linewidth=0.7)
            for line in panel.lines:
                look = {"color": hues[line.label], "alpha": 0.6, "linewidths": 0}
                handle = axes.scatter(line.x, line.y, s=13, **look)
                handles.setdefault(line.label, handle)
            if equal:
                axes.axline((1.0, 1.0), (2.0, 2.0), color=SOFT, linewidth=0.8, zorder=1.5)
            axes.set_xscale("log" if log_x else "linear")
            axes.set_yscale("log" if log_y else "linear")
        _label(grid, columns, x_label, y_label)
        _finish(figure, grid, panels, handles)
    return figure


def heat_maps(
    panels: Sequence[MapPanel],
    *,
    x_label: str,
    y_label: str,
    bar_label: str,
    diverging: bool = False,
    limits: tuple[float, float] | None = None,
    columns: int = 3,
) -> "Figure":
    """Layer x position maps on one common scale with one colour bar.

    Args:
        panels: the maps.
        x_label, y_label: of the maps' columns and rows.
        bar_label: the quantity, with its unit.
        diverging: a scale symmetric about 0, white in the middle; else sequential.
        limits: (lowest, highest) of the scale; by default those of the data.
        columns: maps side by side.
    """
    values = [np.asarray(panel.values, float) for panel in panels]
    finite = np.concatenate([v[np.isfinite(v)] for v in values] or [np.zeros(0)])
    low, high = limits or ((finite.min(), finite.max()) if finite.size else (0.0, 1.0))
    if diverging and limits is None:
        high = max(abs(low), abs(high)) or 1.0
        low = -high
    with style():
        rows, cols = (max(v.shape[axis] for v in values) for axis in (0, 1))
        size = (min(max(1.8, 0.19 * cols + 0.6), 3.4), min(max(1.5, 0.2 * rows + 0.7), 3.2))
        figure, grid = _grid(len(panels), columns, size, share_y=True)
        for axes, panel, value in zip(grid, panels, values):
            image = axes.imshow(
                value,
                origin="lower",
                aspect="auto",
                interpolation="nearest",
                cmap="RdBu_r" if diverging else "cividis",
                vmin=low,
                vmax=high,
            )
            axes.set_title(panel.title)
            axes.patch.set(facecolor="white", edgecolor="#AAAAAA", hatch="/////")  # shows NaN
            axes.spines[:].set_visible(False)
            axes.tick_params(length=0)
            axes.set_xticks(*_ticks(panel.x, value.shape[1], 8))
            axes.set_yticks(*_ticks(panel.y, value.shape[0], 8))
        _label(grid, columns, x_label, y_label)
        bar = figure.colorbar(image, ax=list(grid), fraction=0.05, pad=0.02, aspect=22)
        bar.set_label(bar_label)
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    return figure


def stacked_bars(
    panels: Sequence[BarPanel],
    *,
    x_label: str,
    y_label: str,
    total: str = "sum",
    columns: int = 3,
) -> "Figure":
    """Shares of a whole at each place: positive parts stack up from 0, negative ones down.

    A diamond marks the sum of the parts; the part named "remainder" is hatched.

    Args:
        panels: the bars, with the same parts in each.
        x_label, y_label: with units.
        total: the name of the sum in the legend.
        columns: panels side by side.
    """
    with style():
        bars = max(len(panel.x) for panel in panels)
        size = (min(max(2.6, 0.26 * bars + 0.8), 8.5), 2.3)
        columns = min(columns, max(1, int(12 // size[0])))
        figure, grid = _grid(len(panels), columns, size, share_y=True)
        hues = hues_of([Line(name, [], []) for panel in panels for name in panel.parts])
        handles: dict[str, Any] = {}
        for axes, panel in zip(grid, panels):
            place = np.arange(len(panel.x))
            above, below = np.zeros(len(place)), np.zeros(len(place))
            for name, values in panel.parts.items():
                part = np.nan_to_num(np.asarray(values, float))
                base = np.where(part >= 0, above, below)
                look = {"color": hues[name], "edgecolor": "white", "linewidth": 0.4}
                if name == "remainder":
                    look |= {"color": "#F2F2F2", "edgecolor": "#888888", "hatch": "////"}
                handle = axes.bar(place, part, 0.78, bottom=base, **look)
                handles.setdefault(name, handle)
                above, below = above + np.maximum(part, 0), below + np.minimum(part, 0)
            look = {"color": "white", "markeredgecolor": INK, "markersize": 4.2, "linestyle": ""}
            (handle,) = axes.plot(place, above + below, "D", **look)
            handles.setdefault(total, handle)
            axes.axhline(0.0, color=INK, linewidth=0.8)
            axes.set_title(panel.title)
            axes.grid(axis="y", color=GRID, linewidth=0.7)
            axes.spines["bottom"].set_visible(False)
            axes.tick_params(axis="x", length=0)
            axes.set_xlim(-0.7, len(place) - 0.3)
            axes.set_xticks(*_ticks(panel.x, len(place), 16))
        _label(grid, columns, x_label, y_label)
        legend(figure, handles)
    return figure


def _grid(
    count: int, columns: int, size: tuple[float, float], share_y: bool
) -> "tuple[Figure, list[Axes]]":
    """A figure with `count` axes in rows of `columns`, each `size` inches."""
    from matplotlib.figure import Figure

    if count < 1:
        raise UserError("a figure needs at least one panel")
    across = min(count, columns)
    down = math.ceil(count / across)
    width, height = max(size[0] * across + 0.6, 3.6), size[1] * down + 0.5
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.06, h_pad=0.06)  # type: ignore[union-attr]
    grid = figure.subplots(down, across, squeeze=False, sharey=share_y).ravel()
    for axes in grid[count:]:
        axes.set_axis_off()
    for axes in grid[max(count - across, 0) : count]:
        axes.tick_params(labelbottom=True)
    return figure, list(grid[:count])


def hues_of(lines: Sequence[Line]) -> dict[str, str]:
    """Label -> colour: given, fixed, or the next of the cycle that no fixed label uses."""
    labels = dict.fromkeys(line.label for line in lines)
    fixed = {label: COLORS[label] for label in labels if label in COLORS}
    fixed |= {line.label: line.color for line in lines if line.color}
    free = [hue for hue in CYCLE if hue not in fixed.values()] or list(CYCLE)
    others = [label for label in labels if label not in fixed]
    return fixed | {label: free[i % len(free)] for i, label in enumerate(others)}


def _label(grid: "Sequence[Axes]", columns: int, x: str, y: str) -> None:
    """The x label under each lowest panel, the y label at each row's start."""
    across = min(len(grid), columns)
    for i, axes in enumerate(grid):
        if i + across >= len(grid):
            axes.set_xlabel(x)
        if i % across == 0:
            axes.set_ylabel(y)


def legend(figure: "Figure", handles: Mapping[str, Any]) -> None:
    """One legend below the panels, in as few rows as the width allows."""
    width = figure.get_size_inches()[0]
    longest = max(len(label) for label in handles)
    across = max(1, min(len(handles), int(width / (0.5 + 0.065 * longest))))
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=across, handlelength=1.6
    )


def _finish(
    figure: "Figure",
    grid: "Sequence[Axes]",
    panels: Sequence[LinePanel],
    handles: Mapping[str, Any],
) -> None:
    """The y labels of panels that show another quantity, and a legend if it tells anything."""
    for axes, panel in zip(grid, panels):
        if panel.y_label is not None:
            axes.set_ylabel(panel.y_label)
    if len(handles) > 1:
        legend(figure, handles)


def _ticks(names: Sequence[Any] | None, count: int, most: int) -> tuple[list[int], list[str]]:
    """At most about `most` evenly spaced ticks with their names."""
    step = max(1, math.ceil(count / most))
    places = list(range(0, count, step))
    return places, [str(i if names is None else names[i]) for i in places]


def _whole_ticks(axes: "Axes", values: Sequence[Any]) -> None:
    """Whole-number x ticks where every x is whole (layers, positions, steps)."""
    from matplotlib.ticker import MaxNLocator

    array = np.asarray(values)
    if array.size and array.dtype.kind in "iuf" and np.all(array == np.round(array)):
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
