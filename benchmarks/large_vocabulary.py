"""How long do scores of a pretrained model take at V = 50,000, and in how much memory?

    python -m benchmarks.large_vocabulary                    # about 5 minutes on 2 quiet cores
    python -m benchmarks.large_vocabulary --preset reduced   # V = 8,000: half a minute

The maps `Phi^T B^T` and Q of a generated corpus (Zipf's law, independent draws), with the norms of
their covariances, and the scores of every block of a GPT-NeoX with random weights against them,
all in float32 with exact traces. A V x V matrix of float32 would take 10 GB; the process stays
below 8. Dense products of blocks alone would need n^2 V multiply-adds a map (n tokens that occur).
"""

import time
from dataclasses import dataclass

import jax
import numpy as np

from benchmarks import harness
from jaxfeat.corpus.large_maps import attention_map, value_map
from jaxfeat.corpus.pretrained_scores import SCORES, Theories, score_model
from jaxfeat.corpus.products import make_corpus
from jaxfeat.models.gpt_neox import GptNeoxConfig, make_gpt_neox
from jaxfeat.report.tables import text_table
from jaxfeat.run import cli
from jaxfeat.types import check_whole


@dataclass(frozen=True)
class Config:
    """Sizes of the corpus and of the model."""

    vocab: int = 50_000
    """Token ids V."""
    tokens: int = 1_000_000
    """Tokens of the corpus, cut into sequences."""
    length: int = 128
    """Inputs T of a sequence."""
    width: int = 512
    """Residual width D."""
    heads: int = 8
    """Attention heads."""
    layers: int = 6
    """Blocks N."""
    batch: int = 2048
    """Tokens that the model reads at once."""
    seed: int = 0
    """What corpus and weights follow from."""


PRESETS = {
    "pythia": Config(),
    "reduced": Config(vocab=8_000, tokens=160_000),
    "smoke": Config(vocab=200, tokens=2_000, length=16, width=16, heads=2, layers=2, batch=64),
}


def zipf_tokens(config: Config) -> np.ndarray:
    """`[N, T+1]` independent draws, the id r with a probability in proportion to 1 / (r + 1)."""
    c = config
    count = max(1, c.tokens // c.length)
    share = 1 / np.arange(1, c.vocab + 1)
    draws = np.random.default_rng(c.seed).random((count, c.length + 1))
    found = np.searchsorted(np.cumsum(share / share.sum()), draws)
    return np.minimum(found, c.vocab - 1).astype(np.int32)


def dense_multiplications(config: Config, rows: int) -> float:
    """Multiply-adds of the covariance of a map by dense products, of which half suffices."""
    return float(rows) ** 2 * config.vocab / 2


def measure_all(preset: str, config: Config) -> dict:
    """Make the maps, score the model, print the table; the figures as a dict."""
    c = config
    for name in ("vocab", "tokens", "length", "layers", "batch"):
        check_whole(f"--{name}", getattr(c, name), 1)
    sizes = GptNeoxConfig(c.vocab, c.width, c.heads, c.layers, 4 * c.width)
    decoder = make_gpt_neox(sizes)
    tokens, rows, found = zipf_tokens(c), [], {}

    def timed(name, call):
        start = time.perf_counter()
        found[name] = call()
        seconds = time.perf_counter() - start
        rows.append((name, f"{seconds:.1f}"))
        print(f"{name}: {seconds:.1f} s", flush=True)
        return seconds

    def run() -> None:
        corpus = lambda: make_corpus(tokens, c.vocab, dtype="float32")
        seconds["corpus"] = timed("corpus", corpus)
        seconds["value"] = timed("Phi^T B^T", lambda: value_map(found["corpus"]))
        seconds["attention"] = timed("Q", lambda: attention_map(found["corpus"]))
        params = jax.jit(decoder.init)(jax.random.key(c.seed))
        theories = {"text": Theories(c.vocab, found["Phi^T B^T"], found["Q"])}
        score = lambda: score_model(decoder, params, theories, batch=c.batch)["text"]
        seconds["model"] = timed("scores of the model", score)

    seconds: dict[str, float] = {}
    peak = harness.peak_memory(harness.Program(run, 0.0))
    print(text_table(rows, ("part", "seconds")))
    value, scores = found["Phi^T B^T"], found["scores of the model"]
    maps = seconds["corpus"] + seconds["value"] + seconds["attention"]
    work = 2 * dense_multiplications(c, len(value.rows))
    return {
        "preset": preset,
        "device": jax.devices()[0].device_kind,
        "precision": "float32",
        "vocab": c.vocab,
        "tokens": tokens.shape[0] * c.length,
        "length": c.length,
        "width": c.width,
        "layers": c.layers,
        "rows": len(value.rows),
        "rows_attention": len(found["Q"].rows),
        "seconds_maps": maps,
        "seconds_value_map": seconds["value"],
        "seconds_attention_map": seconds["attention"],
        "seconds_model": seconds["model"],
        "seconds": maps + seconds["model"],
        "dense_multiply_adds": work,
        "peak_memory_bytes": peak,
        **{f"mean_{name}": float(scores[name][0].mean()) for name in SCORES},
        **{f"mean_{name}_beyond": float(scores[name][1].mean()) for name in SCORES},
    }


if __name__ == "__main__":
    cli.benchmark(Config, PRESETS, measure_all, name="large_vocabulary", doc=__doc__)
