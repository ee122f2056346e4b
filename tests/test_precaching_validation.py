"""Is what Q is compared with right, and are the words about it those that the numbers allow?"""

import json
import shutil
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import to64

from experiments import precaching_validation as validation
from experiments import precaching_validation_measures as measures
from experiments import precaching_validation_models as models_of
from experiments import precaching_validation_numbers as numbers
from experiments import tinystories
from jaxfeat.io.arrays import load_arrays
from jaxfeat.io.parquet import read_table
from jaxfeat.nn.blocks import forward
from jaxfeat.report import page
from jaxfeat.report.claims import decide
from jaxfeat.run import folder
from jaxfeat.stats import Interval
from jaxfeat.types import UserError

SMOKE = validation.SMOKE
PARTS = ("direct", "precached", "shared", "decay", "remainder")


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """One run of the smoke setting."""
    out = tmp_path_factory.mktemp("validation")
    validation.check(SMOKE)
    validation.run(SMOKE, 0, out)
    return out, load_arrays(out / "validation.npz")


@pytest.fixture
def finished(result, tmp_path):
    """A finished result folder out of the run's models."""
    shutil.copytree(result[0] / "models" / "othello", tmp_path / "done")
    folder.write_json(tmp_path / "done" / folder.PROVENANCE, {})
    return tmp_path / "done"


def test_rows(result):
    """A row for every seed, node below the last block and square; influences add up."""
    out, rows = result
    positions = SMOKE.othello.positions
    assert len(rows["task"]) == 2 * len(positions) * 16
    assert set(rows["layer"]) == {1} and set(rows["position"]) == set(positions)
    assert set(rows["seed"]) == {0, 1} and len(set(rows["feature"])) == 16
    np.testing.assert_allclose(sum(rows[p] for p in PARTS), rows["fall"], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(rows["q"], rows["later"] / rows["own"], rtol=1e-6)
    assert (rows["low"] <= rows["q"]).all() and (rows["q"] <= rows["high"]).all()
    assert (rows["contexts"] <= SMOKE.sequences).all() and (rows["contexts"] > 0).all()
    assert np.isfinite(rows["estimate"]).all()
    assert len(set(rows["skill"])) == 2 and ((rows["skill"] > 0) & (rows["skill"] < 1)).all()
    assert not validation.read(SMOKE, out).of("stories")["seed"].size


def test_effects_by_hand(result):
    """Both ablations and that of the whole residual against whole forward passes."""
    out, rows = result
    place = out / "models" / "othello"
    models = models_of.read_models("othello", SMOKE.othello, place)
    seed, (layer, i) = models.load(0), (1, SMOKE.othello.positions[1])
    m, f = models.nodes.index((layer, i)), 5
    w, resid = seed.w[m, f].astype(float), seed.ledger.resid[-1][m].astype(float)
    real = seed.ledger.mask[m]
    x = resid - resid[real].mean(axis=0)
    read = x @ w
    pattern = read[real] @ x[real] / (read[real] @ read[real])
    chosen = [s for s in (*range(8), *range(16, 24)) if real[s]]
    with jax.enable_x64(True):
        params, time = to64(seed.params), jnp.arange(models.batch.token.shape[1])
        batch = jax.tree.map(lambda x: x[np.array(chosen)], models.batch)

        def one(sequence, delta):
            change = lambda x: jnp.where((time == i)[:, None], x + delta, x)
            alone = jax.tree.map(lambda x: x[None], sequence)
            return forward(models.decoder, params, alone, edits={layer: change}).logits[0]

        logits = jax.jit(jax.vmap(one))
        base = jax.nn.log_softmax(logits(batch, jnp.zeros((len(chosen), x.shape[1]))))

        def effect(delta):
            after = jax.nn.log_softmax(logits(batch, jnp.asarray(delta[chosen])))
            kl = (jnp.exp(base) * (base - after)).sum(axis=-1) * batch.mask
            return np.array([kl[:, i].mean(), kl[:, i + 1 :].sum(axis=1).mean()])

        expected = [effect(-read[:, None] * c) for c in (w / (w @ w), pattern)] + [effect(-x)]
    here = (rows["seed"] == 0) & (rows["position"] == i)
    mine = np.flatnonzero(here)[f]
    assert rows["feature"][mine] == models.names[f]
    found = [[rows[name][a, mine] for name in ("own", "later")] for a in (0, 1)]
    for told, truth in zip([*found, rows["whole"][:, mine]], expected, strict=True):
        np.testing.assert_allclose(told, truth, rtol=0.02)


def test_resume_and_models(result, finished, tmp_path, monkeypatch):
    """What is done is not done again; a finished folder gives the rows of the run itself."""
    out, rows = result
    again = tmp_path / "again"
    shutil.copytree(out, again)
    (again / "validation.npz").unlink()
    (again / "measured" / "othello-1.npz").unlink()
    monkeypatch.setattr(models_of.othello_training, "set_up", None)
    validation.run(SMOKE, 0, again)
    given = (str(finished),)
    validation.check(SMOKE, given)
    validation.run(SMOKE, 0, tmp_path / "given", given)
    for place in (again, tmp_path / "given"):
        found = load_arrays(place / "validation.npz")
        assert found.keys() == rows.keys()
        for name in rows:
            np.testing.assert_array_equal(found[name], rows[name], err_msg=name)


def test_folders_that_cannot_be_read(finished, tmp_path):
    """No run, another experiment, unfinished, not wholly tracked, another model's ledger."""
    config = folder.read_json(finished / folder.CONFIG)
    write = lambda settings: folder.write_json(finished / folder.CONFIG, settings)

    def refused(words, *more):
        with pytest.raises(UserError, match=words):
            validation.check(SMOKE, (str(finished), *more))

    refused("2 folders of othello", str(finished))
    refused("no result folder", str(tmp_path / "none"))
    write(config | {"task": 1})
    refused("is of another experiment, one of experiments.othello")
    write(config | {"layers": 1})
    refused("one block")
    write(config | {"tracked": 2})
    refused(r"no ledger of the whole training \(--tracked 4 needed\)")
    write(config | {"data": 3})
    refused("another experiment")
    write(config)
    ledgers = [finished / "ledger" / f"{s}.npz" for s in (0, 1)]
    shutil.copy(ledgers[1], ledgers[0])
    models = models_of.read_models("othello", SMOKE.othello, finished)
    with pytest.raises(UserError, match=r"ledger of seed 0 .* other sequences or parameters"):
        models.load(0)
    ledgers[0].unlink()
    refused("is not finished or lacks files, such as ledger/0.npz")
    (finished / folder.CONFIG).write_text(json.dumps([1]))
    refused("another experiment")


def test_settings():
    """Options are named as they stand on the command line."""
    bad = lambda task, **changes: {task: replace(getattr(SMOKE, task), **changes)}
    for changes, words in (
        ({"sequences": 7}, "--sequences: 7"),
        ({"draws": 0}, "--draws: 0"),
        ({"cutoff": 1.0}, "--cutoff: 1.0"),
        ({"tasks": ("chess",)}, "--tasks: .*some of othello, stories"),
        ({"tasks": ()}, "--tasks: "),
        (bad("othello", layers=1), "--othello.layers: 1"),
        (bad("othello", heads=3), "--othello.heads: 3"),
        (bad("othello", tracked=2), "--othello.tracked: 2 given, 4, all"),
        ({"tasks": ("stories",)} | bad("stories", tracked=("myopic",)), "--stories.tracked: "),
        ({"tasks": ("stories",)} | bad("stories", every=5), "--stories.steps: "),
    ):  # fmt: skip
        with pytest.raises(UserError, match=words):
            validation.check(replace(SMOKE, **changes))
    validation.check(validation.ValidationConfig())


def planted(kind="same", tasks=("othello", "stories"), seeds=4, cutoff=0.1):
    """Two nodes of 12 features; the share follows Q, runs against it, or neither."""
    rng, parts = np.random.default_rng(1), []
    for task in tasks:
        for s in range(seeds):
            n = 24
            q = np.exp(rng.normal(0, 1, (2, n)))
            side = np.log(q[0]) if kind == "same" else -np.log(q[0])
            share = np.tanh(side if kind != "none" else rng.normal(size=n))
            q[:, :12] *= 50  # one node has larger Q: only pooled ranks see it
            direct = np.where(rng.random(n) < 0.5, -1, 1) * (1 - np.abs(share))
            own = rng.uniform(1, 2, (2, n))
            own[0, 3], direct[4] = 1e-4, 0.0
            whole = {"precached": share, "direct": direct, "shared": 0 * share, "decay": 0 * share}
            rows = whole | {
                "layer": np.repeat([1, 2], 12), "position": np.full(n, 3), "scale": np.ones(n),
                "feature": np.array([f"f{j}" for j in range(12)] * 2), "q": q, "own": own,
                "skill": np.full(n, 0.7),
                "later": q * own, "estimate": q**2, "mean_of_ratios": q, "half_q": np.stack([q, q]),
                "fall": share + direct, "remainder": 0 * share, "whole": np.full((2, n), 5.0),
                "uncentred_direct": direct, "uncentred_precached": share,
                "half_direct": np.stack([direct] * 2), "half_precached": np.stack([share] * 2),
            }  # fmt: skip
            parts.append({"task": np.repeat(task, n), "seed": np.repeat(s, n)} | rows)
    joined = {name: np.concatenate([p[name] for p in parts], axis=-1) for name in parts[0]}
    return numbers.Found(joined, cutoff)


def test_claims():
    """A planted relation is found, its reverse is told as such, none is told plainly."""
    for kind, verdict, words in (
        ("same", "holds", "features of larger Q were built more"),
        ("against", "does not hold", "built LESS"),
        ("none", "undecided", "no relation was found"),
    ):
        found = planted(kind)
        claims, told = decide(validation.statements(found))
        assert [claim.verdict for claim in claims] == [verdict] * 2, kind
        assert validation.told(found).count(words) == 2
        mean = told[claims[0].name]["mean"]
        assert abs(mean - {"same": 1, "against": -1, "none": 0}[kind]) < 0.4
    one = planted(seeds=1, tasks=("othello",))
    assert "Fewer than two seeds" in validation.statements(one)[0].blocked
    assert "too few" in validation.told(one)


def test_ranks():
    """Within nodes and pooled against SciPy; the pooled interval resamples whole nodes."""
    from scipy.stats import spearmanr

    found = planted("none", tasks=("othello",))
    rows = found.of("othello")
    x, y, mask = next(iter(numbers.choices(found, "othello").values()))
    expected = []
    for s in range(4):
        each = []
        for layer in (1, 2):
            here = mask & (rows["seed"] == s) & (rows["layer"] == layer)
            each.append(spearmanr(np.log(rows["q"][0][here]), y[here]).statistic)
        expected.append(np.mean(each))
    np.testing.assert_allclose(numbers.within(rows, x, y, mask), expected)
    assert numbers.pooled(rows, x, y, mask).mean == pytest.approx(
        spearmanr(x[mask], y[mask]).statistic
    )
    # every cluster the same: resampling changes nothing, resampling rows would
    n = len(x)
    same = np.tile(np.arange(12.0), n // 12)
    told = numbers.pooled(rows, same, np.tile([3.0, 1, 2, 0] * 3, n // 12), np.ones(n, bool))
    assert told.low == pytest.approx(told.high)


def test_cutoff_and_signs():
    """What is dropped is counted; failures of sign against cases by hand."""
    found = planted("same", tasks=("othello",))
    rows = found.rows
    k = numbers.kept(found, "othello")
    assert k.below == 4 and k.undefined == 0 and k.mask.sum() == 4 * 23  # feature 3 of each seed
    total = rows["own"][0] + rows["later"][0]
    assert k.least == pytest.approx(0.1 * np.median(total))
    rows["q"][0, 7] = np.nan
    rows["direct"][9] = rows["precached"][9] = 0.0
    again = numbers.kept(found, "othello")
    assert again.undefined == 2 and not again.mask[[7, 9]].any()
    two = {name: x[..., :4] for name, x in rows.items()} | {"seed": np.array([0, 0, 0, 1])}
    two["q"] = np.array([[2.0, 2.0, 0.5, 0.5]] * 2)
    two["own"] = two["later"] = np.ones((2, 4))
    two["direct"] = np.array([0.1, 0.5, 0.1, -0.4])
    two["precached"] = np.array([0.3, -0.2, 0.2, 0.1])
    told = numbers.signs(numbers.Found(two, 0.1), "othello")
    expected = {
        "Q > 1": [2 / 3, 0], "I_pre > |I_dir|": [2 / 3, 0], "both or neither": [1 / 3, 1],
        "fails: Q > 1, I_pre < |I_dir|": [1 / 3, 0], "of these I_pre < 0": [1 / 3, 0],
        "fails: Q < 1, I_pre > |I_dir|": [1 / 3, 0], "no sign in Q: I_pre < 0": [1 / 3, 0],
        "no sign in Q: I_dir < 0": [0, 1],
        "both or neither, expected without a relation": [5 / 9, 1],
    }  # fmt: skip
    assert told.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(told[name], values, err_msg=name)


def test_page(tmp_path, monkeypatch):
    """Every figure and table is drawn and written."""
    monkeypatch.setattr(numbers, "DRAWS", 20)
    found = planted("none")
    pictures = page.save_pictures(tmp_path, validation.figures(found))
    tables = validation.tables(found)
    page.write_page(tmp_path, title="t", summary="s", figures=pictures, tables=tables)
    text = (tmp_path / "report.html").read_text()
    for words in ("Q along w, share (primary)", "below the cut-off", "no sign in Q: I_dir"):
        assert words in text, words
    panels = read_table(tmp_path / "figures" / "validation_cloud.parquet")
    assert {"Stories, along w", "Othello, pattern"} <= set(panels["panel"])
    assert len(tables[0].rows) == 24 and len(tables[3].rows) == 4


@pytest.mark.slow
def test_stories(tmp_path):
    """A folder of stories is trained, read and measured; a variant without a ledger is refused."""
    stories = replace(tinystories.PRESETS["smoke"], tracked=("standard",))
    config = replace(SMOKE, tasks=("stories",), stories=stories, sequences=8)
    validation.check(config)
    validation.run(config, 0, tmp_path)
    found = validation.read(config, tmp_path)
    rows = found.of("stories")
    assert len(rows["seed"]) == 2 * 22 and set(rows["position"]) == {5}
    np.testing.assert_allclose(sum(rows[p] for p in PARTS), rows["fall"], rtol=1e-9, atol=1e-12)
    assert ((rows["skill"] > 5) & (rows["skill"] < 7)).all()  # hardly below log 512
    known = numbers.kept(found, "stories").mask
    assert known.any() and isinstance(validation.statements(found)[0].interval, Interval)
    place = tmp_path / "models" / "stories"
    folder.write_json(place / folder.PROVENANCE, {})
    validation.check(config, (str(place),))
    settings = folder.read_json(place / folder.CONFIG)
    folder.write_json(place / folder.CONFIG, settings | {"tracked": ["myopic"]})
    with pytest.raises(UserError, match="--tracked standard needed"):
        validation.check(config, (str(place),))
    assert measures.ABLATIONS == ("along w", "pattern")
