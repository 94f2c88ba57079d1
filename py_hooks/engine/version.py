"""Compares version numbers, and chooses the generation of a library or refuses it.

The registry's ranges are closed at both ends; a last version of `on` is open. A version in no range is refused before
training: without the interception, training would look healthy but take no checkpoints.
"""
from __future__ import annotations

import os
import re

from py_hooks.border import ExitCode
from py_hooks.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    # The registry's rows: library, first version, last version or `on`, module of the generation.
    _Rows = Iterable[tuple[str, str, str, str]]


class UnsupportedVersion(Refusal):
    """A library has a version that no generation covers."""

    exit_code = ExitCode.UNSUPPORTED


def numbers(version: str) -> tuple[int, ...]:
    """The release numbers of a version text: "2.3.1rc0" and "2.3.1" are both (2, 3, 1), "1.15.0" and "1.15" (1, 15)."""
    release = re.match(r"\d+(\.\d+)*", version)
    found = [int(part) for part in release.group(0).split(".")] if release else []
    while found and not found[-1]:
        found.pop()
    return tuple(found)


def is_prerelease(version: str) -> bool:
    """Whether the version text has a suffix such as `rc0`, `b1` or `.dev3`; `.post1` and `+local` are releases."""
    return re.match(r"\d+(\.\d+)*(\.post\d+)?(\+.*)?$", version) is None


def covers(first: str, last: str, version: str) -> bool:
    """Whether the closed range `first` to `last` (or `on`) holds the version."""
    found = numbers(version)
    return numbers(first) <= found and (last == "on" or found <= numbers(last))


def place(module: ModuleType) -> str:
    """Where a module was found, for messages: its folder, or those of a package without an `__init__.py`."""
    file: str | None = getattr(module, "__file__", None)
    if file is None:
        return ", ".join(getattr(module, "__path__", ["?"]))
    return os.path.dirname(file) if os.path.basename(file).startswith("__init__.") else file


def of(module: ModuleType, generations: _Rows) -> str:
    """The version text of a library, as the library itself states it.

    Raises:
        UnsupportedVersion: it states none: it is a part of a library, or a module of the script with its name.
    """
    found = getattr(module, "__version__", None)
    if isinstance(found, str):
        return found
    library = module.__name__
    raise UnsupportedVersion(
        f"the module `{library}` does not say which version it is\n"
        f"  found at: {place(module)}\n"
        f"  expected: the library, with a `__version__`; known: {_known(library, generations)}\n"
        "  the script was stopped before it trained",
        f"reinstall {library}, or rename the module if it is your own; `--no-hooks {library}` runs it as it is, "
        "without checkpoints and resume",
    )


def range_text(first: str, last: str) -> str:
    """A range of versions in words."""
    if last == "on":
        return f"{first} and later"
    return first if first == last else f"{first} - {last}"


def _known(distribution: str, generations: _Rows) -> str:
    return ", ".join(range_text(first, last) for name, first, last, _ in generations if name == distribution)


def parts(distribution: str, version: str, generations: _Rows) -> list[tuple[str, str]]:
    """Names the generations of those parts of a distribution that are intercepted in this version.

    If there is none, the part is another library by itself (from TensorFlow 2.16 on `tensorflow.keras` is Keras 3).

    Returns:
        `(part, module of its generation)` for each.
    """
    return [
        (name, module)
        for name, first, last, module in generations
        if name.startswith(distribution + ".") and covers(first, last, version)
    ]


def choose(distribution: str, version: str, generations: _Rows, found_at: str) -> str:
    """Names the generation module for a library's version.

    Args:
        distribution: the library, as in the registry.
        version: its version text, as the library itself states it.
        generations: the registry's rows `(distribution, first, last, module)`.
        found_at: where the library was found, for the message.

    Returns:
        The module name of the generation.

    Raises:
        UnsupportedVersion: no row covers the version, or it is a pre-release.
    """
    rows = [row for row in generations if row[0] == distribution]
    for _, first, last, module in rows:
        if covers(first, last, version) and not is_prerelease(version):
            return module
    raise UnsupportedVersion(
        f"{distribution} `{version}` is not a version pedl-run can intercept\n"
        f"  found at: {found_at}\n"
        f"  known: {_known(distribution, generations)}\n"
        "  the script was stopped before it trained",
        f"install a listed version, or pass `--no-hooks {distribution}` to train without checkpoints and resume",
    )


def nearest(distribution: str, version: str, generations: _Rows) -> str:
    """Names the generation module whose versions are like this one: its generation, or else the one before it.

    Args:
        distribution: the library, as in the registry.
        version: its version text.
        generations: the registry's rows `(distribution, first, last, module)`.
    """
    rows = [row for row in generations if row[0] == distribution]
    return [module for number, (_, first, _, module) in enumerate(rows) if not number or numbers(first) <= numbers(version)][-1]
