"""The metrics of a step that Keras accumulates: from the sums at its two ends, not from what batches report.

Since Keras 2.3 a batch reports the running means of its epoch: `total / count`, sums of weighted values and of weights. A
mean over these is neither the step's nor the epoch's. The step's mean is the difference of the totals at its ends, divided
by the difference of the counts. The sums are read at the end of a step, and before they are reset inside it (at the end of
an epoch): a step consists of the *pieces* between these points. Nothing is read in between, so no batch waits for a device.

    batch     1 2 3 4 5 6 7 | 1 2 3 ...          7 batches an epoch, 5 a step
    piece    |1 2 3 4 5|6 7 | 1 2 3|4 ...        the second step has two pieces

A sum has 32 bits, as in Keras: the longer the epoch, the coarser is its last digit, and so that of a step's mean.
A metric that is no mean (AUC, precision, a root of a mean) has no value of the step alone: the value at the step's end is
reported for it. The same holds for a mean if its sums were changed in an unknown way inside the step (a test batch by hand),
or do not give the reported value.

Callbacks of steps get the metrics of each batch. For them a copy of the sums is kept for each batch, on its device, and read
when the step ends. The result is recorded with the step, 4 bytes a value, because a replay has no sums.
"""
from __future__ import annotations

import contextlib
import weakref

from py_hooks.engine.patch import binding
from py_hooks.recording import recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from py_hooks.keras.functions import ModelFunction
    from py_hooks.keras.keras2_graph.graph import Fetched
    from py_hooks.recording.recorder import Calls

    # Totals and counts, by the names of metrics.
    Sums = dict[str, tuple[float, float]]

# How near the reported value of a mean must be to the quotient of its sums, which may have 32 bits.
_NEAR = 1e-5

# The `Accumulators` by the identities of the training calls.
_HELD: dict[int, Accumulators] = {}

# Models whose sums were set to 0 before they had a function that trains them, and were not changed since.
_RESET: weakref.WeakSet[Any] = weakref.WeakSet()


class Accumulators:
    """The sums of the metrics of one model, since the last point at which they were known.

    Args:
        function: the compute function that trains the model.
        number: number of the model.

    Attributes:
        is_open: a batch was trained since that point.
        has_own_values: each call of the running step reports values of its batch alone.
    """

    def __init__(self, function: ModelFunction, number: int) -> None:
        self.number = number
        # The sums after the last batch, for a function that has them fetched; they outlive the function.
        self.fetched: Fetched | None = None
        self._function = weakref.ref(function)
        self.is_open = False
        self.has_own_values = False
        self._is_aside = False
        # Sums at the last point, by the names of metrics; sums that are missing are 0. None: unknown.
        self._base: Sums | None = None
        # Sums of the closed pieces of the step.
        self._pieces: dict[str, list[float]] = {}
        self._is_known = True
        # For each batch of the step: the sums before it, as a dict or as `snapshot` of the function returned, and after it.
        self._batches: list[tuple[Any, Any]] = []
        self._previous: Any = None
        # For the batches of the step before these: what `_own` returned.
        self._known_batches: list[dict[str, float]] = []
        before = _HELD.get(function.identity)
        if before is not None:
            before._hand_over(self)
        _HELD[function.identity] = self

    def _hand_over(self, successor: Accumulators) -> None:
        """The model has another function from now on: `tf.keras` makes one anew when sample weights appear."""
        if self.fetched is not None:
            self._close(recorder.CALLS)
        if not self.is_open and self._base == {}:
            successor._base = {}
        successor._pieces = self._pieces
        successor._is_known = self._is_known and not self.is_open
        successor._known_batches = self._own()

    def is_in_use(self) -> bool:
        """Whether the model still exists."""
        return self._function() is not None

    def begin(self) -> None:
        """The function was made: the current sums are the base."""
        calls = recorder.CALLS
        if calls.holds_values:
            self._base = self._sums(calls)

    def begin_with_epoch(self, model: Any) -> None:
        """The function was made, perhaps with the first batch of an epoch, at whose beginning the sums were set to 0."""
        if model in _RESET:
            self._base = {}

    def _sums(self, calls: Calls) -> Sums | None:
        """The current sums, as `{name: (total, count)}`; None if they are unknown."""
        if self.fetched is not None:
            return self.fetched.accumulated()
        function = self._function()
        if function is None:
            return None
        with calls.unrecorded():
            return function.accumulated()

    def trained(self) -> None:
        """A batch was trained."""
        self.is_open = True
        if _BATCHES.are_kept:
            with recorder.CALLS.unrecorded():
                now = self._function().snapshot()
            self._batches.append((self._base if self._previous is None else self._previous, now))
            self._previous = now

    # -- pieces ----------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """The sums are about to be set to 0."""
        calls = recorder.CALLS
        if self._is_aside or not calls.holds_values:
            return
        if calls.depth or calls.arguments:
            # Within a call on one batch, which reports values of that batch alone.
            self.has_own_values = True
            return
        self._close(calls)
        self._base, self._previous = {}, None

    def tested(self) -> None:
        """Something other than training has changed the sums, or is about to."""
        is_noted = self._base is None and not self.is_open
        if is_noted or self._is_aside or not recorder.CALLS.holds_values:
            return
        if self.fetched is not None:
            self._close(recorder.CALLS)
        elif self.is_open:
            self._is_known = False
        self.is_open = False
        self._base = self._previous = None

    def _close(self, calls: Calls) -> None:
        """A piece of the step ends."""
        if not self.is_open:
            return
        self.is_open = False
        now = None if self._base is None or self.has_own_values else self._sums(calls)
        if now is None:
            self._is_known = False
            return
        for name, (total, count) in now.items():
            before = self._base.get(name, (0.0, 0.0))
            piece = self._pieces.setdefault(name, [0.0, 0.0])
            piece[0] += total - before[0]
            piece[1] += count - before[1]
        self._base = now

    # -- a step ----------------------------------------------------------------------------------------------------

    def step_ends(self, calls: Calls, identity: int, reported: dict[str, float]) -> None:
        """Passes the metrics of the step to the trial.

        Args:
            calls: the recorder.
            identity: identity of the training calls.
            reported: the result of the last of them: `{name: value}`.
        """
        function = self._function()
        if function is None:
            return
        if not self.has_own_values:
            self._close(calls)
            now = self._sums(calls)
            for name, value in reported.items():
                if name in function.running_names():
                    mean = self._mean(name, value, now)
                    calls.trial.tell_step_metric(identity, name, value if mean is None else mean, mean is None)
            self._base, self._previous = now, None
        self.is_open = self.has_own_values = False
        self._pieces, self._is_known = {}, True

    def _mean(self, name: str, reported: float, now: Sums | None) -> float | None:
        """The mean of a metric over the step; None if it is unknown, or the metric is no mean."""
        total, count = self._pieces.get(name, (0.0, 0.0))
        if not self._is_known or not count > 0 or name not in (now or ()):
            return None
        mean = total / count
        if mean != mean:
            return mean if reported != reported else None
        running = now[name][0] / now[name][1] if now[name][1] else reported
        return mean if abs(running - reported) <= _NEAR * max(1e-30, abs(reported)) else None

    # -- batches ---------------------------------------------------------------------------------------------------

    def _own(self) -> list[dict[str, float]]:
        """The separate values of each batch of the step so far, as far as they are known: `{name: value}`."""
        held = self._function() if self.fetched is None else self.fetched
        known = list(self._known_batches)
        for before, now in self._batches if held is not None else ():
            known.append(_difference(held.sums_of(before), held.sums_of(now)))
        return known

    def take_own(self) -> list[dict[str, float]]:
        """The same for the whole step, which has ended."""
        own = self._own()
        self._known_batches, self._batches = [], []
        return own

    # -- state -----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """The state in a checkpoint, for JSON."""
        function = self._function()
        return {
            "base": _packed(self._base),
            "pieces": _packed(self._pieces),
            "is_known": self._is_known,
            "is_open": self.is_open,
            "has_own_values": self.has_own_values,
            "batches": [{name: value.hex() for name, value in batch.items()} for batch in self._own()],
            "previous": None if self._previous is None or function is None else _packed(function.sums_of(self._previous)),
            "last": None if self.fetched is None else _packed(self.fetched.accumulated()),
        }

    def restore(self, state: dict[str, Any] | None) -> None:
        """Restores the state of a checkpoint; None if the checkpoint has none."""
        if state is None:
            self._base, self._is_known = None, False
            return
        self._base = _unpacked(state["base"])
        self._pieces = {name: list(pair) for name, pair in _unpacked(state["pieces"]).items()}
        self._is_known = state["is_known"]
        self.is_open = state["is_open"]
        self.has_own_values = state["has_own_values"]
        self._known_batches = [
            {name: float.fromhex(value) for name, value in batch.items()} for batch in state["batches"]
        ]
        self._previous = _unpacked(state["previous"])
        if state["last"] is not None:
            self.fetched.put(_unpacked(state["last"]))

    def aside(self, is_aside: bool) -> None:
        """Sets whether changes of the sums are undone afterwards."""
        self._is_aside = is_aside


def _packed(sums: Mapping[str, Iterable[float]] | None) -> dict[str, list[str]] | None:
    # As texts: JSON has no `nan`, and every digit counts.
    return None if sums is None else {name: [float(value).hex() for value in pair] for name, pair in sums.items()}


def _unpacked(sums: dict[str, list[str]] | None) -> dict[str, Any] | None:
    return None if sums is None else {name: tuple(map(float.fromhex, pair)) for name, pair in sums.items()}


def _difference(before: Sums | None, now: Sums | None) -> dict[str, float]:
    """Values of one batch, from the sums before and after it."""
    found = {}
    for name, (total, count) in (now or {}).items():
        if before is None:
            break
        total_before, count_before = before.get(name, (0.0, 0.0))
        if count > count_before:
            found[name] = (total - total_before) / (count - count_before)
    return found


class _Batches:
    """Whether sums are kept for each batch, because something reads the metrics of batches."""

    are_kept = False

    def keep(self) -> None:
        """Keeps them from now on."""
        self.are_kept = True

    def own_values(self, reported: list[tuple[int, dict[str, float]]]) -> list[float] | None:
        """The separate values of the batches of a step, in place of what they report.

        Args:
            reported: `(identity, {name: value})` of each training call of the step.

        Returns:
            A list of numbers in the same order, NaN for those that are as reported; None if all are.
        """
        calls_of: dict[int, int] = {}
        for identity, _ in reported:
            calls_of[identity] = calls_of.get(identity, 0) + 1
        own: dict[int, Any] = {identity: _HELD[identity].take_own() for identity in calls_of if identity in _HELD}
        own = {identity: iter(values) for identity, values in own.items() if len(values) == calls_of[identity]}
        found: list[float]
        found, is_any = [], False
        for identity, values in reported:
            of_call = next(own[identity]) if identity in own else {}
            is_any = is_any or bool(of_call)
            found.extend(of_call.get(name, float("nan")) for name in values)
        return found if is_any else None


_BATCHES = _Batches()


def _step_ends() -> None:
    """The last batch of a step was trained: passes the metrics of each model to the trial."""
    calls = recorder.CALLS
    reported: dict[int, dict[str, float]] = {}
    for identity, name, value in calls.trial.last_values():
        if identity in _HELD:
            reported.setdefault(identity, {})[name] = value
    for identity, values in reported.items():
        _HELD[identity].step_ends(calls, identity, values)


def prepare(calls: Calls) -> None:
    """Has the sums read when steps end, and their state kept in checkpoints."""
    # Keras 2 and tf.keras may both be imported.
    if _step_ends in calls.lifecycle.at_step_end:
        return
    calls.lifecycle.at_step_end.append(_step_ends)
    calls.boundary.own_values = _BATCHES
    if calls.boundary.keeps_batches:
        _BATCHES.keep()
    calls.checkpoints.keep("step metrics", _State())


# -- what happens to the sums ------------------------------------------------------------------------------------------

_TRAIN_FUNCTIONS = ("train_function", "_fit_function")


def of(model: Any) -> list[Accumulators]:
    """The accumulators of a model, one for each function that trains it."""
    functions = [getattr(model, name, None) for name in _TRAIN_FUNCTIONS]
    held = [getattr(function, "accumulators", None) for function in functions]
    return [one for one in held if one is not None]


def epoch_begins(model: Any) -> None:
    """An epoch of training begins, so the sums are 0; called if the reset itself is not seen."""
    found = of(model)
    for held in found:
        held.reset()
    if not found and model is not None:
        _RESET.add(model)


def tested(model: Any) -> None:
    """A test call of the model was made."""
    _RESET.discard(model)
    for held in of(model):
        held.tested()


@binding
def reset_metrics(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Model.reset_metrics`: a piece ends. The framework's writes are not those of the script: nothing is recorded."""

    def reset(model: Any, *args: Any, **kwargs: Any) -> Any:
        for held in of(model):
            held.reset()
        calls = recorder.CALLS
        if calls.depth:
            return original(model, *args, **kwargs)
        with calls.unrecorded():
            return original(model, *args, **kwargs)

    return reset


@contextlib.contextmanager
def aside(model: Any) -> Iterator[None]:
    """Within it, changes of a model's sums are undone at the end."""
    found = of(model)
    for held in found:
        held.aside(True)
    try:
        yield
    finally:
        for held in found:
            held.aside(False)


class _State:
    """The state provider of all accumulators, by the numbers of their models."""

    def capture(self) -> tuple[list[Any], dict[str, dict[str, Any]]]:
        """No tensors; and the state of the running steps."""
        return [], {str(held.number): held.state() for held in _HELD.values() if held.is_in_use()}

    def restore(self, _tensors: object, state: dict[str, Any] | None) -> None:
        """Restores that state."""
        for held in _HELD.values():
            held.restore((state or {}).get(str(held.number)))
