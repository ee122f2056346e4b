"""B, Phi and Q with one-hot arrays, and rows as the theory's covariances take them."""

import numpy as np


def dense(tokens, vocab):
    """B, Phi and Q with one-hot arrays."""
    n, length = tokens.shape[0], tokens.shape[1] - 1
    x, y = np.eye(vocab)[tokens[:, :-1]], np.eye(vocab)[tokens[:, 1:]]
    early = np.tril(np.ones((length, length))) / np.arange(1, length + 1)[:, None]
    b = np.einsum("ntv,ntw->vw", x, y - 1 / vocab) / (n * length)
    phi = np.einsum("ntv,tj,njw->vw", y - 1 / vocab, early, x) / (n * length)
    g = y @ (b.T @ b @ phi) @ x.transpose(0, 2, 1)
    q = early * (g - np.sum(early * g, axis=-1, keepdims=True))
    return b, phi, np.einsum("ntv,ntj,njw->vw", x, q, x) / (n * length)


def unit_rows(k):
    """Rows that are not zero, at unit norm, centred."""
    norm = np.linalg.norm(k, axis=1)
    rows = np.flatnonzero(norm > 1e-15)
    k = k[rows] / norm[rows, None]
    return rows, k - k.mean(axis=1, keepdims=True)
