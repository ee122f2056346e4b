"""The one pass over blocks: every question asked of a model is an argument of it."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.nn.copies import (
    Copies,
    check_copies,
    copy_of,
    over_examples,
    over_positions,
)
from jaxfeat.nn.decoder import Decoder, check_batch, check_params, layer_of
from jaxfeat.nn.route import Resolved, check_blocks, of_block, resolve
from jaxfeat.types import Array, Batch, Node, Tree, UserError, check_nodes

ACTIVATIONS = (
    "resid_pre", "q", "k", "v", "pattern", "mixed", "attn_out", "resid_mid", "mlp_out",
    "resid_post",
)  # fmt: skip
Edits = Mapping[int, Callable[[Array], Array]]


class Cache(NamedTuple):
    """What new positions read of earlier ones: keys and values of the blocks that are run.

    `sees` says which of the S cached sources and, after them, of the T new ones each new query may
    read: it is ANDed to what the model's own `visible` says of their positions. New columns of
    several edits may so stand beside one another without seeing each other.
    """

    k: Array  # [N', S, G, K]
    v: Array  # [N', S, G, E]
    position: Array  # [S]
    sees: Array  # [T, S + T]


class Output(NamedTuple):
    """What `forward` gives for a batch: logits `[B, T, V]`, residuals, requested activations."""

    logits: Array
    resid: Array  # [B, N+1, T, D], layers 0..N
    acts: dict[str, Array]  # name -> [B, N, T, ...]


def forward(
    decoder: Decoder,
    params: Tree,
    batch: Batch,
    *,
    route=None,
    taps: Array | None = None,
    edits: Edits | None = None,
    copies: Copies = None,
    want: tuple[str, ...] = (),
    scan: bool | None = None,
) -> Output:
    """Embedding, blocks, final norm and unembedding of a batch.

    Args:
        batch: `token`, `mask` and `position` are read.
        route: what gradient crosses positions (`jaxfeat.nn.route`); no value depends on it.
        taps: `[B, N+1, T, D]` added to the residual at layers 0..N: the gradient with respect to
            zeros here is the gradient at every node.
        edits: `{layer k: function of the residual [T, D]}`, applied at layer k after its tap.
        copies: segment starts of untied parameters (`jaxfeat.nn.copies`).
        want: names out of `ACTIVATIONS`; only these leave the compiled program.
        scan: whether blocks run as one `lax.scan`; by default from 4 blocks on.

    Raises:
        UserError: an unknown activation, a route or copies that do not fit the length.
    """
    resid, acts = residuals(
        decoder, params, batch, route=route, taps=taps, edits=edits, copies=copies, want=want,
        scan=scan,
    )  # fmt: skip
    copies, outer = check_copies(copies, batch.token.shape[1]), params["outer"]

    def read(resid: Array) -> Array:
        normed = over_positions(decoder.norm, outer, copies, resid)
        return over_positions(decoder.unembed, outer, copies, normed)

    return Output(over_examples(read, copies, resid[:, -1]), resid, acts)


def residuals(
    decoder: Decoder,
    params: Tree,
    batch: Batch,
    *,
    hi: int | None = None,
    route=None,
    taps: Array | None = None,
    edits: Edits | None = None,
    copies: Copies = None,
    want: tuple[str, ...] = (),
    scan: bool | None = None,
) -> tuple[Array, dict[str, Array]]:
    """The residual stream `[B, hi+1, T, D]` at layers 0..hi (all by default) and activations.

    Arguments as in `forward`, which adds the final norm and the unembedding.
    """
    check_batch(decoder, batch)
    length = batch.token.shape[1]
    route, copies = resolve(route, length), check_copies(copies, length)
    check_params(decoder, params, copies)

    def one(token, mask, position, taps):
        resid = over_positions(decoder.embed, params["outer"], copies, token, position)
        resid = resid if taps is None else resid + taps[0]
        resid = edits[0](resid) if edits and 0 in edits else resid
        return run_blocks(
            decoder, params, resid, position, hi=hi, mask=mask, route=route, taps=taps,
            edits=edits, copies=copies, want=want, scan=scan,
        )  # fmt: skip

    given = (batch.token, batch.mask, batch.position, taps)
    return over_examples(one, copies, *given, time=(0, 0, 0, 1))


def at_nodes(resid: Array, nodes: Sequence[Node]) -> Array:
    """The residual stream at chosen nodes: `[nodes, B, D]` out of `[B, N+1, T, D]`.

    Raises:
        UserError: a node is out of range or stands twice.

    >>> at_nodes(jnp.arange(12.).reshape(1, 2, 3, 2), [(1, 2), (0, 0)]).tolist()
    [[[10.0, 11.0]], [[0.0, 1.0]]]
    """
    pairs = check_nodes(nodes, resid.shape[1] - 1, resid.shape[2])
    k, i = np.array(pairs).T
    return jnp.moveaxis(resid[:, k, i], 0, 1)


def run_blocks(
    decoder: Decoder,
    params: Tree,
    resid: Array,
    position: Array,
    *,
    lo: int = 0,
    hi: int | None = None,
    cache: Cache | None = None,
    mask: Array | None = None,
    route: Resolved = None,
    taps: Array | None = None,
    edits: Edits | None = None,
    copies: Copies = None,
    want: tuple[str, ...] = (),
    scan: bool | None = None,
) -> tuple[Array, dict[str, Array]]:
    """0-based blocks lo..hi-1 of one example: `resid [T, D]` at layer lo to layer hi.

    Args and defaults as in `forward`, for one example: `taps` `[N+1, T, D]`; taps and edits act at
    layers lo+1..hi, `resid` is taken as it is. A `cache` (of a causal model with tied parameters)
    holds keys and values of further positions for the blocks lo..hi-1; an array `route` then is
    `[T, S + T]`.

    Returns:
        Residuals `[hi-lo+1, T, D]` at layers lo..hi and the requested activations `[hi-lo, ...]`.
    """
    hi = decoder.layers if hi is None else hi
    if not 0 <= lo <= hi <= decoder.layers:
        raise UserError(f"blocks {lo}..{hi} are out of range: valid are 0..{decoder.layers}")
    unknown = [name for name in want if name not in ACTIVATIONS]
    if unknown:
        raise UserError(f"activation {unknown[0]!r} is unknown; valid: {', '.join(ACTIVATIONS)}")
    if edits and not all(0 <= k <= decoder.layers for k in edits):
        raise UserError(f"edits: layers {sorted(edits)} given, valid are 0..{decoder.layers}")
    if cache is not None:
        route = _check_cache(decoder, cache, hi - lo, resid.shape[0], route, copies)
    mask = jnp.ones(resid.shape[0], bool) if mask is None else mask
    stacked = not isinstance(params["blocks"], tuple) and not isinstance(decoder.consts, tuple)
    scan = decoder.layers >= 4 if scan is None else scan

    check_blocks(route, decoder.layers)
    by_block = of_block(route, 0) is not route

    def step(resid: Array, xs: tuple) -> tuple[Array, tuple]:
        block, const, tap, here, past = xs
        here = here if by_block else route
        if cache is not None:
            past = Cache(past[0], past[1], cache.position, cache.sees)
        resid, found = run_block(
            decoder, block, const, resid, position, mask, here, copies, want, past
        )
        resid = resid if tap is None else resid + tap
        return resid, (resid, found)

    def layer(b: int) -> tuple:
        tap = None if taps is None else taps[b + 1]
        here = of_block(route, b) if by_block else None
        past = None if cache is None else (cache.k[b - lo], cache.v[b - lo])
        return layer_of(params["blocks"], b), layer_of(decoder.consts, b), tap, here, past

    def segment(resid: Array, start: int, end: int) -> tuple[Array, list]:
        """Blocks start..end-1 without an edit among them."""
        if scan and stacked and end - start > 1:
            span = jax.tree.map(lambda x: x[start:end], (params["blocks"], decoder.consts))
            tap = None if taps is None else taps[start + 1 : end + 1]
            past = (
                None
                if cache is None
                else (cache.k[start - lo : end - lo], cache.v[start - lo : end - lo])
            )
            xs = (*span, tap, jnp.asarray(route)[start:end] if by_block else None, past)
            resid, ys = jax.lax.scan(step, resid, xs)
            return resid, [ys]
        outs = []
        for b in range(start, end):
            resid, y = step(resid, layer(b))
            outs.append(jax.tree.map(lambda x: x[None], y))
        return resid, outs

    ends = [*sorted(k for k in edits or () if lo < k < hi), hi]
    stack, acts = [resid[None]], []
    for start, end in zip([lo, *ends], ends):
        resid, outs = segment(resid, start, end)
        if edits and end in edits and end > lo:
            resid = edits[end](resid)
            last, found = outs[-1]
            outs[-1] = (last.at[-1].set(resid), found)
        stack += [resids for resids, _ in outs]
        acts += [found for _, found in outs]
    joined = {name: jnp.concatenate([a[name] for a in acts]) for name in want} if acts else {}
    return jnp.concatenate(stack), joined


def run_block(
    decoder: Decoder,
    block: Tree,
    const: Tree,
    resid: Array,
    position: Array,
    mask: Array,
    route: Resolved,
    copies: Copies,
    want: tuple[str, ...] = (),
    cache: Cache | None = None,
) -> tuple[Array, dict[str, Array]]:
    """One block of one example: `resid [T, D]` to `resid [T, D]`, with requested activations.

    A `cache` is that of this block, its keys and values `[S, G, ..]`.
    """
    q, (k, v) = _reads(decoder, block, const, resid, position, copies)
    found = {"q": q, "k": k, "v": v}
    if cache is None:
        visible = decoder.visible(const, position, position) & mask[None, :] & mask[:, None]
    else:
        k, v = jnp.concatenate([cache.k, k]), jnp.concatenate([cache.v, v])
        sources = jnp.concatenate([cache.position, position])
        real = jnp.concatenate([jnp.ones(cache.position.shape, bool), mask])
        visible = decoder.visible(const, position, sources) & cache.sees & real & mask[:, None]
    mixed = decoder.mix(q, k, v, visible, route)
    attn, mlp = _writes(decoder, block, const, mixed, resid, copies)
    out = resid + attn + mlp
    found |= {
        "resid_pre": resid, "mixed": mixed, "attn_out": attn, "resid_mid": resid + attn,
        "mlp_out": mlp, "resid_post": out,
    }  # fmt: skip
    if "pattern" in want:
        # the weights are what mixing the one-hot sources gives
        sources = jnp.eye(k.shape[0], dtype=v.dtype)[:, None, :]
        sources = jnp.broadcast_to(sources, (k.shape[0], k.shape[1], k.shape[0]))
        found["pattern"] = decoder.mix(q, k, sources, visible, None)
    return out, {name: found[name] for name in want}


def run_column(
    decoder: Decoder,
    block: Tree,
    const: Tree,
    resid: Array,
    i: Array,
    position: Array,
    mask: Array,
    route: Array | None,
    copies: Copies = None,
) -> Array:
    """One block at one query position: `resid [S, D]` to `resid [D]` at position i.

    Equal to row i of `run_block`. Keys and values are formed for all S sources unless the model
    brings a `column` of its own and its parameters are tied.

    Args:
        i: the query position (may be traced).
        route: `[S]`, the row of the query, or None.
    """
    here = position[i]
    visible = decoder.visible(const, here[None], position)[0] & mask & mask[i]
    if decoder.column is not None and copies is None:
        return decoder.column(block, const, resid, i, here, visible, route)
    mine = block
    if copies is not None:
        mine = jax.tree.map(lambda x: x[copy_of(copies, i)], block)
    k, v = over_positions(
        lambda b, x, p: decoder.memory(b, const, x, p), block, copies, resid, position
    )
    q = decoder.query(mine, const, resid[i], here)
    route = None if route is None else route[None]
    mixed = decoder.mix(q[None], k, v, visible[None], route)[0]
    attn = decoder.attn_out(mine, const, mixed)
    return resid[i] + attn + decoder.mlp_out(mine, const, resid[i], attn)


def _check_cache(
    decoder: Decoder, cache: Cache, blocks: int, length: int, route: Resolved, copies: Copies
) -> Resolved:
    """Refuse a cache that cannot be read; the route over cached and new sources."""
    if not decoder.causal or copies is not None:
        raise UserError("cache: only a causal model with tied parameters has one")
    size = cache.position.shape[0]
    if cache.k.shape[:2] != (blocks, size) or cache.sees.shape != (length, size + length):
        raise UserError(
            f"cache: keys {cache.k.shape} and sees {cache.sees.shape} given, ({blocks} blocks, "
            f"{size}, ..) and ({length}, {size + length}) needed"
        )
    if isinstance(route, str):
        return jnp.eye(length, size + length, size, dtype=bool)
    return route


def _reads(decoder: Decoder, block, const, resid, position, copies) -> tuple:
    """Queries, and keys and values, at every position."""
    q = over_positions(
        lambda b, x, p: decoder.query(b, const, x, p), block, copies, resid, position
    )
    memory = over_positions(
        lambda b, x, p: decoder.memory(b, const, x, p), block, copies, resid, position
    )
    return q, memory


def _writes(decoder: Decoder, block, const, mixed, resid, copies) -> tuple[Array, Array]:
    """What attention and MLP write at every position."""
    attn = over_positions(lambda b, m: decoder.attn_out(b, const, m), block, copies, mixed)
    mlp = over_positions(
        lambda b, x, a: decoder.mlp_out(b, const, x, a), block, copies, resid, attn
    )
    return attn, mlp
