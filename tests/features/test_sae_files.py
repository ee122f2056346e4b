"""Is an SAE read as its authors compute it, written as others read it, and else refused?"""

import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jaxfeat.features.sae import SAE, decode, encode
from jaxfeat.features.sae_files import load_sae, sae_notes, save_sae
from jaxfeat.types import UserError

WIDTH, COUNT, K = 6, 10, 2
X = np.random.default_rng(1).standard_normal((30, WIDTH)).astype(np.float32)


def arrays(threshold=True, dtype=np.float32):
    """Arrays under the names of both layouts."""
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.standard_normal(shape).astype(dtype)
    found = {"W_enc": draw(WIDTH, COUNT), "b_enc": draw(COUNT), "W_dec": draw(COUNT, WIDTH)}
    found["b_dec"] = draw(WIDTH)
    return found | ({"threshold": np.abs(draw(COUNT))} if threshold else {})


def scope(folder, **changed):
    """A file as Gemma Scope has it."""
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "params.npz", **{**arrays(), **changed})
    return folder / "params.npz"


def lens(folder, architecture="standard", without=(), weights=None, **config):
    """A folder as SAELens has it."""
    folder.mkdir(parents=True, exist_ok=True)
    held = arrays(architecture == "jumprelu") if weights is None else weights
    save_file(
        {k: v for k, v in held.items() if k not in without}, folder / "sae_weights.safetensors"
    )
    told = {
        "architecture": architecture, "d_in": WIDTH, "d_sae": COUNT, "apply_b_dec_to_input": False,
        "normalize_activations": "none", "metadata": {"hook_name": "blocks.15.hook_resid_post"},
    } | config  # fmt: skip
    (folder / "cfg.json").write_text(json.dumps({k: v for k, v in told.items() if v is not None}))
    return folder


def theirs(held, kind, x, k=0, b_dec_in=False, scale=1.0, by_norm=False):
    """What their code computes: f and the reconstruction in raw units."""
    norm = np.linalg.norm(held["W_dec"], axis=1) if by_norm else 1
    pre = ((scale * x - b_dec_in * held["b_dec"]) @ held["W_enc"] + held["b_enc"]) * norm
    f = np.maximum(pre, 0)
    if kind == "jumprelu":
        f = pre * (pre > held["threshold"])
    if kind == "topk":
        f = f * (pre >= np.sort(pre, axis=1)[:, [-k]])
    return f, ((f / norm) @ held["W_dec"] + held["b_dec"]) / scale


def same_as_theirs(sae, held, kind, **how):
    f, out = theirs(held, kind, X, **how)
    np.testing.assert_allclose(encode(sae, X), f, atol=5e-6)
    np.testing.assert_allclose(decode(sae, f), out, atol=2e-5)
    assert 0 < (f > 0).mean() < 0.7


def test_gemma_scope(tmp_path):
    """The layer from the folder's name or as it is given: their 15 is our 16."""
    folder = tmp_path / "gemma-scope" / "layer_15" / "width_16k" / "average_l0_78"
    file = scope(folder)
    for path, layer in ((file, None), (folder, 16), (str(folder), None)):
        sae = load_sae(path, layer)
        assert (sae.layer, sae.kind, sae.k) == (16, "jumprelu", 0)
    same_as_theirs(sae, arrays(), "jumprelu")
    plain = scope(tmp_path / "other")
    assert load_sae(plain, layer=3).layer == 3
    with pytest.raises(UserError, match=r"layer: 15 given, .* is of layer 16"):
        load_sae(file, layer=15)
    with pytest.raises(UserError, match=r"layer: .* give it \(16 for their layer 15\)"):
        load_sae(plain)


@pytest.mark.parametrize("b_dec_in", [False, True])
@pytest.mark.parametrize("kind", ["standard", "jumprelu", "topk"])
def test_saelens(tmp_path, kind, b_dec_in):
    options = {"k": K} if kind == "topk" else {}
    told = {"apply_b_dec_to_input": None if b_dec_in else False}  # which is true where it lacks
    sae = load_sae(lens(tmp_path, kind, **options, **told))
    same_as_theirs(sae, arrays(kind == "jumprelu"), kind, b_dec_in=b_dec_in, **options)
    assert sae.layer == 16


def test_saelens_normalised(tmp_path):
    """A scale and decoder norms are folded in; the scale is told."""
    how = {"normalize_activations": "expected_average_only_in", "apply_b_dec_to_input": True}
    sae = load_sae(lens(tmp_path / "a", **how), scale=0.3)
    same_as_theirs(sae, arrays(False), "standard", b_dec_in=True, scale=0.3)
    assert sae.scale == 0.3
    both = lens(tmp_path / "b", "topk", k=K, rescale_acts_by_decoder_norm=True, **how)
    sae = load_sae(both, scale=0.3)
    same_as_theirs(sae, arrays(False), "topk", k=K, b_dec_in=True, scale=0.3, by_norm=True)
    for scale in (None, 0.0, np.nan):
        with pytest.raises(UserError, match=r"scale: .* give what they were multiplied by"):
            load_sae(both, scale=scale)


def test_older_saelens(tmp_path):
    """Configs without nesting: the site beside the rest, topk as a function's name."""
    old = {"metadata": None, "architecture": None, "activation_fn_str": "topk",
           "activation_fn_kwargs": {"k": K}, "hook_name": "blocks.3.hook_resid_pre"}  # fmt: skip
    sae = load_sae(lens(tmp_path / "a", **old))
    assert (sae.kind, sae.k, sae.layer) == ("topk", K, 3)
    named = {"metadata": None, "hook_point": "blocks.0.hook_resid_post", "hook_point_layer": 0}
    assert load_sae(lens(tmp_path / "b", **named), layer=1).layer == 1
    half = lens(tmp_path / "c", weights=arrays(False, np.float16))
    assert load_sae(half).w_enc.dtype == np.float32
    silent = lens(tmp_path / "d", metadata=None)
    assert load_sae(silent, layer=0).layer == 0
    with pytest.raises(UserError, match=r"layer: .* does not say it"):
        load_sae(silent)


@pytest.mark.parametrize(
    ("kind", "k", "layer"), [("jumprelu", 0, 0), ("relu", 0, 4), ("topk", 3, 1)]
)
def test_round_trip(tmp_path, kind, k, layer):
    """Bit by bit, with what was noted; the files are as SAELens reads them."""
    held = arrays(kind == "jumprelu")
    own = [held[name] for name in ("W_enc", "b_enc", "W_dec", "b_dec")]
    threshold = held.get("threshold", np.zeros(COUNT, np.float32))
    sae = SAE(*own, threshold, kind, k, layer, scale=0.25)
    folder = save_sae(tmp_path / "new" / "one", sae, {"data": "stories", "explained": 0.8})
    back = load_sae(folder)
    assert jax.tree.structure(back) == jax.tree.structure(sae)
    jax.tree.map(np.testing.assert_array_equal, back, sae)
    assert sae_notes(folder) == {"data": "stories", "explained": 0.8}
    told = json.loads((folder / "cfg.json").read_text())
    stored = load_file(folder / "sae_weights.safetensors")
    assert set(stored) == set(held)
    name = {"jumprelu": "jumprelu", "relu": "standard", "topk": "topk"}[kind]
    assert (told["architecture"], told["d_in"], told["d_sae"]) == (name, WIDTH, COUNT)
    site = f"blocks.{layer - 1}.hook_resid_post" if layer else "blocks.0.hook_resid_pre"
    assert told["metadata"]["hook_name"] == site
    assert (told["apply_b_dec_to_input"], told["normalize_activations"]) == (False, "none")
    save_sae(folder, sae)
    assert sae_notes(folder) == {} and len(list(folder.iterdir())) == 2


def test_refused_npz(tmp_path):
    file = scope(tmp_path / "layer_1")
    whole = file.read_bytes()
    for changed, told in (
        ({"W_enc": arrays()["W_enc"].T}, r"b_enc has shape \(10,\), \(6,\) needed"),
        ({"threshold": np.zeros(3, np.float32)}, r"threshold has shape \(3,\), \(10,\) needed"),
        ({"b_dec": np.full(WIDTH, np.inf)}, "b_dec holds numbers that are not finite"),
        ({"b_enc": np.zeros(COUNT, int)}, "b_enc holds no floating numbers"),
        ({"W_dec": np.array([{}] * 3, object)}, "damaged or no file of arrays"),
    ):
        with pytest.raises(UserError, match=told):
            load_sae(scope(tmp_path / "layer_1", **changed))
    few = {name: array for name, array in arrays().items() if name != "threshold"}
    np.savez(file, **few)
    with pytest.raises(UserError, match="holds no threshold; needed are W_enc, b_enc"):
        load_sae(file)
    for part in (whole[:-40], whole[:300], b"", b"\x80\x04N."):
        file.write_bytes(part)
        with pytest.raises(UserError, match="damaged or no file of arrays"):
            load_sae(file)
    with pytest.raises(UserError, match="scale: not needed"):
        load_sae(scope(tmp_path / "layer_1"), scale=2.0)
    for path in (tmp_path / "none.npz", tmp_path / "none"):
        with pytest.raises(UserError, match=r"no file at|no params.npz and no folder"):
            load_sae(path, 1)


def test_refused_folder(tmp_path):
    for n, (config, told) in enumerate((
        ({"architecture": "gated"}, "'gated' is not read; read are standard, jumprelu, topk"),
        ({"activation_fn": "tanh-relu"}, "'standard' with 'tanh-relu' is not read"),
        ({"architecture": "topk"}, "k in .*cfg.json: None given"),
        ({"architecture": "topk", "k": COUNT + 1}, "k: 11 given"),
        ({"d_in": 7}, "says d_in 7, the arrays have 6"),
        ({"d_sae": 7}, "says d_sae 7, the arrays have 10"),
        ({"normalize_activations": "layer_norm"}, "'layer_norm' cannot be folded in"),
        ({"finetuning_scaling_factor": True}, "finetuning_scaling_factor is not read"),
        ({"metadata": {"hook_name": "blocks.3.hook_mlp_out"}}, "mlp_out'; only residuals"),
        ({"without": ["b_dec"]}, "holds no b_dec; needed are"),
        ({"architecture": "jumprelu", "without": ["threshold"]}, "holds no threshold"),
    )):  # fmt: skip
        with pytest.raises(UserError, match=told):
            load_sae(lens(tmp_path / str(n), **config))
    folder = lens(tmp_path / "whole")
    with pytest.raises(UserError, match=r"layer: 15 given, .* is of layer 16"):
        load_sae(folder, layer=15)
    with pytest.raises(UserError, match="scale: not needed"):
        load_sae(folder, scale=2.0)
    weights = folder / "sae_weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-40])
    with pytest.raises(UserError, match="damaged or no safetensors file"):
        load_sae(folder)
    for text in ('{"a": ', "[1]", "\udcff"):
        (folder / "cfg.json").write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(UserError, match=r"cfg.json is (damaged or no JSON|no JSON object)"):
            load_sae(folder)
    (folder / "cfg.json").unlink()
    with pytest.raises(UserError, match=r"no params.npz and no cfg.json in"):
        load_sae(folder)


def test_refused_on_writing(tmp_path):
    """Nothing is written of what cannot be."""
    sae = load_sae(lens(tmp_path / "a"))
    for notes in ({"a": np.nan}, {"a": object()}):
        with pytest.raises(UserError, match=r"notes: .*strict JSON needed"):
            save_sae(tmp_path / "b", sae, notes)
    assert not (tmp_path / "b").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        save_sae(tmp_path / "file" / "b", sae)
