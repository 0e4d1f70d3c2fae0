"""Time and memory of serving M rules: a first token, a further one, a search; ours beside other ways to hold rules."""
