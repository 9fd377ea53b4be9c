"""The picture of `jaxmem cartridge eval`: what is lost against what is kept."""

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from jaxmem.cli.cartridge_common import size
from jaxmem.cli.terminal import printable
from jaxmem.common import mean_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def kl_by_bytes(panel: "Axes", rows: Sequence[dict[str, Any]], title: str) -> None:
    """KL to the full context against bytes, a curve a method, the mean of its runs.

    Args:
      panel: to draw on.
      rows: with method, kl and bytes; several of one method and size have a 95 % interval.
      title: of the panel.
    """
    marks = iter("osD^vPXphd<>" * 10)
    for method in dict.fromkeys(row["method"] for row in rows):
        found: dict[float, list[float]] = {}
        for row in rows:
            if row["method"] == method:
                found.setdefault(row["bytes"], []).append(row["kl"])
        sizes = sorted(found)
        means = [mean_interval(found[one]) for one in sizes]
        middle = [one.mean for one in means]
        if method == "no context":
            panel.axhline(middle[0], color="black", linestyle="--", linewidth=1)
            panel.annotate(
                method, (1.0, middle[0]), xycoords=("axes fraction", "data"),
                ha="right", va="bottom",
            )  # fmt: skip
        elif method == "full context":
            panel.plot(
                sizes, middle, marker="*", markersize=12, color="black", linestyle="none",
                clip_on=False, label=method,
            )  # fmt: skip
        else:
            style = "none" if len(sizes) == 1 else "-"
            bars = [one.high - one.mean if isfinite(one.high) else 0.0 for one in means]
            panel.errorbar(
                sizes, middle, bars, marker=next(marks), linestyle=style, capsize=2,
                label=printable(method),
            )  # fmt: skip
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter(lambda x, _: size(x))
    panel.xaxis.set_minor_formatter(lambda x, _: size(x) if f"{x:.0e}"[0] in "25" else "")
    panel.set_ylim(bottom=0)
    panel.set_xlabel("bytes of the cache")
    panel.set_ylabel("KL to the full context, nats a token")
    panel.set_title(title, loc="left", fontsize=11)
