"""The doctor's report: one HTML page that needs nothing else and shows no prompt text unasked."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from numbers import Integral, Real
from typing import Any

import numpy as np

from jaxmem.prompts.doctor import Diagnosis
from jaxmem.prompts.findings import FIELD_SAID, HOW_SAID, REMEDY_SAID, Finding, Remedied
from jaxmem.prompts.log import KINDS
from jaxmem.prompts.report_strips import (
    NAME,
    PARTS,
    SAID,
    Kept,
    clean,
    kept_calls,
    payload,
    place,
    shown_names,
)


def report(
    diagnosis: Diagnosis,
    title: str,
    prices: Sequence[Mapping[str, Any]] = (),
    with_text: bool = False,
    cache: str = "",
    notes: Sequence[str] = (),
) -> str:
    """A page that shows what is reused of each call, what breaks the rest and what would not.

    The same input gives the same page. It loads nothing and sends nothing.

    Args:
      diagnosis: from `diagnose`.
      title: of the page.
      prices: rows of a table, as from `price.prices`.
      with_text: whether labels and excerpts of the prompts may be shown. Otherwise a segment is
        called by its kind and a number; sessions are numbers always.
      cache: what the cache was taken to be, a line.
      notes: other findings, a line each.

    Returns:
      HTML.
    """
    names = [clean(name)[:NAME] for name in shown_names(diagnosis.log, with_text)]
    kept = kept_calls(diagnosis)
    style, script = _resource("report.css") + _rules(diagnosis), _resource("report.js")
    data = json.dumps(payload(diagnosis, names, kept), separators=(",", ":"))
    for sign in "<>&":
        data = data.replace(sign, f"\\u{ord(sign):04x}")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>",
            f"<header><h1>{_escape(title)}</h1>"
            '<nav><a href="#breaks">breaks</a><a href="#calls">calls</a>'
            + ('<a href="#prices">prices</a>' if prices else "")
            + '<button type="button" id="theme">light or dark</button></nav></header>',
            *_headline(diagnosis, cache, names, notes),
            *_findings(diagnosis, names, with_text),
            *_strips(diagnosis, kept),
            *_prices(prices),
            "<footer>Made by jaxmem. The page loads nothing and sends nothing.</footer>",
            f'<script type="application/json" id="data">{data}</script>',
            f"<script>{script}</script>\n</body>\n</html>\n",
        ]
    )


def _headline(
    diagnosis: Diagnosis, cache: str, names: list[str], notes: Sequence[str]
) -> Iterator[str]:
    log, now = diagnosis.log, diagnosis.reuse
    total = int(log.prompt_tokens.sum())
    changes = len(diagnosis.plan)
    remedies = "one remedy" if changes == 1 else f"{changes} remedies"
    lead = f"<b>{_percent(now.share)}</b> of the prompt tokens are reused"
    if diagnosis.avoidable_tokens > 0:
        lead += f"; with {remedies} it would be <b>{_percent(diagnosis.reused_share)}</b>"
    yield f'<p class="lead">{lead}.</p>'
    for note in notes:
        yield f"<p><b>{_escape(note)}</b></p>"
    tiles = [
        ("Reused now", _percent(now.share), f"{int(now.reused.sum()):,} tokens"),
        ("With the remedies", _percent(diagnosis.reused_share), "by replay of the log"),
        (
            "Avoidable",
            _percent(diagnosis.avoidable_share),
            f"{diagnosis.avoidable_tokens:,} tokens computed again",
        ),
        ("Calls", f"{log.calls:,}", _count(len(log.sessions), "session")),
        (
            "Prompt tokens",
            f"{total:,}",
            ("exact, " if log.encoder.exact else "") + _escape(log.encoder.name),
        ),
    ]
    yield '<dl class="tiles">'
    for name, value, small in tiles:
        yield f"<div><dt>{name}</dt><dd>{value}<small>{small}</small></dd></div>"
    yield "</dl>"
    yield (
        '<div class="bars" aria-hidden="true"><span>now</span><i id="bar-now"></i>'
        '<span>with the remedies</span><i id="bar-then"></i></div>'
    )
    if diagnosis.plan:
        shown = {**dict(zip(log.labels, names)), "tools": "tools"}
        steps = "; ".join(
            f"{_escape(shown.get(step.label, step.label))}: {REMEDY_SAID[step.remedied.name]}"
            f" ({_percent(step.remedied.reused_share)})"
            for step in diagnosis.plan
        )
        yield f'<p class="note">The remedies, one after another: {steps}.</p>'
    if cache:
        yield f'<p class="note">The cache was taken to be: {_escape(cache)}</p>'


def _rules(diagnosis: Diagnosis) -> str:
    """The page's own rules: what a style attribute would hold, which the policy forbids."""
    now, most = diagnosis.reuse, max([1, *(f.tokens for f in diagnosis.findings)])
    shares = [(part, int(getattr(now, part).sum())) for part in PARTS]
    cured = round(1e6 * diagnosis.reused_share)
    rules = [
        _bar("bar-now", shares),
        _bar("bar-then", [("reused", cured), ("fresh", 1_000_000 - cured)]),
        *(
            f"#f{n} .share {{ width: {100 * f.tokens / most:.2f}%; }}"
            for n, f in enumerate(diagnosis.findings)
        ),
    ]
    return "\n".join(["", *rules, ""])


def _bar(id: str, shares: list[tuple[str, int]]) -> str:
    total, done, stops = max(sum(size for _, size in shares), 1), 0, []
    for part, size in shares:
        start, done = done, done + size
        stops.append(f"var(--{part}) {100 * start / total:.3f}% {100 * done / total:.3f}%")
    return f"#{id} {{ background: linear-gradient(90deg, {', '.join(stops)}); }}"


def _findings(diagnosis: Diagnosis, names: list[str], with_text: bool) -> Iterator[str]:
    yield '<h2 id="breaks">What breaks the prefix</h2>'
    if not diagnosis.findings:
        yield "<p>Nothing: no call computes again what an earlier one held.</p>"
        return
    log = diagnosis.log
    total = max(int(log.prompt_tokens.sum()), 1)
    name_of = dict(zip(log.labels, names))
    yield (
        '<p class="note">The costliest first. Choose a row to mark the calls that it broke. '
        "Each remedy was tried by replay of the whole log.</p>"
    )
    yield (
        '<div class="wide"><table class="findings"><thead><tr><th>Segment</th><th>What happens</th>'
        '<th class="n">Calls</th><th class="n">Computed again</th><th class="n">Share</th>'
        "<th>Worst</th><th>Best remedy</th><th>Do</th><th></th></tr></thead><tbody>"
    )
    for n, finding in enumerate(diagnosis.findings):
        # All definitions of tools are one finding, whose label may be no segment's.
        name = "tools" if finding.kind == "tools" else name_of.get(finding.label, finding.kind)
        name, how = _escape(name), HOW_SAID.get(finding.how, finding.how)
        best = "none: no layout helps"
        if finding.remedies:
            first = finding.remedies[0]
            best = (
                f"{_remedy(first)}<small>{'saves' if first.saved_tokens >= 0 else 'costs'} "
                f"{abs(first.saved_tokens):,}, "
                f"then {_percent(first.reused_share)} reused</small>"
            )
        worst = f"call {finding.worst + 1:,}"
        if log.source[finding.worst]:
            worst += f"<small>{_escape(place(log.source[finding.worst]))}</small>"
        cells = [
            ("What happens", "", f"<span>{_escape(how)}{_changes(finding)}</span>"),
            ("Calls", "n", f"{finding.calls:,}"),
            ("Computed again", "n", f'{finding.tokens:,}<span class="share"></span>'),
            ("Share", "n", _percent(finding.tokens / total)),
            ("Worst", "source", f"<span>{worst}</span>"),
            ("Best remedy", "best", f"<span>{best}</span>"),
            ("Do", "best", f"<span>{_escape(finding.advice)}</span>"),
        ]
        kind = f"<small>{finding.kind}</small>" if with_text else ""  # else the name has it
        more = _more(finding, with_text)
        button = '<button type="button" class="open">less</button>' if more else ""
        yield (
            f'<tr class="finding" id="f{n}" data-calls="{finding.calls}" '
            f'data-worst="{finding.worst + 1}" data-name="{name} {_escape(how)}">'
            f'<td class="what"><button type="button" class="mark" aria-pressed="false">'
            f"<bdi>{name}</bdi></button>{kind}</td>"
            + "".join(f'<td class="{c}" data-label="{label}">{x}</td>' for label, c, x in cells)
            + f"<td>{button}</td></tr>"
        )
        if more:
            yield f'<tr class="more"><td colspan="9">{more}</td></tr>'
    yield "</tbody></table></div>"


def _more(finding: Finding, with_text: bool) -> str:
    """All remedies tried, and the excerpts where they may be shown."""
    parts = []
    if with_text and (finding.old or finding.new):
        old, new = (
            f"<q><bdi>{_escape(text)}</bdi></q>" if text else "nothing"
            for text in (finding.old, finding.new)
        )
        parts.append(f"<p>was {old}, became {new}</p>")
    if finding.remedies:
        rows = "".join(
            f'<tr><td>{_remedy(r)}</td><td class="n">{r.saved_tokens:,}</td>'
            f'<td class="n">{r.recomputed_tokens:,}</td>'
            f'<td class="n">{_percent(r.reused_share)}</td></tr>'
            for r in finding.remedies
        )
        parts.append(
            '<table><thead><tr><th>Remedy alone</th><th class="n">Saved</th>'
            '<th class="n">Still computed</th><th class="n">Reused</th></tr></thead>'
            f"<tbody>{rows}</tbody></table>"
        )
    return "".join(parts)


def _changes(finding: Finding) -> str:
    """The volatile fields that change, all or the first, as a line of their own."""
    if finding.fields:
        fields = ", ".join(FIELD_SAID.get(field, field) for field in finding.fields)
        return f"<small>changes: {fields} only</small>"
    if finding.field:
        field = FIELD_SAID.get(finding.field, finding.field)
        return f"<small>changes first: {field}</small>"
    return ""


def _remedy(remedy: Remedied) -> str:
    return _escape(REMEDY_SAID.get(remedy.name, remedy.name.replace("_", " ")))


def _strips(diagnosis: Diagnosis, kept: list[Kept]) -> Iterator[str]:
    log, now = diagnosis.log, diagnosis.reuse
    shown = sum(k.shown for k in kept)
    yield '<h2 id="calls">Every call</h2>'
    if not log.calls:
        yield '<p>The log has no calls.</p><div id="strips"></div>'
    else:
        some = ""
        if shown < log.calls:
            some = (
                f" <b>Shown: the first {shown:,} of {log.calls:,} calls</b>, from the "
                f"{len(kept):,} of {len(log.sessions):,} sessions that lose most; the numbers "
                "above are of all."
            )
        yield (
            '<p class="note">A strip is a prompt, as long as its tokens; calls in time order, '
            "the sessions that lose most first. Above, what became of its tokens: the shared "
            "prefix is where it stands, what follows are amounts. Below, which kind of segment "
            f"stands where. Keys: up, down; n and p for the next and previous break.{some}</p>"
        )
        total = int(log.prompt_tokens.sum())
        yield '<ul class="legend"><li><b>tokens</b></li>'
        for part in PARTS:
            tokens = int(getattr(now, part).sum())
            if tokens:
                share = f'<span class="muted">{_percent(tokens / total)}</span>'
                yield f'<li><span class="key k-{part}"></span>{SAID[part]} {share}</li>'
        yield '<li><span class="key tick"></span>break</li></ul>'
        yield '<ul class="legend"><li><b>segments</b></li>'
        for kind in np.unique(log.kind).tolist():
            yield f'<li><span class="key lane k-{KINDS[kind]}"></span>{KINDS[kind]}</li>'
        yield "</ul><noscript><p>The strips need JavaScript; the tables do not.</p></noscript>"
        yield '<div class="axis" id="axis"></div>'
        yield '<div id="strips" role="group" aria-label="calls"></div>'
    yield '<div id="tip" role="status" hidden></div>'
    yield (
        '<div id="picked" hidden><span id="picked-said" aria-live="polite"></span>'
        + "".join(
            f'<button type="button" id="picked-{what}">{what}</button>'
            for what in ("back", "next", "worst", "clear")
        )
        + "</div>"
    )


def _prices(prices: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not prices:
        return
    columns = list(dict.fromkeys(key for row in prices for key in row))
    side = {
        key: ' class="n"' if all(_is_number(row.get(key)) for row in prices) else ""
        for key in columns
    }
    yield '<h2 id="prices">Under the rules of providers</h2>'
    yield '<div class="wide"><table class="prices"><thead><tr>'
    for key in columns:
        head = _escape(str(key).replace("_", " "))
        yield f"<th{side[key]}>{head}</th>"
    yield "</tr></thead><tbody>"
    for row in prices:
        cells = (f"<td{side[key]}>{_escape(_value(row.get(key)))}</td>" for key in columns)
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"


def _is_number(value: Any) -> bool:
    """Whether it is one, or written as one."""
    return isinstance(value, Real | None) or bool(re.fullmatch(r"\$?[\d,.]+ ?%?", str(value)))


def _value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, Integral):
        return f"{int(value):,}"
    if isinstance(value, Real):
        return f"{float(value):,.{2 if abs(float(value)) >= 10 else 4}f}"
    if isinstance(value, list | tuple):
        return "; ".join(map(_value, value))
    return str(value)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _escape(text: str) -> str:
    return html.escape(clean(text))


def _hash(text: str) -> str:
    """The source expression of a policy for an inline style or script."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _resource(name: str) -> str:
    text = resources.files("jaxmem.prompts").joinpath(name).read_text("utf-8")
    return "\n".join(text.splitlines()) + "\n"
