"""An agent with MemGPT's memory: it forgets nothing, follows keys, and its calls have a price.

Runs offline by a rule in place of a model. With a model the same lines are

    python examples/agent_with_memory.py http://localhost:8000/v1 NAME

(its answers then differ, and nested keys measure it and not the machinery).

Prints:

user:  My cat is called 小白.
agent: Noted.
user:  I work at the harbour baths.
agent: Noted.
... 40 messages about tea; 147 messages have left the context ...
user:  What is my cat called?
agent: You said: My cat is called 小白.

nesting  all looks, %  one look, %  calls
-------  ------------  -----------  -----
      0           100          100      3
      1           100            0      4
      2           100            0      5
      3           100            0      6
      4           100            0      7
      5           100            0      8

layout  prompt tokens  read from a cache, %
------  -------------  --------------------
front         390,992                    78
last          390,992                    88
log           395,433                    94
frozen        396,119                    95
"""

import sys
import tempfile
from pathlib import Path

from jaxmem.agents import LLM, Agent, Endpoint, SqliteStore
from jaxmem.agents.notebook import notebook
from jaxmem.agents.tasks import follow_keys, made_up, nested_kv
from jaxmem.common.table import text_table
from jaxmem.sessions import LAYOUTS

WINDOW, CHAINS = 4_000, 5


def main() -> None:
    """Chat, follow keys, count."""
    with tempfile.TemporaryDirectory() as folder:
        chat(Path(folder) / "me.db")
    print()
    keys()
    print()
    layouts()


def model() -> LLM:
    """A rule, or the model that the arguments name."""
    return Endpoint(*sys.argv[1:]) if len(sys.argv) == 3 else notebook()


def chat(path: Path) -> None:
    """What is said early is still known when it has left the context, and by the next process."""
    agent = Agent(model(), SqliteStore(path), window=WINDOW)
    say(agent, "My cat is called 小白.")
    say(agent, "I work at the harbour baths.")
    left = sum(agent.send(f"Tea number {i} was good and rather long.").evicted for i in range(40))
    print(f"... 40 messages about tea; {left} messages have left the context ...")
    again = Agent(model(), SqliteStore(path), window=WINDOW)  # as another process would
    say(again, "What is my cat called?")


def say(agent: Agent, text: str) -> None:
    """Print both sides."""
    print(f"user:  {text}")
    print(f"agent: {' '.join(agent.send(text).sent)}")


def keys() -> None:
    """Values that are keys again: looked up as often as needed, and once."""
    data, given = made_up(), len(sys.argv) == 3
    often = nested_kv(data, model if given else follow_keys, chains=CHAINS)
    once = nested_kv(data, lambda: follow_keys(1), chains=CHAINS)
    rows = [
        [a["depth"], round(100 * a["accuracy"]), round(100 * b["accuracy"]), round(a["calls"])]
        for a, b in zip(often, once)
    ]
    print(text_table(["nesting", "all looks, %", "one look, %", "calls"], rows))


def layouts() -> None:
    """The same chat in four layouts of the prompt: what a prefix cache saves."""
    rows = []
    for layout in LAYOUTS:
        agent = Agent(notebook(), window=WINDOW, layout=layout)
        for i in range(60):
            agent.send(f"Fact {i} is worth keeping." if i % 4 else f"What about fact {i // 2}?")
        cost = agent.cost("vllm", usd_per_million=1.0)
        rows.append([layout, int(agent.log.prompt_tokens.sum()), round(100 * cost.share_read)])
    print(text_table(["layout", "prompt tokens", "read from a cache, %"], rows))


if __name__ == "__main__":
    main()
