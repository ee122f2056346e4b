"""Token association: do first weights follow a closed form of the text, and for how long?

    python -m experiments.token_association                  # quick: generated stories
    python -m experiments.token_association --preset local --data.path FILE   # stories of your own
    python -m experiments.token_association --preset paper   # full size, on a GPU
    python -m experiments.token_association --preset checkpoints --models FOLDER...

An attention-only model of one-hot tokens descends from zero weights. Expected (arXiv 2601.19208,
sections 4 and 5): early on each weight is a composition of three statistics of the text, with
cosines above .99 in all blocks, and attention goes to tokens that foretell the next one.
`checkpoints` asks the same of revisions of one model: a ladder that `experiments.tinystories` left,
or folders such as Pythia's.
"""

import hashlib
from pathlib import Path
from typing import Any

from experiments.token_association_config import Config, DataConfig, check_settings
from experiments.token_association_data import load_data, make_maps
from experiments.token_association_figures import all_figures
from experiments.token_association_maps import report
from experiments.token_association_measures import Found, measure
from experiments.token_association_numbers import claims, ending, numbers
from experiments.token_association_revisions import open_subject
from experiments.token_association_tables import all_tables, write_tables
from experiments.token_association_training import descend, first_rows
from jaxfeat.report import page
from jaxfeat.run import cli, folder
from jaxfeat.run.progress import progress
from jaxfeat.run.results import publish
from jaxfeat.types import UserError

PRESETS = {
    "smoke": Config(
        data=DataConfig(stories=60, vocab=40, length=6, sequences=24), layers=2,
        ladder=(2, 4, 6), words=("the", "fish"), evaluated=12, top=3,
    ),
    "quick": Config(words=("lived", "morning", "friends", "named")),
    "local": Config(
        data=DataConfig(path="stories.txt", stories=0, vocab=1000, length=64, sequences=128),
        evaluated=128,
    ),
    "paper": Config(
        data=DataConfig(
            path="roneneldan/TinyStories", stories=0, vocab=3000, length=200, how="stories",
            sequences=65_536,
        ),
        rate=0.05, ladder=(20, 100, 320, 960, 1600, 3200), batch=2048, at_once=256,
        statistics="first", evaluated=256,
    ),
    "checkpoints": Config(
        data=DataConfig(length=128, sequences=0), models=("runs/tinystories-quick",),
    ),
}  # fmt: skip


def check(config: Config) -> None:
    """Refuse settings and texts that cannot work before anything is written."""
    check_settings(config)
    if config.models:
        open_subject(config)
        return
    data = load_data(config.data, config.seed)
    if config.batch > len(data.tokens):
        raise UserError(f"--batch: {config.batch} given, the text has {len(data.tokens)} sequences")
    if config.at_once and (config.batch or len(data.tokens)) % config.at_once:
        raise UserError(
            f"--at-once: {config.at_once} given, a divisor of {config.batch or len(data.tokens)} "
            "needed, the sequences of an update"
        )


def main(config: Config, workdir: Path) -> dict[str, Any]:
    """Descend to the last rung, or score checkpoints (what is kept is not made again); report."""
    if config.models:
        return report(config, open_subject(config), workdir)
    data = load_data(config.data, config.seed)
    print(data.told, flush=True)
    digest = hashlib.sha256(data.tokens.tobytes()).hexdigest()
    held = folder.read_json(workdir / folder.PROVENANCE).get("data_hash")
    if held not in (None, digest):
        raise UserError(f"--data.path: the run in {workdir} descended on other sequences")
    folder.add_provenance(workdir, data_hash=digest, text=data.told, analysis_precision="highest")
    descend(config, data.tokens, workdir)
    maps = make_maps(config, data.tokens[first_rows(config, len(data.tokens))])
    with progress(len(config.ladder), "measure") as shown:
        found = measure(config, data, maps, workdir, shown)
    write_tables(found, workdir)
    return publish(
        workdir, title="Do first weights follow the closed form of their text?",
        summary=_summary(found), claims=claims(found),
        figures=page.save_pictures(workdir, all_figures(found)), tables=all_tables(found),
        config=config, numbers=numbers(found),
    )  # fmt: skip


def _summary(found: Found) -> str:
    """What was done, where theory ends and why."""
    c, d = found.config, found.config.data
    words = [
        f"{found.data.told}. {c.layers} blocks of attention over {d.vocab:,} one-hot words and "
        f"{d.length} positions descend from {'zero' if not c.scale else 'Gaussian'} weights at "
        f"rate {c.rate:g}, {f'{c.batch:,} sequences' if c.batch else 'all sequences'} an update.",
        ending(found),
    ]
    if absent := [w for w in c.words if w not in found.data.words.names]:
        words.append(f"Without an id, so without neighbours: {', '.join(absent)}.")
    return "\n\n".join(words)


if __name__ == "__main__":
    cli.main(Config, PRESETS, main, name="token_association", doc=__doc__, check=check)
