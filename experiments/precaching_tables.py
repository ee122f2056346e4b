"""Which tables tell what the scores of a model's features say?"""

from pathlib import Path
from typing import Any

import numpy as np

from experiments.planted_scores import ANGLES, Known
from experiments.precaching_numbers import (
    GROUPS,
    Found,
    all_estimates,
    correlation,
    estimates,
    look_ahead,
    spreads,
    steering,
)
from jaxfeat.features.contexts import context_text
from jaxfeat.io.parquet import write_table
from jaxfeat.report import tables

EACH = 6  # features listed at either end and in the middle
SHOWN = 2  # contexts of each
TEXTS = 3  # features at either end of which steered texts are shown
SPACES = str.maketrans({"\n": "⏎", "\t": "⇥", "\r": "⏎"})


def write_tables(found: Found, workdir: Path) -> None:
    """`tables/scores.parquet`, a row a feature; `tables/effects.parquet`, one a context."""
    s, e, contexts = found.scores, found.exchanged, found.measured.contexts
    domain = lambda name: contexts[f"domain_{name}"][found.chosen]
    own, later = (found.measured.sampled[f"all_{n}"][found.chosen] for n in ("own", "later"))
    columns = {"feature": found.chosen} | {
        name: getattr(s, name) for name in ("q", "low", "high", "mean_of_ratios", "own", "later",
                                            "contexts", "near_zero", "kept")
    }  # fmt: skip
    columns |= {
        "q_exchanged": e.q, "mean_of_ratios_exchanged": e.mean_of_ratios, "sampled_own": own,
        "sampled_later": later, "formal": found.formal, "domain_score": domain("score"),
        "domain_low": domain("low"), "domain_high": domain("high"),
        "fired": contexts["fired"][found.chosen], "maximum": contexts["maximum"][found.chosen],
    }  # fmt: skip
    units = {"own": "nats", "later": "nats", "sampled_own": "nats", "sampled_later": "nats",
             "fired": "tokens"}  # fmt: skip
    write_table(workdir / "tables" / "scores.parquet", columns, units)
    effects = found.measured.effects
    rows = {name: effects[name] for name in ("feature", "sequence", "position", "activation")}
    for kind in ("kl", "kl_exchanged"):
        rows |= {f"{kind}_{j}": effects[kind][:, j] for j in range(effects[kind].shape[1])}
    units = {name: "nats" for name in rows if name.startswith("kl")}
    write_table(workdir / "tables" / "effects.parquet", rows, units)


def planted_table(known: Known) -> tables.Table:
    """Known, measured and estimated Q of the planted directions."""
    rows = list(zip(np.degrees(ANGLES), *known))
    return tables.Table(
        "Planted features: directions from direct (0 degrees) to pre-cached (90 degrees)",
        ("angle (degrees)", "known Q", "measured Q", "Q from gradients"), rows,
    )  # fmt: skip


def model_tables(found: Found) -> list[tables.Table]:
    """The page's tables of a model."""
    made = [_main_table(found), _estimate_table(found), *_feature_tables(found)]
    if found.good.sum() > 3:
        made.append(_ahead_table(found))
    if found.measured.steered:
        made += [_steering_table(found), _text_table(found)]
    return [*made, _words(found)]


def _main_table(found: Found) -> tables.Table:
    """Features by group: how many, percentiles of Q, spread of ln Q."""
    rows, spread = [], spreads(found)
    for name, mine in zip((*GROUPS, "all"), (found.formal, ~found.formal, found.formal | True)):
        q, i = found.scores.q[found.good & mine], spread.get(name)
        told = tables.format_interval(i.mean, i.low, i.high) if i else "-"
        cut = np.percentile(q, [5, 50, 95]).tolist() if len(q) else [None] * 3
        other = found.exchanged.mean_of_ratios[found.exchanged.kept & mine]
        other = other[np.isfinite(other)]
        rows.append((name, int(mine.sum()), len(q), *cut, told,
                     float(np.median(other)) if len(other) else None))  # fmt: skip
    columns = ("features", "measured", "above the cut-off", "Q, 5 %", "median", "95 %",
               "sd of ln Q (chi-square interval)",
               "median, residual exchanged, mean of ratios")  # fmt: skip
    return tables.Table("Scores by group", columns, rows)


def _estimate_table(found: Found) -> tables.Table:
    """Rank correlations of estimated with measured Q."""
    told = lambda pair: (len(pair[0]), tables.format_interval(*correlation(*pair)[:3]))
    rows = [(f"same contexts, {name}", *told(pair)) for name, pair in estimates(found).items()]
    rows.append(("all places where it was active", *told(all_estimates(found))))
    return tables.Table(
        "Q from gradients against measured Q (Spearman's correlation)",
        ("estimate over", "features", "correlation"), rows,
    )  # fmt: skip


def _feature_tables(found: Found) -> list[tables.Table]:
    """Features of the lowest, middle and highest Q with their top contexts."""
    order = np.flatnonzero(found.good)[np.argsort(found.scores.q[found.good])]
    if not len(order):
        return []
    each = min(EACH, max(1, len(order) // 3))
    middle = (len(order) - each) // 2
    ends = {"lowest": order[:each], "middle": order[middle : middle + each],
            "highest": order[::-1][:each]}  # fmt: skip
    columns = (
        "feature",
        "Q",
        "own KL (nats)",
        "later KL (nats)",
        "group",
        "contexts, the token in 【】",
    )
    made = []
    for name, mine in ends.items():
        title = f"Features of the {name} Q (95 % bootstrap intervals over contexts)"
        rows = []
        for n in mine:
            s = found.scores
            q = tables.format_interval(s.q[n], s.low[n], s.high[n])
            texts = " … ".join(_context(found, n, c) for c in range(SHOWN))
            group = GROUPS[0] if found.formal[n] else GROUPS[1]
            rows.append((int(found.chosen[n]), q, s.own[n], s.later[n], group, texts))
        made.append(tables.Table(title, columns, rows))
    return made


def _context(found: Found, n: int, c: int) -> str:
    """A context of a feature as text, its token marked."""
    contexts, feature = found.measured.contexts, found.chosen[n]
    if not contexts["valid"][feature, c]:
        return ""
    tokens = found.subject.windows.tokens[contexts["sequence"][feature, c]]
    tokenizer = found.subject.model.tokenizer
    assert tokenizer is not None
    decode = lambda ids: tokenizer.decode(list(ids), skip_special_tokens=False)
    pieces, at = context_text(tokens, int(contexts["position"][feature, c]), decode, 12, 8)
    marked = [f"【{text}】" if p == at else text for p, (text, _) in enumerate(pieces)]
    return "".join(marked).translate(SPACES)


def _ahead_table(found: Found) -> tables.Table:
    """Losses of the mappers and the correlations."""
    ahead, r = found.measured.ahead, look_ahead(found)
    rows = [
        (s + 1, ahead["before"][s], ahead["after"][s], int(ahead["targets"][s]),
         *(None if np.isnan(x) else float(x) for x in r[s][:-1]))
        for s in range(len(r))
    ]  # fmt: skip
    columns = ("tokens ahead", "loss of the identity (nats)", "of the mapper", "targets",
               *(f"r, rank {k}" for k in ahead["ranks"][:-1]))  # fmt: skip
    return tables.Table(
        "Look-ahead mappers and the rank correlation of Q with cosines", columns, rows
    )


def _steering_table(found: Found) -> tables.Table:
    """Changes of shares."""
    rows = [
        (f"{end} Q", kind, tables.format_interval(*i[:3]))
        for (end, kind), i in steering(found).items()
    ]
    return tables.Table(
        "Share of tokens, steered minus unsteered (95 % bootstrap intervals over prompts)",
        ("features", "tokens", "change"), rows,
    )  # fmt: skip


def _text_table(found: Found) -> tables.Table:
    """Some texts."""
    steered = found.measured.steered
    rows: list[Any] = [("none", "-", steered["prompts"][0], steered["unsteered"][0])]
    for end in ("low", "high"):
        for feature, texts in list(zip(steered["features"][end], steered[end]))[:TEXTS]:
            rows.append((f"{end} Q", feature, steered["prompts"][0], texts[0]))
    clean = lambda x: x.translate(SPACES) if isinstance(x, str) else x
    return tables.Table(
        "What is written while a feature is added", ("steered by", "feature", "prompt", "text"),
        [tuple(map(clean, row)) for row in rows],
    )  # fmt: skip


def _words(found: Found) -> tables.Table:
    """What the terms mean."""
    c = found.config
    rows = [
        ("Q", f"KL that ablating the feature causes in the {c.span - 1} predictions after its "
              "own, over that in its own; ratio of means over contexts"),
        ("ablating", "x - f w_dec at the one position; all else of the residual stays. "
                     "'Exchanged': x becomes the reconstruction without it (the authors' form)"),
        ("cut-off", f"features whose mean total KL is at most {c.cutoff} nats are dropped"),
        ("formal", "twice as much activation per token on code and mathematics as on prose; stands "
                   "in for the paper's tags by a language model"),
        ("from gradients", f"{c.draws} random vectors at each of {c.places} places at most: half "
                           "the variance of (w . cotangent), a second-order estimate"),
    ]  # fmt: skip
    return tables.Table("Terms", ("term", "meaning"), rows)
