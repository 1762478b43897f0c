"""Releases: how they are made, what they guarantee, and the files they live in."""
