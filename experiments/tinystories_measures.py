"""What is asked of a trained model of stories? Its losses, its answers, its probes, its own words.

Every function here is of one seed's parameters; what they are asked on is the same for all models.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.tinystories_config import Config, probed_nodes
from experiments.tinystories_data import Data, held_numbers
from jaxfeat.data.story_text import KINDS
from jaxfeat.data.windows import (
    Cut,
    Windows,
    cut_windows,
    epoch_windows,
    every_window,
    features_of,
    to_batch,
)
from jaxfeat.features.probe import explained_share, features_at, fit_probes, score_probes
from jaxfeat.nn.blocks import at_nodes, residuals
from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.generate import generate
from jaxfeat.nn.loss import token_losses
from jaxfeat.types import Array, Batch, Tree

AT_ONCE = 128  # windows that are read together
FEW = 256  # windows of the loss between logs


class Asks(NamedTuple):
    """Questions of the evaluated stories: where their answer is predicted, and what could stand.

    window, t `[Q]`: the position that predicts the answer's first token; options `[Q, O]`: first
    tokens of all words that could stand there, the answer's first, -1 beyond; kind `[Q]`.
    """

    window: np.ndarray
    t: np.ndarray
    options: np.ndarray
    kind: np.ndarray


class Prompts(NamedTuple):
    """Beginnings `[P, prompt]` of paragraphs; story `[P]`: its number among all stories; upto
    `[P]`: characters of the story that come before the continuation; truth `[P, rest]`: the
    story's own continuation, the marker after its end.
    """

    ids: np.ndarray
    story: np.ndarray
    upto: np.ndarray
    truth: np.ndarray


class Reading(NamedTuple):
    """Windows that probes read: features `[nodes, B, F]` and which count `[nodes, B]`."""

    batch: Batch
    truth: Array
    mask: Array


class Exam(NamedTuple):
    """What every model is asked on; an argument of the programs, so that nothing is folded in.

    `cut`: windows of held-out stories; `counted` `[W, T]`: each target once, with half a window
    before it or its story's beginning; fit, test: what probes are fitted and scored on.
    """

    cut: Cut
    counted: np.ndarray
    asks: Asks
    prompts: Prompts
    fit: Reading
    test: Reading


def make_exam(config: Config, data: Data, fit_key: Array, test_key: Array) -> Exam:
    """The windows, questions and prompts, which follow from data and settings."""
    c = config
    stories = min(c.evaluated, len(data.held_out.size))
    rows, offsets = every_window(data.held_out, c.length, c.length // 2)
    mine = rows < stories
    rows, offsets = rows[mine], offsets[mine]
    cut = cut_windows(data.held_out, jnp.asarray(rows), jnp.asarray(offsets), c.length)
    t = np.arange(c.length)
    fresh = (offsets[:, None] == 0) | (t >= c.length - c.length // 2)
    counted = fresh & np.asarray(to_batch(cut).weight)
    return Exam(
        cut, counted, _asks(data, np.asarray(cut.index), counted), _prompts(c, data, stories),
        _reading(c, data, data.train, fit_key, c.probe_fit),
        _reading(c, data, data.held_out, test_key, c.probe_test),
    )  # fmt: skip


def losses_of(decoder: Decoder, params: Tree, exam: Exam) -> dict[str, Array]:
    """`losses` `[W, T]` in nats, and `options` `[Q, O]`, logits of the questions' words."""
    batch, asks = to_batch(exam.cut), exam.asks

    def read(part: Batch) -> tuple[Array, Array]:
        top = residuals(decoder, params, part)[0][:, -1]
        return token_losses(decoder, params["outer"], top, part), top

    losses, top = _in_parts(read, batch)
    outer = params["outer"]
    logits = lambda x, ids: decoder.unembed(outer, decoder.norm(outer, x), ids)
    found = {"losses": losses}
    if len(asks.t):
        ids = jnp.maximum(asks.options, 0)
        found["options"] = jax.vmap(logits)(top[asks.window, asks.t], ids)
    return found


def quick_loss(decoder: Decoder, params: Tree, exam: Exam) -> Array:
    """`L` on some of the windows, for the curve of training."""
    batch = jax.tree.map(lambda x: x[:FEW], to_batch(exam.cut))
    top = residuals(decoder, params, batch)[0][:, -1]
    losses, counted = token_losses(decoder, params["outer"], top, batch), exam.counted[:FEW]
    return jnp.sum(losses * counted) / jnp.sum(counted)


def probes_of(config: Config, decoder: Decoder, params: Tree, exam: Exam) -> dict[str, Array]:
    """Probes of every node and how they do on held-out windows.

    coef `[nodes, F, D]`, spread `[nodes, F]` (standard deviation of the feature), r, mse, r_gcv
    `[nodes, F]`, explained `[nodes]`.
    """
    nodes = probed_nodes(config)

    def read(batch: Batch) -> Array:
        part = lambda b: jnp.moveaxis(at_nodes(residuals(decoder, params, b)[0], nodes), 0, 1)
        return jnp.moveaxis(_in_parts(part, batch), 1, 0)

    with jax.default_matmul_precision("highest"):
        (_, y, mask), (_, y_test, mask_test) = exam.fit, exam.test
        x, x_test = read(exam.fit.batch), read(exam.test.batch)
        fixed, free = (fit_probes(x, y, mask, alpha=a) for a in (config.alpha, "gcv"))
        score = lambda probes: score_probes(probes, x_test, y_test, mask_test)
        scores, shared = score(fixed), explained_share(x_test, y_test, mask_test)
        return {
            "coef": fixed.coef, "spread": _spread(y_test, mask_test), "r": scores.r,
            "mse": scores.mse, "r_gcv": score(free).r, "explained": shared.joint,
        }  # fmt: skip


def write_on(config: Config, decoder: Decoder, params: Tree, key: Array, exam: Exam) -> Array:
    """Tokens `[P, rest]` that the model writes after the prompts."""
    count = config.length + 1 - config.prompt
    prompts = jnp.asarray(exam.prompts.ids)
    return generate(decoder, params, key, prompts, count)[:, config.prompt :]


def _reading(config: Config, data: Data, windows: Windows, key: Array, count: int) -> Reading:
    """Windows at random places with the features at the probed nodes."""
    cut = epoch_windows(windows, key, jnp.int32(0), count, config.length)
    truth, mask = features_of(windows, cut)
    nodes, truth = probed_nodes(config), truth[..., jnp.array(data.features)]
    return Reading(to_batch(cut), features_at(truth, nodes), features_at(mask, nodes))


def _spread(values: Array, mask: Array) -> Array:
    """Standard deviation over the examples that count, `[nodes, F]`."""
    share = mask / jnp.maximum(mask.sum(axis=1, keepdims=True), 1)
    mean = jnp.einsum("nbf,nb->nf", values, share)
    return jnp.sqrt(jnp.einsum("nbf,nb->nf", (values - mean[:, None]) ** 2, share))


def _in_parts(fn: Callable, batch: Tree) -> Tree:
    """`fn` of some sequences at a time, joined; the last part is padded."""
    count = jax.tree.leaves(batch)[0].shape[0]
    parts = -(-count // AT_ONCE)
    size = -(-count // parts)
    pad = lambda x: jnp.pad(x, ((0, parts * size - count), *((0, 0) for _ in x.shape[1:])))
    split = lambda x: pad(x).reshape(parts, size, *x.shape[1:])
    out = jax.lax.map(fn, jax.tree.map(split, batch))
    return jax.tree.map(lambda x: x.reshape(parts * size, *x.shape[2:])[:count], out)


def _asks(data: Data, index: np.ndarray, counted: np.ndarray) -> Asks:
    """The questions of generated stories whose answers the counted targets hold."""
    found: list[tuple[int, int, list[int], int]] = []
    where = np.full(len(data.held_out.ids), -1, np.int64)
    where[index[:, 1:][counted]] = np.flatnonzero(counted)
    first, ids = np.asarray(data.held_out.first), np.asarray(data.held_out.ids)
    numbers = held_numbers(data) if data.texts.generated is not None else []
    for row, s in enumerate(numbers):
        story, tokens = (data.texts.generated or [])[s], data.tokens
        begin = tokens.begin[tokens.first[s] : tokens.first[s + 1]]
        end = tokens.end[tokens.first[s] : tokens.first[s + 1]]
        for ask in story.asks:
            (at,) = np.nonzero((begin == ask.start) & (end > begin))
            place = int(first[row]) + 1 + int(at[0]) if len(at) else 0
            if not len(at) or where[place] < 0:
                continue
            words = [ask.answer, *(word for word in ask.options if word != ask.answer)]
            firsts = [data.tokenizer.encode(f" {word}").ids[0] for word in words]
            if firsts[0] != ids[place] or firsts[0] in firsts[1:]:
                continue  # its first token does not tell the answer from another word
            firsts = list(dict.fromkeys(firsts))
            window, t = divmod(int(where[place]), counted.shape[1])
            found.append((window, t, firsts, KINDS.index(ask.kind)))
    most = max((len(options) for _, _, options, _ in found), default=1)
    options = [[*o, *[-1] * (most - len(o))] for _, _, o, _ in found]
    column = lambda n: np.array([row[n] for row in found], np.int32)
    return Asks(column(0), column(1), np.array(options, np.int32).reshape(-1, most), column(3))


def _prompts(config: Config, data: Data, stories: int) -> Prompts:
    """Beginnings of a paragraph of each story, one a story, where enough of it follows."""
    c, windows, rest = config, data.held_out, config.length + 1 - config.prompt
    first, size = np.asarray(windows.first), np.asarray(windows.size)
    ids, found = np.asarray(windows.ids), []
    for row, s in enumerate(held_numbers(data)[:stories]):
        text, tokens = data.texts.corpus.stories[s], data.tokens
        begin = tokens.begin[tokens.first[s] : tokens.first[s + 1]]
        end = tokens.end[tokens.first[s] : tokens.first[s + 1]]
        # flat place p of a story holds its text token p - 1; place 0 is the marker
        words = (n for n in range(1, len(begin) - 1) if end[n] > begin[n])
        starts = [n + 1 for n in words if text[begin[n] - 1] == "\n"]
        starts = [p for p in (0, *starts) if p + c.prompt < size[row] - rest // 2]
        if starts and len(found) < c.prompts:
            p = starts[s % len(starts)]
            own = ids[first[row] : first[row] + size[row]]
            after = own[p + c.prompt : p + c.length + 1]
            truth = np.pad(after, (0, rest - len(after)), constant_values=own[-1])
            found.append((own[p : p + c.prompt], s, end[p + c.prompt - 2], truth))
    if not found:
        return Prompts(*(np.zeros((0, n), np.int32) for n in (c.prompt, 1, 1, rest)))
    return Prompts(*(np.stack([row[n] for row in found]) for n in range(4)))
