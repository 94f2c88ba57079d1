"""Messages about training loops of the script, each printed once.

A loop that is not intercepted runs as under python. A kill loses its work, and `--exact` refuses it. The message about that
appears at the first step of an optimizer, not at an import: many scripts import a framework and do not train with it.

A loop that is intercepted decides how long it trains: a plan (`searcher.max_steps`, `--steps`) cannot end it.
"""
from __future__ import annotations

from py_hooks import places
from py_hooks.border import ExitCode
from py_hooks.recording import ending

TYPE_CHECKING = False
if TYPE_CHECKING:
    from py_hooks.recording.ending import Holder
    from py_hooks.recording.recorder import Calls

# The messages that were printed.
_TOLD: set[str] = set()


def tell(holder: Holder, what: str, hint: str) -> None:
    """Reports what is not intercepted, once; or ends the process, if `--exact` was given.

    Args:
        holder: has the trial, and `at_stop` for the end: the recorder, or what `boot` knows of this process.
        what: the first half of the sentence.
        hint: the advice if `--exact` was given.
    """
    if what in _TOLD:
        return
    _TOLD.add(what)
    if not holder.trial.exact:
        holder.trial.log(f"{what}: it trains as under python, and a kill loses that")
        return
    file, line = places.user_place(1)
    ending.stop(
        holder,
        ExitCode.NOT_EXACT,
        f"`--exact` was given, and {what}\n  at {file}:{line}\n  the script was stopped before this step",
        hint,
    )


def keeps_its_length(calls: Calls, what: str) -> None:
    """Reports that the plan of the trial has no effect on a loop.

    Args:
        calls: the recorder.
        what: the call in the loop that trains.
    """
    if calls.trial.batches_left is not None:
        say_once(
            calls,
            "{}: {} in a loop of the script's own, which decides how long it trains; "
            "the number of steps has no effect on it".format(":".join(map(str, places.user_place(1))), what),
        )


def goes_on(calls: Calls) -> None:
    """Reports that a loop has trained the last step of the trial, and continues to train."""
    say_once(calls, "the trial's last step was trained; a loop of the script's own goes on after it, and decides how long")


def say_once(calls: Calls, text: str) -> None:
    """Prints a message, unless it was printed before."""
    if text not in _TOLD:
        _TOLD.add(text)
        calls.trial.log(text)
