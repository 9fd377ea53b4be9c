"""Harnesses over chats and documents, with rules in the place of models."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from jaxmem.agents.embedders import HashingEmbedder
from jaxmem.agents.messages import Message, Reply, Tool
from jaxmem.agents.scripted import Scripted, calls, says
from jaxmem.agents.tasks import (
    Chat,
    conversation_opener,
    document_qa,
    memory_retrieval,
    read_chats,
    rouge_l,
    summary_retrieval,
    turn_pages,
)
from jaxmem.agents.tasks.document_qa import holds
from jaxmem.agents.tasks.memory_retrieval import judged

CHATS = Path(__file__).parents[2] / "examples" / "chats" / "made_up.jsonl"


def searcher(chat: Chat) -> Scripted:
    """Searches the words of the question and says all that it finds."""

    def rule(messages: Sequence[Message], tools: Sequence[Tool]) -> Reply:
        if not tools:
            return says("We talked about many things.")
        if messages[-1].role == "tool":
            return calls("send_message", message=json.loads(messages[-1].content)["message"])
        return calls("conversation_search", query=chat.question)

    return Scripted(rule)


def judge() -> Scripted:
    """Finds correct what holds most of the right answer's words."""

    def rule(messages: Sequence[Message], tools: Sequence[Tool]) -> Reply:
        text = messages[0].content
        gold = text.split("Right answer: ")[1].split("\n")[0]
        return says("CORRECT" if rouge_l(text.split("\nAnswer: ")[1], gold) > 0.6 else "WRONG")

    return Scripted(rule)


def test_the_sample_is_whole() -> None:
    chats = read_chats(CHATS)
    assert len(chats) == 6
    for chat in chats:
        assert len(chat.sessions) == 3
        assert [one.age_s for one in chat.sessions] == sorted(
            (one.age_s for one in chat.sessions), reverse=True
        )
        assert chat.opener
        assert chat.user_persona
        told = " ".join(text for one in chat.sessions for who, text in one.turns
                        if who == "assistant")  # fmt: skip
        assert rouge_l(told, chat.answer) > 0.5
        assert {who for one in chat.sessions for who, _ in one.turns} == {"user", "assistant"}


def test_memory_retrieval() -> None:
    chats = read_chats(CHATS)
    found = memory_retrieval(chats, searcher, judge(), now_s=1.7e9)
    assert found.accuracy.mean >= 4 / 6
    assert found.rouge_l.mean > 0.6
    assert all(record["calls"] == 2 for record in found.records)
    blind = summary_retrieval(chats, searcher, judge())
    assert blind.accuracy.mean == 0
    assert blind.rouge_l.mean < 0.3
    with pytest.raises(ValueError, match="at least one chat"):
        memory_retrieval([], searcher, judge())
    with pytest.raises(ValueError, match="with a question"):
        memory_retrieval([chats[0]._replace(question="")], searcher, judge())


def test_judges() -> None:
    for told, wanted in (
        ("CORRECT", True),
        ("Wrong.", False),
        (" **correct**", True),
    ):
        assert judged(Scripted([says(told)]), "q", "a", "b") == wanted
    with pytest.raises(ValueError, match="expected CORRECT or WRONG"):
        judged(Scripted([says("Maybe.")]), "q", "a", "b")
    for told in ("The answer is not correct.", "WRONG: the right one says 'correct'"):
        with pytest.raises(ValueError, match="and no more"):
            judged(Scripted([says(told)]), "q", "a", "b")


def test_rouge_l() -> None:
    assert rouge_l("the cat sat on a mat", "cat on mat") == 1.0
    assert rouge_l("mat on cat", "cat on mat") == pytest.approx(1 / 3)
    assert rouge_l("", "cat") == 0.0
    assert rouge_l("x", "") == 1.0


def test_openers() -> None:
    chats = read_chats(CHATS)

    def greeter(chat: Chat) -> Scripted:
        return Scripted([calls("send_message", message=f"Hello! {chat.user_persona[0]}")])

    found = conversation_opener(chats, greeter, HashingEmbedder(), now_s=1.7e9)
    assert found.sim_1.mean > 0.8 > found.sim_3.mean > 0.2
    assert found.sim_human is not None
    assert found.human_1 is not None
    assert 0.0 < found.human_1.mean < found.sim_1.mean
    alone = conversation_opener([chats[0]._replace(opener="")], greeter, HashingEmbedder())
    assert alone.sim_human is None
    with pytest.raises(ValueError, match="about the user"):
        conversation_opener([chats[0]._replace(user_persona=[])], greeter, HashingEmbedder())


def test_pages_find_what_the_first_does_not_show() -> None:
    text = "\n\n".join(f"Room {i} has a door. The key of room {i} hangs on hook {i * 7}."
                       for i in range(60))  # fmt: skip
    asked = [("On which hook hangs the key?", f"hook {i * 7}") for i in range(0, 60, 6)]
    both = {
        pages: document_qa(
            {"rooms": text},
            asked,
            lambda _, gold, pages=pages: turn_pages(gold, pages),
            characters=80,
        )
        for pages in (1, None)
    }
    assert both[None]["accuracy"] == 1.0
    assert both[1]["accuracy"] < both[None]["accuracy"]
    assert both[1]["calls"] == 2.0 < both[None]["calls"]
    assert holds("It hangs on hook 42.", "hook 42")
    assert not holds("It hangs on hook 421.", "hook 42")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("[1]", "row 1: expected an object with previous_dialogs"),
        ('{"previous_dialogs": [{"dialog": 5}]}', "expected a dialog of turns"),
        ('{"previous_dialogs": [{"dialog": [], "time_unit": "eons"}]}', "expected time_num"),
        ('{"previous_dialogs": [], "self_instruct": {"A": 5}}', "expected A as text"),
        ("{", "expected JSON"),
    ],
)
def test_files_that_are_no_chats(tmp_path: Path, row: str, message: str) -> None:
    (tmp_path / "chats").write_text(row)
    with pytest.raises(ValueError, match=message):
        read_chats(tmp_path / "chats")
