"""Reports what is intercepted: the host runs it in a separate interpreter, never in a trial process.

    hooks [LIBRARY [VERSION [NAME]]]    the interceptions of a library
    check [LIBRARY]                     whether the target of each exists in the installed versions
    doctor                              the frameworks that are installed here, and whether each is intercepted
    export ARGUMENTS                    converts a checkpoint to a format of the framework (`py_hooks/verbs/export.py`)

Exit codes are those of the host: 0, 64 for an unknown name, 69 if an interception is missing, or a library cannot be
intercepted at all.
"""
from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import signal
import sys

from py_hooks import causes
from py_hooks.border import ExitCode
from py_hooks.engine import patch, version
from py_hooks.facts.tensorflow import tensorflow_facts
from py_hooks.registry import GENERATIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType
    from typing import Any

# Frameworks that scripts train with and that are not intercepted.
_NOT_INTERCEPTED = ("torch", "flax", "mxnet")


def main(arguments: Sequence[str]) -> int:
    """Prints what is asked for. Returns the exit code."""
    # If the reader closes the pipe (`pedl hooks keras | head`), this ends quietly.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    verb, words = arguments[0], arguments[1:]
    return {"hooks": _hooks, "check": _check, "doctor": _doctor, "export": _export}[verb](*words)


def _export(*arguments: str) -> int:
    from py_hooks.verbs import export

    return export.main(arguments)


def _error(code: int, message: str, hint: str) -> int:
    sys.stdout.flush()
    sys.stderr.write(f"pedl: error: {message}\nhint: {hint}\n")
    return code


def _unknown(library: str) -> int:
    known = ", ".join(_libraries())
    return _error(ExitCode.USAGE, f"no library `{library}` is intercepted\n  known: {known}", "`pedl hooks` lists them")


def _libraries() -> list[str]:
    return sorted({row[0] for row in GENERATIONS})


# -- the rows ----------------------------------------------------------------------------------------------------------


def _hooks(library: str | None = None, found: str | None = None, name: str | None = None) -> int:
    if library is None:
        for distribution, first, last, module in GENERATIONS:
            print("{:<16} {:<17} py_hooks/{}.py".format(distribution, version.range_text(first, last), module.replace(".", "/")))
        return 0
    if library not in _libraries():
        return _unknown(library)
    rows = [row for row in GENERATIONS if row[0] == library]
    if found is not None:
        rows = [row for row in rows if version.covers(row[1], row[2], found)]
    if not rows:
        known = ", ".join(version.range_text(row[1], row[2]) for row in GENERATIONS if row[0] == library)
        what = f"{library} `{found}` is not a version pedl-run can intercept\n  known: {known}"
        return _error(ExitCode.UNSUPPORTED, what, "install a listed version")
    return _print_rows(library, found, name, rows)


def _print_rows(library: str, found: str | None, name: str | None, rows: list[tuple[str, str, str, str]]) -> int:
    shown = 0
    for _, first, last, module in rows:
        lines = _lines(module, name)
        if lines:
            what = f"{library} {found} is generation" if found else library
            print("{} {}   py_hooks/{}.py".format(what, version.range_text(first, last), module.replace(".", "/")))
            print("\n".join(lines))
        shown += len(lines)
    if shown:
        return 0
    if name is None:
        print(f"{library} {found} has no rows of its own: `pedl hooks tensorflow` lists those of what it stands on")
        return 0
    return _error(ExitCode.USAGE, f"nothing named `{name}` is intercepted in {library}", f"`pedl hooks {library}` lists all")


def _lines(module: str, name: str | None) -> list[str]:
    """A line for each row of a generation with this name: target, row, advice, why."""
    source = importlib.import_module("py_hooks." + module)
    files = [(file, inspect.getsource(file).splitlines()) for file in _files_of_rows(source)]
    rows = [("", patch) for patch in source.GENERATION.patches]
    for backend in sorted(source.GENERATION.backends or {}):
        rows += [(f" (on {backend})", patch) for patch in source.GENERATION.backends[backend]]
    cells = [
        (repr(row), _row_place(files, row), f"-> {_place(row.advice)}", row.why + backend)
        for backend, row in rows
        if name is None or name in row.attribute.split(".")
    ]
    widths = [max(map(len, column)) for column in zip(*cells)]
    return ["  " + "   ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells]


def _files_of_rows(module: ModuleType) -> list[ModuleType]:
    """A generation, and the modules from which it takes rows that several generations share."""
    shared = ".generations.entry_points_of_"
    return [module] + [value for value in vars(module).values() if inspect.ismodule(value) and shared in value.__name__]


def _row_place(files: list[tuple[ModuleType, list[str]]], row: patch.Patch) -> str:
    """The place of a row: in the first of these files, which is that of its generation, or in a shared one."""
    for file, text in files:
        number = _row_number(file, text, row)
        if number:
            return f"row {number}" + (f" of {_relative(file.__file__)}" if file is not files[0][0] else "")
    return "row ?"


def _row_number(file: ModuleType, text: list[str], row: patch.Patch) -> int:
    constants = [(name, value) for name, value in vars(file).items() if isinstance(value, str)]
    attributes = list(_spellings(row.attribute, constants))
    # If several lines match, the one that also names the module or the advice is best.
    names = [*_spellings(row.module, constants), f".{row.advice.__name__},"]
    rows = [
        (-sum(name in line for name in names), number)
        for number, line in enumerate(text, 1)
        if any(attribute in line for attribute in attributes)
    ]
    return min(rows)[1] if rows else 0


def _spellings(name: str, constants: list[tuple[str, str]]) -> Iterator[str]:
    """How a table may spell a name: in full, as a constant (a shared table omits the package), or as a constant plus text."""
    yield f'"{name}"'
    for constant, value in constants:
        if f".{name}".endswith(f".{value}"):
            yield f"{constant},"
        if name.startswith(value):
            yield f'{constant} + "{name[len(value):]}"'


def _place(advice: Callable[..., Any]) -> str:
    code = inspect.unwrap(advice).__code__
    return f"{_relative(code.co_filename)}:{code.co_firstlineno} {advice.__name__}"


def _relative(path: str) -> str:
    return os.path.relpath(path, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


# -- what is installed -------------------------------------------------------------------------------------------------


def _check(library: str | None = None) -> int:
    if library is not None and library not in _libraries():
        return _unknown(library)
    code = 0
    for name in [library] if library else _libraries():
        if library is None and _is_no_part(name):
            continue
        found = _installed(name)
        if found is not None:
            code = max(code, _print_check(name, *found))
        elif library is not None or _is_there(_distribution(name)):
            # The library was asked for, or is installed, and cannot be intercepted.
            code = ExitCode.UNSUPPORTED
    return code


def _distribution(library: str) -> str:
    """The distribution of a library: the library itself, except for a part of another one."""
    return library.partition(".")[0]


def _is_there(distribution: str) -> bool:
    # TensorFlow 1.14 removes its module specification when it is imported.
    return distribution in sys.modules or importlib.util.find_spec(distribution) is not None


def _is_no_part(name: str) -> bool:
    """Whether a library is not a separate part in the installed version of the distribution, or is not installed."""
    if name == _distribution(name):
        return False
    if not _is_there(_distribution(name)):
        return True
    found = getattr(importlib.import_module(_distribution(name)), "__version__", "")
    return name not in dict(version.parts(_distribution(name), found, GENERATIONS))


def _print_check(name: str, module: ModuleType, generation: patch.Generation, backend: str | None) -> int:
    targets = patch.targets(generation, backend)
    missing = [(row, error) for row, error in targets if error is not None]
    for row, error in missing:
        print(f"{name} {module.__version__}: {row!r} is not there: {error}")
    print(f"{name} {module.__version__}: {len(targets)} interceptions, {len(missing)} missing")
    return ExitCode.UNSUPPORTED if missing else 0


def _doctor() -> int:
    code = 0
    for name in _libraries():
        found = None if _is_no_part(name) else _installed(name)
        if found is None:
            continue
        module, generation, backend = found
        on = f" on {backend}" if backend else ""
        targets = patch.targets(generation, backend)
        missing = sum(error is not None for _, error in targets)
        if missing:
            print(f"{name:<16} {module.__version__}{on}: {missing} of {len(targets)} places MISSING (`pedl hooks --check`)")
            code = ExitCode.UNSUPPORTED
            continue
        print(f"{name:<16} {module.__version__}{on}: intercepted in {len(targets)} places (`pedl hooks {name}`)")
        for cause in _causes(name):
            print(f"{'':<16} not exact: {cause}\n{'':<16} hint: {cause.cause.cure}")
    for name in _NOT_INTERCEPTED:
        if _is_there(name):
            print(f"{name:<16} not intercepted: it runs as under python, without checkpoints and resume")
    return code


def _installed(name: str) -> tuple[ModuleType, patch.Generation, str | None] | None:
    """A library with its generation and backend; prints a line and returns None if there is nothing to intercept."""
    if not _is_there(_distribution(name)):
        print(f"{name:<16} not installed")
        return None
    try:
        module = importlib.import_module(_distribution(name))
        where = os.path.dirname(module.__file__ or "")
        found = module.__version__
        chosen = version.choose(name, found, GENERATIONS, where)
        generation = importlib.import_module("py_hooks." + chosen).GENERATION
        backend = importlib.import_module(generation.facts.backend_module).backend() if generation.backends else None
    except version.UnsupportedVersion as error:
        known = ", ".join(version.range_text(first, last) for library, first, last, _ in GENERATIONS if library == name)
        print(f"{name:<16} {found}: NOT a version that can be intercepted ({known})\n{'':<16} {error.hint}")
        return None
    except Exception as error:  # noqa: BLE001  whatever a broken installation raises is what there is to say
        print(f"{name:<16} there, and cannot be imported: {type(error).__name__}: {error}")
        return None
    if backend is not None and backend not in generation.backends:
        known = ", ".join(sorted(generation.backends))
        print(f"{name:<16} {found} on {backend}: NOT a backend that can be intercepted ({known})")
        return None
    return module, generation, backend


def _causes(name: str) -> Iterator[causes.Told]:
    """Reasons, known before any training, why a run is not exact."""
    if name == "tensorflow":
        if tensorflow_facts().computes_in_sessions:
            yield causes.SEVERAL_AT_ONCE()
        elif sys.modules[name].config.list_physical_devices("GPU"):
            yield causes.DEVICE(device="GPU")
    if name == "keras" and "jax" in sys.modules and sys.modules["jax"].default_backend() != "cpu":
        yield causes.DEVICE(device=sys.modules["jax"].default_backend())
