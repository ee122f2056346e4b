"""Do the figures show what they are given, the same way each time, with the numbers behind them?"""

import matplotlib
import numpy as np
import pytest

from jaxfeat.io.parquet import read_table, table_units
from jaxfeat.report.figure_files import numbers_of, save_figure
from jaxfeat.report.figures import (
    COLORS,
    BarPanel,
    Line,
    LinePanel,
    MapPanel,
    heat_maps,
    interval_points,
    line_panels,
    scatter_panels,
    stacked_bars,
)
from jaxfeat.types import UserError

X = np.arange(4)
LINES = [
    LinePanel(
        f"layer {k}", [Line("direct", X, X * 0.1 + k, X * 0.1, X * 0.2 + k), Line("mine", X, X)]
    )
    for k in (1, 2)
]
BARS = [
    BarPanel(
        "one", ["a", "b"], {"direct": [0.5, -0.2], "shared": [-0.1, 0.4], "remainder": [0.1, 0]}
    )
]


def _hex(color) -> str:
    return matplotlib.colors.to_hex(color).upper()


def test_lines_keep_fixed_colours_bands_and_one_legend():
    figure = line_panels(LINES, x_label="position", y_label="loss (nats)", zero=True)
    first, second = figure.axes
    assert _hex(first.lines[1].get_color()) == COLORS["direct"]
    assert [_hex(a.lines[2].get_color()) for a in (first, second)].count(COLORS["direct"]) == 0
    assert len(first.collections) == 1  # the band of the one line that has bounds
    assert first.get_ylim() == second.get_ylim()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["direct", "mine"]
    assert first.get_legend() is None
    assert first.get_ylabel() == "loss (nats)" and second.get_ylabel() == ""


def test_clouds_are_not_joined():
    """Every point stands where it should, in its label's colour; axes are logarithmic as asked."""
    figure = scatter_panels(LINES, x_label="Q", y_label="share", log_x=True)
    first, second = figure.axes
    assert [len(axes.lines) for axes in figure.axes] == [0, 0]
    np.testing.assert_allclose(second.collections[0].get_offsets(), np.stack([X, X * 0.1 + 2], 1))
    assert _hex(first.collections[0].get_facecolor()[0]) == COLORS["direct"]
    assert first.get_xscale() == "log" and first.get_yscale() == "linear"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["direct", "mine"]


def test_points_with_intervals():
    """One point a line and category, side by side, each with its interval; a line at 0."""
    names = ("direct", "shared")
    lines = [
        Line("useful", names, [1.0, -1.0], [0.5, -2.0], [1.5, 0.0]),
        Line("useless", names, [0.2, 0.1]),
    ]
    panels = [LinePanel("by type", lines), LinePanel("alone", lines[:1])]
    figure = interval_points(panels, y_label="share")
    first, second = figure.axes
    (bounds,) = first.collections
    np.testing.assert_allclose(
        [segment[:, 1] for segment in bounds.get_segments()], [[0.5, 1.5], [-2.0, 0.0]]
    )
    zero, useful, useless = first.lines
    assert set(zero.get_ydata()) == {0}
    np.testing.assert_allclose(useful.get_ydata(), [1.0, -1.0])
    assert (useless.get_xdata() > useful.get_xdata()).all()
    np.testing.assert_allclose(second.lines[1].get_xdata(), [0, 1])
    assert [t.get_text() for t in first.get_xticklabels()] == list(names)
    assert first.get_ylim() == second.get_ylim() and first.get_ylabel() == "share"
    table = numbers_of(panels)
    assert table["x"].tolist() == ["direct", "shared"] * 3
    np.testing.assert_allclose(table["low"], [0.5, -2.0, np.nan, np.nan, 0.5, -2.0])


def test_maps_share_one_symmetric_scale():
    values = np.array([[0.5, np.nan], [-3.0, 1.0]])
    maps = [MapPanel("a", values), MapPanel("b", values / 2)]
    figure = heat_maps(maps, x_label="position", y_label="layer", bar_label="nats", diverging=True)
    images = [axes.images[0] for axes in figure.axes[:2]]
    assert [image.get_clim() for image in images] == [(-3.0, 3.0)] * 2
    assert len(figure.axes) == 3  # one colour bar
    blank = heat_maps([MapPanel("a", [[np.nan]])], x_label="", y_label="", bar_label="")
    assert blank.axes[0].images[0].get_clim() == (0.0, 1.0)


def test_bars_stack_both_ways_and_mark_the_sum():
    axes = stacked_bars(BARS, x_label="model", y_label="share").axes[0]
    spans = [(b.get_y(), b.get_y() + b.get_height()) for b in axes.patches]
    wanted = [(0, 0.5), (0, -0.2), (0, -0.1), (0, 0.4), (0.5, 0.6), (0.4, 0.4)]
    np.testing.assert_allclose(spans, wanted)
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [0.5, 0.2])
    assert axes.patches[-1].get_hatch() and not axes.patches[0].get_hatch()


def test_a_saved_figure_is_complete_and_deterministic(tmp_path):
    before = dict(matplotlib.rcParams)
    files = []
    for folder in ("one", "two"):
        figure = stacked_bars(BARS, x_label="model", y_label="share <&>")
        path = save_figure(figure, tmp_path / folder, "shares", numbers_of(BARS), {"value": "1"})
        assert path == tmp_path / folder / "shares.png"
        files.append({p.name: p.read_bytes() for p in (tmp_path / folder).iterdir()})
    assert files[0] == files[1]
    assert sorted(files[0]) == ["shares.parquet", "shares.png", "shares.svg"]
    assert dict(matplotlib.rcParams) == before
    svg = files[0]["shares.svg"].decode()
    assert ">share &lt;&amp;&gt;</text>" in svg and "<dc:date>" not in svg
    assert int.from_bytes(files[0]["shares.png"][16:20], "big") >= 3 * 150
    table = tmp_path / "one" / "shares.parquet"
    assert read_table(table)["part"].tolist() == ["direct"] * 2 + ["shared"] * 2 + ["remainder"] * 2
    assert table_units(table) == {"value": "1"}


def test_numbers_of_lines_and_maps():
    lines = numbers_of(LINES)
    assert len(lines["y"]) == 16 and np.isnan(lines["low"]).sum() == 8
    maps = numbers_of([MapPanel("a", [[1.0, 2.0], [3.0, 4.0]], x=["u", "v"])])
    assert maps["value"].tolist() == [1, 2, 3, 4]
    assert maps["row"].tolist() == [0, 0, 1, 1] and maps["column"].tolist() == ["u", "v"] * 2


def test_bad_requests_are_named(tmp_path):
    with pytest.raises(UserError, match="at least one panel"):
        line_panels([], x_label="", y_label="")
    with pytest.raises(UserError, match="plain name"):
        save_figure(None, tmp_path, "../a", {"x": [1]})  # type: ignore[arg-type]
