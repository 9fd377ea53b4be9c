"""`jaxmem agent`: a chat in the terminal with an agent that keeps a memory."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxmem import results
from jaxmem.cli.arguments import positive_int
from jaxmem.cli.cartridge_common import check_outputs, notice, read_text, working
from jaxmem.cli.terminal import printable
from jaxmem.common.table import text_table

if TYPE_CHECKING:
    from jaxmem.agents.memgpt import Agent, Turn
    from jaxmem.agents.messages import LLM

_HELP = """\
/memory   the working context, and how much is stored
/cost     calls, tokens and money so far
/context  what the model sees now
/help     this
/quit     leave; the agent is kept
Anything else is said to the agent."""


def add(subparsers: Any) -> None:
    """Add the command's options.

    Args:
      subparsers: from `ArgumentParser.add_subparsers`.
    """
    parser = subparsers.add_parser("agent", help="chat with an agent that keeps a memory (MemGPT)")
    parser.add_argument(
        "--memory", metavar="FILE", help="where the agent is kept; without it nothing is"
    )
    parser.add_argument("--name", default="agent", metavar="NAME", help="of the agent (agent)")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--endpoint", metavar="URL",
        help="of a chat completions API (vLLM, SGLang, Ollama, llama.cpp, hosted), such as "
        "http://localhost:8000/v1; its key is read from JAXMEM_API_KEY",
    )  # fmt: skip
    which.add_argument(
        "--local", nargs="?", const="", metavar="PATH",
        help="a model on this machine: a Hugging Face folder or a GGUF file "
        "(SmolLM2-135M, which hardly calls functions)",
    )  # fmt: skip
    which.add_argument(
        "--scripted", action="store_true", help="a rule in place of a model, for a look"
    )
    parser.add_argument("--model", metavar="NAME", help="of the model at --endpoint")
    parser.add_argument(
        "--embedder", choices=("hashing", "minilm"),
        help="of archival memory (the store's, or hashing, which needs nothing)",
    )  # fmt: skip
    parser.add_argument(
        "--window", type=positive_int, metavar="N", help="tokens of a prompt at most (8,000)"
    )
    parser.add_argument(
        "--preset", default="paper", metavar="NAME",
        help="when messages leave: paper, memgpt-2023, memgpt-0.3, letta-2026",
    )  # fmt: skip
    parser.add_argument(
        "--layout", default="front", metavar="NAME",
        help="where the working context stands: front, last, log, frozen",
    )  # fmt: skip
    parser.add_argument(
        "--functions", default="memgpt", metavar="NAMES", help="names: memgpt, paper, letta"
    )
    parser.add_argument(
        "--document", action="append", default=[], metavar="FILE",
        help="put a text file into archival memory first; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--say", action="append", default=[], metavar="TEXT",
        help="say this and leave; may be repeated",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="with --say: JSON of the turns")
    parser.add_argument(
        "--log", metavar="FILE", help="add every request to a file, for `jaxmem doctor`"
    )
    parser.add_argument(
        "--rules", default="openai", metavar="NAME",
        help="whose prices /cost applies (openai): see `jaxmem doctor --help`",
    )  # fmt: skip
    parser.add_argument(
        "--tokens", type=positive_int, default=512, metavar="N", help="of an answer (512)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Chat until the input ends.

    Args:
      args: parsed options.

    Returns:
      0.

    Raises:
      ValueError: for options, a store or a model that do not do.
    """
    from jaxmem.agents.embedders import HashingEmbedder, MiniLM
    from jaxmem.agents.memgpt import Agent, upload
    from jaxmem.agents.stores import SqliteStore
    from jaxmem.agents.stores.schema import stored_embedder

    _check(args)
    texts = [(Path(path).name, read_text(path)) for path in args.document]
    model = _model(args)
    stored = args.memory and stored_embedder(args.memory)
    minilm = (args.embedder or stored) in ("minilm", MiniLM.name)
    embedder = MiniLM() if minilm else HashingEmbedder()
    store = SqliteStore(args.memory or ":memory:", embedder)
    agent = Agent(
        model, store, args.name, settings=args.preset, window=args.window, layout=args.layout,
        functions=args.functions, log=args.log,
    )  # fmt: skip
    for name, text in texts:
        with working(f"storing {name}"):
            passages = agent.add_document(text, name)
        _show(args, agent.handle(upload(name, passages)))
    if args.say:
        _say(args, agent)
        return 0
    if sys.stdin.isatty():
        print(f"{printable(model.name)}; /help for commands, /quit to leave")
    while (line := _line()) is not None:
        if line == "/quit":
            break
        if line:
            _act(args, agent, line)
    return 0


def _check(args: argparse.Namespace) -> None:
    if args.endpoint and not args.model:
        raise ValueError("--endpoint: expected --model too, the model's name there")
    if args.model and not args.endpoint:
        raise ValueError("--model names one of an --endpoint; a file goes to --local")
    if args.json and not args.say:
        raise ValueError("--json: expected --say, a chat is no JSON")
    if not all(text.strip() for text in args.say):
        raise ValueError("--say: expected words, got a blank text")
    inputs = {"--memory": args.memory} | {f"--document {path}": path for path in args.document}
    check_outputs({"--log": args.log}, inputs)
    from jaxmem.common import choice
    from jaxmem.prompts import RULES

    choice(RULES, args.rules, "--rules")


def _model(args: argparse.Namespace) -> "LLM":
    if args.scripted:
        from jaxmem.agents.notebook import notebook

        notice("a rule, no language model: it notes what you state and searches what you ask")
        return notebook()
    if args.endpoint:
        from jaxmem.agents.endpoint import Endpoint

        return Endpoint(args.endpoint, args.model, options={"max_tokens": args.tokens})
    from jaxmem.agents.local_model import LocalModel
    from jaxmem.lm import load_model, smollm2

    if args.local and not Path(args.local).exists():
        raise ValueError(f"--local: expected a folder or a .gguf file, there is no {args.local!r}")
    with working("reading the model"):
        model = load_model(args.local) if args.local else smollm2()
    return LocalModel(model, tokens=args.tokens)


def _line() -> str | None:
    """What the user types, None at the end."""
    if sys.stdin.isatty():
        try:
            return input("> ").strip()
        except EOFError:
            print()
            return None
    line = sys.stdin.readline()
    return line.strip() if line else None


def _act(args: argparse.Namespace, agent: "Agent", line: str) -> None:
    """Do what a line says; a model that fails does not end the chat."""
    if line == "/help":
        print(_HELP)
    elif line == "/memory":
        print(printable(agent.memory.working.show()))
        messages, passages = agent.memory.store.counts(agent.name)
        print(f"{messages:,} messages in recall memory, {passages:,} texts in archival memory")
    elif line == "/cost":
        print(_cost(args, agent))
    elif line == "/context":
        for message in agent.context().messages():
            called = "".join(f" {call.name}({call.arguments})" for call in message.calls)
            print(printable(f"{message.role}: {message.content}{called}"))
    elif line.startswith("/"):
        print(f"unknown command {printable(line.split()[0])}; /help shows them")
    else:
        try:
            with working("thinking"):
                turn = agent.send(line)
        except ValueError as error:
            print(f"jaxmem: {printable(' '.join(str(error).split()))}", file=sys.stderr)
        else:
            _show(args, turn)


def _show(args: argparse.Namespace, turn: "Turn") -> None:
    if args.json:
        return
    for text in turn.sent:
        print(printable(text), flush=True)
    if turn.stopped == "limit":
        notice(f"the chain of calls was cut off after {turn.calls}")


def _say(args: argparse.Namespace, agent: "Agent") -> None:
    records = []
    for text in args.say:
        with working("thinking"):
            turn = agent.send(text)
        _show(args, turn)
        records.append({"said": text, **turn._asdict(), "sent": "\n".join(turn.sent)})
    if args.json:
        print(results.to_json(records), end="")


def _cost(args: argparse.Namespace, agent: "Agent") -> str:
    log, found = agent.log, agent.cost(args.rules)
    rows: list[list[Any]] = [
        ["calls", log.calls],
        ["prompt tokens", int(log.prompt_tokens.sum())],
        ["of these read from a cache", int(found.read.sum())],
        ["output tokens", int(log.output_tokens.sum())],
        [f"USD by {found.rules.name}'s prices", found.usd],
        ["USD without a cache", found.usd_no_cache],
    ]
    return text_table(["since the start", ""], rows)
