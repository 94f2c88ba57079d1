"""Entries of the script into a framework: the first one, causes, and the arguments of a call."""
from __future__ import annotations

import os
import sys
import zlib

from py_hooks import places
from py_hooks.border import ExitCode
from py_hooks.recording import call_kinds, ending, exactness

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    import numpy

    from py_hooks.causes import Told
    from py_hooks.recording.recorder import Calls

# The prefix of the keys that name files of the user's code, among what is compared.
_FILE = "file "


def called_by_user() -> bool:
    """Whether the user's code called the function that the asking advice replaces. Only for advice made by `binding`."""
    return places.called_by_user(3)


def announce(calls: Calls, causes: Iterable[Told], is_told: bool = True) -> None:
    """The script is about to enter the framework. The first entry begins the trial, and reports whether it is exact.

    Args:
        calls: the recorder.
        causes: the reasons why this call cannot be resumed exactly.
        is_told: see `exactness.begin`.
    """
    if not calls.begun:
        exactness.begin(calls, causes, is_told)
        return
    for cause in causes:
        calls.exactness.refuse(cause)


def compare(calls: Calls, name: str, described: dict[str, str]) -> None:
    """Records the arguments of an entry, or compares them with their record and names what differs.

    Args:
        calls: the recorder.
        name: the entry, such as "fit".
        described: short texts, by the name of what they describe.
    """
    identity = calls.trial.intern(name)
    if not calls.replaying:
        calls.record(call_kinds.ENTRY, identity, 0, described)
        calls.called()
        return
    recorded = calls.answer(call_kinds.ENTRY, identity, 0)
    if recorded != described:
        ending.stop(calls, ExitCode.DIVERGED, *_difference(calls, name, recorded, described))
    calls.answered()


def _difference(calls: Calls, name: str | None, recorded: dict[str, str], now: dict[str, str]) -> tuple[str, str]:
    different = [key for key in sorted(set(recorded) | set(now)) if recorded.get(key) != now.get(key)]
    edited = [key for key in different if key.startswith(_FILE) and key in recorded and key in now]
    what = "a file of the script was edited" if edited else f"`{name}` is given something else"
    lines = [f"the replay differs from the record: {what}"]
    place = ":".join(map(str, places.user_place(2)))
    where = "before the first call of the run" if name is None else f"call {calls.trial.position} of the run, `{name}`"
    lines.append(f"  {where}, at {place}")
    for key in sorted(different, key=lambda key: key not in edited):
        lines.append("  {}: recorded {}, now {}".format(key, recorded.get(key, "none"), now.get(key, "none")))
    lines.append("  the run was stopped; the checkpoint and the log are kept")
    return "\n".join(lines), (
        "put the file back as it was, or begin a new trial with `--fresh`; `pedl checkpoint export` has what was learned"
        if edited
        else "look for the clock, os.urandom, the order of a set, the environment, or a data file that was changed; "
        "`--fresh` begins a new trial"
    )


_sources: dict[str, int] = {}


def describe_sources() -> dict[str, str]:
    """A checksum of every loaded file of the user's code, by the name of the file."""
    for module in list(sys.modules.values()):
        path = places.file_of(module)
        if path and path not in _sources and path.endswith(".py") and places.is_user_file(path):
            try:
                with open(path, "rb") as source:
                    _sources[path] = zlib.crc32(source.read())
            except OSError:
                continue
    return {f"{_FILE}`{places.display_path(path)}`": f"crc {crc:08x}" for path, crc in _sources.items()}


class Sources:
    """Checksums of the files of the script, as the checkpoint has them. A provider of state.

    An edited script is refused before anything is reported about the run, and the refusal names the files. `compare` finds
    the same, but only for files that are loaded by then, and the edited script may never reach that entry.
    """

    def __init__(self) -> None:
        self._modules: int | None = None
        self._found: dict[str, str] = {}

    def begin(self, calls: Calls) -> None:
        """The trial has begun: compares the files that are loaded by now with their checksums in the checkpoint."""
        recorded = calls.checkpoints.states().get("sources") or {}
        now = describe_sources()
        if any(recorded.get(name, checksum) != checksum for name, checksum in now.items()):
            known = {name: checksum for name, checksum in recorded.items() if name in now}
            ending.stop(calls, ExitCode.DIVERGED, *_difference(calls, None, known, {name: now[name] for name in known}))

    def capture(self) -> tuple[list[tuple[str, numpy.ndarray]], dict[str, str]]:
        """The checksums by the name of each file: part of a checkpoint."""
        # If modules were loaded since, all are looked through.
        if self._modules != len(sys.modules):
            self._modules = len(sys.modules)
            self._found = describe_sources()
        return [], self._found

    def restore(self, tensors: dict[str, numpy.ndarray], state: object) -> None:
        """The replay is over."""


def is_path(given: object) -> bool:
    """Whether a file argument is a path, and not an open file."""
    return isinstance(given, (str, bytes)) or hasattr(given, "__fspath__")


def path_text(path: Any) -> object:
    """A file argument as records contain it."""
    return os.fspath(path) if is_path(path) else type(path).__name__
