"""Entry point of the `jaxmem` command."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import jaxmem
from jaxmem.cli import agent, cache, cartridge, cost, demo, doctor
from jaxmem.cli.terminal import printable

COMMANDS = (demo, cost, cache, doctor, cartridge, agent)


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Print the message and leave with exit code 2."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
      argv: the arguments, those of the process by default.

    Returns:
      The exit code: 0, or 2 with a line on standard error for bad input.
    """
    parser = Parser(prog="jaxmem", description="What a memory costs and what it remembers.")
    parser.add_argument("--version", action="version", version=f"jaxmem {jaxmem.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(commands)
    args = parser.parse_args(argv)
    try:
        code: int = args.run(args)
        if sys.stdout is not None:  # closed by the shell (>&-)
            sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of our output has gone (`| head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("jaxmem: interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"jaxmem: {printable(f'{where}{error.strerror or error}')}", file=sys.stderr)
        return 2
    except (ValueError, MemoryError) as error:
        message = printable(" ".join(str(error).split())) or "out of memory"
        print(f"jaxmem: {message}", file=sys.stderr)
        return 2
