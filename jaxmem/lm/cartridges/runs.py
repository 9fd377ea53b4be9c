"""A run of training as it is named, timed and taken up again."""

import dataclasses
import hashlib
from collections.abc import Mapping

import numpy as np

from jaxmem.lm.cartridges.files import document_digest
from jaxmem.lm.cartridges.recipe import Recipe
from jaxmem.lm.cartridges.study import Prepared
from jaxmem.lm.cartridges.training import train
from jaxmem.lm.model import Model
from jaxmem.recall.cartridges import Cartridge


def step_seconds(
    prepared: Prepared, model: Model, cartridge: Cartridge, recipe: Recipe
) -> tuple[float, float]:
    """What a step and a look at held-out rows take on this machine.

    Args:
      prepared: from `prepare`.
      model: that is trained with.
      cartridge: to start from.
      recipe: of the training.

    Returns:
      Seconds of a step, measured on one after one that was not counted, and of a look, which is
      taken to cost a third of a step a batch of rows.
    """
    short = dataclasses.replace(recipe, steps=2, evaluate=2)
    looks = train(model.params, model.config, cartridge, prepared.course, short).history
    step_s = looks[2].seconds - looks[1].seconds
    held = prepared.held_out
    batches = 0 if held is None else -(-len(held.rows.ids) // recipe.batch)
    return step_s, batches * step_s / 3.0


def run_identity(
    prepared: Prepared, model: Model, cartridge: Cartridge, recipe: Recipe, start: str, seed: int
) -> dict[str, str]:
    """What makes a run this one: see `save_state`.

    Args:
      prepared: from `prepare`.
      model: that is trained with.
      cartridge: to start from, P slots: what is trained stands at its positions.
      recipe: of the training.
      start: name of the start.
      seed: of the run.

    Returns:
      Strings by name; "templates" and "steps" are what a budget chose.
    """
    digest = hashlib.sha256()
    for array in prepared.course.rows:
        digest.update(np.ascontiguousarray(array).tobytes())
    stands = np.asarray([] if cartridge.positions is None else cartridge.positions, np.int64)
    return known_identity(model, prepared.reading.text, cartridge.slots, start, seed) | {
        "positions": hashlib.sha256(stands.tobytes()).hexdigest(),
        "templates": str(prepared.templates),
        "rows": digest.hexdigest(),
        "steps": str(recipe.steps),
        "recipe": repr(recipe),
    }


def known_identity(model: Model, text: str, slots: int, start: str, seed: int) -> dict[str, str]:
    """The part of `run_identity` that is known before any work is done.

    Args:
      model: that is trained with.
      text: the document.
      slots: P.
      start: name of the start.
      seed: of the run.

    Returns:
      Strings by name.
    """
    return {
        "model": model.fingerprint,
        "weights": str(model.params["embedding"].dtype),
        "document": document_digest(text),
        "slots": str(slots),
        "start": start,
        "seed": str(seed),
    }


def check_identity(path: str, stored: Mapping[str, str], known: Mapping[str, str]) -> None:
    """Refuse a saved run that is another one, before it costs anything.

    Args:
      path: of the run, for the message.
      stored: its identity.
      known: what this one's is so far.

    Raises:
      ValueError: naming the first thing that differs.
    """
    for name, wanted in known.items():
        if stored.get(name) != wanted:
            raise ValueError(
                f"{path}: another run's: expected {name} {wanted!r}, got {stored.get(name)!r}"
            )
