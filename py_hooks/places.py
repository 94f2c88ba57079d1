"""Finds the line in the user's files that a call comes from.

A frame is the user's if its file is neither in the interpreter's library, nor in `site-packages`, nor in pedl-run, and
was not written by TensorFlow, which runs a copy of a function that it traces from a file with a random name.
Paths below the script's folder are given relative to it, so that a trial can move with its script.
"""
from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_GENERATED = "__autograph_generated_file"


def _absolute(path: str) -> str:
    """The absolute path; the path unchanged if the current directory was removed."""
    try:
        return os.path.abspath(path)
    except OSError:
        return path


# The directory that the process was started in; empty if that was removed.
STARTED_IN = _absolute("")

# Whether files of code objects are the user's: the answers so far.
KNOWN: dict[str, bool] = {}


def is_user_file(filename: str) -> bool:
    """Whether a code object's file is the user's."""
    known = KNOWN.get(filename)
    if known is None:
        path = _absolute(filename)
        known = not (
            filename.startswith("<frozen")
            or path.startswith(_LIBRARY)
            or path.startswith(_OURS)
            or _is_generated(os.path.basename(path))
            or is_installed_file(path)
        )
        KNOWN[filename] = known
    return known


def is_installed_file(filename: str) -> bool:
    """Whether a code object's file is of an installed package."""
    return os.sep + "site-packages" + os.sep in filename or os.sep + "dist-packages" + os.sep in filename


def is_in_standard_library(filename: str) -> bool:
    """Whether a code object's file is of Python itself."""
    return filename.startswith(("<frozen", _LIBRARY)) and not is_installed_file(filename)


# Frameworks: they train, and their modules change as they count what they do.
FRAMEWORKS = frozenset(["tensorflow", "tensorflow_core", "torch", "jax", "jaxlib"])
COUNTING = FRAMEWORKS | {"keras", "tf_keras", "numpy"}


def is_user_module(name: object) -> bool:
    """Whether a module that was imported is the user's; an interactive one has no file."""
    module = sys.modules.get(name) if isinstance(name, str) else None
    file = file_of(module)
    return module is not None and (name == "__main__" or (file is not None and is_user_file(file)))


def is_installed(name: object) -> bool:
    """Whether a module that was imported is of an installed package."""
    file = (file_of(sys.modules.get(name)) if isinstance(name, str) else None) or ""
    return "site-packages" in file or "dist-packages" in file


def attributes_of(value: object) -> dict[str, Any] | None:
    """The dictionary of an object's attributes, or None; asks the object for nothing."""
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None


def names_of(module: object) -> dict[str, Any]:
    """The variables of a module of `sys.modules`, read without an access that would load a lazy module."""
    try:
        names = object.__getattribute__(module, "__dict__")
    except AttributeError:
        return {}
    return names if isinstance(names, dict) else {}


def file_of(module: object) -> str | None:
    """The file of a module of `sys.modules`, or None."""
    file = names_of(module).get("__file__")
    return file if isinstance(file, str) else None


def _is_generated(name: str) -> bool:
    # Before TensorFlow 2.7 the name is `tmp` and eight random letters (tensorflow 2.6.5,
    # tensorflow/python/autograph/pyct/loader.py).
    is_temporary = len(name) == len("tmp12345678.py") and name.startswith("tmp") and name.endswith(".py")
    return name.startswith(_GENERATED) or (is_temporary and "tensorflow" in sys.modules)


def note_generated(filename: str) -> None:
    """Notes that a file is not the user's: a framework has written it, and its name does not show that."""
    KNOWN[filename] = False


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's code, from this one on outwards, or None."""
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def user_place(depth: int) -> tuple[str, int]:
    """`(file, line)` of the innermost frame of the user's code; `("?", 0)` without one."""
    frame = user_frame(sys._getframe(depth + 1))
    if frame is None:
        return "?", 0
    return display_path(frame.f_code.co_filename), frame.f_lineno


def called_by_user(depth: int) -> bool:
    """Whether the frame `depth` above the caller is user code."""
    return is_user_file(sys._getframe(depth + 1).f_code.co_filename)


def is_in_cache(path: str) -> bool:
    """Whether an absolute path is below a hidden folder, as caches and downloads are (`~/.keras`, `~/.cache`).

    Files there may be created again or found, and nothing depends on which. Hidden folders around the script, or around the
    directory it was started in, do not count.
    """
    for folder in (_absolute(sys.path[0]) if sys.path else "", STARTED_IN):
        if folder and path.startswith(folder + os.sep):
            path = path[len(folder):]
            break
    return os.sep + "." in os.path.dirname(path)


def display_path(filename: str) -> str:
    """The path as it is in records: relative to the script's folder if it is below that."""
    folder = sys.path[0] if sys.path else ""
    path = _absolute(filename) if not filename.startswith("<") else filename
    folder = _absolute(folder) + os.sep
    return path[len(folder):] if path.startswith(folder) else path
