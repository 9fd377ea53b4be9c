"""What a context costs."""
