"""Sessions: the prompts that an agent with a memory sends, call by call."""
