"""Plain text tables for terminals and pipes."""

from collections.abc import Sequence
from typing import Any


def text_table(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns under headers, numbers to the right, text to the left.

    Args:
      headers: column names.
      rows: cells; None is shown as "-", floats to four significant digits.

    Returns:
      The table, a line a row, without a final newline.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    right = [
        all(isinstance(row[i], (int, float, type(None))) for row in rows)
        for i in range(len(headers))
    ]
    widths = [max(len(row[i]) for row in [list(headers), *cells]) for i in range(len(headers))]
    lines = [list(headers), ["-" * width for width in widths], *cells]
    return "\n".join(
        "  ".join(
            text.rjust(width) if flag else text.ljust(width)
            for text, width, flag in zip(line, widths, right)
        ).rstrip()
        for line in lines
    )


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return f"{value:.3e}"
