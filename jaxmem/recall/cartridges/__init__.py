"""Cartridges: a small trainable KV cache in place of a document, and what needs no training."""

from jaxmem.recall.cartridges.cartridge import (
    SCALE,
    STARTS,
    Cartridge,
    attention_shares,
    compose,
    init_cartridge,
    pad,
    slot_entropy,
    whole,
)
from jaxmem.recall.cartridges.compaction import attention_matching, evict, truncate
from jaxmem.recall.cartridges.files import load_cartridge, save_cartridge
from jaxmem.recall.cartridges.training import History, Status, Trained, train_cartridge

__all__ = [
    "SCALE",
    "STARTS",
    "Cartridge",
    "History",
    "Status",
    "Trained",
    "attention_matching",
    "attention_shares",
    "compose",
    "evict",
    "init_cartridge",
    "load_cartridge",
    "pad",
    "save_cartridge",
    "slot_entropy",
    "train_cartridge",
    "truncate",
    "whole",
]
