"""Writes into a store until it is killed, saying what was acknowledged; run by test_store_kills.

Forks a writer for each line on its input, as starting Python each time would take most of the
time. A line is "ROUND AGENT"; the writer's process id is answered, then every acknowledgement.
"""

import os
import sys

import numpy as np

from jaxmem.agents.messages import Message
from jaxmem.agents.stores import NewMessage, SqliteStore


class Plain:
    """An embedder that takes no time."""

    name, size = "plain", 8

    def embed(self, texts):
        return np.ones((len(texts), self.size), np.float32)


def write(path: str, agent: str, many: int) -> None:
    """Rounds of a message, a state and passages, each in a transaction, until killed."""
    store = SqliteStore(path, Plain())
    saved = store.load(agent)
    rounds, version = (saved.state["rounds"], saved.version) if saved else (0, 0)
    for _ in range(many):
        rounds += 1
        text = f"round {rounds} of {agent} 小白 🎉"
        with store.transaction():
            store.add_messages(
                agent, [NewMessage(float(rounds), "user", text, Message("user", text))] * 2
            )
            version = store.save(agent, {"rounds": rounds}, version)
            store.add_passages(agent, [text, text, text], time_s=0.0)
        os.write(1, f"{agent} {rounds}\n".encode())


if __name__ == "__main__":
    if len(sys.argv) == 4:
        write(sys.argv[1], sys.argv[2], int(sys.argv[3]))
        sys.exit()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            write(sys.argv[1], line.strip(), 10**9)
        os.write(1, f"pid {child}\n".encode())
        os.waitpid(child, 0)
        os.write(1, b"dead\n")
