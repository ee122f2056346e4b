"""Does a real browser show the whole page, without a request or an error?"""

import pytest
from browser import CHROMIUM, inspect_page
from test_page import make_page, make_png

from jaxfeat.report.page import Picture

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (375, True)])
def test_the_page_in_a_browser(tmp_path, width, dark):
    wide = make_png(tmp_path / "wide.png", width=2400, height=500)
    page = make_page(tmp_path, figures=[Picture(wide, "wide"), Picture("figures/a b.png", "small")])
    seen = inspect_page(page, width=width, dark=dark)
    assert seen["errors"] == [] and seen["requests"] == [] and seen["resources"] == []
    assert [(i["alt"], i["width"]) for i in seen["images"]] == [("wide", 2400), ("small", 4)]
    assert seen["overflow"] <= 0
    assert seen["title"] == "Is <b> & 'co' real?"
    assert "does not hold" in seen["text"]
    assert seen["ground"] == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")


def test_the_check_sees_what_is_wrong(tmp_path):
    page = tmp_path / "bad.html"
    page.write_text(
        "<!DOCTYPE html><title>x</title><img alt='gone' src='gone.png'>"
        "<img alt='far' src='http://example.invalid/a.png'><script>null.x</script>"
    )
    seen = inspect_page(page)
    assert [image["width"] for image in seen["images"]] == [0, 0]
    assert len(seen["requests"]) >= 2
    assert any("exceptionThrown" in error for error in seen["errors"])
