"""The doctor on made-up logs: a time stamp, a tool reorder, a memory rewrite, each exactly."""

import json
from pathlib import Path

import numpy as np
import pytest

from jaxmem.prompts import LogBuilder, Segment, read_log
from jaxmem.prompts.doctor import Diagnosis, diagnose
from jaxmem.prompts.findings import EXCERPT

SYSTEM = "You are a patient assistant who answers in one line. " * 8  # 424 bytes
CHAT = [
    {"role": role, "content": f"{role} says number {n}: " + "word " * 30}
    for n in range(8)
    for role in ("user", "assistant")
]


def diagnosed(path: Path, bodies: list[dict]) -> Diagnosis:
    """A log of one session, a call a minute."""
    rows = [
        {"timestamp": 60.0 * n, "session_id": "s", "request": body} for n, body in enumerate(bodies)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return diagnose(read_log(path), block_tokens=1)


def test_a_time_stamp_in_the_system_prompt(tmp_path: Path) -> None:
    bodies = [
        {"model": "gpt-4o", "messages": [
            {"role": "system", "content": f"Now: 2026-11-30 10:{n:02}. {SYSTEM}"},
            *CHAT[: 2 * n + 1],
        ]}
        for n in range(5)
    ]  # fmt: skip
    found = diagnosed(tmp_path / "log.jsonl", bodies)
    (finding,) = found.findings
    assert (finding.label, finding.kind, finding.how) == ("system", "system", "edited")
    assert (finding.field, finding.fields) == ("time", ("time",))
    assert finding.calls == 4
    assert (finding.old, finding.new) == ("2026-11-30 10:03", "2026-11-30 10:04")
    assert finding.remedies[0].name == "drop_volatile"
    # All that was said before is computed again, but for the tokens around the stamp itself.
    log = found.log
    held = log.prompt_tokens[:-1] - found.reuse.shared[1:]
    assert np.all(held - found.reuse.broken[1:] <= 2)
    assert finding.tokens == found.reuse.broken.sum() == 1150
    assert found.avoidable_tokens == 1158  # with the stamps, which are not sent any more


def test_tools_in_changing_order(tmp_path: Path) -> None:
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
        for name in ("search", "write", "read")
    ]
    orders = [(0, 1, 2), (0, 2, 1), (1, 0, 2)]
    bodies = [
        {"tools": [tools[t] for t in order],
         "messages": [{"role": "system", "content": SYSTEM}, *CHAT[: 2 * n + 1]]}
        for n, order in enumerate(orders)
    ]  # fmt: skip
    found = diagnosed(tmp_path / "log.jsonl", bodies)
    (finding,) = found.findings
    assert (finding.label, finding.how, finding.calls) == ("tools", "reordered", 2)
    assert finding.labels == ("tool write", "tool read")
    assert finding.remedies[0].name == "sort_tools"
    assert found.avoidable_tokens == finding.tokens == found.reuse.broken.sum()
    assert found.log.prompt_tokens[:-1].sum() - found.reuse.shared.sum() == finding.tokens


def test_a_memory_block_written_on_each_turn(tmp_path: Path) -> None:
    facts = ["likes tea", "has a cat", "lives in Rome", "works at night"]
    bodies = [
        {"system": [{"type": "text", "text": SYSTEM},
                    {"type": "text", "text": "<memory>\nThe user " + ", ".join(facts[:n + 1])
                     + ".\nBe kind to them and remember what they told you.\n</memory>"}],
         "messages": CHAT[: 2 * n + 1]}
        for n in range(4)
    ]  # fmt: skip
    found = diagnosed(tmp_path / "log.jsonl", bodies)
    (finding,) = found.findings
    assert (finding.kind, finding.how, finding.calls) == ("memory", "edited", 3)
    assert "works at night" in finding.new
    assert finding.remedies[0].name == "append_edits"
    assert found.avoidable_tokens > 0.8 * finding.tokens
    assert found.reused_share > found.reuse.share


def test_a_counter_in_the_header_of_a_memory() -> None:
    builder = LogBuilder()
    memory, history = b"", []
    for n, used in enumerate((1085, 1185, 1285)):
        memory += b"\na fact about the user, number %d." % n
        history.append(Segment("message user", "history", b"user\nhello, once more, %d" % n * 40))
        header = b"<human> [%d%% - %d/2,200 chars]" % (used // 22, used)
        builder.call([Segment("memory: <human>", "memory", header + memory), *history])
    (finding,) = diagnose(builder.build(), block_tokens=1).findings
    assert (finding.how, finding.field, finding.fields) == ("edited", "number", ())
    assert (finding.old[:3], finding.new[:3]) == ("53%", "58%")
    assert finding.remedies[0].name == "append_edits"
    assert "drop_volatile" in [remedy.name for remedy in finding.remedies]


def test_a_plan_goes_on_behind_a_remedy_that_saves_nothing_alone() -> None:
    builder, history = LogBuilder(), []
    for n in range(6):
        builder.call([
            Segment("head", "system", b"head", tokens=10),
            Segment("found", "retrieved", b"found %d" % n, tokens=30),
            Segment("clock", "task", b"clock %d" % n, tokens=5),
            *history,
        ])  # fmt: skip
        history.append(Segment("turn", "history", b"turn %d" % n, tokens=20))
    found = diagnose(builder.build(), block_tokens=1)
    (finding,) = found.findings
    assert finding.remedies[0].saved_tokens == 0
    assert finding.advice.endswith("alone it saves nothing")
    assert [step.label for step in found.plan] == ["found", "clock"]
    assert found.avoidable_tokens == finding.tokens == 20 * (1 + 2 + 3 + 4)
    prompt = found.log.prompt_tokens.sum()
    assert found.reused_share == pytest.approx((50 + finding.tokens) / prompt)


def test_a_plan_lays_out_a_segment_once() -> None:
    builder, history = LogBuilder(), []
    for n in range(30):
        history.append(Segment("turn", "history", b"user\nsomething %d to say " % n * 20))
        facts = b"".join(b"fact %d\n" % k for k in range(n // 3))
        memory = b"<memory>\nWritten at 10:%02d\n" % n + facts + b"</memory>\n"
        other = b"<notes>\n" + b"note %d\n" % (n // 5) * 3
        builder.call([Segment("memory", "memory", memory), Segment("notes", "memory", other),
                      *history])  # fmt: skip
    found = diagnose(builder.build())
    labels = [step.label for step in found.plan]
    assert len(labels) == len(set(labels)) >= 1
    assert found.reused_share > 0.7 > 0.1 > found.reuse.share
    best = max(f.remedies[0].saved_tokens for f in found.findings if f.remedies)
    assert found.avoidable_tokens >= 0.95 * best


def test_a_text_written_anew_each_time() -> None:
    builder = LogBuilder()
    for n in range(4):
        text = " ".join(f"{word}{n}" for word in ("alpha", "beta", "gamma", "delta") * 20)
        builder.call([Segment("head", "system", SYSTEM.encode()),
                      Segment("cheatsheet", "memory", text.encode())])  # fmt: skip
    found = diagnose(builder.build(), block_tokens=1)
    (finding,) = found.findings
    assert (finding.how, finding.calls) == ("rewritten", 3)
    assert "instead of writing it anew" in finding.advice
    assert found.avoidable_tokens == 0


def test_nothing_to_find() -> None:
    builder = LogBuilder()
    builder.call([])
    found = diagnose(builder.build())
    assert found.findings == ()
    assert found.avoidable_share == 0
    assert diagnose(LogBuilder().build()).reuse.share == 0


def test_excerpts_are_short_and_printable() -> None:
    builder = LogBuilder()
    for end in ("\x1b[31m" + "é" * 100, "\x07" + "ü" * 100):
        builder.call([Segment("s", "system", ("x" * 40 + end + "z" * 400).encode())])
    (finding,) = diagnose(builder.build(), block_tokens=1).findings
    assert len(finding.old) + len(finding.new) <= EXCERPT
    assert (finding.old + finding.new).isprintable()


@pytest.mark.parametrize(
    ("agent", "share"), [("taubench", 0.815), ("magagent", 0.831), ("miniswe", 0.938)]
)
def test_real_agents(data_dir: Path, agent: str, share: float) -> None:
    found = diagnose(read_log(data_dir / "agent_logs" / agent))
    assert found.reuse.share == pytest.approx(share, abs=0.001)
    assert found.avoidable_share < 0.01


@pytest.mark.filterwarnings("ignore:.*have no time")
def test_real_rewrites_share_almost_nothing(data_dir: Path) -> None:
    found = diagnose(read_log(data_dir / "rewrites"), block_tokens=1)
    assert found.reuse.share < 0.06
    assert [(f.label, f.how) for f in found.findings] == [
        ("cheatsheet", "edited"),
        ("cheatsheet", "rewritten"),
    ]
    # Half of what is written anew was there before, line by line.
    assert 0.5 < found.reuse.broken.sum() / found.log.prompt_tokens.sum() < 0.65
