"""Killed at any time, a store has lost nothing acknowledged and holds nothing half written."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from store_writer import Plain

from jaxmem.agents.stores import SqliteStore

WRITER = Path(__file__).with_name("store_writer.py")
KILLS = 200
ENVIRONMENT = os.environ | {"PYTHONWARNINGS": "ignore"}


def check(path: Path, agent: str, acknowledged: int) -> int:
    """The rounds that are there: all acknowledged ones and at most one more, each whole."""
    store = SqliteStore(path, Plain())
    saved = store.load(agent)
    rounds = saved.state["rounds"] if saved else 0
    assert rounds - acknowledged in (0, 1)
    assert store.counts(agent) == (2 * rounds, 3 * rounds)
    messages = store.messages(agent)
    assert [one.time_s for one in messages[::2]] == list(range(1, rounds + 1))
    assert store.find_messages(agent, f"{agent} 小白").total == 2 * rounds
    assert store._db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    store._db.execute("INSERT INTO message_words (message_words) VALUES ('integrity-check')")
    store.close()
    return rounds


def test_kills_at_random_points(tmp_path: Path) -> None:
    path, rng = tmp_path / "m.db", random.Random(0)
    writer = subprocess.Popen(
        [sys.executable, str(WRITER), str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=ENVIRONMENT,
    )  # fmt: skip
    assert writer.stdin is not None
    assert writer.stdout is not None
    known, grown = 0, 0
    for kill in range(KILLS):
        writer.stdin.write("agent\n")
        line = writer.stdout.readline()
        last = known
        while not line.startswith("pid"):  # the writer may be faster than its parent
            last, line = int(line.split()[1]), writer.stdout.readline()
        if kill % 2:  # amid writing, once it has begun; else at any time, opening included
            last = int(writer.stdout.readline().split()[1])
        time.sleep(rng.expovariate(1 / 0.004))
        os.kill(int(line.split()[1]), signal.SIGKILL)
        while (line := writer.stdout.readline()) != "dead\n":
            last = int(line.split()[1])
        if kill % 20 == 19 or kill < 5:
            rounds = check(path, "agent", last)
        else:  # the whole file is read now and then, the counters each time
            store = SqliteStore(path, Plain())
            saved = store.load("agent")
            rounds = saved.state["rounds"] if saved else 0
            assert rounds - last in (0, 1)
            assert store.counts("agent") == (2 * rounds, 3 * rounds)
            store.close()
        grown += rounds > known
        known = rounds
    writer.stdin.close()
    assert writer.wait() == 0
    assert grown >= KILLS // 2


def test_four_processes_on_one_store(tmp_path: Path) -> None:
    path, rounds = tmp_path / "m.db", 15
    names = [f"agent{i}" for i in range(4)]
    command = [sys.executable, str(WRITER), str(path)]
    running = [
        subprocess.Popen([*command, name, str(rounds)], stdout=subprocess.PIPE, text=True)
        for name in names
    ]
    for one, name in zip(running, names):
        out, _ = one.communicate(timeout=60)
        assert one.returncode == 0
        assert out == "".join(f"{name} {i + 1}\n" for i in range(rounds))
    for name in names:
        assert check(path, name, rounds) == rounds
