"""Calls the step callbacks of a script (`pedl.callbacks`, `entrypoint.callbacks` of the configuration).

The recorder counts the steps and their metrics, whatever framework trains. A replay calls the hooks again, with what was
recorded, as it runs everything else in the script again: so each hook is called once in each process, and what it keeps,
prints and writes is the same. Hooks are called between two recorded calls, in the same order in a replay:

    a training call is about to be made     on_trial_begin, on_train_step_begin
    the call that ends a step is recorded   on_train_step_end, before a checkpoint of that moment
    the first test call of a fit            on_validation_step_begin
    the fit reports its validation          on_validation_step_end, before a checkpoint of that moment

A hook that calls the framework would insert a recorded call between a record and its checkpoint: from then on no checkpoint
is taken. Within a fit, where the loop holds the values of variables elsewhere (Keras 3 on JAX), such a hook ends the run.
"""
from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import sys

from py_hooks.border import ExitCode
from py_hooks.recording import call_kinds, ending, recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, NoReturn, Protocol

    from _pedl import Trial
    from pedl._callbacks import Callbacks

    from py_hooks.recording.recorder import Calls

    class Process(Protocol):
        """What this module needs of the process (`boot/process.py`)."""

        trial: Trial
        callbacks: Callbacks | None

_FIELD = "entrypoint.callbacks"
_EXPECTED = "  expected: `module:object`, a `pedl.callback.Callback` beside the script"
_HINT = f"correct `{_FIELD}`"


def register(process: Process, callbacks: Callbacks) -> None:
    """Takes callbacks of the script.

    Args:
        process: what `boot` knows of this process.
        callbacks: `pedl._callbacks.Callbacks`.

    Raises:
        DefinitionError: it is too late, or not allowed in this script.
    """
    from pedl.errors import DefinitionError

    calls = recorder.CALLS
    if _known().get("definition"):
        raise DefinitionError(
            "`pedl.callbacks` is called in a model definition with a trial class\n"
            "  expected: its method `callbacks(self, hparams)`, which returns a list",
            "return them there",
        )
    if calls is not None and calls.batches:
        raise DefinitionError(
            f"`pedl.callbacks` is called after {calls.batches} batches were trained\n  expected: before training begins",
            "call it before the first `fit`",
        )
    if process.callbacks is None:
        tell_if_uncalled(process)
        process.callbacks = callbacks
    else:
        process.callbacks.add(callbacks)
    if calls is not None:
        attach(process, calls)


def attach(process: Process, calls: Calls) -> None:
    """Has the recorder call the callbacks of the script, and at the beginning those of the configuration."""
    if process.callbacks is not None and calls.steps is None:
        calls.steps = ScriptSteps(calls, process.callbacks)


def tell_if_uncalled(process: Process) -> None:
    """At the end of the script, prints a message if its callbacks were not called, because no intercepted training ran."""
    pid = os.getpid()

    def tell() -> None:
        calls = recorder.CALLS
        is_called = calls is not None and calls.batches
        if not is_called and os.getpid() == pid and getattr(sys, "last_value", None) is None:
            process.trial.log(
                "the callbacks of steps were never called: nothing trained that pedl-run intercepts\n"
                "  expected: a training by Keras, or by sessions of TensorFlow, in the main thread"
            )

    atexit.register(tell)


def load_configured(process: Process, calls: Calls) -> None:
    """Training is about to begin: imports the callbacks that the configuration names.

    Args:
        process: what `boot` knows of this process.
        calls: the recorder.
    """
    names = configured()
    if not names:
        return
    from pedl._callbacks import Callbacks
    from pedl.errors import DefinitionError

    try:
        found = Callbacks([_made(calls, name) for name in names], f"`{_FIELD}` names")
    except DefinitionError as error:
        _stop(calls, error.message, error.hint)
    if process.callbacks is not None:
        found.add(process.callbacks)
    process.callbacks, calls.steps = found, None
    attach(process, calls)


def configured() -> list[str]:
    """The names of callbacks in the configuration."""
    entrypoint = (_known().get("configuration") or {}).get("entrypoint")
    return (entrypoint.get("callbacks") if isinstance(entrypoint, dict) else None) or []


def _known() -> dict[str, Any]:
    """What `pedl` knows of the trial, without importing `pedl`."""
    return json.loads(os.environ.get("PEDL_CONTEXT", "{}"))


def _made(calls: Calls, name: str) -> Any:
    """The object that `module:object` names; an instance if that is a class."""
    module_name, _, path = name.partition(":")
    try:
        value: Any = importlib.import_module(module_name)
    except ImportError as error:
        if not module_name or error.name != module_name.partition(".")[0]:
            raise
        _stop(calls, f"`{_FIELD}` names `{name}`, and there is no module `{module_name}`\n{_EXPECTED}", _HINT)
    for part in path.split("."):
        if not hasattr(value, part):
            _stop(calls, f"`{_FIELD}` names `{name}`, and there is no `{part}` in `{module_name}`\n{_EXPECTED}", _HINT)
        value = getattr(value, part)
    return value() if isinstance(value, type) else value


def _stop(calls: Calls, message: str, hint: str | None) -> NoReturn:
    ending.stop(calls, ExitCode.CONFIGURATION, f"{message}\n  the script was stopped before it trained", hint)


class ScriptSteps:
    """Calls the callbacks of a script around its steps.

    Args:
        calls: the recorder.
        callbacks: `pedl._callbacks.Callbacks`.

    Attributes:
        is_in_fit: a fit is running, whose test calls are a validation.
    """

    def __init__(self, calls: Calls, callbacks: Callbacks) -> None:
        self._calls = calls
        self._callbacks = callbacks
        self._begun = self._ended = 0
        self._is_validating = False
        self.is_in_fit = False
        calls.boundary.keep_batches()

    def call_begins(self, kind: int) -> None:
        """A call of this kind is about to be made, or answered."""
        if self._calls.in_step_callback:
            self._calls.refuse_in_callback()
        elif kind == call_kinds.TRAIN and self._begun == self._ended:
            self._begin_step()
        elif kind == call_kinds.TEST and self.is_in_fit and len(self._calls.entries) == 1:
            self.validation_begins()

    def _begin_step(self) -> None:
        with self._aside():
            if not self._begun:
                self._callbacks.call("on_trial_begin")
            self._begun += 1
            self._callbacks.call("on_train_step_begin", self._begun)

    def step_ended(self) -> None:
        """The last batch of a step was trained, and its record was appended or answered."""
        if self._begun == self._ended:
            # One call has made the batches of several steps.
            self._begin_step()
        self._ended += 1
        with self._aside():
            self._callbacks.call("on_train_step_end", self._ended, self._calls.boundary.of_step)

    def validation_begins(self) -> None:
        """Validation of the model begins."""
        if self._is_validating:
            return
        self._is_validating = True
        with self._aside():
            self._callbacks.call("on_validation_step_begin", self._ended)

    def validated(self, metrics: Iterable[tuple[str, float]]) -> None:
        """The model was validated, with these pairs of names and values."""
        self.validation_begins()
        self._is_validating = False
        with self._aside():
            self._callbacks.call("on_validation_step_end", self._ended, dict(metrics))

    @contextlib.contextmanager
    def _aside(self) -> Iterator[None]:
        """Within it, code of the script runs as it does between two calls."""
        calls = self._calls
        depth, calls.depth = calls.depth, 0
        calls.in_step_callback = True
        try:
            yield
        finally:
            calls.in_step_callback = False
            calls.depth = depth
