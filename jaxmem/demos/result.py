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


class Extent(NamedTuple):
    """How much of a demo to run.

    Attributes:
      full: the stated seeds and every table, not a quick preset.
      beyond: our own settings beside the lecture's, where there are any.
    """

    full: bool = False
    beyond: bool = False


class Demo(NamedTuple):
    """An entry of the registry.

    Attributes:
      title: one line.
      run: from the extent to the result.
    """

    title: str
    run: Callable[[Extent], DemoResult]
