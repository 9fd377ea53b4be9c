"""The prompts that agents with a memory send: MemGPT's queue, ACE's playbook, and their cost."""

from jaxmem.sessions.adaptation import VARIANTS, Adaptation, adapt
from jaxmem.sessions.feedback import pollution
from jaxmem.sessions.layouts import LAYOUTS
from jaxmem.sessions.playbook import SECTIONS, Delta, Playbook, merge, render
from jaxmem.sessions.presets import PRESETS, Settings
from jaxmem.sessions.refinement import refined
from jaxmem.sessions.serving import gpu_seconds, served
from jaxmem.sessions.session import Session, memgpt, memgpt_sessions

__all__ = [
    "LAYOUTS",
    "PRESETS",
    "SECTIONS",
    "VARIANTS",
    "Adaptation",
    "Delta",
    "Playbook",
    "Session",
    "Settings",
    "adapt",
    "gpu_seconds",
    "memgpt",
    "memgpt_sessions",
    "merge",
    "pollution",
    "refined",
    "render",
    "served",
]
