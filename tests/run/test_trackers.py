"""Do metrics reach a tracker where one is asked for, and is a missing one told?"""

import sys
import time

import pytest

from jaxfeat.run.trackers import open_tracker, scalars
from jaxfeat.types import UserError

LINE = {"variant": "myopic", "step": 4, "loss": [1.0, 3.0], "rate": 0.5, "none": None}


def test_scalars():
    """Every number once, lists by mean and place, texts before the names."""
    assert scalars(LINE) == {
        "myopic/loss": 2.0, "myopic/loss/0": 1.0, "myopic/loss/1": 3.0, "myopic/rate": 0.5
    }  # fmt: skip


def test_missing_package(tmp_path, monkeypatch):
    """The message names the option and the extra; an unknown kind the valid ones."""
    for kind, package in (("tensorboard", "tensorboardX"), ("wandb", "wandb")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(UserError, match=rf'--log {kind}: .*install -e "\.\[{kind}\]"'):
            open_tracker(kind, tmp_path, name="a", config={})
    with pytest.raises(UserError, match="valid: tensorboard, wandb"):
        open_tracker("mlflow", tmp_path, name="a", config={})
    open_tracker("", tmp_path, name="a", config={})(LINE)
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard(tmp_path):
    """Its file lies in the result folder."""
    pytest.importorskip("tensorboardX")
    open_tracker("tensorboard", tmp_path, name="a", config={})(LINE)
    (file,) = (tmp_path / "tensorboard").iterdir()
    until = time.monotonic() + 10  # its writer is a thread of its own
    while b"myopic/loss" not in file.read_bytes() and time.monotonic() < until:
        time.sleep(0.05)
    assert b"myopic/loss" in file.read_bytes()


def test_wandb(tmp_path, monkeypatch):
    """An offline run in the result folder is given each line with its step."""
    seen = []

    class Fake:
        """What is used of the package."""

        __spec__ = "a package that is there"

        @staticmethod
        def init(**options):
            seen.append(options)
            return Fake

        @staticmethod
        def log(values, step):
            seen.append((values, step))

    monkeypatch.setitem(sys.modules, "wandb", Fake)
    open_tracker("wandb", tmp_path, name="a", config={"x": 1})(LINE)
    assert seen[0]["mode"] == "offline" and seen[0]["dir"] == str(tmp_path)
    assert seen[1] == (scalars(LINE), 4)
