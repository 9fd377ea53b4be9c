"""`jaxmem doctor`: what breaks the prompt cache of your agents, from a log of their calls."""

import argparse
import dataclasses
import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from jaxmem.cli.arguments import positive_int, rate, share
from jaxmem.cli.doctor_cache import Cache, breakpoints
from jaxmem.cli.doctor_text import document, marks_said, price_rows, text, transcripts
from jaxmem.cli.terminal import notices, printable
from jaxmem.common import choice, lookup, write_text
from jaxmem.prompts.doctor import diagnose, without_text
from jaxmem.prompts.log import PromptLog
from jaxmem.prompts.model_prices import model_price
from jaxmem.prompts.price import prices
from jaxmem.prompts.readers import read_log
from jaxmem.prompts.report import report
from jaxmem.prompts.reuse import SCOPES
from jaxmem.prompts.rows import json_rows, log_files
from jaxmem.prompts.rules import RULES, Rules
from jaxmem.prompts.tokens import token_encoder
from jaxmem.prompts.transcripts import is_transcript, read_transcripts

_FEW_CALLS = 10
_REDACTED = b"redacted-by-litellm"
NO_MARKS = (
    "the log has no breakpoints: counted as if they stood after the tools, the system prompt and"
    " the last two messages"
)


def add(subparsers: Any) -> None:
    """Add the command's options.

    Args:
      subparsers: from `ArgumentParser.add_subparsers`.
    """
    parser = subparsers.add_parser("doctor", help="what breaks the prompt cache of your agents")
    parser.add_argument(
        "log", metavar="LOG", help="request bodies as JSON lines, .gz too, or a folder of them"
    )
    parser.add_argument(
        "--tokenizer", metavar="FILE", help="a tokenizer.json; without, 4 bytes a token are taken"
    )
    parser.add_argument(
        "--rules",
        metavar="NAME",
        help=f"cache and prices of a provider: {', '.join(RULES)}; blocks of 16 tokens without"
        " limit by default, prices of the log's models where they are known",
    )
    parser.add_argument(
        "--usd-per-million", type=rate, metavar="USD", help="price of input tokens, not the rules'"
    )
    parser.add_argument("--block-tokens", type=positive_int, metavar="N", help="tokens a block")
    parser.add_argument("--ttl", type=rate, metavar="S", help="seconds a prefix lives after use")
    parser.add_argument(
        "--scope",
        default="session",
        metavar="NAME",
        help="session (default), or all: sessions reuse each other's prefixes",
    )
    parser.add_argument("--session-key", metavar="NAME", help="the field that tells sessions apart")
    parser.add_argument("--top", type=positive_int, default=10, metavar="N", help="findings (10)")
    parser.add_argument(
        "--no-text", action="store_true", help="no text of the log on the terminal either"
    )
    parser.add_argument(
        "--with-text", action="store_true", help="what changed and names in JSON and HTML too"
    )
    parser.add_argument(
        "--fail-on",
        type=share,
        metavar="SHARE",
        help="exit code 1 if more of all prompt tokens is computed for nothing",
    )
    parser.add_argument("--html", metavar="FILE", help="write a page with a strip for each call")
    parser.add_argument("--json", action="store_true", help="JSON on standard output")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print what a prefix cache reuses of a log, what breaks it and what would not.

    Args:
      args: parsed options.

    Returns:
      0; 1 if `--fail-on` is exceeded.

    Raises:
      ValueError: for a log that cannot be read, and bad options.
    """
    if args.no_text and args.with_text:
        raise ValueError("--no-text and --with-text: expected one of them")
    if not args.log:
        raise ValueError("LOG: expected a file or a folder, got ''")
    if args.html is not None and (not args.html or Path(args.html).is_dir()):
        raise ValueError(f"--html: expected a file to write, got {args.html!r}")
    if args.html is not None and Path(args.html).exists():
        for file, _ in log_files(args.log):
            if file.exists() and file.samefile(args.html):
                raise ValueError(f"--html: {args.html} is the log itself")
    encoder = token_encoder(args.tokenizer) if args.tokenizer is not None else None
    scope = choice(SCOPES, args.scope, "scope")
    rules = None if args.rules is None else lookup(RULES, args.rules, "rules")
    with notices():
        if _holds_transcripts(args.log):
            return _transcripts(args)
        log = read_log(args.log, encoder, args.session_key)
    if any(text.endswith(_REDACTED) for text in log.contents):
        print("jaxmem: notice: prompts are redacted: what changed in them is lost", file=sys.stderr)
    if log.calls >= _FEW_CALLS and len(log.sessions) > 0.8 * log.calls:
        print(
            f"jaxmem: notice: {len(log.sessions)} sessions for {log.calls} calls: --session-key"
            " NAME if another field tells sessions apart",
            file=sys.stderr,
        )
    cache = _cache(args, log, rules, scope)
    diagnosis = diagnose(
        log,
        cache.block_tokens,
        scope=scope,
        ttl_s=cache.ttl_s,
        minimum_tokens=cache.minimum_tokens,
        tail_tokens=cache.tail_tokens,
        limit=args.top,
    )
    marks = breakpoints(log, cache.payer)
    rows = _priced(log, cache)
    if args.html is not None:
        shown = diagnosis if args.with_text else without_text(diagnosis)
        page = report(
            shown, Path(args.log).name, prices=price_rows(rows), cache=str(cache),
            with_text=args.with_text, notes=marks_said(marks, cache.payer),
        )  # fmt: skip
        write_text(args.html, page)
    if args.json:
        print(document(diagnosis, cache, rows, marks, args.with_text), end="")
    else:
        print(printable(text(diagnosis, cache, rows, marks, not args.no_text)))
        if args.html is not None:
            print(f"\nwrote {args.html}")
    avoidable = max(diagnosis.avoidable_share, marks.lost if marks else 0.0)
    if args.fail_on is not None and avoidable > args.fail_on:
        print(
            f"jaxmem: {avoidable:.1%} of all prompt tokens are computed for"
            f" nothing, more than {args.fail_on:.1%}",
            file=sys.stderr,
        )
        return 1
    return 0


def _cache(args: argparse.Namespace, log: PromptLog, rules: Rules | None, scope: str) -> Cache:
    """The cache asked for: options before rules before blocks of 16 without limit."""
    ttl_s = math.inf if rules is None else rules.ttl_s
    if args.ttl is not None:
        if args.ttl == 0:
            raise ValueError("--ttl: expected more than 0 seconds, got 0")
        ttl_s = args.ttl
    if math.isfinite(ttl_s) and not log.timed:
        if args.ttl is not None:
            raise ValueError("--ttl: calls of the log have no time, nothing can expire")
        ttl_s = math.inf
    block = 16 if rules is None else rules.granularity
    payer, assumed = _payer(args, log, rules)
    return Cache(
        args.block_tokens or block,
        0 if rules is None else rules.minimum_tokens,
        0 if rules is None else rules.tail_tokens,
        ttl_s,
        scope,
        payer,
        assumed,
        len(log.models),
    )


def _payer(args: argparse.Namespace, log: PromptLog, rules: Rules | None) -> tuple[Rules, bool]:
    """Whose prices: given, of the model with most tokens, or the rules'; and whether assumed."""
    usual = RULES[_usual(log)]
    base = rules or usual
    if args.usd_per_million is not None:
        given = {"input_usd_per_million": args.usd_per_million, "output_usd_per_million": None}
        return dataclasses.replace(base, name=f"{base.name}, as given", model="", **given), False
    tokens = np.bincount(log.model, log.prompt_tokens, len(log.models)) if log.calls else [0]
    model = log.models[int(np.argmax(tokens))] if log.models else ""
    known = model_price(model)
    if known is None or base.provider != usual.provider:
        return base, rules is None
    own = known._asdict() | {"name": f"{base.name}, yours", "model": model}
    return dataclasses.replace(base, **own), False


def _priced(log: PromptLog, cache: Cache) -> list[dict[str, Any]]:
    """The log under its own prices, where they are known, and under all rules."""
    own = [] if cache.payer in RULES.values() else [cache.payer]
    # Bodies of another provider have no breakpoints: theirs are then put where they help most.
    marks = "as_sent" if log.mark.any() else "automatic"
    rows = prices(log, [*own, *RULES], marks=marks)
    for row, rules in zip(rows, [*own, *RULES.values()]):
        if marks == "automatic" and rules.how == "breakpoints":
            row["notes"] = "; ".join(filter(None, [row["notes"], NO_MARKS]))
    return rows


def _usual(log: PromptLog) -> str:
    """The rules that fit the models of most calls."""
    names = {"claude": "anthropic-5m", "gemini": "gemini", "deepseek": "deepseek"}
    counts: Counter[str] = Counter()
    for model, calls in enumerate(np.bincount(log.model, minlength=len(log.models)).tolist()):
        name = log.models[model].lower()
        counts[next((rule for part, rule in names.items() if part in name), "openai")] += calls
    return max(counts, key=lambda rule: counts[rule], default="openai")


def _transcripts(args: argparse.Namespace) -> int:
    """Print what usage counters say."""
    for name in ("html", "fail_on", "rules", "tokenizer", "session_key", "ttl", "block_tokens",
                 "usd_per_million"):  # fmt: skip
        if getattr(args, name) is not None:
            flag = "--" + name.replace("_", "-")
            raise ValueError(
                f"{flag}: {args.log} is a Claude Code transcript: usage counters and no prompts"
            )
    print(transcripts(read_transcripts(args.log), args.json), end="")
    return 0


def _holds_transcripts(path: str) -> bool:
    """Whether the first row is one of a Claude Code transcript; a pipe can be read once only."""
    if not (Path(path).is_file() or Path(path).is_dir()):
        return False
    for file, name in log_files(path):
        for row in json_rows(file, name, last_may_break=True):
            return is_transcript(row.value)
    return False
