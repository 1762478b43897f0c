"""Answers from published numbers alone: boxes and zones, with error bars."""
