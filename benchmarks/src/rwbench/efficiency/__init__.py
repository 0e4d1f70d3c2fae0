"""Latency and memory of serving M rules, cost of a training step with them, and recall of approximate indexes."""
