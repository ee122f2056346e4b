"""Which linear map predicts some targets from a representation, for many problems at once?

Ridge regression with an intercept in closed form. Every array may carry leading axes (nodes,
seeds): they are solved together in one program. Rows are read in blocks, so beyond the inputs the
memory is that of a `[D, D]` Gram matrix, whatever the number of rows.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxfeat.types import Array, UserError

GCV_GRID = tuple(10.0 ** (k / 2) for k in range(-12, 5))  # 1e-6 .. 1e2, times trace(G) / D


class Moments(NamedTuple):
    """Centred second moments (sums, not means) of rows of x and y over the rows that count."""

    count: Array  # [...]
    x_mean: Array  # [..., D]
    y_mean: Array  # [..., F]
    gram: Array  # [..., D, D]
    cross: Array  # [..., D, F]
    y_square: Array  # [..., F]


class Ridge(NamedTuple):
    """A fitted ridge regression: `y = coef @ x + intercept`."""

    coef: Array  # [..., F, D]
    intercept: Array  # [..., F]
    alpha: Array  # [...], the absolute penalty used
    condition: Array  # [...], condition number of the penalised Gram matrix


def centred_moments(x: Array, y: Array, mask: Array | None = None, *, block: int = 4096) -> Moments:
    """Means, then the Gram matrix and cross products around them, in two passes over the rows.

        G = sum_n m_n (x_n - xbar)(x_n - xbar)^T        C = sum_n m_n (x_n - xbar)(y_n - ybar)^T

    Args:
        x: `[..., n, D]`.
        y: `[..., n, F]`, with the leading axes of x.
        mask: `[..., n]` booleans, true where a row counts; what masked rows hold is never read
            (it may be NaN). None: every row counts.
        block: rows handled at a time; the result depends on it by rounding only.

    Returns:
        `Moments` in float32, or float64 where an input is float64. No row counts: zeros.

    Raises:
        UserError: the shapes do not fit together.

    >>> m = centred_moments(jnp.array([[0.], [2.]]), jnp.array([[1.], [5.]]))
    >>> m.gram.tolist(), m.cross.tolist(), m.y_square.tolist()
    ([[2.0]], [[4.0]], [8.0])
    """
    return _moments(*_check_rows(x, y, mask), block=block)


@functools.partial(jax.jit, static_argnames="block")
def _moments(x: Array, y: Array, real: Array, *, block: int) -> Moments:
    """`centred_moments` after the checks."""
    kind = jnp.promote_types(jnp.promote_types(x.dtype, y.dtype), jnp.float32)
    n = x.shape[-2]

    def rows(start: Array | int, size: int, centre: tuple[Array, Array]) -> tuple[Array, Array]:
        """One block of rows less the centre; masked rows are 0."""
        cut = lambda a, axis: jax.lax.dynamic_slice_in_dim(a, start, size, axis)
        keep = cut(real, real.ndim - 1)[..., None]
        return tuple(
            jnp.where(keep, cut(a, a.ndim - 2).astype(kind) - jnp.expand_dims(c, -2), 0)
            for a, c in zip((x, y), centre)
        )  # type: ignore[return-value]

    def add_up(fn, centre: tuple[Array, Array]):
        """Sum `fn` over the blocks; the last, shorter block is apart."""
        full, rest = divmod(n, block)
        total = fn(*rows(full * block, rest, centre))
        step = lambda i, t: jax.tree.map(jnp.add, t, fn(*rows(i * block, block, centre)))
        return jax.lax.fori_loop(0, full, step, total) if full else total

    def products(a: Array, b: Array) -> tuple[Array, Array, Array]:
        dot = lambda u, v: jnp.einsum("...nd,...ne->...de", u, v, precision="highest")
        return dot(a, a), dot(a, b), (b * b).sum(-2)

    lead = x.shape[:-2]
    zero = jnp.zeros((*lead, x.shape[-1]), kind), jnp.zeros((*lead, y.shape[-1]), kind)
    count = real.sum(-1).astype(kind)
    share = 1 / jnp.maximum(count, 1)[..., None]
    centre = add_up(lambda a, b: (a.sum(-2) * share, b.sum(-2) * share), zero)
    # A second look at the mean removes the rounding of the first: constant columns become exact 0.
    shift = add_up(lambda a, b: (a.sum(-2) * share, b.sum(-2) * share), centre)
    centre = (centre[0] + shift[0], centre[1] + shift[1])
    return Moments(count, *centre, *add_up(products, centre))


def fit_ridge(
    x: Array,
    y: Array,
    *,
    alpha: float | Array | str = 1.0,
    mask: Array | None = None,
    relative: bool = False,
    block: int = 4096,
) -> Ridge:
    """Ridge regression with an unpenalised intercept, equal to scikit-learn's `Ridge(alpha)`.

        coef = C^T (G + alpha I)^-1,   intercept = ybar - coef xbar

    with G and C the centred moments. Solved by the eigenvalues of G, so collinear and constant
    columns and n < D are harmless; at alpha = 0 the directions below rounding get weight 0 (the
    least-norm solution). coef has a relative error of about the type's eps times `condition`
    (float32: 1e-7), predictions a much smaller one; use float64 where the condition is above 1e4.

    `alpha="gcv"` chooses a scale-free penalty by generalised cross-validation (Golub, Heath and
    Wahba 1979): over alpha = g trace(G) / D, g = 1e-6 .. 1e2, the least

        GCV(alpha) = mean_f [ RSS_f(alpha) / sum_n (y_nf - ybar_f)^2 ] / (1 - df / n)^2,
        df = 1 + sum_j l_j / (l_j + alpha)

    one alpha for all targets, each in the unit of its own variance; constant targets do not vote.

    Args:
        x: `[..., n, D]` inputs, any float type; unchanged.
        y: `[..., n, F]` targets with the same leading axes.
        alpha: penalty in the unit of G (squared x, summed over rows): one number or `[...]`; or
            "gcv".
        mask: `[..., n]` booleans, true where a row counts.
        relative: read alpha as a multiple of trace(G) / D, which makes it free of x's scale.
        block: rows handled at a time.

    Returns:
        A `Ridge`; `condition` is (l_max + alpha) / (l_min + alpha), infinite for a singular G
        without a penalty, 1 if x does not vary.

    Raises:
        UserError: shapes do not fit, alpha is negative or an unknown word.

    >>> r = fit_ridge(jnp.array([[0.], [1.], [2.]]), jnp.array([[1.], [3.], [5.]]), alpha=2.0)
    >>> r.coef.tolist(), r.intercept.tolist()
    ([[1.0]], [2.0])
    """
    if isinstance(alpha, str) and alpha != "gcv":
        raise UserError(f'alpha: {alpha!r} is neither a number nor "gcv"')
    if isinstance(alpha, (int, float)) and alpha < 0:
        raise UserError(f"alpha: {alpha} is negative")
    number = None if isinstance(alpha, str) else alpha
    return _fit(*_check_rows(x, y, mask), number, relative=relative, block=block)


@functools.partial(jax.jit, static_argnames=("relative", "block"))
def _fit(
    x: Array, y: Array, real: Array, alpha: Array | float | None, *, relative: bool, block: int
) -> Ridge:
    """`fit_ridge` after the checks; alpha None is "gcv"."""
    m = _moments(x, y, real, block=block)
    kind, width = m.gram.dtype, m.gram.shape[-1]
    unit = jnp.trace(m.gram, axis1=-2, axis2=-1) / width
    eigen, basis = _eigh(m.gram)
    floor = jnp.maximum(eigen[..., -1:], 0) * (width * jnp.finfo(kind).eps)
    eigen = jnp.maximum(eigen, 0)
    target = jnp.einsum("...de,...df->...ef", basis, m.cross, precision="highest")
    if alpha is None:
        penalty = _choose(m, jnp.where(eigen > floor, eigen, 0), target, unit, floor[..., 0])
    else:
        penalty = jnp.broadcast_to(jnp.asarray(alpha, kind), unit.shape)
        penalty = penalty * unit if relative else penalty
    size = jnp.where((eigen > floor) | (penalty > 0)[..., None], eigen + penalty[..., None], 0)
    inverse = jnp.where(size > 0, 1 / jnp.where(size > 0, size, 1), 0)

    def solve(rotated: Array) -> Array:
        scaled = inverse[..., None] * rotated
        return jnp.einsum("...de,...ef->...fd", basis, scaled, precision="highest")

    coef = solve(target)
    # One step of refinement: the eigenvalues' rounding leaves an error that this removes.
    fitted = jnp.einsum("...fd,...de->...fe", coef, m.gram, precision="highest")
    left = jnp.swapaxes(m.cross, -1, -2) - fitted - penalty[..., None, None] * coef
    coef = coef + solve(jnp.einsum("...de,...fd->...ef", basis, left, precision="highest"))
    intercept = m.y_mean - jnp.einsum("...fd,...d->...f", coef, m.x_mean, precision="highest")
    top, low = size[..., -1], size[..., 0]
    condition = jnp.where(top > 0, top / low, 1)
    return Ridge(coef, intercept, penalty, condition)


def predict(ridge: Ridge, x: Array) -> Array:
    """The fitted targets: `x @ coef^T + intercept`.

    Args:
        ridge: a fit with leading axes `[...]`.
        x: `[..., n, D]` with the same leading axes.

    Returns:
        `[..., n, F]` in the fit's type.

    >>> r = fit_ridge(jnp.array([[0.], [1.], [2.]]), jnp.array([[1.], [3.], [5.]]), alpha=2.0)
    >>> predict(r, jnp.array([[4.]])).tolist()
    [[6.0]]
    """
    x = jnp.asarray(x).astype(ridge.coef.dtype)
    fitted = jnp.einsum("...nd,...fd->...nf", x, ridge.coef, precision="highest")
    return fitted + ridge.intercept[..., None, :]


def _eigh(gram: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors of `[..., D, D]`, one matrix after another.

    XLA's batched decomposition on the CPU waits in the very thread pool that it runs in: two at
    once in one program (a fixed and a chosen alpha) never end where there are two threads.
    """
    one = _eigh_alone
    for _ in gram.shape[:-2]:
        one = jax.vmap(one)
    return one(gram)


@jax.custom_batching.sequential_vmap
def _eigh_alone(gram: Array) -> tuple[Array, Array]:
    """`jnp.linalg.eigh` of one matrix; under vmap one by one."""
    eigen, basis = jnp.linalg.eigh(gram)
    return eigen, basis


def _check_rows(x: Array, y: Array, mask: Array | None) -> tuple[Array, Array, Array]:
    """x, y and the mask as arrays whose leading axes and rows agree."""
    x, y = jnp.asarray(x), jnp.asarray(y)
    if x.ndim < 2 or y.ndim < 2 or x.shape[:-1] != y.shape[:-1]:
        raise UserError(f"x {x.shape} and y {y.shape} must be [..., n, D] and [..., n, F]")
    if mask is None:
        return x, y, jnp.ones(x.shape[:-1], bool)
    mask = jnp.asarray(mask, bool)
    if mask.shape != x.shape[:-1]:
        raise UserError(f"mask {mask.shape} must be {x.shape[:-1]}, one entry a row")
    return x, y, mask


def _choose(m: Moments, eigen: Array, target: Array, unit: Array, floor: Array) -> Array:
    """The grid's penalty `[...]` with the least GCV score; at least what rounding resolves."""
    grid = jnp.asarray(GCV_GRID, eigen.dtype)
    varies = m.y_square > 0
    scale = jnp.where(varies, m.y_square, 1)
    inverse = jnp.where(eigen > 0, 1 / jnp.where(eigen > 0, eigen, 1), 0)
    energy = target**2 * inverse[..., None] / scale[..., None, :]  # [..., D, F]
    voters = jnp.maximum(varies.sum(-1), 1)
    energy = jnp.where(varies[..., None, :], energy, 0).sum(-1) / voters[..., None]  # [..., D]
    unexplained = jnp.maximum(varies.sum(-1) / voters - energy.sum(-1), 0)

    def score(g: Array) -> Array:
        penalty = jnp.maximum(g * unit, floor)[..., None]
        size = jnp.where(eigen + penalty > 0, eigen + penalty, 1)
        left = unexplained + (energy * (penalty / size) ** 2).sum(-1)
        free = 1 - (1 + (eigen / size).sum(-1)) / jnp.maximum(m.count, 1)
        return jnp.where(free > 0, left / jnp.where(free > 0, free, 1) ** 2, jnp.inf)

    best = grid[jnp.argmin(jax.vmap(score)(grid), axis=0)]
    return jnp.maximum(best * unit, floor)
