"""Tasks that agents with a memory are measured by."""

from jaxmem.agents.tasks.chats import Chat, read_chats
from jaxmem.agents.tasks.document_qa import document_qa, turn_pages
from jaxmem.agents.tasks.memory_retrieval import memory_retrieval, rouge_l, summary_retrieval
from jaxmem.agents.tasks.nested_kv import follow_keys, made_up, nested_kv, read_nested_kv
from jaxmem.agents.tasks.opener import conversation_opener

__all__ = [
    "Chat",
    "conversation_opener",
    "document_qa",
    "follow_keys",
    "made_up",
    "memory_retrieval",
    "nested_kv",
    "read_chats",
    "read_nested_kv",
    "rouge_l",
    "summary_retrieval",
    "turn_pages",
]
