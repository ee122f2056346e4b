"""Does a pretrained model read and write sense here, and does it give its reference's numbers?

`python -m jaxfeat.run.verify MODEL [--dtype TYPE] [--reference FILE.npz]` prints what the model is,
the nats per token of an English paragraph and of its tokens in another order, what it writes after
a prompt, and, where stored outputs lie beside the model (`expected_strict.npz`, `expected.npz`),
the largest difference from them.

Exit codes: 0 done, 1 the outputs differ from the reference's, 2 an input that the user can mend.
"""

import argparse
import contextlib
import sys
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.io.arrays import load_arrays
from jaxfeat.io.tensors import FLOATS
from jaxfeat.models.packaged import PACKAGES
from jaxfeat.models.pretrained import Pretrained, encode_text, load
from jaxfeat.nn.blocks import forward, residuals
from jaxfeat.nn.generate import generate
from jaxfeat.nn.loss import token_losses
from jaxfeat.run.cli import near
from jaxfeat.types import Array, Batch, Tree, UserError, make_batch, whole_batch

PARAGRAPH = (
    "Rain begins its journey in the sea. The sun warms the surface of the water, and some of it "
    "rises into the air as vapour. As the vapour climbs, it cools, and tiny drops form around "
    "specks of dust. Together they make a cloud. The wind carries the cloud over the land, and "
    "when it meets the mountains it is pushed higher, where the air is colder still. The drops "
    "grow until they are too heavy to stay up, and they fall as rain or snow. Part of the water "
    "sinks into the ground and feeds the roots of the trees. The rest runs down into streams, "
    "the streams join to form rivers, and the rivers carry it back to the sea, where the journey "
    "begins again."
)
PROMPT = "Once upon a time, in a small village by the sea,"
OPTIONS = ("--dtype", "--reference", "--revision", "--cache", "--help")
REFERENCES = ("expected_strict.npz", "expected.npz")
ALLOWED = {"float64": 1e-10, "float32": 1e-4}  # of the largest value of an array


class Nll(NamedTuple):
    """Mean nats per token of a text and of its tokens in another order, and their number."""

    text: float
    shuffled: float
    tokens: int


def paragraph_nll(model: Pretrained, text: str = PARAGRAPH) -> Nll:
    """How well the model predicts a text, and the same tokens shuffled (the BOS stays in front).

    The first token counts only where a BOS stands before it.

    Raises:
        UserError: a model that does not predict next tokens, or has no tokenizer.
    """
    if not model.decoder.causal:
        raise UserError(f"{model.name} fills in masked tokens: it has no loss of a next token")
    ids, special = encode_text(model, text)
    first = int(special[0])
    order = np.r_[:first, first + np.random.default_rng(0).permutation(len(ids) - first)]
    batch = make_batch(jnp.asarray(np.stack([ids, ids[order]])))
    batch = batch._replace(weight=batch.weight & ~np.stack([special, special[order]])[:, 1:])

    @jax.jit
    def losses(params: Tree, batch: Batch) -> Array:
        top = residuals(model.decoder, params, batch)[0][:, -1]
        return token_losses(model.decoder, params["outer"], top, batch)

    total = np.asarray(losses(model.params, batch), np.float64).sum(axis=1)
    counts = np.asarray(batch.weight).sum(axis=1)
    mean, shuffled = total / counts
    return Nll(float(mean), float(shuffled), int(counts[0]))


def continuation(model: Pretrained, prompt: str = PROMPT, count: int = 24) -> str:
    """What the model writes after a prompt, the most likely token each time."""
    ids, _ = encode_text(model, prompt)
    out = generate(
        model.decoder, model.params, jax.random.key(0), jnp.asarray(ids)[None], count,
        temperature=0,
    )  # fmt: skip
    assert model.tokenizer is not None  # `encode_text` refuses a model without one
    written = np.asarray(out)[0, len(ids) :].tolist()
    return model.tokenizer.decode(written, skip_special_tokens=False)


def reference_differences(model: Pretrained, file: Path) -> dict[str, tuple[float, float]]:
    """Array name -> (largest difference, largest value), at real positions.

    Args:
        file: `.npz` with any of `embed_out` `[B, T, D]`, `resid_post` `[N, B, T, D]` (0-based block
            b: our layer b + 1), `logits` `[B, T, V]`; and `input_ids`, `attention_mask` `[B, T]`,
            else those of `expected.npz` beside it.

    Raises:
        UserError: a file without them, or with arrays of another model.
    """
    stored = load_arrays(file)
    inputs = stored if "input_ids" in stored else load_arrays(file.with_name(REFERENCES[1]))
    if not {"input_ids", "attention_mask"} <= inputs.keys():
        raise UserError(f"{file}: no input_ids and attention_mask in it or in {REFERENCES[1]}")
    ids, mask = inputs["input_ids"].astype(np.int32), inputs["attention_mask"].astype(bool)
    batch = whole_batch(jnp.asarray(ids), jnp.asarray(mask))
    out = jax.jit(lambda params, batch: forward(model.decoder, params, batch))(model.params, batch)
    resid = np.asarray(out.resid, np.float64)
    ours = {
        "embed_out": resid[:, 0],
        "resid_post": np.moveaxis(resid[:, 1:], 1, 0),
        "logits": np.asarray(out.logits, np.float64),
    }
    renamed = {"logits": ("logits", "logits_f64")}
    found = {}
    for name, mine in ours.items():
        key = next((k for k in renamed.get(name, (name,)) if k in stored), None)
        if key is None:
            continue
        theirs = stored[key]
        if theirs.shape != mine.shape:
            raise UserError(f"{file}: {key} has shape {theirs.shape}, the model gives {mine.shape}")
        mine, theirs = mine[..., mask, :], theirs[..., mask, :]
        found[name] = float(np.abs(mine - theirs).max()), float(np.abs(theirs).max())
    if not found:
        raise UserError(f"{file}: none of {', '.join(ours)} in it")
    return found


def main(argv: list[str] | None = None) -> None:
    """Load, print, compare; exit codes as the head of this file says."""
    try:
        options = _parse(sys.argv[1:] if argv is None else argv)
        wide = options.dtype == "float64"
        exact = jax.default_matmul_precision("highest")
        with jax.enable_x64(True) if wide else contextlib.nullcontext(), exact:
            agrees = _report(options)
    except UserError as error:
        print("error: " + " ".join(str(error).split("\n")), file=sys.stderr)
        raise SystemExit(2) from None
    if not agrees:
        raise SystemExit(1)


def _report(options: argparse.Namespace) -> bool:
    """Print what the model is and does; tells whether it agrees with its reference."""
    file = _reference(options)
    model = load(options.model, options.dtype, revision=options.revision, cache=options.cache)
    count = sum(x.size for x in jax.tree.leaves(model.params))
    size = sum(x.nbytes for x in jax.tree.leaves(model.params))
    print(f"{model.name}: {model.family}, {count:,} parameters, {model.dtype}, {size / 1e9:.2f} GB")
    print(f"  from {model.source}" + (f" at {model.revision}" if model.revision else ""))
    print(f"  SHA-256 {model.digest}")
    for name, value in _sizes(model.config):
        print(f"  {name} = {value}")
    if model.tokenizer is None:
        print("  no tokenizer beside it: no text is read or written")
    else:
        needed = ", needed before text" if model.needs_bos else ""
        bos = "no BOS" if model.bos is None else f"BOS {model.bos}{needed}"
        print(f"  tokenizer: {model.tokenizer.get_vocab_size():,} ids, {bos}", flush=True)
        if model.decoder.causal:
            nll = paragraph_nll(model)
            print(f"paragraph: {nll.text:.3f} nats per token over {nll.tokens} tokens")
            print(f"its tokens shuffled: {nll.shuffled:.3f} nats per token", flush=True)
            print(f"continuation: {PROMPT}{continuation(model)}")
            if not np.isfinite(nll.text):
                print("  DIFFERS: a model that reads sense has a finite loss")
                return False
    if file is None:
        return True
    agrees, allowed = True, ALLOWED.get(model.dtype)
    print(f"reference: {file}")
    for name, (worst, largest) in reference_differences(model, file).items():
        agrees &= allowed is None or worst <= allowed * largest
        print(f"  {name}: largest difference {worst:.2e} of values up to {largest:.3g}")
    if allowed is not None:
        verdict = "agrees" if agrees else "DIFFERS"
        print(f"  {verdict}: {allowed:g} of the largest value is allowed in {model.dtype}")
    return agrees


def _sizes(config: Any) -> list[tuple[str, Any]]:
    """What a config names; which blocks slide (S) and which see all (F) as one word."""
    items = vars(config).items()
    kinds = lambda v: isinstance(v, tuple) and all(isinstance(x, bool) for x in v)
    show = lambda v: "".join("S" if x else "F" for x in v) if kinds(v) else v
    return [(name, show(value)) for name, value in items if name != "dtype"]


def _reference(options: argparse.Namespace) -> Path | None:
    """The file of stored outputs: the one that is named, else the one beside the model."""
    if options.reference is not None:
        file = Path(options.reference).expanduser()
        if not file.is_file():
            raise UserError(f"--reference: no file at {file}")
        return file
    folder = Path(options.model).expanduser()
    found = (folder / name for name in REFERENCES if (folder / name).is_file())
    return next(found, None) if folder.is_dir() else None


class _Parser(argparse.ArgumentParser):
    """argparse whose errors are a `UserError`."""

    def error(self, message: str) -> NoReturn:
        raise UserError(message)


def _parse(argv: list[str]) -> argparse.Namespace:
    """The options, or a `UserError` with the nearest known one."""
    packages = "; ".join(f"{name}: {package.about}" for name, package in PACKAGES.items())
    parser = _Parser(
        prog="python -m jaxfeat.run.verify", description=(__doc__ or "").strip(),
        epilog=f"models that come as packages: {packages}", allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("model", metavar="MODEL", help="a folder, a .gguf file, a package's name, or owner/name")
    add("--dtype", choices=FLOATS, default="float32", help="of the parameters (default float32)")
    add("--reference", metavar="FILE.npz", help="stored outputs; by default those beside the model")
    add("--revision", metavar="NAME", help="of the hub: a branch, tag or commit")
    add("--cache", metavar="FOLDER", help="where dequantised weights are kept")
    for word in argv:
        option = word.split("=")[0]
        if option.startswith("--") and option not in OPTIONS:
            told = ", ".join(OPTIONS)
            raise UserError(f"unknown option {option}{near(option, OPTIONS)}; options are {told}")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
