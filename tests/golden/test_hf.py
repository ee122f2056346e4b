"""Does each pretrained family compute what Hugging Face's does, after every block?

The numbers are transformers' for tiny random models, in true float64 (`expected_strict.npz`).
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import check
from reference_hf import batch_of, read_expected, read_json, read_tensors

from jaxfeat.models.families import family_of
from jaxfeat.nn.blocks import forward
from jaxfeat.nn.loss import mean_loss
from jaxfeat.nn.rotary import Rope

GOLDEN = ("hf/*",)
TOLERANCE = {"float64": 1e-10, "float32": 1e-4}  # of the largest value of an array
SHORT = 5  # tokens that are left where more pads stand than any window is wide
# of each folder: options of its config read wrongly, each of which must show in the logits
ROPE = {"rope": Rope(3000.0)}
ACT = {"act": "relu"}
WINDOWS = ({"window": 3}, {"window": 5}, {"slides": (False, True, False, True)})
WRONG = {
    "gpt2_a": ({"eps": 1e-4},),
    "gpt_neox_a": ({"rotated": 0.5}, {"parallel": False}, {"act": "gelu_new"}, ROPE),
    "olmo_a": ({"clip": 1.5}, {"eps": 1e-4}, ACT, ROPE),
    "olmo2_a": ({"eps": 1e-5}, ROPE),
    "llama_a": ({"eps": 1e-4}, ACT, ROPE),
    "gemma2_a": (
        *WINDOWS, {"query_scalar": 8.0}, {"attn_softcap": None}, {"logit_softcap": None},
        {"act": "gelu"}, ROPE,
    ),
    "gemma3_a": (*WINDOWS, {"query_scalar": 8.0}, {"local_rope": Rope(1e6)}, ROPE),
    "modernbert_a": (
        {"reach": 2}, {"reach": 4}, {"slides": (False,) * 4}, {"local_rope": Rope(160000.0)},
        {"head_act": "gelu_new"}, {"act": "gelu_new"}, ROPE,
    ),
    "eurobert_a": ({"eps": 1e-4}, ROPE),
}  # fmt: skip
QUICK = {"xla_backend_optimization_level": 0}


def model_of(folder, dtype):
    """A family's decoder and parameters of a folder."""
    raw = read_json(folder / "config.json")
    family = family_of(raw)
    config = family.read_config(raw, dtype)
    decoder = family.make(config)
    assert decoder.causal == family.causal
    return decoder, family.read_params(config, read_tensors(folder / "model.safetensors"))


def program(decoder):
    """Logits, residuals, loss and its gradient at every node, compiled."""

    @partial(jax.jit, compiler_options=QUICK)
    def run(params, batch):
        def loss(taps):
            out = forward(decoder, params, batch, taps=taps)
            return mean_loss(out.logits, batch), out

        shape = (batch.token.shape[0], decoder.layers + 1, batch.token.shape[1], decoder.width)
        taps = jnp.zeros(shape, jax.tree.leaves(params)[0].dtype)
        (loss, out), grads = jax.value_and_grad(loss, has_aux=True)(taps)
        return out.logits, out.resid, loss, grads

    return run


def check_real(ours, theirs, mask, what, relative):
    """`check` where the mask is true; both arrays `[B, T, ..]`."""
    check(np.asarray(ours)[mask], np.asarray(theirs)[mask], what, relative)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_forward_and_gradients(golden, dtype):
    """Embedding, every block, logits, losses and gradients at every node, at real positions."""
    z, relative = read_expected(golden), TOLERANCE[dtype]
    real = z["attention_mask"] == 1
    with jax.enable_x64(dtype == "float64"):
        decoder, params = model_of(golden, dtype)
        assert {x.dtype for x in jax.tree.leaves(params)} == {np.dtype(dtype)}
        run = program(decoder)
        batch = batch_of(z["input_ids"], real, z.get("labels"))
        logits, resid, loss, _ = run(params, batch)
        check_real(resid[:, 0], z["embed_out"], real, "embed_out", relative)
        for b, theirs in enumerate(z["resid_post"]):
            check_real(resid[:, b + 1], theirs, real, f"resid_post[{b}]", relative)
        check_real(logits, z["logits"], real, "logits", relative)
        check(loss, z["loss"], "loss", relative)
        if not decoder.causal:
            return
        unpadded = batch._replace(weight=batch.weight & real.all(axis=1, keepdims=True))
        _, _, loss, grads = run(params, unpadded)
        check(loss, z["loss_unpadded"], "loss_unpadded", relative)
        check(grads[:, 0], z["grad_embed_out"], "grad_embed_out", relative)
        for b, theirs in enumerate(z["grad_resid_post"]):
            check(grads[:, b + 1], theirs, f"grad_resid_post[{b}]", relative)


def test_padding(golden):
    """Pads of any length on either side, with garbage in them, change nothing.

    The truth is a row alone without pads. The padded rows have more pads than a window is wide,
    so that some of their queries see nothing.
    """
    z = read_expected(golden)
    ids, length = z["input_ids"].copy(), z["input_ids"].shape[1]
    with jax.enable_x64(True):
        decoder, params = model_of(golden, "float64")
        run = program(decoder)
        short = ids[:1, :SHORT]
        mask = np.ones_like(ids, bool)
        mask[1, SHORT:] = mask[2, : length - SHORT] = False
        padded = np.where(mask, 0, np.arange(ids.size).reshape(ids.shape) % decoder.vocab)
        padded[1, :SHORT] = padded[2, length - SHORT :] = short[0]
        padded[0] = ids[0]
        batch = batch_of(padded.astype(np.int32), mask)
        batch = batch._replace(weight=batch.weight & (np.arange(3) == 1)[:, None])
        alone = run(params, batch_of(short, np.ones_like(short, bool)))
        several = run(params, batch)
        for found, truth in ((several[0], alone[0]), (several[1][:, -1], alone[1][:, -1])):
            check(found[1, :SHORT], truth[0], "right pads", 1e-12)
            check(found[2, length - SHORT :], truth[0], "left pads", 1e-12)
        check(several[2], alone[2], "loss", 1e-12)
        check(several[3][1, :, :SHORT], alone[3][0], "gradient", 1e-11)
        assert np.isfinite(several[0]).all() and np.isfinite(several[3]).all()
        assert not np.asarray(several[3])[1, :, SHORT:].any()
        garbage = padded.copy()
        garbage[~mask] = (garbage[~mask] + 1) % decoder.vocab
        other = run(params, batch._replace(token=garbage.astype(np.int32)))
        for a, b in zip(several[:2], other[:2]):
            b = np.asarray(b) if a.ndim == 3 else np.moveaxis(b, 1, 2)
            a = np.asarray(a) if a.ndim == 3 else np.moveaxis(a, 1, 2)
            np.testing.assert_array_equal(a[mask], b[mask])
        assert float(several[2]) == float(other[2])


def test_old_config(golden):
    """The keys before transformers 5 say the same."""
    if not (golden / "config_legacy.json").exists():
        pytest.skip("no old config in this folder")
    raw, old = (read_json(golden / name) for name in ("config.json", "config_legacy.json"))
    family = family_of(raw)
    assert family == family_of(old)
    assert family.read_config(raw) == family.read_config(old)


def test_edits(golden):
    """Adding a direction to a residual at one position, where the folder says what comes of it."""
    if not (golden / "ablate.npz").exists():
        pytest.skip("no edits in this folder")
    with np.load(golden / "ablate.npz") as loaded:
        z = dict(loaded)
    inputs = read_expected(golden)
    real = inputs["attention_mask"] == 1
    with jax.enable_x64(True):
        decoder, params = model_of(golden, "float64")
        batch = batch_of(inputs["input_ids"], real)

        @partial(jax.jit, compiler_options=QUICK)
        def run(params, batch, i, push):
            edits = [
                {int(b) + 1: lambda x, n=n: x.at[i[n]].add(push[n])} for n, b in enumerate(z["l"])
            ]
            return [forward(decoder, params, batch, edits=edit).logits for edit in edits]

        found = run(params, batch, z["i"], z["c"][:, None] * z["d"])
        for n, logits in enumerate(found):
            check_real(logits, z["logits_strict"][n], real, f"edit {n}", 1e-10)
            before = np.asarray(logits)[:, : z["i"][n]]
            check(before, inputs["logits"][:, : z["i"][n]], f"before edit {n}", 1e-10)


def test_options_matter(golden):
    """Reading one option wrongly moves the logits by far more than the tolerance."""
    if golden.name not in WRONG:
        pytest.skip("no options are listed for this folder")
    z, raw = read_expected(golden), read_json(golden / "config.json")
    family = family_of(raw)
    real = z["attention_mask"] == 1
    with jax.enable_x64(True):
        right, (_, params) = family.read_config(raw, "float64"), model_of(golden, "float64")
        others = [family.make(replace(right, **wrong)) for wrong in WRONG[golden.name]]
        batch = batch_of(z["input_ids"], real)

        @partial(jax.jit, compiler_options=QUICK)
        def run(params):
            return [forward(decoder, params, batch).logits for decoder in others]

        for wrong, logits in zip(WRONG[golden.name], run(params), strict=True):
            moved = np.abs(np.asarray(logits) - z["logits"])[real].max()
            assert moved > 1e-4, wrong
