"""Coordinate reference systems and the base map."""
