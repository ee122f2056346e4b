"""How does a sparse autoencoder come from a file of Gemma Scope or SAELens, and go into one?

Gemma Scope (arXiv 2408.05147): `params.npz`, JumpReLU, no normalisation. SAELens: a folder with
`cfg.json` and `sae_weights.safetensors`. What the config says of inputs (`apply_b_dec_to_input`,
`normalize_activations`) and norms (`rescale_acts_by_decoder_norm`) is folded into the arrays, so
that every SAE here reads the model's own residuals. Ours are folders of SAELens' kind.

Both number blocks from 0 and mean the residual after a block: their layer 15 is our layer 16.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxfeat.features.sae import SAE, check_arrays, fold_centre, fold_norms, fold_scale
from jaxfeat.io.arrays import load_arrays
from jaxfeat.io.atomic import replacing
from jaxfeat.io.safetensors import open_tensors, save_tensors
from jaxfeat.types import UserError, check_whole

SCOPE, CONFIG, WEIGHTS = "params.npz", "cfg.json", "sae_weights.safetensors"
NAMES = {"W_enc": "w_enc", "b_enc": "b_enc", "W_dec": "w_dec", "b_dec": "b_dec"}
KIND_OF = {"standard": "relu", "jumprelu": "jumprelu", "topk": "topk"}
SITE = re.compile(r"blocks\.(\d+)\.hook_resid_(pre|post)")


def load_sae(path: str | os.PathLike, layer: int | None = None, scale: float | None = None) -> SAE:
    """Read an SAE of a residual stream, in float32 and in the units of the model.

    Args:
        path: a `params.npz` or a folder that holds one (Gemma Scope), or a folder of SAELens' kind.
        layer: public, the residual after block `layer`; by default what the config says, or for
            Gemma Scope the folder's name (`layer_15` is 16). Needed where neither says it.
        scale: what inputs were multiplied by, for `normalize_activations:
            expected_average_only_in`, where files of SAELens do not hold it.

    Raises:
        UserError: no such files, damaged or pickled ones, arrays that are missing or do not fit
            together, an architecture, a site or a normalisation that cannot be read, another layer
            than the file's, a scale that is missing or not needed.
    """
    path = Path(path).expanduser()
    file = path / SCOPE if (path / SCOPE).is_file() else path
    if file.suffix == ".npz":
        if scale is not None:
            raise UserError(f"scale: not needed, {file.name} of Gemma Scope is not normalised")
        return _scope(file, layer)
    if not path.is_dir():
        beside = [x for x in (path.parent, path / "sae") if (x / CONFIG).is_file()]
        hint = f"; {beside[0]} is one: give that" if beside else ""
        raise UserError(f"no {SCOPE} and no folder with {CONFIG} and {WEIGHTS} at {path}{hint}")
    if (path / "sae" / CONFIG).is_file() and not (path / CONFIG).is_file():
        raise UserError(f"no {CONFIG} in {path}; {path / 'sae'} is an SAE: give that")
    try:
        return _lens(path, layer, scale)
    except UserError:
        raise
    except (TypeError, ValueError):
        raise UserError(f"{path / CONFIG}: a value of another kind than SAELens'") from None


def sae_notes(path: str | os.PathLike) -> dict[str, Any]:
    """What `save_sae` was told to note in a folder.

    Raises:
        UserError: no config there, or a damaged one.
    """
    return dict(_ours(_config(Path(path).expanduser())).get("notes") or {})


def save_sae(path: str | os.PathLike, sae: SAE, notes: Mapping[str, Any] | None = None) -> Path:
    """Write a folder of SAELens' kind, which it reads too; each file whole, after reading it back.

    Args:
        notes: what else is to be known (data, config, facts), as strict JSON holds it.

    Raises:
        UserError: arrays that do not fit together, notes that are no JSON, a folder that cannot be
            written.
    """
    path = Path(path).expanduser()
    check_arrays(sae)
    architecture = {kind: name for name, kind in KIND_OF.items()}[sae.kind]
    site = f"blocks.{sae.layer - 1}.hook_resid_post" if sae.layer else "blocks.0.hook_resid_pre"
    ours = {"layer": sae.layer, "scale": float(sae.scale), "notes": dict(notes or {})}
    told = {
        "architecture": architecture, "d_in": sae.w_enc.shape[0], "d_sae": sae.w_enc.shape[1],
        "dtype": "float32", "device": "cpu", "apply_b_dec_to_input": False,
        "normalize_activations": "none", "reshape_activations": "none",
        "metadata": {"hook_name": site, "jaxfeat": ours},
    }  # fmt: skip
    if sae.kind == "topk":
        told |= {"k": sae.k, "rescale_acts_by_decoder_norm": False}
    try:
        text = json.dumps(told, indent=1, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UserError(f"notes: {error}; strict JSON needed") from None
    arrays = {name: np.asarray(getattr(sae, own), np.float32) for name, own in NAMES.items()}
    if sae.kind == "jumprelu":
        arrays["threshold"] = np.asarray(sae.threshold, np.float32)
    try:
        (path / CONFIG).unlink(missing_ok=True)  # so that new weights never stand by an old config
        save_tensors(path / WEIGHTS, arrays)
        with replacing(path / CONFIG) as temporary:
            temporary.write_text(text, encoding="utf-8")
            if json.loads(temporary.read_text(encoding="utf-8")) != json.loads(text):
                raise OSError(f"{CONFIG} was read back changed")
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from None
    return path


def _scope(file: Path, layer: int | None) -> SAE:
    """Gemma Scope's file: `f = pre 1(pre > threshold)`, nothing taken from the input."""
    arrays = load_arrays(file)
    numbers = re.findall(r"layer_(\d+)", str(file.parent.absolute()))
    named = int(numbers[-1]) + 1 if numbers else None
    if named is None and layer is None:
        raise UserError(f"layer: {file} does not say it, give it (16 for their layer 15)")
    return _made(arrays, file, "jumprelu", 0, _agreed(layer, named, file))


def _lens(folder: Path, layer: int | None, scale: float | None) -> SAE:
    """SAELens' folder, everything that its config says of inputs folded in."""
    told = _config(folder)
    held = open_tensors(folder / WEIGHTS)
    arrays = {name: held[name] for name in held}
    kind, k = _kind(told, folder)
    sae = _made(arrays, folder / WEIGHTS, kind, k, _agreed(layer, _site(told, folder), folder))
    for name, size in (("d_in", sae.w_enc.shape[0]), ("d_sae", sae.w_enc.shape[1])):
        if told.get(name, size) != size:
            raise UserError(f"{folder / CONFIG} says {name} {told[name]}, the arrays have {size}")
    if told.get("finetuning_scaling_factor"):
        raise UserError(f"{folder}: a finetuning_scaling_factor is not read")
    if told.get("apply_b_dec_to_input", True):
        sae = fold_centre(sae, sae.b_dec)
    if told.get("rescale_acts_by_decoder_norm", False):
        sae = fold_norms(sae)
    how = told.get("normalize_activations", "none") or "none"
    if how == "expected_average_only_in":
        if scale is None or not (np.isfinite(scale) and scale > 0):
            raise UserError(
                f"scale: {folder} is of {how} inputs: give what they were multiplied by, a number "
                "above 0 (sqrt(D) / mean norm)"
            )
        return check_arrays(fold_scale(sae, scale))
    if how != "none":
        raise UserError(
            f"{folder}: normalize_activations {how!r} cannot be folded in; read are none and "
            "expected_average_only_in"
        )
    if scale is not None:
        raise UserError(f"scale: not needed, the inputs of {folder} are not normalised")
    folded = float(_ours(told).get("scale", 1.0))
    return check_arrays(SAE(**{**vars(sae), "scale": folded}))


def _made(arrays: Mapping[str, Any], file: Path, kind: str, k: int, layer: int) -> SAE:
    """The SAE of arrays by SAELens' names; a threshold of its own only where one belongs."""
    wanted = [*NAMES, *(["threshold"] if kind == "jumprelu" else [])]
    if lost := [name for name in wanted if name not in arrays]:
        raise UserError(f"{file} holds no {lost[0]}; needed are {', '.join(wanted)}")
    odd = [name for name in wanted if np.asarray(arrays[name]).dtype.kind not in "fV"]
    if odd:
        raise UserError(f"{file}: {odd[0]} holds no floating numbers")
    own = {ours: jnp.asarray(arrays[name], jnp.float32) for name, ours in NAMES.items()}
    threshold = jnp.zeros_like(own["b_enc"])
    if kind == "jumprelu":
        threshold = jnp.asarray(arrays["threshold"], jnp.float32)
    try:
        return check_arrays(SAE(**own, threshold=threshold, kind=kind, k=k, layer=layer))
    except UserError as error:
        raise UserError(f"{file}: {error}") from None


def _config(folder: Path) -> dict[str, Any]:
    """The config; what newer versions nest under `metadata` stays there."""
    file = folder / CONFIG
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"no {SCOPE} and no {CONFIG} in {folder}") from None
    except (ValueError, OSError):
        raise UserError(f"{file} is damaged or no JSON") from None
    if not isinstance(told, dict):
        raise UserError(f"{file} is no JSON object")
    return told


def _metadata(told: Mapping[str, Any]) -> dict[str, Any]:
    """What newer versions of SAELens nest."""
    found = told.get("metadata")
    return found if isinstance(found, dict) else {}


def _ours(told: Mapping[str, Any]) -> dict[str, Any]:
    """What `save_sae` adds."""
    found = _metadata(told).get("jaxfeat")
    return found if isinstance(found, dict) else {}


def _kind(told: Mapping[str, Any], folder: Path) -> tuple[str, int]:
    """Kind and k; older configs of a topk SAE say `standard` and name the function."""
    name = told.get("architecture", "standard")
    function = told.get("activation_fn_str") or told.get("activation_fn") or "relu"
    options = told.get("activation_fn_kwargs")
    if name == "standard" and function == "topk":
        name = "topk"
    if name not in KIND_OF or (name == "standard" and function != "relu"):
        what = f"architecture {name!r}" + ("" if function == "relu" else f" with {function!r}")
        raise UserError(f"{folder}: {what} is not read; read are {', '.join(KIND_OF)}")
    if name != "topk":
        return KIND_OF[name], 0
    k = told.get("k", options.get("k") if isinstance(options, dict) else None)
    return "topk", check_whole(f"k in {folder / CONFIG}", k, 1)


def _site(told: Mapping[str, Any], folder: Path) -> int | None:
    """The public layer that the config names, None where it names no site."""
    places = (_metadata(told).get("hook_name"), told.get("hook_name"), told.get("hook_point"))
    name = next((place for place in places if place), None)
    if name is None:
        return None
    found = SITE.fullmatch(str(name))
    if found is None:
        raise UserError(
            f"{folder}: of {name!r}; only residuals (blocks.B.hook_resid_post) are read"
        )
    return int(found[1]) + (found[2] == "post")


def _agreed(layer: int | None, named: int | None, file: Path) -> int:
    """The layer that was asked for and that the file names, if they do not contradict."""
    if layer is None and named is None:
        raise UserError(f"layer: {file} does not say it, give it (k is the residual after block k)")
    if None not in (layer, named) and layer != named:
        raise UserError(f"layer: {layer} given, {file} is of layer {named} (after block {named})")
    return check_whole("layer", named if layer is None else layer, 0)
