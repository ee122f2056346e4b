"""Are claims decided by their intervals, corrected together, and left open where they must be?"""

import numpy as np

from jaxfeat.report.claims import Statement, decide
from jaxfeat.stats import Interval

FAR = Interval(0.4, 0.3, 0.5, 5, 0.001)
NEAR = Interval(0.1, 0.01, 0.2, 5, 0.03)


def test_verdicts():
    """Above 0 holds, below does not; what may stand in the way leaves it open."""
    below = FAR._replace(mean=-0.4, low=-0.5, high=-0.3)
    unknown = Interval(0.4, np.nan, np.nan, 1, np.nan)
    asked = [
        Statement("above", "x", FAR), Statement("below", "x", below),
        Statement("turned", "x", below, decides=FAR, note=" (turned)"),
        Statement("blocked", "x", FAR, after="More.", blocked="Not learned."),
        Statement("one seed", "x", unknown),
    ]  # fmt: skip
    claims, numbers = decide(asked)
    told = {c.name: c.verdict for c in claims}
    assert told == {
        "above": "holds", "below": "does not hold", "turned": "holds", "blocked": "undecided",
        "one seed": "undecided",
    }  # fmt: skip
    assert claims[2].words == "x -0.40 [-0.50, -0.30], Holm-adjusted p 0.005 (turned)."
    assert claims[3].words.endswith("More. Not learned.")
    assert numbers["above"] == {"mean": 0.4, "low": 0.3, "high": 0.5, "p_holm": 0.005}


def test_corrected_together():
    """A claim that stands alone may fall in company."""
    assert decide([Statement("a", "x", NEAR)])[0][0].verdict == "holds"
    many = decide([Statement(name, "x", NEAR) for name in "abc"])[0]
    assert {c.verdict for c in many} == {"undecided"}
    assert decide([]) == ([], {})
