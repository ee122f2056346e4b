"""What built the board in an OthelloGPT? The page of a run, out of its numbers."""

from pathlib import Path
from typing import Any

from experiments.othello_config import Config
from experiments.othello_figures import all_figures
from experiments.othello_numbers import Found, all_moves, fall_covered, gap, read, statements, top1
from experiments.othello_tables import all_tables, told, write_tables
from jaxfeat.report import page
from jaxfeat.report.claims import decide
from jaxfeat.run.results import publish


def write(config: Config, workdir: Path) -> dict[str, Any]:
    """Tables, figures and `report.html`; the main numbers as a dict."""
    found = read(config, workdir)
    claims, numbers = decide(statements(found))
    write_tables(found, workdir)
    pictures = page.save_pictures(workdir, all_figures(found))
    main = {
        "statistics": numbers, "legal_top1": top1(found),
        "legal_mass": float(found.arrays["trained_mass"].mean()),
        "covered_updates": float(found.arrays["covered"].mean()), **fall_covered(found),
    }  # fmt: skip
    return publish(
        workdir, title="Othello: which part of the gradient builds useless squares?",
        summary=_summary(found, claims), claims=claims, figures=pictures,
        tables=all_tables(found, workdir), config=config, numbers=main,
    )  # fmt: skip


def _summary(found: Found, claims: list[page.Claim]) -> str:
    """The answer in plain words, out of the numbers."""
    c, fall = found.config, fall_covered(found)
    read = gap(found, "trained", c.layers, all_moves(c))
    return " ".join(
        [
            f"A model of {c.layers} blocks and width {c.width} on {c.size} x {c.size} boards: its "
            f"most likely move is legal in {top1(found):.1%} of held-out positions.",
            *(f"{claim.name}: {claim.verdict}." for claim in claims),
            f"Useful minus useless squares' accuracy at the last layer: {told(read)}.",
            f"Influence is that of the first {c.tracked} of {c.steps} updates, in which "
            f"{fall['covered_fall']:.0%} of R(theta_0) fell; {fall['remainder_of_fall']:.1%} of "
            "that fall is the remainder, which exceeds 5 % at "
            f"{fall['places_with_large_remainder']:.0%} of nodes and squares.",
        ]
    )
