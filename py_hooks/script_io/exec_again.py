"""A script that replaces itself by another run of itself remains the same trial.

A hash seed takes effect at the start of a process, so scripts set `PYTHONHASHSEED` and call `os.execv(sys.executable, ...)`.
If the script executes the interpreter of the trial before the first recorded call, the new program becomes the trial process
again, by the same launch message. Any other exec does what it does under python.
"""
from __future__ import annotations

import os
import sys

from py_hooks.script_io import functions_of_os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from _pedl import InPlace

    from py_hooks.boot.process import _Process


def install(process: _Process, launch_text: str, in_place: type[InPlace]) -> None:
    """Watches `os.execv` and `os.execve`, which the other exec functions of `os` call.

    Args:
        process: what `boot` knows of this process.
        launch_text: its launch message.
        in_place: makes the object that replaces a builtin function (`src/native/in_place.rs`).
    """
    execve, own = os.execve, os.getpid()

    def become_again(path: Any, arguments: Any, environment: Any) -> Any:
        if os.getpid() != own or process.has_begun() or not _is_interpreter(path):
            return NotImplemented
        again = _again(launch_text, environment)
        if again is None:
            return NotImplemented
        supervisor, environment = again
        # The path of the python of the environment, by which python finds its environment.
        return execve(f"/proc/{supervisor}/exe", [sys.executable, *arguments[1:]], environment)

    def before_execv(path: Any = None, arguments: Any = None, *wrong: object, **named: object) -> Any:
        if wrong or named or not arguments:
            return NotImplemented
        return become_again(path, arguments, os.environ)

    def before_execve(path: Any = None, arguments: Any = None, environment: Any = None, **named: object) -> Any:
        if named or not arguments or environment is None:
            return NotImplemented
        return become_again(path, arguments, environment)

    functions_of_os.replace("execv", in_place, before_execv)
    functions_of_os.replace("execve", in_place, before_execve)


def _again(launch_text: str, environment: Any) -> tuple[int, dict[str, str]] | None:
    """The supervisor's process, and the environment in which its executable becomes the trial; None for a worker server."""
    import json

    launch = json.loads(launch_text)
    again = launch.get("again")
    if again is None or launch.get("serves") is not None:
        return None
    environment = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
    name, start = again["start"]
    environment.update({name: start, "PEDL_LAUNCH": launch_text})
    if "PYTHONHASHSEED" not in environment:
        # The seed of the trial, which the boot hides from the script again.
        environment.update(PYTHONHASHSEED=str(launch["hash_seed"]), PEDL_USER_HASH_SEED="unset")
    if again["boot_site"] is not None:
        paths = [again["boot_site"], environment.get("PYTHONPATH")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return again["supervisor"], environment


def _is_interpreter(path: Any) -> bool:
    try:
        return os.path.samefile(path, sys.executable)
    except (OSError, TypeError, ValueError):
        return False
