"""Agents with a memory on real text, with any language model."""
