"""Sentences in clauses and phrases by rule: what a question can leave out and ask for."""

import itertools
from typing import NamedTuple

from jaxmem.lm.self_study import english
from jaxmem.lm.self_study.tagging import CALLED, FINITE, Token

_NO_CASE = frozenset(("than", "like", "except", "per"))
_NOMINAL = frozenset(("NOUN", "NAME", "NUM", "YEAR", "ED", "ING"))


class Phrase(NamedTuple):
    """A part of a clause, by its tokens.

    start, end: range of its tokens, the preposition included.
    head: first token of what follows the preposition.
    kind: "subject", "who", "place", "time", "year", "count", "often", "duration", "purpose",
      "manner", "named" (it says who or what the phrase before is) or "what".
    """

    start: int
    end: int
    head: int
    kind: str


class Clause(NamedTuple):
    """A subject and what is said of it, by their tokens.

    start, end: range of its tokens.
    subject: range of the tokens of its subject, or None where another clause has it.
    verb: its finite verb.
    opener: "because", "when", ... or "" for a main clause.
    phrases: what can be asked for.
    """

    start: int
    end: int
    subject: tuple[int, int] | None
    verb: int
    opener: str
    phrases: list[Phrase]


def clauses(words: list[Token]) -> list[Clause]:
    """Clauses of a sentence that have a finite verb.

    Args:
      words: its tokens.

    Returns:
      Its clauses in order.
    """
    found = []
    waiting: tuple[int, int] | None = None  # a subject whose verb comes after a relative clause
    for start, end, opener in _segments(words):
        verb = next((i for i in range(start, end) if words[i].tag in FINITE), None)
        if verb is None:
            waiting = _subject(words, start, end)
            continue
        subject = _subject(words, start, verb)
        if verb == start and not opener and waiting:
            found.append(Clause(start, end, waiting, verb, opener, _phrases(words, verb, end)))
            found[-1].phrases.insert(0, Phrase(*waiting, waiting[0], "subject"))
            waiting = None
            continue
        phrases = _phrases(words, verb, end)
        if subject is not None:
            phrases.insert(0, Phrase(*subject, subject[0], "subject"))
            phrases[1:1] = _phrases(words, start - 1, subject[0]) if subject[0] > start else []
            phrases += [
                Phrase(a, b, a, "named") for a, b in noun_phrases(words, subject[1], verb)
                if words[a - 1].text == ","
            ]  # fmt: skip
        found.append(Clause(start, end, subject, verb, opener, phrases))
    return found


def noun_phrases(words: list[Token], start: int, end: int) -> list[tuple[int, int]]:
    """Ranges of noun phrases between two tokens, without prepositions.

    Args:
      words: tokens of a sentence.
      start, end: range of tokens.

    Returns:
      Ranges of tokens.
    """
    found = []
    i = start
    while i < end:
        tag = words[i].tag
        if tag == "PRON":
            found.append((i, i + 1))
            i += 1
            continue
        if tag != "DET" and tag not in _NOMINAL:
            i += 1
            continue
        j = i + (tag == "DET")
        while j < end and (
            words[j].tag in _NOMINAL
            or (words[j].low == "and" and _joined(words, i, j, end))
            or (words[j].tag == "ADV" and j == i + 1 and words[i].tag == "DET")
        ):
            tag_before = words[j - 1].tag
            if j > i and tag_before == "YEAR" and words[j].tag == "NAME":
                break
            if words[j].tag == "ING" and j > i and tag_before != "DET":
                beyond = words[j + 1].tag if j + 1 < end else "END"
                if beyond in ("DET", "NOUN", "NAME", "NUM", "PRON", "ED"):
                    break  # "a priest holding a book", not "the annual meeting"
            j += 1
        if j > i + (tag == "DET") or words[i].low in english.PRONOUNS:
            found.append((i, max(j, i + 1)))
        i = max(j, i + 1)
    return found


def _joined(words: list[Token], start: int, at: int, end: int) -> bool:
    """Whether "and" joins two names, two adjectives or two bare nouns in one phrase."""
    if not start < at < end - 1:
        return False
    left, right = words[at - 1].tag, words[at + 1].tag
    return left == right and left in ("NOUN", "NAME", "NUM", "YEAR")


def _segments(words: list[Token]) -> list[tuple[int, int, str]]:
    """Ranges that hold one finite verb each, and the word that opens each."""
    cuts: list[tuple[int, str, int]] = [(0, "", 0)]  # where, opener, tokens of the opener
    for i, word in enumerate(words):
        if i == 0 and word.tag not in ("SUB", "PREP"):
            continue
        comma = i > 0 and words[i - 1].text == ","
        if word.low == "as" and i and not comma:
            continue  # "as large as", "as a pledge"
        passes = word.tag == "SUB" or (word.tag == "CONJ" and comma)
        rest = _to_verb(words, i + 1, 2 if passes else 0)
        if _resumes(words, i, cuts):
            cuts.append((i, "", 0))
        elif word.low == "so" and i + 1 < len(words) and words[i + 1].low == "that":
            cuts.append((i, "so that", 2))
        elif word.tag in ("SUB", "REL") and rest is not None:
            if not (word.low == "that" and cuts[-1][1] == "so that" and i == cuts[-1][0] + 1):
                cuts.append((i, word.low, 1))
        elif word.low in ("since", "after", "before", "until", "for") and rest is not None:
            clear = any(
                t.tag in ("DET", "PRON", "NOUN", "NAME", "NUM") for t in words[i + 1 : rest]
            )
            if clear and (word.low != "for" or (i and words[i - 1].text == ",")):
                cuts.append((i, "because" if word.low == "for" else word.low, 1))
        elif word.text in (";", ":") and rest is not None:
            cuts.append((i, "", 1))
        elif word.low in ("and", "but", "or", "yet") and rest is not None:
            direct = words[i + 1].tag in FINITE or (words[i + 1].tag == "ADV" and rest == i + 2)
            if direct or (comma and _noun_led(words, i + 1, rest)):
                cuts.append((i, "", 1))
        elif (
            word.text == "," and rest is not None and cuts[-1][1]
            and words[i + 1].low not in ("and", "but", "or", "which", "who")
            and (_noun_led(words, i + 1, rest) or words[i + 1].tag in FINITE)
        ):  # fmt: skip
            cuts.append((i, "", 1))
    edges = [cut[0] for cut in cuts[1:]] + [len(words)]
    found: list[tuple[int, int, str]] = []
    for (at, opener, size), end in zip(cuts, edges):
        related = end < len(words) and words[end].tag == "REL"
        trimmed = ("POINT", "MARK", "CONJ", "PREP") if related else ("POINT", "MARK", "CONJ")
        while end > at + size and words[end - 1].tag in trimmed:
            end -= 1
        if end > at + size:
            found.append((at + size, end, opener))
    return found


def _to_verb(words: list[Token], start: int, commas: int = 0) -> int | None:
    """The finite verb that follows before another mark or opener; an apposition is passed."""
    for i in range(start, min(len(words), start + 14)):
        if words[i].tag in FINITE:
            return i
        if words[i].text == "," and commas and i > start:
            commas -= 1
        elif words[i].tag in ("SUB", "REL") or words[i].text in (";", ":", ","):
            return None
    return None


def _resumes(words: list[Token], at: int, cuts: list[tuple[int, str, int]]) -> bool:
    """Whether a main clause goes on here: "A keeper who misses a watch | loses the next leave"."""
    if words[at].tag not in FINITE or len(cuts) < 2 or cuts[-1][1] not in ("which", "who", "that"):
        return False
    inside = [w.tag for w in words[cuts[-1][0] : at] if w.tag in FINITE]
    before = [w.tag for w in words[cuts[-2][0] : cuts[-1][0]] if w.tag in FINITE]
    return bool(inside) and not before and words[at - 1].tag != "CONJ"


def _noun_led(words: list[Token], start: int, verb: int) -> bool:
    """Whether a noun phrase runs from here to the verb, so that a new subject starts."""
    return start < verb and any(
        first == start or words[start].tag in ("PREP", "ADV")
        for first, _ in noun_phrases(words, start, verb)[:1]
    )


def _subject(words: list[Token], start: int, verb: int) -> tuple[int, int] | None:
    """The noun phrase before the verb that no preposition leads, with what hangs on it."""
    for first, _ in noun_phrases(words, start, verb):
        lead = words[first - 1].tag if first > start else ""
        if lead in ("PREP", "INF", "ING") and words[first - 1].low != "of":
            continue
        if lead == "PREP":
            continue
        end = verb
        while end > first and words[end - 1].tag in ("ADV", "POINT"):
            end -= 1
        cut = next((i for i in range(first, end) if words[i].text == ","), end)
        if cut < end and cut > first:
            end = cut  # an apposition is left out
        return (first, end) if end - first <= 14 else None
    return None


def _phrases(words: list[Token], verb: int, end: int) -> list[Phrase]:
    """Noun phrases after the verb, with their prepositions; "to" and what it leads to."""
    found: list[Phrase] = []
    ranges = noun_phrases(words, verb + 1, end)
    for number, (first, last) in enumerate(ranges):
        prep = words[first - 1] if first > verb + 1 else None
        start = first
        if prep is not None and prep.tag == "PREP":
            start = first - 1
        if prep is not None and prep.low == "of" and found and found[-1].end == start:
            found[-1] = found[-1]._replace(end=last)  # "the spring of 1988"
            continue
        lead = words[start].low if start < first else ""
        if last - first == 1 and words[first].tag == "PRON":
            continue
        if found and start == first and prep is not None:
            near = found[-1].end == first - 1
            if prep.tag == "CONJ" and near and found[-1].kind != "named":
                found[-1] = found[-1]._replace(end=last)  # "blankets and flares"
                continue
            if prep.text == "," and near and _in_list(words, ranges[number:]):
                found[-1] = found[-1]._replace(end=last)  # "by John, Mary and Ann"
                continue
            if prep.text == "," or prep.low in CALLED:
                if words[first].tag in ("DET", "NAME") or words[last - 1].tag == "NAME":
                    found.append(Phrase(first, last, first, "named"))
                continue
        kind = kind_of(words, lead, first, last)
        if lead in _NO_CASE:
            continue
        if (
            kind == "time" and found and found[-1].end == start
            and found[-1].kind in ("time", "count") and found[-1].start < found[-1].head
        ):  # fmt: skip
            found[-1] = found[-1]._replace(end=last, kind="time")  # "at seven in the morning"
            continue
        found.append(Phrase(start, last, first, kind))
    for number, (phrase, after) in enumerate(itertools.pairwise(found)):
        # "with cotton soaked in vinegar" goes as a whole, and "in vinegar" for itself.
        led = after.start == phrase.end + 1 and phrase.kind != "named"
        if led and words[phrase.end].tag in ("PART", "ED") and words[phrase.end].low not in CALLED:
            found[number] = phrase._replace(end=after.end)
    for i in range(verb + 1, end - 1):
        if words[i].low == "to" and words[i + 1].tag == "INF":
            stop = next((j for j in range(i + 2, end) if words[j].text in ",;"), end)
            found.append(Phrase(i, stop, i + 1, "purpose"))
        elif words[i].low == "by" and words[i + 1].tag == "ING":
            stop = next((j for j in range(i + 2, end) if words[j].text in ",;"), end)
            found.append(Phrase(i, stop, i + 1, "manner"))
    return found


def _in_list(words: list[Token], ranges: list[tuple[int, int]]) -> bool:
    """Whether noun phrases go on with commas between them up to an "and"."""
    for (_, last), (first, _) in itertools.pairwise(ranges):
        conjunction = words[last].tag == "CONJ" or (
            words[last].text == "," and first == last + 2 and words[last + 1].tag == "CONJ"
        )
        if conjunction and first <= last + 2:
            return True
        if words[last].text != "," or first != last + 1:
            return False
    return False


def kind_of(words: list[Token], lead: str, first: int, last: int) -> str:
    """What a phrase answers.

    Args:
      words: tokens of a sentence.
      lead: its preposition, or "".
      first, last: range of the tokens after the preposition.

    Returns:
      The kind of a `Phrase`.
    """
    inside = words[first:last]
    final = inside[-1].low
    head = english.singular(final)
    if any(word.tag == "YEAR" for word in inside) and lead not in ("by",):
        return "year"
    if inside[0].low in ("every", "each") and (head in english.TIMES or _numbered(inside)):
        return "often"
    if head in english.DURATIONS | english.SEASONS and any(word.tag == "NUM" for word in inside):
        return "duration"
    if any(english.singular(word.low) in english.TIMES for word in inside) and lead in (
        "in", "on", "at", "from", "until", "till", "by", "since", "before", "after", "during", "",
    ):  # fmt: skip
        return "time"
    if any(word.tag == "NUM" for word in inside):
        return "time" if lead == "at" and inside[-1].tag == "NUM" else "count"
    person = _person(inside)
    if person and (lead in ("by", "", "to", "with", "for", "from", "under")):
        return "who"
    if lead in english.PLACES or (lead in ("to", "from") and not person):
        return "place"
    if lead == "for":
        return "purpose"
    if lead == "with":
        return "manner"
    return "what"


def _numbered(inside: list[Token]) -> bool:
    return any(word.tag == "NUM" for word in inside)


def _person(inside: list[Token]) -> bool:
    names = [word for word in inside if word.tag == "NAME"]
    if any(english.singular(word.low) in english.PEOPLE for word in inside):
        return True
    last = english.singular(inside[-1].low.rstrip("'’"))
    return (
        len(names) in (2, 3)
        and len(inside) == len(names)
        and (last not in english.PLACE_NAMES | english.GROUPS | english.TIMES)
    )
