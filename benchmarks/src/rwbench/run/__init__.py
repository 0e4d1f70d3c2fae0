"""Runs: a frozen spec becomes a folder of samples that survives being killed; pools, data and progress."""
