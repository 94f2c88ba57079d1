"""Whether a run can be resumed exactly, and the first intercepted call, at which the run reports that."""
import json
import platform
import sys

from py_hooks import causes


def begin(calls, found, is_told=True):
    """Begins the trial: opens its directory, and prints the one line about exactness.

    Args:
        calls: the recorder, not begun yet.
        found: the causes that are known now.
        is_told: whether these are all; else the line is printed once items were looked at (`data.py`).
    """
    for cause in _causes_of_the_command() + list(found):
        calls.refuse_exactness(cause)
    calls.begin(json.dumps(facts()))
    for change in calls.trial.changes:
        calls.refuse_exactness(causes.OTHER_VERSIONS(change=change), is_told=False)
    if is_told or calls.causes:
        calls.tell_exactness()
    else:
        calls.tell_when_looked()


def _causes_of_the_command():
    if sys.flags.ignore_environment:
        return [causes.HASH_SEED()]
    return []


def facts():
    """What `trial.json` records about this process: interpreter, versions, CPU."""
    versions = {}
    for name in ("keras", "tensorflow", "jax", "jaxlib", "torch", "numpy"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            versions[name] = version
    return {"python": platform.python_version(), "versions": versions, "cpu": _cpu()}


def _cpu():
    try:
        with open("/proc/cpuinfo") as lines:
            return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
    except OSError:
        return "unknown"
