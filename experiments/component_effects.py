"""Does influence predict what retraining does? The numbers behind component_control.

For nodes below the last layer (where precached parts exist) at the input stage, and for every
feature, a predictor (such as the precached share of R(theta_0)) stands beside what retraining
really removed: the standard model's probe quality minus that of a model whose pre-caching was
weakened, or whose parameters were untied, from the same seed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.toy_config import HELD, Config, draw, shape_of, shared_key
from experiments.toy_numbers import first_output, input_stage
from experiments.toy_training import Found, final_state, load_ledgers
from jaxfeat import stats
from jaxfeat.features.ablate import ablation_rise
from jaxfeat.grads.by_copy import influence_by_copy
from jaxfeat.grads.discover import discover, principal_angles, readouts
from jaxfeat.grads.influence import Influence
from jaxfeat.grads.ledger import Ledger, influence
from jaxfeat.models.gpt2 import make_gpt2
from jaxfeat.types import COMPONENTS

KINDS = ("probe", "precached only", "direct only", "random")


class Effects(NamedTuple):
    """Predictors and removed quality, `[S, nodes, F]` each, over the compared nodes `[nodes, 2]`.

    `predicted`: by name. `removed`: by variant, standard minus it. `same`, `other`: influence of
    the components over R(theta_0), through the same copy and by tying, `[S, 3, nodes, F]`.
    """

    nodes: np.ndarray
    predicted: dict[str, np.ndarray]
    removed: dict[str, np.ndarray]
    same: np.ndarray
    other: np.ndarray


class Built(NamedTuple):
    """Directions of four kinds and what taking them out costs; values `[S, nodes, kinds]`.

    direct, precached, shared: influence over R(theta_0) on the half of E held back. own, later:
    rise of the losses in nats. near: the best correlation with a probe's readout. angles `[pairs]`:
    the first principal angle, in degrees, of two seeds' precached-only directions, mean over nodes;
    `random_angles` of random ones.
    """

    direct: np.ndarray
    precached: np.ndarray
    shared: np.ndarray
    own: np.ndarray
    later: np.ndarray
    near: np.ndarray
    angles: np.ndarray
    random_angles: np.ndarray


def compared(found: Found) -> list[int]:
    """Places among the tracked nodes: the input stage below the last layer."""
    nodes, c = found.ledgers["standard"][0].nodes, found.config
    return [n for n, (k, i) in enumerate(nodes) if k < c.layers and i < c.task.inputs]


def directions(found: Found, seed: int, ledger: Ledger) -> np.ndarray:
    """The standard model's probes at the ledger's nodes, `[n, F, D]`."""
    index = {node: n for n, node in enumerate(found.nodes)}
    return found.probes["standard"]["coef"][seed, [index[node] for node in ledger.nodes]]


def effects(found: Found, workdir: Path) -> Effects:
    """What influence predicts and what retraining removed."""
    here, config = compared(found), found.config
    nodes = np.array(found.ledgers["standard"][0].nodes)[here]
    index = {node: n for n, node in enumerate(found.nodes)}
    probed = [index[k, i] for k, i in nodes]
    whole: dict[str, list] = {}
    add = lambda name, value: whole.setdefault(name, []).append(value[here])
    same, other = [], []
    copied = load_ledgers(config, workdir, "standard", "same_copy")
    for s, ledger in enumerate(found.ledgers["standard"]):
        w = directions(found, s, ledger)
        told = influence(ledger, w)
        add("precached share", told.share("precached"))
        add("direct share", told.share("direct"))
        if found.sgd:
            plain = influence(found.sgd["standard"][s], w)
            add("precached, plain gradient steps", _signed(plain, "precached"))
        add("position alone", np.repeat(np.array(ledger.nodes)[:, 1:], w.shape[1], axis=1) * 1.0)
        parted = influence_by_copy(ledger, copied[s], w)
        scale = np.where(told.scale > 0, told.scale, np.nan)
        same.append((parted.same / scale)[:, here])
        other.append((parted.other / scale)[:, here])
        add("shared by tying", parted.other[2] / scale)
        add("all by tying", parted.other.sum(axis=0) / scale)
    quality = {name: found.probes[name]["r"][:, probed] for name in found.probes}
    removed = {
        name: quality["standard"] - quality[name] for name in config.variants if name != "standard"
    }
    predicted = {name: np.stack(values) for name, values in whole.items()}
    return Effects(nodes, predicted, removed, np.stack(same), np.stack(other))


def ranks(found: Effects, predictor: str, variants: Sequence[str]) -> np.ndarray:
    """Spearman's rank correlation over nodes and features by seed, mean over variants, `[S]`."""
    rows = []
    for name in variants:
        sign = -1.0 if name.startswith("beta=") and float(name[5:]) > 1 else 1.0
        pairs = zip(found.predicted[predictor], sign * found.removed[name], strict=True)
        rows.append([_rank(a.ravel(), b.ravel()) for a, b in pairs])
    return np.mean(rows, axis=0)


def _rank(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's r of the pairs that are defined; 0 where either side is constant."""
    good = np.isfinite(a) & np.isfinite(b)
    r = stats.spearman(a[good], b[good]).r if good.sum() > 1 else np.nan
    return 0.0 if np.isnan(r) else r


def _signed(told: Influence, part: str) -> np.ndarray:
    """A component over the sum of all components' magnitudes."""
    whole = sum(np.abs(getattr(told, name)) for name in COMPONENTS)
    return getattr(told, part) / np.where(whole > 0, whole, np.nan)


def outcomes(found: Found) -> dict[str, dict[str, np.ndarray]]:
    """What each variant came to, by seed: feature, held-out loss, first output."""
    told = {}
    for name in found.config.variants:
        last = [m for m in found.metrics if m["variant"] == name][-1]
        told[name] = {
            "feature r": input_stage(found, name),
            "held-out loss": np.array(last["held_out_loss"]),
            "first output": first_output(found, name),
        }
    return told


def built(found: Found, workdir: Path, controls: int) -> Built:
    """Discovered directions against the probes: influence held back, and the cost of removal."""
    config: Config = found.config
    here, decoder = compared(found), make_gpt2(shape_of(config))
    params = final_state(config, "standard", workdir).params
    held = draw(config, shared_key(config, HELD), config.held, "held_out")
    back = jax.tree.map(lambda x: x[config.held // 2 :], held)
    nodes = [found.ledgers["standard"][0].nodes[n] for n in here]
    rise = jax.jit(lambda p, w: ablation_rise(decoder, p, back, nodes, w))
    rows: dict[str, list] = {name: [] for name in ("own", "later", "near", *COMPONENTS)}
    leading, random = [], []
    for s, ledger in enumerate(found.ledgers["standard"]):
        cached = discover(
            ledger, "precached", without=("direct",), count=2, controls=controls, seed=s
        )
        direct = discover(ledger, "direct", without=("precached",), count=2)
        probe = directions(found, s, ledger)
        sets = dict(
            zip(KINDS, (probe, cached.w[:, :1], direct.w[:, :1], cached.control_w), strict=True)
        )
        w = np.concatenate(list(sets.values()), axis=1)
        told = influence(ledger, w, half=1)
        mine = jax.tree.map(lambda x, s=s: x[s], params)
        cost = rise(mine, jnp.asarray(w[here], jnp.float32))
        near = _nearness(readouts(ledger, w), readouts(ledger, probe))[here]
        values = {"own": np.asarray(cost.own), "later": np.asarray(cost.later), "near": near}
        values |= {name: told.share(name)[here] for name in COMPONENTS}
        ends = np.cumsum([x.shape[1] for x in sets.values()])
        for name, value in values.items():
            split = np.split(value, ends[:-1], axis=1)
            rows[name].append(np.stack([np.nanmean(x, axis=1) for x in split], axis=1))
        leading.append(readouts(ledger, cached.w)[here])
        random.append(readouts(ledger, cached.control_w[:, :2])[here])
    made = {name: np.stack(value) for name, value in rows.items()}
    return Built(**made, angles=_angles(leading), random_angles=_angles(random))


def _nearness(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The largest |correlation| of each readout `[n, E, F]` with any of `[n, E, G]`: `[n, F]`."""
    size = lambda x: np.sqrt((x**2).sum(axis=1))
    cross = np.abs(np.einsum("nef,neg->nfg", a, b))
    whole = size(a)[:, :, None] * size(b)[:, None, :]
    return np.max(np.divide(cross, whole, out=np.zeros_like(cross), where=whole > 0), axis=2)


def _angles(read: list[np.ndarray]) -> np.ndarray:
    """The first principal angle of each pair of seeds, mean over nodes, in degrees."""
    found = [
        np.mean([principal_angles(a, b)[0] for a, b in zip(read[s], read[t], strict=True)])
        for s in range(len(read))
        for t in range(s)
    ]
    return np.degrees(found)


def later_share(found: Built, kind: str) -> np.ndarray:
    """Of what taking a kind of direction out costs, the later tokens' share, by seed `[S]`."""
    place = KINDS.index(kind)
    own, later = found.own[..., place].mean(axis=1), found.later[..., place].mean(axis=1)
    return later / np.maximum(np.abs(own) + np.abs(later), 1e-12)
