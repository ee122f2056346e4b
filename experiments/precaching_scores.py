"""Pre-caching scores: which features of a language model serve later tokens, and is the score true?

    python -m experiments.precaching_scores                  # quick: 22 minutes of one core
    python -m experiments.precaching_scores --preset gemma3  # 49, and the extra "gemma3"
    python -m experiments.precaching_scores --preset gemma2 --model.sae FOLDER   # on a GPU

Q(w) compares what ablating a feature does to later predictions with what it does to the next one
(arXiv 2603.14087, section 5). Expected there: Q spreads more among features of formal reasoning,
features of low Q lie in what a look-ahead mapper reads. `quick` takes planted features and asks
on models trained here whether Q tells which part of the gradient built a feature, which the paper
leaves open.
"""

from pathlib import Path
from typing import Any

import numpy as np

from experiments import precaching_validation as validation
from experiments.planted_scores import Known, measure_planted
from experiments.precaching_config import RANDOM, Config, ModelConfig, check_settings
from experiments.precaching_figures import model_figures, planted_figures
from experiments.precaching_model import open_subject, told_of
from experiments.precaching_numbers import Found, read, shares, statements
from experiments.precaching_stages import STAGES, measure
from experiments.precaching_tables import model_tables, planted_table, write_tables
from jaxfeat.io.arrays import load_arrays, save_arrays
from jaxfeat.report import page
from jaxfeat.report.claims import decide
from jaxfeat.report.tables import format_number
from jaxfeat.run import cli, folder
from jaxfeat.run.progress import progress
from jaxfeat.run.results import publish

PRESETS = {
    "smoke": Config(
        model=ModelConfig(
            name=RANDOM, layer=2, documents=24, windows=12, held=6, length=24, at_once=4,
            features=48, k=4, sae_steps=30, sae_batch=64, measured=8, contexts=3, least=2, span=4,
            distance=2, cutoff=0.0, places=12, draws=2, entries=2**18, ahead=2, ahead_steps=4,
            steered=2, prompts=2, prompt=8, written=4,
        ),
        planted=2, validate=False,
    ),
    "quick": Config(),
    "gemma3": Config(model=ModelConfig(name="gemma3-270m"), planted=0, validate=False),
    "gemma2": Config(
        model=ModelConfig(
            name="google/gemma-2-2b", layer=16, sae="layer_15/width_16k/average_l0_78",
            documents=2000, windows=2000, held=100, measured=0, contexts=10, places=4000,
            ahead_steps=2000, ahead_batch=8, steered=40, prompts=32, pack=64, entries=2**28,
        ),
        validate=False,
    ),
}  # fmt: skip


def main(config: Config, workdir: Path) -> dict[str, Any]:
    """Planted features, a model's features, validation: what is asked for; then the page."""
    folder.add_provenance(workdir, analysis_precision="highest")
    known = _planted(config, workdir) if config.planted else None
    found = _model(config, workdir) if config.model.name else None
    checked = None
    if config.validate:
        validation.run(config.validation, config.seed, workdir, config.models)
        checked = validation.read(config.validation, workdir)
    asked = [*(statements(found) if found else []),
             *(validation.statements(checked) if checked else [])]  # fmt: skip
    claims, numbers = decide(asked)
    figures = [*(model_figures(found) if found else []),
               *(validation.figures(checked) if checked else []),
               *(planted_figures(known) if known else [])]  # fmt: skip
    tables = [*(model_tables(found) if found else []),
              *(validation.tables(checked) if checked else []),
              *([planted_table(known)] if known else [])]  # fmt: skip
    if found:
        write_tables(found, workdir)
    words = [*([_told(found)] if found else []), *([validation.told(checked)] if checked else []),
             *([_told_planted(known)] if known else [])]  # fmt: skip
    main_numbers: dict[str, Any] = {"statistics": numbers}
    if found:
        main_numbers["model"] = shares(found)
    if known:
        main_numbers["planted"] = {name: x.tolist() for name, x in known._asdict().items()}
    return publish(
        workdir, title="Which features serve later tokens, and does their score tell the truth?",
        summary="\n\n".join(words), claims=claims, figures=page.save_pictures(workdir, figures),
        tables=tables, config=config, numbers=main_numbers,
    )  # fmt: skip


def _planted(config: Config, workdir: Path) -> Known:
    """The hand-built model."""
    place = workdir / "planted.npz"
    if not place.exists():
        save_arrays(place, measure_planted(config.seed, config.planted)._asdict())
    return Known(**load_arrays(place))


def _model(config: Config, workdir: Path) -> Found:
    """Every stage of the model's features."""
    subject = open_subject(config.model, config.seed)
    print(told_of(subject), flush=True)
    model = subject.model
    folder.add_provenance(
        workdir, data_hash=subject.corpus.digest, model=model.source, model_hash=model.digest,
        model_revision=model.revision, text_generated=list(subject.corpus.generated),
    )  # fmt: skip
    with progress(len(STAGES), "score", every=1) as shown:
        measured = measure(config.model, config.seed, subject, workdir, shown)
    return read(config.model, subject, measured)


def _told(found: Found) -> str:
    """What the model's features are, in plain words."""
    c, scores, facts = found.config, found.scores, found.measured.facts
    fact, back = facts["facts"], facts["recovered"]
    q = scores.q[found.good]
    words = [
        f"{told_of(found.subject)}. The residual at layer {c.layer} is read by "
        f"{found.measured.sae.w_dec.shape[0]:,} features, an SAE "
        f"{'trained here' if facts['trained'] else 'read from ' + c.sae}: explained variance "
        f"{fact['explained']:.3f}, L0 {fact['l0']:.1f}, dead {fact['dead']:.1%}, recovered loss "
        f"{format_number(back['share'])} (held-out windows).",
        f"{len(found.chosen)} of {int(found.measured.effects['usable'])} features with {c.least} "
        f"contexts or more were ablated in up to {c.contexts} contexts each; "
        f"{int(scores.kept.sum())} have a mean total KL above {c.cutoff} nats.",
    ]
    if len(q):
        low, middle, high = (float(x) for x in np.percentile(q, [5, 50, 95]))
        words.append(
            f"Their Q is {middle:.2g} in the middle and {low:.2g} to {high:.2g} from 5 to 95 % "
            "(Gemma 2 2B, authors' published rows: about .52, .10 to 10)."
        )
    return " ".join(words)


def _told_planted(known: Known) -> str:
    """That known scores are found."""
    inner = slice(1, -1)
    worst = float(abs(known.measured[inner] / known.known[inner] - 1).max())
    return (
        "In a model built by hand the scores are known: a direct feature has Q "
        f"{known.measured[0]:.2g}, a pre-cached one {known.measured[-1]:.3g}, and the largest "
        f"relative difference between measured and known Q is {worst:.1g}."
    )


def check(config: Config) -> None:
    """Refuse settings, models, SAEs and texts that cannot work before anything is written."""
    check_settings(config)
    if config.model.name:
        open_subject(config.model, config.seed)


if __name__ == "__main__":
    cli.main(Config, PRESETS, main, name="precaching_scores", doc=__doc__, check=check)
