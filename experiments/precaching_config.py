"""Settings of the experiment on pre-caching scores."""

from dataclasses import dataclass, field

import numpy as np

from experiments.precaching_validation import ValidationConfig
from experiments.precaching_validation import check as check_validation
from experiments.toy_config import need
from jaxfeat.features.sampled import KINDS
from jaxfeat.types import UserError

RANDOM = "random"  # the name of a tiny random Gemma
DTYPES = ("float32", "bfloat16", "float16")
MOST = 2**20  # features of an SAE, tokens of a window


@dataclass(frozen=True)
class ModelConfig:
    """Which model, which features, which text."""

    name: str = ""
    """Model that is scored: a folder, a .gguf, gemma3-270m, smollm2-135m or a name of the hub;
    random is a tiny random Gemma; none without a name."""
    dtype: str = "float32"
    """Of parameters and computation."""
    layer: int = 9
    """Layer k whose residual is read: after block k (resid_post of 0-based block k - 1)."""
    sae: str = ""
    """SAE: a params.npz of Gemma Scope or a folder of SAELens' kind; one is trained without."""
    code: tuple[str, ...] = ()
    """Files or folders of code; by default the standard library of the Python that runs."""
    maths: tuple[str, ...] = ()
    """Files or folders of mathematics; by default GENERATED worked lines."""
    prose: tuple[str, ...] = ()
    """Files or folders of prose; by default docstrings and topics of the standard library."""
    documents: int = 400
    """Documents of each domain, at most."""
    windows: int = 400
    """Windows of each domain that features are looked for in."""
    held: int = 8
    """Held-out windows of each domain, of other documents."""
    length: int = 128
    """Tokens of a window, the beginning marker included."""
    at_once: int = 8
    """Windows that are read together; only speed and memory depend on it."""
    features: int = 2048
    """Features M of an SAE that is trained."""
    k: int = 32
    """Active features at a position of an SAE that is trained."""
    sae_steps: int = 1000
    """Updates of an SAE that is trained."""
    sae_batch: int = 2048
    """Positions an update."""
    measured: int = 300
    """Features that are ablated, drawn among those with contexts enough (0: all of them)."""
    contexts: int = 8
    """Contexts a feature, those in which it is most active."""
    least: int = 5
    """Contexts below which a feature is left out."""
    span: int = 10
    """Predictions that an ablation is looked at, the ablated token's own included."""
    distance: int = 10
    """Contexts of a feature differ by more than so many tokens (edit distance)."""
    cutoff: float = 0.05
    """Features are dropped whose mean total KL is at most this (nats)."""
    places: int = 300
    """Contexts whose cotangents are sampled, for the scores of all features at once."""
    draws: int = 16
    """Random vectors drawn at each of them."""
    kind: str = "signs"
    """What is drawn: signs or labels."""
    pack: int = 8
    """Ablations of a sequence that run side by side; only speed and memory depend on it."""
    entries: int = 2**25
    """Logits that are held together; only speed and memory depend on it."""
    ahead: int = 5
    """Look-ahead mappers are trained for the tokens 1 .. ahead places on."""
    ahead_steps: int = 40
    """Updates of the mappers."""
    ahead_batch: int = 2
    """Windows an update."""
    steered: int = 10
    """Features at either end of Q that steer (0: none)."""
    prompts: int = 8
    """Held-out prompts that are continued."""
    prompt: int = 16
    """Tokens of a prompt."""
    written: int = 20
    """Tokens written after it."""
    strength: float = 1.0
    """What is added while steering, in units of the feature's largest activation."""


@dataclass(frozen=True)
class Config:
    """Settings of the experiment on pre-caching scores."""

    model: ModelConfig = ModelConfig()
    """Model, features and text whose scores are told."""
    planted: int = 16
    """Sequences of the hand-built model whose scores are known (0: it is left out)."""
    validate: bool = True
    """Compare Q with the integrated influence on models that are trained here."""
    models: tuple[str, ...] = ()
    """Finished result folders of experiments.othello and experiments.tinystories, at most one of
    each, whose models are read for that instead of training any."""
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    """Those models."""
    seed: int = 0
    """What all randomness follows from."""


def check_settings(config: Config) -> None:
    """Refuse settings that cannot work, whatever model and text are."""
    m = config.model
    need("seed", 0 <= config.seed < 2**32, config.seed, "0..2^32 - 1")
    need("planted", config.planted >= 0, config.planted, "0 or more")
    good = bool(m.name) or config.validate or config.planted > 0
    need("model.name", good, m.name, "a model, or --planted or --validate")
    for name in ("documents", "windows", "held", "at_once", "features", "sae_steps", "sae_batch",
                 "contexts", "least", "places", "draws", "pack", "entries", "ahead", "ahead_steps",
                 "ahead_batch", "prompts", "written"):  # fmt: skip
        need(f"model.{name}", getattr(m, name) >= 1, getattr(m, name), "at least 1")
    need("model.dtype", m.dtype in DTYPES, m.dtype, " or ".join(DTYPES))
    if m.name == RANDOM:
        need("model.dtype", m.dtype == "float32", m.dtype, "float32 with --model.name random")
    need("model.features", m.features <= MOST, m.features, f"1..{MOST}")
    need("model.length", m.length <= MOST, m.length, f"4..{MOST}")
    need("model.k", 1 <= m.k <= m.features, m.k, f"1..{m.features}, the features")
    need("model.layer", m.layer >= 0, m.layer, "0 or more")
    need("model.length", m.length >= 4, m.length, "at least 4")
    need("model.span", 2 <= m.span < m.length, m.span, f"2..{m.length - 1}")
    need("model.least", m.least <= m.contexts, m.least, f"1..{m.contexts}, the contexts")
    need("model.prompt", 1 <= m.prompt <= m.length, m.prompt, f"1..{m.length}")
    for name in ("measured", "steered", "distance"):
        need(f"model.{name}", getattr(m, name) >= 0, getattr(m, name), "0 or more")
    need("model.prompts", m.prompts <= 3 * m.held, m.prompts, f"1..{3 * m.held}, the held windows")
    need("model.kind", m.kind in KINDS, m.kind, " or ".join(KINDS))
    need("model.cutoff", bool(np.isfinite(m.cutoff) and m.cutoff >= 0), m.cutoff, "0 or more")
    need("model.strength", bool(np.isfinite(m.strength)), m.strength, "a finite number")
    if config.models:
        need("models", config.validate, config.models, "none with --no-validate")
    if config.validate:
        try:
            check_validation(config.validation, config.models)
        except UserError as error:
            told = str(error)
            if not told.startswith("--models"):
                told = f"--validation.{told.removeprefix('--')}"
            raise UserError(told) from None
