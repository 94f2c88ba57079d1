"""All generations of Keras: a fit whose length, and whose validations, the trial's plan decides.

With an experiment configuration (`searcher.max_steps`, `min_validation_period`) or `--steps` the plan overrides the script's
`epochs`. The entry gives the framework as many epochs as the plan has room for; the framework's loop runs them, so epochs end
where it ends them. After the last batch `stop_training` is set, as a callback would set it. The epoch's callbacks, its
validation and its row in the History come as usual, and the script continues.

A validation that comes due inside an epoch is made between two batches, invisibly: no callback sees it, it has no row in the
History, and the metrics that the epoch has gathered are restored afterwards.

Without a plan this module only reports the validations of epochs, if the script has callbacks of steps.
"""
from __future__ import annotations

import contextlib
import inspect
import math

from py_hooks import places
from py_hooks.border import ExitCode
from py_hooks.engine import guard
from py_hooks.engine.patch import unguarded
from py_hooks.keras import accumulators, sources
from py_hooks.keras.validation import held_by
from py_hooks.recording import ending, loops, recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Protocol

    from py_hooks.keras.validation import Metrics
    from py_hooks.recording.recorder import Calls

    class Validation(Protocol):
        """How a generation of Keras validates."""

        def of_epoch(self, fit: Fit, callbacks: Any, epoch: int, logs: dict[str, Any]) -> Metrics:
            """The metrics of the validation at the end of the epoch; empty if there was none."""

        def is_last_of_epoch(self, fit: Fit, params: dict[str, Any] | None) -> bool:
            """Whether the batch was the last of its epoch."""

        def between(self, calls: Calls, fit: Fit, callbacks: Any) -> Metrics | None:
            """Validates now. None if the fit has no validation data that can be gone through again."""

# The default of Keras (keras 2.2.5 to 3.15.1, `Model.fit`).
_BATCH_SIZE = 32

# The name of `epochs` in Keras 1, which is still allowed (keras 2.3.1, keras/legacy/interfaces.py).
_OLD_NAME = "nb_epoch"


class Fit:
    """A running fit.

    Args:
        model: the model.
        arguments: the script's arguments, by name.
        validation_data: data of a trial class, if the fit itself has none.

    Attributes:
        validates: whether there is validation data that the fit itself does not have.
        is_over: the plan has no batch left.
        batch: index of the last batch in its epoch; None before the first.
        logs: the logs of that batch.
        is_validated: whether any validation was made in the fit.
    """

    def __init__(self, model: Any, arguments: dict[str, Any], validation_data: Any = None) -> None:
        self.model = model
        self.arguments = arguments
        self.validates = validation_data is not None
        if self.validates:
            self.arguments = dict(arguments, validation_data=validation_data)
        self.is_over = False
        self.batch: int | None = None
        self.logs: dict[str, Any] = {}
        self.is_validated = False

    def models(self) -> list[Any]:
        """The model, and the model that callbacks see, if it is another one (Keras 2)."""
        return [model for model in (self.model, getattr(self.model, "callback_model", None)) if model is not None]

    def stop(self) -> None:
        """The last batch of the plan was trained: the loop ends with it."""
        self.is_over = True
        for model in self.models():
            model.stop_training = True


class _Plan:
    """The running fits, innermost last."""

    def __init__(self) -> None:
        self.fits: list[Fit] = []
        self.validation: Validation | None = None

    def stop(self) -> None:
        """Ends every running loop; a loop of the script continues, which is reported."""
        for fit in self.fits:
            fit.stop()
        # Without a fit an entry is the loop of a trial class, which follows the plan itself.
        if not self.fits and not recorder.CALLS.entries:
            loops.goes_on(recorder.CALLS)


PLAN = _Plan()


def prepare(calls: Calls, validation: Validation) -> None:
    """Has the fits ended when the plan is over.

    Args:
        calls: the recorder.
        validation: how this generation validates between two batches (`py_hooks/keras/validation.py`).
    """
    PLAN.validation = validation
    accumulators.prepare(calls)
    # Keras 2 and tf.keras may both be imported.
    if PLAN.stop not in calls.lifecycle.at_last:
        calls.lifecycle.at_last.append(PLAN.stop)


# -- entries -----------------------------------------------------------------------------------------------------------


def run(
    calls: Calls,
    original: Callable[..., Any],
    model: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    arguments: dict[str, Any],
) -> Any:
    """Makes a fit as long as the plan says. A fit inside another, in a callback, keeps its length, but is counted."""
    if PLAN.fits or not (calls.trial.has_plan or calls.steps is not None):
        return original(model, *args, **kwargs)
    fit = Fit(model, arguments, calls.boundary.validation_data)
    left = calls.trial.batches_left
    if left is not None:
        _check(calls, model)
        args, kwargs = _with_epochs(original, args, kwargs, _epochs(arguments, left))
        if left == 0:
            loops.say_once(calls, f"{_place()}: all steps were trained before this call; it trains none")
    calls.boundary.validation_due = False
    with _under_way(calls, fit):
        result = original(model, *args, **kwargs)
    _tell(calls, fit, left)
    return result


@contextlib.contextmanager
def _under_way(calls: Calls, fit: Fit) -> Iterator[None]:
    PLAN.fits.append(fit)
    if calls.steps is not None:
        calls.steps.is_in_fit = True
    try:
        yield
    finally:
        PLAN.fits.pop()
        calls.boundary.validation_due = False
        if calls.steps is not None:
            calls.steps.is_in_fit = False


def _tell(calls: Calls, fit: Fit, left: int | None) -> None:
    """Reports how the fit differed from the plan."""
    missing = calls.trial.batches_left
    if missing and not getattr(fit.model, "stop_training", False):
        loops.say_once(calls, f"{_place()}: the data ended {missing} batches before the trial's last step")
    if calls.trial.has_search and left != 0 and not fit.is_validated:
        loops.say_once(
            calls,
            f"{_place()}: this training was not validated; `searcher.metric` and `checkpoint_policy` have no effect on it",
        )


def own_loop(calls: Calls, name: str) -> None:
    """The script trains batch by batch, in its own loop."""
    if name == "train_on_batch":
        loops.keeps_its_length(calls, "`train_on_batch` is called")


def _place() -> str:
    return ":".join(map(str, places.user_place(2)))


def _check(calls: Calls, model: Any) -> None:
    size = sources.engine().steps_per_execution(model)
    if size > 1:
        ending.stop(
            calls,
            ExitCode.CONFIGURATION,
            f"`steps_per_execution` is {size}, and the number of steps is given\n"
            "  steps are counted in batches, which cannot be told apart inside of one execution\n"
            "  the script was stopped before it trained",
            "compile the model without `steps_per_execution`, or leave the number of steps to the script",
        )


def _epochs(arguments: dict[str, Any], left: int) -> int:
    """How many epochs hold `left` batches, including those before `initial_epoch`."""
    initial = int(arguments.get("initial_epoch") or 0)
    if left == 0:
        return initial
    source = arguments.get("generator", arguments.get("x"))
    size = _steps_per_epoch(arguments, source) or _batches_of(source, arguments)
    if size:
        return initial + -(-left // size)
    # Data that is read only once has one epoch; of other data with unknown length, an epoch has at least one batch.
    return initial + (1 if hasattr(source, "__next__") else left)


def _steps_per_epoch(arguments: dict[str, Any], source: Any) -> int | None:
    """Batches in an epoch, if the script says so."""
    samples = arguments.get("samples_per_epoch")
    if samples:
        # keras 2.3.1, keras/legacy/interfaces.py, `convert_generator_methods_args`.
        return int(samples) // int(getattr(source, "batch_size", 1))
    steps = arguments.get("steps_per_epoch")
    return int(steps) if steps else None


def _batches_of(source: Any, arguments: dict[str, Any]) -> int | None:
    """Batches in one pass over the data; None if only the data itself knows."""
    rows = _rows(source)
    if rows is not None:
        split = arguments.get("validation_split")
        if split and arguments.get("validation_data") is None:
            rows = math.floor(rows * (1.0 - split))
        return -(-rows // int(arguments.get("batch_size") or _BATCH_SIZE))
    if any(kind.__name__ == "PyDataset" for kind in type(source).__mro__):
        return source.num_batches
    if callable(getattr(source, "cardinality", None)):
        return max(0, int(source.cardinality()))
    if hasattr(source, "__len__"):
        return len(source)
    return None


def _rows(source: Any) -> int | None:
    """Rows of an array, or of the first array in lists and dicts; None for anything else."""
    while isinstance(source, (list, tuple, dict)):
        if not source:
            return None
        first = next(iter(source.values())) if isinstance(source, dict) else source[0]
        if not hasattr(first, "shape") and not isinstance(first, (list, tuple, dict)):
            return len(source)
        source = first
    shape = getattr(source, "shape", None)
    return int(shape[0]) if shape is not None and len(shape) else None


def _with_epochs(
    original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], epochs: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call's arguments, passed in the same way, with another number of epochs."""
    place = list(inspect.signature(original).parameters).index("epochs") - 1
    if place < len(args):
        return args[:place] + (epochs,) + args[place + 1:], kwargs
    return args, dict(kwargs, **{_OLD_NAME if _OLD_NAME in kwargs else "epochs": epochs})


# -- inside of the loop ------------------------------------------------------------------------------------------------


@unguarded
def train_batch_end(original: Callable[..., Any]) -> Callable[..., Any]:
    """`CallbackList.on_train_batch_end` of Keras 3: makes a validation that has come due, between two batches."""

    def on_train_batch_end(callbacks: Any, batch: int, logs: dict[str, Any] | None = None) -> None:
        original(callbacks, batch, logs)
        if PLAN.fits:
            _between_batches(callbacks, batch, logs)

    return on_train_batch_end


@unguarded
def batch_hook(original: Callable[..., Any]) -> Callable[..., Any]:
    """`CallbackList._call_batch_hook` of Keras 2: the same."""

    def call_batch_hook(callbacks: Any, mode: str, hook: str, batch: int, logs: dict[str, Any] | None = None) -> None:
        original(callbacks, mode, hook, batch, logs)
        if PLAN.fits and mode == "train" and hook == "end":
            _between_batches(callbacks, batch, logs)

    return call_batch_hook


@unguarded
def batch_end(original: Callable[..., Any]) -> Callable[..., Any]:
    """`CallbackList.on_batch_end` of Keras before 2.2.5: the same."""

    def on_batch_end(callbacks: Any, batch: int, logs: dict[str, Any] | None = None) -> None:
        original(callbacks, batch, logs)
        if PLAN.fits:
            _between_batches(callbacks, batch, logs)

    return on_batch_end


def epoch_end(original: Callable[..., Any], callbacks: Any, epoch: int, logs: dict[str, Any] | None = None, **mode: Any) -> Any:
    """`CallbackList.on_epoch_end`: notes the epoch's validation, and makes it if cutting the epoch left it out."""
    calls = recorder.CALLS
    is_of_training = mode.get("mode", "train") == "train"
    if PLAN.fits and is_of_training and logs is not None and _is_of(PLAN.fits[-1], callbacks):
        fit = PLAN.fits[-1]
        metrics = PLAN.validation.of_epoch(fit, callbacks, epoch, logs)
        if metrics:
            _validated(calls, fit, metrics)
        elif calls.boundary.validation_due:
            _validate(calls, fit, callbacks)
        given = fit.arguments.get("steps_per_epoch")
        is_short = given and (fit.batch or 0) + 1 < int(given) and not fit.is_over and not fit.model.stop_training
        if is_short and hasattr(fit.arguments.get("x"), "__next__"):
            # Keras 3 would continue with the few batches that it had looked at before the epoch.
            fit.model.stop_training = True
            loops.say_once(calls, "the generator has ended inside of an epoch, and the training with it")
    return original(callbacks, epoch, logs, **mode)


def _is_of(fit: Fit, callbacks: Any) -> bool:
    """Whether these are the callbacks of the fit that follows the plan: a callback, or a thread, has others."""
    return recorder.CALLS.recordable() and held_by(callbacks, "model") in fit.models()


@guard.guarded
def _between_batches(callbacks: Any, batch: int, logs: dict[str, Any] | None) -> None:
    calls, fit = recorder.CALLS, PLAN.fits[-1]
    if not _is_of(fit, callbacks):
        return
    fit.batch, fit.logs = batch, logs or {}
    # The epoch that ends now is validated as it is.
    is_last = PLAN.validation.is_last_of_epoch
    if calls.boundary.validation_due and not fit.is_over and not is_last(fit, held_by(callbacks, "params")):
        _validate(calls, fit, callbacks)


def _validate(calls: Calls, fit: Fit, callbacks: Any) -> None:
    calls.boundary.validation_due = False
    for begins, _ in calls.lifecycle.at_validation:
        begins()
    if calls.steps is not None:
        calls.steps.validation_begins()
    with calls.streams.aside(), accumulators.aside(fit.model):
        metrics = PLAN.validation.between(calls, fit, callbacks)
    for _, ended in calls.lifecycle.at_validation:
        metrics = ended(metrics or [])
    if metrics:
        _validated(calls, fit, metrics)
    else:
        loops.say_once(
            calls,
            "`min_validation_period` is set, and this training has no validation data that could be gone through again: "
            "it is validated by the script alone",
        )


def _validated(calls: Calls, fit: Fit, metrics: Metrics) -> None:
    fit.is_validated = True
    calls.boundary.validated(metrics)
