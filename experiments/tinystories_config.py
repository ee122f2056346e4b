"""Settings of the stories experiment, and what follows from them."""

from dataclasses import dataclass

import jax
import numpy as np

from experiments.toy_config import need
from jaxfeat.data.text import BOUNDARIES
from jaxfeat.grads.budget import fit_plan
from jaxfeat.grads.occurring import cut_tables
from jaxfeat.grads.plan import Plan, make_plan
from jaxfeat.models.gpt2 import GPT2Config, make_gpt2
from jaxfeat.run.trackers import TRACKERS

VARIANTS = ("standard", "myopic")


@dataclass(frozen=True)
class DataConfig:
    """Which stories, which tokens, which tags."""

    path: str = ""
    """Stories: a .txt, .jsonl, .parquet or .conllu file, a saved data set, or the name of a data
    set such as roneneldan/TinyStories; generated ones without any."""
    boundary: str = "auto"
    """What parts the stories of a .txt: auto, endoftext, line, blank or opening."""
    column: str = "text"
    """Column of the stories in .jsonl, .parquet and data sets."""
    stories: int = 8000
    """Stories generated, or at most taken (0: all there are)."""
    tokenizer: str = ""
    """A tokenizer.json, or a folder with one or with GPT-2's vocab.json and merges.txt; one is
    trained on the stories without any."""
    vocab: int = 2048
    """Tokens of the tokenizer that is trained."""
    tags: str = "auto"
    """Parts of speech and dependencies: gold (generated stories, .conllu), spacy, a .conllu file
    whose documents are the stories, none; auto takes gold, else spacy if installed, else none."""
    cache: str = ""
    """Folder that keeps tokens and spaCy's tags between runs; without any nothing is kept."""


@dataclass(frozen=True)
class Config:
    """Settings of the stories experiment."""

    data: DataConfig = DataConfig()
    """Stories, tokens and tags."""
    width: int = 64
    """Residual width D."""
    heads: int = 4
    """Attention heads; they divide the width."""
    layers: int = 4
    """Blocks N."""
    length: int = 64
    """Tokens of a window that are read (each predicts the next)."""
    batch: int = 32
    """Windows an update."""
    steps: int = 448
    """Updates."""
    learning_rate: float = 2e-3
    """Of Adam."""
    seeds: int = 5
    """Runs of each variant, each with its own initialisation and windows, paired by seed."""
    seed: int = 0
    """What all randomness follows from."""
    every: int = 64
    """Updates between logs and checkpoints; parameters are kept there and at powers of two."""
    stride: int = 16
    """Updates between movements (fewer where a power of two comes first)."""
    ends: str = "both"
    """Where movements are linearised: "start" of a stride or "both" ends."""
    also_sgd: bool = False
    """Track plain gradient steps on the same trajectory beside Adam's."""
    tracked: tuple[str, ...] = ("standard",)
    """Variants whose influence is told, out of standard and myopic."""
    positions: tuple[int, ...] = (31, 38)
    """Positions of the window whose nodes are tracked, at every layer from 1."""
    probed: tuple[int, ...] = (4, 16, 31, 38, 52)
    """Positions of the window that probes read, at every layer from 0."""
    held: int = 512
    """Held-out windows of the influence (at least 8 x width in earnest runs)."""
    probe_fit: int = 4096
    """Windows that probes are fitted on."""
    probe_test: int = 2048
    """Held-out windows that probes are scored on."""
    evaluated: int = 200
    """Held-out stories whose loss is measured, at most."""
    prompts: int = 128
    """Held-out stories that are continued, at most."""
    prompt: int = 32
    """Tokens of a prompt; the rest of a window is written by the model."""
    alpha: float = 1.0
    """Ridge penalty of the probes."""
    chunks: int = 1
    """Slices of columns that tracked nodes are grouped into; only speed depends on it."""
    at_once: int = 8
    """Tracked rows batched into one product; only speed and memory depend on it."""
    examples: int = 64
    """Sequences that tracking works on together; only speed and memory depend on it."""
    memory_gb: float = 4.0
    """What tracking may take beyond a plain update (GB)."""
    log: str = ""
    """Further log of the metrics: tensorboard or wandb (extras of the same names)."""


def shape_of(config: Config, vocab: int) -> GPT2Config:
    """Sizes of the model."""
    c = config
    return GPT2Config(vocab, c.length, c.width, c.heads, c.layers)


def tracked_nodes(config: Config) -> list[tuple[int, int]]:
    """The nodes whose influence is told."""
    return [(k, i) for k in range(1, config.layers + 1) for i in config.positions]


def probed_nodes(config: Config) -> list[tuple[int, int]]:
    """The nodes that probes read, layer by layer, the tracked positions among them."""
    return [(k, i) for k in range(config.layers + 1) for i in probed_positions(config)]


def probed_positions(config: Config) -> list[int]:
    """Positions that probes read."""
    return sorted({*config.probed, *config.positions})


def tracking_plan(
    config: Config, vocab: int, occurring: np.ndarray, *, myopic: bool
) -> tuple[Plan, int]:
    """The tracked nodes' plan, cut to the memory allowed; and its estimate in bytes.

    Raises:
        UserError: the memory does not suffice.
    """
    c, decoder = config, make_gpt2(shape_of(config, vocab))
    plan = make_plan(
        tracked_nodes(c), layers=c.layers, length=c.length, chunks=c.chunks, at_once=c.at_once,
        precached=not myopic, examples=c.examples,
    )  # fmt: skip
    held = lambda key: cut_tables(decoder, decoder.init(key), occurring)
    params = jax.eval_shape(held, jax.random.key(0))
    return fit_plan(
        plan, params, c.memory_gb * 1e9, batch=c.batch, held=c.held, length=c.length,
        width=c.width, hidden=4 * c.width, also_sgd=c.also_sgd,
    )  # fmt: skip


def check_settings(config: Config) -> None:
    """Refuse settings that cannot work, whatever the stories are."""
    c = config
    for name in ("width", "heads", "layers", "batch", "steps", "seeds", "every", "stride", "chunks",
                 "at_once", "examples", "prompts", "evaluated"):  # fmt: skip
        need(name, getattr(c, name) >= 1, getattr(c, name), "at least 1")
    need("length", c.length >= 4, c.length, "at least 4")
    need("heads", c.width % c.heads == 0, c.heads, f"a divisor of --width {c.width}")
    need("seed", 0 <= c.seed < 2**32, c.seed, "0..2^32 - 1")
    good = np.isfinite(c.learning_rate) and c.learning_rate > 0
    need("learning-rate", bool(good), c.learning_rate, "a finite number above 0")
    need("alpha", bool(np.isfinite(c.alpha) and c.alpha >= 0), c.alpha, "0 or more")
    need("steps", c.steps % c.every == 0, c.steps, f"a multiple of --every {c.every}")
    need("every", c.every % c.stride == 0, c.every, f"a multiple of --stride {c.stride}")
    need("ends", c.ends in ("start", "both"), c.ends, "start or both")
    good = all(name in VARIANTS for name in c.tracked) and len(set(c.tracked)) == len(c.tracked)
    need("tracked", good, c.tracked, "some of standard, myopic")
    need("held", c.held >= 2 and c.held % 2 == 0, c.held, "an even number of at least 2")
    for name in ("probe_fit", "probe_test"):
        need(name.replace("_", "-"), getattr(c, name) >= 2, getattr(c, name), "at least 2 windows")
    for name in ("positions", "probed"):
        given = getattr(c, name)
        good = bool(given) and all(1 <= i < c.length for i in given)
        need(name, good and len(set(given)) == len(given), given,
             f"distinct positions 1..{c.length - 1}")  # fmt: skip
    need("prompt", 1 <= c.prompt < c.length, c.prompt, f"1..{c.length - 1}")
    need("memory-gb", bool(np.isfinite(c.memory_gb) and c.memory_gb > 0), c.memory_gb, "above 0")
    need("log", c.log in ("", *TRACKERS), c.log, " or ".join(TRACKERS))
    need("data.boundary", c.data.boundary in BOUNDARIES, c.data.boundary, ", ".join(BOUNDARIES))
    need("data.stories", c.data.stories >= 0, c.data.stories, "0 or more")
    tags = c.data.tags
    good = tags in ("auto", "gold", "spacy", "none") or tags.lower().endswith(".conllu")
    need("data.tags", good, c.data.tags, "auto, gold, spacy, none or a .conllu file")
    need("data.stories", bool(c.data.path) or c.data.stories >= 16, c.data.stories,
         "at least 16 generated ones")  # fmt: skip
