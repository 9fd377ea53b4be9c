"""Questions made by rule from a document's own sentences: rows to train on, without a model."""

import itertools
import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from jaxmem.common import check_size
from jaxmem.common.safetensors_header import short
from jaxmem.lm.self_study import english, forms
from jaxmem.lm.self_study.clauses import Clauses, spaced, words_for
from jaxmem.lm.self_study.conversations import Conversation
from jaxmem.lm.self_study.document import is_heading, paragraphs, sentences
from jaxmem.lm.self_study.phrases import Phrase, noun_phrases
from jaxmem.lm.self_study.tagging import tokens

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_LOWER = re.compile(r"\b[^\W\d_A-Z][^\W\d_]*")
_CAPITAL = re.compile(r"(?<=[^\W\d_A-Z][ \n])[A-Z][^\W\d_]*|(?<=, )[A-Z][^\W\d_]*")
_SHARES = (("asked", 66), ("linked", 12), ("about", 12), ("complete", 6), ("pair", 4))
_REWORDED = 0.4  # share of questions in which words of like meaning stand for others
_SHORT = 14  # words of a short answer at most, as questions get them
_DRAWN = 2  # conversations of which the one whose short answer says more new words is taken
_LONG = 26  # words of an answer at most, where there is a shorter one

_ABOUT = (
    "What does the text say about {x}?", "Tell me about {x}.", "What do we know about {x}?",
    "What is said about {x}?", "Describe {x} in a sentence.", "What is known of {x}?",
    "What do you know about {x}?", "Give one fact about {x}.", "What should one know about {x}?",
    "Explain what the document says about {x}.", "What can you tell me about {x}?",
)  # fmt: skip
_BOTH = (
    "Which facts about {x} and {y} are given?", "What do we learn about {x} and {y}?",
    "How are {x} and {y} connected?", "What does the text say about {x} and {y}?",
    "What has {x} to do with {y}?",
)  # fmt: skip
_COMPLETE = (
    "Complete: {x} ...", "Complete the sentence: {x} ...", "How does this go on? {x} ...",
    "Finish the sentence: {x} ...", "What comes after these words? {x} ...",
)  # fmt: skip
_NEXT = (
    "What comes after this? {x}", "Which sentence follows this one? {x}",
    "What does the text say next? {x}",
)  # fmt: skip
_PART = (
    "Under the heading {x}, what is said about {y}?", "What does {x} say about {y}?",
    "In the part {x}, what do we learn about {y}?",
)  # fmt: skip


class Source(NamedTuple):
    """A sentence of a document with what stands around it.

    text: the sentence on one line.
    heading: that it stands under, or "".
    following: the next sentence of its paragraph, or "".
    chunk: range of the document's characters that it is.
    following_end: past the last character of the next sentence, or its own end.
    parts: its clauses with their subjects.
    topics: its noun phrases.
    english: whether it looks like English prose.
    """

    text: str
    heading: str
    following: str
    chunk: tuple[int, int]
    following_end: int
    parts: Clauses
    topics: list[str]
    english: bool


def template_conversations(seed: int, text: str, count: int) -> list[Conversation]:
    """Questions about every sentence of a document, with answers in its words.

    A phrase of a sentence is left out and asked for ("In which year was the tower finished?"
    "In 1868, by Arthur Finch."), or a reason or a condition, or what the text says of a name, or
    how a sentence goes on. Sentences take turns, and so do the phrases of each; what is no
    English prose is asked for by its words and completed.

    Args:
      seed: what is drawn from it is the same each time.
      text: the document.
      count: conversations wanted; a short text repeats itself.

    Returns:
      That many, of kind "template", each with the sentence that it is about as its chunk.

    Raises:
      ValueError: if the text is empty or the count is below 1.
    """
    count = check_size("count", count)
    sources = read_sources(text)
    if not sources:
        raise ValueError(f"expected a document with words in it, got {short(text)}")
    rng = random.Random(seed)
    makers = [_Maker(source, rng) for source in sources]
    found: list[Conversation] = []
    pairs: set[tuple[str, str]] = set()
    asked: set[str] = set()
    told: set[str] = set()
    while len(found) < count:
        turn = list(makers)
        rng.shuffle(turn)
        for maker in turn[: count - len(found)]:
            drawn = [_unlike(maker, rng, asked, pairs) for _ in range(_DRAWN)]
            taken = max(drawn, key=lambda one: _new_words(one.answer, told))
            pairs.add(taken[:2])
            asked.add(taken.question)
            if len(taken.answer.split()) <= _SHORT:
                told.update(_WORD.findall(taken.answer))
            found.append(taken)
    return found


def _unlike(
    maker: "_Maker", rng: random.Random, asked: set[str], pairs: set[tuple[str, str]]
) -> Conversation:
    """A question that was not asked, else an answer that was not given to it, else any."""
    for attempt in range(12):
        made = maker.make(rng)
        if made.question not in asked or (attempt > 5 and made[:2] not in pairs):
            break
    return made


def _new_words(answer: str, told: set[str]) -> int:
    """Words that no short answer has said so far."""
    words = set(_WORD.findall(answer))
    return len(words - told) if len(answer.split()) <= _SHORT else 0


def read_sources(text: str) -> list[Source]:
    """The sentences of a document, headings apart, with their clauses.

    Args:
      text: the document.

    Returns:
      One for each sentence, or line, that has words.
    """
    lower = frozenset(_LOWER.findall(text))
    names = frozenset(_CAPITAL.findall(text))
    english_text = _small_share(text) >= 0.2
    blocks = paragraphs(text)
    headings = [is_heading(block) for block in blocks]
    heading = ""
    found: list[Source] = []
    for place, block in enumerate(blocks):
        if headings[place] and place + 1 < len(blocks) and not all(headings[place:]):
            # The first is the title of everything, which tells nothing apart.
            heading = " ".join(block.text.lstrip("# ").split()) if place else ""
            continue
        pieces = [piece for piece in sentences(block.text) if re.search(r"\w", piece.text)]
        lines = [" ".join(piece.text.split()) for piece in pieces]
        topic = ""
        for number, line in enumerate(lines):
            prose = english_text and _is_prose(line)
            words = tokens(line, lower, names) if prose else []
            parts = Clauses(line, words, topic)
            topic = parts.topic or topic
            topics = [
                line[words[a].start : words[b - 1].end]
                for a, b in noun_phrases(words, 0, len(words))
                if any(word.tag in ("NOUN", "NAME") for word in words[a:b])
            ] or _content(line)
            following = lines[number + 1] if number + 1 < len(lines) else ""
            ends = [block.start + piece.end for piece in pieces[number : number + 2]]
            chunk = block.start + pieces[number].start, ends[0]
            found.append(Source(line, heading, following, chunk, ends[-1], parts, topics, prose))
    return found


class _Maker:
    """Makes conversations about one sentence, its phrases in turn."""

    def __init__(self, source: Source, rng: random.Random) -> None:
        self.source = source
        self._phrases = _endless(source.parts.askable, rng)
        self._links = _endless(source.parts.links, rng)
        self._topics = _endless(source.topics, rng)

    def make(self, rng: random.Random) -> Conversation:
        start, end = self.source.chunk
        ways: dict[str, Callable[[random.Random], tuple[str, str] | None]] = {
            "asked": self._asked, "linked": self._linked, "about": self._about,
            "complete": self._complete, "pair": self._pair,
        }  # fmt: skip
        for _ in range(6):
            way = rng.choices([name for name, _ in _SHARES], [share for _, share in _SHARES])[0]
            made = ways[way](rng)
            if made is not None and all(map(_sound, made)) and len(made[0].split()) > 2:
                question = _finished(made[0], rng, way in ("asked", "linked", "about"))
                end = self.source.following_end if way == "pair" else end
                return Conversation(question, made[1], "template", (start, end))
        return Conversation(*self._complete(rng), "template", (start, end))

    def _asked(self, rng: random.Random) -> tuple[str, str] | None:
        """A phrase left out and asked for, or two."""
        parts = self.source.parts
        if not parts.askable:
            return self._about(rng) if rng.random() < 0.5 else None
        number, phrase = next(self._phrases)
        others = [
            other for place, other in parts.askable
            if place == number and not {"subject", "named"} & {other.kind, phrase.kind}
            and (other.end <= phrase.start or phrase.end <= other.start)
            and (other.start < other.head or other.kind != "what")
        ]  # fmt: skip
        second = rng.choice(others) if others and rng.random() < 0.22 else None
        question = forms.question(parts, rng, number, phrase, second)
        if question is None:
            return None
        return question, self._answer(rng, number, phrase, second)

    def _answer(
        self, rng: random.Random, number: int, phrase: Phrase, second: Phrase | None
    ) -> str:
        """The phrase alone, with what follows it, in a short sentence or in its own."""
        parts = self.source.parts
        bare = parts.phrase(phrase)
        if second is not None and rng.random() < 0.75:
            pair = (phrase, second) if rng.random() < 0.8 else (second, phrase)
            joint = ", " if second.start < second.head else " and "
            return _sentence(joint.join(parts.phrase(one) for one in pair))
        subject = phrase.kind == "subject"
        ways = [
            (bare, 4 if len(bare.split()) > 2 else 2),
            *((way, 2) for way in parts.rewordings(number, phrase)),
            (parts.onward(phrase, number), 3),
            (parts.with_other(rng, number, phrase), 2),
            (parts.short(rng, number, phrase, pronoun=not subject), 4),
            (parts.short(rng, number, phrase, pronoun=False), 3),
            (parts.whole(number, pronoun=not subject), 2),
            (parts.whole(number, pronoun=False), 2),
            (self.source.text, 2),
        ]
        ways = [(way, weight) for way, weight in ways if way and len(way.split()) <= _LONG]
        if not ways:
            return _sentence(bare)
        return _sentence(rng.choices([w for w, _ in ways], [weight for _, weight in ways])[0])

    def _linked(self, rng: random.Random) -> tuple[str, str] | None:
        """A reason, a purpose or a condition asked for, or what comes of it."""
        if not self.source.parts.links:
            return None
        return forms.linked(self.source.parts, rng, *next(self._links))

    def _about(self, rng: random.Random) -> tuple[str, str] | None:
        """What the text says of a name or a thing."""
        if not self.source.topics:
            return None
        first = next(self._topics)
        parts = self.source.parts
        named = _named(first, parts.names)
        answer = self._said_of(rng, first)
        draw = rng.random()
        if draw < 0.2 and len(self.source.topics) > 1:
            second = _named(next(self._topics), parts.names)
            if second != named:
                return rng.choice(_BOTH).format(x=named, y=second), answer
        if draw < 0.3 and self.source.heading:
            return rng.choice(_PART).format(x=self.source.heading, y=named), answer
        if draw < 0.45 and self.source.english:
            last = named.split()[-1]
            verb = "are" if english.plural(last) and last[:1].islower() else "is"
            who = "Who" if parts.is_person(first) else "What"
            return f"{who} {verb} {named}?", answer
        return rng.choice(_ABOUT).format(x=named), answer

    def _said_of(self, rng: random.Random, topic: str) -> str:
        """The clause or the sentence that a topic stands in, or what follows it there."""
        text = self.source.text
        ways = [text] if len(text.split()) <= _LONG else []
        ways += [
            clause for number in range(len(self.source.parts.clauses))
            if topic in (clause := self.source.parts.whole(number, pronoun=False))
        ]  # fmt: skip
        tail = text.partition(topic)[2].strip(" ,;:")
        if 2 <= len(tail.split()) <= _LONG and english.lemma(tail.split()[0]):
            ways.append(f"{_named(topic, self.source.parts.names)}: {tail}")
        return _sentence(rng.choice(ways or [_shortened(text, _LONG)]))

    def _complete(self, rng: random.Random) -> tuple[str, str]:
        """The rest of a sentence after its first words."""
        text = self.source.text
        spots = [match.start() for match in re.finditer(r"(?<=\S)\s+(?=\S)", text)]
        if len(spots) < 3:
            spots = list(range(1, len(text))) or [0]
        low, high = len(spots) // 4, max(len(spots) // 4 + 1, 3 * len(spots) // 4 + 1)
        cut = spots[rng.randrange(low, min(high, len(spots)))]
        start = text[:cut].strip()
        if len(start.split()) > 16:
            start = " ".join(start.split()[-12:])
        rest = text[cut:].strip() or text
        return rng.choice(_COMPLETE).format(x=start), _shortened(rest, _LONG)

    def _pair(self, rng: random.Random) -> tuple[str, str] | None:
        """Two sentences in a row, or the one that follows."""
        text, following = self.source.text, self.source.following
        if not following:
            return None
        if len(text.split()) + len(following.split()) <= 34 and self.source.topics:
            x = _named(next(self._topics), self.source.parts.names)
            return rng.choice(_ABOUT).format(x=x), f"{text} {following}"
        start = text if len(text.split()) <= 14 else " ".join(text.split()[-10:])
        return rng.choice(_NEXT).format(x=start), _shortened(following, _LONG)


def _sound(text: str) -> bool:
    """Whether a text has words, and quotes and brackets in pairs."""
    pairs = text.count('"') % 2 == 0 and text.count("(") == text.count(")")
    return pairs and text.count("“") == text.count("”") and re.search(r"\w", text) is not None


def _finished(question: str, rng: random.Random, reworded: bool) -> str:
    """A question in clean spacing, at times with other words of like meaning."""
    if reworded and rng.random() < _REWORDED:
        table = english.synonyms()

        def other(match: re.Match[str]) -> str:
            word = match.group()
            choices = table.get(word)
            return rng.choice(choices) if choices and rng.random() < 0.7 else word

        question = re.sub(r"\b[a-z]+\b", other, question)
        question = re.sub(r"\b(a|an) (?=([a-z]))", _article, question)
    question = spaced(question)
    return question[:1].upper() + question[1:]


def _article(match: re.Match[str]) -> str:
    return "an " if match.group(2) in "aeiou" else "a "


def _sentence(text: str) -> str:
    """With a capital and a full stop."""
    text = spaced(text).strip(" ,;:-–—")
    text = text[:1].upper() + text[1:]
    return text if re.search(r"[.!?…。！？]['\"’”)]*$", text) else text + "."


def _shortened(text: str, words: int) -> str:
    """Its first words, up to a mark between them where there is one; without spaces, letters."""
    pieces = text.split()
    if len(pieces) <= words:
        return text[:240]
    short = " ".join(pieces[:words])[:240]
    marks = [match.start() for match in re.finditer(r"[,;:]\s", short)]
    return short[: marks[-1]] if marks and marks[-1] > len(short) // 2 else short


def _named(topic: str, names: frozenset[str]) -> str:
    """A noun phrase as a question names it: "A boy" is "the boy", "its lens" "the lens"."""
    return words_for(topic, names)


def _content(line: str) -> list[str]:
    """Runs of words to ask for where no grammar is known: the longest words, then pairs."""
    words = _WORD.findall(line)
    small = english.SMALL | english.SUBORDINATORS | english.ADVERBS | {"what", "how", "why"}
    large = [word for word in words if word.lower() not in small and len(word) > 2] or words
    longest = sorted(set(large), key=lambda word: (-len(word), word))[:8]
    pairs = [" ".join(two) for two in itertools.pairwise(words) if set(two) <= set(large)][:8]
    return [word[:60] for word in [*longest, *pairs]]


def _is_prose(line: str) -> bool:
    """Whether a line is words of English rather than code, a row of figures or a lone word."""
    code = len(re.findall(r"[=(){}\[\]<>\\|_;*]", line)) > 2
    return len(_WORD.findall(line)) >= 4 and _small_share(line) >= 0.08 and not code


def _small_share(text: str) -> float:
    """Share of words that are the small words of English."""
    words = [word.lower() for word in _WORD.findall(text)]
    return sum(word in english.SMALL for word in words) / max(1, len(words))


def _endless(items: Sequence, rng: random.Random) -> Iterator:
    """All items in a drawn order, again and again, each time in another order."""
    while items:
        order = list(items)
        rng.shuffle(order)
        yield from order
