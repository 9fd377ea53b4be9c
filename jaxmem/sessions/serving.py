"""What a playbook costs: calls and GPU seconds of its adaptation, and its length when served."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxmem.common import check_flag, check_number, choice
from jaxmem.results import Record
from jaxmem.roofline import Accelerator, Constant, Measured, Model
from jaxmem.roofline.cost import Efficiency, decode, prefill, throughput
from jaxmem.roofline.efficiency import resolve
from jaxmem.sessions.adaptation import Adaptation
from jaxmem.sessions.tasks import LECTURE, Settings, whole

ROLES = ("generator", "reflector", "curator")
KINDS = ("answer", "answer again", "answer after", "reflect", "curate")
"""Calls of a task: the first answer, one after each reflection, one with the new playbook."""
_ROLE = np.array([0, 0, 0, 1, 2])  # of each kind
ACCOUNTINGS = ("lecture", "official")
COPIES = ("own copy", "one copy", "one copy, read once")
"""Where the KV of system and playbook lies: with each user; once, but read by each user in turn
(paged attention); once, and read once a step for all (cascade attention)."""


class Calls(NamedTuple):
    """Calls of each of `KINDS` at each task, [..., V, T, 5].

    number: how many.
    prompt_tokens: of one such call.
    cached_tokens: of them, those whose KV is kept.
    generated_tokens: by one such call.
    """

    number: Array
    prompt_tokens: Array
    cached_tokens: Array
    generated_tokens: Array


class Roles(NamedTuple):
    """Totals of a run for each of `ROLES`, [..., V, 3], in floats: they may be large.

    calls: how many.
    prompt_tokens: in all prompts.
    prefilled_tokens: of them, those that were not cached.
    generated_tokens: in all answers.
    """

    calls: Array
    prompt_tokens: Array
    prefilled_tokens: Array
    generated_tokens: Array


def calls(
    adaptation: Adaptation, settings: Settings = LECTURE, accounting: str = "official"
) -> Calls:
    """The calls that an adaptation makes.

    lecture: an answer a task, and the curator generates what changes the playbook; its prompt
      counts as kept, and there is no reflector.
    official: a right answer takes 4 calls (answer, reflect, curate, answer after), a wrong one
      answer, then up to three times reflect and answer again, curate, answer after: at most 9. A
      prompt finds what the calls of its task, or the last of the task before, have left; the
      reflection stands behind the playbook. The reflector's prompt opens with the question and the
      curator's with a step counter, so nothing of theirs is kept. Marks are written when the
      curator merges.

    Args:
      adaptation: from `adapt`, any leading axes.
      settings: of that run.
      accounting: one of `ACCOUNTINGS`.

    Returns:
      The calls.

    Raises:
      ValueError: if the accounting is unknown.
    """
    accounting = choice(ACCOUNTINGS, accounting, "accounting")
    system, task, answer, reflection = (
        whole(x)
        for x in (settings.system_tokens, settings.task_tokens, settings.answer_tokens,
                  settings.reflection_tokens)
    )  # fmt: skip
    prompt, written = adaptation.prompt_tokens, adaptation.written_tokens
    now, after = adaptation.playbook_tokens[..., :-1], adaptation.playbook_tokens[..., 1:]
    one, none = jnp.ones_like(prompt), jnp.zeros_like(prompt)
    if accounting == "lecture":
        rows = [
            (one, prompt, adaptation.reused_tokens, answer * one),
            *[(none, one, none, none)] * 3,
            (one, prompt, prompt, written),
        ]
    else:
        wrong = adaptation.reflections[..., None, :] + none  # reflections on a wrong answer
        later = jnp.arange(prompt.shape[-1]) > 0
        kept = adaptation.kept_tokens[..., 1:]
        renewed = system + after + task
        unchanged = (kept == now) & (after == now)  # then the first prompt comes again
        shown = jnp.minimum(settings.used * whole(settings.bullet_tokens), now)
        rows = [
            (one, prompt, jnp.where(later, system + now, 0), answer * one),
            (wrong, prompt + reflection, system + now, answer * one),
            (one, renewed, jnp.where(unchanged, renewed, system + kept), answer * one),
            (jnp.maximum(wrong, 1), system + task + answer + shown, none, reflection * one),
            (one, system + reflection + now + task, none, written),
        ]
    return Calls(*(jnp.stack(kinds, -1) for kinds in zip(*rows)))


def by_role(made: Calls) -> Roles:
    """Totals over the tasks for generator, reflector and curator.

    Args:
      made: from `calls`, [..., V, T, 5].

    Returns:
      Totals [..., V, 3].
    """

    def total(each: Array) -> Array:
        kinds = (made.number * each).sum(-2, dtype=float)  # [..., V, 5]
        return jnp.stack([kinds[..., role == _ROLE].sum(-1) for role in range(len(ROLES))], -1)

    return Roles(
        calls=total(jnp.ones_like(made.number)),
        prompt_tokens=total(made.prompt_tokens),
        prefilled_tokens=total(made.prompt_tokens - made.cached_tokens),
        generated_tokens=total(made.generated_tokens),
    )


def gpu_seconds(
    made: Calls,
    model: Model,
    accelerator: Accelerator,
    *,
    flat: bool = False,
    efficiency: Efficiency = None,
) -> Array:
    """GPU seconds of an adaptation, one call after the other on one device.

    sum over calls of number * (prefill(prompt | cached) + decode(generated after prompt))

    Args:
      made: from `calls`, [..., V, T, 5].
      model: the language model of all roles.
      accelerator: the device.
      flat: whether each token takes the step of an empty context, as the lecture counts (6.1 ms
        for Llama-3-8B on one H100), and not the time to read its KV too.
      efficiency: see `jaxmem.roofline.efficiency.resolve`.

    Returns:
      Seconds [..., V].

    Raises:
      ValueError: if `flat` is no flag, or efficiency was not measured there.
    """
    check_flag("flat", flat)
    eff = resolve(efficiency, model, accelerator)
    return _gpu_seconds(made, model, accelerator, eff, bool(flat))


@partial(jax.jit, static_argnames="flat")
def _gpu_seconds(
    made: Calls, model: Model, accelerator: Accelerator, eff: Constant | Measured, flat: bool
) -> Array:
    prompt, generated = jnp.maximum(made.prompt_tokens, 1), jnp.maximum(made.generated_tokens, 1)
    reading = prefill(model, accelerator, prompt, made.cached_tokens, efficiency=eff).total_s
    if flat:
        step_s = decode(model, accelerator, 0, 1, efficiency=eff).step_s
        writing = step_s * made.generated_tokens
    else:
        writing = decode(model, accelerator, prompt, generated, efficiency=eff).total_s
    reading = jnp.where(made.cached_tokens < made.prompt_tokens, reading, 0.0)
    writing = jnp.where(made.generated_tokens > 0, writing, 0.0)
    return (made.number * (reading + writing)).sum((-2, -1))


def served(
    model: Model,
    accelerator: Accelerator,
    playbook_tokens: Sequence[float] = (0, 1_000, 3_000, 10_000, 30_000, 100_000),
    *,
    settings: Settings = LECTURE,
    devices: float = 1,
    efficiency: Efficiency = None,
) -> list[Record]:
    """A playbook's length against the users who fit beside it and the tokens they get.

    A long playbook is cheap to prefill, since it is kept, and not to decode: each step reads its
    KV. All users have one playbook, so a server may store it once, and read it once a step.

    Args:
      model: the model.
      accelerator: the device.
      playbook_tokens: lengths, each at least 0.
      settings: tokens of instructions, task and answer.
      devices: devices that serve together.
      efficiency: see `jaxmem.roofline.efficiency.resolve`.

    Returns:
      Rows, one a length and way of `COPIES`: users who fit; seconds of a step of them all (of one,
      where none fits); tokens a second, 0 where none fits; share of the prompt that is kept.

    Raises:
      ValueError: if a number is out of range, or efficiency was not measured there.
    """
    check_number("playbook_tokens", playbook_tokens)
    eff = resolve(efficiency, model, accelerator)
    playbook = jnp.asarray(playbook_tokens, float).reshape(-1)
    system, task, answer = (
        float(jnp.asarray(x))
        for x in (settings.system_tokens, settings.task_tokens, settings.answer_tokens)
    )
    kept = system + playbook
    found = _served(model, accelerator, eff, kept, task, answer, float(devices))
    rows: list[Record] = []
    for i, length in enumerate(np.asarray(playbook)):
        for copies, way in zip(COPIES, found):
            users, step_s, tokens_s = (float(x[i]) for x in way)
            rows.append({
                "model": model.name,
                "accelerator": accelerator.name,
                "devices": float(devices),
                "playbook_tokens": float(length),
                "kv": copies,
                "users": users,
                "step_s": step_s,
                "tokens_s": tokens_s,
                "kept_share": float(kept[i] / (kept[i] + task)),
            })  # fmt: skip
    return rows


def _served(
    model: Model,
    accelerator: Accelerator,
    eff: Constant | Measured,
    kept: Array,
    task: float,
    answer: float,
    devices: float,
) -> list[tuple[Array, Array, Array]]:
    """(users, step_s, tokens_s) of each length, for each way of COPIES."""
    own = throughput(model, accelerator, kept + task, 0, answer, devices, efficiency=eff)
    once = throughput(model, accelerator, task, kept, answer, devices, efficiency=eff)
    device = accelerator.times(devices)
    batch = jnp.maximum(once.users, 1.0)
    step_s = decode(model, device, kept + task, answer, batch, efficiency=eff).step_s
    return [
        (own.users, own.step_s, own.tokens_s),
        (once.users, step_s, once.users / step_s),
        (once.users, once.step_s, once.tokens_s),
    ]
