"""How does a run end? With its page, its main numbers as JSON and its claims in the terminal."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxfeat.report import page
from jaxfeat.report.tables import Table
from jaxfeat.run import cli, folder


def publish(
    workdir: Path,
    *,
    title: str,
    summary: str,
    claims: Sequence[page.Claim],
    figures: Sequence[page.Picture],
    tables: Sequence[Table],
    config: Any,
    numbers: Mapping[str, Any],
) -> dict[str, Any]:
    """Write `report.html` and `results.json`, print the claims.

    Args:
        title, summary, claims, figures, tables: of the page (`jaxfeat.report.page`).
        config: the settings as they were used, a dataclass or a mapping of such.
        numbers: the main ones, by name.

    Returns:
        What `results.json` holds: the verdict of each claim under "claims", and the numbers.
    """
    page.write_page(
        workdir,
        title=title,
        summary=summary,
        claims=claims,
        figures=figures,
        tables=tables,
        config=cli.config_dict(config),
        provenance=folder.read_json(workdir / folder.PROVENANCE),
    )
    results = {"claims": {claim.name: claim.verdict for claim in claims}, **numbers}
    folder.write_json(workdir / "results.json", results)
    for claim in claims:
        print(f"{claim.verdict:>15}: {claim.name}. {claim.words}")
    return results
