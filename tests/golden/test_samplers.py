"""Do the counting games follow the reference samplers' rules? (numbers: the authors' samplers)"""

import jax.numpy as jnp
import numpy as np

from jaxfeat.data import toy

KINDS = {
    "sampler_maj": ("majority", False),
    "sampler_cond_maj": ("conditioned_majority", False),
    "sampler_cond_maj_exclude0": ("conditioned_majority", True),
}
GOLDEN = tuple(f"samplers/{name}.npz" for name in KINDS)


def test_sampler(golden):
    """Legal sets and features equal the reference's; every token played is legal."""
    z = np.load(golden)
    kind, exclude0 = KINDS[golden.stem]
    tokens = z["token_ids"].astype(np.int32)
    values = int(z["vocab_size"]) - toy.FIRST
    inputs = outputs = int(z["max_len"]) // 2
    task = toy.ToyTask(kind, values, inputs, outputs, exclude0)
    allowed = np.asarray(toy.legal(task, jnp.asarray(tokens)))
    expected = np.unpackbits(z["legal"], axis=-1)[..., : task.vocab_size].astype(bool)
    np.testing.assert_array_equal(allowed, expected)
    found = np.asarray(toy.features(task, jnp.asarray(tokens)))
    np.testing.assert_array_equal(found, z["features"])
    assert np.take_along_axis(allowed, tokens[:, 1:, None], 2).all()
    names = tuple(str(n).replace("<", "").replace(">", "") for n in z["feature_names"])
    assert toy.feature_names(task) == names
