"""Smaller caches without gradient descent: truncation, eviction, Attention Matching."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import cho_factor, cho_solve, solve_triangular
from jax.typing import ArrayLike

from jaxmem.common import check_number, check_size, lookup
from jaxmem.recall.attention import slot_logits
from jaxmem.recall.cartridges.border import check_document, fixed_scale
from jaxmem.recall.cartridges.cartridge import SCALE, Cartridge
from jaxmem.recall.facts import Document

LEAST_WEIGHT = 1e-12
"""A slot that Attention Matching gives no mass gets this, so that its bias is finite."""

_Pivots = tuple[Array, Array, Array, Array, Array, Array]
_ROUNDS = 100  # of exchanges between zero and positive weights; about 10 are needed


def truncate(document: Document, slots: int, scale: float = SCALE) -> Cartridge:
    """The first facts, as a context window that is too short keeps them.

    Args:
      document: N facts, keys [N, K] and values [N, V].
      slots: P, at most N.
      scale: inverse temperature.

    Returns:
      The cartridge of the first P facts; it can know P / N of the document.

    Raises:
      ValueError: if there is no slot, more slots than facts, or the document is not sound.
    """
    _check(document, slots)
    scale = fixed_scale(scale)
    return Cartridge(document.keys[:slots], document.values[:slots], scale)


def evict(document: Document, slots: int, queries: Array, scale: float = SCALE) -> Cartridge:
    """The facts that reference questions look at most; the others are dropped.

    s_j = sum_q softmax_j(scale q . k_j), the P highest kept

    Args:
      document: N facts, keys [N, K] and values [N, V].
      slots: P, at most N.
      queries: [Q, K] reference questions.
      scale: inverse temperature.

    Returns:
      The cartridge of P facts, in the order of the document.

    Raises:
      ValueError: if there is no slot, more slots than facts, no question, or a number is not
        finite.

    Source: Zhang et al. 2023 (H2O), arXiv:2306.14048; Li et al. 2024 (SnapKV), arXiv:2404.14469.
    """
    _check(document, slots, queries)
    scale = fixed_scale(scale)
    keys, queries = _at_least_single(document.keys), _at_least_single(queries)
    shares = jax.nn.softmax(slot_logits(queries, keys, scale), axis=-1)  # [Q, N]
    chosen = _most_attended(shares, slots, 0.0)
    return Cartridge(document.keys[chosen], document.values[chosen], scale)


def attention_matching(
    document: Document,
    slots: int,
    queries: Array,
    scale: float = SCALE,
    *,
    select: str = "attention",
    ridge: ArrayLike = 1e-6,
) -> Cartridge:
    """Keys of the document with biases and values that imitate its attention (Attention Matching).

    With x_qj = scale q . k_j, Z_q = sum_j e^{x_qj}, S the P facts whose keys are kept:
    A_qi = e^{x_qi} / Z_q, i in S
    w = argmin_{w >= 0} |A w - 1|^2 + r |w - 1|^2,  bias_i = ln w_i
    B_qi = A_qi w_i / sum_i A_qi w_i
    U = argmin |B U - O|^2 + r |U - V_S|^2,  O_q = sum_j e^{x_qj} v_j / Z_q

    The first keeps the share of attention that the cartridge has beside other tokens, the second
    what it answers. Where questions leave weights or values open, those of the document stay; so
    with P = N the document comes back.

    Args:
      document: N facts, keys [N, K] and values [N, V].
      slots: P, at most N.
      queries: [Q, K] reference questions.
      scale: inverse temperature.
      select: which keys are kept: "attention" (those of `evict`), "peak" (largest attention of
        any question) or "omp" (orthogonal matching pursuit: one at a time the key that takes
        most off |A w - 1|^2, w fitted again after each).
      ridge: r, relative to the sum of squares of A and of B; never less than 8 rounding units.

    Returns:
      The cartridge of P slots with a bias, in the order of the document.

    Raises:
      ValueError: if there is no slot, more slots than facts, no question, a number is not
        finite, no such selection, or ridge is negative.

    Source: Attention Matching, arXiv:2602.16284; here both fits are pulled to the document's.
    """
    _check(document, slots, queries)
    scale = fixed_scale(scale)
    chosen_by = lookup(SELECTIONS, select, "selection of keys")
    check_number("ridge", ridge)
    chosen, bias, values = match(document, queries, scale, ridge, slots, chosen_by)
    return Cartridge(document.keys[chosen], values, scale, bias)


def nonnegative_least_squares(
    matrix: Array, target: Array, ridge: ArrayLike = 1e-6, prior: ArrayLike = 0.0
) -> Array:
    """Non-negative least squares, exactly, by block principal pivoting.

    w = argmin_{w >= 0} |A w - b|^2 + r |w - p|^2, r = ridge |A|^2 (sum of squares)

    Args:
      matrix: A [Q, P].
      target: b [Q].
      ridge: at least 0; less than 8 rounding units is taken as that much, so that the solution
        is unique.
      prior: p, [P] or scalar.

    Returns:
      w [P].

    Source: Kim and Park 2011, SIAM J. Sci. Comput. 33(6), algorithm 3.1.
    """
    with jax.default_matmul_precision("highest"):
        prior = jnp.broadcast_to(jnp.asarray(prior, matrix.dtype), matrix.shape[1:])
        gram, moment = _normal_equations(matrix, target - matrix @ prior, ridge)
        first = cho_solve(cho_factor(gram, lower=True), moment)
        return prior + _bounded(gram, moment, -prior, first)  # the difference rounds less


@partial(jax.jit, static_argnames=("slots", "chosen_by"))
def match(
    document: Document,
    queries: Array,
    scale: ArrayLike,
    ridge: ArrayLike,
    slots: int,
    chosen_by: Callable[[Array, int, ArrayLike], Array],
) -> tuple[Array, Array, Array]:
    """`attention_matching` without its checks, for many heads at once by vmap.

    Args:
      document: keys [N, K] and values [N, V].
      queries: [Q, K].
      scale, ridge, slots: see `attention_matching`.
      chosen_by: one of `SELECTIONS`.

    Returns:
      Numbers of the kept keys [P] (ascending), biases [P] and values [P, V].
    """
    keys, old, queries = (_at_least_single(part) for part in (*document, queries))
    with jax.default_matmul_precision("highest"):  # normal equations square the rounding
        shares = jax.nn.softmax(slot_logits(queries, keys, scale), axis=-1)  # [Q, N]
        chosen = chosen_by(shares, slots, ridge)  # [P]
        kept = shares[:, chosen]  # A [Q, P]
        weights = nonnegative_least_squares(kept, jnp.ones(len(kept), kept.dtype), ridge, 1.0)
        bias = jnp.log(jnp.maximum(weights, LEAST_WEIGHT))  # [P]
        compact = jax.nn.softmax(slot_logits(queries, keys[chosen], scale, bias), axis=-1)  # B
        missing = shares @ old - compact @ old[chosen]  # [Q, V]
        gram, moment = _normal_equations(compact, missing, ridge)
        values = old[chosen] + cho_solve(cho_factor(gram, lower=True), moment)  # U [P, V]
    return chosen, bias, values.astype(document.values.dtype)


def _at_least_single(array: Array) -> Array:
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))


def _most_attended(shares: Array, slots: int, ridge: ArrayLike) -> Array:
    """Indices [P] of the columns of shares [Q, N] with the largest sums, ascending."""
    return jnp.sort(jax.lax.top_k(jnp.sum(shares, axis=0), slots)[1])


def _peaks(shares: Array, slots: int, ridge: ArrayLike) -> Array:
    """Indices [P] of the columns of shares [Q, N] with the largest single share, ascending."""
    return jnp.sort(jax.lax.top_k(jnp.max(shares, axis=0), slots)[1])


def _pursuit(shares: Array, slots: int, ridge: ArrayLike) -> Array:
    """Indices [P] of columns of shares [Q, N] whose weighted sum is nearest to 1, ascending.

    j = argmax_j max(a_j . (1 - A_S w_S), 0)^2 / |a_j|^2
    """
    ones = jnp.ones(len(shares), shares.dtype)
    gram, moment = _normal_equations(shares, ones, ridge)
    norms, eps = jnp.sqrt(jnp.diagonal(gram)), jnp.finfo(gram.dtype).eps

    def add(t: int, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        chosen, weights, lower = state  # [P], [P], [P, P] Cholesky factor, identity beyond t
        there = jnp.arange(slots) < t
        some = gram[:, chosen]  # [N, P]
        gains = (moment - some @ weights) / norms  # [N]
        taken = jnp.zeros(len(gram), bool).at[chosen].max(there)
        best = jnp.argmax(jnp.where(taken, -jnp.inf, gains))
        row = solve_triangular(lower, jnp.where(there, some[best], 0), lower=True)
        rest = jnp.sqrt(jnp.maximum(gram[best, best] - row @ row, eps * gram[best, best]))
        lower = lower.at[t].set(row.at[t].set(rest))
        chosen, there = chosen.at[t].set(best), there.at[t].set(True)
        sides = jnp.where(there, moment[chosen], 0)
        first = cho_solve((lower, True), sides)
        return chosen, _bounded(gram[chosen][:, chosen], sides, zeros, first, there), lower

    zeros = jnp.zeros(slots, gram.dtype)
    start = jnp.zeros(slots, int), zeros, jnp.eye(slots, dtype=gram.dtype)
    return jnp.sort(jax.lax.fori_loop(0, slots, add, start)[0])


SELECTIONS = {"attention": _most_attended, "peak": _peaks, "omp": _pursuit}
"""Ways to choose keys: shares [Q, N], slots and ridge to the indices [P]."""


def _normal_equations(matrix: Array, target: Array, ridge: ArrayLike) -> tuple[Array, Array]:
    """A^T A + r I [P, P] and A^T b [P, ...]; r exceeds rounding, and 0 even if A is zero."""
    gram = matrix.T @ matrix
    least = 8 * jnp.finfo(gram.dtype).eps  # so that the Cholesky factor exists
    strength = jnp.maximum(jnp.maximum(ridge, least) * jnp.trace(gram), 1e-30)
    return gram + strength * jnp.eye(len(gram), dtype=gram.dtype), matrix.T @ target


def _bounded(
    gram: Array, moment: Array, low: Array, first: Array, there: ArrayLike = True
) -> Array:
    """argmin_{w >= low} w G w / 2 - c w over the entries `there`; the others are 0.

    Entries are free (gradient 0) or at their bound (gradient y = G w - c >= 0). All that break
    this change sides at once as long as their number falls, otherwise the last one alone, which
    ends after finitely many rounds.

    Args:
      gram: G [P, P], positive definite.
      moment: c [P], 0 where not `there`.
      low: [P], 0 where not `there`.
      first: [P] the solution without bounds, which most often is the answer.
      there: [P] boolean.
    """
    size = len(gram)
    norms = jnp.sqrt(jnp.diagonal(gram))
    gram, moment = gram / norms[:, None] / norms, moment / norms  # w' = norms w: a unit diagonal
    low, first = low * norms, first * norms
    largest = jnp.max(jnp.abs(moment)) + jnp.max(jnp.abs(gram @ low))
    slack = 10 * jnp.finfo(gram.dtype).eps * largest

    def breaks(free: Array, weights: Array) -> Array:
        return jnp.where(free, weights < low, gram @ weights - moment < -slack) & there

    def going(state: _Pivots) -> Array:
        return jnp.any(state[2]) & (state[5] < _ROUNDS)

    def exchange(state: _Pivots) -> _Pivots:
        free, _, wrong, fewest, tries, rounds = state
        count = jnp.sum(wrong)
        tries = jnp.where(count < fewest, 3, tries - 1)
        last = jnp.arange(size) == size - 1 - jnp.argmax(wrong[::-1])
        free = free ^ jnp.where(tries >= 0, wrong, last)
        system = jnp.where(free[:, None] & free, gram, jnp.eye(size, dtype=gram.dtype))
        sides = jnp.where(free, moment - gram @ jnp.where(free, 0, low), low)
        weights = cho_solve(cho_factor(system, lower=True), sides)
        wrong = breaks(free, weights)
        return free, weights, wrong, jnp.minimum(fewest, count), tries, rounds + 1

    free = jnp.broadcast_to(jnp.asarray(there), (size,))
    counters = jnp.asarray(size + 1), jnp.asarray(3), jnp.asarray(0)
    state = free, first, breaks(free, first), *counters
    return jnp.maximum(jax.lax.while_loop(going, exchange, state)[1], low) / norms


def _check(document: Document, slots: int, queries: Array | None = None) -> None:
    check_document(document)
    facts, dim = document.keys.shape
    if check_size("slots", slots) > facts:
        raise ValueError(f"expected at most as many slots as facts, {facts}, got {slots}")
    if queries is None:
        return
    if queries.ndim != 2 or queries.shape[1] != dim or not len(queries):
        raise ValueError(f"expected questions [Q, {dim}], got {queries.shape}")
    if not isinstance(queries, jax.core.Tracer) and not np.all(np.isfinite(np.asarray(queries))):
        raise ValueError("expected finite questions, got NaN or infinity among them")
