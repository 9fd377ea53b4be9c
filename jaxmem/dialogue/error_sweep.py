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

from jaxmem.common import Interval, check_number, clustered_interval, lookup
from jaxmem.dialogue.judging import OVERFLOW
from jaxmem.dialogue.questions import KINDS, LECTURE_KINDS, ask
from jaxmem.dialogue.systems.extraction import LECTURE_RATES, Rates
from jaxmem.dialogue.systems.system import System
from jaxmem.dialogue.world import LOCOMO, World, generate
from jaxmem.results import Record
from jaxmem.sweep import sweep

RATES = tuple(field.name for field in fields(Rates))
ALL = "lecture"


def error_sweep(
    system: Callable[..., System],
    rates: Mapping[str, Sequence[float]],
    base: Rates = LECTURE_RATES,
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
      rates: values in [0, 1] by name: a field of `Rates`, or another number that the factory takes
        (`alpha`, `stop_early`).
      base: the rates that are not swept.
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
    settings = [(name, float(value)) for name in rates for value in _values(rates, name)]
    right, asked = _run(
        system, [{name: value} for name, value in settings], base, conversations, world, seed, batch
    )
    rows: list[Record] = []
    for i, (name, value) in enumerate(settings):
        for kind, chosen in _kinds().items():
            mean, low, high = clustered_interval(
                right[:, i, chosen].sum(-1), asked[:, i, chosen].sum(-1)
            )
            rows.append(
                {"rate": name, "value": value, "kind": kind, "accuracy": mean, "low": low,
                 "high": high}
            )  # fmt: skip
    return rows


def sensitivity(
    system: Callable[..., System],
    base: Rates = LECTURE_RATES,
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
      base: where the slope is taken.
      conversations: how many.
      world: what conversations are like.
      names: fields of `Rates`, or other numbers of the factory; all fields if None.
      step: how much worse a rate is made, in (0, 1].
      seed: of the conversations.
      batch: runs (conversations x rates) at a time.

    Returns:
      A record a rate and kind of question (and one, "lecture", for its three together): the
      change of accuracy by one point of errors, both in points of a hundred, with its 95 %
      interval; the most harmful rate first.

    Raises:
      ValueError: if a rate is unknown, or would leave [0, 1].
    """
    check_number("step", step, 1e-6, 1.0, scalar=True)
    takes_rates = "rates" in inspect.signature(system).parameters
    if names is None and not takes_rates:
        raise ValueError(f"expected names among {_numbers(system)}: the factory takes no rates")
    chosen_names = list(names) if names is not None else list(RATES)
    settings: list[dict[str, float]] = [{}]
    for name in chosen_names:
        lookup(dict.fromkeys(_numbers(system)), name, "rate")
        here = getattr(base, name) if name in RATES else _default(system, name)
        there = here - step if name in ("recall", "precision") else here + step
        settings.append({name: there})
    right, asked = _run(system, settings, base, conversations, world, seed, batch)
    rows: list[Record] = []
    for kind, chosen in _kinds().items():
        questions = asked[:, 0, chosen].sum(-1)
        for i, name in enumerate(chosen_names, start=1):
            change = (right[:, i, chosen] - right[:, 0, chosen]).sum(-1)
            slope = Interval(*(x / step for x in clustered_interval(change, questions)))
            rows.append({"rate": name, "kind": kind, **dict(zip(("slope", "low", "high"), slope))})
    order = {row["rate"]: row["slope"] for row in rows if row["kind"] == ALL}
    return sorted(rows, key=lambda row: order[row["rate"]])


def _kinds() -> dict[str, list[int]]:
    """Indices of kinds by name, and of the lecture's together."""
    return {ALL: list(range(len(LECTURE_KINDS))), **{kind: [i] for i, kind in enumerate(KINDS)}}


def _values(rates: Mapping[str, Sequence[float]], name: str) -> list[float]:
    values = np.atleast_1d(np.asarray(rates[name]))
    check_number(name, values, -np.inf)
    return values.tolist()


def _numbers(system: Callable[..., System]) -> list[str]:
    """Names of what can be swept: rates, if the factory takes them, and its own parameters."""
    takes = list(inspect.signature(system).parameters)
    rates = RATES if "rates" in takes else ()
    return [*rates, *(name for name in takes if name != "rates")]


def _default(system: Callable[..., System], name: str) -> float:
    """The value of a factory's number that is not swept."""
    value = inspect.signature(system).parameters[name].default
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} cannot be swept: expected a number, its default is {value!r}")
    return value


def _run(
    system: Callable[..., System],
    settings: Sequence[Mapping[str, float]],
    base: Rates,
    conversations: int,
    world: World,
    seed: int,
    batch: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Right answers and questions, each [conversations, settings, kinds]."""
    if not any(settings):
        raise ValueError("expected at least one rate to sweep, got none")
    varied = list(dict.fromkeys(name for setting in settings for name in setting))
    takes = list(inspect.signature(system).parameters)
    for name in varied:
        lookup(dict.fromkeys(_numbers(system)), name, "rate")
    ours = [name for name in varied if name in RATES and "rates" in takes]
    start = {
        name: getattr(base, name) if name in ours else _default(system, name) for name in varied
    }
    # A setting names the rate that it changes; the others stay where they start.
    full = [{name: setting.get(name, start[name]) for name in varied} for setting in settings]

    def make(setting: Mapping[str, Any]) -> System:
        given = {name: value for name, value in setting.items() if name not in ours}
        if "rates" in takes:
            given["rates"] = replace(base, **{name: setting[name] for name in ours})
        return system(**given)

    for setting in full:
        make(setting)  # refuses what is out of range, which a traced number cannot

    def judged(key: Array, setting: dict[str, Any]) -> dict[str, Array]:
        world_key, question_key, write_key, read_key = jax.random.split(key, 4)
        conversation = generate(world_key, world)
        questions = ask(question_key, conversation, world)
        made = make(setting)
        memory, _ = made.write(write_key, conversation)
        said, _ = made.read(read_key, memory, questions)
        kind = (questions.kind == jnp.arange(len(KINDS))[:, None]) & questions.mask
        right = kind & (said == questions.answer)
        return {
            "right": right.sum(1), "asked": kind.sum(1), "overflow": conversation.overflow[None]
        }  # fmt: skip

    found = sweep(
        judged, conversations, full, key=jax.random.key(seed), batch=batch, label="error sweep"
    )
    overflow = found.arrays["overflow"][:, 0].sum()
    if overflow:
        warnings.warn(f"{overflow} of {conversations} {OVERFLOW}", stacklevel=3)
    return found.arrays["right"], found.arrays["asked"]
