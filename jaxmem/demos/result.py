"""What a demo returns: tables, the lecture's figures beside ours, pictures to draw."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxmem.demos.lecture import Figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture


class Table(NamedTuple):
    """A table with its title.

    Attributes:
      title: what it shows.
      headers: column names.
      rows: cells; numbers, text or None.
      notes: lines below it.
    """

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = ()


class DemoResult(NamedTuple):
    """All that one demo shows.

    Attributes:
      tables: in order.
      figures: ours beside the lecture's, by id.
      pictures: functions that draw a picture, by file name; called only when it is wanted.
      choices: what was chosen where the lecture is silent, a line each.
    """

    tables: Sequence[Table]
    figures: Mapping[str, Figure]
    pictures: Mapping[str, Callable[[], "Picture"]]
    choices: Sequence[str] = ()


class Demo(NamedTuple):
    """An entry of the registry.

    Attributes:
      title: one line.
      run: from `full` (the stated seeds instead of a quick preset) to the result.
    """

    title: str
    run: Callable[[bool], DemoResult]
