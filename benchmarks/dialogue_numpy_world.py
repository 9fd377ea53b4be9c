"""Conversations and questions in numpy; part of the rival, see `dialogue_numpy.py`."""

from typing import Any, NamedTuple

import numpy as np

from jaxmem.dialogue import KINDS, LOCOMO
from jaxmem.dialogue.questions import BEFORE, NEWEST, TWO_HOP
from jaxmem.dialogue.world import NEVER

W, f32 = LOCOMO, np.float32
M, D, F, K, T, V, H = W.longest, W.dim, W.statements, W.topics, W.touches, W.versions, W.holders
ROLE0 = W.static + W.changing * V  # slots: static, changing x version, role x holder, told
TOLD0 = ROLE0 + W.persons  # person x (home town, job)
NOISE, PREDICATE, TOKENS, TOKENS_SD = (
    f32(np.asarray(value))
    for value in (W.noise, W.predicate_weight, W.message_tokens, W.message_tokens_sd)
)
WIDTH = max(V, H)

# [K, WIDTH] slots of each topic's versions in order of time; F, a slot without a statement, pads.
TABLE = np.full((K, WIDTH), F)
TABLE[: W.static, 0] = np.arange(W.static)
TABLE[W.static : W.static + W.changing, :V] = np.arange(W.static, ROLE0).reshape(-1, V)
TABLE[W.first_role :, :H] = np.arange(ROLE0, TOLD0).reshape(-1, H)
# [F, WIDTH] slots of the same key, and which of them come later or earlier.
TOPIC = np.concatenate(
    [np.arange(W.static), np.repeat(np.arange(W.changing) + W.static, V),
     np.repeat(np.arange(W.roles) + W.first_role, H)]
)  # fmt: skip
SAME = np.full((F, WIDTH), F)
SAME[:TOLD0], SAME[TOLD0:, 0] = TABLE[TOPIC], np.arange(TOLD0, F)
_self = np.arange(F)[:, None]
LATER, EARLIER = (_self < SAME) & (SAME < F), _self > SAME
PERSON_WORD, PREDICATE_WORD, WORDS = K, K + W.persons, K + W.persons + 2
OWNER = np.repeat(np.arange(W.persons), 2)
FIRST = np.concatenate([TOPIC, PERSON_WORD + OWNER])
SECOND = np.concatenate(
    [np.zeros(ROLE0, int), PERSON_WORD + np.arange(W.persons),
     PREDICATE_WORD + np.tile([0, 1], W.persons)]
)  # fmt: skip
WEIGHT = np.concatenate([np.zeros(ROLE0), np.ones(W.persons), np.full(F - TOLD0, PREDICATE)])

# Questions, in the order of `ask`; after them a search by each role.
_changing = [*range(W.static, W.static + W.changing), *range(W.first_role, K)]
_parts = (
    ("current", NEWEST, [*range(W.static + W.changing), *range(W.first_role, K)]),
    ("previous", BEFORE, _changing),
    ("two_hop", TWO_HOP, list(np.repeat(range(W.first_role, K), 2))),
    ("as_of", NEWEST, _changing),
    ("unanswerable", NEWEST, list(range(W.static + W.changing, W.first_role))),
    ("unanswerable", BEFORE, list(range(min(W.unstated, W.static)))),
)
KIND = np.concatenate([[KINDS.index(kind)] * len(keys) for kind, _, keys in _parts])
ASKS = np.concatenate([[asks] * len(keys) for _, asks, keys in _parts])
ABOUT = np.concatenate([keys for _, _, keys in _parts])
Q, AS_OF = len(KIND), np.equal(KIND, KINDS.index("as_of"))
PAST = np.flatnonzero((ASKS == BEFORE) | AS_OF)
HOP = np.flatnonzero(ASKS == TWO_HOP)
PREDICATES = np.tile([1, 0], W.roles)  # of HOP
SLOTS = TABLE[ABOUT]  # [Q, WIDTH]
THEIRS = TOLD0 + 2 * (np.arange(H) + H * (ABOUT[HOP] - W.first_role)[:, None]) + PREDICATES[:, None]
BY_ROLE = Q + ABOUT[HOP] - W.first_role  # rows of searches
FINDS = np.arange(Q)
FINDS[HOP] = BY_ROLE
ASKED_FIRST = np.concatenate([ABOUT, np.arange(W.first_role, K)])
ASKED_SECOND = np.zeros(Q + W.roles, int)
ASKED_SECOND[HOP] = PREDICATE_WORD + PREDICATES
ASKED_WEIGHT = PREDICATE * (ASKED_SECOND > 0)

# Versions by the bits of those that are seen: the newest one, and the one before it.
_codes = range(2**WIDTH)
_newest = [code.bit_length() - 1 for code in _codes]
_before = [(code & ~(1 << code.bit_length() >> 1)).bit_length() - 1 for code in _codes]
VERSION = np.array([_newest, _before, _newest], np.int8)  # [asks, code]
SIGNS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1) * f32(2 / D**0.5)
SIGNS -= f32(1 / D**0.5)  # [256, 8]


def signs(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Random signs of length 1."""
    out = np.empty((*shape, D), f32)
    raw = rng.bit_generator.random_raw(out.size // 64).view(np.uint8)
    np.take(SIGNS, raw, axis=0, out=out.reshape(-1, 8), mode="clip")
    return out


def unit(x: np.ndarray) -> np.ndarray:
    """Rows scaled to length 1, in place."""
    x *= (1 / np.sqrt(np.einsum("...d,...d->...", x, x)))[..., None]
    return x


def meaning(words: np.ndarray, first: Any, second: Any, weight: np.ndarray) -> np.ndarray:
    """unit(words[first] + weight words[second]), rows known beforehand."""
    out = words[:, first]
    plus = np.flatnonzero(weight)
    out[:, plus] += words[:, second[plus]] * weight[plus, None].astype(f32)
    out[:, plus] = unit(out[:, plus])
    return out


def embed(rng: np.random.Generator, meanings: np.ndarray) -> np.ndarray:
    """unit(meaning + noise signs)."""
    x = signs(rng, *meanings.shape[:-1])
    x *= NOISE
    x += meanings
    return unit(x)


def bits(seen: np.ndarray) -> np.ndarray:
    """[..., <= 8] of bool as a number."""
    return np.packbits(seen, axis=-1, bitorder="little")[..., 0]


class Talk(NamedTuple):
    """B conversations and their questions."""

    messages: np.ndarray  # [B] how many
    tokens: np.ndarray  # [B, M]
    end: np.ndarray  # [B, M] tokens up to and with each message
    place: np.ndarray  # [B, F] message of each statement, NEVER without
    exists: np.ndarray  # [B, F]
    words: np.ndarray  # [B, WORDS, D]
    meanings: np.ndarray  # [B, F, D]
    embeddings: np.ndarray  # [B, M, D]
    queries: np.ndarray  # [B, Q + roles, D]
    asked: np.ndarray  # [B, Q, WIDTH] versions that count
    their: np.ndarray  # [B, 8, H] whether home or job was stated
    answer: np.ndarray  # [B, Q] version
    mask: np.ndarray  # [B, Q]

    def right(self, shown: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        """Whether the reader is right: [B, Q, WIDTH] versions shown, [B, 8, H] of holders."""
        seen = bits(shown & self.asked)
        right = VERSION[ASKS, seen] == self.answer
        holder = VERSION[NEWEST][seen[:, HOP]]
        right[:, HOP] &= (holder >= 0) & self.knows(holder, theirs)
        return right

    def knows(self, holder: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        """Whether the statement about each holder is among those shown."""
        return (bits(theirs & self.their) >> np.maximum(holder, 0)) & 1 > 0


def talk(rng: np.random.Generator, size: int) -> Talk:
    """Draw B conversations and ask all questions."""
    absent = f32(2.0)  # a time after all

    def uniform(*shape: int) -> np.ndarray:
        return rng.random((size, *shape), dtype=f32)

    count = rng.integers(W.messages - W.spread, W.messages + W.spread + 1, size)
    changes = rng.integers(1, W.most_changes + 1, (size, W.changing, 1))
    successions = rng.integers(0, W.most_holders, (size, W.roles, 1))
    changed = np.sort(np.where(np.arange(V) <= changes, uniform(W.changing, V), absent))
    tenure = np.arange(H) <= successions
    start = np.sort(np.where(tenure, uniform(W.roles, H), absent))
    close = np.minimum(np.concatenate([start[..., 1:], np.ones_like(start[..., :1])], -1), 1)
    told = start[..., None] + uniform(W.roles, H, 2) * (close - start)[..., None]
    told = np.where(tenure[..., None], told, absent)
    parts = (uniform(W.static), changed, start, told)
    times = np.concatenate([part.reshape(size, -1) for part in parts], axis=1)  # [B, F]
    exists = times < absent
    touched = np.arange(T) < rng.poisson(W.mentions * K, (size, 1))
    said = exists.sum(1) + touched.sum(1)
    small = np.arange(M) < (count - said)[:, None]
    moments = np.concatenate(
        [times, np.where(touched, uniform(T), absent), np.where(small, uniform(M), absent)], axis=1
    )
    order = np.argsort(moments, axis=1)
    rank = np.empty(order.shape, np.int64)
    np.put_along_axis(rank, order, np.arange(order.shape[1])[None], axis=1)
    place = np.where(exists, rank[:, :F], NEVER)
    there = np.arange(M) < count[:, None]
    tokens = rng.standard_normal((size, M), dtype=f32) * TOKENS_SD
    tokens = (np.maximum(np.rint(tokens + TOKENS), 8) * there).astype(np.int64)

    words = signs(rng, size, WORDS)
    meanings = meaning(words, FIRST, SECOND, WEIGHT)
    embeddings = signs(rng, size, M)  # unit(noise signs) = signs
    embeddings[~there] = 0
    topics = rng.integers(0, K, (size, T))
    rows, column = np.nonzero(exists)
    other, touch = np.nonzero(touched)
    at = np.concatenate([rows * M + place[rows, column], other * M + rank[other, F + touch]])
    flat = embeddings.reshape(-1, D)
    about = np.concatenate([meanings[rows, column], words[other, topics[other, touch]]])
    about += NOISE * flat[at]
    flat[at] = unit(about)

    queries = embed(rng, meaning(words, ASKED_FIRST, ASKED_SECOND, ASKED_WEIGHT))
    padded = np.append(place, np.full((size, 1), NEVER), axis=1)
    when = padded[:, SLOTS]  # [B, Q, WIDTH]
    since = when[..., 0]
    moment = since + (uniform(Q) * (count[:, None] - since)).astype(np.int64)
    asked = (when < NEVER) & (when <= np.where(AS_OF, moment, NEVER)[..., None])
    seen = bits(asked)
    answer = VERSION[ASKS, seen]
    their = exists[:, THEIRS]
    mask = np.ones((size, Q), bool)
    needs = np.equal(KIND, KINDS.index("previous")) | AS_OF
    mask[:, needs] = when[:, needs, 1] < NEVER
    mask[:, HOP] = (bits(their) >> np.maximum(answer[:, HOP], 0)) & 1 > 0
    end = np.cumsum(tokens, axis=1)
    return Talk(
        count, tokens, end, place, exists, words, meanings, embeddings, queries, asked, their,
        answer, mask
    )  # fmt: skip


def first(sorted_rows: np.ndarray, values: np.ndarray, side: Any = "left") -> np.ndarray:
    """`np.searchsorted` in each row: [B, N] of numbers below 2^30, [B] or [B, n] values."""
    lift = np.arange(len(sorted_rows)) << 31
    lifted = lift if values.ndim == 1 else lift[:, None]
    found = np.searchsorted((sorted_rows + lift[:, None]).ravel(), values + lifted, side)
    return found - (lifted >> 31) * sorted_rows.shape[1]


def packed(scores: np.ndarray) -> np.ndarray:
    """Scores as whole numbers in the same order, the first of nearly equal ones ahead.

    The last 10 bits are 1023 less the index, and 13 bits of a score are left.
    """
    numbers = scores.view(np.int32)
    numbers &= ~np.int32(1023)
    numbers |= 1023 - np.arange(scores.shape[-1], dtype=np.int32)
    return numbers


def highest(numbers: np.ndarray, count: int) -> np.ndarray:
    """[..., count] the highest of `packed`, in no order; leaves the rest in disorder."""
    count = min(count, numbers.shape[-1])
    numbers.partition(numbers.shape[-1] - count, axis=-1)
    return numbers[..., -count:]


def pick(values: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """values[b, rows[i], columns[b, i, j]]."""
    return values[np.arange(len(values))[:, None, None], rows[:, None], columns]
