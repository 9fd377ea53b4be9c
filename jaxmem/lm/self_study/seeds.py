"""What a model is told so that it asks about a text: five kinds of seed prompts."""

import random

from jaxmem.common import choice

SEED_KINDS = ("structuring", "summarising", "question", "use", "creative")
"""Kinds of seed prompts: order the text, shorten it, ask about it, use it, play with it."""

_INSTRUCTIONS = {
    "structuring": (
        "Write one request that asks for facts of this text as a list, a table or JSON.",
        "Write one message that asks someone to put the names and numbers of this text in order.",
        "Ask for a part of this text to be rewritten as a list. Write only the request.",
    ),
    "summarising": (
        "Write one request for a short summary of one part of this text. Name that part.",
        "Ask someone to sum up what this text says about one thing. Write only the request.",
        "Write one message that asks for the main point of one part of this text.",
    ),
    "question": (
        "Ask one question about a fact in this text. Write only the question.",
        "Write one short question that this text answers.",
        "Write one exam question about a name, a number, a place or a reason in this text.",
        "Ask one question about a detail of this text that is easily missed.",
    ),
    "use": (
        "Write one question of someone who needs this text for a practical purpose.",
        "Think of a task for which this text is needed. Ask one question that helps with it.",
        "Write one question of someone who has to decide what to do and reads this text.",
    ),
    "creative": (
        "Write one playful request about something in this text.",
        "Ask for a short poem, story, letter or slogan about something in this text.",
        "Write one unusual question about something in this text.",
    ),
}
# The model is made to start with these: left to itself, a small one wanders off.
_FIRST_WORDS = {
    "structuring": (
        "List the", "Make a list of", "Make a table of", "Put in order the", "Give me as JSON the",
        "Name all", "Write down in a list", "Sort the",
    ),
    "summarising": (
        "Summarise", "Sum up", "In one sentence, what", "What is the main point of",
        "In a few words, how", "Briefly, what does the text say about", "Give a summary of",
    ),
    "question": (
        "Who", "When", "Where", "Why", "How many", "How", "What", "Which", "How long", "How much",
        "In which year", "What is the name of", "By whom", "What happens if", "How often",
        "For what purpose", "What did", "What does", "Who was", "Where is", "What must",
    ),
    "use": (
        "How can I", "What should I do if", "What do I need", "Am I allowed to", "Where can I",
        "When should I", "What must I know before", "Whom do I ask", "If I want to",
    ),
    "creative": (
        "Write a short poem about", "Write a letter from", "Write a slogan for", "Tell a story of",
        "What would happen if", "Imagine you are", "Describe as in a dream", "Write a riddle about",
    ),
}  # fmt: skip
_ABOUT = {
    "structuring": (
        "List what the text says about {topic}", "Make a table of the facts about {topic}",
        "Put in order what is said about {topic}", "Give me as JSON what is known of {topic}",
    ),
    "summarising": (
        "Summarise what is said about {topic}", "Sum up what we learn about {topic}",
        "What is the main thing to know about {topic}", "In a few words, what about {topic}",
    ),
    "question": (
        "What is {topic}", "Why is {topic}", "Where is {topic}", "What happened to {topic}",
        "Who has to do with {topic}", "When was {topic}", "What does the text say about {topic}",
        "How is {topic}",
    ),
    "use": (
        "What should I know about {topic} before", "What do I do with {topic}",
        "How can I use {topic}", "Whom should I ask about {topic}",
    ),
    "creative": (
        "Write a short poem about {topic}", "Write a riddle whose answer is {topic}",
        "Write a slogan for {topic}", "What would happen without {topic}",
    ),
}  # fmt: skip


def seed_prompt(kind: str, rng: random.Random, topic: str = "") -> tuple[str, str]:
    """An instruction to ask about a text, and the first words of what is asked.

    The model sees `Text: ...` and the instruction in the user's turn; its own turn is made to
    start with the first words.

    Args:
      kind: one of `SEED_KINDS`.
      rng: what is drawn from.
      topic: a name or a thing of the text, which half of the first words then lead to.

    Returns:
      The instruction, and the first words.

    Raises:
      ValueError: if there is no such kind.
    """
    kind = choice(SEED_KINDS, kind, "kind of seed prompt")
    words = _ABOUT if topic and rng.random() < 0.5 else _FIRST_WORDS
    return rng.choice(_INSTRUCTIONS[kind]), rng.choice(words[kind]).replace("{topic}", topic)


def all_seeds(kind: str) -> list[tuple[str, str]]:
    """Every instruction of a kind with its every first words, to know how long they get.

    Args:
      kind: one of `SEED_KINDS`.

    Returns:
      (instruction, first words) of each pair, "{topic}" where a topic stands.
    """
    words = (*_FIRST_WORDS[kind], *_ABOUT[kind])
    return [(text, first) for text in _INSTRUCTIONS[kind] for first in words]
