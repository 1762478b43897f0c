"""Counts in boxes and zones with error bars, computed from published numbers alone."""
