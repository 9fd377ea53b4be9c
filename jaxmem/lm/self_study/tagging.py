"""Words of a sentence with guessed parts of speech."""

import re
from typing import NamedTuple

from jaxmem.lm.self_study import english

_TOKEN = re.compile(
    r"""(?:Mr|Mrs|Ms|Dr|St|Prof|Capt|Gen|Col|Lt|Sgt|Rev|Mt)\.(?=\s)  # a title is part of a name
    | [A-Z]\.(?=\s?[A-Z])  # so is an initial
    | \d+(?:[.,:]\d+)* | [^\W\d_]+(?:[-'’][^\W\d_]+)*['’]? | [^\w\s] | _+""",
    re.VERBOSE,
)
_YEAR = re.compile(r"1\d{3}|20\d\d")
_ADJECTIVES = frozenset(("outside", "inside", "past", "opposite", "off", "over", "under"))
_ROUGHLY = frozenset(("about", "around", "roughly", "nearly", "almost", "exactly", "barely"))
CALLED = frozenset(("called", "named", "nicknamed"))
_POINT = frozenset(",;:—–()")
FINITE = frozenset(("AUX", "MODAL", "VERB"))
_BREAKS = frozenset(("SUB", "REL", "CONJ", "POINT", "MARK"))


class Token(NamedTuple):
    """A word, a number or a mark of a sentence.

    text: its characters.
    start, end: its range in the sentence.
    tag: a guess at what it is.
    """

    text: str
    start: int
    end: int
    tag: str

    @property
    def low(self) -> str:
        return self.text.lower()


def tokens(
    sentence: str, lower: frozenset[str] = frozenset(), names: frozenset[str] = frozenset()
) -> list[Token]:
    """Words and marks with guessed parts of speech.

    Args:
      sentence: one sentence.
      lower: words that the document has without a capital: at its start they are no names.
      names: words that it has with a capital within sentences: at its start they may be.

    Returns:
      Its tokens.
    """
    found: list[Token] = []
    for match in _TOKEN.finditer(sentence):
        before = found[-1] if found else None
        first = not found and not _named_first(sentence, match, lower, names)
        tag = _tag(match.group(), before, first, found)
        found.append(Token(match.group(), match.start(), match.end(), tag))
    return _corrected(found)


def _named_first(
    sentence: str, match: re.Match[str], lower: frozenset[str], names: frozenset[str]
) -> bool:
    """Whether the first word of a sentence is a name, by the document and the word after it."""
    word, following = match.group(), _TOKEN.search(sentence, match.end())
    if _closed(word.lower()):
        return False
    named = following is not None and following.group()[:1].isupper()
    return named or (word in names and word.lower() not in lower)


def _tag(text: str, before: Token | None, first: bool, found: list[Token]) -> str:
    low = text.lower()
    previous = before.tag if before else "START"
    if not text[0].isalnum():
        return "POINT" if text in _POINT else "MARK"
    if text[0].isdigit():
        return "YEAR" if _YEAR.fullmatch(text) and previous != "DET" else "NUM"
    if low in english.NUMBERS or low.split("-")[0] in english.NUMBERS:
        return "NUM" if low not in ("second",) else "NOUN"
    if text[0].isupper() and not first:
        named = low in english.MODALS and previous in ("PREP", "DET", "NUM", "CONJ")
        if named or not _closed(low):
            return "NAME"
    if low == "that" and previous in ("NOUN", "NAME", "PRON"):
        return "REL"
    if low == "that" and previous in ("VERB", "AUX"):
        return "SUB"
    if low in ("her", "his", "their", "its", "my", "our", "your") or low in english.DETERMINERS:
        return "DET"
    if low.endswith(("n't", "n’t")):
        return "AUX" if low[:-3] in english.AUXILIARIES else "MODAL"
    if low in english.BE or low in english.AUXILIARIES:
        return "AUX"
    if low in english.MODALS:
        return "MODAL"
    if low in ("which", "who", "whose", "whom"):
        return "REL"
    if low in english.CONJUNCTIONS:
        return "CONJ"
    if low in english.PRONOUNS:
        return "PRON"
    if low in english.SUBORDINATORS and low not in english.PREPOSITIONS:
        return "SUB"
    if (
        low == "past"
        and before is not None
        and (before.low in ("half", "quarter") or previous == "NUM")
    ):
        return "NOUN"
    if low in english.PREPOSITIONS:
        return "NOUN" if previous == "DET" and low in _ADJECTIVES else "PREP"
    if low in ("be", "been"):
        return "INF" if low == "be" else "PART"
    if low in english.ADVERBS or (low.endswith("ly") and len(low) > 4):
        return "ADV"
    return _verb_or_noun(low, before, found)


def _verb_or_noun(low: str, before: Token | None, found: list[Token]) -> str:
    previous = before.tag if before else "START"
    base = english.lemma(low)
    if before is not None and before.low == "to":
        return "INF" if base == low else "NOUN"
    if low.endswith("ing") and (base or len(low) > 5) and low not in english.NOUNS:
        return "ING"
    governed = next((t for t in reversed(found) if t.tag not in ("ADV",)), None)
    modal = governed is not None and (
        governed.tag in ("MODAL", "AUX") or governed.low in ("be", "been", "being")
    )
    if low in CALLED and previous in ("NOUN", "NAME"):
        return "PART"
    if base is None:
        if low.endswith("ed") and len(low) > 4:
            if modal or previous in ("NOUN", "NAME", "PRON", "REL", "ADV"):
                return "PART" if modal else "VERB"
            return "ED"
        return "NOUN"
    if modal:
        if governed is not None and governed.tag == "MODAL":
            return "INF" if low == base else "NOUN"
        done = low.endswith("ed") or low in english.participles()
        return "PART" if done else "NOUN"
    done = low.endswith("ed") or low in english.past_forms() or low in english.participles()
    if previous in ("NOUN", "NAME", "PRON", "REL", "ADV", "YEAR"):
        # "a yellow tag", "its last visit": a plain form after a singular is a noun.
        plain = low == base and low not in english.past_forms() and previous in ("NOUN", "NAME")
        parallel = any(token.low == "and" for token in found[-4:])
        one = before is not None and not english.plural(before.text)
        if plain and _pending(found):
            return "VERB"  # "members who deliver milk elsewhere lose"
        return "NOUN" if plain and one and not parallel else "VERB"
    if previous == "NUM":
        return "VERB" if done else "NOUN"
    if previous in ("CONJ", "POINT") and (done or low != base):
        # "and carried", "but falls": not "and blankets" after a noun of the same form.
        verbs = any(t.tag in FINITE | {"PART"} for t in found)
        if done and verbs:
            return "VERB"
        lists = before is not None and len(found) > 1 and english.plural(found[-2].text)
        return "VERB" if verbs and low != base and not lists else "NOUN"
    return "ED" if done and previous != "PREP" else ("PART" if done else "NOUN")


def _corrected(words: list[Token]) -> list[Token]:
    """Second looks: nouns that were taken for verbs because of the noun before them."""
    for i, word in enumerate(words):
        after = words[i + 1].tag if i + 1 < len(words) else "END"
        if word.low in _ROUGHLY and after == "NUM":
            words[i] = word._replace(tag="NUM")  # "about ten" is a number too
        if word.low == "no" and after == "ADV":
            words[i] = word._replace(tag="ADV")  # "no longer"
        if word.tag == "NOUN" and i and words[i - 1].text == ",":
            base = english.lemma(word.low)
            waits = not any(token.tag in FINITE for token in words[:i])
            if (
                base
                and base != word.low
                and waits
                and after in ("DET", "NUM", "PREP", "PRON", "NAME")
            ):
                words[i] = word = word._replace(tag="VERB")  # "the keeper, Agnes Moore, publishes"
        if word.tag != "VERB":
            continue
        done = word.low.endswith("ed") or word.low in english.past_forms() | english.participles()
        # "the fog horn is", "the tide laboratory occupies": a finite verb follows at once.
        follows = next((w.tag for w in words[i + 1 :] if w.tag in FINITE | _BREAKS), "")
        if done and after == "PREP" and follows in FINITE:
            words[i] = word._replace(tag="PART")  # "a person caught by the sea should climb"
        elif (
            not done and words[i - 1].tag != "CONJ"
            and _had_finite(words, i) and not _pending(words[:i])
        ):  # fmt: skip
            words[i] = word._replace(tag="NOUN")  # "gives four white flashes"
        elif after in FINITE and not done:
            words[i] = word._replace(tag="NOUN")
        elif done and _had_finite(words, i) and after in ("PREP", "END", "MARK"):
            words[i] = word._replace(tag="PART")  # "a launch commanded by"
    return words


def _pending(found: list[Token]) -> bool:
    """Whether a relative clause has its verb and the clause around it still waits for one."""
    for i, word in enumerate(found):
        if word.tag in FINITE:
            return False
        if word.tag == "REL":
            inside = [token.tag for token in found[i:] if token.tag in FINITE]
            return len(inside) == 1 and found[-1].tag not in ("CONJ",)
    return False


def _had_finite(words: list[Token], at: int) -> bool:
    """Whether the clause already has its verb: no mark or subordinator since."""
    for word in reversed(words[:at]):
        if word.tag in ("SUB", "REL", "CONJ") or word.text in (";", ":", ","):
            return False
        if word.tag in FINITE:
            return True
    return False


def _closed(low: str) -> bool:
    return (
        low in english.DETERMINERS
        or low in english.PREPOSITIONS
        or low in english.PRONOUNS
        or low in english.CONJUNCTIONS
        or low in english.SUBORDINATORS
        or low in english.RELATIVES
        or low in english.AUXILIARIES
        or (low in english.MODALS and low not in english.MONTHS)
        or low in english.ADVERBS
    )
