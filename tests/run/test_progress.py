"""Does a loop say how far it is?"""

import io

import jax

from jaxfeat.run.progress import progress


def test_in_a_log(capsys):
    """Parts are named; a finished one is not called compiling; the warm-up is not timed."""
    with progress(7, "train", every=2) as shown:
        shown.begin("standard", done=2, steps=2)
        shown.begin("myopic", done=1, steps=5)
        for _ in range(4):
            shown.tick(jax.numpy.float32(0.25), tokens=10)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["train standard: done before", "train myopic: compiling"]
    assert [line.split()[2] for line in lines[2:]] == ["4/7", "6/7", "7/7"]
    assert "tokens/s" not in lines[2]  # still the warm-up
    assert "loss 0.25" in lines[3] and "tokens/s" in lines[3] and "ETA" in lines[3]


def test_on_a_terminal():
    """A bar that says what it waits for."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen = Terminal()
    with progress(2, "train", stream=screen) as shown:
        shown.begin("myopic")
        shown.tick(0.5, tokens=3)
        shown.tick(0.25, tokens=3)
    text = screen.getvalue()
    assert "train myopic (compiling)" in text and "2/2" in text and "loss 0.25" in text
