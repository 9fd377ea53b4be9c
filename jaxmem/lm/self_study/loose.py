"""Answers that the teacher would not have given, so that the student learns more than its path.

A user's wording, or a sampled token, soon leads off the sentences that a document's own templates
hold. Distillation needs no right answers: the teacher says of any text what it would go on with,
document in view. Rows with answers out of order teach the student that too.
"""

import random
from collections.abc import Sequence

from jaxmem.common import check_number
from jaxmem.lm.self_study.conversations import Conversation

LOOSE = 0.5
"""Share of the template conversations whose answer is put out of order."""

_OPENINGS = (
    "It is", "They are", "There is", "That is", "By", "The", "A", "In", "With", "From", "To", "At",
    "Within", "Every", "Because", "Because of",
)  # fmt: skip
_KEPT = 0.7  # share of the words that are left where some are dropped


def loosened(
    conversations: Sequence[Conversation], seed: int, share: float = LOOSE
) -> list[Conversation]:
    """The same questions, some with an answer that is out of order.

    One in four such answers is another question's; in one its two ends change places; in one
    words are missing; one is its end after a few words that begin many answers.

    Args:
      conversations: questions and answers.
      seed: what is drawn from it is the same each time.
      share: of them that are changed, 0 to 1.

    Returns:
      As many conversations, in the same order. For distillation only: labels would be wrong.

    Raises:
      ValueError: if the share is no share.
    """
    check_number("share", share, 0.0, 1.0, scalar=True)
    rng = random.Random(seed)
    return [
        one._replace(answer=_loose(one.answer, conversations, rng)) if rng.random() < share else one
        for one in conversations
    ]


def _loose(answer: str, others: Sequence[Conversation], rng: random.Random) -> str:
    words = answer.rstrip(".").split()
    way = rng.randrange(4)
    if way == 0:
        return rng.choice(others).answer
    if way == 1 and len(words) > 4:
        cut = rng.randrange(2, len(words) - 1)
        words = words[cut:] + words[:cut]
    elif way == 2 and len(words) > 3:
        words = [word for word in words if rng.random() < _KEPT] or words[:2]
    else:
        words = [rng.choice(_OPENINGS), *words[rng.randrange(max(1, len(words) - 1)) :]]
    text = " ".join(words).rstrip(",;:")
    return f"{text[:1].upper()}{text[1:]}."
