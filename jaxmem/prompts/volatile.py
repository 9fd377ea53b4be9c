"""Volatile fields of a text: times, identifiers and numbers, which change though nothing does."""

import re

_MONTH = rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?"
_CLOCK = rb"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\ ?[AaPp][Mm]\b)?"
_ZONE = rb"(?:\ ?(?:Z\b|UTC\b|GMT\b|[+-]\d{2}:?\d{2}\b))?"
_WEEKDAY = rb"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6},?\ )?"
_DAY = _MONTH + rb"\ \d{1,2}(?:st|nd|rd|th)?|\d{1,2}\ " + _MONTH
_DATE = rb"\d{4}[-/]\d{2}[-/]\d{2}|" + _WEEKDAY + rb"(?:" + _DAY + rb")(?:,?\ \d{4})?"
_WHEN = rb"(?:" + _DATE + rb")(?:(?:[T,]|\ at)?\ ?" + _CLOCK + rb")?" + _ZONE
KINDS = {
    "time": _WHEN + rb"|\b" + _CLOCK + _ZONE,
    "id": rb"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"
    rb"|\b(?=[0-9a-fA-F]*\d)(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{8,}\b",
    "number": rb"\d+(?:[.,]\d+)*",
}
_FIELD = re.compile(b"|".join(b"(?P<%s>%s)" % (name.encode(), p) for name, p in KINDS.items()))


def masked(text: bytes) -> bytes:
    """A text without its volatile fields.

    Args:
      text: the text.

    Returns:
      The text with one sign in place of each.
    """
    return _FIELD.sub(b"#", text)


def differing_field(old: bytes, new: bytes) -> str | None:
    """Which volatile field tells two texts apart.

    Args:
      old, new: the texts.

    Returns:
      "time", "id" or "number", the first of them that differs; None if more than such fields does.
    """
    if masked(old) != masked(new):
        return None
    kinds = {
        field.lastgroup
        for pair in zip(_FIELD.finditer(old), _FIELD.finditer(new))
        if pair[0][0] != pair[1][0]
        for field in pair
    }
    return next((name for name in KINDS if name in kinds), None)
