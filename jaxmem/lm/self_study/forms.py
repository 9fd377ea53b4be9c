"""Questions that leave out a phrase of a clause, or ask for its reason or condition."""

import random
import re

from jaxmem.lm.self_study import english
from jaxmem.lm.self_study.clauses import (
    CAUSAL,
    Clauses,
    head_word,
    lowered,
    stopped,
    words_for,
)
from jaxmem.lm.self_study.phrases import Clause, Phrase, kind_of, noun_phrases
from jaxmem.lm.self_study.tagging import CALLED

_BE_LIKE = english.BE | english.MODALS
_HAVE = frozenset(("has", "have", "had"))
_HOW = {  # kinds of phrases: their question words without a preposition
    "year": ("When", "In which year", "In what year"),
    "time": ("When", "At what time"),
    "often": ("How often", "At what interval"),
    "duration": ("How long", "For how long"),
    "who": ("Who", "Whom"),
    "place": ("Where", "In which place"),
    "purpose": ("Why", "For what purpose", "For what reason", "With what aim"),
    "manner": ("How", "In what way", "By what means"),
    "what": ("What",),
}
_WHY = ("Why", "For what reason", "Why is it that", "How come", "What is the reason that")
_WHEN = ("When", "In what case", "Under what condition", "On what occasion")
_WHAT_IF = ("What happens {x}?", "What is the case {x}?", "What does the text say happens {x}?",
            "What follows {x}?")  # fmt: skip


def question(
    parts: Clauses, rng: random.Random, number: int, phrase: Phrase, second: Phrase | None
) -> str | None:
    """A question that leaves out a phrase, or two."""
    clause = parts.clauses[number]
    if phrase.kind == "subject":
        return _subject_question(parts, rng, number, phrase)
    if phrase.kind == "named":
        return _named(parts, rng, number, phrase)
    apart = _apart(parts, number, phrase)
    if apart is not None and second is None:
        return apart
    out = [phrase] + ([second] if second else [])
    by_whom = phrase.kind == "who" and parts.words[phrase.start].low == "by"
    if by_whom and second is None and rng.random() < 0.6:
        active = _active(parts, rng, number, phrase)
        if active:
            return active
    if second is None and rng.random() < 0.12:
        return _in_place(parts, number, phrase)
    asked, measure = _asked(parts, rng, phrase, clause)
    body = _inverted(parts, rng, number, out, measure)
    if body is None:
        return None
    tail = ""
    if second is not None:
        word, _ = _asked(parts, rng, second, clause)
        tail = f", and {word[:1].lower()}{word[1:]}"
    named = measure and rng.random() < 0.4
    if named and measure in english.MEASURES and not second:
        return f"What is the {english.MEASURES[measure]} of {parts.subjects[number]}?"
    return f"{asked} {body}{tail}?"


def linked(parts: Clauses, rng: random.Random, main: int, other: int) -> tuple[str, str] | None:
    """A question for a reason, a purpose or a condition, or for what comes of it."""
    clause = parts.clauses[other]
    opener, body = clause.opener, parts.told(other, [], False)
    told = parts.told(main, [], False)
    if not body or not told:
        return None
    reason = f"{opener} {lowered(body, parts.names)}"
    causal = opener in CAUSAL or (opener == "since" and not re.match(r"(?:in )?\d{4}\b", body))
    if causal:
        wh = rng.choice(_WHY if opener != "so that" else (*_HOW["purpose"], "Why"))
    else:
        wh = rng.choice(_WHEN)
        if rng.random() < 0.5:
            return rng.choice(_WHAT_IF).format(x=reason), stopped(told)
    if wh.endswith("that") or wh == "How come":
        question = f"{wh} {lowered(told, parts.names)}?"
    else:
        inverted = _inverted(parts, rng, main, [], "", drop=0.4)
        if inverted is None:
            return None
        question = f"{wh} {inverted}?"
    draw = rng.random()
    if draw < 0.5:
        return question, stopped(reason)
    if draw < 0.7:
        return question, stopped(body)
    both = f"{told}, {reason}" if opener != "so that" else f"{told} {reason}"
    if draw < 0.9 and len(both.split()) <= 26:
        return question, stopped(both)
    return question, stopped(reason)


def _subject_question(parts: Clauses, rng: random.Random, number: int, phrase: Phrase) -> str:
    clause = parts.clauses[number]
    inside = parts.words[phrase.head : phrase.end]
    first, last = noun_phrases(parts.words, phrase.start, phrase.end)[0]
    kind = kind_of(parts.words, "", first, last)
    head = parts.words[last - 1].text
    asked = "Who" if kind == "who" else "What"
    if kind == "count":
        numbers = [i for i in range(first, last) if parts.words[i].tag == "NUM"]
        after = parts.slice(numbers[-1] + 1, last) if numbers else ""
        asked = f"How many {after}" if after else "How many"
    elif (
        last - first > 1 + (inside[0].tag == "DET")
        and rng.random() < 0.5
        and parts.words[last - 1].tag == "NOUN"
    ):
        asked = f"Which {head}" if kind != "who" or rng.random() < 0.5 else "Who"
    elif inside[0].tag == "NAME" and rng.random() < 0.3 and kind != "who":
        asked = f"Which {head.lower()}" if head.lower() in english.PLACE_NAMES else "What"
    lead = parts.slice(phrase.end, clause.verb) if phrase.end <= clause.verb else ""
    lead = lead if re.fullmatch(r"[\w\s]*", lead) else ""
    dropped = _some(parts, rng, clause, [], 0.35)
    rest = parts.without(clause.verb, clause.end, dropped)
    return f"{asked} {lead} {rest}?"


def _active(parts: Clauses, rng: random.Random, number: int, phrase: Phrase) -> str | None:
    """ "Who finished the tower in 1868?" from "The tower was finished in 1868 by ..."."""
    clause = parts.clauses[number]
    at = clause.verb
    while at < clause.end and parts.words[at].tag != "PART":
        at += 1
    if at >= clause.end or parts.words[clause.verb].low not in english.BE:
        return None
    past = english.past_of_participle(parts.words[at].text)
    if past is None or at - clause.verb > 2:
        return None
    dropped = [phrase, *_some(parts, rng, clause, [phrase], 0.4)]
    rest = parts.without(at + 1, clause.end, dropped)
    return f"Who {past} {parts.subjects[number]} {rest}?"


def _named(parts: Clauses, rng: random.Random, number: int, phrase: Phrase) -> str | None:
    """ "Who is the cook?" of "the cook, Peter Holm", "What is the float called?"."""
    told = parts.told_of(number, phrase)
    if not told:
        return None
    lead = parts.words[phrase.start - 1].low
    past = parts.words[parts.clauses[number].verb].low
    be = "was" if past in ("was", "were") or past.endswith("ed") else "is"
    named = parts.words[phrase.end - 1].tag == "NAME" and rng.random() < 0.3
    if lead in CALLED or named:
        asked = rng.choice(("What", "By what name"))
        return f"{asked} {be} {told} {lead if lead in CALLED else 'called'}?"
    who = kind_of(parts.words, "", phrase.start, phrase.end) == "who"
    return f"{'Who' if who else 'What'} {be} {told}?"


def _apart(parts: Clauses, number: int, phrase: Phrase) -> str | None:
    """ "By whom is the launch commanded?" of "a launch commanded by Ruth Marsh"."""
    clause, at = parts.clauses[number], phrase.start - 1
    if at <= clause.verb + 1 or parts.words[at].tag not in ("PART", "ED", "VERB"):
        return None
    if phrase.start == phrase.head or parts.words[at - 1].tag not in ("NOUN", "NAME", "POINT"):
        return None
    nouns = noun_phrases(parts.words, clause.start, at)
    if not nouns:
        return None
    first, last = nouns[-1]
    if first and parts.words[first - 1].low == "of" and len(nouns) > 1:
        first = nouns[-2][0]
    told = words_for(parts.slice(first, last), parts.names)
    be = "are" if english.plural(head_word(told)) else "is"
    asked = "whom" if phrase.kind == "who" else "what"
    if phrase.kind in ("year", "time"):
        return f"When was {told} {parts.words[at].text}?"
    return f"{parts.slice(phrase.start, phrase.head)} {asked} {be} {told} {parts.words[at].text}?"


def _in_place(parts: Clauses, number: int, phrase: Phrase) -> str:
    """The clause as it stands, with a question word where the phrase was."""
    clause = parts.clauses[number]
    lead = parts.slice(phrase.start, phrase.head)
    wh = {"who": "whom", "year": "which year", "count": "how many", "time": "what time",
          "duration": "how long", "often": "how often"}.get(phrase.kind, "what")  # fmt: skip
    if phrase.kind == "count":
        after = _after_number(parts, phrase)
        wh = f"how many {after}" if after else "what number"
    if phrase.kind in ("purpose", "manner") and lead.lower() in ("to", "by"):
        lead, wh = "", "for what purpose" if phrase.kind == "purpose" else "how"
    if phrase.end <= clause.verb:  # it stood in front
        rest = parts.slice(clause.verb, clause.end)
        return f"{lead} {wh} {parts.subjects[number]} {rest}?"
    left = parts.slice(clause.verb, phrase.start)
    right = parts.slice(phrase.end, clause.end) if phrase.end < clause.end else ""
    return f"{parts.subjects[number]} {left} {lead} {wh} {right}?"


def _asked(parts: Clauses, rng: random.Random, phrase: Phrase, clause: Clause) -> tuple[str, str]:
    """Question words for a phrase, and the measure ("tall") that they took up, or ""."""
    lead = parts.slice(phrase.start, phrase.head)
    kind = phrase.kind
    if kind == "count":
        return _how_many(parts, rng, phrase, lead)
    if kind in ("purpose", "manner"):
        if lead.lower() in ("to", "by"):
            return rng.choice(_HOW[kind]), ""
        return rng.choice((f"{lead} what", *_HOW[kind][:2])), ""
    if kind == "duration" and lead.lower() in ("within", "in"):
        return rng.choice(("How soon", f"{lead} what time")), ""
    if kind == "duration" and lead.lower() in ("before", "after", "until", "at", "by"):
        return f"{lead} what time", ""
    if kind in ("time", "year") and lead.lower() in ("since", "until", "till", "before",
                                                     "after", "from", "by"):  # fmt: skip
        return f"{lead} when", ""
    if kind == "time":
        last = parts.words[phrase.end - 1].low
        inside = {english.singular(w.low) for w in parts.words[phrase.head : phrase.end]}
        if inside & english.DAYS and lead.lower() == "on":
            return rng.choice(("When", "On which day")), ""
        if last in english.MONTHS and lead.lower() == "in":
            return rng.choice(("When", "In which month")), ""
        return "When", ""
    if kind in ("place", "who") and lead.lower() not in ("", "in", "at", "on"):
        whom = "whom" if kind == "who" else rng.choice(("what", f"which {_head(parts, phrase)}"))
        options = [f"{lead} {whom}"] + (["Where"] if kind == "place" else [])
        if kind == "place" and lead.lower() == "from":
            options = ["From where", f"{lead} {whom}"]
        return rng.choice(options), ""
    if kind == "place":
        return rng.choice(("Where", "Where", f"{lead} what", f"{lead} which place")), ""
    if kind == "what":
        head = _head(parts, phrase)
        nouns = parts.words[phrase.head : phrase.end]
        several = len(nouns) > 1 + (nouns[0].tag == "DET") and not any(
            word.low in ("and", "or") for word in nouns
        )
        wh = rng.choice(("what", f"which {head}", f"what kind of {head}") if several else ("what",))
        return (f"{lead} {wh}" if lead else wh), ""
    return rng.choice(_HOW[kind]), ""


def _how_many(parts: Clauses, rng: random.Random, phrase: Phrase, lead: str) -> tuple[str, str]:
    after = _after_number(parts, phrase)
    last = after.split()[-1].lower() if after else ""
    front = f"{lead} " if lead else ""
    if last in english.MEASURES:
        return f"How {last}", last
    unit = english.singular(last)
    if unit in english.MONEY:
        return rng.choice((f"{front}how many {after}", f"{front}how much")), ""
    if unit in ("mile", "kilometre", "league") and rng.random() < 0.5:
        return "How far", ""
    if last in ("percent", "per"):
        return f"{front}what percentage", ""
    return (f"{front}how many {after}" if after else f"{front}what number"), ""


def _after_number(parts: Clauses, phrase: Phrase) -> str:
    numbers = [i for i in range(phrase.head, phrase.end) if parts.words[i].tag in ("NUM", "YEAR")]
    if not numbers or numbers[-1] + 1 >= phrase.end:
        return ""
    return parts.slice(numbers[-1] + 1, phrase.end)


def _head(parts: Clauses, phrase: Phrase) -> str:
    """The noun of a phrase: "container" of "the purple container for study"."""
    nouns = noun_phrases(parts.words, phrase.head, phrase.end)
    word = parts.words[(nouns[0][1] if nouns else phrase.end) - 1].text
    return word.lower() if word.lower() in english.PLACE_NAMES | english.GROUPS else word


def _inverted(
    parts: Clauses,
    rng: random.Random,
    number: int,
    out: list[Phrase],
    measure: str,
    drop: float = 0.35,
) -> str | None:
    """ "was the tower finished by Arthur Finch", "do the staff depend", without phrases."""
    clause, subject = parts.clauses[number], parts.subjects[number]
    if not subject:
        return None
    at, word = clause.verb, parts.words[clause.verb]
    following = parts.words[at + 1].tag if at + 1 < clause.end else ""
    dropped = [*out, *_some(parts, rng, clause, out, drop)]
    rest = parts.without(at + 1, clause.end, dropped)
    lead = parts.slice(clause.subject[1], at) if clause.subject else ""
    lead = lead if re.fullmatch(r"[\w\s]*", lead) else ""
    if (
        word.low in _BE_LIKE
        or (word.low in _HAVE and following in ("PART", "ADV"))
        or (word.low in ("do", "does", "did") and following in ("INF", "NOUN", "ADV"))
    ):
        auxiliary = word.text
    else:
        base = english.lemma(word.low)
        if base is None and word.low.endswith("ed"):
            base = word.low[:-2]
        if base is None:
            return None
        rest = f"{base} {rest}"
        auxiliary = _support(word.low, base, subject)
    return f"{auxiliary} {subject} {lead} {rest}"


def _some(
    parts: Clauses, rng: random.Random, clause: Clause, out: list[Phrase], share: float
) -> list[Phrase]:
    """Phrases with prepositions that a question does without."""
    return [
        phrase for phrase in clause.phrases
        if phrase.start > clause.verb and phrase.start < phrase.head and phrase not in out
        and all(phrase.end <= one.start or one.end <= phrase.start for one in out)
        and not any(
            one is not phrase and one.start <= phrase.start and phrase.end <= one.end
            for one in clause.phrases
        )
        and rng.random() < share
    ]  # fmt: skip


def _support(word: str, base: str, subject: str) -> str:
    """ "did", "does" or "do" before a base form."""
    head = head_word(subject)
    many = english.plural(head) or " and " in subject or subject in ("they", "we", "you")
    if word != base and (word.endswith("ed") or word in english.past_forms()):
        return "did"
    if word != base:
        return "does"
    return "do" if many or base not in english.past_forms() else "did"
