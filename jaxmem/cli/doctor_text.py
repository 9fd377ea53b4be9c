"""What `jaxmem doctor` prints: text for people, a document for machines."""

import textwrap
from collections.abc import Sequence
from typing import Any

from jaxmem import results
from jaxmem.cli.doctor_cache import Breakpoints, Cache
from jaxmem.common.table import text_table
from jaxmem.prompts.doctor import SMALL_SHARE, Diagnosis, without_text
from jaxmem.prompts.findings import FIELD_SAID, HOW_SAID, REMEDY_SAID, Finding, Remedied
from jaxmem.prompts.report_strips import shown_names
from jaxmem.prompts.reuse import HOW
from jaxmem.prompts.rules import Rules
from jaxmem.prompts.transcripts import Transcript, ttl_misses

SHOWN_MARKS = 0.05  # of all prompt tokens: less than this is lost to breakpoints by chance


def text(
    diagnosis: Diagnosis,
    cache: Cache,
    rows: Sequence[dict[str, Any]],
    marks: Breakpoints | None,
    with_text: bool,
) -> str:
    """What people read on a terminal.

    Args:
      diagnosis: from `diagnose`.
      cache: that it was made with.
      rows: from `prices`.
      marks: from `breakpoints`.
      with_text: whether labels and what changed are shown.

    Returns:
      Lines, the last without its end.
    """
    log, found = diagnosis.log, diagnosis.reuse
    prompt = int(log.prompt_tokens.sum())
    span = f" over {_duration(float(log.time_s[-1] - log.time_s[0]))}" if log.timed else ""
    named = [name for name in log.models if name]
    more = f" and {len(named) - 3} more" if len(named) > 3 else ""
    models = ", ".join(named[:3]) + more
    lines = [
        f"{_count(log.calls, 'call')} in {_count(len(log.sessions), 'session')}{span}"
        f"{f' ({models})' if models and with_text else ''},"
        f" {prompt:,} prompt tokens ({log.encoder.name})",
        f"cache: {cache}",
        *([cache.money] if cache.money else []),
        "",
        text_table(*_token_table(diagnosis)),
    ]
    known = log.cached_tokens >= 0
    if known.any():
        said, ours = int(log.cached_tokens[known].sum()), int(found.reused[known].sum())
        lines += _wrapped(
            f"\nof {_count(int(known.sum()), 'call')} the provider says that it read {said:,}"
            f" tokens from its cache, as it counts tokens; the cache above reads {ours:,}"
        )
    switched, tokens = _switched(diagnosis)
    if switched:
        lines += _wrapped(
            f"\n{_count(switched, 'call')} went to a model that had seen nothing of its session"
            f" yet: each model has a cache of its own, {tokens:,} tokens were computed for it"
        )
    placed = marks_said(marks, cache.payer)
    if placed:
        lines += ["", placed[0], *_wrapped(placed[1], "   do      ")]
    names = dict(zip(log.labels, shown_names(log, with_text)))
    large = [f for f in diagnosis.findings if f.tokens >= SMALL_SHARE * prompt]
    for number, finding in enumerate(large, 1):
        lines += ["", *_finding(number, finding, diagnosis, cache, names, with_text)]
    small = [f for f in diagnosis.findings if f.tokens < SMALL_SHARE * prompt]
    if small:
        lost = sum(f.tokens for f in small)
        lines += ["", f"{_count(len(small), 'smaller break')}: {lost:,} tokens together"]
    if not diagnosis.findings:
        lines += ["", "no prefix breaks before its end: nothing to mend"]
    if diagnosis.avoidable_tokens > 0:
        lines += ["", "plan, each step after those before it:"]
        for step in diagnosis.plan:
            what = REMEDY_SAID[step.remedied.name]
            share = f"{step.remedied.reused_share:.1%} reused"
            lines += _wrapped(f"{_name(names, step.label)}: {what}: {share}", "   ")
        lines += _wrapped(
            f"{diagnosis.avoidable_tokens:,} tokens ({diagnosis.avoidable_share:.1%} of"
            f" all{_money(cache, diagnosis.avoidable_tokens)}) are computed for nothing",
            "   ",
        )
    lines += ["", "the same calls under each provider's rules, input and output in USD:", ""]
    lines.append(text_table(*_price_table(rows)))
    for note in dict.fromkeys(note for row in rows for note in row["notes"].split("; ") if note):
        rules = [row["rule"] for row in rows if note in row["notes"].split("; ")]
        whose = "" if len(rules) == len(rows) else f" ({', '.join(rules)})"
        lines += _wrapped(f"{note}{whose}", "  ")
    return "\n".join(lines)


def _switched(diagnosis: Diagnosis) -> tuple[int, int]:
    """Calls that are the first of their model in a session but not the first of it, and tokens."""
    log, seen, calls = diagnosis.log, set(), []
    for call in range(log.calls):
        if int(log.session[call]) in seen and diagnosis.reuse.how[call] == HOW.index("first"):
            calls.append(call)
        seen.add(int(log.session[call]))
    return len(calls), int(diagnosis.reuse.fresh[calls].sum()) if calls else 0


def marks_said(marks: Breakpoints | None, payer: Rules) -> list[str]:
    """The finding that breakpoints are missing, or stand where they do not help.

    Args:
      marks: from `breakpoints`.
      payer: the provider's rules.

    Returns:
      What is, and what to do; nothing if no other place would be better.
    """
    if marks is None or marks.lost <= SHOWN_MARKS:
        return []
    where = "those in the log" if marks.sent else "none in the log, so that nothing is cached"
    better = f"{marks.best:.1%} would be read"
    if marks.usd is not None and marks.best_usd is not None:
        better += f", ${marks.best_usd:,.2f} in place of ${marks.usd:,.2f}"
    return [
        f"breakpoints (cache_control): {where}: {marks.read:.1%} read by {payer.provider}",
        f"put them after the tools, the system prompt and the last two messages: {better}",
    ]


def _token_table(diagnosis: Diagnosis) -> tuple[list[str], list[list[Any]]]:
    """What became of all prompt tokens."""
    found, prompt = diagnosis.reuse, max(int(diagnosis.log.prompt_tokens.sum()), 1)
    parts = [
        ("reused", found.reused, ""),
        ("new", found.fresh, "not in the call before"),
        ("behind a change", found.broken, "in the call before, and computed again"),
        ("expired", found.expired, "not used within the time to live"),
        ("too few", found.rounding, "for a block or for the minimum"),
    ]
    return ["tokens", "", "share", ""], [
        [name, int(tokens.sum()), f"{tokens.sum() / prompt:.1%}", what]
        for name, tokens, what in parts
        if tokens.any() or name == "reused"
    ]


def _finding(
    number: int,
    finding: Finding,
    diagnosis: Diagnosis,
    cache: Cache,
    names: dict[str, str],
    with_text: bool,
) -> list[str]:
    prompt = max(int(diagnosis.log.prompt_tokens.sum()), 1)
    kind = "" if finding.label.startswith(finding.kind) else f" ({finding.kind})"
    field = f", {_a(finding.field)} first" if finding.field else ""
    if finding.fields:
        only = " and ".join(_a(field) for field in finding.fields)
        field = f", only {only} change{'s' if len(finding.fields) == 1 else ''}"
    lost = "new" if finding.how == "rewritten" else "lost"
    rows = [
        (lost, f"{finding.tokens:,} tokens in {_count(finding.calls, 'call')}"
                 f" ({finding.tokens / prompt:.1%} of all{_money(cache, finding.tokens)})"),
        ("worst", diagnosis.log.source[finding.worst]),
    ]  # fmt: skip
    if with_text and (finding.old or finding.new):
        rows.append(("change", f'"{finding.old}" -> "{finding.new}"'))
    rows.append(("do", finding.advice))
    if finding.remedies:
        rows.append(("replay", "; ".join(_tried(r, prompt) for r in finding.remedies)))
    lines = [f"{number}. {_name(names, finding.label)}{kind}: {HOW_SAID[finding.how]}{field}"]
    for name, what in rows:
        lines += _wrapped(what, f"   {name:<7} ")
    return lines


def _tried(remedy: Remedied, prompt: int) -> str:
    fewer = f"{abs(remedy.saved_tokens):,} tokens {'fewer' if remedy.saved_tokens >= 0 else 'MORE'}"
    longer = remedy.prompt_tokens / prompt - 1
    grown = f", prompts {longer:.0%} longer" if longer >= 0.01 else ""
    return f"{REMEDY_SAID[remedy.name]}: {remedy.reused_share:.1%} reused, {fewer}{grown}"


def _money(cache: Cache, tokens: int) -> str:
    usd = cache.usd(tokens)
    if usd is None:
        return ""
    return f", ${usd:,.2f}" if usd >= 0.01 else ", less than $0.01"


def _a(field: str) -> str:
    return f"{'an' if field == 'id' else 'a'} {FIELD_SAID[field]}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _wrapped(text: str, mark: str = "") -> list[str]:
    blank = [""] * text.startswith("\n")
    return blank + textwrap.wrap(
        text.strip(), 100, initial_indent=mark, subsequent_indent=" " * len(mark),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def price_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The table of prices as rows for the page.

    Args:
      rows: from `prices`.

    Returns:
      A dict of what is shown for each.
    """
    headers, cells = _price_table(rows)
    return [dict(zip(headers, row)) for row in cells]


def _price_table(rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    headers = ["rules", "as of", "model", "read", "USD", "without cache", "nothing broken"]
    return headers, [
        [
            row["rule"], row["as_of"], row["model"], f"{row['share_read']:.1%}",
            *(None if row[name] is None else f"{row[name]:,.2f}"
              for name in ("usd", "usd_no_cache", "usd_perfect")),
        ]
        for row in rows
    ]  # fmt: skip


def document(
    diagnosis: Diagnosis,
    cache: Cache,
    rows: Sequence[dict[str, Any]],
    marks: Breakpoints | None,
    with_text: bool,
) -> str:
    """What machines read: the same for the same log.

    Args:
      diagnosis: from `diagnose`.
      cache: that it was made with.
      rows: from `prices`.
      marks: from `breakpoints`.
      with_text: whether labels and what changed are in it.

    Returns:
      JSON.
    """
    log, found = diagnosis.log, diagnosis.reuse
    shown = diagnosis if with_text else without_text(diagnosis)
    names = dict(zip(log.labels, shown_names(log, with_text)))
    findings = []
    for finding in shown.findings:
        row = finding._asdict()
        row["label"] = _name(names, finding.label)
        row["labels"] = [_name(names, label) for label in finding.labels]
        row["worst"] = {"call": finding.worst, "source": log.source[finding.worst]}
        row["usd"] = cache.usd(finding.tokens)
        row["remedies"] = [_plain(remedy) for remedy in finding.remedies]
        del row["broke"]
        if not with_text:
            del row["old"], row["new"]
        findings.append(row)
    content = {
        "log": {
            "calls": log.calls,
            "sessions": len(log.sessions),
            "timed": log.timed,
            "tokens": log.encoder.name,
            "exact": log.encoder.exact,
        },
        "cache": {
            **{
                key: value
                for key, value in cache._asdict().items()
                if key not in ("payer", "models")
            },
            "prices_of": cache.payer.model or cache.payer.name,
            "input_usd_per_million": cache.payer.input_usd_per_million,
        },
        "breakpoints": None if marks is None else marks._asdict(),
        "tokens": {
            "prompt": log.prompt_tokens.sum(),
            "output": log.output_tokens.sum(),
            **{
                part: getattr(found, part).sum()
                for part in ("reused", "fresh", "broken", "expired", "rounding")
            },
        },
        "reused_share": found.share,
        "plan": [
            {"label": _name(names, step.label), **_plain(step.remedied)} for step in shown.plan
        ],
        "planned_reused_share": diagnosis.reused_share,
        "avoidable_tokens": diagnosis.avoidable_tokens,
        "avoidable_share": diagnosis.avoidable_share,
        "findings": findings,
        "prices": list(rows),
    }
    return results.document(content)


def _plain(remedy: Remedied) -> dict[str, Any]:
    return {key: value for key, value in remedy._asdict().items() if key != "log"}


def _name(names: dict[str, str], label: str) -> str:
    return names.get(label, label)  # "tools" stands for several labels and is none itself


def _duration(span_s: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if span_s >= 2 * size:
            return f"{span_s / size:,.1f} {unit}"
    return f"{span_s:,.0f} s"


def transcripts(found: Transcript, as_json: bool) -> str:
    """What the usage counters of Claude Code transcripts say.

    Args:
      found: the requests.
      as_json: for machines.

    Returns:
      Text, or JSON.
    """
    misses = ttl_misses(found)
    words = {
        "read": "read from the cache",
        "written_5m": "written for 5 minutes",
        "written_1h": "written for an hour",
        "fresh": "neither read nor written",
    }
    parts = {name: int(getattr(found, name).sum()) for name in words}
    prompt, sessions = sum(parts.values()), len(set(found.session.tolist()))
    if as_json:
        return results.document(
            {
                "requests": len(found.time_s),
                "sessions": sessions,
                "tokens": {**parts, "output": found.output.sum()},
                "read_share": parts["read"] / max(prompt, 1),
                "misses": misses._asdict(),
            }
        )
    rows = [
        [what, parts[name], f"{parts[name] / max(prompt, 1):.1%}"] for name, what in words.items()
    ]
    lines = [
        f"{_count(len(found.time_s), 'request')} in {_count(sessions, 'session')} of Claude Code,"
        f" {prompt:,} prompt tokens as the provider counted them",
        "",
        text_table(["tokens", "", "share"], rows),
        *_wrapped(
            f"\nof {_count(misses.requests, 'request')} with one before them in the same thread"
            f" {misses.expired:,} came after the time to live and computed"
            f" {misses.expired_tokens:,} tokens again; {misses.changed:,} came within it with"
            f" another prefix and computed {misses.changed_tokens:,}"
        ),
        *_wrapped(
            "\nThese files hold usage counters and no prompts: which part of a prompt changed, and"
            " what a compaction was meant to change, they cannot show. A log of request bodies can."
        ),
    ]
    return "\n".join(lines) + "\n"
