"""Finds the package `pedl` of this library, even if another program of the same name is installed.

Our library comes after everything else in `sys.path`, so that none of its names hides a name of the script.
The package `pedl` in the package index is another program, but a script that imports `pedl` under pedl-run
means ours. A module of this name that belongs to the script is not replaced.
"""
from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_LIBRARY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Folders of installed packages.
_INSTALLED = ("site-packages", "dist-packages")


class _Finder:
    """Finds one package in our library, and nothing else."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Called by the import system."""
        return PathFinder.find_spec(name, [_LIBRARY]) if name == self._name else None


def prefer(name: str, log: Callable[[str], object]) -> None:
    """Has a package found here, if another program of this name is installed.

    Args:
        name: the package, which is about to be imported.
        log: prints a line.
    """
    place = _first_place(name)
    if place is not None and os.path.basename(place) in _INSTALLED and not _is_ours(os.path.join(place, name)):
        sys.meta_path.insert(1, _Finder(name))
        log(f"`{name}` in `{place}` is another program of this name; the script imports that of pedl-run")


def _first_place(name: str) -> str | None:
    """The entry of `sys.path` where a package would be found; None if there is none before our library."""
    for entry in sys.path:
        place = os.path.abspath(entry or os.getcwd())
        if place == _LIBRARY:
            return None
        if os.path.exists(os.path.join(place, name, "__init__.py")) or os.path.exists(os.path.join(place, name + ".py")):
            return place
    return None


def _is_ours(folder: str) -> bool:
    """Whether a package is the one that a wheel of pedl-run installs."""
    return os.path.exists(os.path.join(folder, "_context.py"))
