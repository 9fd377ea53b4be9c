"""From a document to a cartridge in one go, with a tiny model of random weights."""

import dataclasses
import json
import math
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tiny_folder import write_folder

from jaxmem.lm.cartridges.baselines import BASELINES, baseline, baselines, nbytes
from jaxmem.lm.cartridges.evaluation import exam, grade
from jaxmem.lm.cartridges.machine import answer_tokens_s, repaid, shape_of, this_machine
from jaxmem.lm.cartridges.recipe import Recipe
from jaxmem.lm.cartridges.runs import run_identity, step_seconds
from jaxmem.lm.cartridges.state import State
from jaxmem.lm.cartridges.study import WAYS, Prepared, begin, make, prepare
from jaxmem.lm.config import Config, Llama3Scaling
from jaxmem.lm.model import Model, load_model
from jaxmem.lm.self_study.conversations import Conversation, shared_runs
from jaxmem.lm.tiny import CONFIG, tiny
from jaxmem.roofline import Accelerator

pytest.importorskip("tokenizers")
pytestmark = pytest.mark.usefixtures("unoptimised")

TEXT = (
    "The tower on Copper Rock was finished in 1868 by Arthur Finch. It is 41 metres tall and built"
    " of granite.\n\nThe keeper winds the clock every six hours, because its weights fall slowly."
    " In winter the supply boat comes once a week from Raven Point."
)
BROUGHT = [Conversation("Who finished the tower?", "", "user"),
           Conversation("How tall is it?", "41 metres.", "user")]  # fmt: skip
RECIPE = Recipe(steps=2, evaluate=2)
SLOTS = 40


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny(jax.random.key(0))


@pytest.fixture(scope="module")
def prepared(model: Model) -> Prepared:
    """Of the shapes that tests/cli/test_cartridge.py has too: compiled once."""
    return prepare(model, TEXT, questions=30, brought=BROUGHT)


def test_a_folder_of_it_is_read(model: Model, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    write_folder(tmp_path, model)
    found = load_model(tmp_path, "float32")
    assert (found.config, found.fingerprint) == (model.config, model.fingerprint)
    assert found.tokenizer.fingerprint == model.tokenizer.fingerprint
    assert found.tokenizer.chat([("user", "a")]) == model.tokenizer.chat([("user", "a")])
    assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), found.params, model.params))
    with pytest.raises(ValueError, match="vocabulary of at least 259, got 61"):
        tiny(jax.random.key(0), Config(61, 8, 1, 1, 1, 8, 8, 64))


def test_what_is_prepared(prepared: Prepared, model: Model) -> None:
    questions = [one.question for one in prepared.conversations]
    assert prepared.kept
    assert prepared.held_out is not None
    for one in prepared.kept:
        assert one.question not in questions
    assert not shared_runs(prepared.conversations, [one.question for one in prepared.kept])
    mine = [one for one in prepared.conversations if one.kind == "user"]
    assert [one.question for one in mine] == [one.question for one in BROUGHT]
    assert mine[1].answer == "41 metres."
    layers, heads = model.config.layers, model.config.kv_heads
    assert prepared.asked.shape[:2] == (layers, heads)
    assert set(prepared.seconds) == {
        "reading the document", "answering your questions", "making conversations",
        "the teacher's rows", "reference questions",
    }  # fmt: skip


def test_questions_without_answer_get_the_teacher_s(prepared: Prepared, model: Model) -> None:
    """Its answer is greedy: no other token is likelier with the document in view."""
    mine = next(one for one in prepared.conversations if one.question == BROUGHT[0].question)
    assert mine.answer
    paper = exam(model, [mine], prepared.reading)
    other = exam(model, [mine._replace(answer="The tower was Arthur.")], prepared.reading)
    surprise = [grade(model, one, prepared.reading.whole).mean_nll for one in (paper, other)]
    assert surprise[0] < surprise[1]


def test_no_training_row_is_near_a_test(model: Model, prepared: Prepared) -> None:
    tests = [prepared.conversations[0], Conversation(TEXT[:62] + "?", "x", "user")]
    found = prepare(model, TEXT, questions=30, held_out=3, apart=tests)
    for one in (*found.conversations, *found.kept):
        assert one.question not in [test.question for test in tests]
    assert not shared_runs([*found.conversations, *found.kept], [test.question for test in tests])


def test_starts_and_runs(prepared: Prepared, model: Model) -> None:
    for start in WAYS:
        assert begin(prepared, model, SLOTS, start).slots == SLOTS
    with pytest.raises(ValueError, match="at most as many slots"):
        begin(prepared, model, 10_000)
    with pytest.raises(ValueError, match="start of a cartridge"):
        begin(prepared, model, SLOTS, "matchin")
    alone = make(prepared, model, SLOTS)
    assert [one.step for one in alone.history] == [0]
    looks: list[State] = []
    trained = make(prepared, model, SLOTS, RECIPE, report=looks.append)
    assert trained.history[0].held_out == pytest.approx(alone.history[0].held_out, rel=1e-5)
    assert [one.history[-1].step for one in looks] == [0, 1, 2]
    late = make(prepared, model, SLOTS, RECIPE, until=time.monotonic() - 1.0)
    assert [one.step for one in late.history] == [0]
    assert alone.cartridge is not None
    from_it = make(prepared, model, SLOTS, RECIPE, alone.cartridge)
    assert from_it.cartridge is not None
    assert trained.cartridge is not None
    assert (from_it.cartridge.keys == trained.cartridge.keys).all()
    with pytest.raises(ValueError, match="a cartridge of 41 slots, got 40"):
        make(prepared, model, 41, RECIPE, alone.cartridge)
    assert min(step_seconds(prepared, model, alone.cartridge, RECIPE)) > 0
    identity = run_identity(prepared, model, alone.cartridge, RECIPE, "matching", 0)
    assert identity["slots"] == str(SLOTS)
    assert identity["templates"] == "30"


def test_baselines(prepared: Prepared, model: Model) -> None:
    found = baselines(prepared, model, SLOTS)
    assert tuple(found) == BASELINES
    assert found["no context"] is None
    assert nbytes(None) == 0
    whole = prepared.reading.whole
    full = found["full context"]
    assert full is not None
    assert full.slots == whole.slots
    assert nbytes(full) == whole.slots * model.config.kv_bytes
    kept = found["random tokens"]
    assert kept is not None
    positions = np.asarray(kept.positions)
    assert positions.shape == (*whole.keys.shape[:2], SLOTS)
    assert (positions[..., 0] == 0).all()
    assert (np.diff(positions) > 0).all()
    assert (positions[0, 0] != positions[1, 1]).any()
    assert kept.first_question == whole.first_question
    chosen = np.take_along_axis(np.asarray(whole.keys), positions[..., None], axis=2)
    assert (np.asarray(kept.keys) == chosen).all()
    with pytest.raises(ValueError, match="at most as many slots"):
        baseline("random tokens", prepared, model, 10_000)
    with pytest.raises(ValueError, match="expected one of no context"):
        baseline("none", prepared, model, SLOTS)


def test_a_document_in_windows(model: Model) -> None:
    boat = Conversation("Where does the supply boat come from?", "Raven Point.", "user")
    with pytest.warns(UserWarning, match="is read in 2 windows"):
        found = prepare(
            model, TEXT, questions=0, held_out=0, window=150, brought=[BROUGHT[1], boat]
        )
    assert len(found.reading.parts) == 2
    assert [found.reading.part_of(one) for one in found.conversations] == [0, 1]
    assert found.held_out is None


def test_a_budget_chooses_questions(model: Model) -> None:
    found = prepare(model, TEXT, budget_s=0.01, held_out=3)
    assert found.templates == 16
    same = prepare(model, TEXT, questions=16, held_out=3)
    assert found.conversations == same.conversations
    assert found.kept == same.kept


def test_bad_input(model: Model) -> None:
    with pytest.raises(ValueError, match="empty one"):
        prepare(model, " \n")
    with pytest.raises(ValueError, match="questions must be at least 0"):
        prepare(model, TEXT, questions=-1)
    with pytest.raises(ValueError, match="at least one conversation"):
        prepare(model, TEXT, questions=0)
    with pytest.raises(ValueError, match="a document's text, got NoneType"):
        prepare(model, None)  # type: ignore[arg-type]


def test_a_document_that_another_model_has_read(model: Model) -> None:
    found = prepare(model, TEXT, questions=8, held_out=0)
    other = dataclasses.replace(model, name="other", fingerprint="0" * 16)
    for use in (begin, make):
        with pytest.raises(ValueError, match=f"by other .* got one read by {model.fingerprint}"):
            use(found, other, 8)


@pytest.mark.parametrize("tied", [True, False])
def test_the_cost_model_has_the_same_weights(tied: bool) -> None:
    config = Config(49_152, 576, 30, 9, 3, 64, 1536, 8192, tied=tied)
    shape = shape_of(config)
    count = sum(math.prod(one) for one in config.shapes.values())
    assert shape.total_parameters == count
    if tied:
        assert count == 134_515_008  # as published


def test_when_training_is_repaid() -> None:
    config = Config(49_152, 576, 30, 9, 3, 64, 1536, 8192, tied=True)
    machine = Accelerator(3e11, 0.0, 0.0, 2e10, 16e9, 2.0)
    found = repaid(config, machine, 1000, 125, 180.0)
    assert 0 < found.uncached < found.cached < math.inf
    assert found.cached == pytest.approx(180 / (found.context_s - found.cartridge_s), rel=1e-4)
    assert repaid(config, machine, 1000, 1000, 180.0).cached == math.inf  # never
    assert repaid(config, machine, 1000, 125, 360.0).cached == pytest.approx(2 * found.cached)


def test_this_machine(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxmem.lm.cartridges.machine._SPEND_S", 0.0)
    machine = this_machine("float32")
    for number in (machine.bf16_flops, machine.bytes_s, machine.capacity_bytes):
        assert 1e6 < number < 1e18
    assert answer_tokens_s(model, None, 4) > 0
    assert CONFIG.vocabulary == model.tokenizer.vocabulary


def test_models_that_do_not_go_together(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="dtype"):
        tiny(jax.random.key(0), dtype="float17")
    wide = dataclasses.replace(CONFIG, vocabulary=600)
    write_folder(tmp_path, tiny(jax.random.key(0), wide))
    with pytest.raises(ValueError, match="tokenizer of 300 to 600 tokens, got one of 259"):
        load_model(tmp_path)
    write_folder(tmp_path, tiny(jax.random.key(0)))
    fields = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(fields | {"eos_token_id": "2"}))
    with pytest.raises(ValueError, match="expected eos_token_id as a number or several, got '2'"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"rope_llama3": "x"},
        {"rope_llama3": Llama3Scaling(0.0, 1.0, 4.0, 32)},
        {"rope_llama3": Llama3Scaling(8.0, 1.0, 1.0, 32)},
        {"tied": "no"},
        {"layers": 0},
    ],
)
def test_shapes_that_cannot_be(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        dataclasses.replace(CONFIG, **change)
