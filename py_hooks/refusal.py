"""The base of every error with which these hooks end a process."""
from __future__ import annotations

from py_hooks.border import ExitCode


class Refusal(Exception):
    """An error that ends the run: one message, one hint, one exit code of the host, and no traceback.

    Args:
        message: what failed with the value received, then, indented, what was expected and what was done.
        hint: one imperative, with the command.
    """

    exit_code = ExitCode.BUG

    def __init__(self, message: str, hint: str | None) -> None:
        Exception.__init__(self, message)
        self.hint = hint
