"""What fits in a memory of fixed size: facts, attention, linear memories, cartridges, limits."""
