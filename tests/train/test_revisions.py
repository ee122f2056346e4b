"""Are the checkpoints of one model found in order, and everything else refused?"""

import json
import shutil

import jax
import numpy as np
import pytest
from pretrained_files import LLAMA, result_folder, weights, write_folder

from jaxfeat.io.tokenizer import save_tokenizer, train_tokenizer
from jaxfeat.train.revisions import check_checkpoints, ladder_checkpoints, open_checkpoints
from jaxfeat.types import UserError

TEXTS = ["a cat sat on a mat", "a dog ran"]


def test_ladder(tmp_path):
    """Steps in order, the parameters of the chosen seed; one ladder of a folder is found."""
    tokenizer = train_tokenizer(TEXTS, 260)
    folder, last = result_folder(tmp_path / "my run", tokenizer.get_vocab_size())
    save_tokenizer(folder / "tokenizer.json", tokenizer)
    found = open_checkpoints([folder / "ladder" / "standard"], seed=1)
    assert [(c.name, c.step, c.vocab) for c in found] == [
        (f"step {n}", n, tokenizer.get_vocab_size()) for n in (0, 1, 4)
    ]
    decoder, params = found[2].load()
    assert decoder.layers == 1
    for ours, theirs in zip(jax.tree.leaves(params), jax.tree.leaves(last), strict=True):
        np.testing.assert_array_equal(ours, theirs[1])
    assert [c.step for c in open_checkpoints([folder])] == [0, 1, 4]
    with pytest.raises(UserError, match=r"stand twice: step 0 = step 0, step 1 = step 1"):
        check_checkpoints([*found[:2], *found])
    with pytest.raises(UserError, match=r"seed: 2 given, .* 0..1"):
        ladder_checkpoints(folder, seed=2)
    with pytest.raises(UserError, match="give ladder/NAME"):
        ladder_checkpoints(tmp_path)
    shutil.copytree(folder / "ladder" / "standard", folder / "ladder" / "myopic")
    with pytest.raises(UserError, match=r"holds 2 ladders \(myopic, standard\)"):
        ladder_checkpoints(folder)
    assert len(ladder_checkpoints(folder / "ladder" / "myopic")) == 3
    (folder / "config.json").unlink()
    with pytest.raises(UserError, match=r"no config\.json of experiments\.tinystories"):
        ladder_checkpoints(folder / "ladder" / "standard")


def test_folders(tmp_path):
    """Revisions as given, steps out of their names, weights read when asked for."""
    folders = [write_folder(tmp_path / f"step{n}", LLAMA, weights(LLAMA, n)) for n in (1, 0)]
    found = open_checkpoints(folders)
    assert [(c.name, c.step, c.vocab) for c in found] == [("step1", 1, 23), ("step0", 0, 23)]
    decoder, params = found[1].load()
    assert decoder.vocab == 23
    table = weights(LLAMA, 0)["model.embed_tokens.weight"]
    np.testing.assert_array_equal(params["outer"]["table"]["embedding"], table)


def test_refusals(tmp_path):
    """One line each, with the folders' names."""
    make = lambda name, seed, **other: write_folder(
        tmp_path / name, LLAMA | other, weights(LLAMA | other, seed)
    )
    one, two = make("step1", 0), make("step2", 1)
    copy = make("last", 0)
    cases = [
        ([], "at least one"),
        ([tmp_path / "none"], "none cannot be read: no config.json"),
        ([one, make("other", 1, vocab_size=24)], "step1 has 23 tokens, other 24"),
        ([one, make("deep", 1, num_hidden_layers=1)], "step1 and deep have different sizes"),
        ([one, two, one], "stand twice: step1 = step1"),
        ([one, two, copy], "hold the same weights: step1 = last"),
        ([one, make("again/step1", 3)], "are of one step: step1 = step1"),
    ]
    for paths, words in cases:
        with pytest.raises(UserError, match=words) as told:
            open_checkpoints(paths)
        assert "\n" not in str(told.value)
    tokenizers = [train_tokenizer(t, 260) for t in (TEXTS, ["xyz xyz xyz xyzzy"])]
    for folder, tokenizer in zip((one, two), tokenizers, strict=True):
        save_tokenizer(folder / "tokenizer.json", tokenizer)
    with pytest.raises(UserError, match="different tokenizers"):
        open_checkpoints([one, two])
    (two / "config.json").write_text("{")
    with pytest.raises(UserError, match="damaged"):
        open_checkpoints([one, two])
    (two / "config.json").write_text(json.dumps(LLAMA))
    (two / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"no model\.safetensors"):
        open_checkpoints([one, two])
