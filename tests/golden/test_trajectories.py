"""Do five updates, their component steps and influences equal the authors' code? (float64)

Their influence is read on the training batch at the left end of the step; `R` is a plain mean of
squares. A file may lack arrays (`README.md` says which): those it holds are compared.
"""

import json
import re
from collections import defaultdict
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from reference import batch_of, check, config_of, load, to_params, to_vector

from jaxfeat import tree
from jaxfeat.grads.influence import step_influence
from jaxfeat.grads.moments import (
    StepRule,
    scale_parts,
    spread,
    step_scale,
)
from jaxfeat.grads.plan import make_plan
from jaxfeat.grads.sweep import zero_parts
from jaxfeat.grads.track import Tracker, Window, component_steps, measure, node_resid
from jaxfeat.models.gpt2 import make_gpt2
from jaxfeat.nn.blocks import forward
from jaxfeat.nn.loss import mean_loss
from jaxfeat.nn.route import myopic
from jaxfeat.train.step import TrainState, init_state, make_update

GOLDEN = ("split/*_traj_*.npz",)
SLOW = ("case1_traj_split_myopic",)
QUICK = {"xla_backend_optimization_level": 0}  # half the time to compile
KINDS = ("tied", "myopic", "split", "split_myopic", "untied")
PARTS = ("direct", "pre-cached", "shared")
NODE = re.compile(  # and component: what a family leaves out
    r"f\d+_layer_\d+_seq_\d+|-layer-\d+-\d+|-ft-\d+|-+(direct|pre-cached|shared|full)$"
)
RULES = {"sgd": StepRule("sgd"), "adam": StepRule("adam")}


class Case:
    """One file: the model, what is tracked, and the programs."""

    def __init__(self, file):
        self.z, self.config, self.index = load(file)
        kind, config = self.config["kind"], self.config
        assert kind in KINDS
        self.decoder, self.lr = make_gpt2(config_of(config)), config["lr"]
        self.route = myopic() if kind.endswith("myopic") else None
        self.copies = {"split": (0, config["m"]), "untied": tuple(range(config["T"]))}.get(
            kind.removesuffix("_myopic")
        )
        nodes = [(int(k), int(i)) for i, k in self.z["pairs_i_k"]]
        self.plan = make_plan(
            nodes, layers=config["L"], length=config["T"], precached=self.route is None, chunks=1,
            at_once=9,
        )  # fmt: skip
        self.tracker = Tracker(self.decoder, self.plan, RULES["adam"], self.route, self.copies)
        # layer, feature, position
        keys = [tuple(map(int, key)) for key in self.z["probe_keys_k_f_i"]]
        probes = dict(zip(keys, self.z["probe_w"], strict=True))
        self.features = 1 + max(f for _, f, _ in probes)
        self.w = np.zeros((len(nodes), self.features, config["h"]))
        for n, (k, i) in enumerate(nodes):
            for f in range(self.features):
                self.w[n, f] = probes[k, f, i]
        self.typed = config["use_features_type"]

    def params(self, name):
        return jax.tree.map(jnp.asarray, to_params(self.z[name], self.index, self.config))

    def vector(self, params):
        return to_vector(params, self.index, self.config)

    def types(self, step):
        """Every feature's type in each example at each node, `[n, B, F]`; the kinds there are."""
        found = self.z["features_type"][step]
        at = [found[:, i] for _, i in self.plan.nodes]
        return jnp.asarray(np.stack(at)), np.unique(found)

    @partial(jax.jit, static_argnums=0, compiler_options=QUICK)
    def resid(self, params, batch):
        """`[n, B, D]`."""
        return node_resid(self.tracker, params, batch)

    @partial(jax.jit, static_argnums=0, compiler_options=QUICK)
    def step(self, state, moments, batch, goal, types):
        """One update, with all that the authors measure of it."""
        adam, params = self.tracker.rule, state.params
        update = make_update(self.decoder, adam, route=self.route, copies=self.copies)
        new, loss = update(state, batch, self.lr)
        kept, steps = component_steps(self.tracker, moments, params, new.opt_state, batch, self.lr)
        # what the moments took in: the components of this update's gradient
        taken = lambda after, before: (after - adam.b1 * before) / (1 - adam.b1)
        grads, whole = (
            jax.tree.map(taken, after, before)
            for after, before in ((kept, moments), (new.opt_state.mu, state.opt_state.mu))
        )
        plain = scale_parts(grads, step_scale(RULES["sgd"], self.lr, new.opt_state, params))
        after = tree.sub(params, tree.scale(self.lr, whole))
        pair = lambda x, y: jax.tree.map(lambda *z: jnp.stack(z), x, y)
        movement = jax.vmap(
            lambda steps, after: measure(self.tracker, Window(kept, steps, params), after, batch)
        )(pair(plain, steps), pair(after, new.params))
        read = partial(step_influence, w=jnp.asarray(self.w), conventions="authors")

        def told(before, along):
            typed = read(before, goal, along, types=types, kinds=3) if self.typed else ()
            return read(before, goal, along)[..., 0], typed

        every = jax.tree.map(lambda *x: jnp.stack(x), grads, kept, plain, steps)
        trees = jax.vmap(lambda x: spread(x, self.plan, params))(every)
        influence = jax.vmap(told)(movement.before, movement.along)
        found = {
            "loss": loss,
            "gradient": whole,
            "resid": movement.before[0],
            "grads": tree.index(trees, 0),
            "moments": tree.index(trees, 1),
            "steps": dict(zip(RULES, (tree.index(trees, 2), tree.index(trees, 3)))),
            "whole": {"sgd": tree.sub(params, after), "adam": tree.sub(params, new.params)},
            "all": dict(zip(RULES, influence[0])),
            "typed": dict(zip(RULES, influence[1])) if self.typed else None,
        }
        return new, kept, found

    @partial(jax.jit, static_argnums=0, compiler_options=QUICK)
    def risk_gradients(self, params, goal, batch, weights):
        """The gradient of `mean_b (w . (r - r*))^2` for each of `weights [q, n, B, F]`."""

        def risks(params):
            gap = node_resid(self.tracker, params, batch) - goal
            square = jnp.einsum("nfd,nbd->nbf", self.w, gap) ** 2
            return jnp.einsum("nbf,qnbf->q", square, weights)

        return jax.jacrev(risks)(params)


def probe_name(f, node):
    return "f{}_layer_{}_seq_{}".format(f, *node)


def test_trajectory(golden):
    """Every array of the file."""
    with jax.enable_x64(True):
        case = Case(golden)
        z, plan = case.z, case.plan
        state = init_state(RULES["adam"], case.params("init_weights"))
        frozen, moments = case.params("frozen_weights"), zero_parts(state.params, plan)
        start, metrics, losses, first = state.params, [], [], {}
        for s, tokens in enumerate(z["tokens"]):
            batch = batch_of(tokens)
            goal = case.resid(frozen, batch)
            types, kinds = case.types(s)
            state, moments, found = case.step(state, moments, batch, goal, types)
            found = jax.tree.map(np.asarray, found)
            first, losses = first or found, [*losses, float(found["loss"])]
            metrics.append(metrics_of(case, found, np.asarray(goal), np.asarray(types), kinds))
        check_metrics(z, metrics)
        check(losses, z["losses"], "losses")
        check_first(case, first)
        check_last(case, state, found["moments"])
        check_risks(case, start, frozen, metrics[0])
        check_forward(case, start)


def metrics_of(case, found, goal, types, kinds):
    """Our values under the authors' names."""
    ours = {"loss": found["loss"]}
    read = lambda r: np.einsum("nfd,nbd->nbf", case.w, r)
    error = read(found["resid"] - goal)
    for n, node in enumerate(case.plan.nodes):
        for f in range(case.features):
            name = probe_name(f, node)
            views = {name: (np.ones(len(error[n]), bool), None)}
            if case.typed:
                views |= {f"{name}-ft-{t}": (types[n, :, f] == t, t) for t in kinds}
            for view, (mine, t) in views.items():
                squares = error[n, mine, f] ** 2
                ours[f"risk-{view}"] = squares.mean() if mine.any() else np.nan
                for rule in RULES:
                    at = found["all"][rule] if t is None else found["typed"][rule][..., t]
                    for c, part in enumerate(PARTS):
                        ours[f"{view}-{rule}--{part}"] = at[c, n, f]
                    ours[f"{view}-{rule}--full"] = at[:, n, f].sum()
        for rule in RULES:
            named = dict(zip(PARTS, norms_of(case, found, rule, n)))
            for part, norm in named.items():
                ours["{}--grad-norm-layer-{}-{}-{}".format(rule, *node, part)] = norm
    return ours


def norms_of(case, found, rule, n):
    """`|G_c|` of the node's components."""
    direct, precached = (case.vector(tree.index(x, n)) for x in found["steps"][rule])
    parts = direct, precached, case.vector(found["whole"][rule]) - direct - precached
    return [np.linalg.norm(x) for x in parts]


def check_metrics(z, metrics):
    """Each metric's values over all steps, against the size of its family.

    A family is a kind of metric under a rule, all its components together: the reference's
    pre-cached at layer N is rounding (its gradient less the two others), ours exactly 0.
    """
    names = json.loads(str(z["metric_names"]))
    families = defaultdict(list)
    for q, name in enumerate(names):
        family = NODE.sub("", name)
        families[family].append(q)
    assert set(metrics[0]) >= set(names)
    for family, at in families.items():
        ours = np.array([[m[names[q]] for q in at] for m in metrics])
        check(ours, z["metric_values"][:, at], family)


def check_parts(case, prefix, found, whole):
    """Stored components of every node: direct, precached, and what is left of the whole."""
    for n in range(len(case.plan.nodes)):
        direct, precached = (case.vector(tree.index(x, n)) for x in found)
        parts = {"direct": direct, "precached": precached, "shared": whole - direct - precached}
        for name, part in parts.items():
            key = f"{prefix[0]}{n}{prefix[1]}_{name}"
            if key in case.z:
                check(part, case.z[key], key)


def check_first(case, found):
    """The gradient and its components at the first step."""
    whole = case.vector(found["gradient"])
    if "step0_grad_normal" in case.z:
        check(whole, case.z["step0_grad_normal"], "step0_grad_normal")
    check_parts(case, ("step0_pair", ""), found["grads"], whole)


def check_last(case, state: TrainState, moments):
    """Weights and moments after the last step."""
    adam = state.opt_state
    if "final_weights" in case.z:
        # Key biases have no gradient but rounding, which Adam amplifies: hence 1e-8 here alone.
        ours, theirs = case.vector(state.params), case.z["final_weights"]
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-8)
    mu, nu = case.vector(adam.mu), case.vector(adam.nu)
    for key, ours in {"final_exp_avg": mu, "final_exp_avg_sq": nu}.items():
        if key in case.z:
            check(ours, case.z[key], key)
    check_parts(case, ("final_pair", "_moment"), moments, mu)


def check_risks(case, params, frozen, metrics):
    """The risks at the first step, and their gradients in the full graph."""
    names = json.loads(str(case.z["step0_r_grad_names"]))
    check([metrics[f"risk-{name}"] for name in names], case.z["step0_risks"], "step0_risks")
    if "step0_r_grads" not in case.z:
        return
    batch, weights = batch_of(case.z["tokens"][0]), {}
    types, kinds = case.types(0)
    for n, node in enumerate(case.plan.nodes):
        for f in range(case.features):
            for t in (None, *kinds):
                name = probe_name(f, node) + ("" if t is None else f"-ft-{t}")
                mine = np.ones(len(batch.token)) if t is None else np.asarray(types[n, :, f] == t)
                weights[name] = np.zeros(types.shape)
                weights[name][n, :, f] = mine / max(mine.sum(), 1)
    goal = case.resid(frozen, batch)
    chosen = jnp.asarray(np.stack([weights[name] for name in names]))
    grads = case.risk_gradients(params, goal, batch, chosen)
    check(case.vector(grads), case.z["step0_r_grads"], "step0_r_grads")


def check_forward(case, params):
    """Where the file holds them: logits, residuals, loss and myopic gradient at the start."""
    z, batch = case.z, batch_of(case.z["tokens"][0])

    def loss(params, route=None):
        out = forward(case.decoder, params, batch, copies=case.copies, route=route)
        return mean_loss(out.logits, batch), out

    if "logits" in z:
        value, out = loss(params)
        check(out.logits, z["logits"], "logits")
        check(out.resid.swapaxes(0, 1), z["hidden"], "hidden")
        check(value, z["loss"], "loss")
    if "grad_myopic" in z:
        grad = jax.jit(jax.grad(partial(loss, route=myopic()), has_aux=True))(params)[0]
        check(case.vector(grad), z["grad_myopic"], "grad_myopic")
