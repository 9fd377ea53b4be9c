"""The world: what conversations are like, in which facts about a user are stated and change."""

import math
from dataclasses import dataclass
from functools import partial

import jax
from jax.typing import ArrayLike

from jaxmem.common import check_number, check_size, is_given

NEVER = 2**30  # a message index that lies after every conversation
PERSON = 2**20  # person p has the keys PERSON + 2 p (home town) and the next (job)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["message_tokens", "message_tokens_sd", "noise", "predicate_weight"],
    meta_fields=[
        "messages", "jitter", "static", "changing", "unstated", "roles", "most_changes",
        "most_holders", "mentions", "length", "dim", "fact_capacity",
    ],
)  # fmt: skip
@dataclass(frozen=True)
class World:
    """What conversations are like; the defaults have LoCoMo's scale (600 turns, 26,000 tokens).

    messages: mean number of messages, at length 1.
    jitter: the number of messages is uniform in messages +- jitter; None for a tenth of them. A
      conversation is never shorter than what is stated and touched on in it.
    message_tokens, message_tokens_sd: tokens of a message, normal, at least 8.
    static: attributes of the user that are stated once.
    changing: attributes that change (moves, jobs).
    unstated: attributes that are touched on but never stated.
    roles: persons around the user (partner, boss) who are replaced over time; each holder has a
      home town and a job, stated once under the holder's name.
    most_changes: changes of a changing attribute are uniform in 1..most_changes.
    most_holders: holders of a role are uniform in 1..most_holders.
    mentions: mean number of messages that touch a topic without stating anything, by topic.
    noise: length of the random part of an embedding, beside a meaning of length 1.
    predicate_weight: weight of "home town" or "job" beside a name or a role.
    length: how many times as long the conversation is: messages, changes, holders and mentions
      grow with it, the number of attributes does not.
    dim: length of embeddings.
    fact_capacity: most statements that are kept, in order of time; None has room for all.

    Raises:
      ValueError: if a size or a number is out of range.
    """

    messages: int = 600
    jitter: int | None = None
    message_tokens: ArrayLike = 43.0
    message_tokens_sd: ArrayLike = 20.0
    static: int = 8
    changing: int = 8
    unstated: int = 4
    roles: int = 4
    most_changes: int = 5
    most_holders: int = 4
    mentions: float = 4.0
    noise: ArrayLike = 0.8
    predicate_weight: ArrayLike = 0.55
    length: int = 1
    dim: int = 256
    fact_capacity: int | None = None

    def __post_init__(self) -> None:
        lowest = dict.fromkeys(("messages", "most_changes", "most_holders", "length", "dim"), 1)
        lowest |= dict.fromkeys(("static", "changing", "unstated", "roles"), 0)
        for name, low in lowest.items():
            object.__setattr__(self, name, check_size(name, getattr(self, name), low))
        if self.jitter is not None:
            check_size("jitter", self.jitter, 0, self.messages - 1)
        check_number("mentions", self.mentions, 0.0, 1e4, scalar=True)
        if self.fact_capacity is not None:
            check_size("fact_capacity", self.fact_capacity)
        if self.static + self.changing + self.roles == 0:
            raise ValueError("expected an attribute or a role, got a world without any")
        for name in ("message_tokens", "message_tokens_sd", "noise", "predicate_weight"):
            if is_given(getattr(self, name)):
                check_number(name, getattr(self, name), 0.0, 1e5)
        if self.size_bytes > 4e9:
            raise ValueError(
                f"expected a conversation of at most 4 GB, got {self.size_bytes / 1e9:.3g} GB"
            )

    @property
    def size_bytes(self) -> int:
        """Size of a conversation's arrays, about."""
        return self.longest * (4 * self.dim + 100)

    @property
    def spread(self) -> int:
        """Most messages above or below the mean, at length 1."""
        return self.messages // 10 if self.jitter is None else self.jitter

    @property
    def topics(self) -> int:
        """Attributes and roles, K: their keys are 0 .. topics - 1."""
        return self.static + self.changing + self.unstated + self.roles

    @property
    def first_role(self) -> int:
        """Key of the first role."""
        return self.topics - self.roles

    @property
    def holders(self) -> int:
        """Most holders of one role."""
        return 1 + (self.most_holders - 1) * self.length

    @property
    def persons(self) -> int:
        """Most persons; holder h of role r is person r * holders + h."""
        return self.roles * self.holders

    @property
    def versions(self) -> int:
        """Most statements of one attribute."""
        return 1 + self.most_changes * self.length

    @property
    def statements(self) -> int:
        """Most statements there can be."""
        return self.static + self.changing * self.versions + 3 * self.persons

    @property
    def facts(self) -> int:
        """Room for statements, F."""
        return min(self.fact_capacity or self.statements, self.statements)

    @property
    def touches(self) -> int:
        """Room for messages that touch a topic without stating anything, six sigma."""
        return math.ceil(self.mean_touches + 6.0 * math.sqrt(self.mean_touches) + 1.0)

    @property
    def mean_touches(self) -> float:
        """Mean number of messages that touch a topic without stating anything."""
        return self.mentions * self.topics * self.length

    @property
    def longest(self) -> int:
        """Room for messages, M."""
        return (self.messages + self.spread) * self.length


LOCOMO = World()
"""The world of demo 02."""


def check_world(world: World) -> None:
    """Refuse what is no world.

    Args:
      world: what was given.

    Raises:
      ValueError: if it is none.
    """
    if not isinstance(world, World):
        raise ValueError(f"expected a World, got {world!r}")
