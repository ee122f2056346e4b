"""Is the page complete, escaped and free of anything from outside?"""

import base64
import re
import struct
import zlib
from html.parser import HTMLParser

import pytest

from jaxfeat.report.page import Claim, Picture, write_page
from jaxfeat.report.tables import Table, format_interval, html_table, markdown_table, text_table
from jaxfeat.types import UserError

VOID = {"meta", "link", "img", "br"}


def make_png(path, width=4, height=2):
    """A tiny grey PNG without matplotlib."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" + b"\x80" * width for _ in range(height)))
    data = chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + data)
    return path


class Balance(HTMLParser):
    """Checks that every tag is closed in order, and gathers what is asked for."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.attributes = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def make_page(folder, **changes):
    (folder / "figures").mkdir(exist_ok=True)
    png = make_png(folder / "figures" / "a b.png")
    png.with_suffix(".svg").write_text("<svg/>")
    parts = {
        "title": "Is <b> & 'co' real?",
        "summary": "Yes: 3 < 4.\n\nMostly.",
        "claims": [Claim("a < b", "holds", "1 & 2"), Claim("c", "does not hold", "no")],
        "figures": [Picture(png, 'A "caption" <i>')],
        "tables": [Table("Rows <x>", ["layer", "R<sup>"], [[1, 0.5], [2, None]])],
        "config": {"opt": {"lr": 1e-3}, "steps": 12000, "sizes": [1, 2]},
        "provenance": {"git": None},
    }
    return write_page(folder, **(parts | changes))


def test_the_page_is_valid_escaped_and_self_contained(tmp_path):
    page = make_page(tmp_path)
    text = page.read_text()
    parser = Balance()
    parser.feed(text)
    assert parser.open == [] and parser.seen.count("h1") == 1
    assert not {"script", "iframe", "i", "sup"} & set(parser.seen)
    loaded = [v for _, name, v in parser.attributes if name in ("src", "srcset", "data")]
    assert all(v.startswith("data:") for v in loaded) and len(loaded) == 1
    links = [v for _, name, v in parser.attributes if name == "href"]
    assert links == ["data:,", "figures/a%20b.svg"]  # the table of numbers is not there
    assert not re.search(r"https?:|url\(|@import", text)
    coded = re.search(r"base64,([^\"]+)", text)
    assert coded and base64.b64decode(coded[1]) == (tmp_path / "figures/a b.png").read_bytes()
    assert "Is &lt;b&gt; &amp;" in text and "R&lt;sup&gt;" in text
    assert "opt.lr" in text and ">12000<" in text and "1, 2" in text
    order = [text.index(w) for w in ("Yes: 3", "Claims", "<figure>", "Rows &lt;x", "Configuration")]
    assert order == sorted(order)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["figures", "report.html"]


def test_a_bad_page_leaves_the_old_one(tmp_path):
    page = make_page(tmp_path)
    before = page.read_bytes()
    with pytest.raises(UserError, match="valid verdicts are holds, does not hold, undecided"):
        make_page(tmp_path, claims=[Claim("a", "maybe", "")])
    with pytest.raises(UserError, match=r"picture none\.png is not in figures/"):
        make_page(tmp_path, figures=[Picture("figures/none.png", "")])
    assert page.read_bytes() == before


def test_a_bare_page_is_enough(tmp_path):
    text = write_page(tmp_path, title="T", summary="S").read_text()
    assert "<h2>" not in text and '<p class="answer">S</p>' in text


def test_numbers_and_tables():
    assert format_interval(0.0, -0.01, 0.012) == "0.000 [-0.010, 0.012]"
    assert format_interval(0.5, 0.5, 0.5) == "0.500 [0.500, 0.500]"
    assert format_interval(0.5, float("nan"), float("nan"), "nats") == "0.500 nats"
    assert format_interval(1e-7, 0.0, 2e-7) == "1e-07 [0, 2e-07]"
    assert format_interval(-0.0001, -0.2, 0.2) == "0.00 [-0.20, 0.20]"
    assert text_table([], ["a", "b"]) == "a  b"
    assert markdown_table([["a|b", 1]], ["x", "n"]).endswith("| a\\|b | 1 |")
    assert '<td class="num">0.500</td>' in html_table([["a", 0.5], ["b", None]], ["x", "y"])
