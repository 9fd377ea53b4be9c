"""What the commands of `jaxmem cartridge` share: the document, the model, sizes and words."""

import argparse
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from jaxmem.cli.terminal import printable
from jaxmem.common import open_text

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
    try:
        with open_text(path) as stream:
            text = stream.read(_MOST_BYTES + 1)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: expected UTF-8 text, got byte {error.object[error.start]:#x}"
        ) from error
    except EOFError as error:
        raise ValueError(f"{path}: expected a whole gzip file, it ends early") from error
    if len(text) > _MOST_BYTES:
        raise ValueError(f"{path}: expected at most {_MOST_BYTES:,} characters, got more")
    if "\0" in text:
        raise ValueError(f"{path}: expected text, got a file with zero bytes in it")
    if not text.strip():
        raise ValueError(f"{path}: expected a document with words in it, got an empty one")
    return text


def check_output(flag: str, path: str, document: str) -> None:
    """Refuse a name that cannot be written, before any work is done.

    Args:
      flag: the option, for the message.
      path: the file to be.
      document: that must not be overwritten.

    Raises:
      ValueError: if it is no name of a file, or the document's.
    """
    if not path or Path(path).is_dir():
        raise ValueError(f"{flag}: expected a file to write, got {path!r}")
    if Path(path).exists() and Path(path).samefile(document):
        raise ValueError(f"{flag}: {path} is the document itself")


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
    if args.model is None:
        return smollm2(dtype)
    if not Path(args.model).exists():
        raise ValueError(f"--model: expected a folder or a .gguf file, there is no {args.model!r}")
    return load_model(args.model, dtype)


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
