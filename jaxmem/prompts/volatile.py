"""Volatile fields of a text: times, identifiers and numbers, which change though nothing does."""

import re
from collections.abc import Collection

_MONTH = rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?"
_CLOCK = rb"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\ ?[AaPp][Mm]\b)?"
_ZONE = rb"(?:\ ?(?:Z\b|UTC\b|GMT\b|[+-]\d{2}:?\d{2}\b))?"
_WEEKDAY = rb"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6},?\ )?"
_DAY = _MONTH + rb"\ \d{1,2}(?:st|nd|rd|th)?|\d{1,2}\ " + _MONTH
_DATE = (
    rb"\d{4}[-/]\d{2}[-/]\d{2}|\b\d{1,2}[./]\d{1,2}[./](?:\d{4}|\d{2})\b|"
    + _WEEKDAY
    + rb"(?:"
    + _DAY
    + rb")(?:,?\ \d{4})?"
)
_WHEN = rb"(?:" + _DATE + rb")(?:(?:[T,]|\ at)?\ ?" + _CLOCK + rb")?" + _ZONE
_UNIX = rb"\b1[4-9]\d{8}(?:\d{3}|\.\d+)?\b"  # seconds or milliseconds from 2014 to 2033
KINDS = {
    "time": _WHEN + rb"|\b" + _CLOCK + _ZONE + rb"|" + _UNIX,
    "id": rb"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"
    rb"|\b(?=[0-9a-fA-F]*\d)(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{8,}\b",
    "number": rb"\d+(?:[.,]\d+)*",
}
FIELDS = tuple(KINDS)
# All kinds are told apart at once, so that no number is taken out of a time.
_FIELD = re.compile(b"|".join(b"(?P<%s>%s)" % (name.encode(), p) for name, p in KINDS.items()))


def masked(text: bytes, kinds: Collection[str] = FIELDS) -> bytes:
    """A text without its volatile fields.

    Args:
      text: the text.
      kinds: which of `FIELDS`.

    Returns:
      The text with one sign in place of each.
    """
    return _FIELD.sub(lambda found: b"#" if found.lastgroup in kinds else found[0], text)


def differing_fields(old: bytes, new: bytes) -> tuple[str, ...]:
    """Which volatile fields tell two texts apart.

    Args:
      old, new: the texts.

    Returns:
      Those of `FIELDS` that differ; none if more than such fields does.
    """
    if masked(old) != masked(new):
        return ()
    kinds = {
        field.lastgroup
        for pair in zip(_FIELD.finditer(old), _FIELD.finditer(new))
        if pair[0][0] != pair[1][0]
        for field in pair
    }
    return tuple(name for name in FIELDS if name in kinds)


def field_at(text: bytes, place: int) -> tuple[str, int, int] | None:
    """The volatile field that a byte lies in.

    Args:
      text: the text.
      place: of the byte.

    Returns:
      Its kind, where it starts and where it ends; None if the byte is in no field.
    """
    start = max(0, place - 64)  # no field is that long but a number, whose end is enough
    for found in _FIELD.finditer(text, start):
        if found.end() > place:
            inside = found.start() <= place and found.lastgroup
            return (str(found.lastgroup), found.start(), found.end()) if inside else None
    return None
