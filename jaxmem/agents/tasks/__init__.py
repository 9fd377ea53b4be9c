"""Tasks that agents with a memory are measured by."""

from jaxmem.agents.tasks.nested_kv import follow_keys, made_up, nested_kv, read_nested_kv

__all__ = ["follow_keys", "made_up", "nested_kv", "read_nested_kv"]
