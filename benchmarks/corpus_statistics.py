"""How long do the statistics of a text take, against the einsum form, and in how much memory?

    python -m benchmarks.corpus_statistics                   # V 3,000, T 200, a million tokens
    python -m benchmarks.corpus_statistics --preset smoke

A generated corpus (Zipf's law, independent draws) is counted whole and by a quarter: memory must
not follow its size. The einsum form, one-hot arrays and the softmax Jacobian of arXiv 2601.19208 as
they are written, is compiled too and runs at a size where it fits; the ratio is taken there.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import harness
from benchmarks.large_vocabulary import Config as Corpus
from benchmarks.large_vocabulary import zipf_tokens
from jaxfeat.corpus.statistics import corpus_statistics
from jaxfeat.report.tables import text_table
from jaxfeat.run import cli
from jaxfeat.types import Array, check_whole


@dataclass(frozen=True)
class Config:
    """Sizes of the corpus, and of the smaller one for the einsum form."""

    vocab: int = 3000
    """Token ids V."""
    tokens: int = 1_000_000
    """Inputs of the corpus, cut into sequences."""
    length: int = 200
    """Inputs T of a sequence."""
    einsum_vocab: int = 500
    """V where the einsum form fits."""
    einsum_sequences: int = 512
    """Sequences there."""
    repeats: int = 5
    """Times that both forms run there."""
    seed: int = 0
    """What the corpus follows from."""


PRESETS = {
    "paper": Config(),
    "smoke": Config(vocab=30, tokens=400, length=8, einsum_vocab=20, einsum_sequences=4, repeats=1),
}


def dense_form(tokens: Array, vocab: int) -> tuple[Array, ...]:
    """B, S_B, Phi, Q, Delta, Cur, Phi2 by einsum, with arrays [N, T, V] and [T, T, T], float64."""
    n, length = tokens.shape[0], tokens.shape[1] - 1
    x, y = (jax.nn.one_hot(t, vocab, dtype=jnp.float64) for t in (tokens[:, :-1], tokens[:, 1:]))
    r = y - 1 / vocab
    a = jnp.asarray(np.tril(np.ones((length, length))) / np.arange(1, length + 1)[:, None])
    mean = lambda spec, *arrays: jnp.einsum(spec, *arrays) / (n * length)
    ax = jnp.einsum("tj,njv->ntv", a, x)
    b, phi = mean("ntv,ntw->vw", x, r), mean("ntv,ntw->vw", r, ax)
    square = b.T @ b
    g = jnp.einsum("ntv,njv->ntj", y @ (square @ phi), x)
    jacobian = jnp.einsum("tj,jm->tjm", a, jnp.eye(length)) - jnp.einsum("tj,tm->tjm", a, a)
    q = jnp.einsum("tjm,ntm->ntj", jacobian, g)
    attention = mean("ntv,ntw->vw", x, jnp.einsum("ntj,njv->ntv", q, x))
    shift = jnp.asarray(np.stack([np.eye(length, k=-k) for k in range(length)]))
    return (b, square, phi, attention, mean("ktj,ntj->k", shift, q), mean("ntv,ntw->vw", ax, x),
            mean("ntv,ntw->vw", r, jnp.einsum("tj,njv->ntv", a @ a, x)))  # fmt: skip


def measure_all(preset: str, config: Config) -> dict:
    """Time both forms, print the table; the figures as a dict."""
    c = config
    for name in ("vocab", "tokens", "length", "einsum_vocab", "einsum_sequences", "repeats"):
        check_whole(f"--{name.replace('_', '-')}", getattr(c, name), 1)
    tokens = zipf_tokens(Corpus(c.vocab, c.tokens, c.length, seed=c.seed))
    count = lambda some, vocab: harness.Program(lambda: corpus_statistics(some, vocab), 0.0)
    whole, quarter = count(tokens, c.vocab), count(tokens[: max(1, len(tokens) // 4)], c.vocab)
    warm = harness.interleave({"whole": whole, "quarter": quarter}, 1)
    peak, peak_quarter = harness.peak_memory(whole), harness.peak_memory(quarter)
    few = zipf_tokens(Corpus(c.einsum_vocab, c.einsum_sequences * c.length, c.length, seed=c.seed))
    with jax.enable_x64(True):
        held = jnp.asarray(few)
        dense = harness.compile_program(lambda t: dense_form(t, c.einsum_vocab), held)
        times = harness.interleave({"dense": dense, "ours": count(few, c.einsum_vocab)}, c.repeats)
    size = tokens.shape[0] * c.length
    per_million = warm["whole"][0] * 1e6 / size
    speedup = harness.ratio(times["dense"], times["ours"])
    rows = [
        ("whole corpus", size, f"{warm['whole'][0]:.2f}", f"{peak / 1e9:.2f}"),
        ("a quarter", size // 4, f"{warm['quarter'][0]:.2f}", f"{peak_quarter / 1e9:.2f}"),
        ("einsum form", few.shape[0] * c.length, f"{np.median(times['dense']):.3f}", "-"),
        ("ours there", few.shape[0] * c.length, f"{np.median(times['ours']):.3f}", "-"),
    ]
    print(text_table(rows, ("what", "tokens", "seconds", "peak GB of the process")))
    return {
        "preset": preset,
        "device": jax.devices()[0].device_kind,
        "precision": "float64",
        "vocab": c.vocab,
        "length": c.length,
        "tokens": size,
        "seconds_per_million_tokens": per_million,
        "speedup": speedup,
        "peak_memory_bytes": peak,
        "peak_memory_bytes_quarter": peak_quarter,
        "seconds_einsum": list(harness.spread(times["dense"])),
        "seconds_ours": list(harness.spread(times["ours"])),
    }


if __name__ == "__main__":
    cli.benchmark(Config, PRESETS, measure_all, name="corpus_statistics", doc=__doc__)
