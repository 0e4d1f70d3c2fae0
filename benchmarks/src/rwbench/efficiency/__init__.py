"""What rules cost: time to first token, time per token, selection, memory, training steps, and what an index misses."""
