"""What did a run find? One self-contained page that answers it first and then shows why.

`report.html` needs no network and no script: its style is inline and its pictures are inside it.
"""

import base64
import html
import os
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxfeat.io.atomic import replacing
from jaxfeat.report import figure_files
from jaxfeat.report.tables import Table, format_number, html_table
from jaxfeat.types import UserError

VERDICTS = {"holds": "yes", "does not hold": "no", "undecided": "open"}


class Claim(NamedTuple):
    """A statement under test: its verdict (a key of `VERDICTS`), and the numbers in words."""

    name: str
    verdict: str
    words: str


class Picture(NamedTuple):
    """A saved figure for the page: the path of its PNG, a caption and what it shows in words."""

    path: str | os.PathLike
    caption: str
    alt: str = ""


def save_pictures(
    folder: Path, made: Sequence[tuple[tuple[Any, Sequence[Any]], str, str]]
) -> list[Picture]:
    """Save figures with the numbers of their panels under `figures/`; the page's pictures.

    Args:
        folder: the result folder.
        made: for each picture (figure, panels), a file name and a caption; main ones first.
    """
    pictures = []
    for (figure, panels), name, caption in made:
        numbers = figure_files.numbers_of(panels)
        png = figure_files.save_figure(figure, folder / "figures", name, numbers)
        pictures.append(Picture(png, caption))
    return pictures


def write_page(
    folder: str | os.PathLike,
    *,
    title: str,
    summary: str,
    claims: Sequence[Claim] = (),
    figures: Sequence[Picture] = (),
    tables: Sequence[Table] = (),
    config: Mapping[str, Any] | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> Path:
    """Write `report.html` into the folder, atomically.

    Args:
        folder: the result folder.
        title: the question.
        summary: the answer in plain words; blank lines part paragraphs.
        claims: each with its verdict and numbers.
        figures: the main ones first. An SVG and a Parquet table of the same name beside the PNG
            are linked under it.
        tables: shown folded.
        config: the resolved settings; nested ones are joined by dots.
        provenance: what `jaxfeat.run.provenance.collect` returned.

    Returns:
        The path of the page.

    Raises:
        UserError: an unknown verdict, or a picture that is missing.
    """
    folder = Path(folder)
    parts = [f"<h1>{html.escape(title)}</h1>", _paragraphs(summary)]
    if claims:
        items = "\n".join(_claim(claim) for claim in claims)
        parts.append(f'<h2>Claims</h2>\n<ul class="claims">\n{items}\n</ul>')
    if figures:
        parts.append("<h2>Figures</h2>")
        parts += [_figure(folder, picture) for picture in figures]
    if tables:
        parts.append("<h2>Tables</h2>")
        parts += [_folded(t.title, html_table(t.rows, t.columns)) for t in tables]
    if config or provenance:
        parts.append("<h2>How it was made</h2>")
    for name, values in (("Configuration", config), ("Provenance", provenance)):
        if values:
            rows = [(key, _value(value)) for key, value in _flatten(values)]
            parts.append(_folded(name, html_table(rows, ("field", "value"))))
    body = "\n".join(parts)
    text = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{html.escape(title)}</title>\n<style>{CSS}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )
    page = folder / "report.html"
    with replacing(page) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return page


def _claim(claim: Claim) -> str:
    """One list item with its badge."""
    if claim.verdict not in VERDICTS:
        raise UserError(f"verdict {claim.verdict!r}: valid verdicts are {', '.join(VERDICTS)}")
    return (
        f'<li><span class="badge {VERDICTS[claim.verdict]}">{claim.verdict}</span>'
        f"<div><strong>{html.escape(claim.name)}</strong><br>{html.escape(claim.words)}</div></li>"
    )


def _figure(folder: Path, picture: Picture) -> str:
    """One picture inside the page, its caption and links to what lies beside it."""
    path = Path(picture.path)
    path = path if path.is_absolute() else folder / path
    if not path.is_file():
        raise UserError(f"the page's picture {path.name} is not in {path.parent.name}/")
    data = path.read_bytes()
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        raise UserError(f"the page's picture {path.name} is not a PNG")
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    links = []
    for ending, word in ((".svg", "SVG"), (".parquet", "numbers")):
        beside = path.with_suffix(ending)
        if beside.is_file() and folder.resolve() in beside.resolve().parents:
            link = beside.resolve().relative_to(folder.resolve()).as_posix()
            links.append(f'<a href="{urllib.parse.quote(link)}">{word}</a>')
    beside = f' <span class="links">{" · ".join(links)}</span>' if links else ""
    coded = base64.b64encode(data).decode()
    alt = html.escape(picture.alt or picture.caption)
    return (
        f'<figure>\n<div class="frame"><img alt="{alt}" '
        f'width="{width // 2}" height="{height // 2}" src="data:image/png;base64,{coded}"></div>\n'
        f"<figcaption>{html.escape(picture.caption)}{beside}</figcaption>\n</figure>"
    )


def _folded(title: str, content: str) -> str:
    """Content that opens on a click."""
    return f"<details>\n<summary>{html.escape(title)}</summary>\n{content}\n</details>"


def _paragraphs(text: str) -> str:
    """Text with blank lines as paragraphs of the answer."""
    blocks = [block.strip() for block in text.split("\n\n") if block.strip()]
    return "\n".join(f'<p class="answer">{html.escape(block)}</p>' for block in blocks)


def _flatten(values: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """Nested settings as (dotted name, value)."""
    rows = []
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            rows += _flatten(value, f"{before}{key}.")
        else:
            rows.append((f"{before}{key}", value))
    return rows


def _value(value: Any) -> str:
    """A setting as text: exact, without thousands marks."""
    if isinstance(value, list | tuple) and any(isinstance(x, Mapping) for x in value):
        return f"{len(value)} (in provenance.json)"
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value))
    return format_number(value) if value is None or isinstance(value, bool) else str(value)


CSS = """
:root { --ink: #1f2328; --soft: #59636e; --ground: #ffffff; --line: #d9dee3; --card: #f6f8fa;
  --link: #0969da; --yes: #1a7f37; --no: #cf222e; --open: #8a6100; --badge: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --soft: #9da7b1; --ground: #14171b;
  --line: #353b42; --card: #1d2126; --link: #6cb0ff; --yes: #57c271; --no: #ff8077; --open: #e3b341;
  --badge: #14171b; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 1.5rem 1.25rem 4rem; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0.5rem 0 0.75rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 0.75rem; padding-bottom: 0.3rem;
  border-bottom: 1px solid var(--line); }
a { color: var(--link); }
.answer { font-size: 1.1rem; max-width: 48rem; margin: 0 0 0.75rem; }
.claims { list-style: none; margin: 0; padding: 0; }
.claims li { display: flex; gap: 0.9rem; align-items: flex-start; padding: 0.55rem 0;
  border-bottom: 1px solid var(--line); }
.claims li:last-child { border-bottom: 0; }
.badge { flex: 0 0 7.2rem; text-align: center; font-size: 0.8rem; font-weight: 600;
  border-radius: 1rem; padding: 0.12rem 0.5rem; margin-top: 0.15rem; color: var(--badge); }
.badge.yes { background: var(--yes); } .badge.no { background: var(--no); }
.badge.open { background: var(--open); }
figure { margin: 1.25rem 0 2rem; }
.frame { overflow-x: auto; width: fit-content; max-width: 100%; background: #ffffff;
  border: 1px solid var(--line); border-radius: 6px; padding: 0.5rem; }
img { display: block; max-width: max(100%, 40rem); height: auto; }
figcaption { color: var(--soft); font-size: 0.92rem; margin-top: 0.5rem; max-width: 48rem; }
.links { white-space: nowrap; }
details { border: 1px solid var(--line); border-radius: 6px; margin: 0.6rem 0;
  background: var(--card); }
summary { cursor: pointer; padding: 0.5rem 0.9rem; font-weight: 600; }
.scroll { overflow-x: auto; padding: 0 0.9rem 0.8rem; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums;
  overflow-wrap: normal; }
caption { text-align: left; color: var(--soft); padding-bottom: 0.3rem; }
th, td { text-align: left; vertical-align: top; padding: 0.25rem 1.1rem 0.25rem 0;
  border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; }
.num { text-align: right; }
@media (max-width: 34rem) { .claims li { flex-direction: column; gap: 0.25rem; }
  .badge { flex-basis: auto; } }
@media print { details { break-inside: avoid; } body { background: #ffffff; color: #000000; } }
"""
