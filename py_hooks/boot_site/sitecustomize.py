"""Boots pedl inside a python that the host started but does not embed; then leaves no trace.

The host puts this directory first on PYTHONPATH, so `site` imports this file before the script. It

1. takes the launch message out of the environment, and itself out of `sys.path` and PYTHONPATH, so
   that no child process boots another trial;
2. starts the interceptions;
3. imports the `sitecustomize` that python would have found without us. If there is none, the
   ImportError reaches `site`, which expects exactly this one and prints nothing.

(A python that the script starts imports it too, only so that pedl-run sees what it imports.)
"""

import os
import sys


def _leave(directory: str) -> None:
    """Takes the directory out of where this process and its children import from."""
    sys.path[:] = [entry for entry in sys.path if entry != directory]
    sys.path_importer_cache.pop(directory, None)
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if directory in entries:
        entries.remove(directory)
        os.environ["PYTHONPATH"] = os.pathsep.join(entries)


def _boot() -> None:
    _leave(os.path.dirname(__file__))
    launch = os.environ.pop("PEDL_LAUNCH", None)
    if launch is not None:
        from py_hooks.boot import host

        host.start(launch)
    elif "PEDL_CHILD_MARK" in os.environ:
        from py_hooks.script_io import python_children

        python_children.watch()


_boot()
del sys.modules["sitecustomize"]
import sitecustomize  # noqa: E402, F401
