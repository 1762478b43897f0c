"""Compiled functions on arrays. They hold no state, read no files and make no privacy decisions.

Every kernel is tested against a slow, simple implementation, most of them in ``tests/naive.py``.
"""
