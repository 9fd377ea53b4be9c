"""What the commands of `jaxmem cartridge` share: the document, the model, sizes and words."""

import argparse
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from jaxmem.cli.terminal import printable
from jaxmem.common import files

if TYPE_CHECKING:
    from jaxmem.lm import Model
    from jaxmem.lm.cartridges.state import State

_MOST_BYTES = 2**28  # of a document: no model reads as much


def read_text(path: str) -> str:
    """A document.

    Args:
      path: of a UTF-8 text file.

    Returns:
      Its text.

    Raises:
      ValueError: if it is no file, holds no text or far too much.
    """
    if not path or Path(path).is_dir():
        raise ValueError(f"DOCUMENT: expected a text file, got {path!r}")
    text = files.read_text(path, _MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise ValueError(f"{path}: expected at most {_MOST_BYTES:,} characters, got more")
    if "\0" in text:
        raise ValueError(f"{path}: expected text, got a file with zero bytes in it")
    if not text.strip():
        raise ValueError(f"{path}: expected a document with words in it, got an empty one")
    return text


def check_outputs(outputs: Mapping[str, str | None], inputs: Mapping[str, str | None]) -> None:
    """Refuse files that cannot be written or must not be, before any work is done.

    Args:
      outputs: files to be, by option; None for those not asked for.
      inputs: files and folders that are read, by option.

    Raises:
      ValueError: if one is no name of a file, is read too, or written twice.
      OSError: if the system does not allow it.
    """
    known = {name: Path(os.path.realpath(path)) for name, path in inputs.items() if path}
    for flag, path in outputs.items():
        if path is None:
            continue
        try:
            files.check_writable(path)
        except ValueError as error:
            raise ValueError(f"{flag}: {error}") from error
        target = Path(os.path.realpath(path))
        for name, other in known.items():
            same = target.exists() and other.exists() and target.samefile(other)
            if same or target == other or (other.is_dir() and target.parent == other):
                raise ValueError(f"{flag}: {path} is {name}, which would be overwritten")
        known[f"{flag} too"] = target


def inputs_of(args: argparse.Namespace) -> dict[str, str | None]:
    """What a command reads, by option.

    Args:
      args: parsed options.

    Returns:
      Paths; None for what is not given.
    """
    named = ("questions", "rows", "model")
    found = {f"--{name}": getattr(args, name, None) for name in named}
    several = getattr(args, "cartridge", None) or []
    return {"the document": args.document, **found} | {
        f"--cartridge {path}": path for path in several
    }


def chosen_model(args: argparse.Namespace) -> "Model":
    """The model asked for.

    Args:
      args: parsed options, `model` and `float32`.

    Returns:
      The model, SmolLM2-135M-Instruct by default.

    Raises:
      ValueError: if it cannot be read, or is not installed.
    """
    from jaxmem.lm import load_model, smollm2

    dtype = "float32" if args.float32 else "bfloat16"
    if args.model is not None and not Path(args.model).exists():
        raise ValueError(f"--model: expected a folder or a .gguf file, there is no {args.model!r}")
    with working("reading the model"):
        return smollm2(dtype) if args.model is None else load_model(args.model, dtype)


def document_tokens(model: "Model", text: str) -> int:
    """Tokens of a document as the teacher reads it, if memory holds them.

    Args:
      model: the reader.
      text: the document.

    Returns:
      The number of tokens of a system turn with the document.

    Raises:
      ValueError: if their cache would not fit into memory.
    """
    from jaxmem.lm.cartridges.machine import memory_bytes

    count = len(model.tokenizer.chat([("system", text)], open=False))
    needed = 3 * count * model.config.kv_bytes
    if needed > memory_bytes():
        raise ValueError(
            f"the document has {count:,} tokens, whose cache needs {needed / 1e9:,.1f} GB; this "
            f"machine has {memory_bytes() / 1e9:,.1f}"
        )
    return count


def slots_of(tokens: int, slots: int | None, ratio: float | None) -> int:
    """The size of a cartridge.

    Args:
      tokens: of the document.
      slots: asked for, or None.
      ratio: tokens a slot, or None; 8 if both are None.

    Returns:
      Slots, at least 2: one is the sink.

    Raises:
      ValueError: if there are more than tokens.
    """
    count = slots if slots is not None else max(2, round(tokens / (ratio or 8.0)))
    if count < 2:
        raise ValueError(f"--slots: expected at least 2, the first is the sink, got {count}")
    if count > tokens:
        raise ValueError(
            f"--slots: expected at most the document's {tokens:,} tokens, got {count:,}: a "
            "document this short is best kept in the context"
        )
    return count


def check_rate(rate: float) -> None:
    """Refuse a learning rate that nothing can be learnt with.

    Args:
      rate: of --rate.

    Raises:
      ValueError: if it is 0 or above 10.
    """
    if not 0 < rate <= 10:
        raise ValueError(f"--rate: expected more than 0 and at most 10, got {rate:g}")


def notice(text: str) -> None:
    """Print a line on standard error.

    Args:
      text: what to say.
    """
    print(f"jaxmem: notice: {printable(text)}", file=sys.stderr)


def size(nbytes: float) -> str:
    """Bytes for people.

    Args:
      nbytes: how many.

    Returns:
      Such as "1.23 MB".
    """
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= scale:
            return f"{nbytes / scale:,.3g} {unit}" if nbytes < 1e12 else f"{nbytes / 1e9:,.0f} GB"
    return f"{nbytes:,.0f} bytes"


def duration(seconds: float) -> str:
    """Seconds for people.

    Args:
      seconds: how many.

    Returns:
      Such as "12.3 s" or "4 min 5 s".
    """
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


@contextmanager
def working(label: str) -> Iterator[None]:
    """Say on a terminal what is being done while it is.

    Args:
      label: a word or two.

    Yields:
      Nothing.
    """
    shown = sys.stderr.isatty()
    if shown:
        print(f"\r\033[K{label} ...", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


class RunLine:
    """A line about a run of training, on a terminal only.

    Attributes:
      steps: of the run.
      drawn: whether there is a line to take away.
      first: step and time of the first look.
    """

    def __init__(self, steps: int) -> None:
        self.steps, self.drawn = steps, False
        self.first: tuple[int, float] | None = None

    def look(self, state: "State") -> None:
        """Show how far it is.

        Args:
          state: the run as it is now.
        """
        if not sys.stderr.isatty():
            return
        last, now = state.history[-1], time.monotonic()
        if self.first is None:
            self.first = last.step, now
        parts = [f"step {last.step:,}/{self.steps:,}"]
        if not math.isnan(last.loss):
            parts.append(f"KL {last.loss:.3f}")
        if not math.isnan(last.held_out):
            parts.append(f"held out {last.held_out:.3f}")
        if last.tokens_s:
            parts.append(f"{last.tokens_s:,.0f} tokens/s")
        done = last.step - self.first[0]
        if done:
            left = (self.steps - last.step) * (now - self.first[1]) / done
            parts.append(f"{duration(left)} left")
        sys.stderr.write(f"\r\033[K{'  '.join(parts)}")
        sys.stderr.flush()
        self.drawn = True

    def close(self) -> None:
        """Take the line away."""
        if self.drawn:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
