"""Texts to vectors: by hashing (needs nothing), by MiniLM in JAX, or by a server."""

from jaxmem.agents.embedders.embedder import Embedder
from jaxmem.agents.embedders.hashing import HashingEmbedder
from jaxmem.agents.embedders.minilm import MiniLM
from jaxmem.agents.embedders.served import ServedEmbedder

__all__ = ["Embedder", "HashingEmbedder", "MiniLM", "ServedEmbedder"]
