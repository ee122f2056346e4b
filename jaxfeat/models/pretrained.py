"""How does a pretrained model come from a folder, a GGUF, a package or the hub into memory?"""

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from jaxfeat.io.gguf import open_gguf
from jaxfeat.io.gguf_tokenizer import gguf_tokenizer
from jaxfeat.io.safetensors import open_tensors, save_shards, tensor_files
from jaxfeat.io.tensors import numpy_type
from jaxfeat.io.tokenizer import Encoded, read_tokenizer, save_tokenizer
from jaxfeat.io.tokenizer import encode_text as encode_plain
from jaxfeat.models.assemble import with_tokens
from jaxfeat.models.families import Family, family_of
from jaxfeat.models.from_gguf import from_gguf
from jaxfeat.models.hub import NAME, from_hub
from jaxfeat.models.packaged import PACKAGES, check_packaged, digest_of, join_files, packaged_files
from jaxfeat.models.weight_cache import cache_folder, cached
from jaxfeat.nn.decoder import Decoder, check_params
from jaxfeat.types import Tree, UserError, check_tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Pretrained(NamedTuple):
    """A model in memory, and where it came from. Its sizes are in `config`.

    `bos` is the id of the token that begins a text, None without one; `needs_bos` tells whether
    the model was only ever trained on texts behind it (Gemma). `digest` is the SHA-256 of what was
    read, `revision` the hub's commit.
    """

    decoder: Decoder
    params: Tree
    tokenizer: "Tokenizer | None"
    family: str
    config: Any
    dtype: str
    name: str
    source: str
    digest: str
    revision: str | None = None
    bos: int | None = None
    needs_bos: bool = False


def load(
    name: str | os.PathLike,
    dtype: str = "float32",
    *,
    revision: str | None = None,
    cache: str | os.PathLike | None = None,
) -> Pretrained:
    """A pretrained model by its place or name.

    Args:
        name: a folder with `config.json` and safetensors; a `.gguf` file; a model that comes as a
            package, `gemma3-270m` or `smollm2-135m`; or a name of the hub, `owner/model`. What
            lies here goes before what has the same name elsewhere.
        dtype: of the parameters: float32, float64 (under `jax.enable_x64`), bfloat16, float16.
        revision: of the hub: a branch, tag or commit.
        cache: where the weights of a GGUF are kept once they are dequantised (float32, 4 bytes a
            weight); by default the folder that JAXFEAT_CACHE names, else `~/.cache/jaxfeat`.

    Raises:
        UserError: nothing of that name, a family that is not known, files that are missing,
            damaged or of another family than the config says, no network, a gated model.
    """
    numpy_type(dtype)
    if dtype == "float64" and not jax.config.jax_enable_x64:  # pyright: ignore
        raise UserError("dtype: float64 needs JAX in 64 bits: `with jax.enable_x64(True):`")
    given, path = str(name), Path(name).expanduser()
    cache = cache_folder(cache)
    if revision is not None and (path.exists() or given in PACKAGES):
        raise UserError(f"revision: {revision!r} given, but {given} is not from the hub")
    if path.is_file() and path.suffix == ".gguf":
        return _from_gguf([path], digest_of([path]), dtype, cache)._replace(
            name=path.stem, source=str(path.resolve())
        )
    if path.exists():
        return _from_folder(path, dtype)
    if given in PACKAGES:
        files = packaged_files(given)
        model = _from_gguf(files, check_packaged(given, files), dtype, cache)
        return model._replace(name=given, source=f"package {PACKAGES[given].parts[0][0]}")
    if NAME.fullmatch(given) and path.suffix not in (".gguf", ".safetensors", ".json"):
        folder, commit = from_hub(given, revision)
        model = _from_folder(folder, dtype)
        return model._replace(name=given, source=f"https://hf.co/{given}", revision=commit)
    raise UserError(
        f"no model at {given}: give a folder, a .gguf file, one of {', '.join(PACKAGES)}, "
        f"or owner/name of the hub{_level_off(path)}"
    )


def encode_text(model: Pretrained, text: str, *, bos: bool | None = None) -> Encoded:
    """The ids of a text and where they are special; arguments as `jaxfeat.io.tokenizer`'s.

    Args:
        bos: None: as the model was trained; true: the BOS once in front; false: not, which a
            Gemma refuses.

    Raises:
        UserError: the model has no tokenizer, no BOS, or needs one; or its vocabulary has fewer
            rows than the tokenizer gives.
    """
    if model.tokenizer is None:
        raise UserError(f"{model.name} has no tokenizer.json: give ids instead of text")
    found = encode_plain(
        model.tokenizer, text, bos=bos, bos_id=model.bos, needs_bos=model.needs_bos
    )
    if found.ids.size:
        check_tokens(found.ids, model.decoder.vocab, "text")
    return found


def check_bos(model: Pretrained, tokens: Any, mask: Any = None) -> None:
    """Refuse sequences of ids that a model was not trained to read: Gemma's begin with BOS, once.

    Args:
        tokens: `[B, T]` ids. mask: `[B, T]`, true where they are real; by default everywhere.

    Raises:
        UserError: a row that does not begin with the BOS, or begins with two, of a model that
            needs it.
    """
    if not model.needs_bos:
        return
    ids = np.asarray(tokens)
    real = np.ones(ids.shape, bool) if mask is None else np.asarray(mask, bool)
    for row, (one, kept) in enumerate(zip(ids, real, strict=True)):
        text = one[kept]
        if text.size and text[0] != model.bos:
            raise UserError(f"tokens: row {row} does not begin with the BOS, id {model.bos}")
        if text.size > 1 and text[1] == model.bos:
            raise UserError(f"tokens: row {row} begins with two BOS, id {model.bos}")


def _from_gguf(files: list[Path], digest: str, dtype: str, cache: Path) -> Pretrained:
    """A model out of the parts of a GGUF, by way of the cache."""

    def write(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder.parent) as part:
            whole = files[0]
            if len(files) > 1:
                whole = Path(part) / "whole.gguf"
                join_files(files, whole)
            metadata, tensors = open_gguf(whole)
            raw, tensors = from_gguf(metadata, tensors)
            family_of(raw)  # what cannot be computed is not kept either
            save_tokenizer(folder / "tokenizer.json", gguf_tokenizer(metadata))
            del metadata
            save_shards(folder, tensors)
        (folder / "config.json").write_text(json.dumps(raw, indent=1), encoding="utf-8")

    return _from_folder(cached(digest, cache, write), dtype, digest)


def _from_folder(folder: Path, dtype: str, digest: str | None = None) -> Pretrained:
    """A model out of `config.json`, safetensors and, where there is one, `tokenizer.json`."""
    file = folder / "config.json"
    if not file.is_file():
        raise UserError(f"{folder} is no folder with a config.json{_level_off(folder)}")
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raw = None
    if not isinstance(raw, dict):
        raise UserError(f"{file} is damaged: no JSON object")
    family = family_of(raw)
    # before the weights: reading a large vocabulary takes a gigabyte for a moment
    tokenizer = None
    if (folder / "tokenizer.json").is_file() or (folder / "merges.txt").is_file():
        tokenizer = read_tokenizer(folder)
    tensors = open_tensors(folder, dtype)
    _check_depth(raw, len(tensors), file)
    try:
        config = _config(family, raw, dtype, file)
        decoder = family.make(config)
        params = _on_device(family.read_params(config, tensors))
        check_params(decoder, params, None)
    except UserError as error:
        raise UserError(f"{folder}: {error}") from None
    if tokenizer is not None:  # rows of the table beyond the last id are padding, no tokens
        decoder = with_tokens(decoder, min(tokenizer.get_vocab_size(), decoder.vocab))
    if digest is None:
        digest = digest_of([file, *dict.fromkeys(tensor_files(folder).values())])
    where = folder.resolve()
    return Pretrained(
        decoder, params, tokenizer, family.name, config, dtype, where.name, str(where), digest,
        bos=_bos(raw, tokenizer), needs_bos=family.name.startswith("gemma"),
    )  # fmt: skip


def _check_depth(raw: dict[str, Any], tensors: int, file: Path) -> None:
    """Refuse a number of blocks that the checkpoint cannot hold, before anything is built."""
    text = raw.get("text_config")
    for name in ("num_hidden_layers", "n_layer"):
        found = (text if isinstance(text, dict) else raw).get(name)
        if isinstance(found, int) and not 1 <= found <= tensors:
            raise UserError(f"{file}: {name} {found} given, 1..{tensors} (its tensors) needed")


def _config(family: Family, raw: dict[str, Any], dtype: str, file: Path) -> Any:
    """The family's config; values that are no sizes at all are told."""
    try:
        return family.read_config(raw, dtype)
    except (TypeError, ZeroDivisionError, OverflowError) as error:
        raise UserError(f"{file.name}: a value is no size of a model ({error})") from None


def _on_device(params: Tree) -> Tree:
    """Arrays handed to JAX one by one, each host copy let go at once."""
    leaves, tree = jax.tree.flatten(params)
    del params
    for i, leaf in enumerate(leaves):
        leaves[i] = jax.device_put(leaf).block_until_ready()  # `asarray` would copy twice
        del leaf
    return jax.tree.unflatten(tree, leaves)


def _bos(raw: dict[str, Any], tokenizer: "Tokenizer | None") -> int | None:
    """The id that the config names, else what the tokenizer itself puts in front of nothing."""
    found = raw.get("bos_token_id")
    if isinstance(found, int) and not isinstance(found, bool):
        return found
    alone = tokenizer.encode("").ids if tokenizer else []
    return alone[0] if len(alone) == 1 else None


def _level_off(path: Path) -> str:
    """A hint where the model lies one level above or below the path."""
    beside = [path.parent, path.parent.parent] if path.name else []
    for place in beside:
        if (place / "config.json").is_file():
            return f"; {place} is one: give that"
    if path.is_dir():
        below = sorted(p.parent for p in path.glob("*/config.json"))
        if below:
            return f"; {below[0]} is one: give that"
        if files := sorted(path.glob("*.gguf")):
            return f"; {files[0]} is a model: give that"
    return ""
