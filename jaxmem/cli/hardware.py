"""The options that choose a model and an accelerator, for every command that has them."""

import argparse

from jaxmem.common import lookup
from jaxmem.roofline import ACCELERATORS, MODELS, Accelerator, Model
from jaxmem.roofline.models import KV_BYTES


def add_model(parser: argparse.ArgumentParser, required: bool) -> None:
    """Add --model, --config and --kv-dtype.

    Args:
      parser: the command's parser.
      required: whether one of --model and --config must be given.
    """
    what = parser.add_mutually_exclusive_group(required=required)
    what.add_argument("--model", metavar="NAME", help=f"one of: {', '.join(MODELS)}")
    what.add_argument("--config", metavar="FILE", help="a Hugging Face config.json")
    parser.add_argument("--kv-dtype", default="bf16", metavar="TYPE", help="bf16, fp8 or int8")


def add_accelerator(parser: argparse.ArgumentParser, default: str | None) -> None:
    """Add --gpu and --efficiency.

    Args:
      parser: the command's parser.
      default: the accelerator if none is named; None makes the option required.
    """
    names = ", ".join(ACCELERATORS)
    text = f"one of: {names}" + (f" (default {default})" if default else "")
    parser.add_argument(
        "--gpu", default=default, required=default is None, metavar="NAME", help=text
    )
    parser.add_argument(
        "--efficiency",
        choices=("constant", "measured"),
        help="constant MFU 0.70 and MBU 0.80, or fitted to measured kernels (where they exist)",
    )


def chosen_model(args: argparse.Namespace) -> Model | None:
    """The model that the options name.

    Args:
      args: parsed options of `add_model`.

    Returns:
      The model, None if neither --model nor --config was given.

    Raises:
      ValueError: for an unknown name or dtype, or a config that cannot be read.
    """
    lookup(KV_BYTES, args.kv_dtype, "KV dtype")
    if args.config is not None:
        model = Model.from_config(args.config)
    elif args.model is not None:
        model = lookup(MODELS, args.model, "model")
    else:
        return None
    return model.with_kv_dtype(args.kv_dtype)


def chosen_accelerator(args: argparse.Namespace) -> Accelerator:
    """The accelerator that --gpu names, in full or by a start that only one has ("h100").

    Args:
      args: parsed options of `add_accelerator`.

    Returns:
      The accelerator.

    Raises:
      ValueError: for an unknown name.
    """
    starts = [known for known in ACCELERATORS if known.startswith(args.gpu.lower())]
    return lookup(ACCELERATORS, starts[0] if len(starts) == 1 else args.gpu, "accelerator")
