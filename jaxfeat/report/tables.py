"""How are numbers written: with their interval, in a terminal and on a page?"""

import html
import math
from collections.abc import Sequence
from typing import Any, NamedTuple


class Table(NamedTuple):
    """A small table for reading: a title, the names of the columns (with units) and the rows."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


def format_number(value: Any, digits: int = 3) -> str:
    """One value as short text: `digits` significant figures, thousands marked, None as a dash.

    >>> [format_number(v) for v in (0.12345, 123456, 3.0e-7, None, float("nan"), "tied", True)]
    ['0.123', '123,456', '3e-07', '-', 'n/a', 'tied', 'yes']
    """
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    item = value.item() if hasattr(value, "item") else value
    if isinstance(item, bool):
        return "yes" if item else "no"
    if isinstance(item, int):
        return f"{item:,}"
    if not isinstance(item, float):
        return str(item)
    if not math.isfinite(item):
        return "n/a" if math.isnan(item) else ("∞" if item > 0 else "-∞")
    if item and not 1e-4 <= abs(item) < 1e6:
        return f"{item:.{digits}g}"
    return _fixed(item, _places(item, digits))


def format_interval(mean: Any, low: Any, high: Any, unit: str = "") -> str:
    """An estimate with its interval, both to the places that the interval's width supports.

    An estimate whose bounds the data cannot give stands alone.

    >>> format_interval(0.51234, 0.4987, 0.5261)
    '0.512 [0.499, 0.526]'
    >>> format_interval(1234.5, 1100.0, 1400.0, "tokens/s")
    '1,230 [1,100, 1,400] tokens/s'
    """
    values = [float(v) for v in (mean, low, high)]
    after = f" {unit}" if unit else ""
    if math.isnan(values[1]) and math.isnan(values[2]):
        return format_number(values[0]) + after
    if not all(map(math.isfinite, values)):
        texts = [format_number(v) for v in values]
    else:
        width = values[2] - values[1]
        largest = max(map(abs, values))
        if largest and not 1e-4 <= largest < 1e6:
            texts = [f"{v:.3g}" for v in values]
        else:
            places = _places(width, 2) if width > 0 else _places(values[0], 3)
            texts = [_fixed(v, min(places, 6)) for v in values]
    return f"{texts[0]} [{texts[1]}, {texts[2]}]{after}"


def text_table(rows: Sequence[Sequence[Any]], columns: Sequence[str]) -> str:
    """The rows in aligned columns for a terminal: text to the left, numbers to the right.

    >>> print(text_table([["direct", 0.5], ["shared", -0.125]], ["part", "share"]))
    part     share
    direct   0.500
    shared  -0.125
    """
    cells = [[format_number(v) for v in row] for row in rows]
    right = [_numeric([row[j] for row in rows]) for j in range(len(columns))]
    widths = [max(len(str(c[j])) for c in [columns, *cells]) for j in range(len(columns))]
    lines = []
    for row in [list(columns), *cells]:
        padded = [t.rjust(w) if r else t.ljust(w) for t, w, r in zip(row, widths, right)]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def markdown_table(rows: Sequence[Sequence[Any]], columns: Sequence[str]) -> str:
    """The rows as a GitHub table.

    >>> print(markdown_table([["direct", 0.5]], ["part", "share"]))
    | part | share |
    |---|---:|
    | direct | 0.500 |
    """
    right = [_numeric([row[j] for row in rows]) for j in range(len(columns))]
    head = "| " + " | ".join(columns) + " |"
    rule = "|" + "|".join("---:" if r else "---" for r in right) + "|"
    body = ["| " + " | ".join(format_number(v).replace("|", "\\|") for v in r) + " |" for r in rows]
    return "\n".join([head, rule, *body])


def html_table(rows: Sequence[Sequence[Any]], columns: Sequence[str], caption: str = "") -> str:
    """The rows as an HTML table, every cell escaped; numbers to the right.

    >>> html_table([["a<b", 1]], ["x", "n"]).count("&lt;")
    1
    """
    right = [_numeric([row[j] for row in rows]) for j in range(len(columns))]
    kind = [' class="num"' if r else "" for r in right]
    head = "".join(f'<th scope="col"{k}>{html.escape(c)}</th>' for c, k in zip(columns, kind))
    body = "\n".join(
        "<tr>"
        + "".join(f"<td{k}>{html.escape(format_number(v))}</td>" for v, k in zip(row, kind))
        + "</tr>"
        for row in rows
    )
    told = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll"><table>{told}\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _numeric(values: Sequence[Any]) -> bool:
    """Whether a column holds numbers (missing ones aside), so that it is set to the right."""
    given = [v for v in values if v is not None]
    return bool(given) and not any(isinstance(v, str | bool) for v in given)


def _places(value: float, digits: int) -> int:
    """Decimal places that show `digits` significant figures; negative left of the point."""
    return digits if not value else digits - 1 - math.floor(math.log10(abs(value)))


def _fixed(value: float, places: int) -> str:
    """The value rounded to `places` decimals, thousands marked, without a negative zero."""
    return f"{round(value, places) + 0.0:,.{max(places, 0)}f}"
