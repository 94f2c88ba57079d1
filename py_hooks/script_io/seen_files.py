"""The states of files when a process ended, by which the next start knows what something else has changed since then.

The state of a file is `[size, time of change in ns, checksum]`; of anything else, whether there is an entry.
"""
from __future__ import annotations

import json
import os

# Not `os`: its functions are replaced, and note the calls.
import posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def state(path: str) -> list[Any] | bool:
    """Size, time and checksum of a file; for anything else, whether the path exists."""
    if not os.path.isfile(path) or os.path.islink(path):
        return os.path.lexists(path)
    from py_hooks.script_io.inputs import checksum

    found = posix.stat(path)
    return [found.st_size, found.st_mtime_ns, checksum(path)]


def has_changed(path: str, before: list[Any] | bool) -> bool:
    """Whether an entry exists now that differs from the one when the process ended. A copy may differ in its time."""
    if not os.path.lexists(path) or before is True:
        return False
    if before is False:
        return True
    found: Any = state(path)
    return found is True or (found[:2] != before[:2] and (found[0] != before[0] or found[2] != before[2]))


def states_in(text: bytes | None) -> dict[str, Any]:
    """The states that were written as JSON, by the numbers of lines; without malformed ones."""
    try:
        states = json.loads((text or b"{}").decode())
    except ValueError:
        return {}
    if not isinstance(states, dict):
        return {}
    return {
        number: state
        for number, state in states.items()
        if isinstance(state, bool) or (isinstance(state, list) and len(state) == 3)
    }


def open_files() -> set[str]:
    """The files that this process has open: their content is not final yet."""
    held = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            held.add(posix.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    return held
