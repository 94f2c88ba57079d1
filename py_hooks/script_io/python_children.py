"""Detects whether a Python process that the script starts before it trains imports a framework, which is not intercepted there.

A driver script runs `python train.py` and trains nothing itself. Such a child starts with the site module of pedl-run
(`boot_site`), reports by a file that it imports a framework, and otherwise behaves as an ordinary Python.
"""
from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

VARIABLE = "PEDL_CHILD_MARK"

_FRAMEWORKS = frozenset(["keras", "tensorflow", "torch", "jax", "tf_keras"])
# Beside `py_hooks`, where the executable lays them out (`src/host/library.rs`).
_BOOT_SITE = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "boot")


class Children:
    """The Python children of this process."""

    def __init__(self) -> None:
        self._commands: dict[str, str] = {}

    def environment_of(self, command: str, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment for one child."""
        import tempfile

        mark = os.path.join(tempfile.gettempdir(), f"pedl-child-{os.getpid()}-{len(self._commands)}")
        self._commands[mark] = command
        paths = [_BOOT_SITE, environment.get("PYTHONPATH")]
        return dict(environment, PYTHONPATH=os.pathsep.join(path for path in paths if path), **{VARIABLE: mark})

    def end(self) -> str | None:
        """The first command that imported a framework; None if none did."""
        found = [mark for mark in self._commands if os.path.exists(mark)]
        for mark in found:
            os.unlink(mark)
        return self._commands[found[0]] if found else None


class _Finder:
    """An import finder that finds nothing: it only notices what is imported."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._pid = os.getpid()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        """Notices the import of a framework."""
        if name in _FRAMEWORKS:
            sys.meta_path.remove(self)
            if os.getpid() == self._pid:
                os.close(os.open(self._mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def watch() -> None:
    """In the child: has it report that a framework is imported."""
    mark = os.environ.pop(VARIABLE, None)
    if mark is not None:
        sys.meta_path.insert(0, _Finder(mark))
