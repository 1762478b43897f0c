"""Hostile input, in bulk: `make fuzz`. Every reader of the package has one target (fuzz/targets.py)."""
