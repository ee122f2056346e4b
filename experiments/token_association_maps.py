"""What do the scores of checkpoints come to: claims, heat maps of layer and checkpoint, tables?"""

from pathlib import Path
from typing import Any

import numpy as np

from experiments.token_association_config import Config
from experiments.token_association_revisions import CONTROL, FORMS, TEXT, Subject, measure
from jaxfeat.corpus.pretrained_scores import SCORES, Scores
from jaxfeat.io.parquet import write_table
from jaxfeat.report import figures as draw
from jaxfeat.report import page
from jaxfeat.report.page import Claim
from jaxfeat.report.tables import Table
from jaxfeat.run.results import publish

TITLES = {
    "post": "E_post and Phi^T B^T",
    "attn": "E_attn and Phi^T B^T",
    "attention": "mean over heads and Q",
}
EMBEDDING, ATTENTION = "post", "attention"
SCALE = "cosine of covariances"
BEYOND = (
    "Do checkpoints look like the leading terms of the text? Cosine of covariances by block and "
    "checkpoint, without the all-ones matrix; below, the same against the text in random order: "
    "what rests on token shares alone."
)
RAW = (
    "The same as the paper takes it, with the all-ones matrix left in. It tells nothing of the "
    "text wherever shuffled text scores as high."
)
HEADS = "Every head against Q, without the all-ones matrix: a row a head, from the first block up."
CURVES = "Mean over blocks: the text, and the text in random order."


def report(config: Config, subject: Subject, workdir: Path) -> dict[str, Any]:
    """Score every checkpoint, then write tables, pictures and the page."""
    scores = measure(config, subject, workdir)
    _write(scores, workdir)
    first = subject.checkpoints[0]
    summary = (
        f"{len(scores.names)} checkpoints of a model of {blocks(scores)} blocks and "
        f"{first.sizes.vocab:,} tokens, from {scores.names[0]} to {scores.names[-1]}. "
        f"{subject.told}. Every token is read alone; the covariances of what blocks make of it "
        "are compared with those of the closed form."
    )
    figures = [
        (_maps(scores, "beyond"), "scores", BEYOND),
        (_curves(scores), "over_training", CURVES),
        (_maps(scores, "cosine"), "scores_raw", RAW),
        (_heads(scores), "heads", HEADS),
    ]
    return publish(
        workdir, title="Do checkpoints look like the leading terms of a text?", summary=summary,
        claims=claims(scores), figures=page.save_pictures(workdir, figures),
        tables=[_means(scores), _blocks(scores), _left_out(scores)], config=config,
        numbers=numbers(scores),
    )  # fmt: skip


def blocks(scores: Scores) -> int:
    """Blocks of the model."""
    return scores.beyond[TEXT][EMBEDDING].shape[1]


def best(scores: Scores, score: str) -> int:
    """The checkpoint at which the mean over blocks agrees best with the text."""
    return int(np.argmax(_known(scores, score).mean(axis=1)))


def peaks(scores: Scores, score: str) -> np.ndarray:
    """`[N]` the checkpoint at which each block agrees best."""
    return np.argmax(_known(scores, score), axis=0)


def _known(scores: Scores, score: str) -> np.ndarray:
    """`[C, N]` agreement with the text; -1 where a model has nothing but the all-ones matrix."""
    return np.nan_to_num(scores.beyond[TEXT][score], nan=-1.0)


def claims(scores: Scores) -> list[Claim]:
    """What the paper says of such checkpoints; exact numbers of one model, without intervals."""
    made = [
        _follows(scores, EMBEDDING, "Embeddings follow the text in every block", 0),
        _follows(scores, ATTENTION, "Attention follows the text in every block but the first", 1),
    ]
    made.append(_drifts(scores, EMBEDDING, "Embeddings agree early and drift with training"))
    made.append(_drifts(scores, ATTENTION, "Attention agrees early and drifts with training"))
    made.append(_in_order(scores))
    return made


def _follows(scores: Scores, score: str, name: str, first: int) -> Claim:
    """Is every block, from `first` on, nearer to the text than to its shuffled control?"""
    at = best(scores, score)
    own, control = (scores.beyond[t][score][at, first:] for t in (TEXT, CONTROL))
    if not len(own):
        return Claim(name, "undecided", "The model has one block.")
    if not np.isfinite(own - control).all():
        return Claim(name, "undecided", "Of a map nothing is left without the all-ones matrix.")
    worst = int(np.argmin(own - control))
    words = (
        f"At {scores.names[at]}, where the mean over blocks is highest, the cosine is "
        f"{own.min():.3f} to {own.max():.3f}; the least lead over the text in random order is "
        f"{(own - control)[worst]:.3f}, in block {worst + first + 1}."
    )
    return Claim(name, "holds" if own[worst] > control[worst] else "does not hold", words)


def _drifts(scores: Scores, score: str, name: str) -> Claim:
    """Is the best checkpoint one before the last?"""
    if len(scores.names) < 3:
        return Claim(name, "undecided", "Three checkpoints or more are needed.")
    mean, at = _known(scores, score).mean(axis=1), best(scores, score)
    words = (
        f"Mean cosine over blocks: {mean[0]:.3f} at {scores.names[0]}, highest at "
        f"{scores.names[at]} ({mean[at]:.3f}), {mean[-1]:.3f} at {scores.names[-1]}."
    )
    inside = 0 < at < len(mean) - 1
    return Claim(name, "holds" if inside else "does not hold", words)


def _in_order(scores: Scores) -> Claim:
    """Do earlier blocks reach their best no later than later ones?"""
    name, found = "Earlier blocks leave the closed form first", peaks(scores, EMBEDDING)
    words = "Blocks agree best at " + ", ".join(scores.names[at] for at in found) + "."
    if len(set(found.tolist())) < 2:
        return Claim(name, "undecided", f"{words} No block differs.")
    return Claim(name, "holds" if (np.diff(found) >= 0).all() else "does not hold", words)


def numbers(scores: Scores) -> dict[str, Any]:
    """Means over blocks by checkpoint, for `results.json`."""
    means = {
        form: {
            theory: {score: x.mean(axis=1).tolist() for score, x in by_score.items()
                     if score != "heads"}
            for theory, by_score in getattr(scores, form).items()
        }
        for form in FORMS
    }  # fmt: skip
    return {"checkpoints": scores.names, "steps": scores.steps, **means, "rows": scores.rows}


def _labels(scores: Scores) -> list[str]:
    """Checkpoints in short: steps where all are known."""
    known = all(step is not None for step in scores.steps)
    return [str(s) if known else n for s, n in zip(scores.steps, scores.names)]


def _maps(scores: Scores, form: str) -> Any:
    """Block x checkpoint, a panel a score and theory."""
    panels = [
        draw.MapPanel(
            f"{title}, {theory}" if theory == CONTROL else title,
            getattr(scores, form)[theory][score].T, _labels(scores), range(1, blocks(scores) + 1),
        )
        for theory in (TEXT, CONTROL)
        for score, title in TITLES.items()
    ]  # fmt: skip
    return _drawn(panels, "block", columns=3)


def _heads(scores: Scores) -> Any:
    """Head x checkpoint, heads of all blocks from the first up."""
    panels = []
    for theory in (TEXT, CONTROL):
        x = scores.beyond[theory]["heads"]
        names = [f"{b + 1}.{h + 1}" for b in range(x.shape[1]) for h in range(x.shape[2])]
        panels.append(draw.MapPanel(theory, x.reshape(len(x), -1).T, _labels(scores), names))
    return _drawn(panels, "block.head", columns=2)


def _drawn(panels: list, y_label: str, columns: int) -> Any:
    """Maps on one scale about 0."""
    figure = draw.heat_maps(
        panels, x_label="checkpoint", y_label=y_label, bar_label=SCALE, diverging=True,
        columns=columns,
    )  # fmt: skip
    return figure, panels


def _curves(scores: Scores) -> Any:
    """Means over blocks, a panel a score."""
    x = np.arange(1, len(scores.names) + 1)
    panels = [
        draw.LinePanel(title, [draw.Line(theory, x, scores.beyond[theory][score].mean(axis=1))
                               for theory in (TEXT, CONTROL)])
        for score, title in TITLES.items()
    ]  # fmt: skip
    figure = draw.line_panels(panels, x_label="number of the checkpoint", y_label=SCALE, columns=3)
    return figure, panels


def _means(scores: Scores) -> Table:
    """Means over blocks by checkpoint."""
    rows = [
        (name, *(scores.beyond[theory][score][n].mean() for score in TITLES
                 for theory in (TEXT, CONTROL)))
        for n, name in enumerate(scores.names)
    ]  # fmt: skip
    columns = [f"{title}{', shuffled' if theory == CONTROL else ''}" for title in TITLES.values()
               for theory in (TEXT, CONTROL)]  # fmt: skip
    title = "Mean cosine over blocks, without the all-ones matrix"
    return Table(title, ("checkpoint", *columns), rows)


def _blocks(scores: Scores) -> Table:
    """Where every block agrees best."""
    rows = []
    for block in range(blocks(scores)):
        for score, title in TITLES.items():
            at = peaks(scores, score)[block]
            x = [scores.beyond[t][score][at, block] for t in (TEXT, CONTROL)]
            rows.append((block + 1, title, scores.names[at], *x))
    columns = ("block", "compared", "best at", "cosine there", "of shuffled text")
    return Table("The best checkpoint of every block", columns, rows)


def _left_out(scores: Scores) -> Table:
    """Tokens that were compared."""
    rows = [(*name.split("/"), told["rows"], told["unseen"], told["empty"])
            for name, told in scores.rows.items()]  # fmt: skip
    columns = ("corpus", "map", "tokens compared", "never an input", "with a row of zeros")
    return Table("Tokens that were compared and left out", columns, rows)


def _write(scores: Scores, workdir: Path) -> None:
    """`tables/scores.parquet`: every score; head 0 is none of them."""
    (workdir / "tables").mkdir(exist_ok=True)
    rows = []
    for theory in (TEXT, CONTROL):
        for score in SCORES:
            raw, beyond = (getattr(scores, form)[theory][score] for form in FORMS)
            for place in np.ndindex(raw.shape):
                head = place[2] + 1 if score == "heads" else 0
                step = scores.steps[place[0]]
                rows.append((
                    scores.names[place[0]], -1 if step is None else step, theory, score,
                    place[1] + 1, head, raw[place], beyond[place],
                ))  # fmt: skip
    names = ("checkpoint", "step", "corpus", "score", "block", "head", *FORMS)
    held = {name: np.array([row[j] for row in rows]) for j, name in enumerate(names)}
    write_table(workdir / "tables" / "scores.parquet", held, {"step": "updates, -1: not known"})
