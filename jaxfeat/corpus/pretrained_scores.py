"""Do the weights of a trained model still look like the leading terms of its corpus?

Every token is read alone; the covariances of what blocks make of it are compared with those of
`Phi^T B^T` (embeddings) and Q (attention), for every checkpoint and block (arXiv 2601.19208,
section 5 and its appendix on Pythia).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxfeat.corpus.covariance import (
    Agreement,
    agreement,
    centre_rows,
    gram,
    gram_side,
    root_of,
    rounding_of,
    side_of,
)
from jaxfeat.corpus.large_maps import LargeMap, attention_map, value_map
from jaxfeat.corpus.products import make_corpus
from jaxfeat.corpus.token_maps import BATCH, TokenMaps, token_maps
from jaxfeat.nn.decoder import Decoder
from jaxfeat.train.revisions import Checkpoint, check_checkpoints
from jaxfeat.types import Tree, UserError, check_whole

SCORES = ("post", "attn", "attention", "heads")


class Theories(NamedTuple):
    """The two maps of one corpus, and the size of its vocabulary."""

    vocab: int
    value: LargeMap  # Phi^T B^T
    attention: LargeMap  # Q


class Scores(NamedTuple):
    """Cosines by checkpoint and block, ready for heat maps.

    `cosine` and `beyond` (without the all-ones matrix, see `agreement`) map a theory's name and a
    score to `[C, N]`, the score "heads" to `[C, N, H]`: post and attn are E_post and E_attn
    against `Phi^T B^T`, attention (mean over heads) and heads A_tok against Q. `rows` tells of
    each theory how many tokens were compared and how many were left out, and why.
    """

    names: tuple[str, ...]
    steps: tuple[int | None, ...]
    cosine: dict[str, dict[str, np.ndarray]]
    beyond: dict[str, dict[str, np.ndarray]]
    rows: dict[str, dict[str, int]]


def cut_texts(texts: Sequence[Any], length: int) -> tuple[np.ndarray, int]:
    """The first T + 1 tokens of every text that has so many, and how many texts have fewer.

    A short text is left out: padded with a token it would count as text that nobody wrote.

    Args:
        texts: ids of each. length: T.

    Raises:
        UserError: no text is long enough.

    >>> cut_texts([[1, 2, 3, 4], [5]], 2)[0].tolist(), cut_texts([[1, 2, 3, 4], [5]], 2)[1]
    ([[1, 2, 3]], 1)
    """
    check_whole("length", length, 1)
    kept = [np.asarray(ids[: length + 1], np.int32) for ids in texts if len(ids) > length]
    if not kept:
        longest = max((len(ids) for ids in texts), default=0)
        raise UserError(f"texts: none of {len(texts)} has {length + 1} tokens; most: {longest}")
    return np.stack(kept), len(texts) - len(kept)


def make_theories(tokens: np.ndarray, vocab: int, *, dtype: str = "float64") -> Theories:
    """The two maps of a corpus.

    Args:
        tokens: `[N, T+1]`. vocab: V, the ids that the models have (`decoder.vocab`).
        dtype: float64, or float32: half the memory and time.

    Raises:
        UserError: as `make_corpus`.
    """
    corpus = make_corpus(tokens, vocab, dtype=dtype)
    return Theories(vocab, value_map(corpus), attention_map(corpus))


def pretrained_scores(
    checkpoints: Sequence[Checkpoint], theories: Mapping[str, Theories], *, batch: int = BATCH
) -> Scores:
    """Scores of every checkpoint against every theory; one checkpoint is in memory at a time.

    Args:
        checkpoints: of one model, in the order of training.
        theories: by name: of the corpus, and of controls such as `shuffle_tokens`.
        batch: tokens that a model reads at once.

    Raises:
        UserError: as `check_checkpoints`; a theory of another vocabulary.
    """
    check_checkpoints(checkpoints)
    found = []
    for checkpoint in checkpoints:
        decoder, params = checkpoint.load()
        found.append(score_model(decoder, params, theories, batch=batch))
        del decoder, params

    def stacked(part: int) -> dict[str, dict[str, np.ndarray]]:
        return {
            name: {score: np.stack([f[name][score][part] for f in found]) for score in SCORES}
            for name in theories
        }

    kept = lambda m: {"rows": len(m.rows), "unseen": m.unseen, "empty": m.empty}
    told = {
        f"{name}/{field}": kept(getattr(t, field))
        for name, t in theories.items()
        for field in ("value", "attention")
    }
    names, steps = (tuple(getattr(c, f) for c in checkpoints) for f in ("name", "step"))
    return Scores(names, steps, stacked(0), stacked(1), told)


def score_model(
    decoder: Decoder, params: Tree, theories: Mapping[str, Theories], *, batch: int = BATCH
) -> dict[str, dict[str, np.ndarray]]:
    """Of each theory and score `[2, N]` (heads `[2, N, H]`): cosines, and those beyond the null."""
    for name, theory in theories.items():
        if theory.vocab != decoder.vocab:
            raise UserError(
                f"theories: {name} has {theory.vocab} tokens, the model {decoder.vocab}"
            )
    found = {name: {score: [] for score in SCORES} for name in theories}
    for maps in token_maps(decoder, params, batch=batch):
        for name, theory in theories.items():
            for score, value in _score_block(maps, theory).items():
                found[name][score].append(np.asarray(value))
    return {
        name: {score: np.stack(x, axis=1) for score, x in scores.items()}
        for name, scores in found.items()
    }


def _score_block(maps: TokenMaps, theory: Theories) -> dict[str, Any]:
    """One block: `[2]` a score, `[2, H]` the heads."""
    heads = score_attention(maps.query, maps.key, theory.attention)
    return {
        "post": score_embedding(maps.post, theory.value),
        "attn": score_embedding(maps.attn, theory.value),
        "attention": heads[0],
        "heads": np.array(heads[1:]).T,
    }


def score_embedding(embedding: np.ndarray, theory: LargeMap) -> Agreement:
    """`cov(E)` against the theory's covariance, E `[V, D]`."""
    factor = centre_rows(np.asarray(embedding)[theory.rows])
    inner = _square(theory.transposed(factor))
    return agreement(inner, side_of(factor), theory.side, len(theory.rows))


def score_attention(query: np.ndarray, key: np.ndarray, theory: LargeMap) -> list[Agreement]:
    """`cov(A_tok)` against the theory's covariance: of the mean over heads, then of each head.

    Rows of A_tok are queries, its columns keys: `A = q k^T` loses the mean of its rows when k loses
    that of its columns, so that `cov(A) ~ (q R) (q R)^T` with `R R^T = kc^T kc`: thin again.

    Args:
        query, key: `[V, H, K]`.
    """
    vocab, heads, size = query.shape
    q = query.reshape(vocab, -1)[theory.rows]
    k = key.reshape(vocab, -1)
    inner = gram(k - k.mean(axis=0))
    through, squares = theory.transposed(q), gram(q)
    sums = q.sum(axis=0, dtype=np.float64)

    def score(part: slice) -> Agreement:
        root = root_of(inner[part, part])
        side = gram_side(squares[part, part], sums[part], rounding_of(q.dtype), root)
        # |through R|^2 = tr(R^T (through^T through) R)
        mixed = np.vdot(gram(through[:, part]), inner[part, part])
        return agreement(float(mixed), side, theory.side, len(theory.rows))

    own = [score(slice(h * size, (h + 1) * size)) for h in range(heads)]
    return [score(slice(0, heads * size)), *own]


def _square(x: np.ndarray) -> float:
    """The sum of squares, in float64."""
    return float(np.einsum("ij,ij->", x, x, dtype=np.float64))
