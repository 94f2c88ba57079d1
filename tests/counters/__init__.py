"""Counts of what the source should have none of, or little: `cargo dev counters` prints them, `cargo dev check` compares them.

Each counter has a goal, and a limit that is the goal or, as long as the source is not there yet, its count of today (`table`).
A count above its limit fails the check, so nothing gets worse.

`source` lists the files. `python_rules`, `rust_rules` and `imports` find places in code, `prose` finds phrases in comments,
docstrings, messages and documents. `tests/hooks/test_counters.py` proves each rule on short pieces of text.
"""
