"""Majority: does a model read the current majority because later tokens need it?

    python -m experiments.majority                     # quick: 5 to 6 minutes on 2 cores
    python -m experiments.majority --preset paper      # the sizes of arXiv 2603.14087, 10 seeds

Four variants (standard, myopic, untied at the first output, both) learn to go on with the most
frequent token. Probes read "token v is a maximum so far" at every node; the ledger tells what the
direct, precached and shared parts of the updates built of it. Expected: standard high, myopic and
untied reduced, both lowest at the input stage (paper, section 4; `quick` decides that both lies
below standard).
"""

from pathlib import Path
from typing import Any

from experiments import toy_config, toy_page
from experiments.toy_config import Config
from experiments.toy_numbers import Contrast, input_stage
from experiments.toy_training import data_hash, read, train_variants
from jaxfeat.data import toy
from jaxfeat.run import cli, folder

PRESETS = {
    "smoke": Config(
        task=toy.ToyTask(inputs=4, outputs=2), width=8, heads=2, batch=8, steps=8, seeds=2,
        held=16, stride=2, ladder=2, log_every=4, probe_fit=64, probe_test=32, chunks=2,
        variants=("standard", "both"),
    ),
    "quick": Config(),
    "paper": Config(
        width=128, batch=256, steps=3000, seeds=10, held=1024, stride=1,
        log_every=100, ladder=6, tracked=("standard", "myopic", "untied", "both"),
        chunks=3, at_once=1,
    ),
}  # fmt: skip


def contrast(below: str, above: str, words: str) -> Contrast:
    """A claim on the features' quality at the input stage."""
    name = f"{words} at the input stage"
    return Contrast(name, below, above, input_stage, "mean r at the input stage")


CLAIMS = (
    contrast("both", "standard", "Both cuts together lie below standard"),
    contrast("myopic", "standard", "Myopic training lies below standard"),
    contrast("untied", "standard", "Untying lies below standard"),
    contrast("both", "myopic", "Both cuts together lie below myopic alone"),
    contrast("both", "untied", "Both cuts together lie below untying alone"),
)


def check(config: Config) -> None:
    """Refuse settings that cannot work before anything is written."""
    toy_config.check(config, "majority")


def main(config: Config, workdir: Path) -> dict[str, Any]:
    """Train every variant, probe, account and report; a variant that is done is not run again."""
    folder.add_provenance(workdir, data_hash=data_hash(config), analysis_precision="highest")
    train_variants(config, workdir)
    return toy_page.write(
        read(config, workdir), workdir, CLAIMS,
        title="Majority: why does the model know the current majority?",
        feature="token v is a (tied) maximum so far",
    )  # fmt: skip


if __name__ == "__main__":
    cli.main(Config, PRESETS, main, name="majority", doc=__doc__, check=check)
