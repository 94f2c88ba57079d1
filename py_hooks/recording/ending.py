"""The one way to end a process for an error of ours: one message, one exit code, the script's files put back.

No handler of the script runs, and nothing is printed twice. Errors of the script never come here.
"""
from __future__ import annotations

import contextlib
import errno
import os
import sys

from py_hooks.border import ExitCode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import NoReturn, Protocol

    from _pedl import Error, Trial

    from py_hooks.refusal import Refusal

    class Holder(Protocol):
        """What an end of the process needs: the recorder has it, and what `boot` knows of the process."""

        @property
        def trial(self) -> Trial:
            """The native trial."""

        @property
        def at_stop(self) -> list[Callable[[], object]]:
            """Functions that put the files of the script back."""



KEPT = "\n  the run was stopped; every checkpoint that was committed is kept"


def flush_streams() -> None:
    """Flushes what the script has printed, as far as possible.

    A stream that is closed, or that the script replaced by something else, holds nothing that could be lost. Nor does a
    stream that is in the middle of a write: what it wrote is printed.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError, RuntimeError):
            stream.flush()


def stop_with(calls: Holder, error: Error | Refusal) -> NoReturn:
    """Ends the process because of one of our errors, with its message, hint and exit code."""
    message = str(error)
    if error.exit_code == ExitCode.STORAGE_FAILED:
        message += KEPT
    stop(calls, error.exit_code, message, error.hint)


def stop_for_file(calls: Holder, path: str, error: OSError) -> NoReturn:
    """Ends the process because a file of the trial cannot be written: the script did not cause this failure."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    help = "make room" if is_full else "look after the file system"
    stop(
        calls,
        ExitCode.STORAGE_FAILED,
        f"cannot write `{path}`\n  {error.strerror} (os error {error.errno}){KEPT}",
        help + " and run the same command again: it continues",
    )


def stop(calls: Holder, code: int, message: str, hint: str | None = None) -> NoReturn:
    """Ends the process at once: one message, no traceback, no handlers of the script. Puts the files of the script back.

    A script that handles a signal in the middle of its replay does not repeat the first run. That is not an error: the
    process ends by the signal.
    """
    try:
        put_back(calls.at_stop)
        if code == ExitCode.DIVERGED and calls.trial.received_signal:
            calls.trial.die_of(calls.trial.received_signal)
        calls.trial.log_error(message, hint)
    finally:
        os._exit(code)


def end(holder: Holder, code: int) -> NoReturn:
    """Ends the process at once, as `stop` does, if the reason was logged before."""
    try:
        put_back(holder.at_stop)
    finally:
        os._exit(code)


def put_back(at_stop: Iterable[Callable[[], object]]) -> None:
    """Undoes what was done for a replay, as far as the disk lets it.

    Args:
        at_stop: functions, such as those of `Lifecycle.at_stop`.
    """
    flush_streams()
    for step in at_stop:
        # A disk or file that is full or gone must not suppress the message.
        with contextlib.suppress(OSError):
            step()
