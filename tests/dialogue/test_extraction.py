"""What is extracted, and what the model does with it, as often as the rates say."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmem.dialogue import World, generate
from jaxmem.dialogue.systems import Rates
from jaxmem.dialogue.systems.extraction import Candidates, decide, extract
from jaxmem.dialogue.world import NEVER

WORLD = World(messages=200, mentions=2.0)


@pytest.fixture(scope="module")
def candidates() -> Callable[[Rates], Candidates]:
    def run(key: jax.Array, rates: Rates) -> Candidates:
        world_key, extract_key = jax.random.split(key)
        return extract(extract_key, generate(world_key, WORLD), rates)

    batched = jax.jit(jax.vmap(run, (0, None)))
    return lambda rates: jax.device_get(batched(jax.random.split(jax.random.key(0), 200), rates))


def near(share: np.ndarray, wanted: float) -> Any:
    half = 4 * np.sqrt(wanted * (1 - wanted) / share.size)
    return share.mean() == pytest.approx(wanted, abs=half + 1e-9)


def test_rates_of_extraction(candidates: Callable[[Rates], Candidates]) -> None:
    found = candidates(Rates(recall=0.8, precision=0.75, undated=0.2, misdated=0.3))
    facts = np.arange(found.message.shape[1]) < WORLD.facts
    stated, touched = (found.message < NEVER) & facts, (found.message < NEVER) & ~facts
    assert near(found.extracted[stated], 0.8)
    right, wrong = found.extracted[stated].sum(), found.extracted[touched].sum()
    assert right / (right + wrong) == pytest.approx(0.75, abs=0.01)
    assert not found.extracted[~stated & ~touched].any()
    time, message = found.items.time[stated], found.message[stated]
    assert near(time == -1, 0.2)
    moved = (time >= 0) & (time < message)
    assert near(moved[message > 50], 0.3)
    assert (time <= message).all()
    assert (found.tokens >= 6).all()
    assert found.tokens.mean() == pytest.approx(20, abs=0.1)


def test_a_memory_means_what_its_message_means(candidates: Callable[[Rates], Candidates]) -> None:
    found = candidates(Rates(precision=0.75))
    for one in range(3):
        key = found.items.key[one]
        real = (found.message[one] < NEVER) & (key >= 0)
        like = found.embeddings[one] @ found.embeddings[one].T
        same = (key[:, None] == key) & real & real[:, None] & ~np.eye(len(key), dtype=bool)
        other = (key[:, None] != key) & real & real[:, None]
        assert like[same].mean() > 0.4
        assert like[other].mean() < 0.1


def test_decisions_come_as_often_as_the_rates_say() -> None:
    rates = Rates(change_as_known=0.1, change_as_new=0.2, delete_only=0.3, made_up_id=0.1,
                  new_as_known=0.2, false_merge=0.3)  # fmt: skip
    u = (jnp.arange(1_000) + 0.5) / 1_000
    for is_change, is_any, wanted in (
        (True, True, {"neither": 0.2, "adds": 0.2, "drops": 0.3, "both": 0.3}),
        (False, True, {"neither": 0.2, "adds": 0.5, "drops": 0.0, "both": 0.3}),
        (False, False, {"neither": 0.2, "adds": 0.8, "drops": 0.0, "both": 0.0}),
    ):
        adds, drops = jax.vmap(
            lambda x, is_change=is_change, is_any=is_any: decide(
                x, jnp.bool_(is_change), jnp.bool_(is_any), rates
            )
        )(u)
        shares = {
            "neither": ~adds & ~drops, "adds": adds & ~drops, "drops": ~adds & drops,
            "both": adds & drops,
        }  # fmt: skip
        for name, share in wanted.items():
            assert float(shares[name].mean()) == pytest.approx(share, abs=2e-3), name
