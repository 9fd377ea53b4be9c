"""A document in paragraphs, sentences and chunks, each with its place in the text."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from jaxmem.lm.self_study.english import listed

LONGEST = 600  # characters of a sentence: what never ends is cut at a space

_BREAK = r"(?>\r\n|[\r\n\u2028\u2029])"
_PARAGRAPH = re.compile(rf"{_BREAK}(?:[ \t\f\v]*{_BREAK})+")
_LINE = re.compile(rf"[^\r\n\u2028\u2029]+{_BREAK}?")
_BULLET = re.compile(r"[ \t]*(?:[-*+•·–—]|\(?\w{1,3}[.)]|#{1,6})[ \t]")
_STOP = re.compile(r"[.!?…]+[\"'”’»)\]]*(?=\s)|[。！？]+[”』」）]*")
_SMALL = re.compile(r"[\s\"'“‘«(\[]*(\S)")
_LAST_WORD = re.compile(r"(?:\w\.)+\w?\.?$|\w+\.?$")
_WORD = re.compile(r"\w+")
# Titles and the like that a name or a number follows.
_ABBREVIATIONS = listed(
    "mr mrs ms dr prof sr jr st mt ft rev hon gen col capt cpt lt sgt cmdr adm gov sen rep pres "
    "messrs mme mlle vs cf al approx dept est fig figs eq no nos vol vols p pp ch sec art ed eds "
    "inc ltd co corp bros jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri "
    "sat sun tel ext ca viz resp incl excl max min avg"
)
_MAY_END = listed("jr sr inc ltd co corp bros al est ed eds no sat sun mon art")
_OPENERS = listed(
    "the a an he she it they we you i in on at by for from this that these those there then when "
    "if but and so as his her its their our after before during"
)


class Span(NamedTuple):
    """A piece of a text.

    text: its characters.
    start: of its first character in the text.
    end: past its last one.
    """

    text: str
    start: int
    end: int


def paragraphs(text: str) -> list[Span]:
    """Paragraphs: what blank lines part.

    Args:
      text: the document, with line ends of any system.

    Returns:
      Those that are not blank, without the spaces around them.
    """
    edges = [0]
    for match in _PARAGRAPH.finditer(text):
        edges += [match.start(), match.end()]
    edges.append(len(text))
    return _spans(text, zip(edges[::2], edges[1::2]))


def sentences(text: str) -> list[Span]:
    """Sentences by rule: full stops that end no abbreviation, initial or number.

    A line is a sentence of its own in lists, verse and code; wrapped lines are joined.

    Args:
      text: the document.

    Returns:
      Its sentences in order; none is longer than `LONGEST` characters.
    """
    found = []
    for paragraph in paragraphs(text):
        for unit in _units(text, paragraph):
            for start, end in _pieces(text, unit):
                found += _spans(text, _short(text, start, end))
    return found


def is_heading(paragraph: Span) -> bool:
    """Whether a paragraph looks like a heading: one short line that ends like no sentence.

    Args:
      paragraph: one of `paragraphs`.

    Returns:
      Whether it does.
    """
    body = paragraph.text.lstrip("# ")
    return (
        len(body) <= 80
        and not re.search(rf"[.!?…。！？:;,]\W*$|{_BREAK}", body)
        and 1 <= len(_WORD.findall(body)) <= 12
        and not _BULLET.match(paragraph.text.lstrip("# "))
        and not re.search(r"[=(){}\[\]<>\\|]", body)
    )


def chunks(text: str, tokens_each: int, encode: Callable[[str], Sequence[int]]) -> list[Span]:
    """Consecutive pieces of whole paragraphs, or of whole sentences where one is too long.

    Args:
      text: the document.
      tokens_each: tokens of a piece at most; a sentence that is longer is cut.
      encode: ids of a text.

    Returns:
      The pieces; together they hold everything but spaces between them.

    Raises:
      ValueError: if `tokens_each` is below 1.
    """
    if tokens_each < 1:
        raise ValueError(f"expected at least 1 token each, got {tokens_each}")
    units = []
    for paragraph in paragraphs(text):
        if len(encode(paragraph.text)) <= tokens_each:
            units.append(paragraph)
            continue
        for unit in sentences(paragraph.text):
            moved = Span(unit.text, unit.start + paragraph.start, unit.end + paragraph.start)
            units += _fitting(moved, tokens_each, encode)
    merged: list[Span] = []
    for unit in units:
        if merged:
            start = merged[-1].start
            both = text[start : unit.end]
            # A piece has tokens of at least one character, and few of more than 24.
            if len(both) <= 24 * tokens_each and len(encode(both)) <= tokens_each:
                merged[-1] = Span(both, start, unit.end)
                continue
        merged.append(unit)
    return merged


def _fitting(piece: Span, limit: int, encode: Callable[[str], Sequence[int]]) -> list[Span]:
    """The piece, or its halves (at a space where there is one) until each fits."""
    if len(piece.text) <= 1 or len(encode(piece.text)) <= limit:
        return [piece]
    middle = len(piece.text) // 2
    space = piece.text.rfind(" ", 1, middle + 1)
    cut = space if space > middle // 2 else middle
    halves = _spans(piece.text, [(0, cut), (cut, len(piece.text))])
    found = []
    for half in halves:
        moved = Span(half.text, half.start + piece.start, half.end + piece.start)
        found += _fitting(moved, limit, encode)
    return found


def _units(text: str, paragraph: Span) -> list[tuple[int, int]]:
    """Ranges of a paragraph that no sentence crosses: lines, or lines that were wrapped."""
    lines = [
        (paragraph.start + match.start(), paragraph.start + match.end())
        for match in _LINE.finditer(paragraph.text)
    ]
    longest = max(end - start for start, end in lines) if lines else 0
    units: list[tuple[int, int]] = []
    last = paragraph.start  # where the line before starts
    for start, end in lines:
        if units:
            before = text[units[-1][0] : units[-1][1]].rstrip()
            wrapped = longest >= 56 and units[-1][1] - last > 0.6 * longest
            if wrapped and not _BULLET.match(text, start, end) and not before.endswith(":"):
                units[-1] = (units[-1][0], end)
                last = start
                continue
        units.append((start, end))
        last = start
    return units


def _pieces(text: str, unit: tuple[int, int]) -> list[tuple[int, int]]:
    start, end = unit
    found = []
    for match in _STOP.finditer(text, start, end):
        if match.end() < end and not _ends(text, start, match):
            continue
        found.append((start, match.end()))
        start = match.end()
    return [*found, (start, end)]


def _ends(text: str, start: int, stop: re.Match[str]) -> bool:
    """Whether a stop ends a sentence, by the words around it."""
    if stop.group()[0] in "。！？":
        return True
    after = _SMALL.match(text, stop.end())
    if after and after.group(1).islower():
        return False
    if not stop.group().startswith("."):
        return True
    if stop.group().startswith(".."):
        return True
    word = _LAST_WORD.search(text, max(start, stop.start() - 40), stop.start())
    if word is None:
        return True
    before = word.group().lower()
    following = _WORD.search(text, stop.end(), stop.end() + 40)
    next_word = following.group().lower() if following else ""
    if before in _ABBREVIATIONS:
        if before in ("no", "nos", "p", "pp", "vol", "vols", "fig", "figs", "ch", "sec", "art"):
            return not next_word[:1].isdigit()
        return before in _MAY_END and next_word in _OPENERS
    if re.fullmatch(r"(?:\w\.)*\w", before) and not before.isdigit():
        # Initials ("J. R. Smith") and "p.m.", "U.S.": they end one only before a plain opener.
        return next_word in _OPENERS or before == "i"
    return not (before.isdigit() and word.start() <= start + 1)  # "3." that starts a line


def _short(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """The range, cut at spaces into parts of at most `LONGEST` characters."""
    found = []
    while end - start > LONGEST:
        cut = max(text.rfind(mark, start + LONGEST // 2, start + LONGEST) for mark in (" ", "\n"))
        cut = start + LONGEST if cut < 0 else cut
        found.append((start, cut))
        start = cut
    return [*found, (start, end)]


def _spans(text: str, ranges: Iterable[tuple[int, int]]) -> list[Span]:
    """Spans without the spaces around them; blank ones are left out."""
    found = []
    for start, end in ranges:
        piece = text[start:end]
        body = piece.strip()
        if body:
            first = start + len(piece) - len(piece.lstrip())
            found.append(Span(body, first, first + len(body)))
    return found
