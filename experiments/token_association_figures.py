"""Which pictures show how long weights follow their closed form?"""

from typing import Any

import numpy as np

from experiments.token_association_measures import FORMS, WHOLE, Found
from experiments.token_association_numbers import (
    largest,
    least,
    s_eta,
    worst_control,
)
from jaxfeat.corpus.by_parts import PARTS
from jaxfeat.corpus.closed_form import NAMES, SYMBOLS
from jaxfeat.corpus.compare import blocks_of
from jaxfeat.corpus.validity import ASSUMPTIONS
from jaxfeat.report import figures as draw

X = "s · eta (updates times learning rate)"
POINTS = 600  # entries of a weight in the scatter
COSINES = (
    "Cosine of every learned weight with its leading term, least over blocks: as it is, without "
    "the unigram null, and of the wrong map (another weight's, or of shuffled text) that it is "
    "nearest to."
)
ERRORS = (
    "Relative error of the leading terms, largest over blocks, the same with the next order (W_O "
    "and V), and the paper's bound on it, which is above 1 wherever it says nothing."
)
DEPARTURES = (
    "Why theory ends: how far the model has left each assumption of the closed form (relative "
    "distance over the evaluated sequences)."
)
LOSSES = (
    "Loss by parts: the residual path alone, the attention path alone, both to leading order, and "
    "the whole model, with the learned weights and with those of the closed form."
)
REMOVED = (
    "Loss that is added when the projection of a weight on its leading term is taken away, at the "
    "last rung."
)
RANKS = (
    "Does learned attention rank a context as q does? Spearman's correlation within queries, mean "
    "over queries. The ranks of q depend on the next token, which no score can know: even the "
    "closed form agrees in part only."
)
BY_QUERY = "The same at the last rung by query: later ones have more tokens to rank."
SCATTER = (
    "Entries of the learned weights (last block) against their prediction, both over the root mean "
    "square of the prediction: the largest and as many at random; on the diagonal they agree."
)


def all_figures(found: Found) -> list:
    """The page's figures with their names and captions, main ones first."""
    return [
        (_cosines(found), "cosines", COSINES),
        (_departures(found), "departures", DEPARTURES),
        (_scatter(found), "scatter", SCATTER),
        (_losses(found), "losses", LOSSES),
        (_removed(found), "removed", REMOVED),
        (_ranks(found), "attention_ranks", RANKS),
        (_ranks_by_query(found), "attention_ranks_by_query", BY_QUERY),
        (_errors(found), "errors", ERRORS),
    ]


def _x(found: Found) -> list[float]:
    """s eta of the rungs."""
    return [s_eta(found, r) for r in found.rungs]


def _over_training(
    found: Found, panels: list, y_label: str, columns: int = 1, log_y: bool = False
) -> Any:
    """Panels of curves over s eta, marked at the rungs."""
    figure = draw.line_panels(
        panels, x_label=X, y_label=y_label, columns=columns, log_x=True, log_y=log_y,
        x_ticks=_x(found),
    )  # fmt: skip
    return figure, panels


def _cosines(found: Found) -> Any:
    """Raw, beyond the null and of the nearest wrong map, a panel a weight."""
    panels = []
    for name in NAMES:
        of = lambda field, name=name: [least(r.rows, name, field) for r in found.rungs]
        wrong = [abs(worst_control(r, name)[1]) for r in found.rungs]
        lines = [
            draw.Line("cosine", _x(found), of("cosine")),
            draw.Line("without the unigram null", _x(found), of("beyond")),
            draw.Line("nearest wrong map, without the null", _x(found), wrong),
        ]
        panels.append(draw.LinePanel(SYMBOLS[name], lines))
    return _over_training(found, panels, "cosine", columns=4)


def _errors(found: Found) -> Any:
    """Error of leading terms, of the next order, and the bound."""
    panels = []
    for name in NAMES:
        lines = [
            draw.Line("leading terms", _x(found), [largest(r.rows, name) for r in found.rungs]),
            draw.Line("bound", _x(found), [getattr(r.bounds, name) for r in found.rungs]),
        ]
        if name in ("output", "value"):
            after = [largest(r.next_rows, name) for r in found.rungs]
            lines.insert(1, draw.Line("with the next order", _x(found), after))
        panels.append(draw.LinePanel(SYMBOLS[name], lines))
    return _over_training(found, panels, "relative error", columns=4, log_y=True)


def _departures(found: Found) -> Any:
    """The assumptions over s eta."""
    lines = [
        draw.Line(words, _x(found), [getattr(r.departures, name) for r in found.rungs])
        for name, words in ASSUMPTIONS.items()
    ]
    panels = [draw.LinePanel("left assumptions", lines)]
    return _over_training(found, panels, "relative distance", log_y=True)


def _losses(found: Found) -> Any:
    """Losses by part, a panel a form."""
    panels = [
        draw.LinePanel(
            f"{form} weights",
            [draw.Line(part if part == WHOLE else f"{part} (to leading order)", _x(found),
                       [r.losses[form][part] for r in found.rungs])
             for part in (WHOLE, *PARTS[1:])],
        )
        for form in FORMS
    ]  # fmt: skip
    return _over_training(found, panels, "loss (nats a token)", columns=2)


def _removed(found: Found) -> Any:
    """Added loss by weight."""
    names = [n for n in found.removed if n != "nothing"]
    added = [found.removed[n] - found.removed["nothing"] for n in names]
    panels = [draw.BarPanel("without its leading term", names, {"added loss": np.array(added)})]
    figure = draw.stacked_bars(
        panels, x_label="weight and block", y_label="added loss (nats a token)", columns=1
    )
    return figure, panels


def _ranks(found: Found) -> Any:
    """Rank correlations over s eta."""
    lines = [draw.Line(f"block {b + 1}", _x(found), [r.ranks.mean[b] for r in found.rungs])
             for b in range(found.config.layers)]  # fmt: skip
    panels = [draw.LinePanel("learned attention and q", lines)]
    return _over_training(found, panels, "rank correlation")


def _ranks_by_query(found: Found) -> Any:
    """Rank correlations at the last rung by query."""
    by_query = found.rungs[-1].ranks.by_query
    known = np.isfinite(by_query).all(axis=0)
    query = np.arange(1, by_query.shape[1] + 1)[known]
    lines = [draw.Line(f"block {b + 1}", query, x[known]) for b, x in enumerate(by_query)]
    panels = [draw.LinePanel("learned attention and q", lines)]
    figure = draw.line_panels(panels, x_label="query t", y_label="rank correlation", columns=1)
    return figure, panels


def _scatter(found: Found) -> Any:
    """Learned against predicted, a panel a weight."""
    rng, panels = np.random.default_rng(0), []
    pairs = {(n, b): (x, y) for (n, b, x), (_, _, y) in zip(
        blocks_of(found.learned), blocks_of(found.predicted), strict=True)}  # fmt: skip
    for name in NAMES:
        block = 0 if name == "output" else found.config.layers
        learned, predicted = (x.ravel() for x in pairs[name, block])
        half = min(POINTS // 2, len(learned))
        top = np.argsort(-np.abs(predicted))[:half]
        chosen = np.union1d(top, rng.choice(len(learned), half, replace=False))
        size = np.sqrt(np.mean(predicted**2)) or 1.0
        line = draw.Line("entries", predicted[chosen] / size, learned[chosen] / size)
        panels.append(draw.LinePanel(SYMBOLS[name], [line]))
    figure = draw.scatter_panels(
        panels, x_label="predicted / RMS", y_label="learned / RMS", share_y=False, columns=4,
        equal=True,
    )  # fmt: skip
    return figure, panels
