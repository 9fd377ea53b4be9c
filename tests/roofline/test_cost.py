"""Times, memory and throughput: against the twin, the lecture, other models, and themselves."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxmem.reference import roofline as reference
from jaxmem.roofline import (
    ACCELERATORS,
    MEASURED,
    MODELS,
    Accelerator,
    Constant,
    Model,
    break_even_queries,
    decode,
    kv_cache_bytes,
    prefill,
    stack,
    throughput,
)
from jaxmem.roofline.models import Linear, grouped_query

SMALL, LARGE, H100 = MODELS["llama-3-8b"], MODELS["llama-3-70b"], ACCELERATORS["h100-80gb"]
MEASURED_HERE = MEASURED["vllm-hopper"]
CONSTANTS: dict[str, Any] = {
    "constant": {"mfu": 0.7, "mbu": 0.8},
    "measured": {name: part._asdict() for name, part in MEASURED_HERE._asdict().items()},
}
# Full attention, MoE, mixed windows, latent attention with 8-bit weights, 4-bit experts.
KINDS = ("llama-3-8b", "qwen3-30b-a3b", "gemma-3-27b", "deepseek-v3", "gpt-oss-20b")


@pytest.fixture(params=["float32", "float64"])
def tolerance(request: pytest.FixtureRequest) -> Iterator[float]:
    """Relative agreement to ask for, in single and in double precision."""
    with jax.enable_x64(request.param == "float64"):
        yield 1e-12 if request.param == "float64" else 1e-6


def plain(model: Model, device: Accelerator) -> tuple[dict[str, Any], dict[str, Any]]:
    return dataclasses.asdict(model), dataclasses.asdict(device)


def agree(fast: Any, slow: dict[str, float], tolerance: float, what: str) -> None:
    for name, value in slow.items():
        assert float(getattr(fast, name)) == pytest.approx(value, rel=tolerance), f"{what} {name}"


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("kind", ["constant", "measured"])
def test_prefill_equals_the_twin(name: str, kind: str, tolerance: float) -> None:
    model = MODELS[name].with_kv_dtype("fp8") if name == "gemma-3-27b" else MODELS[name]
    constants = Constant() if kind == "constant" else MEASURED_HERE
    for gpu in ("h100-80gb", "a100-80gb"):  # the latter multiplies 8-bit weights in bf16
        device = ACCELERATORS[gpu]
        for tokens, cached, batch in ((250, 0, 1), (3001, 2900, 2), (9001, 130, 3), (40, 40, 64)):
            fast = prefill(model, device, tokens, cached, batch, efficiency=constants)
            slow = reference.prefill(*plain(model, device), tokens, cached, batch, CONSTANTS[kind])
            agree(fast, slow, tolerance, f"{gpu} {tokens} {cached} {batch}")


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("kind", ["constant", "measured"])
def test_one_step_equals_the_twin(name: str, kind: str, tolerance: float) -> None:
    model = MODELS[name]
    constants = Constant() if kind == "constant" else MEASURED_HERE
    for context, batch in ((0, 1), (250, 3), (3001, 200)):
        fast = decode(model, H100, context, 1, batch, efficiency=constants)
        slow = reference.decode(*plain(model, H100), context, 1, batch, CONSTANTS[kind])
        agree(fast, slow, tolerance, f"{context} {batch}")


@pytest.mark.parametrize("kind", ["constant", "measured"])
def test_many_steps_equal_their_sum(kind: str) -> None:
    constants = Constant() if kind == "constant" else MEASURED_HERE
    with jax.enable_x64(True):
        for context, new, batch in ((1, 300, 1), (900, 200, 32)):
            fast = decode(SMALL, H100, context, new, batch, efficiency=constants)
            slow = reference.decode(*plain(SMALL, H100), context, new, batch, CONSTANTS[kind])
            agree(fast, slow, 1e-12 if kind == "constant" else 1e-7, f"{context} {new} {batch}")
        # A window that fills on the way is a corner, which eight points meet to 1e-4.
        gemma = MODELS["gemma-3-27b"]
        fast = decode(gemma, H100, 900, 200, 32, efficiency=constants)
        slow = reference.decode(*plain(gemma, H100), 900, 200, 32, CONSTANTS[kind])
        agree(fast, slow, 2e-4, "gemma")


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("kind", ["constant", "measured"])
def test_throughput_equals_the_twin(name: str, kind: str, tolerance: float) -> None:
    constants = Constant() if kind == "constant" else MEASURED_HERE
    model, device = MODELS[name], ACCELERATORS["h200"]
    for context, shared, answer, devices in ((1000, 0, 200, 8), (700, 5003, 101, 16)):
        fast = throughput(model, device, context, shared, answer, devices, efficiency=constants)
        slow = reference.throughput(
            *plain(model, device), context, shared, answer, devices, CONSTANTS[kind]
        )
        agree(fast, slow, 10 * tolerance, f"{context} {shared}")  # free memory is a difference


def test_kv_cache_bytes_equal_the_twin(tolerance: float) -> None:
    for model in MODELS.values():
        for tokens in (1, 127, 1024, 1025, 128_000):
            expected = reference.kv_cache_bytes(dataclasses.asdict(model), tokens)
            assert float(kv_cache_bytes(model, tokens)) == pytest.approx(expected, rel=tolerance)


def test_break_even_equals_the_twin() -> None:
    with jax.enable_x64(True):
        fast = break_even_queries(SMALL, H100, 64_000, training_s=7e3, price_ratio=0.4)
        shares = [
            200
            / reference.throughput(*plain(SMALL, H100), tokens, 0, 200, 1, CONSTANTS["measured"])[
                "tokens_s"
            ]
            for tokens in (64_000, 64_000 / 38.6)
        ]
        assert float(fast.queries) == pytest.approx(
            reference.break_even_queries(*shares, 7e3, 0.4), rel=1e-12
        )


def test_break_even_without_saving_is_never_and_without_room_at_once() -> None:
    assert float(break_even_queries(SMALL, H100, 1000, compression=1.0).queries) == np.inf
    tiny = ACCELERATORS["rtx-4090"]
    assert float(break_even_queries(SMALL, tiny, 128_000).queries) == 0.0


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        # Calibrated with MFU 0.70 and MBU 0.80; the lecture rounds to 8.8 s, 12 and 25 ms.
        (lambda: prefill(SMALL, H100, 128_000, efficiency="constant").total_s, 8.78),
        (lambda: prefill(SMALL, H100, 250, efficiency="constant").total_s, 6.0e-3),
        (lambda: prefill(SMALL, H100, 128e3, 128e3, efficiency="constant").total_s, 12.25e-3),
        (lambda: decode(SMALL, H100, 250, 200, efficiency="constant").total_s, 1.202),
        (lambda: decode(SMALL, H100, 128_000, 200, efficiency="constant").total_s, 2.452),
        (lambda: throughput(SMALL, H100, 128_000, efficiency="constant").step_s, 24.8e-3),
        (lambda: break_even_queries(SMALL, H100, 128e3, efficiency="constant").queries, 8946),
        # The fitted kernels, summed by hand elsewhere.
        (lambda: prefill(SMALL, H100, 250).total_s, 7.54e-3),
        (lambda: prefill(SMALL, H100, 128_000).total_s, 8.6526),
        (lambda: prefill(SMALL, H100, 128_250, 128_000).total_s, 32.40e-3),
        (lambda: decode(SMALL, H100, 1_024, 1, 256).total_s, 19.26e-3),
        (lambda: decode(SMALL, H100, 120_000, 1, 3).total_s, 21.57e-3),
        (lambda: throughput(LARGE, H100, 128_000, devices=8).users, 10),
    ],
)
def test_known_values(got: Callable[[], Any], expected: float) -> None:
    assert float(got()) == pytest.approx(expected, rel=1e-3)


def test_a_scaling_book_example() -> None:
    """30 B weights in int8 and 819 MB of KV a sequence on 16 TPU v5e: 2.5 ms at batch 4.

    Source: How to Scale Your Model, inference chapter.
    """
    model = Model(
        attention=(grouped_query(50, 8, 8, 61.035),),
        linear=(Linear(1.0, 30e9, 1.0, 1.0),),
        head=Linear(0.0, 1.0, 1.0),
        embedding=0.0,
        other=0.0,
    )
    device = dataclasses.replace(ACCELERATORS["tpu-v5e"], bytes_s=8.1e11).times(16)
    step = decode(model, device, 8191, 1, 4, efficiency=Constant(1.0, 1.0)).step_s
    assert float(step) == pytest.approx(2.5e-3, rel=0.03)


def test_another_scaling_book_example() -> None:
    """Llama-3-70B in int8, 8,192 tokens, batch 32 on 8 TPU v5e: 17 ms.

    Source: How to Scale Your Model, chapter on serving Llama 3.
    """
    linear = tuple(dataclasses.replace(group, weight_bytes=1.0) for group in LARGE.linear)
    head = dataclasses.replace(LARGE.head, weight_bytes=1.0)
    model = dataclasses.replace(LARGE, linear=linear, head=head, other_bytes=1.0)
    device = ACCELERATORS["tpu-v5e"].times(8)
    step = decode(
        model.with_kv_dtype("int8"), device, 8191, 1, 32, efficiency=Constant(1.0, 1.0)
    ).step_s
    assert float(step) == pytest.approx(17e-3, rel=0.03)


@pytest.mark.parametrize("efficiency", ["constant", "measured"])
def test_gradient_by_bandwidth_is_the_central_difference(efficiency: str) -> None:
    def tokens_s(bytes_s: Any) -> Any:
        device = dataclasses.replace(H100, bytes_s=bytes_s)
        return throughput(SMALL, device, 8_000, 1_000, efficiency=efficiency).tokens_s

    with jax.enable_x64(True):
        slope = float(jax.grad(tokens_s)(3.35e12))
        step = 1e7
        central = float(tokens_s(3.35e12 + step) - tokens_s(3.35e12 - step)) / (2 * step)
    assert slope == pytest.approx(central, rel=1e-6)
    assert slope > 0


# Experts and windows together, latent attention, and neither.
@pytest.mark.parametrize("name", ["llama-3-8b", "deepseek-v3", "gpt-oss-20b"])
def test_every_gradient_is_finite(name: str) -> None:
    def seconds(model: Model, device: Accelerator, tokens: Any, cached: Any, new: Any) -> Any:
        # With constant efficiency a kernel's launch does not hide a zero.
        reading = prefill(model, device, tokens, cached, efficiency=Constant())
        writing = decode(model, device, tokens, new, efficiency=MEASURED_HERE)
        return reading.total_s + writing.total_s

    model = MODELS[name]
    finite = jax.tree.map(lambda x: x if np.isfinite(x) else 1e9, model)
    slopes = jax.jit(jax.grad(seconds, argnums=(0, 1, 2, 3, 4)))(finite, H100, 900.0, 9.0, 1.0)
    for path, slope in jax.tree.leaves_with_path(slopes):
        assert np.isfinite(slope), jax.tree_util.keystr(path)


def test_one_call_does_a_grid() -> None:
    fleet = stack(list(ACCELERATORS.values()))
    contexts = jnp.array([1e3, 8e3, 64e3])
    run = jax.jit(functools.partial(throughput, SMALL, efficiency="constant"))
    rows = jax.vmap(lambda device: run(device, contexts))(fleet)
    assert rows.tokens_s.shape == (9, 3)
    for i, device in enumerate(ACCELERATORS.values()):
        for j, context in enumerate((1e3, 8e3, 64e3)):
            alone = throughput(SMALL, device, context, efficiency="constant")
            assert float(rows.tokens_s[i, j]) == pytest.approx(float(alone.tokens_s), rel=2e-6)


def test_decode_broadcasts_over_devices_and_steps() -> None:
    fleet = stack([H100, ACCELERATORS["h200"]])
    both = decode(SMALL, fleet, jnp.array([[100.0], [9e3], [64e3]]), 50, jnp.array([1.0, 8.0]))
    assert both.total_s.shape == (3, 2)
    alone = decode(SMALL, ACCELERATORS["h200"], 9e3, 50, 8)
    assert float(both.total_s[1, 1]) == pytest.approx(float(alone.total_s), rel=1e-6)


TOKENS = st.integers(1, 200_000)


@settings(max_examples=40, deadline=None)
@given(TOKENS, TOKENS, st.integers(1, 256), st.sampled_from(KINDS), st.booleans())
def test_more_is_never_faster(a: int, b: int, batch: int, name: str, measured: bool) -> None:
    constants = MEASURED_HERE if measured else Constant()
    low, high = sorted((a, b))
    pair = np.array([low, high], float)
    slack = 1 + 1e-6

    def rises(values: Any) -> bool:
        return bool(values[0] <= values[1] * slack)

    model = MODELS[name]
    assert rises(prefill(model, H100, pair, efficiency=constants).total_s)
    assert rises(decode(model, H100, pair, 10, batch, efficiency=constants).total_s)
    assert rises(decode(model, H100, low, 10, pair, efficiency=constants).step_s)
    assert rises(kv_cache_bytes(model, pair))
    saved = prefill(model, H100, high, np.array([low, 0.0]), efficiency=constants).total_s
    if name != "deepseek-v3":  # expanding a cached latent can cost more than its tokens
        assert rises(saved)
    served = throughput(model, H100, pair, devices=16, efficiency=constants)
    assert served.users[0] >= served.users[1]
    assert rises(served.user_bytes)


def test_devices_without_communication_scale_everything() -> None:
    one = throughput(SMALL, H100.times(4), 4_000)
    four = throughput(SMALL, H100, 4_000, devices=4)
    assert float(one.tokens_s) == float(four.tokens_s)


def test_a_shared_context_costs_little_of_a_private_one() -> None:
    private = throughput(SMALL, H100, 121_000)
    shared = throughput(SMALL, H100, 1_000, 120_000)
    assert shared.tokens_s > 40 * private.tokens_s
    assert float(throughput(SMALL, H100, 1_000, 0).tokens_s) > float(shared.tokens_s)


def test_nothing_fits_is_no_users() -> None:
    full = throughput(LARGE, H100, 1_000)
    assert float(full.users) == 0.0
    assert float(full.tokens_s) == 0.0
    assert float(full.free_bytes) < 0.0
    assert np.isfinite(float(full.step_s))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: prefill(SMALL, H100, 0), "tokens must be a number at least 1, got 0"),
        (lambda: prefill(SMALL, H100, float("nan")), "tokens must be a number at least 1"),
        (lambda: prefill(SMALL, H100, "many"), "tokens must be a number, got 'many'"),
        (lambda: prefill(SMALL, H100, 10, 11), r"cached_tokens must be at most tokens \(10\)"),
        (lambda: prefill(SMALL, H100, 10, -1), "cached_tokens must be a number at least 0"),
        (lambda: prefill(SMALL, H100, 10, batch=0), "batch must be a number above 0, got 0"),
        (lambda: decode(SMALL, H100, -1, 5), "context_tokens must be"),
        (lambda: decode(SMALL, H100, 10, 0), "new_tokens must be"),
        (lambda: throughput(SMALL, H100, 10, devices=0), "devices must be"),
        (lambda: throughput(SMALL, H100, 10, usable_memory=1.5), "usable_memory must be at most"),
        (lambda: kv_cache_bytes(SMALL, [-1.0, 3.0]), "tokens must be a number at least 0, got -1"),
        (lambda: break_even_queries(SMALL, H100, 10, compression=0.5), "compression must be"),
        (lambda: stack([]), "at least one accelerator"),
        (lambda: H100.flops_s("fp4"), "unknown compute dtype 'fp4'"),
    ],
)
def test_bad_numbers_are_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_checks_are_skipped_under_tracing() -> None:
    assert float(jax.jit(lambda t: kv_cache_bytes(SMALL, t))(-1.0)) < 0
