"""The border between the host process and Python: starts the interceptions, or ends the process.

The host calls `start` before the first line of the script: from C if it embeds the interpreter, otherwise
from `sitecustomize`. Nothing of the script has run yet, so a failure here ends the process at once, with the
exit code and the message of the one error, and never as an exception in the user's program.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

# Whether python itself has imported the module for annotations, which this file alone does not need.
_KNOWS_FUTURE = "__future__" in sys.modules

# The exit code of a process if the fault is in pedl itself (EX_SOFTWARE of sysexits.h).
EXIT_BUG = os.EX_SOFTWARE


def start(launch: str) -> None:
    """Starts the interceptions with the launch message of the host, a JSON text."""
    # At the end of the path, so that none of our names hides a name of the script; with `-E` it is the same.
    library = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.path[:] = [entry for entry in sys.path if entry != library] + [library]
    try:
        from py_hooks.boot import process

        process.start(launch)
        if not _KNOWS_FUTURE:
            # The script finds those modules imported that python would have imported.
            sys.modules.pop("__future__", None)
    except KeyboardInterrupt:
        _interrupt()
    except Exception as error:  # noqa: BLE001  the border: every failure becomes one message and a code
        _end(error)


def _interrupt() -> None:
    """Ctrl-C before the script has begun: ends as Python does if nothing handles it."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


def _end(error: Exception) -> "NoReturn":
    exit_code = getattr(error, "exit_code", None)
    lines = []
    if exit_code is None:
        # Not imported at the top: it would take longer to import than all the rest of the boot.
        import traceback

        exit_code = EXIT_BUG
        lines.append("pedl: error: the interceptions could not be started; the script did not run")
        trace = traceback.format_exception(type(error), error, error.__traceback__)
        lines.extend("  " + line for line in "".join(trace).splitlines())
        lines.append("hint: this is a bug of pedl; report it with the lines above")
    else:
        lines.append(f"pedl: error: {error}")
        hint = getattr(error, "hint", None)
        if hint:
            lines.append(f"hint: {hint}")
    if sys.stderr is not None:
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()
    os._exit(exit_code)
