"""Prompt logs: what a prefix cache reuses of an agent's calls, what breaks it, what that costs."""

from jaxmem.prompts.doctor import Diagnosis, diagnose
from jaxmem.prompts.findings import Finding
from jaxmem.prompts.log import KINDS, LogBuilder, PromptLog, Segment
from jaxmem.prompts.price import LogPrice, price, prices
from jaxmem.prompts.readers import read_log
from jaxmem.prompts.reuse import HOW, Reuse, block_trace, reuse
from jaxmem.prompts.rules import RULES, Rules

__all__ = [
    "HOW",
    "KINDS",
    "RULES",
    "Diagnosis",
    "Finding",
    "LogBuilder",
    "LogPrice",
    "PromptLog",
    "Reuse",
    "Rules",
    "Segment",
    "block_trace",
    "diagnose",
    "price",
    "prices",
    "read_log",
    "reuse",
]
