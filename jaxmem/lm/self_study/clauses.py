"""Clauses of a sentence in words: their subjects, and short answers made of them."""

import random
import re
from functools import lru_cache

from jaxmem.lm.self_study import english
from jaxmem.lm.self_study.phrases import Clause, Phrase, clauses, kind_of, noun_phrases
from jaxmem.lm.self_study.tagging import Token

CAUSAL = frozenset(("because", "so that"))
_TIMELY = english.listed("when if after before until unless while once whenever since although")


class Clauses:
    """Clauses of one sentence and what can be asked about them.

    Attributes:
      text: the sentence.
      words: its tokens.
      clauses: its clauses.
      askable: (number of a clause, phrase of it) that a question can leave out.
      links: (number of a main clause, number of the clause that gives its reason or condition).
      topic: its subject as later sentences mean it by "it", or "".
      names: words of names, which keep their capitals.
    """

    def __init__(self, text: str, words: list[Token], before: str) -> None:
        self.text, self.words = text, words
        self.names = frozenset(word.text.rstrip(".") for word in words if word.tag == "NAME")
        self._before = before
        self.clauses = clauses(words) if words else []
        self.subjects: list[str] = []
        for number, clause in enumerate(self.clauses):
            self.subjects.append(self._subject(number, clause))
        self.askable = [
            (number, phrase)
            for number, clause in enumerate(self.clauses)
            if self.subjects[number]
            for phrase in clause.phrases
            if self._worth(phrase)
        ]
        self.links = self._links()
        main = next((n for n, clause in enumerate(self.clauses) if not clause.opener), None)
        self.topic = self.subjects[main] if main is not None else ""

    def phrase(self, phrase: Phrase) -> str:
        """The words of a phrase, its subject pronouns resolved."""
        text = self.slice(phrase.start, phrase.end)
        return self._resolved(text) if phrase.kind == "subject" else lowered(text, self.names)

    def is_person(self, topic: str) -> bool:
        """Whether a noun phrase of the sentence names a person."""
        for first, last in noun_phrases(self.words, 0, len(self.words)):
            if self.slice(first, last) == topic:
                return kind_of(self.words, "", first, last) == "who"
        return False

    def rewordings(self, number: int, phrase: Phrase) -> list[str]:
        """Other short answers that say a phrase: "It was Arthur Finch", "A height of 41 metres"."""
        bare, inner = self.phrase(phrase), self.slice(phrase.head, phrase.end)
        lead = self.slice(phrase.start, phrase.head).lower()
        past = self.words[self.clauses[number].verb].low in ("was", "were", "had") or (
            self.words[self.clauses[number].verb].low.endswith("ed")
        )
        be = "was" if past else "is"
        if phrase.kind == "who" and lead in ("by", ""):
            return [inner, f"It {be} {inner}"]
        if phrase.kind == "subject":
            many = english.plural(head_word(bare)) or " and " in bare
            be = f"They {'were' if past else 'are'}" if many else f"It {be}"
            return [f"{be} {lowered(bare, self.names)}"]
        if phrase.kind == "year" and lead == "in":
            return [f"It {be} {bare}", f"In the year {inner}"]
        if phrase.kind in ("time", "place", "often", "duration") and lead:
            return [f"It {be} {lowered(bare, self.names)}"]
        if phrase.kind == "count":
            last = inner.split()[-1].lower()
            if last in english.MEASURES:
                rest = inner.rsplit(" ", 1)[0]
                return [f"It {be} {rest}", f"A {english.MEASURES[last]} of {rest}"]
            return [f"There {'were' if past else 'are'} {inner}"] if not lead else [inner]
        if phrase.kind == "named":
            told = self.told_of(number, phrase)
            return [f"{told} {be} {inner}"] if told else []
        return []

    def onward(self, phrase: Phrase, number: int) -> str:
        """A phrase and all that follows it in its clause."""
        end = self.clauses[number].end
        if phrase.kind == "subject" or end - phrase.start > 20:
            return ""
        return self.slice(phrase.start, end)

    def with_other(self, rng: random.Random, number: int, phrase: Phrase) -> str:
        """A phrase and another one of its clause: "In 1868, by Arthur Finch"."""
        others = [
            other for place, other in self.askable
            if place == number and other.start >= phrase.end and other.start < other.head
        ]  # fmt: skip
        if not others or phrase.kind == "subject":
            return ""
        return f"{self.phrase(phrase)}, {self.phrase(rng.choice(others))}"

    def short(self, rng: random.Random, number: int, phrase: Phrase, *, pronoun: bool) -> str:
        """A short sentence that holds a phrase and leaves others out: "It is 41 metres tall"."""
        clause = self.clauses[number]
        dropped = [
            other for other in clause.phrases
            if other.kind != "subject" and other.start > clause.verb and other.start < other.head
            and (other.end <= phrase.start or phrase.end <= other.start) and rng.random() < 0.7
            and not any(
                one is not other and one.start <= other.start and other.end <= one.end
                for one in clause.phrases
            )
        ]  # fmt: skip
        return self.told(number, dropped, pronoun)

    def whole(self, number: int, *, pronoun: bool) -> str:
        """A clause as a sentence of its own."""
        return self.told(number, [], pronoun)

    def _links(self) -> list[tuple[int, int]]:
        found = []
        mains = [
            n for n, clause in enumerate(self.clauses) if not clause.opener and self.subjects[n]
        ]
        for number, clause in enumerate(self.clauses):
            if clause.opener in CAUSAL | _TIMELY and mains:
                before = [main for main in mains if main < number]
                main = before[-1] if before else mains[0]
                if self.subjects[number]:
                    found.append((main, number))
        return found

    def _worth(self, phrase: Phrase) -> bool:
        inside = self.words[phrase.head : phrase.end]
        number = all(word.tag in ("NUM", "ADV", "DET") for word in inside)
        if (
            number
            and phrase.kind == "count"
            and self.words[phrase.start - 1].tag in ("CONJ", "POINT")
        ):
            return False  # "and nineteen in summer"
        return any(word.tag not in ("DET", "PRON", "ADV", "CONJ") for word in inside)

    def _subject(self, number: int, clause: Clause) -> str:
        """The subject in words: its own, that of the clause before, or what "which" stands for."""
        if clause.subject is not None:
            return self._resolved(self.slice(*clause.subject))
        if clause.opener in ("which", "who", "that"):
            edge = clause.start - 1
            nouns = noun_phrases(self.words, max(0, edge - 12), edge)
            if nouns and self.words[nouns[-1][0]].tag == "PRON":
                return ""
            if nouns:
                first, last = nouns[-1]
                # "an instrument of brass, which": what "of" hangs on is meant.
                if first and self.words[first - 1].low == "of" and len(nouns) > 1:
                    first = nouns[-2][0]
                return words_for(self.slice(first, last), self.names)
            return ""
        for earlier in range(number - 1, -1, -1):
            if self.clauses[earlier].opener in ("", clause.opener):
                return self.subjects[earlier]
        return ""

    def _resolved(self, subject: str) -> str:
        """A subject as a question names it, pronouns by what the sentence before was about."""
        low = subject.lower()
        if low in ("it", "he", "she", "they", "this", "these"):
            return self._before if self._agrees(low) else low
        first, _, rest = subject.partition(" ")
        if first.lower() in ("its", "his", "her", "their") and rest and self._before:
            agrees = self._agrees(first.lower())
            if agrees and len(self._before.split()) <= 4 and " of " not in rest:
                return f"the {rest} of {self._before}"
            return f"the {rest}"
        return words_for(subject, self.names)

    def _agrees(self, pronoun: str) -> bool:
        """Whether a pronoun can stand for what the sentence before was about, by number."""
        if not self._before:
            return False
        many = english.plural(head_word(self._before)) or " and " in self._before
        return many == (pronoun in ("they", "these", "their"))

    def _pronoun(self, number: int) -> str:
        """A pronoun for a subject, by its number; names of persons stay."""
        subject = self.subjects[number]
        verb = self.words[self.clauses[number].verb].low
        head = head_word(subject)
        if subject[:1].isupper() and len(subject.split()) == 2:
            return subject
        if verb in ("are", "were", "have", "do") or english.plural(head) or " and " in subject:
            return "they"
        small = subject.split()
        person = any(english.singular(word.lower()) in english.PEOPLE for word in small)
        return subject if person else "it"

    def told(self, number: int, dropped: list[Phrase], pronoun: bool) -> str:
        clause, subject = self.clauses[number], self.subjects[number]
        if not subject:
            return ""
        told = self._pronoun(number) if pronoun else subject
        lead = self.slice(clause.subject[1], clause.verb) if clause.subject else ""
        fronted = [] if clause.subject is None else [
            p for p in clause.phrases if p.end <= clause.subject[0] and p.kind != "subject"
        ]  # fmt: skip
        front = ""
        if fronted:
            front = self.slice(fronted[0].start, fronted[-1].end)
        said = self.slice(clause.verb, clause.verb + 1)
        rest = self.without(clause.verb + 1, clause.end, dropped)
        if lead and (pronoun or not re.fullmatch(r"[\w\s]*", lead)):
            lead = ""
        return spaced(f"{told} {lead} {said} {rest} {lowered(front, self.names)}")

    def told_of(self, number: int, phrase: Phrase) -> str:
        """The noun phrase that an apposition stands beside."""
        clause = self.clauses[number]
        nouns = noun_phrases(self.words, clause.start, phrase.start)
        if clause.subject is not None and not nouns:
            return self.subjects[number]
        if not nouns:
            return ""
        first, last = nouns[-1]
        if first and self.words[first - 1].low == "of" and len(nouns) > 1:
            first = nouns[-2][0]
        return words_for(self.slice(first, last), self.names)

    def without(self, start: int, end: int, dropped: list[Phrase]) -> str:
        """The words of a range without some phrases."""
        kept, at = [], start
        for phrase in sorted(dropped, key=lambda phrase: phrase.start):
            if phrase.start >= at:
                kept.append(self.slice(at, phrase.start))
                at = phrase.end
        kept.append(self.slice(at, end))
        return _trimmed(" ".join(part for part in kept if part))

    def slice(self, start: int, end: int) -> str:
        if start >= end:
            return ""
        return self.text[self.words[start].start : self.words[end - 1].end]


def words_for(phrase: str, names: frozenset[str]) -> str:
    """A noun phrase as a question names it: "A boy" is "the boy", "its lens" "the lens".

    Args:
      phrase: its words.
      names: words that keep their capitals.

    Returns:
      The words.
    """
    first, _, rest = phrase.partition(" ")
    if rest and first.lower() in ("a", "an", "its", "his", "her", "their", "this", "these", "each"):
        return f"the {rest}"
    return lowered(phrase, names)


@lru_cache(2**13)  # the same few words of a sentence are asked for again and again
def spaced(text: str) -> str:
    """Words with one space between them and none before a mark.

    Args:
      text: words and marks.

    Returns:
      The text.
    """
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"\s+([,;:?!.])", r"\1", re.sub(r"[,;:]\s*([?])", r"\1", text))


@lru_cache(2**13)
def _trimmed(text: str) -> str:
    """Without what joined it to words that were left out."""
    text = re.sub(r"^(?:and|or|,)\s+|[\s,;:]+(?:and|or)?\s*$", "", spaced(text))
    return re.sub(r",\s*,", ",", text)


def head_word(phrase: str) -> str:
    """The noun of a noun phrase: the word before the first preposition."""
    words = phrase.split()
    at = next((i for i, word in enumerate(words) if i and word in english.PREPOSITIONS), len(words))
    return words[at - 1].strip(",") if words else ""


def lowered(text: str, names: frozenset[str]) -> str:
    first = re.match(r"[^\W_]+(?:[-'’][^\W_]+)*", text)
    if not first or first.group() in names or first.group() == "I":
        return text
    return text[:1].lower() + text[1:]


def stopped(text: str) -> str:
    text = spaced(text).strip(" ,;:")
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else text + "."
