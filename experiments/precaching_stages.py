"""What is measured of a model's features, one stage after another, each kept when it is done?

In the result folder: `sae` (the features), `contexts.npz` (where they are active, and on which
domain), `effects.npz` (ablations), `sampled.npz` (scores of all features from gradients),
`ahead.npz` (look-ahead mappers and their cosines), `steered.json` (texts).
"""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.precaching_config import ModelConfig
from experiments.precaching_model import Subject
from jaxfeat.features import sae_facts
from jaxfeat.features.activations import layer_activations
from jaxfeat.features.contexts import top_contexts
from jaxfeat.features.domain_score import domain_scores
from jaxfeat.features.effects import Effects, Jobs, make_effects
from jaxfeat.features.lookahead import fit_mappers, projection_cosines
from jaxfeat.features.sae import SAE, ablation, encode
from jaxfeat.features.sae_files import load_sae, sae_notes, save_sae
from jaxfeat.features.sae_train import train_sae
from jaxfeat.features.sae_update import SAEConfig
from jaxfeat.features.sampled import all_features, make_sampler, of_jobs
from jaxfeat.features.score import Scores, precaching_scores
from jaxfeat.features.steer import steer
from jaxfeat.features.stream import read_layer
from jaxfeat.io.arrays import load_arrays, save_arrays
from jaxfeat.run import folder
from jaxfeat.run.progress import Progress
from jaxfeat.types import Array, UserError, whole_batch

STAGES = ("sae", "contexts", "effects", "sampled", "ahead", "steered")
TRAIN, SAMPLE, AHEAD, WRITE = range(4)  # what the key is folded with


class Measured(NamedTuple):
    """What the stages left: arrays by stage, the SAE's facts, texts with and without steering."""

    sae: SAE
    facts: dict[str, Any]
    contexts: dict[str, np.ndarray]
    effects: dict[str, np.ndarray]
    sampled: dict[str, np.ndarray]
    ahead: dict[str, np.ndarray]
    steered: dict[str, Any]


def measure(
    config: ModelConfig, seed: int, subject: Subject, workdir: Path, shown: Progress
) -> Measured:
    """Every stage, those that are done read back."""
    key = jax.random.key(seed)
    fold = lambda purpose: jax.random.fold_in(key, purpose)
    stage = lambda name, make: _stage(workdir, name, make, shown)
    sae, facts = _features(config, fold(TRAIN), subject, workdir, shown)
    contexts = stage("contexts", lambda: _contexts(config, subject, sae))
    effects = stage("effects", lambda: _effects(config, seed, subject, sae, contexts))
    sampled = stage("sampled", lambda: _sampled(config, fold(SAMPLE), subject, sae, effects))
    ahead = stage("ahead", lambda: _ahead(config, fold(AHEAD), subject, sae))
    texts = workdir / "steered.json"
    if _begin(shown, "steered", texts):
        found = _steered(config, fold(WRITE), subject, sae, contexts, effects)
        folder.write_json(texts, found)
        shown.tick()
    return Measured(sae, facts, contexts, effects, sampled, ahead, folder.read_json(texts))


def _stage(
    workdir: Path, name: str, make: Callable[[], dict[str, Any]], shown: Progress
) -> dict[str, np.ndarray]:
    """The arrays of a stage, made unless they are there."""
    place = workdir / f"{name}.npz"
    if _begin(shown, name, place):
        save_arrays(place, {key: np.asarray(x) for key, x in make().items()})
        shown.tick()
    try:
        return load_arrays(place)
    except UserError:
        raise UserError(f"{place} is damaged: delete it and --resume makes it again") from None


def _begin(shown: Progress, name: str, place: Path) -> bool:
    """Whether a stage is still to be made."""
    done = int(place.exists())
    shown.begin(name, done, 1)
    return not done


def _features(
    config: ModelConfig, key: Array, subject: Subject, workdir: Path, shown: Progress
) -> tuple[SAE, dict[str, Any]]:
    """The SAE that is given, or one that is trained; what it does to held-out windows."""
    c, place, model = config, workdir / "sae", subject.model
    if _begin(shown, "sae", place / "cfg.json"):
        windows, held = subject.windows, subject.held
        read = lambda w, **kept: layer_activations(
            model.decoder, model.params, w.tokens, c.layer, w.special, at_once=c.at_once, **kept
        )
        sae, history = subject.sae, {}
        if sae is None:
            scratch = workdir / "activations"
            found = read(windows, folder=scratch)
            trained = train_sae(key, found, SAEConfig(
                features=c.features, k=c.k, batch=c.sae_batch, steps=c.sae_steps,
                warm_up=min(100, c.sae_steps // 4),
            ))  # fmt: skip
            sae, history = trained.sae, trained.history
            save_arrays(workdir / "sae_history.npz", history)
            shutil.rmtree(scratch)
        facts = sae_facts.sae_facts(sae, read(held))
        recovered = sae_facts.recovered_loss(
            model.decoder, model.params, whole_batch(held.tokens), sae, jnp.asarray(held.special),
            at_once=c.at_once,
        )  # fmt: skip
        print(sae_facts.told_facts(facts, recovered), flush=True)
        told = {name: x for name, x in facts._asdict().items() if name != "rate"}
        save_sae(place, sae, {"facts": told, "recovered": recovered._asdict(),
                              "trained": subject.sae is None})  # fmt: skip
        shown.tick()
    return load_sae(place), sae_notes(place)


def activations(subject: Subject, layer: int):
    """`(given, tokens [B, T]) -> [B, T, M]`, with `given` the parameters and the SAE."""
    read = read_layer(subject.model.decoder, layer)
    return lambda given, tokens: encode(given[1], read(given[0], tokens))


def _contexts(c: ModelConfig, subject: Subject, sae: SAE) -> dict[str, Any]:
    """Top positions of every feature and the share of its activation on formal text."""
    windows, given = subject.windows, (subject.model.params, sae)
    features = activations(subject, c.layer)
    before = max(c.distance + 1, 32)
    top = top_contexts(
        features, given, windows.tokens, windows.special, count=c.contexts, batch=c.at_once,
        span=c.span, distance=c.distance, window=(before, c.span - 1),
    )  # fmt: skip
    scores = domain_scores(
        features, given, windows.tokens, windows.special, windows.domain, windows.document,
        batch=c.at_once,
    )  # fmt: skip
    return top._asdict() | {f"domain_{name}": x for name, x in scores._asdict().items()}


def _effects(
    c: ModelConfig, seed: int, subject: Subject, sae: SAE, contexts: dict[str, np.ndarray]
) -> dict[str, Any]:
    """KL of the ablations of chosen features in their contexts, by both conventions."""
    valid = contexts["valid"]
    usable = np.flatnonzero(valid.sum(axis=1) >= c.least)
    if not len(usable):
        raise UserError(
            f"--model.least: no feature has {c.least} contexts; --model.windows gives more, "
            f"--model.contexts and --model.distance ask for fewer"
        )
    count = min(c.measured or len(usable), len(usable))
    chosen = np.sort(np.random.default_rng(seed).choice(usable, count, replace=False))
    row, column = np.nonzero(valid[chosen])
    pick = lambda name: contexts[name][chosen][row, column]
    jobs = Jobs(pick("sequence"), pick("position"), chosen[row])
    batch, made = whole_batch(subject.windows.tokens), {}
    for name, error_term in (("kl", True), ("kl_exchanged", False)):
        run = make_effects(
            subject.model.decoder, c.layer, partial(ablation, error_term=error_term), span=c.span,
            pack=c.pack, at_once=c.at_once, entries=c.entries,
        )  # fmt: skip
        made[name] = run(subject.model.params, batch, jobs, sae).kl
    return made | jobs._asdict() | {"activation": pick("activation"), "chosen": chosen,
                                    "usable": len(usable)}  # fmt: skip


def scores_of(c: ModelConfig, effects: dict[str, np.ndarray], *, exchanged: bool = False) -> Scores:
    """Q of the chosen features, one row each, by either convention."""
    kl = effects["kl_exchanged" if exchanged else "kl"]
    number = np.searchsorted(effects["chosen"], effects["feature"])
    counted = np.ones(kl.shape, bool)  # contexts are chosen so that every column exists
    return precaching_scores(Effects(kl, counted), number, len(effects["chosen"]), cutoff=c.cutoff)


def _sampled(
    c: ModelConfig, key: Array, subject: Subject, sae: SAE, effects: dict[str, np.ndarray]
) -> dict[str, Any]:
    """Scores from gradients: of jobs at the sampled places, and of every feature active there."""
    places = np.stack([effects["sequence"], effects["position"]], axis=1)
    unique = np.unique(places, axis=0)
    rng = np.random.default_rng(0)
    some = unique[np.sort(rng.permutation(len(unique))[: c.places])]
    sampler = make_sampler(
        subject.model.decoder, c.layer, span=c.span, draws=c.draws, kind=c.kind, pack=1,
        at_once=c.at_once, entries=c.entries,
    )  # fmt: skip
    batch = whole_batch(subject.windows.tokens)
    found = sampler(subject.model.params, batch, some[:, 0], some[:, 1], key)
    read = jax.jit(activations(subject, c.layer))
    given = (subject.model.params, sae)
    f = np.zeros((len(some), sae.w_dec.shape[0]), np.float32)
    for start in range(0, len(some), c.at_once):
        rows, at = some[start : start + c.at_once].T
        padded = np.resize(rows, c.at_once)
        acts = np.asarray(read(given, subject.windows.tokens[padded]))
        f[start : start + len(rows)] = acts[np.arange(len(rows)), at]
    own, later = all_features(found, jnp.asarray(f), jnp.asarray(sae.w_dec))
    number = {tuple(place): n for n, place in enumerate(some.tolist())}
    place = np.array([number.get(tuple(p), -1) for p in places.tolist()])
    here = np.flatnonzero(place >= 0)
    feature = effects["feature"][here]
    delta = f[place[here], feature][:, None] * np.asarray(sae.w_dec)[feature]
    single = of_jobs(found, jnp.asarray(place[here]), jnp.asarray(delta))
    return {"all_own": own, "all_later": later, "active": (f > 0).sum(axis=0), "job": here,
            "own": single.own, "later": single.later, "places": len(some)}  # fmt: skip


def _ahead(c: ModelConfig, key: Array, subject: Subject, sae: SAE) -> dict[str, Any]:
    """Look-ahead mappers; the cosine of every feature's direction with each rank of them."""
    windows, held = subject.windows, subject.held
    fit = fit_mappers(
        subject.model.decoder, subject.model.params, c.layer, (windows.tokens, windows.special),
        (held.tokens, held.special), key, ahead=c.ahead, updates=c.ahead_steps,
        batch=c.ahead_batch, entries=c.entries,
    )  # fmt: skip
    width = sae.w_dec.shape[1]
    ranks = np.unique(np.geomspace(1, width, 12).astype(int))
    each = [projection_cosines(w, sae.w_dec)[:, ranks - 1] for w in fit.mappers.w]
    return {"cosines": np.stack([np.asarray(x) for x in each]), "ranks": ranks,
            "before": fit.before, "after": fit.after, "targets": fit.targets}  # fmt: skip


def _steered(
    c: ModelConfig, key: Array, subject: Subject, sae: SAE, contexts: dict, effects: dict
) -> dict[str, Any]:
    """Texts after held-out prompts, with features of high and of low Q added and without."""
    if not c.steered:
        return {}
    scores = scores_of(c, effects)  # one row a chosen feature
    known = np.flatnonzero(np.isfinite(scores.q) & scores.kept)
    order = known[np.argsort(scores.q[known])]
    count = min(c.steered, len(order) // 2)
    if not count:
        return {}
    ends = {"low": effects["chosen"][order[:count]], "high": effects["chosen"][order[-count:]]}
    model, held = subject.model, subject.held
    rows = np.linspace(0, len(held.tokens) - 1, c.prompts).astype(int)
    prompt = held.tokens[rows, : c.prompt]
    assert model.tokenizer is not None
    decode = model.tokenizer.decode
    told: dict[str, Any] = {
        "prompts": [decode(p.tolist(), skip_special_tokens=True) for p in prompt]
    }

    def write(added: np.ndarray) -> list[list[str]]:
        made = steer(
            model.decoder, model.params, key, jnp.asarray(prompt), jnp.asarray(added), c.layer,
            1.0,
            c.written, together=1,
        )  # fmt: skip
        return [[decode(t[c.prompt :].tolist()) for t in texts] for texts in np.asarray(made)]

    w_dec, top = np.asarray(sae.w_dec), contexts["maximum"]
    chosen = np.concatenate([ends["low"], ends["high"]])
    added = c.strength * top[chosen][:, None] * w_dec[chosen]
    texts = write(np.concatenate([np.zeros((1, w_dec.shape[1]), np.float32), added]))
    return told | {
        "features": {name: ids.tolist() for name, ids in ends.items()}, "unsteered": texts[0],
        "low": texts[1 : count + 1], "high": texts[count + 1 :],
    }  # fmt: skip
