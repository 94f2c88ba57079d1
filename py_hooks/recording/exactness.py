"""Whether a run can be resumed exactly, and the first intercepted call, at which the run reports that."""
from __future__ import annotations

import json
import platform
import sys
import threading

from py_hooks import causes
from py_hooks.border import ExitCode
from py_hooks.recording import ending

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from py_hooks.recording.recorder import Calls


class Exactness:
    """The causes for which a run cannot be resumed exactly, and what was logged of them.

    Attributes:
        causes: those that are known.
        takes_checkpoints: whether checkpoints are taken: so far a checkpoint can hold everything.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self.causes: list[causes.Told] = []
        self.takes_checkpoints = True
        # The causes that were logged last, by one thread at a time; None if nothing was logged yet.
        self._told: list[str] | None = None
        self._telling = threading.Lock()
        # Whether exactness is logged as soon as items of a data set were examined.
        self._is_looking = False

    def refuse(self, cause: causes.Told, is_told: bool = True) -> None:
        """Notes a cause for which the run cannot be resumed exactly from here on.

        No further checkpoint is taken, unless the table of causes says so. With `--exact` the process ends with exit
        code 77 instead.

        Args:
            cause: one of `py_hooks/causes.py`, with its values.
            is_told: whether it is logged now; otherwise the caller logs it, with `tell`.
        """
        if cause in self.causes:
            return
        self.causes.append(cause)
        if not causes.takes_checkpoints(cause):
            self.keep_nothing()
        if self._calls.trial.exact:
            ending.stop(
                self._calls,
                ExitCode.NOT_EXACT,
                f"`--exact` was given, and this run cannot be resumed exactly: {cause}\n"
                f"  the script was stopped here{'; its last checkpoint is kept' if self._calls.begun else ', before it trained'}",
                f"{cause.cause.cure}, or run it without `--exact`",
            )
        if self._calls.begun and is_told:
            self.tell()

    def keep_nothing(self) -> None:
        """No further checkpoint is taken, and so no signal waits for one."""
        self.takes_checkpoints = False
        self._calls.trial.keep_nothing()

    def tell(self) -> None:
        """Logs whether the run can be resumed exactly, and notes it in the journal, unless the same was logged last."""
        with self._telling:
            texts = [str(cause) for cause in self.causes]
            if texts == self._told:
                return
            self._told = texts
            self._calls.trial.log(self._line(texts))
            members = {"exact": not texts, "causes": texts, "batch": self._calls.batches}
            self._calls.trial.event(json.dumps(dict(members, event="exactness")))

    def tell_when_looked(self) -> None:
        """As `tell`, as soon as `looked` reports that data was examined."""
        self._is_looking = True

    def looked(self) -> None:
        """Items of a data set were examined, or an entry of the script has ended: logs what waits for that."""
        if self._is_looking:
            self._is_looking = False
            self.tell()

    def _line(self, texts: list[str]) -> str:
        """The log line about whether the run can be resumed exactly; if not, with the reasons and the consequence."""
        if not texts:
            return "exact resume: yes"
        means = "checkpoints are taken all the same" if self.takes_checkpoints else "no checkpoints are taken"
        return "exact resume: no: {}; {}".format("; ".join(texts), means)

    def forked(self) -> None:
        """In a forked child: another thread of the parent may have held the lock."""
        self._telling = threading.Lock()


def begin(calls: Calls, found: Iterable[causes.Told], is_told: bool = True) -> None:
    """Begins the trial: opens its directory, and prints the one line about exactness.

    Args:
        calls: the recorder, not begun yet.
        found: the causes that are known now.
        is_told: whether these are all; else the line is printed once items were looked at (`datasets/items.py`).
    """
    for cause in _causes_of_the_command() + list(found):
        calls.exactness.refuse(cause)
    calls.begin(json.dumps(facts()))
    for change in calls.trial.changes:
        calls.exactness.refuse(causes.OTHER_VERSIONS(change=change), is_told=False)
    if is_told or calls.exactness.causes:
        calls.exactness.tell()
    else:
        calls.exactness.tell_when_looked()


def _causes_of_the_command() -> list[causes.Told]:
    if sys.flags.ignore_environment:
        return [causes.HASH_SEED()]
    return []


def facts() -> dict[str, Any]:
    """What `trial.json` records about this process: interpreter, versions, CPU."""
    versions = {}
    for name in ("keras", "tensorflow", "jax", "jaxlib", "torch", "numpy"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            versions[name] = version
    return {"python": platform.python_version(), "versions": versions, "cpu": _cpu()}


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
    except OSError:
        return "unknown"
