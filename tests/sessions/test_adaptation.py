"""Adaptation against prompts that are really built, the lecture's figures, feedback and serving."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmem.common import run_interval
from jaxmem.reference import playbook as reference
from jaxmem.roofline import ACCELERATORS, MODELS, kv_cache_bytes
from jaxmem.sessions.adaptation import (
    VARIANTS,
    Adaptation,
    adapt,
    adapted,
    estimated_reuse,
    first_edit,
)
from jaxmem.sessions.feedback import polluted, pollution
from jaxmem.sessions.serving import COPIES, by_role, calls, gpu_seconds, served
from jaxmem.sessions.tasks import LECTURE, Draws, Settings, distinct, draws

SEEDS = 64
MODEL, DEVICE = MODELS["llama-3-8b"], ACCELERATORS["h100-80gb"]
BUSY = Settings(refine_every=7, duplicate_share=0.5, rewrite_kept=0.3, collapse_share=0.05,
                counter_at=30, add_share=0.9)  # fmt: skip
ODD = Settings(system_tokens=1, task_tokens=1, bullet_tokens=7, summary_tokens=30, counter_at=3,
               collapse_share=0.5, rewrite_kept=1.0, refine_every=1,
               duplicate_share=1.0)  # fmt: skip
Run = Callable[[Settings], tuple[Draws, Adaptation]]


@pytest.fixture(autouse=True, scope="module")
def unoptimised() -> Iterator[None]:
    """Compile without the costly passes while this module runs."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module")
def run() -> Run:
    def one(key: jax.Array, settings: Settings) -> tuple[Draws, Adaptation]:
        drawn = draws(key, settings)
        return drawn, adapted(drawn, settings)

    compiled = jax.jit(jax.vmap(one, (0, None)))
    keys = jax.random.split(jax.random.key(3), SEEDS)
    return lambda settings: jax.device_get(compiled(keys, settings))


@pytest.fixture(scope="module")
def lecture(run: Run) -> tuple[Draws, Adaptation]:
    return run(LECTURE)


def row(tree: Any, *index: int) -> Any:
    return jax.tree.map(lambda x: x[index], tree)


def equal(mine: Any, twin: Any, where: str) -> None:
    for name in twin._fields:
        np.testing.assert_array_equal(getattr(mine, name), getattr(twin, name), f"{where}: {name}")


@pytest.mark.parametrize("settings", [LECTURE, BUSY, ODD], ids=["lecture", "busy", "odd"])
def test_equals_the_prompts_that_are_built(run: Run, settings: Settings) -> None:
    drawn, found = run(settings)
    for seed, (v, variant) in itertools.product(range(2), enumerate(VARIANTS)):
        twin = reference.adaptation(row(drawn, seed), settings, variant)
        mine = found._replace(reflections=found.bullets)  # which has all variants
        equal(row(mine, seed, v), twin, f"{variant}, seed {seed}")


def test_few_tasks_are_the_first_of_many(lecture: tuple[Draws, Adaptation]) -> None:
    key = jax.random.split(jax.random.key(3), SEEDS)[0]
    few = jax.jit(draws, static_argnums=2)(key, LECTURE, 37)
    for name, mine in few._asdict().items():
        np.testing.assert_array_equal(mine, getattr(row(lecture[0], 0), name)[:37], name)
    shape = Settings(used=2, sections=3)
    for tasks in (1, 37):
        cut = jax.tree.map(lambda x, tasks=tasks: np.asarray(x)[:tasks], few)
        cut = cut._replace(used=cut.used[:, :2], section=cut.section % 3)
        mine = jax.jit(adapted)(jax.tree.map(jnp.asarray, cut), shape)
        for v, variant in enumerate(VARIANTS):
            twin = reference.adaptation(cut, shape, variant)
            equal(row(mine._replace(reflections=mine.bullets), v), twin, variant)


def test_reuse_is_the_lectures(lecture: tuple[Draws, Adaptation]) -> None:
    reuse = np.asarray(lecture[1].reuse)  # [seeds, V]
    stated = {"append": 0.924, "counters": 0.315, "sections": 0.717, "sections+counters": 0.294}
    for variant, value in stated.items():
        one_run = run_interval(reuse[:, VARIANTS.index(variant)])
        assert one_run.low < value < one_run.high, variant
    mean = dict(zip(VARIANTS, reuse.mean(0)))
    assert mean["append"] - 0.03 < mean["merged"] < mean["refined"] < mean["append"]
    kept = reuse[:, 0] - reuse[:, 1]
    assert (kept > 0.5).all()


def test_exercise_5() -> None:
    assert float(first_edit(3)) == 0.25
    assert float(estimated_reuse()) == pytest.approx(1_350 / 4_200)
    u = np.random.default_rng(0).random((20_000, 3), np.float32)
    picks = np.asarray(distinct(jnp.asarray(u), jnp.full(len(u), 85)))
    assert all(len(set(three)) == 3 for three in picks.tolist())
    assert picks.min(1).mean() == pytest.approx((85 - 3) / 4, abs=0.5)  # of 3 distinct ones
    assert np.bincount(picks.ravel(), minlength=85) == pytest.approx(60_000 / 85, abs=140)
    few = np.asarray(distinct(jnp.asarray(u[:100]), jnp.full(100, 2)))
    assert (np.sort(few, 1) == [0, 1, 2]).all()  # the last finds none


def test_rewriting_costs_what_the_lecture_says(lecture: tuple[Draws, Adaptation]) -> None:
    found = lecture[1]
    rewrite, append = VARIANTS.index("rewrite"), VARIANTS.index("append")
    written = found.written_tokens.sum(-1)
    one_run = run_interval(written[:, rewrite])
    assert one_run.low < 1.05e6 < one_run.high
    assert one_run.mean == pytest.approx(24 * 300 * 301 / 2, rel=0.03)
    for flat, mean in ((True, 12.05), (False, 12.4)):
        spent = np.asarray(gpu_seconds(calls(found, LECTURE, "lecture"), MODEL, DEVICE, flat=flat))
        ratio = run_interval(spent[:, rewrite] / spent[:, append])
        assert ratio.mean == pytest.approx(mean, abs=0.3), flat
        assert ratio.low < 11.7 < ratio.high, flat


def test_a_collapse_loses_what_was_there(run: Run, lecture: tuple[Draws, Adaptation]) -> None:
    collapse = VARIANTS.index("collapse")
    lost = lecture[1].lost[:, collapse]
    happened = lecture[0].collapsed.any(1)
    assert (lost[~happened] == 0).all()
    assert lost[happened].mean() > 50
    total = lecture[1].bullets[:, VARIANTS.index("append")]
    np.testing.assert_array_equal(lost + lecture[1].bullets[:, collapse], total)
    never = run(Settings(collapse_share=0.0))[1]
    for name, mine in never._replace(reflections=never.lost)._asdict().items():
        rewrite = VARIANTS.index("rewrite")
        np.testing.assert_array_equal(mine[:, collapse], mine[:, rewrite], f"never: {name}")


def test_official_calls_find_what_earlier_ones_left(lecture: tuple[Draws, Adaptation]) -> None:
    drawn, found = row(lecture[0], 0), row(lecture[1], 0)
    made = jax.device_get(calls(found, LECTURE))
    wrong = np.asarray(drawn.wrong)
    number = made.number[0].sum(-1)
    assert (number[~wrong] == 4).all()
    assert set(number[wrong]) == {5, 7, 9}
    for v, variant in enumerate(VARIANTS):
        prompts = list(reference.prompts(drawn, LECTURE, variant))
        last: list = []
        for t in range(60):
            system, *playbook, task = prompts[t]
            reflection = ("reflection", "task", "any", 300)
            first, again = prompts[t], [system, *playbook, reflection, task]
            renewed = [*prompts[t + 1][:-1], task]
            seen = [last]
            sent = [(0, first), *[(1, again)] * bool(found.reflections[t]), (2, renewed)]
            for kind, prompt in sent:
                cached = max(reference.common_prefix(prompt, old) for old in seen)
                assert made.cached_tokens[v, t, kind] == cached, (variant, t, kind)
                assert made.prompt_tokens[v, t, kind] == sum(x[3] for x in prompt)
                seen.append(prompt)
            last = renewed
    roles = by_role(calls(found, LECTURE))
    sums = np.asarray([number[~wrong].size * 2 + (made.number[0, wrong, :3].sum()),
                       np.maximum(found.reflections, 1).sum(), 300])  # fmt: skip
    np.testing.assert_array_equal(roles.calls[0], sums)
    assert roles.generated_tokens[0, 0] == 300 * sums[0]
    assert float(roles.generated_tokens[6, 2]) == found.written_tokens[6].sum()


@pytest.fixture(scope="module")
def polluting() -> Callable[..., Any]:
    def one(key: jax.Array, error: float, margin: float) -> Any:
        return pollution(key, error, margin, LECTURE, 120)

    keys = jax.random.split(jax.random.key(5), 60)
    compiled = jax.jit(jax.vmap(jax.vmap(one, (0, None, None)), (None, 0, None)))
    return lambda errors, margin: jax.device_get(compiled(keys, jnp.asarray(errors), margin))


def test_pollution_grows_and_counters_help_less_and_less(polluting: Callable[..., Any]) -> None:
    errors = np.linspace(0, 0.5, 6)
    found = polluting(errors, 1.0)
    share = np.asarray(found.harmful_share)  # [errors, seeds, 2]
    assert (share[0] == 0).all()
    assert (np.diff(share.mean(1), axis=0) > 0).all()
    assert share.mean(1)[:, 0] == pytest.approx(errors, abs=0.03)
    helped = share[..., 0] - share[..., 1]
    assert (helped.mean(1)[1:5] > 0.02).all()
    noise = helped[5].std(ddof=1) / np.sqrt(helped.shape[1])
    assert abs(helped[5].mean()) < 4 * noise
    kept = found.helpful + found.harmful + found.dropped_helpful + found.dropped_harmful
    assert (kept[..., 0] == kept[..., 1]).all()
    assert (found.dropped_helpful[..., 0] == 0).all()


def test_pollution_equals_its_twin() -> None:
    rng = np.random.default_rng(1)
    compiled = jax.jit(polluted)
    for error, margin, every in itertools.product((0.1, 0.5, 1.0), (1.0, 2.0), (1, 7)):
        added, wrong = rng.random(61) < 0.7, rng.random(61) < error
        used = rng.random((61, 3), np.float32)
        mine = compiled(added, used, wrong, margin, every)
        for copy, limit in enumerate((np.inf, margin)):
            equal(row(mine, copy), reference.pollution(added, used, wrong, every, limit), "twin")


def test_a_long_playbook_leaves_room_for_fewer() -> None:
    rows = served(MODEL, DEVICE, (0, 5_000, 50_000))
    own, one, once = ([r for r in rows if r["kv"] == copies] for copies in COPIES)
    weights, kv = float(MODEL.weight_bytes), float(kv_cache_bytes(MODEL, 1))
    for i, length in enumerate((0, 5_000, 50_000)):
        room = 0.9 * float(DEVICE.capacity_bytes) - weights
        assert own[i]["users"] == pytest.approx(room // (kv * (length + 1_100)), abs=1)
        assert once[i]["users"] == pytest.approx((room - kv * (length + 500)) // (kv * 600), abs=1)
        assert one[i]["users"] == once[i]["users"]
        assert own[i]["tokens_s"] <= one[i]["tokens_s"] <= once[i]["tokens_s"]
        assert own[i]["kept_share"] == pytest.approx((length + 500) / (length + 800))
    for some in (own, one, once):
        assert some[0]["tokens_s"] > some[1]["tokens_s"] > some[2]["tokens_s"]
    assert own[2]["tokens_s"] < 0.05 * own[0]["tokens_s"]
    assert once[2]["tokens_s"] > 0.4 * once[0]["tokens_s"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: Settings(add_share=1.5), "add_share must be in 0..1"),
        (lambda: Settings(bullet_tokens=0), "bullet_tokens must be in 1"),
        (lambda: Settings(task_tokens=2.5), "task_tokens must be whole"),
        (lambda: Settings(counter_at=40), "counter_at must lie in a bullet"),
        (lambda: Settings(sections=0), "sections must be at least 1"),
        (lambda: adapt(jax.random.key(0), tasks=0), "tasks must be at least 1"),
        (lambda: pollution(jax.random.key(0), 1.1), "error must be in 0..1"),
        (lambda: pollution(jax.random.key(0), 0.1, 0), "margin must be at least 1"),
        (lambda: estimated_reuse(-1.0), "playbook_tokens must be at least 0"),
        (lambda: served(MODEL, DEVICE, [-1.0]), "playbook_tokens must be at least 0"),
        (lambda: next(reference.prompts(None, None, "no")), "expected a variant"),
    ],
    ids=lambda x: x if isinstance(x, str) else "call",
)
def test_bad_input_is_refused_in_one_line(call: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_unknown_accounting(lecture: tuple[Draws, Adaptation]) -> None:
    with pytest.raises(ValueError, match="unknown accounting"):
        calls(lecture[1], LECTURE, "offical")
