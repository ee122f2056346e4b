"""Does an interrupted run go on as if nothing had happened?"""

import shutil
import signal
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import small
from small import KEY, RATE, STEPS
from tiny import same

from jaxfeat.train.checkpoint import restore_checkpoint, save_checkpoint, saved_steps
from jaxfeat.train.loop import Run, Tracked
from jaxfeat.types import UserError

VALUE = {"x": jnp.arange(6.0).reshape(2, 3), "n": jnp.int32(7)}


def bits(tree):
    return [(np.asarray(x).dtype, np.asarray(x).tobytes()) for x in jax.tree.leaves(tree)]


def shapes(tree):
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)


def test_resumed_run(tmp_path):
    """Two intervals at once, and with a save and a restore between: equal bit for bit.

    Parameters, Adam's moments, component moments, ledger and step; types as they were.
    """
    half, _ = small.after(1)
    whole, losses = small.after(2)
    save_checkpoint(tmp_path, STEPS, half)
    for like in (small.start(), shapes(half)):
        back = restore_checkpoint(tmp_path, like)
        assert bits(back) == bits(half)
        assert jax.tree.structure(back) == jax.tree.structure(half)
        assert isinstance(back, Run) and isinstance(back.tracked, Tracked)
        assert isinstance(back.state.opt_state, optax.ScaleByAdamState)
        assert back.state.step == back.state.opt_state.count == STEPS
    end, last = small.interval()(back, KEY, jnp.float32(RATE))
    assert bits(end) == bits(whole) and np.array_equal(last, losses[STEPS:])


def test_last_two_are_kept(tmp_path):
    """The last two by step; any kept one can be asked for; others are named in the message."""
    for step in (1, 2, 10, 30):
        path = save_checkpoint(tmp_path, step, VALUE | {"n": jnp.int32(step)})
        assert path.is_dir()
    assert saved_steps(tmp_path) == [10, 30] and len(list(tmp_path.glob("*/"))) == 2
    assert int(restore_checkpoint(tmp_path, VALUE)["n"]) == 30
    assert int(restore_checkpoint(tmp_path, VALUE, step=10)["n"]) == 10
    with pytest.raises(UserError, match=r"no checkpoint of step 2 in .*; there are \[10, 30\]"):
        restore_checkpoint(tmp_path, VALUE, step=2)
    # a run that goes on from an earlier step keeps what it has just written
    assert save_checkpoint(tmp_path, 20, VALUE).is_dir() and 20 in saved_steps(tmp_path)
    assert save_checkpoint(tmp_path, 5, VALUE).is_dir() and 5 in saved_steps(tmp_path)


def test_overwritten(tmp_path):
    """The same step twice is the later value."""
    save_checkpoint(tmp_path, 3, VALUE)
    save_checkpoint(tmp_path, 3, VALUE | {"n": jnp.int32(8)})
    assert int(restore_checkpoint(tmp_path, VALUE)["n"]) == 8


def test_torn_folder_is_passed_over(tmp_path):
    """What an interrupted save leaves is not a checkpoint."""
    save_checkpoint(tmp_path, 4, VALUE)
    whole = tmp_path / "step_00000004"
    torn = tmp_path / "step_00000008.orbax-checkpoint-tmp"
    shutil.copytree(whole, torn)
    next(p for p in torn.iterdir() if p.is_file()).unlink()
    (tmp_path / "step_notes.txt").write_text("words")
    assert saved_steps(tmp_path) == [4]
    same(restore_checkpoint(tmp_path, VALUE), VALUE)
    save_checkpoint(tmp_path, 8, VALUE)
    assert saved_steps(tmp_path) == [4, 8]
    (tmp_path / "step_00000008.sha256.json").unlink()  # killed before it was written
    assert saved_steps(tmp_path) == [4]
    save_checkpoint(tmp_path, 8, VALUE)
    shutil.rmtree(whole)  # deleted by hand
    assert saved_steps(tmp_path) == [8]


def test_failed_save_leaves_the_last(tmp_path):
    """A value that cannot be saved raises; the checkpoint before stands."""
    save_checkpoint(tmp_path, 1, VALUE)
    with pytest.raises(UserError, match="arrays of numbers"):
        save_checkpoint(tmp_path, 2, {"x": np.array([object()])})
    assert saved_steps(tmp_path) == [1]
    same(restore_checkpoint(tmp_path, VALUE), VALUE)


@pytest.mark.parametrize("kind", ["relative", "home", "spaced", "text"])
def test_paths(tmp_path, monkeypatch, kind):
    """Relative, `~` and spaced paths, as text or as a Path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = {
        "relative": Path("runs/a"),
        "home": "~/runs/a",
        "spaced": tmp_path / "my runs" / "a",
        "text": str(tmp_path / "runs"),
    }[kind]
    path = save_checkpoint(folder, 2, VALUE)
    assert path.is_absolute() and path.is_relative_to(tmp_path) and path.is_dir()
    assert saved_steps(folder) == [2]
    same(restore_checkpoint(folder, VALUE), VALUE)


def test_one_level_off(tmp_path):
    """The message says which folder is meant."""
    path = save_checkpoint(tmp_path / "run", 2, VALUE)
    with pytest.raises(UserError, match=f"this is one checkpoint; give its folder {path.parent}"):
        restore_checkpoint(path, VALUE)
    with pytest.raises(UserError, match="its folders run hold some; give one of them"):
        restore_checkpoint(tmp_path, VALUE)
    for folder in (tmp_path / "absent", tmp_path / "run" / "step_00000009"):
        with pytest.raises(UserError, match=f"no checkpoint in {folder}"):
            restore_checkpoint(folder, VALUE)
    assert saved_steps(tmp_path / "absent") == []


@pytest.mark.parametrize(
    "other",
    [
        VALUE | {"x": jnp.zeros((3, 2))},
        VALUE | {"y": jnp.zeros(1)},
        {"n": jnp.int32(0)},
        VALUE | {"x": jnp.zeros((2, 3), jnp.bfloat16)},
    ],
    ids=["shape", "more", "fewer", "dtype"],
)
def test_other_config(tmp_path, other):
    """Arrays of another config are refused, never cast or cut."""
    save_checkpoint(tmp_path, 2, VALUE)
    with pytest.raises(UserError, match=r"another config: (.* there, .* is needed|it holds)"):
        restore_checkpoint(tmp_path, other)


def test_bfloat16(tmp_path):
    """Narrow types come back as they were."""
    value = {"x": jnp.arange(3, dtype=jnp.bfloat16), "key": jax.random.key_data(KEY)}
    save_checkpoint(tmp_path, 0, value)
    assert bits(restore_checkpoint(tmp_path, value)) == bits(value)


def test_refused(tmp_path):
    """A damaged checkpoint, a file in the folder's place, a negative step: said in a line."""
    with pytest.raises(UserError, match="step: -1 given"):
        save_checkpoint(tmp_path, -1, VALUE)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"no checkpoints can be written in .*file"):
        save_checkpoint(tmp_path / "file", 1, VALUE)
    path = save_checkpoint(tmp_path / "run", 1, VALUE)
    for part in path.rglob("*"):
        if part.is_file():
            part.write_bytes(b"damaged")
    with pytest.raises(
        UserError, match=r"is damaged: its checksums differ; delete it to begin anew"
    ) as told:
        restore_checkpoint(tmp_path / "run", VALUE)
    assert "\n" not in str(told.value)


def test_flipped_bits(tmp_path):
    """Values that are not those saved are refused, whatever they are."""
    value = {"x": jnp.arange(4096.0)}
    path = save_checkpoint(tmp_path, 1, value)
    largest = max((p for p in path.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    data = bytearray(largest.read_bytes())
    for at in range(len(data) // 3, len(data) // 2, 7):
        data[at] ^= 1
    largest.write_bytes(data)
    save_checkpoint(tmp_path, 0, value)
    with pytest.raises(UserError, match=r"is damaged.*; delete it to go on from the one before"):
        restore_checkpoint(tmp_path, value)
    (tmp_path / "step_00000001.sha256.json").write_text("{")
    with pytest.raises(UserError, match="is damaged"):
        restore_checkpoint(tmp_path, value)
    same(restore_checkpoint(tmp_path, value, step=0), value)


def test_interruption_waits_for_a_checkpoint(tmp_path, monkeypatch):
    """A signal that comes while one is written takes effect when it is whole."""
    import orbax.checkpoint as ocp

    save = ocp.StandardCheckpointer.save

    def interrupted(self, *args, **options):
        signal.raise_signal(signal.SIGINT)
        return save(self, *args, **options)

    monkeypatch.setattr(ocp.StandardCheckpointer, "save", interrupted)
    value = {"x": np.arange(3)}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job may ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            save_checkpoint(tmp_path, 4, value)
    finally:
        signal.signal(signal.SIGINT, before)
    assert saved_steps(tmp_path) == [4]
    np.testing.assert_array_equal(restore_checkpoint(tmp_path, value)["x"], value["x"])


def test_a_ladder_is_kept(tmp_path):
    """With `kept=None` no earlier one is dropped."""
    for step in (0, 1, 2, 4):
        save_checkpoint(tmp_path, step, {"x": np.arange(step + 1)}, kept=None)
    assert saved_steps(tmp_path) == [0, 1, 2, 4]
