"""Verbs of the command line that need Python.

`report.py` is for `pedl hooks` and `pedl doctor`, `export.py` for `pedl checkpoint export`.
"""
