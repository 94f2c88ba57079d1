"""Replaces functions of `os`, and `open`, so that a script cannot detect the replacement.

A replacement has the properties of the function that a script may check: it is in `os.supports_fd` and similar sets, and it
can be pickled (`multiprocessing.Pool.map(os.stat, names)`), so it must be found under the module and name of the function.

A script imports functions at its top (`from os import remove`), and so do libraries (`numpy` holds `open`). So functions that
are needed later are replaced before the script runs, and `ask_first` makes the same object ask another function from then on.
"""
from __future__ import annotations

import builtins
import io
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from _pedl import InPlace

# `(replacement, original)` by the name of the function; the name of `open` is `io.open`.
_REPLACED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}


def replace(name: str, in_place: type[InPlace], before: Callable[..., Any] | None = None) -> None:
    """Replaces a function of `os`, if this system has it.

    Args:
        name: of the function.
        in_place: makes the object that replaces a builtin function (`src/native/in_place.rs`).
        before: called first, with the arguments of each call; returns the answer, or NotImplemented. None: nothing is called.
    """
    original = getattr(os, name, None)
    if original is None:
        return
    replaced = in_place(original, "os", before)
    for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        if original in able:
            able.add(replaced)
    _REPLACED[name] = replaced, original
    setattr(os, name, replaced)


def replace_open(in_place: type[InPlace], before: Callable[..., Any]) -> None:
    """Replaces `open`. The arguments are those of `replace`."""
    original = builtins.open
    builtins.open = io.open = in_place(original, "io", before)
    _REPLACED["io.open"] = io.open, original


def replaced(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The replacement of a function, and the function. The script may have replaced it by something else since then."""
    return _REPLACED[name]


def is_plain(opener: object) -> bool:
    """Whether `open` opens a file as without an opener: `opener` is None, or that of `pathlib` before Python 3.10."""
    return opener is None or type(getattr(opener, "__self__", None)).__module__ == "pathlib"


def ask_first(name: str, in_place: type[InPlace], before: Callable[..., Any]) -> None:
    """Sets the function that a replacement calls first: `before`, as for `replace`."""
    if name in _REPLACED:
        in_place.ask_first(_REPLACED[name][0], before)  # type: ignore[arg-type]  # an object of that class
