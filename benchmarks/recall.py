"""Training a cartridge against numpy and PyTorch, and chunked memories against recurrences.

All train p = 64 slots for 3,000 steps on 512 facts in batches of 64, in float32: fresh
paraphrases each step, the teacher's answers to a block of steps from a few large products, one
mean answer a question in place of its distribution (the gradient needs no more), Adam. What
algebra saves, it saves in all of them. Times are the best of several runs, taken in turn; ours
leave the compile out, which is shown apart.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmem.recall import accuracy, facts, paraphrase
from jaxmem.recall.cartridges import init_cartridge, train_cartridge
from jaxmem.recall.memories import MEMORIES, Memory

FACTS, DIM, SLOTS, BATCH, STEPS, BLOCK = 512, 64, 64, 64, 3_000, 30
SEEDS = 8
SCALE, RATE, NOISE = 20.0, 0.002, 0.3
RUNS = 3
LENGTH = 4_096  # writes to a memory


def main() -> list[dict[str, Any]]:
    """Both comparisons."""
    return training() + memories()


def training() -> list[dict[str, Any]]:
    """One seed and eight, beside one seed of the rivals."""
    one, compile_one = compiled(1)
    many, compile_many = compiled(SEEDS)
    systems: dict[str, tuple[Callable[[], np.ndarray], int, float | None]] = {
        "jaxmem, one seed": (one, 1, compile_one),
        f"jaxmem, {SEEDS} seeds at once": (many, SEEDS, compile_many),
        "numpy": (numpy_training, 1, None),
    }
    try:
        import torch
    except ImportError:
        print("torch is not installed: pip install torch==2.13.0 for its row")
    else:
        systems[f"PyTorch {torch.__version__}"] = (torch_training, 1, None)
    best = dict.fromkeys(systems, np.inf)
    recalled = {}
    for _ in range(RUNS):  # in turn, so that a slow spell of the machine meets all
        for name, (run, _, _) in systems.items():
            start = time.perf_counter()
            recalled[name] = np.mean(run())
            best[name] = min(best[name], time.perf_counter() - start)
    peak = matmul_peak()
    records = []
    for name, (_, seeds, compile_s) in systems.items():
        each = best[name] / seeds
        rate = STEPS * step_flops() / each
        records.append(
            {
                "benchmark": "training",
                "system": name,
                "seconds": best[name],
                "seconds_a_seed": each,
                "compile_s": compile_s,
                "recalled": float(recalled[name]),
                "gflops_s": rate / 1e9,
                "share_of_matmul_peak": rate / peak,
                "speed_over_numpy": best["numpy"] / each,
            }
        )
    return records


def step_flops() -> float:
    """Floating-point operations of a step's matrix products, teacher and student."""
    product = 2.0 * BATCH * DIM
    teacher = 2 * product * FACTS + 2 * product * FACTS  # attention, then answers
    student = 2 * product * SLOTS + 2 * product * FACTS
    backward = 4 * product * SLOTS  # by values, weights, keys; their inputs
    return teacher + student + backward - product * SLOTS  # no gradient by questions


def matmul_peak() -> float:
    """FLOP/s of the best float32 product among the shapes of training, and a large square."""
    key, best = jax.random.key(0), 0.0
    for m, k, n in ((BLOCK * BATCH, DIM, FACTS), (BLOCK * BATCH, FACTS, DIM), (2048, 2048, 2048)):
        a, b = jax.random.normal(key, (m, k)), jax.random.normal(key, (k, n))
        product = jax.jit(jnp.matmul)
        jax.block_until_ready(product(a, b))
        for _ in range(20):
            start = time.perf_counter()
            jax.block_until_ready(product(a, b))
            best = max(best, 2.0 * m * k * n / (time.perf_counter() - start))
    return best


def compiled(seeds: int) -> tuple[Callable[[], np.ndarray], float]:
    """Our training as a call without arguments, and the seconds its first run took more."""

    def one(key: jax.Array) -> jax.Array:
        key_facts, key_train, key_ask = jax.random.split(key, 3)
        document = facts(key_facts, FACTS, DIM)
        trained = train_cartridge(
            key_train,
            init_cartridge(key_train, document, SLOTS),
            document,
            steps=STEPS,
            learning_rate=RATE,
            batch=BATCH,
            noise=NOISE,
        )
        output = trained.cartridge.read(paraphrase(key_ask, document.keys)).output
        return accuracy(output, document.values, jnp.arange(FACTS))

    program = jax.jit(jax.vmap(one))
    keys = jax.random.split(jax.random.key(0), seeds)

    def run() -> np.ndarray:
        return np.asarray(program(keys))

    start = time.perf_counter()
    run()
    first = time.perf_counter() - start
    start = time.perf_counter()
    run()
    return run, first - (time.perf_counter() - start)


def numpy_training() -> np.ndarray:
    """float32 on BLAS with gradients by hand, in place where that saves a pass."""
    rng, f = np.random.default_rng(0), np.float32

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, dtype=f)

    def unit(x: np.ndarray) -> np.ndarray:
        x /= np.sqrt(np.einsum("ij,ij->i", x, x))[:, None]
        return x

    def softmax(x: np.ndarray) -> np.ndarray:
        x -= x.max(axis=-1, keepdims=True)
        np.exp(x, out=x)
        x /= x.sum(axis=-1, keepdims=True)
        return x

    keys, values = unit(normal(FACTS, DIM)), unit(normal(FACTS, DIM))
    scaled_keys, scaled_values = SCALE * keys.T.copy(), SCALE * values.T.copy()
    slots = np.stack([keys[:SLOTS], values[:SLOTS]])
    first, second, gradient = np.zeros_like(slots), np.zeros_like(slots), np.empty_like(slots)

    def ask(numbers: np.ndarray) -> np.ndarray:
        words = unit(normal(len(numbers), DIM))
        words *= f(NOISE)
        words += keys[numbers]
        return unit(words)

    step = 0
    for _ in range(STEPS // BLOCK):
        questions = ask(rng.integers(0, FACTS, BLOCK * BATCH))
        read = softmax(questions @ scaled_keys) @ values
        targets = softmax(read @ scaled_values) @ values
        for asked, wanted in zip(
            questions.reshape(BLOCK, BATCH, DIM), targets.reshape(BLOCK, BATCH, DIM)
        ):
            step += 1
            slot_keys, slot_values = slots
            weights = asked @ slot_keys.T
            weights *= f(SCALE)
            softmax(weights)
            error = softmax((weights @ slot_values) @ scaled_values) @ values
            error -= wanted
            error *= f(SCALE / BATCH)
            np.matmul(weights.T, error, out=gradient[1])
            by_logit = error @ slot_values.T
            by_logit -= np.einsum("ij,ij->i", by_logit, weights)[:, None]
            by_logit *= weights
            np.matmul(by_logit.T, asked, out=gradient[0])
            gradient[0] *= f(SCALE)
            first *= f(0.9)
            first += f(0.1) * gradient
            second *= f(0.999)
            np.square(gradient, out=gradient)
            gradient *= f(0.001)
            second += gradient
            root = np.sqrt(second * f(1 / (1 - 0.999**step)))
            root += f(1e-8)
            slots -= f(RATE / (1 - 0.9**step)) * first / root
    asked = ask(np.arange(FACTS))
    answers = softmax(f(SCALE) * asked @ slots[0].T) @ slots[1] @ values.T
    return np.mean(answers.argmax(axis=-1) == np.arange(FACTS))


def torch_training() -> np.ndarray:
    """PyTorch eager on the CPU: autograd through the student, its own fused Adam."""
    import torch

    generator = torch.Generator().manual_seed(0)

    def unit(x: Any) -> Any:
        return torch.nn.functional.normalize(x, dim=-1)

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, generator=generator)

    keys, values = unit(normal(FACTS, DIM)), unit(normal(FACTS, DIM))
    slots = [part[:SLOTS].clone().requires_grad_() for part in (keys, values)]
    adam = torch.optim.Adam(slots, lr=RATE, fused=True)

    def ask(numbers: Any) -> Any:
        return unit(keys[numbers] + NOISE * unit(normal(len(numbers), DIM)))

    def expected(output: Any) -> Any:
        return torch.softmax(SCALE * output @ values.T, dim=-1) @ values

    for _ in range(STEPS // BLOCK):
        with torch.no_grad():
            drawn = torch.randint(FACTS, (BLOCK * BATCH,), generator=generator)
            questions = ask(drawn)
            targets = expected(torch.softmax(SCALE * questions @ keys.T, dim=-1) @ values)
        for asked, wanted in zip(questions.split(BATCH), targets.split(BATCH)):
            output = torch.softmax(SCALE * asked @ slots[0].T, dim=-1) @ slots[1]
            with torch.no_grad():
                error = SCALE / BATCH * (expected(output) - wanted)
            adam.zero_grad()
            output.backward(error)
            adam.step()
    with torch.no_grad():
        asked = ask(torch.arange(FACTS))
        answers = torch.softmax(SCALE * asked @ slots[0].T, dim=-1) @ slots[1] @ values.T
        return np.mean(answers.argmax(dim=-1).numpy() == np.arange(FACTS))


def memories() -> list[dict[str, Any]]:
    """Writing and reading 4,096 pairs, forward and backward: chunks against a scan over writes."""
    keys, values = facts(jax.random.key(0), LENGTH, DIM)
    queries = paraphrase(jax.random.key(1), keys)
    records = []
    for name, factory in MEMORIES.items():
        memory = factory()
        for what in ("forward", "gradient"):
            seconds = {}
            for form, run in (("chunked", chunked(memory)), ("recurrent", recurrent(memory))):
                scored = scalar(run)
                program = jax.jit(scored if what == "forward" else jax.grad(scored, (0, 1, 2)))
                jax.block_until_ready(program(keys, values, queries))
                seconds[form] = min(timed(program, keys, values, queries) for _ in range(RUNS))
            records.append(
                {
                    "benchmark": f"{LENGTH} writes, {what}",
                    "system": name,
                    "seconds": seconds["chunked"],
                    "recurrent_s": seconds["recurrent"],
                    "speed_over_recurrent": seconds["recurrent"] / seconds["chunked"],
                }
            )
    return records


def chunked(memory: Memory) -> Callable[..., jax.Array]:
    """Outputs of a memory by chunks."""
    return lambda k, v, q: memory.write_chunk(memory.init(DIM, DIM), k, v, q)[1]


def recurrent(memory: Memory) -> Callable[..., jax.Array]:
    """Outputs of a memory write by write."""

    def run(keys: jax.Array, values: jax.Array, queries: jax.Array) -> jax.Array:
        def step(state: Any, row: Any) -> tuple[Any, jax.Array]:
            state = memory.write(state, row[0], row[1])
            return state, memory.read(state, row[2])

        return jax.lax.scan(step, memory.init(DIM, DIM), (keys, values, queries))[1]

    return run


def scalar(run: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """A number of all outputs, so that none can be left out."""
    return lambda *args: jnp.sum(run(*args) ** 2)


def timed(program: Callable[..., Any], *args: Any) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    jax.block_until_ready(program(*args))
    return time.perf_counter() - start
