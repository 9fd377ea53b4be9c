"""Error rates swept: which judgement must a language model get right?"""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxmem.common import Interval, check_number, check_size, clustered_interval, lookup
from jaxmem.dialogue.conversation import generate
from jaxmem.dialogue.judging import OVERFLOW
from jaxmem.dialogue.questions import KINDS, LECTURE_KINDS, ask
from jaxmem.dialogue.systems.extraction import Rates
from jaxmem.dialogue.systems.system import System
from jaxmem.dialogue.world import LOCOMO, World, check_world
from jaxmem.results import Record
from jaxmem.sweep import sweep

RATES = tuple(field.name for field in fields(Rates))
ALL = "lecture"  # the kinds of the lecture together
_STATIC = ("int", "bool", "Policy", "str")  # what cannot be traced


def error_sweep(
    system: Callable[..., System],
    rates: Mapping[str, Sequence[float]],
    base: Rates | None = None,
    conversations: int = 400,
    world: World = LOCOMO,
    *,
    seed: int = 0,
    batch: int = 400,
) -> list[Record]:
    """Accuracy by kind of question at values of one error rate after another.

    All values see the same conversations and draws, in one compiled call a batch.

    Args:
      system: a factory: `mem0`, `partial(mem0g, hop=False)`, `memgpt`, `full_context`.
      rates: values by name: a field of `Rates`, or another number of the factory that may be traced
        (`alpha`, `stop_early`, `window_tokens`, `queue_tokens`).
      base: the rates that are not swept; the factory's own if None.
      conversations: how many.
      world: what conversations are like.
      seed: of the conversations.
      batch: runs (conversations x values) at a time.

    Returns:
      A record a rate, value and kind of question (and one, "lecture", for its three together):
      accuracy with its 95 % interval by conversation.

    Raises:
      ValueError: if a rate is unknown or out of range, or there is none.
    """
    if not isinstance(rates, Mapping):
        raise ValueError(f"expected values by the name of a rate in a dict, got {rates!r:.60}")
    found = _Factory(system, base)
    settings = [
        (found.known(name), float(value)) for name in rates for value in _values(name, rates[name])
    ]
    right, asked, _ = found.run(
        [{name: value} for name, value in settings], conversations, world, seed, batch
    )
    rows: list[Record] = []
    for i, (name, value) in enumerate(settings):
        for kind, chosen in _kinds(asked).items():
            mean, low, high = clustered_interval(
                right[:, i, chosen].sum(-1), asked[:, i, chosen].sum(-1)
            )
            rows.append(
                {"rate": name, "value": value, "kind": kind, "conversations": conversations,
                 "accuracy": mean, "low": max(low, 0.0), "high": min(high, 1.0)}
            )  # fmt: skip
    return rows


def sensitivity(
    system: Callable[..., System],
    base: Rates | None = None,
    conversations: int = 400,
    world: World = LOCOMO,
    *,
    names: Sequence[str] | None = None,
    step: float = 0.05,
    seed: int = 0,
    batch: int = 400,
) -> list[Record]:
    """What one more per cent of each error costs: the slope of accuracy by each rate.

    slope = (accuracy(rate with `step` more errors) - accuracy(base)) / step, on the same draws

    A rate of which 1 is right (recall, precision) is lowered by the step, another one raised.

    Args:
      system: a factory, as in `error_sweep`.
      base: where the slope is taken; the factory's own rates if None.
      conversations: how many.
      world: what conversations are like.
      names: fields of `Rates`, or other numbers of the factory; all fields if None.
      step: how much worse a rate is made, in (0, 1].
      seed: of the conversations.
      batch: runs (conversations x rates) at a time.

    Returns:
      A record a rate and kind of question (and one, "lecture", for its three together): `slope`,
      the change of accuracy by one point of errors, both in points of a hundred, with its 95 %
      interval; `answers_changed`, the share of answers that the step changes: 0 where a system
      does not make that judgement. The most harmful rate comes first.

    Raises:
      ValueError: if a rate is unknown, or would leave [0, 1].
    """
    check_number("step", step, 1e-6, 1.0, scalar=True)
    found = _Factory(system, base)
    if names is None and found.base is None:
        raise ValueError(f"expected names among {found.numbers}: the factory takes no rates")
    chosen_names = [found.known(name) for name in (RATES if names is None else names)]
    settings: list[dict[str, float]] = [{}]
    for name in chosen_names:
        change = -step if name in ("recall", "precision") else step
        settings.append({name: found.start(name) + change})
    right, asked, said = found.run(settings, conversations, world, seed, batch)
    rows: list[Record] = []
    for kind, chosen in _kinds(asked).items():
        questions = asked[:, 0, chosen].sum(-1)
        for i, name in enumerate(chosen_names, start=1):
            change = (right[:, i, chosen] - right[:, 0, chosen]).sum(-1)
            slope = Interval(*(x / step for x in clustered_interval(change, questions)))
            changed = float((said[:, i] != said[:, 0]).mean())
            rows.append(
                {"rate": name, "kind": kind, "slope": slope.mean, "low": slope.low,
                 "high": slope.high, "answers_changed": changed}
            )  # fmt: skip
    order = {row["rate"]: float(row["slope"]) for row in rows if row["kind"] == ALL}
    return sorted(rows, key=lambda row: order.get(row["rate"], 0.0))


def _kinds(asked: np.ndarray) -> dict[str, list[int]]:
    """Indices of the kinds that were asked, by name, and of the lecture's together."""
    kinds = {ALL: list(range(len(LECTURE_KINDS))), **{kind: [i] for i, kind in enumerate(KINDS)}}
    return {kind: chosen for kind, chosen in kinds.items() if asked[:, 0, chosen].any()}


def _values(name: str, values: Any) -> list[float]:
    array = np.atleast_1d(np.asarray(values))
    check_number(name, array, -np.inf)
    if array.ndim != 1:
        raise ValueError(f"{name}: expected a list of values, got shape {array.shape}")
    return array.tolist()


class _Factory:
    """A factory of systems, with the numbers that can be swept and where they start."""

    def __init__(self, system: Callable[..., System], base: Rates | None) -> None:
        if not callable(system):
            raise ValueError(f"expected a factory of systems (mem0), got {system!r:.60}")
        self.system, self.parameters = system, inspect.signature(system).parameters
        self.base: Rates | None = None
        if "rates" in self.parameters:
            self.base = self.parameters["rates"].default if base is None else base
            if not isinstance(self.base, Rates):
                raise ValueError(f"expected base to be Rates, got {self.base!r:.60}")
        self.numbers = [
            *(RATES if self.base is not None else ()),
            *(name for name, p in self.parameters.items() if _is_swept(p)),
        ]

    def known(self, name: str) -> str:
        """The name as it is spelled, or a ValueError."""
        return lookup({known: known for known in self.numbers}, name, "rate")

    def start(self, name: str) -> Any:
        """Where a number is if it is not swept."""
        if self.base is not None and name in RATES:
            return getattr(self.base, name)
        return self.parameters[name].default

    def make(self, setting: Mapping[str, Any]) -> System:
        """The system at a setting."""
        given = {name: value for name, value in setting.items() if name in self.parameters}
        if self.base is not None:
            ours = {name: value for name, value in setting.items() if name not in given}
            given["rates"] = replace(self.base, **ours)
        return self.system(**given)

    def run(
        self,
        settings: Sequence[Mapping[str, float]],
        conversations: int,
        world: World,
        seed: int,
        batch: int,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Right answers and questions [conversations, settings, kinds], answers [.., .., Q]."""
        check_world(world)
        check_size("conversations", conversations)
        check_size("seed", seed, 0, 2**32 - 1)
        if not any(settings):
            raise ValueError("expected at least one rate to sweep, got none")
        varied = list(dict.fromkeys(name for setting in settings for name in setting))
        # A setting names the rate that it changes; the others stay where they start.
        full = [
            {name: setting.get(name, self.start(name)) for name in varied} for setting in settings
        ]
        for setting in full:
            self.make(setting)  # refuses what is out of range, which a traced number cannot

        def judged(key: Array, setting: dict[str, Any]) -> dict[str, Array]:
            world_key, question_key, write_key, read_key = jax.random.split(key, 4)
            conversation = generate(world_key, world)
            questions = ask(question_key, conversation, world)
            system = self.make(setting)
            memory, _ = system.write(write_key, conversation)
            said, _ = system.read(read_key, memory, questions)
            kind = (questions.kind == jnp.arange(len(KINDS))[:, None]) & questions.mask
            right = kind & (said == questions.answer)
            return {
                "right": right.sum(1), "asked": kind.sum(1),
                "said": jnp.where(questions.mask, said, 0),
                "overflow": conversation.overflow[None],
            }  # fmt: skip

        found = sweep(
            judged, conversations, full, key=jax.random.key(seed), batch=batch, label="error sweep"
        )
        overflow = found.arrays["overflow"][:, 0].sum()
        if overflow:
            warnings.warn(f"{overflow} of {conversations} {OVERFLOW}", stacklevel=3)
        return found.arrays["right"], found.arrays["asked"], found.arrays["said"]


def _is_swept(parameter: inspect.Parameter) -> bool:
    """Whether a parameter is a number that may be traced."""
    value, kind = parameter.default, str(getattr(parameter.annotation, "__name__", ""))
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and kind not in _STATIC
