"""What is in a checkpoint besides the log: the state of whoever keeps one.

A provider has two methods. `capture()` returns `(tensors, state)`: pairs of a name and an array, and a value of JSON.
`restore(tensors, state)` gets the same, by name, in a process that has answered all calls before the checkpoint.
"""
from __future__ import annotations

import json

from py_hooks import causes
from py_hooks.border import ExitCode
from py_hooks.own_account import own_account
from py_hooks.recording import ending, lifecycle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    import numpy

    from py_hooks.recording.recorder import Calls

    class Provider(Protocol):
        """Whoever keeps a state; see above."""

        def capture(self) -> tuple[list[tuple[str, numpy.ndarray]], Any]:
            """The tensors by name, and the state."""

        def restore(self, __tensors: dict[str, numpy.ndarray], __state: Any) -> None:
            """Gets the same back."""


class Checkpoints:
    """Takes checkpoints, and restores one at the end of a replay."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._providers: list[tuple[str, Provider]] = []

    def keep(self, name: str, provider: Provider) -> None:
        """Has the state of a provider kept from now on. Providers are captured, and restored, in this order.

        Args:
            name: the first part of the names of its tensors, and the name of its state.
            provider: has `capture` and `restore`.
        """
        self._providers.append((name, provider))

    def keeps(self, provider: Provider) -> bool:
        """Whether the state of a provider is kept."""
        return any(known == provider for _, known in self._providers)

    def save(self, is_wanted: bool = False) -> None:
        """Takes a checkpoint of the state as it is after the last recorded call.

        If another one is being written, this one is skipped. If `is_wanted`, a checkpoint of exactly this state is needed:
        then this one waits for the other.
        """
        calls = self._calls
        if calls.trial.saving() and not is_wanted:
            return
        if calls.agreement is not None and not calls.agreement.may_save():
            return
        if calls.raised is not None:
            calls.exactness.refuse(causes.HANDLED(kind=calls.raised))
            return
        calls.append_pending()
        calls.depth += 1
        try:
            lifecycle.call(calls.lifecycle.at_save)
            with own_account():
                self._capture_and_save()
        except calls.ours as error:
            ending.stop_with(calls, error)
        finally:
            calls.depth -= 1

    def _capture_and_save(self) -> None:
        calls = self._calls
        tensors: list[tuple[str, numpy.ndarray]]
        states: list[tuple[str, Any]]
        tensors, states = [], []
        for name, provider in self._providers:
            held, state = provider.capture()
            tensors.extend((f"{name}/{key}", value) for key, value in held)
            states.append((name, state))
        # Otherwise a provider has met something that it cannot save.
        if calls.exactness.takes_checkpoints:
            calls.trial.save(calls.epoch, tensors, json.dumps(dict(states), sort_keys=True), calls.files.saved.paths())

    def states(self) -> dict[str, Any]:
        """What the providers' `capture` returned for the checkpoint, by their names; empty if there is no checkpoint."""
        text = self._calls.trial.checkpoint_state()
        return json.loads(text) if text is not None else {}

    def restore(self) -> None:
        """Restores the state of the checkpoint. The call in which it was taken is the last one that was answered."""
        calls = self._calls
        calls.enter(calls.trial.state)
        calls.depth += 1
        try:
            states = self.states()
            provider: Any
            tensors: dict[str, dict[str, numpy.ndarray]] = {}
            for name, value in calls.trial.checkpoint_tensors():
                provider, _, key = name.partition("/")
                tensors.setdefault(provider, {})[key] = value
            with own_account():
                for name, provider in self._providers:
                    provider.restore(tensors.get(name, {}), states.get(name))
        except calls.ours as error:
            ending.stop_with(calls, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the script must not train on what is half put in
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            ending.stop(
                calls,
                ExitCode.BUG,
                f"the state of the checkpoint cannot be put in\n  {what}{ending.KEPT}",
                "this is a bug of pedl; report it with the lines above",
            )
        finally:
            calls.depth -= 1
