"""`jaxmem demo`: the lecture's experiments beside its figures."""

import argparse
import math
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxmem import results
from jaxmem.common import lookup, write_text
from jaxmem.common.table import text_table
from jaxmem.demos import DEMOS, DemoResult, Extent, Figure, Table


def add(subparsers: Any) -> None:
    """Add the command's options.

    Args:
      subparsers: from `ArgumentParser.add_subparsers`.
    """
    parser = subparsers.add_parser("demo", help="run the lecture's experiments")
    parser.add_argument("number", nargs="?", metavar="NN", help="which one, all by default")
    parser.add_argument("--out", metavar="DIR", help="write pictures and figures.json there")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    parser.add_argument(
        "--full",
        action="store_true",
        help="the stated seeds and every table, not a quick preset (demo 01 has no seeds)",
    )
    parser.add_argument(
        "--beyond",
        action="store_true",
        help="our own settings beside the lecture's, marked as ours (demo 04)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run one demo or all, print them and write what was asked for.

    Args:
      args: parsed options.

    Returns:
      0.

    Raises:
      ValueError: if there is no such demo, or pictures cannot be drawn.
    """
    number = None if args.number is None else args.number.zfill(2)
    if args.out is not None and (not args.out or Path(args.out).is_file()):
        raise ValueError(f"--out: expected a folder, got {args.out!r}")
    if number:
        lookup(DEMOS, number, "demo")
    chosen = [number] if number else list(DEMOS)
    figures: dict[str, Figure] = {}
    tables: dict[str, Sequence[Table]] = {}
    for key in chosen:
        result = DEMOS[key].run(Extent(args.full, args.beyond))
        figures.update(result.figures)
        tables[key] = result.tables
        if not args.json:
            print(_page(key, result))
        if args.out:
            for name, draw in result.pictures.items():
                path = Path(args.out) / f"{key}_{name}"
                _save(draw(), path)
                if not args.json:
                    print(f"wrote {path}")
    text = _document(figures, tables)
    if args.out:
        write_text(Path(args.out) / "figures.json", text)
        if not args.json:
            print(f"wrote {Path(args.out) / 'figures.json'}")
    if args.json:
        print(text, end="")
    return 0


def figure_table(figures: Mapping[str, Figure]) -> str:
    """Our figures beside the lecture's, as a text table.

    Args:
      figures: by id.

    Returns:
      The table; a row that does not agree is marked "gap".
    """
    others = list(dict.fromkeys(name for f in figures.values() for name in f.beside))
    random = any(f.low is not None for f in figures.values())
    headers = ["figure", "lecture", "ours", *(["95 %"] if random else []), *others, "unit", ""]
    rows = []
    for id, figure in figures.items():
        row: list[object] = [id, _short(figure.lecture), _short(figure.value)]
        if random:
            low, high = figure.low, figure.high
            row.append("" if low is None or high is None else f"{_short(low)} .. {_short(high)}")
        row += [_short(figure.beside[name]) if name in figure.beside else "" for name in others]
        rows.append([*row, figure.unit, "ok" if figure.within else "gap"])
    return text_table(headers, rows)


def _page(key: str, result: DemoResult) -> str:
    title = f"Demo {key}. {DEMOS[key].title}"
    parts = [title, "=" * len(title)]
    for table in result.tables:
        parts += ["", table.title, "", text_table(table.headers, table.rows)]
        parts += [_wrapped(note, "  ") for note in table.notes]
    parts += ["", "Beside the lecture", "", figure_table(result.figures)]
    parts += [
        _wrapped(f"{id}: {figure.note}", "  ")
        for id, figure in result.figures.items()
        if figure.note
    ]
    if result.choices:
        parts += ["", "Chosen where the lecture is silent"]
        parts += [_wrapped(choice, "- ") for choice in result.choices]
    return "\n".join(parts) + "\n"


def _wrapped(text: str, mark: str) -> str:
    """A note as lines of at most the terminal's width, 100 columns where there is none."""
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    return textwrap.fill(
        text, max(width, 40), initial_indent=mark, subsequent_indent=" " * len(mark),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _document(figures: Mapping[str, Figure], tables: Mapping[str, Sequence[Table]]) -> str:
    """One JSON document: the stamp, each figure under its id, and each demo's tables."""
    rows = {id: figure._asdict() for id, figure in figures.items()}
    for row in rows.values():
        del row["id"]
    shown = {number: [table._asdict() for table in some] for number, some in tables.items()}
    return results.document({"figures": rows, "tables": shown})


def _save(picture: Any, path: Path) -> None:
    from jaxmem import plots

    plots.save(picture, path)


def _short(value: float) -> str:
    """Four significant digits, without an exponent where that is readable."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        digits = max(0, 3 - math.floor(math.log10(abs(value)))) if value else 0
        text = f"{value:,.{digits}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.3e}"
