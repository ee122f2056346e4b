"""What do the measures of a descent come to: least cosines, claims, where theory ends and why?"""

import numpy as np

from experiments.token_association_measures import WHOLE, Found, Rung
from jaxfeat.corpus.closed_form import NAMES, SYMBOLS
from jaxfeat.corpus.compare import SHUFFLED, Row
from jaxfeat.corpus.validity import ASSUMPTIONS
from jaxfeat.report.page import Claim
from jaxfeat.report.tables import format_number

GOOD = 0.99  # cosine beyond the null that counts as following the closed form
WITHIN = 1.0  # s eta up to which it is asked for
PAPER = ("output", "value", "attention")  # the weights whose cosines the paper shows


def s_eta(found: Found, rung: Rung) -> float:
    """Updates times the learning rate."""
    return rung.step * found.config.rate


def least(rows: list[Row], name: str, field: str = "cosine") -> float:
    """The least number over the blocks of a weight; NaN where none is known."""
    known = [v for r in rows if r.weight == name and np.isfinite(v := getattr(r, field))]
    return min(known, default=float("nan"))


def largest(rows: list[Row], name: str, field: str = "error") -> float:
    """The largest absolute number over the blocks of a weight; NaN where none is known."""
    known = [abs(v) for r in rows if r.weight == name and np.isfinite(v := getattr(r, field))]
    return max(known, default=float("nan"))


def early(found: Found) -> list[Rung]:
    """Rungs up to s eta = 1."""
    return [r for r in found.rungs if s_eta(found, r) <= WITHIN * (1 + 1e-9)]


def claims(found: Found) -> list[Claim]:
    """What the theory says of this run; exact numbers of one descent, without intervals."""
    rungs = early(found)
    if not rungs:
        why = f"No rung lies at or below s eta = {WITHIN:g}; --ladder or --rate gives one."
        return [Claim("Early weights follow their closed form", "undecided", why)]
    reached = {n: _lowest([least(r.rows, n, "beyond") for r in rungs]) for n in NAMES}
    if any(np.isnan(reached[n]) for n in NAMES):
        why = "No rung up to s eta = 1 has the three updates that W and P need to leave 0."
        return [Claim("Early weights follow their closed form", "undecided", why)]
    told = lambda names: ", ".join(f"{SYMBOLS[n]} {reached[n]:.5f}" for n in names)
    up_to = f"up to s eta = {s_eta(found, rungs[-1]):.3g}"
    word = lambda good: "holds" if good else "does not hold"
    good = all(reached[n] >= GOOD for n in PAPER)
    made = [
        Claim(
            "Early weights follow their closed form", word(good),
            f"Least cosine over blocks and rungs {up_to}, the unigram null projected out: "
            f"{told(PAPER)} ({GOOD} asked).",
        ),
        Claim(
            "So do the weights of positions", word(reached["position"] >= GOOD),
            f"Least cosine {up_to}: {told(['position'])} ({GOOD} asked).",
        ),
    ]  # fmt: skip
    margins = {n: _lowest([_margin(r, n) for r in rungs]) for n in NAMES}
    worst = min(margins, key=lambda n: margins[n])
    made.append(Claim(
        "Each weight is nearer to its own map than to any wrong one",
        word(margins[worst] > 0),
        f"The smallest lead {up_to} is that of {SYMBOLS[worst]}: {margins[worst]:.3f} in cosine "
        "beyond the null, over the other weights' maps and those of shuffled text.",
    ))  # fmt: skip
    return made


def _lowest(values: list[float]) -> float:
    """The least of what is known; NaN where nothing is: weights that are still 0."""
    return min((v for v in values if np.isfinite(v)), default=float("nan"))


def _margin(rung: Rung, name: str) -> float:
    """The least lead of a weight's own map, over blocks."""
    return least(rung.rows, name, "beyond") - largest(rung.controls, name, "beyond")


def worst_control(rung: Rung, name: str) -> tuple[str, float]:
    """The wrong map that a weight is nearest to, and the cosine beyond the null."""
    rows = [r for r in rung.controls if r.weight == name and np.isfinite(r.beyond)]
    if not rows:
        return "-", float("nan")
    found = max(rows, key=lambda r: abs(r.beyond))
    named = "shuffled text" if found.against == SHUFFLED else SYMBOLS[found.against]
    return named, found.beyond


def ending(found: Found) -> str:
    """Where cosines fall below .99 and why, in plain words."""
    fallen = {}
    for name in NAMES:
        below = [r for r in found.rungs if least(r.rows, name, "beyond") < GOOD]
        if below:
            fallen.setdefault(below[0].step, []).append(SYMBOLS[name])
    last = found.rungs[-1]
    if not fallen:
        where = f"No cosine falls below {GOOD} up to s eta = {s_eta(found, last):.3g}."
    else:
        by_step = [f"{', '.join(names)} at {step * found.config.rate:.3g}"
                   for step, names in sorted(fallen.items())]  # fmt: skip
        where = f"Cosines first fall below {GOOD} at these s eta: {'; '.join(by_step)}."
    at = last if not fallen else next(r for r in found.rungs if r.step == min(fallen))
    moved = sorted(at.departures._asdict().items(), key=lambda pair: -pair[1])
    told = "; ".join(f"{ASSUMPTIONS[name]}: {value:.2g}" for name, value in moved)
    broken = [c.words for c in at.conditions if not c.holds]
    held = [c for c in found.rungs[0].conditions if not c.holds]
    why = (
        f" At s eta = {s_eta(found, at):.3g} the model has left what the theory assumes by "
        f"(relative distance) {told}. The first of these is left furthest."
    )
    if broken:
        why += f" The theorem's conditions that fail there: {', '.join(broken)}"
        why += f" ({len(held)} of them fail from the first rung on)." if held else "."
    return where + why


def numbers(found: Found) -> dict:
    """The main numbers, for `results.json`."""
    return {
        "s_eta": [s_eta(found, r) for r in found.rungs],
        **{
            field: {n: [least(r.rows, n, field) for r in found.rungs] for n in NAMES}
            for field in ("cosine", "beyond")
        },
        "error": {n: [largest(r.rows, n) for r in found.rungs] for n in NAMES},
        "loss": {form: [r.losses[form][WHOLE] for r in found.rungs]
                 for form in ("learned", "closed form")},
        "removed": found.removed,
        "departures": [r.departures._asdict() for r in found.rungs],
        "attention_rank": [r.ranks.mean.tolist() for r in found.rungs],
        "unknown": found.data.words.unknown,
        "sequences": len(found.data.tokens),
    }  # fmt: skip


def told_rung(found: Found, rung: Rung) -> str:
    """s eta of a rung in short."""
    return format_number(float(s_eta(found, rung)))
