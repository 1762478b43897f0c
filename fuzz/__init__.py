"""Fuzz tests with hostile input: `make fuzz`. Each reader of the package has one target (fuzz/targets.py)."""
