"""Which settings does the experiment on token associations have, and which of them can work?"""

import math
from dataclasses import dataclass, field

from experiments.toy_config import need
from jaxfeat.data.text import BOUNDARIES
from jaxfeat.data.words import HOW

DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True)
class DataConfig:
    """Which text is counted and descended on."""

    path: str = ""
    """Text, JSON lines, Parquet, a saved data set or one by name; "" generates stories."""
    stories: int = 4000
    """Stories to generate; of a path the most to read, 0: all."""
    column: str = "text"
    """Column of the text in Parquet, JSON lines and data sets."""
    boundary: str = "auto"
    """What parts the stories of a text file."""
    vocab: int = 500
    """Words that have an id, V (the most frequent); checkpoints have their own."""
    length: int = 32
    """Positions of a sequence, T; it has T+1 tokens."""
    how: str = "auto"
    """Sequences of whole "stories" without rare words, or "windows" with <unk>; auto chooses."""
    sequences: int = 512
    """Sequences taken at most, 0: all."""


@dataclass(frozen=True)
class Config:
    """Settings of `experiments.token_association`."""

    data: DataConfig = field(default_factory=DataConfig)
    layers: int = 3
    """Blocks, L."""
    rate: float = 0.2
    """Learning rate, eta."""
    ladder: tuple[int, ...] = (3, 5, 10, 20, 40, 80)
    """Updates after which weights are compared."""
    batch: int = 0
    """Sequences an update; 0: all of them (plain descent)."""
    at_once: int = 0
    """Sequences whose gradient is taken together, which bounds the memory; 0: all of an update."""
    statistics: str = "all"
    """Sequences that the statistics count: all of them, or the "first" batch (as in the paper)."""
    scale: float = 0.0
    """Standard deviation of the Gaussian initialisation; 0: all weights 0, as the theory asks."""
    seed: int = 0
    """Of generated stories, of the order of batches, of shuffled text."""
    words: tuple[str, ...] = ("red", "happy", "fish", "bird")
    """Words whose neighbours are shown; those without an id are named and left out."""
    top: int = 8
    """Neighbours of a word."""
    evaluated: int = 512
    """Sequences that losses and attention ranks are taken on, at most."""
    models: tuple[str, ...] = ()
    """Checkpoints that are scored in place of a descent: a ladder of experiments.tinystories, or
    folders of Hugging Face's format in the order of training. Their tokenizer cuts the text; of
    the other settings only data, seed, run and dtype apply."""
    run: int = 0
    """Which of a ladder's runs, from 0."""
    dtype: str = "float32"
    """Of the parameters of folders: float32 or bfloat16."""


def check_settings(config: Config) -> None:
    """Refuse settings that cannot work, whatever the text is."""
    c, d = config, config.data
    for name, least in (("layers", 1), ("seed", 0), ("batch", 0), ("at_once", 0), ("top", 1),
                        ("evaluated", 1)):  # fmt: skip
        need(name, getattr(c, name) >= least, getattr(c, name), f"at least {least}")
    need("seed", c.seed < 2**32, c.seed, "0..2^32 - 1")
    need("rate", math.isfinite(c.rate) and c.rate > 0, c.rate, "a finite number above 0")
    need("scale", math.isfinite(c.scale) and c.scale >= 0, c.scale, "a finite number, 0 or more")
    rising = all(a < b for a, b in zip(c.ladder, c.ladder[1:]))
    need("ladder", bool(c.ladder) and c.ladder[0] >= 1 and rising, c.ladder,
         "rising numbers of updates from 1 on")  # fmt: skip
    need("statistics", c.statistics in ("all", "first"), c.statistics, "all or first")
    need("statistics", c.statistics == "all" or c.batch > 0, c.statistics, "all without --batch")
    need("at_once", c.at_once <= c.batch or not c.batch, c.at_once, f"0..{c.batch}, --batch")
    for name, least in (("stories", 0), ("vocab", 2), ("length", 2), ("sequences", 0)):
        need(f"data.{name}", getattr(d, name) >= least, getattr(d, name), f"at least {least}")
    need("run", c.run >= 0, c.run, "0 or more")
    need("dtype", c.dtype in DTYPES, c.dtype, " or ".join(DTYPES))
    need("data.stories", bool(d.path) or d.stories >= 16, d.stories, "at least 16 generated ones")
    need("data.how", d.how in HOW, d.how, ", ".join(HOW))
    need("data.boundary", d.boundary in BOUNDARIES, d.boundary, ", ".join(BOUNDARIES))
