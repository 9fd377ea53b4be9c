"""`jaxmem cartridge ask`, `show` and `export`: a cartridge read, its file, and other formats."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxmem import results
from jaxmem.cli.cartridge_common import (
    check_outputs,
    chosen_model,
    document_tokens,
    read_text,
    size,
    working,
)
from jaxmem.cli.terminal import printable
from jaxmem.common.table import text_table

if TYPE_CHECKING:
    from jaxmem.lm import Model
    from jaxmem.recall.cartridges import Cartridge


def run(args: argparse.Namespace) -> int:
    """Print the answer to a question, beside those without and with the document if there is one.

    Args:
      args: parsed options.

    Returns:
      0.

    Raises:
      ValueError: for a cartridge of another model, or a question without words.
    """
    from jaxmem.lm.cartridges.answers import answer
    from jaxmem.lm.cartridges.composition import compose
    from jaxmem.lm.cartridges.files import describe, load

    if not args.question.strip():
        raise ValueError("QUESTION: expected a question, got a blank one")
    paths = [args.cartridge, *args.others]
    for path in paths:
        describe(path)  # before a model is read
    text = None if args.document is None else read_text(args.document)
    model = chosen_model(args)
    loaded = [load(path, model) for path in paths]
    readers: dict[str, Cartridge | None] = {
        "cartridge": compose(model.config, *(one for one, _ in loaded))
    }
    if text is not None:
        readers |= {"full context": _whole(model, text, args.document), "no context": None}
    records = []
    for reader, cartridge in readers.items():
        began = time.monotonic()
        with working(f"answering, {reader}"):
            told = answer(
                model, cartridge, args.question,
                tokens=args.tokens, temperature=args.temperature, seed=args.seed,
            )  # fmt: skip
        record = {
            "reader": reader,
            "question": args.question,
            "answer": told.text,
            "cartridges": ", ".join(paths),
            "model": model.name,
            "slots": 0 if cartridge is None else cartridge.slots,
            "tokens": told.tokens,
            "seconds": time.monotonic() - began,
        }
        records.append(record)
        if not args.json:
            alone = len(readers) == 1
            print(printable(told.text if alone else f"{reader}: {told.text}"), flush=True)
    if args.json:
        print(results.to_json(records), end="")
    return 0


def _whole(model: "Model", text: str, path: str) -> "Cartridge":
    """The cache of a document that fits into the context."""
    from jaxmem.lm.cartridges.reading import read_document

    tokens = document_tokens(model, text)
    with working("reading the document"):
        reading = read_document(model, text)
    if len(reading.parts) > 1:
        raise ValueError(
            f"--document: expected one that fits into the model's {model.config.positions:,} "
            f"positions, {path} has {tokens:,} tokens"
        )
    return reading.whole


def show(args: argparse.Namespace) -> int:
    """Print what a cartridge's file says of itself.

    Args:
      args: parsed options.

    Returns:
      0.

    Raises:
      ValueError: if it is no cartridge of a language model.
    """
    from jaxmem.lm.cartridges.files import describe

    found = describe(args.cartridge)
    if args.json:
        print(results.document(found), end="")
        return 0
    rows: list[list[Any]] = []
    for name, value in found.items():
        if name == "provenance":
            rows += [[key, text] for key, text in value.items()]
        elif name == "bytes":
            rows.append([name, f"{value:,} ({size(value)})"])
        elif isinstance(value, bool):
            rows.append([name, "yes" if value else "no"])
        elif value is not None:
            rows.append([name, f"{value:,}" if isinstance(value, int) else str(value)])
    print(printable(text_table([str(args.cartridge), ""], rows)))
    return 0


def export(args: argparse.Namespace) -> int:
    """Write a cartridge in another library's format.

    Args:
      args: parsed options.

    Returns:
      0.

    Raises:
      ValueError: for a cartridge of another model, or one that the format cannot hold.
    """
    from jaxmem.lm.cartridges.files import describe, load
    from jaxmem.lm.cartridges.formats import save_hf_cache, save_peft

    describe(args.cartridge)
    inputs = {"the cartridge": args.cartridge, "--model": args.model}
    if args.to == "hf-cache":
        check_outputs({"--out": args.out}, inputs)
    elif Path(args.out).exists() and not Path(args.out).is_dir():
        raise ValueError(f"--out: expected a folder, {args.out} is a file")
    model = chosen_model(args)
    cartridge, _ = load(args.cartridge, model)
    {"peft": save_peft, "hf-cache": save_hf_cache}[args.to](args.out, cartridge, model)
    print(f"wrote {printable(args.out)}: {cartridge.slots:,} slots for {printable(model.name)}")
    return 0
