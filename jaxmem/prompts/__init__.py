"""Prompt logs: what a prefix cache reuses of an agent's calls, what breaks it, what that costs."""

from jaxmem.prompts.log import KINDS, LogBuilder, PromptLog, Segment
from jaxmem.prompts.reuse import HOW, Reuse, block_trace, reuse

__all__ = ["HOW", "KINDS", "LogBuilder", "PromptLog", "Reuse", "Segment", "block_trace", "reuse"]
