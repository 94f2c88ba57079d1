"""The border between pedl-run's code and the script: an unforeseen exception does not end a script that python would run.

Advice, callbacks of imports and compute functions are entered through here. An exception of the script or of the library
passes unchanged. If pedl-run's code raised by mistake (`is_ours`), the process abandons the recorder (`step_aside`): one line
reports it, no checkpoint is taken from there on, and the call continues as if it had never been intercepted. The call is not
made twice: whether the original was entered is counted, and what it returned is kept until the advice returns.

Three cases cannot continue, and end with exit code 70: `--exact` was given; calls of a replay were answered, so that the
models do not hold what they should; or the mistake has ended the library's loop, as one in an iterator of pedl-run does.
"""
from __future__ import annotations

import os

from py_hooks.own_account import own_account

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, TracebackType
    from typing import Any, NoReturn, Protocol, TypeVar, TypeVarTuple, Unpack

    from _pedl import Error, Trial

    from py_hooks.refusal import Refusal

    _Result = TypeVar("_Result")
    _Arguments = TypeVarTuple("_Arguments")

    # How often an original was entered, and what it returned last: `[int, Any]`.
    _Kept = list[Any]

    class Process(Protocol):
        """What this module needs of the process (`boot/process.py`)."""

        trial: Trial
        is_aside: bool

        @property
        def errors(self) -> tuple[type[Error] | type[Refusal], ...]:
            """Errors that end the process with their message."""

        @property
        def cannot_step_aside(self) -> str | None:
            """Why a bug ends the run; None if the script may continue without us."""

        def step_aside(self, text: str) -> None:
            """Reports the bug, and leaves the script to python."""

        def end_for_bug(self, message: str, hint: str) -> NoReturn:
            """Ends the process for a bug."""

        def end_with(self, error: Any) -> NoReturn:
            """Ends the process with the message of one of `errors`."""

    class _Computes(Protocol):
        """A compute function, which does the work of `watched` itself."""

        kept: _Kept

        def returned(self, made: Any) -> Any:
            """What a call returns if the advice failed after the original has returned."""

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_ENGINE = os.path.dirname(os.path.abspath(__file__)) + os.sep
# What runs in place of a script, for a trial class: its exceptions are those of a script.
_PROGRAM = _OURS + "trial_classes" + os.sep

# Never a mistake of pedl-run: the end of an iterator, and exhausted memory or stack.
_PASS = (StopIteration, StopAsyncIteration, MemoryError, RecursionError)

# Lines of pedl-run that call the script, or the library on its behalf: exceptions from these calls are theirs.
_CALLS_THEIRS = (
    r"\b(next|iter|original|live|compute|function|source|build|_do_call|_?callback|generator|method)\(|"
    r"\b(dataset|sequence|self\._source)\[|\byield from\b|\bgetattr\(callback"
)
_RAISES = ("raise", "assert")

# Modules of the exceptions that mistakes raise: those of Python, and a panic of the extension module.
_OF_MISTAKES = ("builtins", "pyo3_runtime")

# Up to Python 3.7 the number of a statement's line may be that of its last one.
_LINES_OF_RAISE = 6

# Represents the result of an original that was entered and has not returned.
UNFINISHED = object()

# What `boot` knows of this process; None if nothing was booted.
PROCESS: Process | None = None

PASSES = object()

# The id of the exception that was let through last: the guards around do not check it again.
_PASSED: int | None = None


def caught() -> tuple[type[BaseException], ...]:
    """What guards catch: exceptions, and a panic of the extension module, which is not an `Exception`."""
    try:
        from _pedl import Panic
    except ImportError:
        return (Exception,)
    return (Exception, Panic)


CAUGHT = caught()


def watched(original: Callable[..., Any], kept: _Kept) -> Callable[..., Any]:
    """Replaces an original, and keeps how often it was entered and what it returned last.

    Args:
        original: the function.
        kept: a list of these two values.
    """

    def called(*args: Any, **kwargs: Any) -> Any:
        kept[0] += 1
        kept[1] = UNFINISHED
        result = kept[1] = original(*args, **kwargs)
        return result

    return called


_WATCHED = watched(None, []).__code__


def outcome(error: BaseException, entered: int, kept: _Kept, again: Callable[[], Any], original: Callable[[], Any]) -> Any:
    """The result of a call whose advice has raised: `PASSES`, if the exception is to be raised again, or the call's result.

    Args:
        error: the exception.
        entered: how often the original had been entered before the call.
        kept: the list of `watched`.
        again: makes the call once more, through the advice, which by then lets everything through.
        original: makes the call without any advice.
    """
    global _PASSED  # noqa: PLW0603 - the last one
    if PROCESS is None or id(error) == _PASSED:
        return PASSES
    if not is_ours(error):
        _PASSED = id(error)
        _leave_out_guards(error.__traceback__)
        return PASSES
    if kept[0] != entered and kept[1] is UNFINISHED:
        stop(error, "it has ended the library's own loop")
    step_aside(error)
    if kept[0] != entered:
        return kept[1]
    try:
        return again()
    except CAUGHT as second:
        if kept[0] != entered or not is_ours(second):
            raise
    return original()


def method(call: Callable[..., Any]) -> Callable[..., Any]:
    """Guards `__call__` of a compute function, which does the work of `watched` itself; see `compute_functions.py`."""
    import functools

    @functools.wraps(call)
    def guarded(self: _Computes, *args: Any, **kwargs: Any) -> Any:
        kept = self.kept
        entered = kept[0]
        try:
            result = call(self, *args, **kwargs)
        except CAUGHT as error:
            again = lambda: call(self, *args, **kwargs)  # noqa: E731
            result = outcome(error, entered, kept, again, again)
            if result is PASSES:
                raise
            if kept[0] != entered and result is kept[1]:
                result = self.returned(result)
        kept[1] = None
        return result

    return guarded


def guarded(function: Callable[[Unpack[_Arguments]], _Result]) -> Callable[[Unpack[_Arguments]], _Result | None]:
    """Guards one of our functions that may call the script; if the function fails by mistake, it does nothing."""
    import functools

    @functools.wraps(function)
    def called(*args: Unpack[_Arguments]) -> _Result | None:
        kept = [0, None]
        try:
            return function(*args)
        except CAUGHT as error:
            nothing = lambda: None  # noqa: E731
            if outcome(error, 0, kept, nothing, nothing) is PASSES:
                raise
            return None

    return called


def run(function: Callable[[Unpack[_Arguments]], _Result], *args: Unpack[_Arguments]) -> _Result | None:
    """Calls one of our functions that does not call the script; steps aside for whatever it raises."""
    try:
        with own_account():
            return function(*args)
    except CAUGHT as error:
        if PROCESS is None or isinstance(error, _PASS):
            raise
        step_aside(error)
        return None


def is_ours(error: BaseException) -> bool:
    """Whether an exception comes from a mistake of pedl-run, and not from the script or from a library that it called."""
    if isinstance(error, _PASS):
        return False
    if type(error).__module__ not in _OF_MISTAKES and not _is_of_process(error):
        # Of the script, or of a library (`OutOfRangeError` ends an epoch).
        return False
    frames = _frames(error)
    # Below the innermost original that was entered, frames that are not ours belong to it.
    for place in range(len(frames) - 1, -1, -1):
        if frames[place][0] is _WATCHED:
            frames = frames[place + 1:]
            break
    last = max((place for place, (code, _) in enumerate(frames) if _is_of_us(code)), default=None)
    if last is None:
        return False
    code, number = frames[last]
    line = _line(code.co_filename, number)
    if last == len(frames) - 1 and _is_raised(code.co_filename, number):
        # Raised on purpose: a mistake only if it is an error that `stop_with` alone may see.
        return _is_of_process(error)
    import re

    if re.search(_CALLS_THEIRS, line):
        return False
    below = [code for code, _ in frames[last + 1:]]
    return not any(_is_users(code) or _handles_signals(code) for code in below)


def _is_of_process(error: BaseException) -> bool:
    """Whether the exception ends the process with one of our messages."""
    return PROCESS is not None and isinstance(error, tuple(PROCESS.errors))


def _is_raised(filename: str, number: int) -> bool:
    """Whether a line is part of a statement that raises."""
    if _line(filename, number).lstrip().startswith(_RAISES):
        return True
    lines = [_line(filename, each).rstrip() for each in range(number - 1, number - _LINES_OF_RAISE, -1)]
    for line in lines:
        if not line.endswith(("(", ",", '"')):
            return False
        if line.lstrip().startswith(_RAISES):
            return True
    return False


def _line(filename: str, number: int) -> str:
    # Not imported at the top: with its own imports it takes longer than all the rest of the boot.
    import linecache

    return linecache.getline(filename, number)


def looked(error: BaseException) -> bool:
    """Whether our check of a builtin's arguments, which runs before the builtin, failed by mistake; steps aside then."""
    if PROCESS is None or not isinstance(error, CAUGHT) or not is_ours(error):
        return False
    step_aside(error)
    return True


def _frames(error: BaseException) -> list[tuple[CodeType, int]]:
    trace, frames = error.__traceback__, []
    while trace is not None:
        frames.append((trace.tb_frame.f_code, trace.tb_lineno))
        trace = trace.tb_next
    return frames


def _leave_out_guards(trace: TracebackType) -> None:
    """Takes the frames of this module out of a traceback that the script will see."""
    while trace.tb_next is not None:
        if trace.tb_next.tb_frame.f_code is _WATCHED:
            trace.tb_next = trace.tb_next.tb_next
        else:
            trace = trace.tb_next


def _is_of_us(code: CodeType) -> bool:
    return code.co_filename.startswith(_OURS) and not code.co_filename.startswith((_ENGINE, _PROGRAM))


def _is_users(code: CodeType) -> bool:
    """Whether a code object belongs to the script: its file is not ours, nor of a package or the standard library."""
    name = code.co_filename
    if name.startswith(_PROGRAM):
        return True
    if name.startswith(("<frozen", _OURS, _STANDARD)):
        return False
    return not any(f"{os.sep}{folder}{os.sep}" in name for folder in ("site-packages", "dist-packages"))


def _handles_signals(code: CodeType) -> bool:
    """Whether a code object is that of one of the script's signal handlers, which run wherever python is."""
    import signal

    handlers = [signal.getsignal(number) for number in range(1, signal.NSIG)]
    return any(getattr(getattr(handler, "__func__", handler), "__code__", None) is code for handler in handlers)


def what(error: BaseException) -> str:
    """The exception and its place in our code, in one line."""
    ours = [frame for frame in _frames(error) if _is_of_us(frame[0])]
    said = f"{type(error).__name__}: {error}".splitlines()[0]
    if not ours:
        return said
    code, number = ours[-1]
    return f"{said} at py_hooks/{code.co_filename[len(_OURS):]}:{number}"


def step_aside(error: BaseException) -> None:
    """Abandons the recorder: what follows runs as under python. Ends the process if that is impossible.

    Args:
        error: the exception.
    """
    if PROCESS.is_aside:
        return
    if isinstance(error, tuple(PROCESS.errors)) and not PROCESS.trial.is_child:
        PROCESS.end_with(error)
    if PROCESS.cannot_step_aside:
        stop(error, PROCESS.cannot_step_aside)
    PROCESS.step_aside(
        f"a bug of pedl-run ({what(error)}): the script runs on as under python, without checkpoints from here on; "
        "report it with this line"
    )


def stop(error: BaseException, why: str) -> NoReturn:
    """Ends the process for a mistake of pedl-run."""
    PROCESS.end_for_bug(
        f"a bug of pedl-run: {what(error)}\n  the script cannot run on as under python: {why}\n"
        "  the run was stopped; every checkpoint that was committed is kept",
        "report it with the lines above; `--no-hooks` with the library's name runs the script without interceptions",
    )
