"""Training of adapters: examples and pools, losses, recipes, and the two stages on transformers' Trainer."""
