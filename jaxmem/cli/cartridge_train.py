"""`jaxmem cartridge train`: from a text file to a cartridge file."""

import argparse
import dataclasses
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxmem import results
from jaxmem.cli.cartridge_common import (
    RunLine,
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
from jaxmem.cli.terminal import notices, printable
from jaxmem.common import choice

if TYPE_CHECKING:
    from jaxmem.lm import Model
    from jaxmem.lm.cartridges.recipe import Recipe
    from jaxmem.lm.cartridges.state import Moment, State, Trained
    from jaxmem.lm.cartridges.study import Prepared
    from jaxmem.lm.self_study.conversations import Conversation
    from jaxmem.recall.cartridges import Cartridge

SAVE_S = 20.0
"""Seconds between two savings of a run at least."""

_FEWEST_LOOKS = 4
_LOOK_STEPS = 25  # a look at held-out rows costs about two steps


def run(args: argparse.Namespace) -> int:
    """Train a cartridge and write it.

    Args:
      args: parsed options.

    Returns:
      0.

    Raises:
      ValueError: for a document, a model or options that do not do.
    """
    from jaxmem.lm.cartridges.runs import check_identity, known_identity
    from jaxmem.lm.cartridges.study import WAYS, begin

    began = time.monotonic()
    check_options(args)
    choice(WAYS, args.start, "--start")
    text = read_text(args.document)
    partial = Path(f"{args.out}.partial")
    check_outputs(
        {"--out": args.out, "--out's unfinished run": str(partial), "--save-rows": args.save_rows},
        inputs_of(args),
    )
    model = chosen_model(args)
    tokens = document_tokens(model, text)
    slots = slots_of(tokens, args.slots, args.ratio)
    resumed = _unfinished(args, partial)
    if resumed:
        known = known_identity(model, text, slots, args.start, args.seed)
        check_identity(str(partial), resumed, known)
    with notices():
        prepared = prepared_for(args, model, text, began, resumed)
    if args.save_rows is not None:
        _save_rows(args, model, prepared)
    at = time.monotonic()
    with working("the start"):
        start = begin(prepared, model, slots, args.start, args.seed)
        start.keys.block_until_ready()
    prepared.seconds["the start"] = time.monotonic() - at
    nothing = _without_context(model, prepared)
    recipe = _recipe(args, model, prepared, start, began, resumed)
    at = time.monotonic()
    trained = _trained(args, model, prepared, start, recipe, partial, began)
    prepared.seconds["training" if recipe else "held-out questions"] = time.monotonic() - at
    _write(args, model, prepared, trained, text)
    if recipe is not None:
        partial.unlink(missing_ok=True)
    record = _record(args, model, prepared, trained, nothing, time.monotonic() - began)
    print(results.to_json([record]) if args.json else _summary(args, record, prepared), end="")
    return 0


def _without_context(model: "Model", prepared: "Prepared") -> float:
    """KL of the model that sees no document, beside which the cartridge's says something."""
    from jaxmem.lm.cartridges.training import evaluate

    if prepared.held_out is None:
        return math.nan
    at = time.monotonic()
    found = evaluate(model.params, model.config, None, prepared.held_out)
    prepared.seconds["without context"] = time.monotonic() - at
    return found


def check_options(args: argparse.Namespace) -> None:
    """Refuse options that do not go together.

    Args:
      args: parsed options.

    Raises:
      ValueError: naming them.
    """
    if args.rows is not None:
        for name in ("templates", "sampled", "save_rows", "minutes"):
            if getattr(args, name):
                flag = name.replace("_", "-")
                raise ValueError(f"--rows and --{flag}: expected one of them")
    if args.minutes is not None and args.templates is not None:
        raise ValueError("--minutes and --templates: expected one of them, both choose questions")
    if args.templates == 0 and not (args.sampled or args.questions or args.rows):
        raise ValueError("--templates 0: expected --sampled or --questions to learn from")
    check_rate(args.rate)


def prepared_for(
    args: argparse.Namespace,
    model: "Model",
    text: str,
    began: float,
    resumed: dict[str, str],
) -> "Prepared":
    """The document read, and the rows that were asked for.

    Args:
      args: parsed options.
      model: the teacher.
      text: the document.
      began: when the command started, for a budget.
      resumed: identity of a run to go on with, or nothing.

    Returns:
      What `make` needs.

    Raises:
      ValueError: for questions and rows that do not do.
    """
    from jaxmem.lm.cartridges.study import QUESTIONS, prepare
    from jaxmem.lm.self_study.conversations import read_questions

    brought = [] if args.questions is None else read_questions(args.questions)
    questions, budget_s = args.templates, None
    if args.minutes is not None:
        if resumed:
            # What that run's budget chose, its brought and sampled questions apart.
            questions = _chosen(resumed, "templates")
        else:
            budget_s = 60.0 * args.minutes - (time.monotonic() - began)
    found = prepare(
        model, text, seed=args.seed, questions=QUESTIONS if questions is None else questions,
        sampled=args.sampled, brought=brought, made=_rows(args, text), window=args.window,
        budget_s=budget_s,
    )  # fmt: skip
    if found.held_out is None:
        notice("too few conversations to hold some out: the last step is kept, not the best")
    return found


def _rows(args: argparse.Namespace, text: str) -> "list[Conversation] | None":
    from jaxmem.lm.cartridges.files import document_digest
    from jaxmem.lm.self_study.conversations import load_conversations

    if args.rows is None:
        return None
    found, provenance = load_conversations(args.rows)
    digest = document_digest(text)
    if provenance.get("sha256") != digest:
        raise ValueError(
            f"{args.rows}: expected conversations about {args.document} (sha256 {digest}), got "
            f"those about another document (sha256 {str(provenance.get('sha256'))[:64]})"
        )
    if not found:
        raise ValueError(f"{args.rows}: expected conversations, got none")
    return found


def _save_rows(args: argparse.Namespace, model: "Model", prepared: "Prepared") -> None:
    from jaxmem.lm.cartridges.files import document_digest
    from jaxmem.lm.self_study.conversations import save_conversations

    provenance = {
        "sha256": document_digest(prepared.reading.text),
        "model": model.name,
        "fingerprint": model.fingerprint,
        "seed": args.seed,
    }
    save_conversations(args.save_rows, [*prepared.kept, *prepared.conversations], provenance)


def _unfinished(args: argparse.Namespace, partial: Path) -> dict[str, str]:
    """Identity of the run that --resume goes on with, or nothing."""
    from jaxmem.lm.cartridges.checkpoint import read_identity

    if args.minutes is None and args.steps == 0:
        return {}
    if args.resume and partial.exists():
        return read_identity(partial)
    if args.resume:
        notice(f"there is no {partial}: the run starts anew")
    elif partial.exists():
        read_identity(partial)  # no other file is overwritten
        notice(f"{partial} is an unfinished run and is overwritten; --resume would go on with it")
    return {}


def _chosen(resumed: dict[str, str], name: str) -> int:
    """What the budget of an unfinished run chose."""
    text = resumed.get(name, "")
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 9):
        raise ValueError(f"--resume: expected a number of {name} in the unfinished run")
    return int(text)


def _recipe(
    args: argparse.Namespace,
    model: "Model",
    prepared: "Prepared",
    start: "Cartridge",
    began: float,
    resumed: dict[str, str],
) -> "Recipe | None":
    """How to train: steps as asked for, or as many as the time allows."""
    from jaxmem.lm.cartridges.recipe import Recipe
    from jaxmem.lm.cartridges.runs import step_seconds

    steps = 100 if args.steps is None else args.steps
    if args.minutes is None and not steps:
        return None
    recipe = Recipe(steps=max(1, steps), learning_rate=args.rate)
    if args.minutes is not None and resumed:
        recipe = dataclasses.replace(recipe, steps=_chosen(resumed, "steps"))
    elif args.minutes is not None:
        with working("timing a step"):
            step_s, look_s = step_seconds(prepared, model, start, recipe)
        left_s = began + 60.0 * args.minutes - time.monotonic()
        steps = int(0.95 * (left_s - look_s) / (step_s + look_s / _LOOK_STEPS))
        if steps < _FEWEST_LOOKS * _LOOK_STEPS:
            steps = int(0.95 * (left_s - (_FEWEST_LOOKS + 1) * look_s) / step_s)
        if steps < 1:
            wanted_s = time.monotonic() - began + 5 * look_s + _LOOK_STEPS * step_s / 0.95
            notice(
                f"no time is left for training (a step takes {step_s:.2g} s), {args.start} alone: "
                f"--minutes {math.ceil(wanted_s / 60.0)} would train {_LOOK_STEPS} steps or more"
            )
            return None
        print(
            f"{len(prepared.conversations):,} questions, {steps:,} steps of {step_s:.2f} s:"
            f" {duration(steps * step_s)} of the {args.minutes:g} minutes",
            file=sys.stderr,
        )
        recipe = dataclasses.replace(recipe, steps=steps)
    looks = max(_FEWEST_LOOKS, round(recipe.steps / _LOOK_STEPS))
    return dataclasses.replace(recipe, evaluate=min(looks, recipe.steps))


def _trained(
    args: argparse.Namespace,
    model: "Model",
    prepared: "Prepared",
    start: "Cartridge",
    recipe: "Recipe | None",
    partial: Path,
    began: float,
) -> "Trained":
    from jaxmem.lm.cartridges.checkpoint import load_state, save_state
    from jaxmem.lm.cartridges.runs import run_identity
    from jaxmem.lm.cartridges.state import Status
    from jaxmem.lm.cartridges.study import make
    from jaxmem.lm.cartridges.training import init_state

    if recipe is None:
        return make(prepared, model, start.slots, None, start)
    identity = run_identity(prepared, model, start, recipe, args.start, args.seed)
    state = None
    if args.resume and partial.exists():
        state = load_state(partial, init_state(start, recipe), identity)
        notice(f"going on with {partial} at step {state.history[-1].step:,} of {recipe.steps:,}")
    saved = -math.inf
    shown = RunLine(recipe.steps)

    def report(state: "State") -> None:
        nonlocal saved
        if time.monotonic() - saved >= SAVE_S:
            save_state(partial, state, identity)
            saved = time.monotonic()
        shown.look(state)

    until = None if args.minutes is None else began + 60.0 * args.minutes
    trained = make(
        prepared, model, start.slots, recipe, start, args.seed,
        state=state, report=report, until=until,
    )  # fmt: skip
    shown.close()
    if trained.status is Status.NOT_FINITE:
        notice("numbers became infinite: the best moment before is kept, try a lower --rate")
    elif trained.status is Status.WORSE:
        notice("training ended worse on held-out questions than it began: the best moment is kept")
    if trained.history[-1].step < recipe.steps:
        notice(f"the time was up after {trained.history[-1].step:,} of {recipe.steps:,} steps")
    return trained


def _write(
    args: argparse.Namespace, model: "Model", prepared: "Prepared", trained: "Trained", text: str
) -> None:
    from jaxmem.lm.cartridges.files import provenance_of, save

    steps = _best(trained.history).step
    method = f"self-study from {args.start}" if steps else args.start
    name = "".join(c if c.isprintable() else "·" for c in Path(args.document).name)[-150:]
    told = provenance_of(name, text, prepared.reading.tokens, method, steps, args.seed)
    assert trained.cartridge is not None
    save(args.out, trained.cartridge, model, told)


def _record(
    args: argparse.Namespace,
    model: "Model",
    prepared: "Prepared",
    trained: "Trained",
    nothing: float,
    total_s: float,
) -> dict[str, Any]:
    from jaxmem.lm.cartridges.files import describe

    file = describe(args.out)
    tokens = prepared.reading.tokens
    first, best = trained.history[0], _best(trained.history)
    speeds = [moment.tokens_s for moment in trained.history[1:] if moment.tokens_s]
    return {
        "out": args.out,
        "model": model.name,
        "fingerprint": model.fingerprint,
        "document_tokens": tokens,
        "slots": file["slots"],
        "bytes": file["bytes"],
        "smaller": tokens * model.config.kv_bytes / file["bytes"],
        "start": args.start,
        "questions": len(prepared.conversations),
        "held_out_questions": len(prepared.kept),
        "steps": trained.history[-1].step,
        "best_step": best.step,
        "held_out_kl_before": first.held_out,
        "held_out_kl": best.held_out,
        "held_out_kl_no_context": nothing,
        "closed_before": 1.0 - first.held_out / nothing,
        "closed": 1.0 - best.held_out / nothing,
        "training_tokens_s": sorted(speeds)[len(speeds) // 2] if speeds else None,
        "status": trained.status.value,
        "seconds": total_s,
        **{f"seconds_{_name(stage)}": s for stage, s in prepared.seconds.items()},
    }


def _smaller(times: float) -> str:
    """How many times smaller, for people; a bias makes a slot larger than a token."""
    return f"{times:.1f} x smaller" if times >= 1.05 else "no smaller"


def _best(history: "tuple[Moment, ...]") -> "Moment":
    """The moment whose slots were kept: best on held-out rows, or the last."""
    seen = [moment for moment in history if not math.isnan(moment.held_out)]
    return min(seen, key=lambda moment: moment.held_out) if seen else history[-1]


def _name(stage: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in stage)


def _summary(args: argparse.Namespace, record: dict[str, Any], prepared: "Prepared") -> str:
    lines = [
        f"wrote {printable(args.out)}: {record['slots']:,} slots, {size(record['bytes'])},"
        f" {_smaller(record['smaller'])} than the document's cache"
        f" ({record['document_tokens']:,} tokens)"
    ]
    if not math.isnan(record["closed"]):
        told = f"{record['held_out_questions']} held-out questions:"
        told += f" {100 * record['closed_before']:.0f} % of the gap between no and full context"
        kl = f"KL {record['held_out_kl_before']:.3f}"
        if record["steps"]:
            told += f" closed before training, {100 * record['closed']:.0f} % after"
            told += f" {record['best_step']:,} of {record['steps']:,} steps"
            kl += f" and {record['held_out_kl']:.3f}"
        else:
            told += " closed"
        lines.append(
            f"{told} ({kl} nats a token; {record['held_out_kl_no_context']:.3f} without context)"
        )
    if record["training_tokens_s"]:
        lines.append(
            f"trained on {record['questions']:,} questions at"
            f" {record['training_tokens_s']:,.0f} tokens/s"
        )
    stages = [f"{stage} {duration(s)}" for stage, s in prepared.seconds.items()]
    lines.append(f"{duration(record['seconds'])}: {', '.join(stages)}")
    lines.append(f"for {record['model']} (fingerprint {record['fingerprint']}) only")
    return printable("\n".join(lines)) + "\n"
