"""Every memory by chunks against its recurrence, its twin in numpy and the identities it obeys."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

from jaxmem.recall import memories as m
from jaxmem.recall.facts import facts
from jaxmem.recall.memories import MEMORIES, Gates, Memory
from jaxmem.reference import memories as reference

KEY_DIM, VALUE_DIM, WRITES = 9, 6, 200
SPLITS = (1, 7, 0, 64, 65, -1)  # lengths of write_chunk calls; -1 is a single write
SPLIT_WRITES = 138
SHIFT = np.linspace(-0.2, 0.3, KEY_DIM)
QUICK = {"xla_backend_optimization_level": 0}  # these tests are compile-bound
KEYS = ("random", "correlated", "repeated")


class Stream(NamedTuple):
    keys: np.ndarray
    values: np.ndarray
    queries: np.ndarray
    gates: Gates


class Case(NamedTuple):
    """A memory, the gates it has with their range, and its twin on a stream."""

    memory: Memory
    ranges: Gates  # (low, high) each
    twin: Callable[[Stream], tuple[np.ndarray, ...]]  # (leaves of the state..., outputs)
    value_dim: int = VALUE_DIM


def _titans(s: Stream) -> tuple[np.ndarray, ...]:
    g = s.gates
    return reference.titans(*s[:3], g.rate, g.momentum, g.decay, chunk=16)


CASES = {
    "outer_product": Case(m.outer_product(chunk=64), Gates(), lambda s: reference.decay(*s[:3])),
    "decay": Case(
        m.decay(chunk=64), Gates((0.7, 1)), lambda s: reference.decay(*s[:3], s.gates.decay)
    ),
    "delta_rule": Case(
        m.delta_rule(chunk=16),
        Gates(None, (0.2, 1)),
        lambda s: reference.gated_delta_rule(*s[:3], 1.0, s.gates.rate),
    ),
    "gated_delta_rule": Case(
        m.gated_delta_rule(chunk=16),
        Gates((0.7, 1), (0.2, 1)),
        lambda s: reference.gated_delta_rule(*s[:3], s.gates.decay, s.gates.rate),
    ),
    "longhorn": Case(
        m.longhorn(chunk=16),
        Gates(None, (0.2, 5)),
        lambda s: reference.longhorn(*s[:3], s.gates.rate),
    ),
    "titans": Case(m.titans(chunk=16), Gates((0.7, 1), (0.02, 0.05), (0, 0.6)), _titans),
    "ttt": Case(
        m.ttt(0.1, bias=0.5, scale=0.6, shift=SHIFT, chunk=16),
        Gates(None, (0.01, 0.05)),
        lambda s: reference.ttt(*s[:3], s.gates.rate, 0.5, 0.6, SHIFT, 16),
        KEY_DIM,
    ),
    "recursive_least_squares": Case(
        m.recursive_least_squares(0.3, chunk=16),
        Gates(),
        lambda s: reference.recursive_least_squares(*s[:3], 0.3),
    ),
    "ridge": Case(
        m.ridge(0.3, chunk=64),
        Gates((0.7, 1), (0.2, 1)),
        lambda s: reference.ridge(*s[:3], 0.3, s.gates.decay, s.gates.rate),
    ),
}


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def stream(case: Case, kind: str, length: int = WRITES, seed: int = 0) -> Stream:
    """A stream of unit keys with a gate a write; the decay is 0 once."""
    rng = np.random.default_rng(seed)
    keys = unit(rng.normal(size=(length, KEY_DIM)))
    if kind == "correlated":
        keys = unit(unit(rng.normal(size=KEY_DIM)) + 0.2 * keys)
    if kind == "repeated":
        keys = keys[rng.integers(0, 5, length)]
    values = rng.normal(size=(length, case.value_dim)) / np.sqrt(case.value_dim)
    gates = [None if ends is None else rng.uniform(*ends, length) for ends in case.ranges]
    if gates[0] is not None:
        gates[0][length // 3] = 0.0
    return Stream(keys, values, unit(keys + 0.3 * rng.normal(size=keys.shape)), Gates(*gates))


def start(memory: Memory, s: Stream) -> Any:
    return memory.init(s.keys.shape[1], s.values.shape[1])


def whole(memory: Memory, s: Stream) -> tuple[Any, Array]:
    return memory.write_chunk(start(memory, s), *s)


def recurrent(memory: Memory, s: Stream) -> tuple[Any, Array]:
    def step(state: Any, row: Stream) -> tuple[Any, Array]:
        state = memory.write(state, row.keys, row.values, row.gates)
        return state, memory.read(state, row.queries)

    return lax.scan(step, start(memory, s), s)


def cut(s: Stream, begin: int, end: int) -> Stream:
    return jax.tree.map(lambda x: x[begin:end], s)


def split(memory: Memory, s: Stream) -> tuple[Any, Array]:
    """The first writes of the stream, by calls of many lengths."""
    state, done, outputs = start(memory, s), 0, []
    for length in SPLITS:
        part = cut(s, done, done + abs(length))
        if length < 0:
            row = jax.tree.map(lambda x: x[0], part)
            state = memory.write(state, row.keys, row.values, row.gates)
            outputs.append(memory.read(state, part.queries))
        else:
            state, read = memory.write_chunk(state, *part)
            outputs.append(read)
        done += abs(length)
    return state, jnp.concatenate(outputs)


def loss(form: Callable[[Memory, Stream], tuple[Any, Array]], memory: Memory, s: Stream) -> Any:
    """A number that depends on all outputs and on the whole final state."""
    state, outputs = form(memory, s)
    parts = [x for x in (*jax.tree.leaves(state), outputs) if jnp.issubdtype(x.dtype, jnp.floating)]
    total = sum(jnp.sum(x * jnp.sin(1.0 + jnp.arange(x.size)).reshape(x.shape)) for x in parts)
    return total, (state, outputs)


def close(name: str, got: Any, want: Any, tolerance: float) -> None:
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape, f"{name}: {got.shape} and not {want.shape}"
    error = np.linalg.norm(got - want) / max(np.linalg.norm(want), 1e-300)
    assert error <= tolerance, f"{name}: relative RMS error {error:.1e} over {tolerance}"


def close_to_twin(name: str, got: tuple[Any, Any], want: tuple[Any, ...], tolerance: float) -> None:
    state, outputs = got
    close(f"{name}: outputs", outputs, want[-1], tolerance)
    for leaf, twin in zip(jax.tree.leaves(state), want[:-1]):
        close(f"{name}: state", leaf, twin, tolerance)


def moved(s: Stream, along: Stream, step: float) -> Stream:
    return jax.tree.map(lambda x, d: x + step * d, s, along)


def named(s: Stream) -> dict[str, Any]:
    found = {"keys": s.keys, "values": s.values, "queries": s.queries, **s.gates._asdict()}
    return {name: x for name, x in found.items() if x is not None}


@pytest.mark.parametrize("name", CASES)
def test_chunks_equal_recurrence(name: str) -> None:
    """Values, states and gradients in float64 and float32, for hard keys and a decay of 0."""
    case = CASES[name]

    def everything(s: Stream) -> Any:
        value = jax.value_and_grad(lambda s: loss(whole, case.memory, s), has_aux=True)
        (total, chunked), gradient = value(s)
        slow = jax.grad(lambda s: loss(recurrent, case.memory, s)[0])(s)
        return total, chunked, gradient, slow, split(case.memory, s)

    single = jax.jit(jax.grad(lambda s: loss(whole, case.memory, s), has_aux=True))
    compiled = None
    for kind in KEYS:
        s = stream(case, kind)
        want = case.twin(s)
        with jax.enable_x64(True):
            compiled = compiled or jax.jit(everything, compiler_options=QUICK)
            _, chunked, gradient, slow, parts = compiled(s)
            close_to_twin(f"{kind}, whole", chunked, want, 1e-12)
            early = case.twin(cut(s, 0, SPLIT_WRITES))
            close_to_twin(f"{kind}, in parts", parts, early, 1e-12)
            for part, one in named(gradient).items():
                close(f"{kind}, gradient of {part}", one, named(slow)[part], 1e-12)
            along = stream(case, kind, seed=1)
            ends = [compiled(moved(s, along, step))[0] for step in (1e-6, -1e-6)]
            slope = sum(np.vdot(g, d) for g, d in zip(*map(jax.tree.leaves, (gradient, along))))
            close(f"{kind}, slope", slope, (ends[0] - ends[1]) / 2e-6, 1e-6)
        with jax.default_matmul_precision("highest"):
            low, aux = single(jax.tree.map(lambda x: x.astype(np.float32), s))
        close_to_twin(f"{kind}, float32", aux, want, 1e-5)
        for part, one in named(low).items():
            close(f"{kind}, float32 gradient of {part}", one, named(slow)[part], 1e-5)


@pytest.mark.parametrize("name", CASES)
def test_factory_numbers_without_gates(name: str) -> None:
    """Without gates, the factory's numbers; without queries, the same state and no outputs."""
    case = CASES[name]
    s = stream(case, "random", 7)
    numbers = {
        "decay": Gates(0.99),
        "delta_rule": Gates(None, 1.0),
        "gated_delta_rule": Gates(0.99, 1.0),
        "longhorn": Gates(None, 1.0),
        "titans": Gates(1.0, 0.05, 0.5),
        "ttt": Gates(None, 0.1),
        "ridge": Gates(1.0, 1.0),
    }
    want = case.twin(s._replace(gates=numbers.get(name, Gates())))
    bare = s._replace(gates=Gates())

    def both(s: Stream) -> Any:
        return whole(case.memory, s), whole(case.memory, s._replace(queries=None))

    with jax.enable_x64(True):
        got, (state, outputs) = jax.jit(both, compiler_options=QUICK)(bare)
    close_to_twin(name, got, want, 1e-12)
    assert outputs.shape == (0, case.value_dim)
    close_to_twin(name, (state, want[-1]), want, 1e-12)


@pytest.mark.parametrize("name", MEMORIES)
def test_no_writes_change_nothing(name: str) -> None:
    memory = MEMORIES[name]()
    state = memory.init(4, 4)
    after, outputs = memory.write_chunk(state, *np.zeros((3, 0, 4)))
    assert outputs.shape == (0, 4)
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(after)):
        np.testing.assert_array_equal(one, other)
    assert memory.read(state, np.zeros((2, 3, 4))).shape == (2, 3, 4)


def test_sum_is_the_product_of_the_keys_and_values() -> None:
    s = stream(CASES["outer_product"], "correlated")
    with jax.enable_x64(True):
        state, _ = whole(m.outer_product(), s._replace(gates=Gates(), queries=None))
    close("W", state, s.keys.T @ s.values, 1e-13)


def test_delta_rule_stores_orthonormal_keys_exactly() -> None:
    rng = np.random.default_rng(0)
    keys = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    values = rng.normal(size=(12, 5))
    memory = m.delta_rule(1.0)

    @jax.jit
    def both(keys: Array, values: Array) -> tuple[Array, Array, Array]:
        state, outputs = memory.write_chunk(memory.init(12, 5), keys, values, keys)
        after = memory.write(state, keys[3], values[0])
        return memory.read(state, keys), outputs, memory.read(after, keys)

    with jax.enable_x64(True):
        recalled, newest, overwritten = both(keys, values)
    close("recalled", recalled, values, 1e-13)
    close("newest", newest, values, 1e-13)
    values[3] = values[0]
    close("overwritten", overwritten, values, 1e-13)


def test_longhorn_is_the_delta_rule_at_the_implicit_rate() -> None:
    s = stream(CASES["longhorn"], "random")
    keys = s.keys * np.linspace(0.1, 3, WRITES)[:, None]  # far beyond what plain rate 1 survives
    rate = s.gates.rate / (1 + s.gates.rate * np.sum(keys**2, axis=1))
    scaled = s._replace(keys=keys, queries=None)

    def both(s: Stream, rate: Array) -> Any:
        other = s._replace(gates=Gates(rate=rate))
        return whole(m.longhorn(), s)[0], whole(m.delta_rule(), other)[0]

    with jax.enable_x64(True):
        one, other = jax.jit(both, compiler_options=QUICK)(scaled, rate)
    close("W", one, other, 1e-12)


def test_repetition_separates_the_delta_rule_from_the_sum() -> None:
    """Cartridges, appendix E: keys at a cosine of .1, the second pair 16 times."""
    keys = np.array([[1, 0], [0.1, np.sqrt(1 - 0.01)]])
    values = np.eye(2)
    stream = [0] + 16 * [1]

    def recall(memory: Memory) -> Array:
        state, _ = memory.write_chunk(memory.init(2, 2), keys[stream], values[stream])
        return memory.read(state, keys)

    found = jax.jit(lambda: [recall(memory) for memory in (m.outer_product(), m.delta_rule())])()
    right = [np.argmax(outputs @ values.T, axis=1).tolist() for outputs in found]
    assert right == [[1, 1], [0, 1]]


def test_delta_rule_at_rate_1_keeps_about_the_newest_62() -> None:
    """d = 64, 512 facts, 8 seeds: (d / 1) ln(sqrt(d) / 3.04) = 62 in theory."""

    @partial(jax.jit, compiler_options=QUICK)
    @jax.vmap
    def hits(key: Array) -> Array:
        document = facts(key, 512, 64)
        memory = m.delta_rule(1.0)
        state, _ = memory.write_chunk(memory.init(64, 64), *document)
        return recalled(memory.read(state, document.keys), document.values)

    found = np.asarray(hits(jax.random.split(jax.random.key(0), 8)))
    assert 50 < found.sum(axis=1).mean() < 80
    assert found[:, -64:].mean() > 0.75
    assert found[:, :64].mean() < 0.05


def recalled(outputs: Array, values: Array) -> Array:
    return jnp.argmax(outputs @ values.T, axis=-1) == jnp.arange(values.shape[0])


@pytest.mark.parametrize("name", ["delta_rule", "titans"])
def test_one_program_for_many_memories_and_rates(name: str) -> None:
    traces = []

    @partial(jax.jit, compiler_options=QUICK)
    def run(rates: Array, keys: Array, values: Array) -> Array:
        traces.append(1)

        def one(rate: Array, keys: Array, values: Array) -> Array:
            memory = MEMORIES[name](rate)
            state, _ = memory.write_chunk(memory.init(4, 3), keys, values)
            return memory.read(memory.write(state, keys[0], values[0]), keys)

        return jax.vmap(jax.vmap(one, (None, 0, 0)), (0, None, None))(rates, keys, values)

    rng = np.random.default_rng(0)
    keys, values = unit(rng.normal(size=(2, 30, 4))), rng.normal(size=(2, 30, 3))
    for rates in ([0.1, 0.2, 0.3], [0.05, 0.4, 0.0]):
        outputs = run(jnp.array(rates), keys, values)
        assert outputs.shape == (3, 2, 30, 3)
    assert len(traces) == 1
    again = np.concatenate([keys[1], keys[1, :1]]), np.concatenate([values[1], values[1, :1]])
    twin = (
        reference.gated_delta_rule(*again, again[0], 1.0, 0.4)
        if name == "delta_rule"
        else reference.titans(*again, again[0], 0.4, 0.5)
    )
    close("one of the batch", outputs[1, 1], keys[1] @ twin[0], 1e-5)
    assert not np.any(outputs[2])


def test_bad_input_is_refused() -> None:
    memory = m.delta_rule()
    state = memory.init(4, 3)
    k, v = np.zeros((5, 4)), np.zeros((5, 3))
    bad: list[tuple[str, Callable[[], object]]] = [
        ("key_dim must be at least 1", lambda: memory.init(0, 3)),
        ("key_dim and value_dim must agree", lambda: m.ttt().init(4, 3)),
        ("expected scale", lambda: m.ttt(scale=np.ones(3)).init(4, 4)),
        ("expected key", lambda: memory.write(state, k[0], k[0])),
        ("expected key", lambda: memory.write(state, k, v)),
        ("expected keys", lambda: memory.write_chunk(state, v, v)),
        ("expected keys", lambda: memory.write_chunk(state, k[:4], v)),
        ("expected keys", lambda: memory.write_chunk(state, 0.0, v)),
        ("expected queries", lambda: memory.write_chunk(state, k, v, k[:4])),
        ("expected query", lambda: memory.read(state, v)),
        ("expected query", lambda: memory.read(state, 1.0)),
        ("no gate decay", lambda: memory.write(state, k[0], v[0], Gates(decay=0.9))),
        ("no gate rate", lambda: m.decay().write_chunk(state, k, v, None, Gates(rate=0.9))),
        ("no gate momentum", lambda: memory.write_chunk(state, k, v, k, Gates(momentum=0.9))),
        ("expected gate rate", lambda: memory.write_chunk(state, k, v, k, Gates(rate=np.ones(4)))),
        ("expected gate rate", lambda: memory.write(state, k[0], v[0], Gates(rate=np.ones(1)))),
        ("rate must be a scalar", lambda: m.delta_rule(np.ones(2))),
        ("rate must be at least 0", lambda: m.delta_rule(-0.1)),
        ("decay must be at most 1", lambda: m.decay(1.1)),
        ("momentum must be at most 1", lambda: m.titans(momentum=2)),
        ("ridge must be over 0", lambda: m.ridge(0.0)),
        ("ridge must be over 0", lambda: m.recursive_least_squares(0)),
        *(("chunk must be", lambda f=f: f(chunk=0)) for f in MEMORIES.values()),
        ("chunk must be", lambda: m.titans(chunk=2.0)),  # type: ignore[arg-type]
    ]
    for message, call in bad:
        with pytest.raises(ValueError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
