"""What do all figures have in common?

Colours are safe for colour-blind readers, fixed for each component and variant.
"""

from typing import Any

COLORS = {
    # components of a gradient (Okabe and Ito)
    "direct": "#0072B2",
    "precached": "#D55E00",
    "shared": "#009E73",
    "combined": "#333333",
    "remainder": "#B8B8B8",
    # variants of training (Tol, muted)
    "standard": "#332288",
    "myopic": "#CC6677",
    "untied": "#DDAA33",
    "both": "#44AA99",
    "untrained": "#8C8C8C",
}
CYCLE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#332288", "#777777")
INK, SOFT, GRID = "#222222", "#666666", "#E6E6E6"
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib: the same picture everywhere
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "hatch.linewidth": 0.6,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "jaxfeat",  # the same numbers give the same bytes
}


def style():
    """The style for the length of one function; the caller's settings come back."""
    from matplotlib import rc_context

    return rc_context(STYLE)
