"""What a context costs on an accelerator: memory, prefill, decode, throughput, break-even."""

from jaxmem.roofline.accelerators import ACCELERATORS, Accelerator, stack
from jaxmem.roofline.break_even import break_even_queries
from jaxmem.roofline.catalogue import MODELS
from jaxmem.roofline.cost import decode, kv_cache_bytes, prefill, throughput
from jaxmem.roofline.efficiency import MEASURED, Constant, Measured
from jaxmem.roofline.models import Model
from jaxmem.roofline.planner import Assumptions, plan

__all__ = [
    "ACCELERATORS",
    "MEASURED",
    "MODELS",
    "Accelerator",
    "Assumptions",
    "Constant",
    "Measured",
    "Model",
    "break_even_queries",
    "decode",
    "kv_cache_bytes",
    "plan",
    "prefill",
    "stack",
    "throughput",
]
