"""`download_data` of a model definition: called once on each machine, before the data sets are made (rules D1 to D4).

One of a trial's processes on a machine calls it, and the others wait for the directory that it returns. It is not called again
at a restart while that directory exists, unless the configuration, the hyperparameters, or the file of the function differ. The
downloaded files do not belong to the trial: a restart leaves them in place.
"""
from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import socket
import sys

from pedl._context import VARIABLE
from pedl.errors import DefinitionError
from pedl.trial import call_with

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pedl._context import Context
    from pedl._loops.host import TrialHost
    from pedl._loops.run import AnyDefinition

_NAME = "download_data"


def download(definition: AnyDefinition, known: Context, host: TrialHost) -> None:
    """Calls `download_data` if the definition has one, and has `pedl.get_download_data_dir` return its directory.

    Args:
        definition: the `Definition`.
        known: the context of the trial.
        host: keeps the downloaded files out of the trial.

    Raises:
        DefinitionError: it returned no directory.
    """
    function = definition.function(_NAME, is_required=False)
    if function is None:
        return
    given = known["configuration"] or {}, known["hyperparameters"]
    with host.untracked():
        # One of all ranks calls it.
        trial = (known.get("ranks") or {}).get("directory", host.directory)
        key = json.dumps([socket.gethostname(), trial, given, _source_of(function)], sort_keys=True)
        directory = once(key, lambda: _called(function, *given))
    os.environ[VARIABLE] = json.dumps(dict(known, download_data_dir=directory))


def _source_of(function: Any) -> list[str] | str | None:
    """The file of a function, and a hash of it."""
    path = getattr(sys.modules.get(function.__module__), "__file__", None)
    if path is None:
        return None
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return [path, hashlib.sha256(file.read()).hexdigest()]
    return path


def _called(function: Any, configuration: dict[str, Any], hparams: dict[str, Any]) -> str:
    directory = call_with(function, experiment_config=configuration, hparams=hparams)
    if not isinstance(directory, (str, os.PathLike)):
        raise DefinitionError(
            f"`{_NAME}` returned an object of class `{type(directory).__name__}`\n  expected: the path of a directory, a text"
        )
    directory = os.path.abspath(os.fspath(directory))
    if not os.path.isdir(directory):
        raise DefinitionError(f"`{_NAME}` returned `{directory}`\n  expected: the path of a directory that is there")
    return directory


def once(key: str, call: Callable[[], str]) -> str:
    """The directory that `call()` returned, in any process of this machine; other processes wait for it.

    Args:
        key: a text that is the same in these processes.
        call: makes the directory, and returns its path.
    """
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(base, "pedl-run", "downloads")
    os.makedirs(folder, exist_ok=True)
    # The file is never removed: otherwise a process that waits for its lock and a later one would have different files.
    with open(os.path.join(folder, hashlib.sha256(key.encode()).hexdigest()[:32]), "a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        directory = file.read()
        if directory and os.path.isdir(directory):
            return directory
        file.truncate(0)
        directory = call()
        file.write(directory)
        return directory
