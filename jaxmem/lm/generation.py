"""Text from the decoder, token by token: greedy, or drawn from its distribution."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxmem.common import check_number, check_size
from jaxmem.lm.config import Config
from jaxmem.lm.decoder import Cache, logits
from jaxmem.lm.fit import check_fit, first_question
from jaxmem.lm.inference import KeysValues, no_keys_values, read_prompts, read_token
from jaxmem.lm.parameters import Params
from jaxmem.lm.sampling import choose_tokens
from jaxmem.recall.cartridges import Cartridge

CHUNK = 512
"""Tokens of a row that a prompt is read in at once, so that memory is bounded."""

_COLDEST = 1e-30  # below, single precision has no inverse
_CHUNK_TOKENS = 4096  # of all rows together
_FEWEST_ROWS = 8  # bfloat16 products of fewer rows with the head run ten times slower on a CPU


class Generated(NamedTuple):
    """What followed each prompt.

    ids: [B, N] the chosen tokens; after a row's end its stop token, or 0 where there is none.
    lengths: [B] tokens of each row, its stop token included.
    log_probs: [B, N] log-probability of each token by the model at temperature 1; 0 after the end.
    """

    ids: Array
    lengths: Array
    log_probs: Array


class _Loop(NamedTuple):
    step: Array
    key: Array | None
    grown: KeysValues
    found: Generated
    done: Array


def generate(
    params: Params,
    config: Config,
    ids: ArrayLike,
    lengths: ArrayLike,
    *,
    steps: int,
    key: Array | None = None,
    temperature: float = 0.0,
    top_p: float = 1.0,
    cartridge: Cartridge | None = None,
    stop: int | Sequence[int] = (),
) -> Generated:
    """Continue prompts, each until a stop token or for so many steps.

    Tokens are drawn from softmax(logits / temperature), or are its maximum at temperature 0; with
    top_p from the most likely tokens that together have at least that probability. A program is
    compiled for each shape of ids and number of steps.

    Args:
      params: the model's.
      config: its shape.
      ids: [B, T] prompts, padded on the right with any token.
      lengths: [B] tokens of each prompt, 1 to T.
      steps: most tokens to make a row, N.
      key: PRNG key; needed above temperature 0.
      temperature: 0 for the most likely token.
      top_p: share of the probability that is drawn from, above 0 and at most 1.
      cartridge: that every row reads, keys [L, G, P, K]; positions count from its first question,
        from its number of slots where it states none.
      stop: ids that end a row.

    Returns:
      Tokens [B, N], their number [B] and their log-probabilities [B, N].

    Raises:
      ValueError: if shapes or lengths do not fit, an id is outside the vocabulary, the model has
        not so many positions, the cartridge is another model's, or there is no key.
    """
    prompts, counts = _checked_prompts(config, ids, lengths)
    steps = check_size("steps", steps)
    check_number("temperature", temperature, 0.0, 1e6, scalar=True)
    check_number("top_p", top_p, 0.0, 1.0, scalar=True)
    if top_p == 0:
        raise ValueError("top_p must be above 0, got 0; temperature 0 takes the likeliest token")
    if temperature < _COLDEST:
        temperature = 0.0
    if temperature > 0 and key is None:
        raise ValueError(f"expected a key to draw with at temperature {temperature}, got none")
    ends = tuple(
        check_size("stop", one, 0, config.vocabulary - 1) for one in np.atleast_1d(stop).tolist()
    )
    first = _checked_first(config, cartridge, int(counts.max()) + steps)
    return _generate(
        params,
        jnp.asarray(prompts),
        jnp.asarray(counts),
        first,
        cartridge,
        jnp.asarray(ends, jnp.int32),
        key if temperature > 0 else None,
        temperature,
        top_p if top_p < 1 else None,
        config=config,
        steps=steps,
    )


def prefill(
    params: Params,
    config: Config,
    ids: ArrayLike,
    cartridge: Cartridge | None = None,
    chunk: int = CHUNK,
) -> Cache:
    """Read documents in pieces, each over what was read before, in bounded memory.

    Args:
      params: the model's.
      config: its shape.
      ids: [B, T] tokens, without padding.
      cartridge: read in front of them, keys [L, G, P, K]; see `generate`.
      chunk: tokens a row that are read at once.

    Returns:
      The cache of all the tokens, keys and values [L, B, T, G, K].

    Raises:
      ValueError: if an id is outside the vocabulary, the model has not so many positions, or the
        cartridge is another model's.
    """
    length = np.shape(ids)[-1] if np.ndim(ids) else 0
    tokens, counts = _checked_prompts(config, ids, np.full(np.shape(ids)[:1], length))
    first = _checked_first(config, cartridge, length)
    chunk = min(check_size("chunk", chunk), length)
    rows = jnp.asarray(tokens), jnp.asarray(counts)
    return _prefill(params, *rows, first, cartridge, config=config, chunk=chunk)


@partial(jax.jit, static_argnames=("config", "chunk"))
def _prefill(
    params: Params,
    ids: Array,
    lengths: Array,
    first: Array,
    cartridge: Cartridge | None,
    *,
    config: Config,
    chunk: int,
) -> Cache:
    found, _ = read_prompts(params, config, ids, lengths, first, cartridge, chunk)
    return Cache(jnp.swapaxes(found.keys, 2, 3), jnp.swapaxes(found.values, 2, 3), lengths)


@partial(jax.jit, static_argnames=("config", "steps"))
def _generate(
    params: Params,
    ids: Array,
    lengths: Array,
    first: Array,
    cartridge: Cartridge | None,
    stop: Array,
    key: Array | None,
    temperature: ArrayLike,
    top_p: ArrayLike | None,
    *,
    config: Config,
    steps: int,
) -> Generated:
    batch, length = ids.shape
    chunk = min(length, CHUNK, max(16, _CHUNK_TOKENS // batch))
    prompt, last = read_prompts(params, config, ids, lengths, first, cartridge, chunk)
    grown = no_keys_values(config, batch, steps, last.dtype)
    filler = stop[0] if stop.size else 0
    found = Generated(
        jnp.full((batch, steps), filler, jnp.int32),
        jnp.zeros(batch, jnp.int32),
        jnp.zeros((batch, steps), last.dtype),
    )

    def choose(loop: _Loop, hidden: Array) -> _Loop:  # [B, D]
        """Write the next token of the rows that have not ended."""
        step, key, grown, found, done = loop
        key, now = (None, None) if key is None else jax.random.split(key)
        rows = jnp.pad(hidden, ((0, max(0, _FEWEST_ROWS - batch)), (0, 0)))
        token, log_prob = choose_tokens(logits(params, rows)[:batch], now, temperature, top_p)
        found = Generated(
            found.ids.at[:, step].set(jnp.where(done, filler, token)),
            found.lengths + ~done,
            found.log_probs.at[:, step].set(jnp.where(done, 0, log_prob)),
        )
        done = done | jnp.isin(token, stop)
        return _Loop(step + 1, key, grown, found, done)

    def body(loop: _Loop) -> _Loop:
        count = loop.step - 1  # tokens that were read after the prompt
        token = jax.lax.dynamic_slice_in_dim(loop.found.ids, count, 1, 1)  # [B, 1]
        place = first + lengths + count
        hidden, grown = read_token(
            params, config, token, place, prompt, lengths, loop.grown, count, cartridge
        )
        return choose(loop._replace(grown=grown), hidden)

    start = _Loop(jnp.int32(0), key, grown, found, jnp.zeros(batch, bool))
    loop = jax.lax.while_loop(
        lambda loop: (loop.step < steps) & ~jnp.all(loop.done), body, choose(start, last)
    )
    return loop.found


def _checked_prompts(
    config: Config, ids: ArrayLike, lengths: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """Prompts [B, T] and their lengths [B] as int32, after a look at each."""
    prompts, counts = np.asarray(ids), np.asarray(lengths)
    if prompts.ndim != 2 or not prompts.size or counts.shape != prompts.shape[:1]:
        raise ValueError(
            f"expected ids [B, T] and lengths [B], got {prompts.shape} and {counts.shape}"
        )
    for name, array in (("ids", prompts), ("lengths", counts)):
        if array.dtype.kind not in "iu":
            raise ValueError(f"expected {name} of whole numbers, got {array.dtype}")
    batch, length = prompts.shape
    for row in range(batch):
        if not 1 <= counts[row] <= length:
            raise ValueError(f"expected lengths in 1..{length}, got {counts[row]} in row {row}")
    bad = np.argwhere((prompts < 0) | (prompts >= config.vocabulary))
    if len(bad):
        row, place = bad[0]
        raise ValueError(
            f"expected ids in 0..{config.vocabulary - 1}, got {prompts[row, place]} in row {row}"
        )
    return prompts.astype(np.int32), counts.astype(np.int32)


def _checked_first(config: Config, cartridge: Cartridge | None, tokens: int) -> Array:
    """Position of the first token, after a look at the cartridge and at what the model can hold."""
    if cartridge is not None:
        check_fit(cartridge, config)
    first = first_question(cartridge)
    if first + tokens > config.positions:
        before = f" after {first:,} positions" if first else ""
        raise ValueError(
            f"the model's context is {config.positions:,} tokens, got {tokens:,}{before}"
        )
    return jnp.int32(first)
