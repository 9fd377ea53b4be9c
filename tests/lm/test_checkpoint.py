"""Runs on disk: the state comes back, a run goes on bit for bit, and what is wrong is refused."""

import json
import math
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxmem.lm.cartridges.checkpoint import load_state, read_identity, save_state
from jaxmem.lm.cartridges.course import Course
from jaxmem.lm.cartridges.recipe import Recipe
from jaxmem.lm.cartridges.state import State, Trained
from jaxmem.lm.cartridges.training import init_state, train
from jaxmem.lm.config import Config
from jaxmem.lm.parameters import Params
from jaxmem.recall.cartridges import Cartridge

pytest.importorskip("safetensors")
pytestmark = pytest.mark.usefixtures("unoptimised")

IDENTITY = {"model": "abc", "rows": "12", "seed": "0"}
RECIPE = Recipe(steps=6, batch=2, evaluate=3, bias=True)


def copied(state: State) -> State:
    return jax.tree.map(np.array, state._replace(history=()))._replace(history=state.history)


def run(
    params: Params, config: Config, few: Cartridge, course: Course, state: State | None = None
) -> tuple[Trained, list[State]]:
    states: list[State] = []
    trained = train(
        params, config, few, course, RECIPE, seed=4, held_out=course, state=state,
        # The optimiser's arrays are given back to the next step: copies stay.
        report=lambda one: states.append(copied(one)),
    )  # fmt: skip
    return trained, states


@pytest.fixture(scope="module")
def done(
    params: Params, config: Config, few: Cartridge, course: Course
) -> tuple[Trained, list[State]]:
    return run(params, config, few, course)


def equal(first: object, second: object) -> bool:
    one, other = jax.tree.leaves(first), jax.tree.leaves(second)
    return len(one) == len(other) and all(
        np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(one, other)
    )


def test_a_state_comes_back(
    done: tuple[Trained, list[State]], few: Cartridge, tmp_path: Path
) -> None:
    path = tmp_path / "run.partial"
    for state in done[1]:
        save_state(path, state, IDENTITY)
        found = load_state(path, init_state(few, RECIPE), IDENTITY)
        assert equal(found._replace(history=()), state._replace(history=()))
        assert found.history[-1].step == state.history[-1].step
        assert [float(one.held_out) for one in found.history] == [
            float(one.held_out) for one in state.history
        ]
        assert math.isnan(found.history[0].loss)
        assert read_identity(path) == IDENTITY
        save_state(path, found, IDENTITY)
        assert equal(load_state(path, found, IDENTITY), found)
    assert [one.name for one in tmp_path.iterdir()] == ["run.partial"]


@pytest.mark.parametrize("look", [0, 1, 2])
def test_a_run_goes_on_bit_for_bit(
    done: tuple[Trained, list[State]],
    params: Params,
    config: Config,
    few: Cartridge,
    course: Course,
    tmp_path: Path,
    look: int,
) -> None:
    save_state(tmp_path / "run", done[1][look], IDENTITY)
    state = load_state(tmp_path / "run", init_state(few, RECIPE), IDENTITY)
    again, states = run(params, config, few, course, state)
    assert equal(again.cartridge, done[0].cartridge)
    assert len(states) == 3 - look
    assert [one.step for one in again.history] == [0, 2, 4, 6]


@pytest.mark.parametrize(
    ("name", "value"), [("model", "abd"), ("rows", None), ("seed", "1"), ("slots", "5")]
)
def test_another_run_is_refused(
    done: tuple[Trained, list[State]],
    few: Cartridge,
    tmp_path: Path,
    name: str,
    value: str | None,
) -> None:
    save_state(tmp_path / "run", done[1][1], IDENTITY)
    other = {key: text for key, text in (IDENTITY | {name: value}).items() if text is not None}
    with pytest.raises(ValueError, match=f"run: another run's: expected {name} "):
        load_state(tmp_path / "run", init_state(few, RECIPE), other)


def test_damaged_files_are_refused(
    done: tuple[Trained, list[State]], few: Cartridge, tmp_path: Path
) -> None:
    path, like = tmp_path / "run", init_state(few, RECIPE)
    save_state(path, done[1][1], IDENTITY)
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])

    def changed(**entries: object) -> bytes:
        found = {name: dict(entry) for name, entry in header.items()}
        for name, entry in entries.items():
            found[".slots.keys" if name == "keys" else name].update(entry)  # type: ignore[call-overload]
        text = json.dumps(found).encode()
        return len(text).to_bytes(8, "little") + text + content[8 + length :]

    huge = 2**60
    bad = [
        (b"", "expected a safetensors file"),
        (content[:-4], "bytes of tensors side by side"),
        (b"\xff" * 8 + content[8:], "expected a safetensors file"),
        (changed(keys={"shape": [huge, 8], "data_offsets": [0, 32 * huge]}), "expected"),
        (changed(keys={"dtype": "I32"}), "expected .*slots.keys float32"),
        (changed(__metadata__={"format": "other"}), "expected format"),
        (changed(__metadata__={"version": "2"}), "expected version 1, got '2'"),
        (changed(__metadata__={"history": "[]"}), "expected a history"),
        (changed(__metadata__={"history": "[[0, 1]]"}), "expected looks of 5 numbers"),
        (changed(__metadata__={"history": "[[2,0,0,0,0],[2,0,0,0,0]]"}), "steps that rise"),
        (changed(__metadata__={"history": "[" * 9}), "expected a JSON header"),
    ]
    for damaged, message in bad:
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=message) as caught:
            load_state(path, like, IDENTITY)
        assert str(caught.value).startswith(f"{path}: ")
    path.write_bytes(content)
    with pytest.raises(ValueError, match="in one of both only"):
        load_state(path, like._replace(best=like.best._replace(bias=None)), IDENTITY)
    with pytest.raises(ValueError, match="expected .*keys"):
        load_state(path, jax.tree.map(lambda a: a[..., :1] if a.ndim else a, like), IDENTITY)
    with pytest.raises(ValueError, match="no file"):
        load_state(tmp_path, like, IDENTITY)
