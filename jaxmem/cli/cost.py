"""`jaxmem cost`: what a context costs on an accelerator, and what to do with a text."""

import argparse
import dataclasses
import math
import textwrap
from typing import Any

from jaxmem import results
from jaxmem.cli import hardware
from jaxmem.cli.arguments import positive_int, rate, some_tokens, tokens
from jaxmem.common import lookup
from jaxmem.common.table import text_table
from jaxmem.roofline import (
    Accelerator,
    Assumptions,
    Model,
    decode,
    kv_cache_bytes,
    plan,
    prefill,
    throughput,
)
from jaxmem.roofline.efficiency import Constant, resolve
from jaxmem.roofline.planner import Plan

# The options of --plan, with what they are if not given.
PLANNING = {
    "queries": 100.0,
    "updates": 0.0,
    "owners": 1,
    "window": 131_072,
    "one_text": False,
    "set": [],
}


def add(subparsers: Any) -> None:
    """Add the command's options.

    Args:
      subparsers: from `ArgumentParser.add_subparsers`.
    """
    parser = subparsers.add_parser("cost", help="what a context costs on real hardware")
    hardware.add_model(parser, required=True)
    hardware.add_accelerator(parser, default=None)
    parser.add_argument(
        "--context", required=True, type=some_tokens, metavar="N", help="tokens a user, or 128k"
    )
    parser.add_argument(
        "--shared", type=tokens, default=0, metavar="N", help="tokens before it that all share"
    )
    parser.add_argument(
        "--answer", type=some_tokens, default=200, metavar="N", help="tokens generated (200)"
    )
    parser.add_argument(
        "--cached", type=tokens, default=0, metavar="N", help="prompt tokens found in the cache"
    )
    parser.add_argument(
        "--batch", type=positive_int, default=1, metavar="N", help="users at once, for latency"
    )
    parser.add_argument("--devices", type=positive_int, default=1, metavar="N")
    parser.add_argument("--json", action="store_true", help="JSON on standard output")
    planning = parser.add_argument_group("planning: what to do with a text of --context tokens")
    planning.add_argument("--plan", action="store_true")
    planning.add_argument("--queries", type=rate, metavar="N", help="a week, about one text (100)")
    planning.add_argument("--updates", type=rate, metavar="N", help="changes of a text a week (0)")
    planning.add_argument("--one-text", action="store_true", help="all users ask about one text")
    planning.add_argument(
        "--owners", type=positive_int, metavar="N", help="users with a text each (1)"
    )
    planning.add_argument(
        "--window", type=some_tokens, metavar="N", help="context window (131,072)"
    )
    planning.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="change an assumption of the plan, which prints them all",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the cost, or the plan.

    Args:
      args: parsed options.

    Returns:
      0.

    Raises:
      ValueError: for unknown names, a bad config, or numbers that do not fit together.
    """
    model, device = hardware.chosen_model(args), hardware.chosen_accelerator(args)
    assert model is not None  # one of --model and --config is required
    given = [name for name in PLANNING if getattr(args, name)]
    if given and not args.plan:
        raise ValueError(f"--{given[0].replace('_', '-')} needs --plan")
    if args.plan:
        for name, value in PLANNING.items():
            if getattr(args, name) is None:
                setattr(args, name, value)
        return _plan(args, model, device)
    return _cost(args, model, device)


def _cost(args: argparse.Namespace, model: Model, device: Accelerator) -> int:
    prompt = args.shared + args.context
    if args.cached > prompt:
        raise ValueError(f"--cached must be at most the prompt ({prompt:,}), got {args.cached:,}")
    whole = device.times(args.devices)
    options = {"efficiency": args.efficiency}
    reading = prefill(model, whole, prompt, args.cached, args.batch, **options)
    writing = decode(model, whole, prompt, args.answer, args.batch, **options)
    serving = throughput(
        model, device, args.context, args.shared, args.answer, args.devices, **options
    )
    constant = isinstance(resolve(args.efficiency, model, device), Constant)
    record = {
        "model": model.name,
        "accelerator": device.name,
        "devices": args.devices,
        "efficiency": "constant" if constant else "measured",
        "kv_dtype": args.kv_dtype,
        "context_tokens": args.context,
        "shared_tokens": args.shared,
        "cached_tokens": args.cached,
        "answer_tokens": args.answer,
        "batch": args.batch,
        "parameters": int(model.total_parameters),
        "active_parameters": int(model.active_parameters),
        "weight_bytes": float(model.weight_bytes),
        "kv_bytes": float(kv_cache_bytes(model, prompt)),
        "prefill_linear_s": float(reading.linear_s),
        "prefill_attention_s": float(reading.attention_s),
        "prefill_memory_s": float(reading.memory_s),
        "prefill_s": float(reading.total_s),
        "decode_step_s": float(writing.step_s),
        "decode_s": float(writing.total_s),
        "users": int(serving.users),
        "full_step_s": float(serving.step_s),
        "tokens_s": float(serving.tokens_s),
    }
    if args.json:
        print(results.to_json([record]), end="")
        return 0
    print(_head(model, device, args.devices, str(record["efficiency"])))
    if args.batch > record["users"]:
        print(
            f"notice: {args.batch:,} users do not fit, {record['users']:,} would:"
            " the times below are what it would take if they did"
        )
    rows = [
        ["parameters, of which active a token", _count(model)],
        ["weights", _gb(record["weight_bytes"])],
        ["KV of the context", _gb(record["kv_bytes"])],
        [f"time to first token, {args.cached:,} cached", _time(reading.total_s)],
        ["  matrix products", _time(reading.linear_s)],
        ["  attention", _time(reading.attention_s)],
        ["  memory traffic, overlapped", _time(reading.memory_s)],
        [f"a decode step{', KV read for each' if args.batch > 1 else ''}", _time(writing.step_s)],
        [f"an answer of {args.answer:,} tokens", _time(writing.total_s)],
        ["users that fit", f"{int(serving.users):,}"],
    ]
    if record["users"]:
        rows += [
            ["  a step with all of them", _time(serving.step_s)],
            ["  tokens/s of all together", f"{float(serving.tokens_s):,.0f}"],
        ]
    title = f"{prompt:,} tokens" + (f", {args.shared:,} shared" if args.shared else "")
    print(text_table([title + f", batch {args.batch}", ""], rows))
    if not record["users"]:
        print(f"Nothing fits: {_shortage(float(serving.free_bytes), float(serving.user_bytes))}")
    return 0


def _plan(args: argparse.Namespace, model: Model, device: Accelerator) -> int:
    for flag in ("shared", "cached"):
        if getattr(args, flag):
            raise ValueError(f"--plan takes no --{flag}: say --one-text if all share one text")
    assumptions = _assumptions(args.set, float(args.answer))
    result = plan(
        model,
        device,
        args.context,
        args.queries,
        args.updates,
        shared=args.one_text,
        owners=args.owners,
        window_tokens=args.window,
        devices=args.devices,
        assumptions=assumptions,
        efficiency=args.efficiency,
    )
    if args.json:
        print(_plan_json(result), end="")
        return 0
    constant = isinstance(resolve(args.efficiency, model, device), Constant)
    print(_head(model, device, args.devices, "constant" if constant else "measured"))
    texts = "One text for all users" if args.one_text else "A text for each user"
    several = f", for each of {args.owners:,} texts" if args.owners > 1 else ""
    print(
        f"{texts}, {args.context:,} tokens; {args.queries:,g} queries and"
        f" {args.updates:,g} updates a week{several}\n"
    )
    rows = []
    for option in result.options:
        fits = option.feasible
        rows.append(
            [
                option.name,
                "all" if option.whole else "a part",
                *(_seconds(s) if fits else "-" for s in (option.build_s, option.update_s)),
                *(_seconds(s) if fits else "-" for s in (option.query_s, option.gpu_s_week)),
                f"{option.resident_bytes / 1e9:,.2f}" if fits else "-",
                option.note,
            ]
        )
    headers = ["", "keeps", "build", "update", "query", "a week", "resident GB", "note"]
    print("GPU seconds to build once, an update, a query, and a week in all")
    print(text_table(headers, rows))
    print(f"\nCheapest: {result.cheapest or 'nothing is feasible'}.")
    print(f"Cheapest that keeps the whole text: {result.cheapest_whole or 'none'}.")
    for label, corners in (
        ("of all", result.crossings),
        ("of those that keep the whole text", result.crossings_whole),
    ):
        corners = tuple(corner for corner in corners if corner.queries_week >= 0.1)
        if corners:
            print(f"The cheapest {label}, by queries a week:")
            low = "0"
            for corner in corners:
                print(f"  {low} to {_seconds(corner.queries_week)}: {corner.below}")
                low = _seconds(corner.queries_week)
            print(f"  above {low}: {corners[-1].above}")
    print("\nGPU seconds only: what each option remembers, and how well, is not compared.")
    memory = 0.9 * float(device.capacity_bytes) * args.devices
    kept = max((option.resident_bytes for option in result.options if option.feasible), default=0.0)
    if kept > memory and not assumptions.rent_s_gb_week:
        print(
            f"Up to {_gb(kept)} are kept between queries, more than the device holds"
            f" ({_gb(memory)}): keeping and loading it is free here"
            " (--set rent_s_gb_week=N charges it)."
        )
    granted = ", ".join(
        f"{field.name} {getattr(assumptions, field.name):,.6g}"
        for field in dataclasses.fields(assumptions)
    )
    lines = textwrap.wrap(granted, 96)
    print("Taken for granted (training_s is the paper's figure for an 8B model, not scaled):")
    print("\n".join(f"  {line}" for line in lines))
    return 0


def _assumptions(changes: list[str], answer_tokens: float) -> Assumptions:
    """The planner's assumptions with NAME=VALUE changes."""
    known = {field.name: field.name for field in dataclasses.fields(Assumptions)}
    values = {"answer_tokens": answer_tokens}
    for change in changes:
        name, _, value = change.partition("=")
        name = lookup(known, name, "assumption")
        try:
            values[name] = rate(value)
        except argparse.ArgumentTypeError as error:
            raise ValueError(f"--set {name}: {error}") from error
    return Assumptions(**values)


def _plan_json(result: Plan) -> str:
    names = ("options", "crossings", "crossings_whole")
    rows = {name: [row._asdict() for row in getattr(result, name)] for name in names}
    chosen = {"cheapest": result.cheapest, "cheapest_whole": result.cheapest_whole}
    return results.document(rows | chosen)


def _head(model: Model, device: Accelerator, devices: int, efficiency: str) -> str:
    notes = f" ({model.notes})" if model.notes else ""
    several = f"{devices} x " if devices > 1 else ""
    kind = "measured kernels" if efficiency == "measured" else "MFU 0.70, MBU 0.80"
    ideal = ", communication ignored" if devices > 1 else ""
    return f"{model.name}{notes} on {several}{device.name}, {kind}{ideal}"


def _count(model: Model) -> str:
    total, active = int(model.total_parameters), int(model.active_parameters)
    return f"{total:,}" if total == active else f"{total:,}, {active:,}"


def _shortage(free: float, user: float) -> str:
    if free < 0:
        return f"the weights are {_gb(-free)} larger than 0.9 of the memory"
    return f"{_gb(free)} beside the weights, a user needs {_gb(user)}"


def _gb(nbytes: Any) -> str:
    return f"{float(nbytes) / 1e9:,.3g} GB" if nbytes < 1e12 else f"{float(nbytes) / 1e9:,.0f} GB"


def _time(seconds: Any) -> str:
    value = float(seconds)
    return f"{value:,.3g} s" if value >= 1 else f"{value * 1e3:,.3g} ms"


def _seconds(value: float) -> str:
    if not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
