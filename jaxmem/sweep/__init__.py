"""Seeds x settings in one call: on all devices, written as it goes, resumed after a kill."""

from jaxmem.sweep.batches import sweep
from jaxmem.sweep.result import Sweep
from jaxmem.sweep.settings import grid

__all__ = ["Sweep", "grid", "sweep"]
