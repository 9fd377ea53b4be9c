"""A made-up log of prompts: agents with tools and a memory, many sessions interleaved.

Nothing in it is real. Each call sends its tools (now and then in another order), instructions, a
memory of blocks that edits change in place, the time by the minute, and the history, of which the
older half becomes a summary when it has grown long. Texts are words of random letters; a text ends
in a full stop, so that a tokenizer that cuts words finds the same tokens in a message alone and in
the whole prompt.
"""

import csv
import importlib
import json
import random
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

AGENTS = 10  # sessions open at a time
WORDS, TOOLS, BLOCKS = 3_000, 12, 8
MOST_MESSAGES = 120
START_S = 1.7e9


class _Writer:
    """Random texts."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        letters = string.ascii_lowercase
        self.words = ["".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(WORDS)]

    def text(self, chars: int) -> str:
        words = " ".join(self.rng.choices(self.words, k=max(chars // 6, 1)))
        return words.capitalize() + "."


class _Session:
    """One session: its memory, its history, and the calls that are left."""

    def __init__(self, name: str, writer: _Writer) -> None:
        self.name, self.writer, self.rng = name, writer, writer.rng
        self.memory = [writer.text(60) for _ in range(BLOCKS)]
        self.history: list[dict[str, str]] = []
        self.left = self.rng.randint(40, 160)

    def prompt(self, instructions: str, time_s: float) -> list[dict[str, str]]:
        """The messages of the next call."""
        if len(self.history) > MOST_MESSAGES:
            summary = "Summary of the conversation so far: " + self.writer.text(1_500)
            half = self.history[MOST_MESSAGES // 2 :]
            self.history = [{"role": "user", "content": summary}, *half]
        tool = bool(self.history) and self.rng.random() < 0.3
        chars = self.rng.randint(200, 2_000) if tool else self.rng.randint(20, 500)
        role = "tool" if tool else "user"
        self.history.append({"role": role, "content": self.writer.text(chars)})
        if self.rng.random() < 0.2:
            self.memory[self.rng.randrange(BLOCKS)] = self.writer.text(60)
        memory = "\n".join(self.memory)
        system = (
            f"{instructions}\n<memory>\n{memory}\n</memory>\n"
            f"Current time: {int(time_s) // 60} minutes."
        )
        return [{"role": "system", "content": system}, *self.history]

    def answer(self) -> int:
        """Add the answer; its length in tokens, about."""
        text = self.writer.text(self.rng.randint(50, 800))
        self.history.append({"role": "assistant", "content": text})
        self.left -= 1
        return len(text) // 4


def calls(megabytes: float, seed: int = 0) -> Iterator[dict[str, Any]]:
    """The calls of a log, in order of time.

    Args:
      megabytes: size of the log as JSON lines.
      seed: of all draws; the first calls of a larger log are the same.

    Yields:
      Request bodies with timestamp, session_id and usage beside messages and tools.
    """
    rng = random.Random(seed)
    writer = _Writer(rng)
    instructions = f"# Instructions\n{writer.text(4_000)}\n## Rules\n{writer.text(2_000)}"
    tools = [_tool(f"tool_{letter}", writer) for letter in string.ascii_lowercase[:TOOLS]]
    sessions: list[_Session] = []
    started, time_s, left = 0, START_S, megabytes * 1e6
    while left > 0:
        if len(sessions) < AGENTS:
            sessions.append(_Session(f"session {started}", writer))
            started += 1
        session = rng.choice(sessions)
        time_s += rng.expovariate(0.4)
        order = rng.sample(tools, TOOLS) if rng.random() < 0.1 else tools
        messages = session.prompt(instructions, time_s)
        row = {
            "timestamp": round(time_s, 3),
            "session_id": session.name,
            "model": "gpt-5",
            "tools": order,
            "messages": messages,
            "usage": {"completion_tokens": session.answer()},
        }
        left -= len(json.dumps(row)) + 1
        yield row
        if not session.left:
            sessions.remove(session)


def _tool(name: str, writer: _Writer) -> dict[str, Any]:
    properties = {"query": {"type": "string"}, "top": {"type": "integer"}}
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": writer.text(300),
            "parameters": {"type": "object", "properties": properties},
        },
    }


def write_jsonl(path: Path, megabytes: float, seed: int = 0) -> int:
    """Write a log as JSON lines, which jaxmem and kvlint read.

    Args:
      path: the file.
      megabytes, seed: as of `calls`.

    Returns:
      The number of calls.
    """
    count = 0
    with path.open("w") as file:
        for row in calls(megabytes, seed):
            file.write(json.dumps(row) + "\n")
            count += 1
    return count


def write_csv(path: Path, megabytes: float, seed: int = 0, *, rendered: bool = False) -> None:
    """Write the same log as the CSV of a gateway, which llmtrafficlens reads.

    Args:
      path: the file.
      megabytes, seed: as of `calls`.
      rendered: bodies whose prompt is one text, in place of chat bodies.
    """
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["timestamp", "model_name", "request_json"])
        for row in calls(megabytes, seed):
            body = {key: row[key] for key in ("model", "tools", "messages")}
            if rendered:
                body = {"model": row["model"], "prompt": render(row)}
            writer.writerow([row["timestamp"], row["model"], json.dumps(body)])


CHAT_TEMPLATE = (
    "{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
    "{% for message in messages %}{{ message['role'] + '\\n' + message['content'] }}{% endfor %}"
)


def render(row: dict[str, Any]) -> str:
    """The prompt as jaxmem reads it: tools as JSON, then each message after its role.

    Args:
      row: of `calls`.

    Returns:
      The text that `CHAT_TEMPLATE` gives too.
    """
    tools = "".join(json.dumps(tool) for tool in row["tools"])
    return tools + "".join(f"{m['role']}\n{m['content']}" for m in row["messages"])


def write_tokenizer(folder: Path, log: Path, vocabulary: int = 8_000) -> None:
    """Train a tokenizer on the first calls of a log, and write it as a model's folder.

    Its pieces never cross the border of a word and a role, of two tools, or of two lines, so that
    the tokens of a prompt are those of its parts.

    Args:
      folder: what to make; it holds tokenizer.json and a configuration with `CHAT_TEMPLATE`.
      log: from `write_jsonl`.
      vocabulary: number of tokens.
    """
    tokenizers = importlib.import_module("tokenizers")  # an extra
    with log.open() as file:
        texts = [render(json.loads(line)) for line, _ in zip(file, range(100))]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    pieces = tokenizers.Regex(" ?[A-Za-z]+|[0-9]|[^A-Za-z0-9]")
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(pieces, "isolated")
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary,
        initial_alphabet=list(string.printable),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 10**9,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
