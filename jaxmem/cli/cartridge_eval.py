"""`jaxmem cartridge eval`: what each way to shrink a document's cache still knows."""

import argparse
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxmem import results
from jaxmem.cli.cartridge_common import (
    check_outputs,
    check_rate,
    chosen_model,
    document_tokens,
    duration,
    inputs_of,
    notice,
    read_text,
    size,
    slots_of,
    working,
)
from jaxmem.cli.cartridge_plot import kl_by_bytes
from jaxmem.cli.terminal import notices, printable
from jaxmem.common import choice

if TYPE_CHECKING:
    from jaxmem.lm import Model
    from jaxmem.lm.cartridges.evaluation import Exam, Grade
    from jaxmem.lm.cartridges.study import Prepared
    from jaxmem.lm.self_study.conversations import Conversation
    from jaxmem.recall.cartridges import Cartridge

METHODS = (
    "no context",
    "full context",
    "first tokens",
    "random tokens",
    "attention",
    "attention matching",
    "recitation",
    "self-study",
)
"""What is compared, as the table has it."""

_TRAINED = ("recitation", "self-study")
_ALONE = ("no context", "full context")  # of one size
_TEST = 40  # template questions where the user brings none
_ROW = 64  # rows of questions are a multiple of it long


_COLUMNS = (
    ("method", 0),
    ("slots", 7),
    ("bytes", 7),
    ("KL", 6),
    ("gap closed", 10),
    ("95 %", 10),
    ("NLL", 6),
    ("tokens/s", 8),
    ("off topic", 9),
)
"""Names and widths; the first is as wide as the longest method."""

_ABOUT = "KL from the model with the document in its context, nats a token of the answers\n"
_LEGEND = """\
gap closed: 1 - KL / KL(no context), with its 95 % interval over questions
NLL: of the answers, nats a token; tokens/s: of one short answer, reading the question included
off topic: change of the perplexity of answers to 20 questions about other things"""


class _Made(NamedTuple):
    """A cartridge to grade, or None for no context, and the seconds that its training took."""

    method: str
    cartridge: "Cartridge | None"
    trained_s: float


def run(args: argparse.Namespace) -> int:
    """Print the table, or write it as JSON, and draw it.

    Args:
      args: parsed options.

    Returns:
      0.

    Raises:
      ValueError: for a document, a model, questions or options that do not do.
    """
    began = time.monotonic()
    check_rate(args.rate)
    methods = _methods(args)
    text = read_text(args.document)
    if args.plot is not None:
        from jaxmem import plots

        if methods == ["no context"] and not args.cartridge:
            raise ValueError("--plot: expected --methods that keep something, got no context only")
        plots.check_path(args.plot)
        check_outputs({"--plot": args.plot}, inputs_of(args))
        plots.figure()  # whether the package is there
    tests = _tests(args, text)
    _check_files(args)
    model = chosen_model(args)
    tokens = document_tokens(model, text)
    sizes = [slots_of(tokens, slots, None) for slots in args.slots or ()] or [
        slots_of(tokens, None, ratio) for ratio in args.ratio or (8.0,)
    ]
    with notices():
        prepared, before_s = _prepared(args, model, text, tests, began)
    table = _Table(model, prepared, tests)
    files = [_file(path, model) for path in args.cartridge]
    wanted = [
        (method, slots)
        for method in methods
        for slots in (sizes if method not in _ALONE else sizes[:1])
    ]
    what = f"{len(tests)} questions of {Path(args.questions).name}" if args.questions else (
        f"{len(tests)} questions made from the document's sentences, none of which was trained on"
    )  # fmt: skip
    page = _Page(args.json, [name for name, _ in wanted] + [made.method for made in files])
    page.say(f"{Path(args.document).name}: {tokens:,} tokens, {model.name}; {what}", _ABOUT)
    page.head()
    for number, (method, slots) in enumerate(wanted, 1):
        with working(f"{method} at {slots:,} slots, {number} of {len(wanted)}"):
            table.add(_make(args, model, prepared, method, slots, before_s))
        page.row(table.rows[-1])  # each as it is made: the next may take minutes
    for made in files:
        table.add(made)
        page.row(table.rows[-1])
    with working("measuring this machine"):
        pays = _pays(model, tokens, table.rows)
    page.say("", _LEGEND, *_repaid(pays))
    if args.json:
        about = {"model": model.name, "tokens": tokens, "questions": what, "test": len(tests)}
        print(results.document({**about, "records": table.rows, "break_even": pays}), end="")
    if args.plot is not None:
        _draw(args.plot, table.rows, tokens)
        if not args.json:
            print(f"\nwrote {printable(args.plot)}")
    return 0


def _methods(args: argparse.Namespace) -> list[str]:
    named = METHODS if args.methods is None else args.methods.split(",")
    found = [choice(METHODS, name.strip(), "--methods") for name in named]
    if args.steps == 0:
        found = [name for name in found if name not in _TRAINED]
        if not found:
            raise ValueError("--methods and --steps 0: nothing is left to compare")
    return list(dict.fromkeys(found))


def _tests(args: argparse.Namespace, text: str) -> "list[Conversation]":
    """Questions with answers: the user's, or some made from the document."""
    from jaxmem.lm.self_study.conversations import read_questions
    from jaxmem.lm.self_study.templates import template_conversations

    if args.questions is None:
        pool = template_conversations(args.seed + 2, text, 4 * _TEST)
        first = {one.question.lower(): one for one in reversed(pool)}
        return list(first.values())[-_TEST:]
    found = read_questions(args.questions)
    for one in found:
        if not one.answer.strip():
            raise ValueError(
                f"{args.questions}: expected an answer to each question, to grade by its "
                f"likelihood, got none for {one.question[:60]!r}"
            )
    return found


def _check_files(args: argparse.Namespace) -> None:
    from jaxmem.lm.cartridges.files import describe

    for path in args.cartridge:
        describe(path)  # before a model is read


def _prepared(
    args: argparse.Namespace,
    model: "Model",
    text: str,
    tests: "list[Conversation]",
    began: float,
) -> "tuple[Prepared, float]":
    """The document and its rows, and the seconds that they took."""
    from jaxmem.lm.cartridges.study import QUESTIONS, prepare

    questions = QUESTIONS if args.templates is None else args.templates
    found = prepare(
        model, text, seed=args.seed, questions=questions, sampled=args.sampled,
        window=args.window, apart=tests,
    )  # fmt: skip
    return found, time.monotonic() - began


def _file(path: str, model: "Model") -> _Made:
    from jaxmem.lm.cartridges.files import load

    return _Made(Path(path).name, load(path, model)[0], math.nan)


def _make(
    args: argparse.Namespace,
    model: "Model",
    prepared: "Prepared",
    method: str,
    slots: int,
    before_s: float,
) -> _Made:
    """One cartridge; what its training took has the rows' making in it."""
    from jaxmem.lm.cartridges.baselines import baseline
    from jaxmem.lm.cartridges.reading import recitation
    from jaxmem.lm.cartridges.recipe import Recipe
    from jaxmem.lm.cartridges.state import Status
    from jaxmem.lm.cartridges.study import make

    if method not in _TRAINED:
        began = time.monotonic()
        made = baseline(method, prepared, model, slots, args.seed)
        if made is not None:
            made.keys.block_until_ready()
        spent = before_s + time.monotonic() - began
        return _Made(method, made, spent if method == "attention matching" else math.nan)
    began = time.monotonic()
    steps = 100 if args.steps is None else args.steps
    recipe = Recipe(steps=steps, learning_rate=args.rate, evaluate=min(4, steps))
    course = None
    if method == "recitation":  # has no questions: its last moment counts
        course, prepared = recitation(model, prepared.reading), prepared._replace(held_out=None)
    trained = make(prepared, model, slots, recipe, "matching", args.seed, course=course)
    if trained.status is not Status.OK:
        notice(f"{method} at {slots:,} slots: {trained.status.value}, its best moment is shown")
    spent = before_s + time.monotonic() - began
    return _Made(method, trained.cartridge, spent if method == "self-study" else math.nan)


class _Table:
    """Rows of grades, each beside the model without context."""

    def __init__(self, model: "Model", prepared: "Prepared", tests: "list[Conversation]") -> None:
        from jaxmem.lm.cartridges.evaluation import exam, grade, off_topic
        from jaxmem.lm.cartridges.reading import example

        longest = 0
        for test in tests:
            made = example(model, test, end=False)
            longest = max(longest, len(made.prompt) + len(made.answer))
        self.model, self.rows = model, list[dict[str, Any]]()
        self.paper: Exam = exam(
            model, tests, prepared.reading, row_tokens=max(2 * _ROW, -(-longest // _ROW) * _ROW)
        )
        self.other: Exam = off_topic(model)
        self.nothing: Grade = grade(model, self.paper, None)
        self.whole_bytes = prepared.reading.tokens * model.config.kv_bytes
        self._speeds: dict[Any, float] = {}

    def add(self, made: _Made) -> None:
        """Grade a cartridge."""
        from jaxmem.lm.cartridges.baselines import nbytes
        from jaxmem.lm.cartridges.evaluation import closed, grade, perplexity_change

        cartridge = made.cartridge
        found = self.nothing if cartridge is None else grade(self.model, self.paper, cartridge)
        share = closed(found, self.nothing)
        self.rows.append(
            {
                "method": made.method,
                "slots": 0 if cartridge is None else cartridge.slots,
                "bytes": nbytes(cartridge),
                "smaller": self.whole_bytes / nbytes(cartridge) if cartridge else None,
                "kl": found.mean_kl,
                "closed": share.mean,
                "closed_low": share.low,
                "closed_high": share.high,
                "nll": found.mean_nll,
                "tokens_s": self._speed(cartridge),
                "off_topic_perplexity_change": perplexity_change(
                    grade(self.model, self.other, cartridge)
                ),
                "seconds": made.trained_s,
            }
        )

    def _speed(self, cartridge: "Cartridge | None") -> float:
        """Tokens/s of an answer, measured once for all cartridges of one form."""
        from jaxmem.lm.cartridges.machine import answer_tokens_s

        form = None if cartridge is None else (cartridge.slots, cartridge.bias is None)
        if form not in self._speeds:
            self._speeds[form] = answer_tokens_s(self.model, cartridge)
        return self._speeds[form]


def _pays(model: "Model", tokens: int, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """When each trained cartridge has paid for itself on this machine."""
    from jaxmem.lm.cartridges.machine import repaid, this_machine

    timed = [row for row in rows if math.isfinite(row["seconds"])]
    if not timed:
        return []
    kind = model.params["embedding"].dtype
    machine = this_machine(str(kind))
    found = []
    for row in timed:
        made = repaid(
            model.config, machine, tokens, row["slots"], row["seconds"],
            weight_bytes=kind.itemsize,
        )  # fmt: skip
        found.append(
            {
                "method": row["method"],
                "slots": row["slots"],
                "seconds": row["seconds"],
                "questions_cached": made.cached,
                "questions_uncached": made.uncached,
                "context_s": made.context_s,
                "cartridge_s": made.cartridge_s,
                "flops_s": machine.bf16_flops,
                "bytes_s": machine.bytes_s,
                "memory_bytes": machine.capacity_bytes,
            }
        )
    return found


class _Page:
    """The table for people, a line as soon as it is known; nothing where JSON is asked for."""

    def __init__(self, silent: bool, methods: Sequence[str]) -> None:
        self.silent = silent
        self.names = max((len(printable(name)) for name in methods), default=0)

    def say(self, *lines: str) -> None:
        """Print some lines."""
        if not self.silent:
            print(printable("\n".join(lines)), flush=True)

    def head(self) -> None:
        """Print the names of the columns."""
        self._line([name for name, _ in _COLUMNS])
        self._line(["-" * width for width in self._widths()])

    def row(self, row: dict[str, Any]) -> None:
        """Print a line of the table."""
        self._line(
            [
                printable(row["method"]),
                f"{row['slots']:,}",
                size(row["bytes"]),
                f"{row['kl']:.3f}",
                f"{100 * row['closed']:.0f} %",
                _ends(row),
                f"{row['nll']:.3f}",
                f"{row['tokens_s']:,.1f}",
                f"{100 * row['off_topic_perplexity_change']:+.0f} %",
            ]
        )

    def _widths(self) -> list[int]:
        return [width or max(self.names, len(name)) for name, width in _COLUMNS]

    def _line(self, cells: Sequence[str]) -> None:
        first, *rest = self._widths()
        right = (cell.rjust(width) for cell, width in zip(cells[1:], rest))
        self.say("  ".join([cells[0].ljust(first), *right]))


def _repaid(pays: list[dict[str, Any]]) -> list[str]:
    """When training is repaid, in words."""
    if not pays:
        return []
    one = pays[0]
    lines = [
        "",
        "Training is repaid when the questions asked since have cost less than they would have "
        "with",
        f"the document in the context. On this machine ({one['flops_s'] / 1e9:,.0f} GFLOP/s, "
        f"{one['bytes_s'] / 1e9:,.1f} GB/s, {one['memory_bytes'] / 1e9:,.0f} GB, as measured),",
        "kept busy by users with such a document each:",
    ]
    for pay in pays:
        lines.append(
            f"  {pay['method']} at {pay['slots']:,} slots, {duration(pay['seconds'])}: repaid"
            f" {_after(pay['questions_cached'])} if the document's cache is kept between them,"
            f" {_after(pay['questions_uncached'])} if each reads the document again"
        )
    return lines


def _after(questions: float) -> str:
    if not math.isfinite(questions):
        return "never"
    count = max(1, math.ceil(questions))
    return f"after {count:,} question{'s' if count > 1 else ''}"


def _ends(row: dict[str, Any]) -> str:
    if row["method"] in _ALONE or not math.isfinite(row["closed_low"]):
        return ""
    return f"{100 * row['closed_low']:.0f} .. {100 * row['closed_high']:.0f}"


def _draw(path: str, rows: list[dict[str, Any]], tokens: int) -> None:
    from jaxmem import plots

    picture, (panel,) = plots.figure(width=7.2, height=4.4)
    kl_by_bytes(panel, rows, f"A document of {tokens:,} tokens")
    panel.legend(frameon=False, fontsize=8)
    plots.save(picture, path)
