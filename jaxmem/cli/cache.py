"""`jaxmem cache`: how much of a request trace a prefix cache serves, at every size."""

import argparse
from typing import Any

import numpy as np

from jaxmem import plots, results
from jaxmem.cli import hardware
from jaxmem.cli.arguments import memory_bytes, positive_int, rate
from jaxmem.cli.terminal import notices
from jaxmem.common.table import text_table
from jaxmem.prefix_cache import (
    BlockDistances,
    BlockTrace,
    HitCurve,
    Tier,
    block_distances,
    read_trace,
    tier_hits,
)
from jaxmem.roofline import Accelerator, Model, kv_cache_bytes, prefill

LADDER = (0.01, 0.03, 0.1, 0.3)  # of the trace's unique blocks, beside the sizes asked for


def add(subparsers: Any) -> None:
    """Add the command's options.

    Args:
      subparsers: from `ArgumentParser.add_subparsers`.
    """
    parser = subparsers.add_parser("cache", help="what a prefix cache serves of a trace")
    parser.add_argument(
        "trace", metavar="TRACE", help="Mooncake JSON lines or agent sessions, .gz too"
    )
    parser.add_argument(
        "--semantics",
        default="vllm",
        metavar="NAME",
        help="vllm (default), prefix (longest resident prefix) or plain (LRU over blocks)",
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--capacity", type=positive_int, metavar="N", help="blocks the cache holds")
    size.add_argument(
        "--memory", type=memory_bytes, metavar="SIZE", help="memory for KV, 40GB; needs a model"
    )
    parser.add_argument(
        "--block-tokens",
        type=positive_int,
        default=512,
        metavar="N",
        help="tokens a block in a Mooncake trace (512)",
    )
    parser.add_argument(
        "--ttl", type=rate, metavar="S", help="seconds until an unused block expires"
    )
    parser.add_argument(
        "--tiers",
        metavar="LIST",
        help="memories and their bandwidths, hbm=40GB,dram=500GB@50GB,disk=4TB@5GB; needs a model",
    )
    hardware.add_model(parser, required=False)
    hardware.add_accelerator(parser, default="h100-80gb")
    parser.add_argument("--plot", metavar="FILE", help="draw the curve to a .png, .svg or .pdf")
    parser.add_argument("--json", action="store_true", help="JSON on standard output")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print hit ratios, GPU seconds saved and where the curve flattens.

    Args:
      args: parsed options.

    Returns:
      0.

    Raises:
      ValueError: for a bad trace, unknown names, or sizes that need a model.
    """
    model = hardware.chosen_model(args)
    device = hardware.chosen_accelerator(args)
    if args.plot is not None:
        plots.check_path(args.plot)
    if model is None and (args.memory or args.tiers is not None):
        flag = "--memory" if args.memory else "--tiers"
        raise ValueError(f"{flag} needs --model NAME or --config FILE: a block has no size without")
    with notices():
        trace = read_trace(args.trace, args.block_tokens)
    if args.ttl == 0:
        raise ValueError("--ttl: expected more than 0 seconds, got 0")
    ttl_s = np.inf if args.ttl is None else args.ttl
    if trace.accesses == 0:
        raise ValueError(f"{args.trace}: no request has a block to cache")
    distances = block_distances(trace, args.semantics, ttl_s)
    curve = distances.curve()
    block_bytes = float(kv_cache_bytes(model, trace.block_tokens)) if model else None
    asked = args.capacity
    if args.memory and block_bytes:
        asked = int(args.memory // block_bytes)
        if asked < 1:
            raise ValueError(
                f"--memory: a block of {trace.block_tokens} tokens takes"
                f" {block_bytes / 1e6:,.1f} MB, more than {args.memory / 1e6:,.1f} MB"
            )
    tiers = _tiers(args.tiers, block_bytes) if args.tiers is not None and block_bytes else []

    unique = len(np.unique(trace.block_ids))
    sizes = {max(1, round(unique * share)) for share in LADDER} | ({asked} if asked else set())
    flat = curve.flat_capacity() if curve.hits(np.inf) else np.inf
    capacities = [*sorted(sizes | ({int(flat)} if np.isfinite(flat) else set())), np.inf]
    rows = _rows(capacities, distances, curve, model, device, args, block_bytes)
    if args.plot:
        _draw(args.plot, curve, asked, flat, block_bytes)
    if args.json:
        for row in rows:
            row["flat_capacity_blocks"] = flat
        tier_rows = (
            [tier._asdict() for tier in tier_hits(curve, tiers, block_bytes or 0)] if tiers else []
        )
        print(results.to_json(rows + tier_rows), end="")
        return 0
    _print(args, trace, unique, curve, rows, asked, flat, model, device)
    if tiers and block_bytes:
        _print_tiers(curve, tiers, block_bytes)
    if args.plot:
        print(f"\nwrote {args.plot}")
    return 0


def _rows(
    capacities: list[float],
    distances: BlockDistances,
    curve: HitCurve,
    model: Model | None,
    device: Accelerator,
    args: argparse.Namespace,
    block_bytes: float | None,
) -> list[results.Record]:
    """A record a capacity."""
    trace = distances.trace
    whole_s = _prefill_s(model, device, args, trace, np.zeros(trace.requests)) if model else None
    rows = []
    for capacity in capacities:
        row: results.Record = {
            "capacity_blocks": None if np.isinf(capacity) else int(capacity),
            "memory_bytes": None if block_bytes is None else capacity * block_bytes,
            "hits": int(curve.hits(capacity)),
            "block_ratio": float(curve.block_ratio(capacity)),
            "token_ratio": float(curve.token_ratio(capacity)),
        }
        if model and whole_s is not None:
            cached = distances.cached_tokens(capacity)
            row["prefill_gpu_s"] = _prefill_s(model, device, args, trace, cached)
            row["saved_gpu_s"] = whole_s - row["prefill_gpu_s"]
            row["saved_share"] = row["saved_gpu_s"] / whole_s
        rows.append(row)
    return rows


def _prefill_s(
    model: Model,
    device: Accelerator,
    args: argparse.Namespace,
    trace: BlockTrace,
    cached: np.ndarray,
) -> float:
    """GPU seconds to prefill all requests, each by itself."""
    some = trace.input_tokens > 0
    # Requests of one length and cached part cost the same: price each kind once.
    kinds, counts = np.unique(
        np.stack([trace.input_tokens[some], cached[some].astype(np.int64)]),
        axis=1,
        return_counts=True,
    )
    times = prefill(model, device, kinds[0], kinds[1], efficiency=args.efficiency)
    return float(np.sum(np.asarray(times.total_s, np.float64) * counts))


def _tiers(text: str, block_bytes: float) -> list[Tier]:
    """hbm=40GB,dram=500GB@50GB -> tiers; the first needs no bandwidth."""
    tiers: list[Tier] = []
    for part in text.split(","):
        name, equals, rest = part.partition("=")
        amount, at, speed = rest.partition("@")
        try:
            if not (name and equals):
                raise argparse.ArgumentTypeError("expected NAME=SIZE@BANDWIDTH")
            capacity = memory_bytes(amount) / block_bytes
            bandwidth = float(memory_bytes(speed.removesuffix("/s"))) if at else np.inf
        except argparse.ArgumentTypeError as error:
            raise ValueError(f"--tiers: {part!r}: {error}") from error
        if tiers and not at:
            raise ValueError(
                f"--tiers: {part!r}: a lower tier needs its bandwidth, {name}=SIZE@50GB"
            )
        if capacity < 1:
            raise ValueError(f"--tiers: {part!r} holds no block of {block_bytes / 1e6:,.1f} MB")
        tiers.append(Tier(name, float(int(capacity)), bandwidth))
    return tiers


def _print(
    args: argparse.Namespace,
    trace: BlockTrace,
    unique: int,
    curve: HitCurve,
    rows: list[results.Record],
    asked: int | None,
    flat: float,
    model: Model | None,
    device: Accelerator,
) -> None:
    print(
        f"{trace.requests:,} requests over {trace.arrival_s[-1] - trace.arrival_s[0]:,.0f} s,"
        f" {curve.total_tokens:,} input tokens; {trace.accesses:,} blocks of"
        f" {trace.block_tokens} tokens, {unique:,} of them different"
    )
    ttl = f", blocks expire after {args.ttl:g} s" if args.ttl is not None else ""
    print(f"semantics {args.semantics}{ttl}; requests one after another, prompts only\n")
    headers = ["", "blocks", *(["GB"] if model else []), "hits", "of blocks", "of tokens"]
    headers += ["prefill GPU s", "saved GPU s", "saved"] if model else []
    table = []
    for row in rows:
        blocks = row["capacity_blocks"]
        mark = "asked" if asked and blocks == asked else "flat" if blocks == flat else ""
        line: list[Any] = [mark, "no limit" if blocks is None else f"{blocks:,}"]
        if model:
            line.append("" if blocks is None else f"{row['memory_bytes'] / 1e9:,.1f}")
        line += [row["hits"], f"{row['block_ratio']:.4f}", f"{row['token_ratio']:.4f}"]
        if model:
            line += [f"{row['prefill_gpu_s']:,.0f}", f"{row['saved_gpu_s']:,.0f}"]
            line.append(f"{row['saved_share']:.1%}")
        table.append(line)
    print(text_table(headers, table))
    if model:
        print(f"\nprefill of {model.name} on {device.name}, each request by itself")
        if float(model.weight_bytes) > 0.9 * float(device.capacity_bytes):
            print(
                f"notice: the weights ({float(model.weight_bytes) / 1e9:,.0f} GB) do not fit one"
                f" {device.name}: read its GPU seconds as those of an ideal share of several"
            )
    if np.isfinite(flat):
        print(f"the curve flattens at {flat:,.0f} blocks: 99 % of what no limit serves")
    else:
        print("no block is ever served: no request repeats the beginning of an earlier one")
    largest = curve.largest_request_blocks
    if asked and asked < largest:
        print(
            f"notice: the largest request needs {largest:,} blocks, more than the {asked:,} asked"
            " for: a server would refuse it, the curve lets it pass through"
        )


def _print_tiers(curve: HitCurve, tiers: list[Tier], block_bytes: float) -> None:
    rows = [
        [row.name, f"{tier.capacity_blocks:,.0f}", row.hits, f"{row.block_ratio:.4f}", row.load_s]
        for tier, row in zip(tiers, tier_hits(curve, tiers, block_bytes), strict=True)
    ]
    print()
    print(text_table(["tier", "blocks", "hits", "of blocks", "load s"], rows))


def _draw(
    path: str, curve: HitCurve, asked: int | None, flat: float, block_bytes: float | None
) -> None:
    """Token hit ratio against capacity on a logarithmic axis."""
    picture, (panel,) = plots.figure()
    last = len(curve.hit_blocks) + curve.reserved_blocks
    capacity = np.unique(np.geomspace(1, last * 1.5, 600).astype(np.int64))
    unit = block_bytes / 1e9 if block_bytes else 1.0
    panel.plot(capacity * unit, curve.token_ratio(capacity), linewidth=2)
    top = float(curve.token_ratio(np.inf))
    panel.axhline(top, color=plots.COLOURS[5], linewidth=0.8, linestyle=":")
    panel.annotate(
        f"no limit: {top:.1%}", (capacity[0] * unit, top), xytext=(2, 4), textcoords="offset points"
    )
    marks = [("asked", asked, plots.COLOURS[1]), ("flat", flat, plots.COLOURS[2])]
    for label, where, colour in marks:
        if where and np.isfinite(where):
            ratio = float(curve.token_ratio(where))
            panel.plot([where * unit], [ratio], "o", color=colour)
            panel.annotate(
                f"{label}: {ratio:.1%}",
                (where * unit, ratio),
                xytext=(-8, 8) if label == "asked" else (8, -16),
                ha="right" if label == "asked" else "left",
                textcoords="offset points",
                color=colour,
            )
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    panel.set_ylim(0, min(1.0, top * 1.15) if top > 0 else 1)
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    panel.set_xlabel("memory for KV (GB)" if block_bytes else "capacity (blocks)")
    panel.set_ylabel("input tokens served from the cache")
    plots.save(picture, path)
