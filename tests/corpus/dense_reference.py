"""The statistics written out with one-hot arrays and the softmax Jacobian, in NumPy alone."""

import numpy as np


def dense_statistics(tokens, vocab):
    """Every statistic by einsum; q out of the Jacobian of a softmax at scores 0."""
    tokens = np.asarray(tokens)
    n, length = tokens.shape[0], tokens.shape[1] - 1
    x, y = np.eye(vocab)[tokens[:, :-1]], np.eye(vocab)[tokens[:, 1:]]
    r = y - 1 / vocab
    a = np.tril(np.ones((length, length))) / np.arange(1, length + 1)[:, None]
    mean = lambda spec, *arrays: np.einsum(spec, *arrays, optimize=True) / (n * length)
    b = mean("ntv,ntw->vw", x, r)
    phi = mean("ntv,tj,njw->vw", r, a, x)
    h = b.T @ b @ phi
    g = np.einsum("ntv,vw,njw->ntj", y, h, x)
    jacobian = np.einsum("tj,jm->tjm", a, np.eye(length)) - np.einsum("tj,tm->tjm", a, a)
    q = np.einsum("tjm,ntm->ntj", jacobian, g)
    shift = [np.eye(length, k=-k) for k in range(length)]
    return {
        "unigram": mean("ntv->v", x),
        "target": mean("ntv->v", y),
        "bigram": b,
        "interchange": b.T @ b,
        "context": phi,
        "attention": mean("ntv,ntj,njw->vw", x, q, x),
        "offset": mean("ktj,ntj->k", np.stack(shift), q),
        "current": mean("tj,njv,ntw->vw", a, x, x),
        "context2": mean("ntv,tj,njw->vw", r, a @ a, x),
    }
