"""Do model, routes, copies and split equal the authors' code? (numbers: their PyTorch, float64)"""

from functools import partial

import jax
import numpy as np
from reference import batch_of, check, config_of, load, to_params, to_vector

from jaxfeat.grads.split import cotangents, split_gradient
from jaxfeat.models.gpt2 import make_gpt2
from jaxfeat.nn.blocks import forward
from jaxfeat.nn.copies import stack_copies
from jaxfeat.nn.loss import loss_terms, mean_loss
from jaxfeat.nn.route import myopic

GOLDEN = ("split/*_core.npz",)


def run(decoder, params, batch, copies=None, route=None):
    """Output, loss of every target and gradient of their mean."""

    def loss(params):
        out = forward(decoder, params, batch, copies=copies, route=route)
        return mean_loss(out.logits, batch), (out, loss_terms(out.logits, batch))

    (mean, (out, terms)), grads = jax.value_and_grad(loss, has_aux=True)(params)
    return out, mean, terms, grads


@partial(
    jax.jit,
    static_argnames=("decoder", "nodes", "cut"),
    compiler_options={"xla_backend_optimization_level": 0},  # half the time to compile
)
def everything(decoder, params, both, batch, nodes, cut):
    """All that is compared, in one program."""
    return {
        "whole": run(decoder, params, batch),
        "myopic": run(decoder, params, batch, route=myopic())[-1],
        "copies": run(decoder, both, batch, copies=(0, cut)),
        "split": split_gradient(decoder, params, batch, nodes),
        "cotangents": cotangents(decoder, params, batch),
    }


def test_core(golden):
    """Logits, residuals, losses, gradients, components and cotangents, also of two copies."""
    z, config, index = load(golden)
    params = to_params(z["weights"], index, config)
    pair = [params, to_params(z["split_weights_b"], index, config)]
    np.testing.assert_array_equal(to_vector(params, index, config), z["weights"])
    nodes = tuple((int(k), int(i)) for i, k in z["pairs_i_k"])
    with jax.enable_x64(True):
        decoder, batch = make_gpt2(config_of(config)), batch_of(z["tokens"])
        found = everything(decoder, params, stack_copies(pair), batch, nodes, config["m"])
        found = jax.tree.map(np.asarray, found)
    vector = partial(to_vector, index=index, config=config)

    out, mean, terms, grads = found["whole"]
    check(out.logits, z["logits"], "logits")
    check(out.resid.swapaxes(0, 1), z["hidden"], "hidden")
    check(mean, z["loss"], "loss")
    check(terms.mean(0)[:-1], z["loss_per_position"], "loss_per_position")
    check(vector(grads), z["grad_normal"], "grad_normal")
    check(vector(found["myopic"]), z["grad_myopic"], "grad_myopic")

    parts = {name: vector(part) for name, part in found["split"]._asdict().items()}
    for n, (k, i) in enumerate(nodes):
        for name, part in parts.items():
            check(part[n], z[f"pair{n}_{name}"], f"pair{n}_{name}")
        for name in ("total", "direct"):
            ours = getattr(found["cotangents"], name)[:, k, i]
            check(ours, z[f"pair{n}_cot_{name}"], f"pair{n}_cot_{name}")

    out, mean, _, grads = found["copies"]
    check(out.logits, z["split_logits"], "split_logits")
    check(out.resid.swapaxes(0, 1), z["split_hidden"], "split_hidden")
    check(mean, z["split_loss"], "split_loss")
    copy = lambda c: {
        "outer": jax.tree.map(lambda x: x[c], grads["outer"]),
        "blocks": jax.tree.map(lambda x: x[:, c], grads["blocks"]),
    }
    check(vector(copy(0)), z["split_grad_a"], "split_grad_a")
    check(vector(copy(1)), z["split_grad_b"], "split_grad_b")
