"""Self-study: what the model is shown, what is kept of what it says, the shared cache."""

import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from jaxmem.lm.config import Config
from jaxmem.lm.generation import Generated, generate
from jaxmem.lm.model import Model
from jaxmem.lm.parameters import init_params
from jaxmem.lm.self_study import sampled as module
from jaxmem.lm.self_study.conversations import Conversation
from jaxmem.lm.self_study.document import chunks
from jaxmem.lm.self_study.sampled import clean_answer, clean_question, self_study
from jaxmem.lm.self_study.seeds import SEED_KINDS, all_seeds, seed_prompt
from jaxmem.lm.tokenizer import tokenizer_from_gguf

tokenizers = pytest.importorskip("tokenizers")
pytestmark = pytest.mark.usefixtures("unoptimised")

TEXT = "The tower was built by Arthur Finch in 1868. It is red.\n\nDogs may not land at the steps."


@pytest.fixture(scope="module")
def model() -> Model:
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = tokenizer_from_gguf(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "smollm",
            "tokenizer.ggml.tokens": [*special, *letters],
            "tokenizer.ggml.token_type": [3] * 3 + [1] * len(letters),
            "tokenizer.ggml.merges": [],
            "tokenizer.ggml.eos_token_id": 2,
        }
    )
    config = Config(
        vocabulary=tokenizer.vocabulary, hidden=16, layers=2, heads=2, kv_heads=1, head_dim=8,
        feed_forward=16, positions=1024, tied=True,
    )  # fmt: skip
    return Model(config, init_params(jax.random.key(0), config), tokenizer, "tiny", "0")


Says = Callable[[str, int], str]


def saying(monkeypatch: pytest.MonkeyPatch, model: Model, says: Says) -> list[dict[str, Any]]:
    """Replace the model's words by `says(prompt, number of the row)`; returns its calls."""
    calls: list[dict[str, Any]] = []
    tokenizer = model.tokenizer

    def fake(params: Any, config: Config, ids: Any, lengths: Any, **settings: Any) -> Generated:
        prompts = [tokenizer.decode(row[:n].tolist()) for row, n in zip(ids, lengths)]
        number = sum(len(call["prompts"]) for call in calls)
        calls.append(settings | {"prompts": prompts, "shape": ids.shape})
        made = np.zeros((len(prompts), settings["steps"]), np.int32)
        counts = np.zeros(len(prompts), np.int32)
        for row, prompt in enumerate(prompts):
            tokens = [*tokenizer.encode(says(prompt, number + row)), tokenizer.end]
            counts[row] = min(len(tokens), settings["steps"])
            made[row, : counts[row]] = tokens[: counts[row]]
        return Generated(made, counts, made)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "generate", fake)
    return calls


def question_or_answer(prompt: str, number: int) -> str:
    if prompt.endswith("assistant\n"):
        return f"It is\nnumber {number}. And so on."
    return f" of the {'abcdefghijklmnopqrstuvwxyz'[number % 26]} {number}? Yes. More?"


def test_what_is_asked_and_kept(monkeypatch: pytest.MonkeyPatch, model: Model) -> None:
    calls = saying(monkeypatch, model, question_or_answer)
    dropped: Counter[str] = Counter()
    found = self_study(model, TEXT, 5, 20, chunk_tokens=60, batch=4, dropped=dropped)
    assert len(found) == 20
    assert not dropped
    assert {row.kind for row in found} == set(SEED_KINDS)
    spans = {(span.start, span.end) for span in chunks(TEXT, 60, model.tokenizer.encode)}
    assert len(spans) == 2
    assert {row.chunk for row in found} == spans
    for row in found:
        assert isinstance(row, Conversation)
        assert re.fullmatch(r".* of the \w \d+\?", row.question)
        assert re.fullmatch(r"It is number \d+\. And so on\.", row.answer)
    asking, answering = calls[0], calls[1]
    assert asking["temperature"] == 0.8
    assert asking["top_p"] == 0.95
    assert "temperature" not in answering
    assert asking["steps"] == 48
    assert answering["steps"] == 64
    for call in (asking, answering):
        assert call["cartridge"].keys.shape[2] == calls[-1]["cartridge"].keys.shape[2]
    assert len({call["shape"] for call in calls[::2]}) == 1
    assert len({call["shape"] for call in calls[1::2]}) == 1
    assert self_study(model, TEXT, 5, 20, chunk_tokens=60, batch=4)[0].kind == found[0].kind


def test_what_is_dropped(monkeypatch: pytest.MonkeyPatch, model: Model) -> None:
    def says(prompt: str, number: int) -> str:
        if prompt.endswith("assistant\n"):
            return " \n"
        return "?" if number % 2 else " is the very same thing?"

    calls = saying(monkeypatch, model, says)
    dropped: Counter[str] = Counter()
    settings: dict[str, Any] = {"kinds": ["question"], "chunk_tokens": 200, "batch": 6}
    assert self_study(model, TEXT, 0, 12, dropped=dropped, **settings) == []
    assert sum(dropped.values()) == 36  # three times as many as wanted
    assert set(dropped) == {"repeated", "short", "no answer"}
    assert all(len(call["prompts"]) == 6 for call in calls)  # one shape, filled up


def test_the_shared_cache_is_the_whole_prompt(model: Model) -> None:
    pieces = chunks(TEXT, 60, model.tokenizer.encode)
    study = module._Study(model, pieces, ["question"], 2, 8, 8, 0.8)
    place = min(range(2), key=lambda number: len(study.prefixes[number]))
    assert len(study.prefixes[place]) < study.slots  # so that some slots are hidden
    seen = study._look(place)
    questions = ["Who built it?", "Why?"]
    full = [module._user_turn(model.tokenizer, pieces[place].text, each) for each in questions]
    tails = [ids[len(seen.prefix) :] for ids in full]
    shared = study._generate(generate, tails, study.answering_room, 6, seen)
    ids = np.zeros((2, max(map(len, full))), np.int32)
    for row, prompt in zip(ids, full):
        row[: len(prompt)] = prompt
    stop = [model.tokenizer.end, model.tokenizer.eos]
    lengths = [len(prompt) for prompt in full]
    plain = generate(model.params, model.config, ids, lengths, steps=6, stop=stop)
    for (text, _), made, length in zip(shared, np.asarray(plain.ids), np.asarray(plain.lengths)):
        assert model.tokenizer.decode(made[:length].tolist()).startswith(text)


def test_a_real_run_gives_what_fits(model: Model) -> None:
    rows = self_study(
        model, TEXT, 1, 4, kinds=["use"], chunk_tokens=60, batch=2, max_question=6, max_answer=6
    )
    assert len(rows) <= 4
    assert all(row.question and row.answer and row.kind == "use" for row in rows)


def test_bad_input(model: Model) -> None:
    for text, settings, message in (
        (" \n", {}, "expected a document"),
        (TEXT, {"count": 0}, "count"),
        (TEXT, {"kinds": ["questions"]}, "did you mean 'question'"),
        (TEXT, {"kinds": []}, "expected kinds"),
        (TEXT, {"kinds": "use"}, "expected kinds"),
        (TEXT, {"batch": 0}, "batch"),
        (TEXT, {"chunk_tokens": 4}, "chunk_tokens"),
        (TEXT * 20, {"chunk_tokens": 1000}, "context is 1024 tokens"),
    ):
        given: dict[str, Any] = {"count": 3} | settings
        with pytest.raises(ValueError, match=message):
            self_study(model, text, 0, **given)


def test_seed_prompts() -> None:
    rng = random.Random(0)
    for kind in SEED_KINDS:
        drawn = {seed_prompt(kind, rng, "the tower") for _ in range(300)}
        assert len(drawn) > 20
        assert {"the tower" in first for _, first in drawn} == {True, False}
        assert all(first == first.strip() and "{" not in first for _, first in drawn)
        known = {(text, first.replace("{topic}", "the tower")) for text, first in all_seeds(kind)}
        assert drawn <= known
        assert all("{" not in first for _, first in (seed_prompt(kind, rng) for _ in range(50)))
    with pytest.raises(ValueError, match="did you mean 'creative'"):
        seed_prompt("creativ", rng)


@pytest.mark.parametrize(
    ("said", "ended", "question"),
    [
        ("Who built it? Arthur.\nAnd?", True, "Who built it?"),
        ("Who built\n the tower? x", False, "Who built the tower?"),
        ("List the towers. Then stop.", False, "List the towers."),
        ("List the towers\nand more", True, "List the towers"),
        ("List the towers and", False, ""),
        ("It costs 3.5", False, ""),
        (" \ufffd\0 ", True, ""),
    ],
)
def test_questions_are_cleaned(said: str, ended: bool, question: str) -> None:
    assert clean_question(said, ended) == question


def test_answers_are_cleaned() -> None:
    assert clean_answer("It is\nred. And", True) == "It is red. And"
    assert clean_answer("It is red. And", False) == "It is red."
    assert clean_answer("It costs 3.5 crowns and", False) == ""
