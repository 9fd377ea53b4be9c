"""Drawing: the only module that imports matplotlib, and only when a picture is asked for."""

import os
from typing import TYPE_CHECKING

from jaxmem.common.files import atomic_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0b5fa5", "#d1495b", "#2e8b57", "#8d5fd3", "#c98a1b", "#5b6770")


def figure(
    columns: int = 1, rows: int = 1, width: float = 6.4, height: float = 4.0
) -> tuple["Figure", list["Axes"]]:
    """An empty figure in the house style.

    Args:
      columns, rows: the grid of panels.
      width, height: of one panel, in inches.

    Returns:
      The figure and its panels, row by row.

    Raises:
      ValueError: if matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("pictures need matplotlib: pip install 'jaxmem[plot]'") from error
    picture = Figure(figsize=(columns * width, rows * height), layout="constrained")
    FigureCanvasAgg(picture)
    panels = [picture.add_subplot(rows, columns, i + 1) for i in range(rows * columns)]
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(True, alpha=0.25, linewidth=0.6)
        panel.set_prop_cycle(color=COLOURS)
    return picture, panels


def check_path(path: str | os.PathLike[str]) -> None:
    """Refuse a name that `save` cannot write, before any work is done.

    Args:
      path: the picture to be.

    Raises:
      ValueError: if it does not end in `.png`, `.svg` or `.pdf`.
    """
    if os.path.splitext(path)[1].lower() not in (".png", ".svg", ".pdf"):
        raise ValueError(f"{str(path)!r}: pictures are written to .png, .svg or .pdf")


def save(picture: "Figure", path: str | os.PathLike[str]) -> None:
    """Write a figure, whole or not at all.

    Args:
      picture: from `figure`.
      path: a `.png`, `.svg` or `.pdf` file.

    Raises:
      ValueError: if the ending is none of these.
    """
    check_path(path)
    with atomic_path(path) as temporary:
        picture.savefig(temporary, dpi=150)
