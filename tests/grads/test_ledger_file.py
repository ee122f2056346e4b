"""Does a ledger come back from its file as it was, and is what is none refused?"""

from pathlib import Path

import numpy as np
import pytest
import tiny
import tracked
from tiny import same

from jaxfeat.grads.ledger import SUMS, influence, load_ledger, make_ledger, save_ledger
from jaxfeat.types import UserError


def test_save_and_load(tmp_path):
    """A file gives the ledger back bit for bit; a new direction is answered alike."""
    for ledger in (tracked.ledger(), tracked.ledger("float32", 1)):
        path = save_ledger(ledger, tmp_path / "a ledger.npz")
        back = load_ledger(path)
        assert back.nodes == ledger.nodes and back.steps == ledger.steps
        for name in ("mask", "resid", "moved", "cross", "bar"):
            ours, theirs = getattr(back, name), getattr(ledger, name)
            assert ours.dtype == theirs.dtype and ours.tobytes() == theirs.tobytes()
        w = np.random.default_rng(77).standard_normal((2, tiny.WIDTH))
        same(influence(back, w), influence(ledger, w))
    assert [p.name for p in tmp_path.iterdir()] == ["a ledger.npz"]


def test_no_ledger(tmp_path):
    """A missing file and files that are none."""
    with pytest.raises(UserError, match="no file at"):
        load_ledger(tmp_path / "absent.npz")
    wrong = tmp_path / "wrong.npz"
    np.savez(wrong, other=np.zeros(3))
    with pytest.raises(UserError, match="is no ledger"):
        load_ledger(wrong)
    with open(wrong, "wb") as handle:
        np.save(handle, np.zeros(3))
    with pytest.raises(UserError, match="no file of arrays"):
        load_ledger(wrong)
    for content in (b"words", b"", b"PK\x03\x04 torn"):
        wrong.write_bytes(content)
        with pytest.raises(UserError, match="damaged or no file of arrays"):
            load_ledger(Path(wrong))
    for about in ("{}", "[1]", "words", '{"nodes": [], "steps": [0.5]}'):
        np.savez(wrong, about=np.array(about))
        with pytest.raises(UserError, match="is no ledger"):
            load_ledger(Path(wrong))


def test_arrays_that_do_not_fit():
    """Steps out of order, arrays of other shapes, values that are not finite."""
    good = tracked.ledger()
    copies = [{n: getattr(good, n)[s] for n in ("resid", *SUMS)} for s in range(len(good.steps))]
    make = lambda steps=good.steps, mask=good.mask, rows=copies: make_ledger(
        good.nodes, steps, mask, rows
    )
    assert np.array_equal(make().cross, good.cross)
    nan = [copies[0] | {"moved": copies[0]["moved"] * np.nan}, *copies[1:]]
    for options, words in (
        ({"steps": good.steps[::-1]}, "ascending"),
        ({"rows": []}, "one for each step"),
        ({"rows": [{"resid": good.resid[0]}]}, "each with resid, moved"),
        ({"rows": nan}, "moved is not finite; did training diverge"),
        ({"mask": good.mask * 1.0}, "booleans"),
        ({"rows": [copy | {"bar": copy["bar"][:2]} for copy in copies]}, "bar has shape"),
    ):
        with pytest.raises(UserError, match=words):
            make(**options)
