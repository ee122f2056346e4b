"""Stories: which features of text need pre-caching, and what does a model without it write?

    python -m experiments.tinystories                 # quick: generated stories, about 15 minutes
    python -m experiments.tinystories --preset local --data.path FILE      # stories of your own
    python -m experiments.tinystories --preset paper  # the sizes of arXiv 2603.14087, a network

Small GPTs learn to continue stories, with and without the gradient that later tokens send back
(myopic). Expected (paper, section 6): myopic training costs loss; parts of speech and dependencies
are learned without pre-caching, the place in the story is not.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments import tinystories_report
from experiments.tinystories_config import (
    VARIANTS,
    Config,
    DataConfig,
    check_settings,
    probed_positions,
    tracking_plan,
)
from experiments.tinystories_data import Data, load_data, told_of
from experiments.tinystories_training import set_up, train_variants
from jaxfeat.io.tokenizer import check_vocab, load_tokenizer, save_tokenizer, tokenizer_digest
from jaxfeat.run import cli, folder
from jaxfeat.run.trackers import check_tracker_kind
from jaxfeat.types import UserError

PRESETS = {
    "smoke": Config(
        data=DataConfig(stories=64, vocab=512), width=8, heads=2, layers=2, length=16, batch=4,
        steps=8, every=4, stride=2, seeds=2, positions=(5,), probed=(5, 9), held=8, probe_fit=64,
        probe_test=64, evaluated=6, prompts=4, prompt=8,
    ),
    "quick": Config(),
    "paper": Config(
        data=DataConfig(
            path="roneneldan/TinyStories", stories=50_000, vocab=50_257, tags="spacy"
        ),
        width=128, batch=256, steps=1000, every=40, stride=20, learning_rate=1e-3, seeds=10,
        positions=tuple(range(30, 40)), probed=tuple(range(4, 64, 4)), held=1024,
        at_once=1, examples=256, memory_gb=32.0,
    ),
}  # fmt: skip
PRESETS["local"] = replace(
    PRESETS["quick"], data=DataConfig(path="stories.txt", stories=0, vocab=2048), steps=320,
)  # fmt: skip


def check(config: Config) -> None:
    """Refuse settings and stories that cannot work before anything is written."""
    check_settings(config)
    data = load_data(config.data, config.seed)
    for name, side in (("training", data.train), ("held-out", data.held_out)):
        last, longest = max(probed_positions(config)), int(np.asarray(side.size).max()) - 2
        if last > longest:
            raise UserError(
                f"--probed, --positions: {last} given, no {name} story reaches it; the longest has "
                f"{longest} tokens"
            )
    check_tracker_kind(config.log)
    if config.tracked:
        tracking_plan(config, data.vocab, data.occurring, myopic=False)


def main(config: Config, workdir: Path) -> dict[str, Any]:
    """Train both variants (one that is done is not trained again), then report."""
    data = load_data(config.data, config.seed)
    print(told_of(data), flush=True)
    _keep_tokenizer(data, workdir)
    folder.add_provenance(
        workdir, data_hash=data.texts.corpus.digest, tokenizer=data.tokens.tokenizer,
        tags=data.texts.told, analysis_precision="highest",
    )  # fmt: skip
    setup = set_up(config, data)
    train_variants(config, setup, workdir, VARIANTS)
    return tinystories_report.write(config, setup, workdir)


def _keep_tokenizer(data: Data, workdir: Path) -> None:
    """The tokenizer beside the checkpoints; one that went on with another would be nonsense.

    Raises:
        UserError: the folder holds another tokenizer or other stories.
    """
    place = workdir / "tokenizer.json"
    if not place.exists():
        save_tokenizer(place, data.tokenizer)
        return
    stored = folder.read_json(workdir / folder.PROVENANCE).get("data_hash")
    if stored not in (None, data.texts.corpus.digest):
        told = data.texts.corpus.source
        raise UserError(f"--data.path: the run in {workdir} read other stories than {told} holds")
    try:
        kept = load_tokenizer(place)
        check_vocab(kept, data.vocab)
    except UserError as error:
        raise UserError(f"--data.tokenizer: that of the run, {place}: {error}") from None
    if tokenizer_digest(kept) != data.tokens.tokenizer:
        raise UserError(f"--data.tokenizer: {place} is another tokenizer than the one given")


if __name__ == "__main__":
    cli.main(Config, PRESETS, main, name="tinystories", doc=__doc__, check=check)
