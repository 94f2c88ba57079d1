"""The entry points of Keras, all generations: where a user's call begins and ends, and its arguments.

An entry is the outermost call of the script, or a call that code of the script (a callback, a custom loop) makes
inside another. Calls that the framework makes for itself are let through.
"""
from __future__ import annotations

import inspect
import os
import sys
from threading import get_ident

from py_hooks import causes
from py_hooks.datasets import items
from py_hooks.engine.patch import binding
from py_hooks.keras import accumulators, plan, sources
from py_hooks.keras.skipped_batch import SkippedBatch
from py_hooks.keras.validation import held_by
from py_hooks.recording import call_kinds, entries, fingerprint, forks, recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from py_hooks.keras.functions import ModelFunction
    from py_hooks.recording.recorder import Calls

    # Makes a call of the script: `(calls, original, model, args, kwargs, arguments)`.
    Make = Callable[[Calls, Callable[..., Any], Any, tuple[Any, ...], dict[str, Any], dict[str, Any]], Any]


def _make(
    calls: Calls,
    original: Callable[..., Any],
    model: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    arguments: dict[str, Any],
) -> Any:
    return original(model, *args, **kwargs)


def _entry(name: str, original: Callable[..., Any], make: Make = _make) -> Callable[..., Any]:
    """What replaces an entry that gets all of its data; `make` makes the call."""

    def entry(model: Any, *args: Any, **kwargs: Any) -> Any:
        calls = recorder.CALLS
        if not calls.recordable() or (calls.entries and not entries.called_by_user()):
            if calls.is_child and make is plan.run:
                forks.trains(calls.trial)
            return original(model, *args, **kwargs)
        if calls.in_step_callback:
            calls.refuse_in_callback()
        arguments = _arguments(original, model, args, kwargs)
        is_intercepted = sources.engine().is_intercepted()
        entries.announce(calls, sources.causes_of(model, arguments), not (is_intercepted and sources.has_items(arguments)))
        if not is_intercepted:
            return original(model, *args, **kwargs)
        calls.entries.append(calls.sites.of(sys._getframe(2)))
        outer, calls.arguments = (calls.arguments, calls.epoch), 0
        started = items.started()
        try:
            _compare_call(calls, name, model, arguments)
            return make(calls, original, model, args, kwargs, arguments)
        finally:
            calls.entries.pop()
            calls.arguments, calls.epoch = outer
            calls.exactness.looked()
            items.close_started_since(started)

    return entry


def _batch_entry(name: str, original: Callable[..., Any], attribute: str, keeping: str | None = None) -> Callable[..., Any]:
    """What replaces an entry that gets one batch; `attribute` is where a model keeps the function that runs it.

    `compile` clears that attribute. The next such call sets it again, and compares the model and the script.

    Args:
        name: name of the entry.
        original: the entry.
        attribute: attribute of the model.
        keeping: the attribute for calls that do not reset metrics, if it is another one (tf.keras of TensorFlow 1.13).
    """

    def entry(model: Any, *args: Any, **kwargs: Any) -> Any:
        calls = recorder.CALLS
        if calls.depth or get_ident() != calls.main_thread or (calls.entries and not entries.called_by_user()):
            return _not_recorded(calls, name, keeping or attribute, original, model, args, kwargs)
        function = getattr(model, attribute if keeping is None or _resets(args, kwargs) else keeping, None)
        if not getattr(function, "answers_batches", False):
            return _first(calls, name, original, model, args, kwargs, function)
        frame = sys._getframe(2)
        site = calls.sites.known.get((id(frame.f_code), frame.f_lasti)) or calls.sites.of(frame)
        return function.perform_batch(calls, site, lambda: original(model, *args, **kwargs), args, kwargs)

    return entry


def _resets(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a `..._on_batch` of tf.keras resets the metrics: its last argument decides, and the default is True."""
    given = args[-1] if args and isinstance(args[-1], bool) else True
    return kwargs.get("reset_metrics", given)


def _not_recorded(
    calls: Calls,
    name: str,
    attribute: str,
    original: Callable[..., Any],
    model: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """A call that the framework's loop makes: for a batch that was not built, in a replay, nothing is computed.

    Or a call in a forked child, which reports that it trains.
    """
    if args and type(args[0]) is SkippedBatch:
        return getattr(model, attribute).answer_skipped(args[0])
    if calls.is_child and name == "train_on_batch":
        forks.trains(calls.trial)
    return original(model, *args, **kwargs)


def _first(
    calls: Calls,
    name: str,
    original: Callable[..., Any],
    model: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    function: ModelFunction | None,
) -> Any:
    """A call for one batch that reaches the compute function through code of the framework."""
    if not calls.begun:
        # A batch consists of arrays, however it was made.
        entries.announce(calls, sources.causes_of(model, {}))
    if function is None and not sources.engine().is_intercepted():
        return original(model, *args, **kwargs)
    calls.entries.append(calls.sites.of(sys._getframe(3)))
    outer, calls.arguments = calls.arguments, calls.checksum_of(args, kwargs)
    try:
        if function is None:
            plan.own_loop(calls, name)
            entries.compare(calls, name, dict(sources.describe_model(model), **entries.describe_sources()))
        return original(model, *args, **kwargs)
    finally:
        calls.entries.pop()
        calls.arguments = outer


def _arguments(original: Callable[..., Any], model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The call's arguments by name, without defaults. Keras 2 also takes names of Keras 1, which are kept."""
    signature = inspect.signature(original)
    try:
        arguments = dict(signature.bind(model, *args, **kwargs).arguments)
    except TypeError:
        arguments = dict(zip(signature.parameters, (model,) + args))
        arguments.update(kwargs)
    arguments.update(arguments.pop("kwargs", {}))
    arguments.pop("self", None)
    return arguments


# Arguments of a fit that depend on the machine: another machine may have other values, and learns the same.
_OF_THE_MACHINE = ("workers", "use_multiprocessing", "max_queue_size", "max_q_size", "nb_worker", "pickle_safe")


def _compare_call(calls: Calls, name: str, model: Any, arguments: dict[str, Any]) -> None:
    """Records, or compares, the arguments of a whole fit, evaluate or predict."""
    callbacks = arguments.pop("callbacks", None)
    compared = sorted(set(arguments).difference(_OF_THE_MACHINE))
    described = {f"argument `{key}`": fingerprint.describe(arguments[key]) for key in compared}
    if sources.engine().trains_otherwise_without_workers:
        workers = arguments.get("workers", arguments.get("nb_worker", 1))
        described["argument `workers`"] = "above 0" if workers else "0"
    if isinstance(callbacks, (list, tuple)):
        described["callbacks"] = ", ".join(type(callback).__name__ for callback in callbacks)
    elif callbacks is not None:
        described["callbacks"] = type(callbacks).__name__
    described.update(sources.describe_model(model))
    described.update(entries.describe_sources())
    entries.compare(calls, name, described)


@binding
def fit(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Model.fit`: the whole training is one entry of the script, and its batches are recorded."""
    return _entry("fit", original, plan.run)


@binding
def fit_generator(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Model.fit_generator` of Keras 2: the same."""
    return _entry("fit_generator", original, plan.run)


@binding
def evaluate(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Model.evaluate`: an entry; its batches are recorded."""
    return _entry("evaluate", original)


@binding
def evaluate_generator(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Model.evaluate_generator` of Keras 2: the same."""
    return _entry("evaluate_generator", original)


@binding
def predict(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Model.predict`: an entry; its batches are recorded."""
    return _entry("predict", original)


@binding
def predict_generator(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Model.predict_generator` of Keras 2: the same."""
    return _entry("predict_generator", original)


@binding
def train_on_batch(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Model.train_on_batch`: one batch, which the script passes."""
    return _batch_entry("train_on_batch", original, "train_function")


@binding
def test_on_batch(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Model.test_on_batch`: the same."""
    return _batch_entry("test_on_batch", original, "test_function")


@binding
def predict_on_batch(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Model.predict_on_batch`: the same."""
    return _batch_entry("predict_on_batch", original, "predict_function")


@binding
def train_on_batch_or_fit(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Model.train_on_batch` of TensorFlow 1.13, which uses the function of `fit` if it keeps metrics."""
    return _batch_entry("train_on_batch", original, "train_function", "_fit_function")


@binding
def test_on_batch_or_eval(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Model.test_on_batch` of TensorFlow 1.13: the same, with the function of `evaluate`."""
    return _batch_entry("test_on_batch", original, "test_function", "_eval_function")


def get_weights(original: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
    """`Model.get_weights`: a recorded call once training has begun; its arrays are stored whole."""
    calls = recorder.CALLS
    if calls.depth or not calls.batches or not calls.recordable():
        return original(model, *args, **kwargs)
    identity = calls.trial.intern(f"get_weights of {type(model).__name__}")
    return calls.perform(call_kinds.READ, identity, lambda: original(model, *args, **kwargs))


def save(original: Callable[..., Any], model: Any, filepath: Any, *args: Any, **kwargs: Any) -> None:
    """`Model.save`, `save_weights`: writes files that belong to the checkpoint; writes nothing in a replay.

    In a replay the weights of that moment do not exist; the file is restored from the checkpoint.
    """
    calls = recorder.CALLS
    if calls.depth or not calls.begun or not calls.recordable():
        return original(model, filepath, *args, **kwargs)
    identity = calls.trial.intern(f"{original.__name__} to {entries.path_text(filepath)}")

    def write() -> bool:
        original(model, filepath, *args, **kwargs)
        return entries.is_path(filepath) and os.path.isdir(filepath)

    calls.perform(
        call_kinds.COMPOSITE, identity, write,
        prepare=lambda: calls.files.saving(filepath),
        made=lambda _: _refuse_several_files(calls, filepath, kwargs),
        put=lambda is_folder: calls.files.saved.replace(filepath, is_folder),
    )  # fmt: skip
    return None


def _refuse_several_files(calls: Calls, path: Any, options: dict[str, Any]) -> None:
    """Refuses weights in several files whose names begin with the path, because checkpoints do not hold them."""
    if options.get("max_shard_size") is not None:
        calls.exactness.refuse(causes.SHARDS())
    elif entries.is_path(path) and os.path.exists(os.fsdecode(path) + ".index"):
        calls.exactness.refuse(causes.TENSORFLOW_FORMAT())


def load_weights(original: Callable[..., Any], model: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
    """`Model.load_weights`: made live, except in a replay after the first training call, when the file may be newer."""
    calls = recorder.CALLS
    if calls.depth or not calls.begun or not calls.recordable():
        return original(model, filepath, *args, **kwargs)
    identity = calls.trial.intern(f"load_weights from {entries.path_text(filepath)}")
    sources.engine().loaded(model)
    status: list[Any] = []

    def load() -> None:
        status.append(original(model, filepath, *args, **kwargs))

    calls.perform(call_kinds.COMPOSITE, identity, load, prepare=lambda: _refuse_several_files(calls, filepath, kwargs))
    return status[0] if status else _Loaded()


class _Loaded:
    """Replaces what `load_weights` returns for a checkpoint of TensorFlow that was not read: it says that it was.

    Source: tensorflow 2.15.1, tensorflow/python/checkpoint/checkpoint.py, `CheckpointLoadStatus`.
    """

    def _agrees(self, *args: Any, **kwargs: Any) -> _Loaded:
        return self

    assert_consumed = assert_existing_objects_matched = assert_nontrivial_match = expect_partial = _agrees
    initialize_or_restore = run_restore_ops = _agrees


def load_model(original: Callable[..., Any], filepath: Any, *args: Any, **kwargs: Any) -> Any:
    """`load_model`: makes a model, in a replay too; but then the file may be newer, so the values are unknown."""
    calls = recorder.CALLS
    if not calls.begun or not calls.recordable():
        return original(filepath, *args, **kwargs)
    if entries.is_path(filepath):
        calls.files.reading(os.fsdecode(filepath))
    with calls.unrecorded():
        model = original(filepath, *args, **kwargs)
    sources.engine().loaded(model)
    calls.checked(call_kinds.COMPOSITE, calls.trial.intern(f"load_model from {entries.path_text(filepath)}"), 0)
    return model


def epoch_begin(original: Callable[..., Any], callbacks: Any, epoch: int, logs: dict[str, Any] | None = None, **mode: Any) -> Any:
    """`CallbackList.on_epoch_begin`: keeps the number of the epoch for the journal and for checkpoints.

    In tf.keras of TensorFlow 1.13 evaluations have an epoch too, and a `mode` that says so.
    """
    calls = recorder.CALLS
    if calls.recordable() and mode.get("mode", "train") == "train":
        calls.epoch = int(epoch)
        accumulators.epoch_begins(held_by(callbacks, "model"))
    return original(callbacks, epoch, logs, **mode)
