"""Releases: how they are made, what they promise, and the files they live in."""
