"""Do README's programs run as they stand?"""

import json
import re
import runpy
from pathlib import Path

import jax
import numpy as np
import pytest

from experiments.precaching_model import random_gemma
from jaxfeat.data.domains import read_domains
from jaxfeat.features.sae import SAE
from jaxfeat.features.sae_files import save_sae
from jaxfeat.grads.split import split_by_definition, split_gradient
from jaxfeat.grads.verify import verify_routes
from jaxfeat.models import pretrained
from jaxfeat.nn.route import myopic
from jaxfeat.types import make_batch

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
OWN, FEATURES = "# a model of your own", "# features of your own"
PRETRAINED = "# features of a pretrained model"
ASSOCIATION = "# first weights from a text"
NOTEBOOK = README.parent / "docs" / "bring_your_own.ipynb"


def block(start):
    """The block that begins with a line."""
    (code,) = (b for b in BLOCKS if b.startswith(start))
    return code


def run(code, folder):
    path = folder / "example.py"
    path.write_text(code, encoding="utf-8")
    return runpy.run_path(str(path))


def test_split_and_ledger(tmp_path, capsys):
    """The two library examples, one after the other: parts and remainder add up to the fall."""
    mine = [b for b in BLOCKS if not b.startswith((OWN, FEATURES, PRETRAINED, ASSOCIATION))]
    told = run("\n".join(mine), tmp_path)["told"]
    total = told.direct + told.precached + told.shared + told.remainder
    np.testing.assert_allclose(total, told.risk_start - told.risk_stop, rtol=1e-9)
    assert capsys.readouterr().out


def test_own_model(tmp_path):
    """The wrapped model: about forty lines; the fast split is the definition; its routes hold."""
    code = block(OWN)
    lines = [x for x in code.splitlines() if x.strip() and not x.startswith("#")]
    assert len(lines) <= 42
    decoder = run(code, tmp_path)["decoder"]
    params = decoder.init(jax.random.key(0))
    batch = make_batch(jax.random.randint(jax.random.key(1), (3, 7), 0, decoder.vocab))
    nodes = [(1, 2), (2, 4)]
    fast = jax.jit(lambda p: split_gradient(decoder, p, batch, nodes))(params)
    slow = jax.jit(lambda p: split_by_definition(decoder, p, batch, nodes))(params)
    for a, b in zip(jax.tree.leaves(fast), jax.tree.leaves(slow), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 * float(np.abs(b).max()) + 1e-6)
    assert verify_routes(decoder, params, batch, route=myopic()).holds
    with pytest.raises(ValueError, match="causal"):
        split_gradient(decoder._replace(causal=False), params, batch, nodes)


def test_own_features(tmp_path, capsys):
    """Trained a little, the loss fell; both directions' parts and remainder sum to the fall."""
    found = run(block(OWN) + block(FEATURES), tmp_path)
    assert found["losses"][-20:].mean() < 0.9 * found["losses"][:20].mean()
    assert len(capsys.readouterr().out.splitlines()) == 8
    told = found["told"]
    total = told.direct + told.precached + told.shared + told.remainder
    np.testing.assert_allclose(total, told.fall, rtol=1e-9)
    assert np.abs(told.share("remainder")).max() < 0.05
    assert np.abs(found["probes"].coef).max() > 0


def test_pretrained(tmp_path, monkeypatch, capsys):
    """The scores of a tiny random Gemma's features, by the same lines."""
    model = random_gemma(read_domains(most=8), 0)
    monkeypatch.setattr(pretrained, "load", lambda name: model)
    rng = np.random.default_rng(0)
    w = rng.standard_normal((32, 40)).astype(np.float32)
    sae = SAE(w, np.zeros(40), w.T, np.zeros(32), np.zeros(40), "relu", 0, 2)
    save_sae(tmp_path / "sae", sae)
    code = block(PRETRAINED).replace("runs/precaching_scores-gemma3/sae", str(tmp_path / "sae"))
    found = run(code, tmp_path)
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 5 and all(line.startswith("feature ") for line in told)
    assert np.isfinite(found["scores"].q[found["strongest"]]).all()
    assert found["effects"].counted.all()


def test_association(tmp_path, capsys):
    """Every weight follows its closed form; the neighbours are words of the text."""
    run(block(ASSOCIATION), tmp_path)
    *rows, last = capsys.readouterr().out.splitlines()
    assert len(rows) == 7 and all(float(row.split()[-1]) > 0.99 for row in rows), rows
    assert last.startswith("lived: ") and len(last.split()) == 6


def test_notebook(tmp_path, capsys):
    """The notebook holds README's programs, and its cells run in their order."""
    book = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    cells = ["".join(c["source"]) for c in book["cells"] if c["cell_type"] == "code"]
    lines = lambda code: [line for line in code.splitlines() if line.strip()]
    assert lines("\n".join(cells)) == lines(block(OWN) + block(FEATURES))
    run("\n\n".join(cells), tmp_path)
    told = capsys.readouterr().out
    stored = [text for c in book["cells"] for o in c.get("outputs", []) for text in o["text"]]
    assert len(told.splitlines()) == 8 and "SAE feature precached" in "".join(stored)
