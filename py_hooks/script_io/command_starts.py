"""The ways in which a script starts commands: `subprocess`, `os.system`, `os.popen`, `os.spawn*`, `os.posix_spawn`.

Each asks the journal of commands (`commands.py`) whether the command runs or is answered, and notes its end.

Source: CPython 3.7 to 3.13, Lib/subprocess.py (`_execute_child`, `_internal_poll`, `_try_wait`, `_handle_exitstatus`),
Lib/os.py (`_spawnvef`).
"""
from __future__ import annotations

import os
import sys

from py_hooks import causes, places
from py_hooks.script_io import functions_of_os
from py_hooks.script_io.command import given_files
from py_hooks.script_io.commands import Commands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from subprocess import TimeoutExpired
    from types import ModuleType
    from typing import Any

    from _pedl import InPlace, Trial
    from _typeshed import StrOrBytesPath

    from py_hooks.boot.process import _Process
    from py_hooks.recording.recorder import Calls
    from py_hooks.script_io.command import Command

# Positions of what `Popen.__init__` passes to `_execute_child` after `args`, the same in all versions.
_CWD, _ENV = 4, 5


class _Installed:
    """The journal of this process; None until the first library is intercepted."""

    commands: Commands | None = None


def attach(trial: Trial, calls: Calls) -> Commands:
    """The first library is intercepted: makes the journal, and returns it."""
    _Installed.commands = Commands(trial, calls)
    return _Installed.commands


_ONE_WORD = str, bytes, os.PathLike


def _meet(words: list[str], folder: str, depth: int) -> Command | None:
    """Whether a command runs or is answered: see `Commands.meet`."""
    commands = _Installed.commands
    if commands is None or not commands.is_activity():
        return None
    frame = sys._getframe(depth + 1)
    while frame.f_back is not None and frame.f_globals.get("__name__") in ("subprocess", "os", __name__):
        frame = frame.f_back
    if frame.f_globals.get("__name__", "").startswith("asyncio."):
        commands.say(causes.COMMAND_BY_ASYNCIO())
        return None
    return commands.meet(words, folder, places.is_user_file(frame.f_code.co_filename))


def watch_subprocess(module: ModuleType, process: _Process) -> None:
    """`subprocess` was imported: watches its `Popen`, by which all its functions start commands.

    Args:
        module: `subprocess`.
        process: what `boot` knows about this process.
    """
    import functools

    kind = module.Popen
    replaced = {
        "_execute_child": _starting(kind._execute_child, process),
        "__init__": _made(kind.__init__),
        "_internal_poll": _polled(kind._internal_poll),
        "_try_wait": _waited_once(kind._try_wait),
        "_handle_exitstatus": _ended(kind._handle_exitstatus),
        "send_signal": _signalled(kind.send_signal),
        "wait": _waited(kind.wait, 0, module.TimeoutExpired),
        "communicate": _waited(kind.communicate, 1, module.TimeoutExpired),
    }
    for name, function in replaced.items():
        setattr(kind, name, functools.wraps(getattr(kind, name))(function))


def _starting(original: Callable[..., None], process: _Process) -> Callable[..., None]:
    """`Popen._execute_child`."""

    def execute_child(popen: Any, args: Any, *rest: Any) -> None:
        if not isinstance(args, _ONE_WORD):
            # As `subprocess` does itself: an iterator is read once.
            args = list(args)
        command = _meet(_words(args), _folder(rest[_CWD]), 1)
        if command is None:
            return original(popen, args, *_seen_by(process, args, rest))
        return _execute(command, popen, lambda: original(popen, args, *rest), rest)

    return execute_child


def _seen_by(process: _Process, args: Any, rest: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a command that is no activity. If it runs a python, that may report whether it imports a framework."""
    script = _python_script(args)
    if script is None:
        return rest
    return (*rest[:_ENV], process.environment_of_child(script, rest[_ENV]), *rest[_ENV + 1:])


def _execute(command: Command, popen: Any, execute: Callable[[], None], rest: Sequence[Any]) -> None:
    """Starts a command, answers it, or lets it wait for the resume point."""
    import weakref

    popen._pedl_command = command
    command.popen = weakref.ref(popen)
    if command.ended is not None:
        return command.stand_in(popen, rest)

    def start() -> None:
        command.begins(given_files(rest))
        try:
            execute()
        except OSError as error:
            command.failed(error)
            raise
        command.has_started = True

    _Installed.commands.runs(command)
    if _Installed.commands.is_past():
        return command.wait_for_resume(popen, start)
    return start()


def _made(original: Callable[..., None]) -> Callable[..., None]:
    """`Popen.__init__`."""

    def init(popen: Any, *args: Any, **kwargs: Any) -> None:
        original(popen, *args, **kwargs)
        command = _command_of(popen)
        if command is not None and command.ended is None and command.start is None:
            command.watch_pipes(popen)

    return init


def _polled(original: Callable[..., int | None]) -> Callable[..., int | None]:
    """`Popen._internal_poll`."""

    def internal_poll(popen: Any, *args: Any, **kwargs: Any) -> int | None:
        command = _command_of(popen)
        if command is None or popen.returncode is not None or (command.ended is None and command.start is None):
            return original(popen, *args, **kwargs)
        if command.ended is not None:
            popen.returncode = command.ended["code"]
        return popen.returncode

    return internal_poll


def _waited_once(original: Callable[..., tuple[int, int]]) -> Callable[..., tuple[int, int]]:
    """`Popen._try_wait`."""

    def try_wait(popen: Any, flags: int) -> tuple[int, int]:
        command = _command_of(popen)
        if command is not None and command.start is not None:
            command.start_now()
        if command is None or command.ended is None:
            return original(popen, flags)
        code = command.ended["code"]
        return popen.pid, -code if code < 0 else code << 8

    return try_wait


def _ended(original: Callable[..., None]) -> Callable[..., None]:
    """`Popen._handle_exitstatus`."""

    def handle_exitstatus(popen: Any, *args: Any, **kwargs: Any) -> None:
        original(popen, *args, **kwargs)
        command = _command_of(popen)
        if command is not None and command.has_started and _Installed.commands.is_running(command):
            command.ends(popen.returncode, popen)

    return handle_exitstatus


def _signalled(original: Callable[..., None]) -> Callable[..., None]:
    """`Popen.send_signal`, which asks for no exit code before Python 3.9."""

    def send_signal(popen: Any, *args: Any, **kwargs: Any) -> None:
        command = _command_of(popen)
        if command is None or command.ended is None:
            original(popen, *args, **kwargs)

    return send_signal


def _waited(original: Callable[..., Any], place: int, timeout_expired: type[TimeoutExpired]) -> Callable[..., Any]:
    """`Popen.wait` and `Popen.communicate`; `place` is the index of the timeout among the arguments."""

    def until(popen: Any, *args: Any, **kwargs: Any) -> Any:
        command = _command_of(popen)
        if command is None or command.is_waited_for:
            return original(popen, *args, **kwargs)
        timeout = kwargs.get("timeout", args[place] if len(args) > place else None)
        if command.ended is not None and command.raises_timeout(timeout):
            raise timeout_expired(popen.args, timeout)
        # One of these calls the other.
        command.is_waited_for = True
        try:
            return original(popen, *args, **kwargs)
        except timeout_expired:
            command.timeouts += 1
            raise
        finally:
            command.is_waited_for = False

    return until


def _command_of(popen: Any) -> Command | None:
    return popen.__dict__.get("_pedl_command")


def watch_os(in_place: type[InPlace]) -> None:
    """Watches the functions of `os` that run a command and wait for it.

    Args:
        in_place: makes the replacement of a builtin function (`src/native/in_place.rs`).
    """
    _, system = functions_of_os.replaced("system")
    functions_of_os.ask_first("system", in_place, _before_system(system))
    os._spawnvef = _spawned(os._spawnvef)  # type: ignore[attr-defined]  # it is private
    for name in ("posix_spawn", "posix_spawnp"):
        functions_of_os.ask_first(name, in_place, _before_posix_spawn)


def _before_system(original: Callable[..., int]) -> Callable[..., Any]:
    def before_system(command: Any = None, *wrong: object, **named: object) -> Any:
        if wrong or named or not isinstance(command, (str, bytes)):
            return NotImplemented
        met = _meet([os.fsdecode(command)], os.getcwd(), 1)
        return NotImplemented if met is None else met.code_of(lambda: original(command))

    return before_system


def _spawned(original: Callable[..., int]) -> Callable[..., int]:
    def spawnvef(mode: int, file: StrOrBytesPath, args: Any, env: Any, function: Callable[..., Any]) -> int:
        spawn = lambda: original(mode, file, args, env, function)  # noqa: E731
        if not isinstance(args, (tuple, list)) or not args:
            return spawn()
        if mode != os.P_WAIT:
            _say_not_waited_for(file)
            return spawn()
        met = _meet([os.fsdecode(word) for word in (file, *args)], os.getcwd(), 1)
        return spawn() if met is None else met.code_of(spawn)

    return spawnvef


def _before_posix_spawn(file: Any = None, *args: object, **kwargs: object) -> Any:
    # `subprocess` calls this too; its commands are seen in `Popen`.
    if sys._getframe(1).f_globals.get("__name__") != "subprocess":
        _say_not_waited_for(file)
    return NotImplemented


def _say_not_waited_for(program: StrOrBytesPath) -> None:
    commands = _Installed.commands
    if commands is not None and commands.is_activity():
        name = os.path.basename(os.fsdecode(program))
        commands.say(causes.COMMAND_NOT_WAITED_FOR(program=name))


# -- words of a command -------------------------------------------------------------------------------------------------


def _python_script(args: Any) -> str | None:
    """`python SCRIPT` as a user types it, if a command runs a script; None for other commands."""
    words = _words(args)
    if len(words) == 1:
        words = words[0].split()
    if not words or not os.path.basename(words[0]).startswith("python"):
        return None
    rest = [word for word in words[1:] if not word.startswith("-")] if "-m" not in words and "-c" not in words else []
    return f"python {rest[0]}" if rest and rest[0].endswith(".py") else None


def _words(args: Any) -> list[str]:
    """The words of a command; something that is no word, for which `subprocess` raises, is given by its `repr`."""
    words = [args] if isinstance(args, _ONE_WORD) else args
    return [os.fsdecode(word) if isinstance(word, _ONE_WORD) else repr(word) for word in words] or [""]


def _folder(folder: StrOrBytesPath | None) -> str:
    return os.path.abspath(os.fsdecode(folder)) if folder is not None else os.getcwd()
