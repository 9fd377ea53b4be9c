"""`jaxmem cartridge ask` and `show`: a cartridge read by its model, and its file."""

import argparse
import time
from typing import Any

from jaxmem import results
from jaxmem.cli.cartridge_common import chosen_model, size
from jaxmem.cli.terminal import printable
from jaxmem.common.table import text_table

_PIECE = 32  # prompts are padded to a multiple, so that few programs are compiled


def run(args: argparse.Namespace) -> int:
    """Print the answer to a question.

    Args:
      args: parsed options.

    Returns:
      0.

    Raises:
      ValueError: for a cartridge of another model, or a question without words.
    """
    import jax
    import numpy as np

    from jaxmem.lm import generate
    from jaxmem.lm.cartridges.composition import compose
    from jaxmem.lm.cartridges.files import describe, load

    if not args.question.strip():
        raise ValueError("QUESTION: expected a question, got a blank one")
    paths = [args.cartridge, *args.others]
    for path in paths:
        describe(path)  # before a model is read
    model = chosen_model(args)
    loaded = [load(path, model) for path in paths]
    cartridge = compose(model.config, *(one for one, _ in loaded))
    tokenizer = model.tokenizer
    prompt = tokenizer.chat([("user", args.question)])
    ids = np.zeros((1, -(-len(prompt) // _PIECE) * _PIECE), np.int32)
    ids[0, : len(prompt)] = prompt
    began = time.monotonic()
    ends = sorted({tokenizer.end, tokenizer.eos})
    made = generate(
        model.params, model.config, ids, np.array([len(prompt)]),
        steps=args.tokens, key=jax.random.key(args.seed), temperature=args.temperature,
        cartridge=cartridge, stop=ends,
    )  # fmt: skip
    told = np.asarray(made.ids[0, : int(made.lengths[0])])
    seconds = time.monotonic() - began
    answer = tokenizer.decode(told[~np.isin(told, ends)]).strip()
    if args.json:
        record = {
            "question": args.question,
            "answer": answer,
            "cartridges": ", ".join(paths),
            "model": model.name,
            "slots": cartridge.slots,
            "tokens": len(told),
            "seconds": seconds,
        }
        print(results.to_json([record]), end="")
    else:
        print(printable(answer))
    return 0


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
