"""Long runs that `cargo dev` starts: each is a program that continues where it stopped, and prints a table.

They run as `python -m campaigns.NAME` in `tests`, with the Python of a stack. `everything.py` has what they share.
"""
