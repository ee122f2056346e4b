"""Does the check of a pretrained model measure what it prints, and end with the right code?"""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pretrained_files as files
import pytest

from jaxfeat.io.arrays import save_arrays
from jaxfeat.io.gguf_tokenizer import gguf_tokenizer
from jaxfeat.models.packaged import PACKAGES, packaged_files
from jaxfeat.models.pretrained import encode_text, load
from jaxfeat.nn.blocks import forward
from jaxfeat.run import verify
from jaxfeat.types import Batch, UserError, make_batch

IDS = np.array([[2, 5, 6, 9, 3], [2, 7, 9, 0, 0]], np.int32)
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny Gemma 3 with its tokenizer."""
    place = files.write_folder(tmp_path_factory.mktemp("some") / "m", files.GEMMA3)
    gguf_tokenizer(files.metadata_of(files.GEMMA3)).save(str(place / "tokenizer.json"))
    return place


@pytest.fixture(scope="module")
def model(folder):
    return load(folder)


@pytest.fixture(scope="module")
def run(model):
    """`forward` of the model as one program a shape."""
    return jax.jit(lambda batch: forward(model.decoder, model.params, batch))


@pytest.fixture(scope="module")
def outputs(run):
    """What the model gives for IDS, as a reference would store it."""
    mask = jnp.asarray(MASK, bool)
    place = jnp.broadcast_to(jnp.arange(5), IDS.shape)  # of pads too
    out = run(Batch(jnp.asarray(IDS), jnp.asarray(IDS), mask, mask, place))
    resid = np.asarray(out.resid)
    return {"embed_out": resid[:, 0], "resid_post": np.moveaxis(resid[:, 1:], 1, 0),
            "logits": np.asarray(out.logits)}  # fmt: skip


def ended(capsys, *argv):
    """Exit code, output and error lines of a run."""
    try:
        verify.main([str(word) for word in argv])
        code = 0
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    return code, out, err.splitlines()


def test_nats_per_token_by_hand(model, run):
    """From logits in float64; the BOS and special tokens inside are no targets; BOS stays first."""
    text = "ab<eos> cd abc"
    found = verify.paragraph_nll(model, text)
    ids, special = encode_text(model, text)
    assert special.tolist().count(True) == 2 and ids[0] == 2
    order = np.r_[0, 1 + np.random.default_rng(0).permutation(len(ids) - 1)]
    for wanted, row, kind in (
        (found.text, ids, special),
        (found.shuffled, ids[order], special[order]),
    ):
        batch = make_batch(jnp.asarray(row)[None])
        logits = np.asarray(run(batch).logits[0], np.float64)
        chance = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        losses = -np.log(chance[np.arange(len(row) - 1), row[1:]])[~kind[1:]]
        np.testing.assert_allclose(wanted, losses.mean(), rtol=1e-5)
        assert found.tokens == len(losses) == len(ids) - 2
    assert found.text != found.shuffled
    masked = model._replace(decoder=model.decoder._replace(causal=False))
    with pytest.raises(UserError, match="m fills in masked tokens: it has no loss of a next"):
        verify.paragraph_nll(masked)


def test_what_it_writes_is_the_most_likely(model, run):
    """By reading everything again for each token (what stands behind is not seen)."""
    ids = np.r_[encode_text(model, "ab").ids, np.zeros(4, np.int32)]
    for t in (2, 3, 4):
        logits = run(make_batch(jnp.asarray(ids)[None])).logits[0, t - 1]
        ids[t] = int(jnp.argmax(logits))
    written = model.tokenizer.decode(ids[2:5].tolist(), skip_special_tokens=False)
    assert verify.continuation(model, "ab", 3) == written


def test_differences_count_at_real_positions(model, outputs, tmp_path):
    planted = {name: x.copy() for name, x in outputs.items()}
    planted["logits"][1, 2, 4] += 0.5
    planted["logits"][1, 3] = 1e9  # a pad
    planted["resid_post"][1, 0, 3, 2] -= 0.25
    inputs = {"input_ids": IDS, "attention_mask": MASK}
    inside = save_arrays(tmp_path / "a.npz", planted | inputs)
    beside = save_arrays(tmp_path / "expected_strict.npz", planted)
    save_arrays(tmp_path / "expected.npz", inputs)
    for file in (inside, beside):
        found = verify.reference_differences(model, file)
        worst = {name: pair[0] for name, pair in found.items()}
        np.testing.assert_allclose(worst["logits"], 0.5, atol=1e-5)
        np.testing.assert_allclose(worst["resid_post"], 0.25, atol=1e-5)
        assert worst["embed_out"] < 1e-6
        real = MASK.astype(bool)
        assert found["logits"][1] == np.abs(planted["logits"][real].astype(float)).max()
    renamed = {"logits_f64": outputs["logits"]} | inputs
    found = verify.reference_differences(model, save_arrays(tmp_path / "b.npz", renamed))
    assert list(found) == ["logits"] and found["logits"][0] < 1e-5
    for arrays, told in (
        (inputs, "none of embed_out, resid_post, logits in it"),
        (
            inputs | {"logits": np.zeros((2, 5, 7))},
            r"logits has shape \(2, 5, 7\), the model gives",
        ),
    ):
        with pytest.raises(UserError, match=told):
            verify.reference_differences(model, save_arrays(tmp_path / "c.npz", arrays))
    (tmp_path / "expected.npz").unlink()
    with pytest.raises(UserError, match=r"no file at .*expected\.npz"):
        verify.reference_differences(model, beside)
    save_arrays(tmp_path / "expected.npz", {"x": MASK})
    with pytest.raises(UserError, match="no input_ids and attention_mask in it"):
        verify.reference_differences(model, beside)


def test_the_report(folder, capsys):
    code, out, err = ended(capsys, folder)
    assert (code, err) == (0, []) and "reference" not in out
    count = sum(x.size for x in files.weights(files.GEMMA3).values())
    for line in (f"m: gemma3, {count:,} parameters, float32", "width = 12", "slides = SS",
                 "tokenizer: 23 ids, BOS 2, needed before text", "nats per token over",
                 f"continuation: {verify.PROMPT}"):  # fmt: skip
        assert line in out, line


def test_the_code_follows_the_reference(outputs, tmp_path, capsys):
    """The same weights without a tokenizer, so that nothing else is computed."""
    folder = files.write_folder(tmp_path / "m", files.GEMMA3)
    inputs = {"input_ids": IDS, "attention_mask": MASK}
    save_arrays(folder / "expected.npz", outputs | inputs)
    code, out, _ = ended(capsys, folder)
    assert code == 0 and "agrees: 0.0001 of the largest value" in out
    code, out, _ = ended(capsys, folder, "--dtype", "float64")
    assert code == 1 and "DIFFERS: 1e-10" in out  # its reference is of float32
    code, out, _ = ended(capsys, folder, "--dtype", "bfloat16")
    assert code == 0 and "agrees" not in out and "largest difference" in out
    bad = save_arrays(tmp_path / "bad.npz", outputs | inputs | {"logits": outputs["logits"] * 1.01})
    code, out, _ = ended(capsys, folder, f"--reference={bad}")
    assert code == 1 and "DIFFERS" in out
    assert not jax.config.jax_enable_x64


def test_models_without_text_are_described(folder, tmp_path, capsys):
    bare = files.write_folder(tmp_path / "bare", files.LLAMA)
    code, out, _ = ended(capsys, bare)
    assert code == 0 and "no tokenizer beside it" in out and "paragraph" not in out


def test_bad_input_takes_one_line(folder, tmp_path, capsys):
    config = tmp_path / "bad" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps({"model_type": "mamba"}))
    for argv, told in (
        ([], "the following arguments are required: MODEL"),
        ([folder, "--dtpye", "float32"], "unknown option --dtpye; did you mean --dtype?; options"),
        ([folder, "--dtype", "int8"], "argument --dtype: invalid choice: 'int8'"),
        ([folder, folder], "unrecognized arguments"),
        ([folder, "--reference", tmp_path / "absent.npz"], "no file at"),
        (["nosuch"], "no model at nosuch"),
        ([config.parent], "model_type 'mamba' is not read"),
    ):
        code, _, err = ended(capsys, *argv)
        assert code == 2 and len(err) == 1 and err[0].startswith("error: ") and told in err[0], err
    code, out, _ = ended(capsys, "--help")
    assert code == 0 and "gemma3-270m" in out and "Exit codes" in out


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PACKAGES))
def test_packaged_models_read_and_write(name, tmp_path):
    """Below 3 nats per token of plain English, and below half of the shuffled tokens'."""
    try:
        packaged_files(name)
    except UserError as error:
        pytest.skip(str(error))
    pytest.importorskip("gguf")
    model = load(name, cache=tmp_path)
    found = verify.paragraph_nll(model)
    assert found.text < 3.0 and found.text < found.shuffled / 2, found
    words = verify.continuation(model, count=24).split()
    assert len(words) > 12 and len(set(words)) > 10, words
