"""Small helpers that every other folder shares, each written once."""

from jaxmem.common.files import open_text, write_text
from jaxmem.common.intervals import (
    Interval,
    clustered_bootstrap,
    clustered_interval,
    mean_interval,
    paired_bootstrap,
    run_interval,
    smaller_run,
)
from jaxmem.common.masked import masked_softmax, masked_top_k
from jaxmem.common.names import choice, lookup
from jaxmem.common.numbers import check_flag, check_number, check_size, is_given
from jaxmem.common.progress import progress

__all__ = [
    "Interval",
    "check_flag",
    "check_number",
    "check_size",
    "choice",
    "clustered_bootstrap",
    "clustered_interval",
    "is_given",
    "lookup",
    "masked_softmax",
    "masked_top_k",
    "mean_interval",
    "open_text",
    "paired_bootstrap",
    "progress",
    "run_interval",
    "smaller_run",
    "write_text",
]
