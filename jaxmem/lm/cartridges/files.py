"""Cartridges of a language model on disk, with what they fit and where they come from."""

import datetime
import hashlib
import json
import math
import os
from collections.abc import Mapping
from typing import Any

import jaxmem
from jaxmem.common.safetensors_header import short
from jaxmem.lm.config import Config
from jaxmem.lm.fit import check_fit
from jaxmem.lm.model import Model
from jaxmem.recall.cartridges import Cartridge, load_cartridge, save_cartridge
from jaxmem.recall.cartridges.files import CartridgeHeader, read_header

_NUMBERS = ("layers", "kv_heads", "head_dim", "rope_theta", "rope_factor", "rope_llama3")
_MARK = "provenance."
_MOST_CHARACTERS = 200
_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F64": 8, "BOOL": 1, "I32": 4, "I64": 8}


def provenance_of(
    document: str,
    text: str,
    tokens: int,
    method: str,
    steps: int | None = None,
    seed: int | None = None,
) -> dict[str, str]:
    """What a cartridge's file says of where it comes from. The text itself is not in it.

    Args:
      document: name of the document; of a path only the last part is kept.
      text: of the document, for its SHA-256.
      tokens: of the document.
      method: how the cartridge was made.
      steps: of training, if there was any.
      seed: of what was drawn, if anything was.

    Returns:
      Strings by name, with jaxmem's version and today's date (UTC).
    """
    found = {
        "document": os.path.basename(document),
        "sha256": document_digest(text),
        "tokens": str(tokens),
        "method": method,
        "steps": None if steps is None else str(steps),
        "seed": None if seed is None else str(seed),
        "jaxmem": jaxmem.__version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    return {name: text for name, text in found.items() if text is not None}


def document_digest(text: str) -> str:
    """SHA-256 of a document's text, as files of cartridges and conversations have it.

    Args:
      text: the document.

    Returns:
      64 hexadecimal digits.
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def save(
    path: str | os.PathLike[str], cartridge: Cartridge, model: Model, provenance: Mapping[str, str]
) -> None:
    """Write a cartridge of a model to one safetensors file, whole or not at all.

    Args:
      path: the file, by custom with the suffix .safetensors.
      cartridge: keys and values [L, G, P, K].
      model: that it was made with; its name, fingerprints and rotation are stored.
      provenance: short strings by name, see `provenance_of`; no place for texts.

    Raises:
      ValueError: if it does not fit the model, a string is long or has lines, or the library
        safetensors is not installed.
    """
    check_fit(cartridge, model.config)
    if not isinstance(provenance, Mapping):
        raise ValueError(f"expected provenance by name, got {short(provenance)}")
    for name, text in provenance.items():
        plain = isinstance(name, str) and isinstance(text, str)
        if not plain or not (name + text).isprintable() or len(text) > _MOST_CHARACTERS:
            raise ValueError(
                f"expected provenance of one line of at most {_MOST_CHARACTERS} characters by "
                f"name, got {short({name: text})}"
            )
    metadata = _identity(model) | {_MARK + name: text for name, text in provenance.items()}
    save_cartridge(path, cartridge, metadata)


def load(path: str | os.PathLike[str], model: Model) -> tuple[Cartridge, dict[str, str]]:
    """Read a cartridge of this model.

    Args:
      path: a file that `save` wrote.
      model: that is to read it.

    Returns:
      The cartridge, keys and values [L, G, P, K], and its provenance.

    Raises:
      ValueError: if the file is damaged, or of another model or tokenizer, naming both.
      OSError: if it cannot be read.
    """
    found = describe(path)
    _check_model(path, found, model)
    cartridge, _ = load_cartridge(path)
    try:
        check_fit(cartridge, model.config)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return cartridge, found["provenance"]


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a cartridge's file says of itself, without a model and without its numbers.

    Args:
      path: a file that `save` wrote.

    Returns:
      By name: model, fingerprint and tokenizer; layers, kv_heads, head_dim, rope_theta,
      rope_factor and rope_llama3 (a list or None) of the model; slots, frozen, first_question
      (or None), bias and mask (whether there is one), type and bytes of the tensors; provenance
      (strings by name).

    Raises:
      ValueError: if it is damaged, or no cartridge of a language model.
      OSError: if it cannot be read.
    """
    header = read_header(path)
    own = header.metadata
    names = ("model", "fingerprint", "tokenizer", *_NUMBERS[:5])
    missing = [name for name in names if name not in own]
    if missing:
        raise ValueError(
            f"{path}: expected a cartridge of a language model, got one without {missing[0]}"
        )
    found: dict[str, Any] = {name: own[name] for name in names[:3]}
    for name in _NUMBERS:
        found[name] = _number(path, name, own.get(name, "null"))
    shape = header.shapes["keys"]
    told = [found["layers"], found["kv_heads"], found["head_dim"]]
    if len(shape) != 4 or told != [*shape[:2], shape[3]] or shape != header.shapes["values"]:
        raise ValueError(
            f"{path}: expected keys and values [{told[0]}, {told[1]}, slots, {told[2]}], got "
            f"{list(shape)} and {list(header.shapes['values'])}"
        )
    found |= {
        "slots": shape[2],
        "frozen": header.settings["frozen"],
        "first_question": header.settings.get("first_question"),
        "bias": "bias" in header.shapes,
        "mask": "mask" in header.shapes,
        "type": header.types["keys"],
        "bytes": _bytes(header),
        "provenance": {
            name.removeprefix(_MARK): text for name, text in own.items() if name.startswith(_MARK)
        },
    }
    return found


def _identity(model: Model) -> dict[str, str]:
    """Metadata that says which model a cartridge is of."""
    numbers = {name: text for name, text in _numbers(model.config).items() if text != "null"}
    names = {
        "model": model.name,
        "fingerprint": model.fingerprint,
        "tokenizer": _tokenizer(model),
    }
    return names | numbers


def _numbers(config: Config) -> dict[str, str]:
    """Of the shape, what keys and values depend on, as JSON."""
    return {name: json.dumps(getattr(config, name)) for name in _NUMBERS}


def _number(path: str | os.PathLike[str], name: str, text: str) -> Any:
    try:
        number = json.loads(text) if len(text) <= _MOST_CHARACTERS else text
    except (ValueError, RecursionError):
        number = text
    numbers = number if name == "rope_llama3" and isinstance(number, list) else [number]
    absent = name == "rope_llama3" and number is None
    if not absent and not all(map(_is_positive, numbers)):
        raise ValueError(f"{path}: expected a number for {name}, got {short(text)}")
    return number


def _is_positive(thing: Any) -> bool:
    return isinstance(thing, (int, float)) and not isinstance(thing, bool) and thing > 0


def _check_model(path: str | os.PathLike[str], found: Mapping[str, Any], model: Model) -> None:
    if found["fingerprint"] != model.fingerprint:
        raise ValueError(
            f"{path}: expected a cartridge of {model.name} (fingerprint {model.fingerprint}), got "
            f"one of {short(found['model'])} (fingerprint {short(found['fingerprint'])})"
        )
    own = _tokenizer(model)
    if found["tokenizer"] != own:
        raise ValueError(
            f"{path}: expected a cartridge made with {model.name}'s tokenizer {own}, got one made "
            f"with {short(found['tokenizer'])}"
        )
    for name, text in _numbers(model.config).items():
        if found[name] != json.loads(text):
            raise ValueError(
                f"{path}: expected {name} {text} of {model.name}, got {short(found[name])}"
            )


def _tokenizer(model: Model) -> str:
    """The tokenizer's fingerprint; a model for tests may have none."""
    return getattr(model.tokenizer, "fingerprint", "none")


def _bytes(header: CartridgeHeader) -> int:
    return sum(
        math.prod(shape) * _BYTES[header.types[name]] for name, shape in header.shapes.items()
    )
