"""Arrays in, arrays out. No classes, no files, no privacy decisions.

Every kernel has a slow, obvious twin in the tests, most of them in ``tests/naive.py``.
"""
