"""The data and the model of a fit: what in them cannot be resumed exactly, and texts by which a replay compares them."""
from __future__ import annotations

import sys

from py_hooks import causes
from py_hooks.facts.tensorflow import tensorflow_facts
from py_hooks.own_account import on_own_account
from py_hooks.recording import fingerprint, recorder
from py_hooks.workers import worker_processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any, Protocol

    class Engine(Protocol):
        """What the entry points ask a generation of Keras."""

        @property
        def sources(self) -> Collection[str]:
            """The kinds of sources from which it may take batches, besides arrays and indexable data sets."""

        @property
        def counts_steps(self) -> bool:
            """Whether calls of several batches are counted in batches."""

        @property
        def trains_otherwise_without_workers(self) -> bool:
            """Whether a fit without workers learns something else than one with workers."""

        def is_stale(self, weight: Any) -> bool:
            """Whether training changed the weight since Python last wrote it."""

        def values(self, model: Any, weights: list[Any]) -> Any:
            """The values of weights of a model."""

        def steps_per_execution(self, model: Any) -> int:
            """How many batches a call of the model's training function takes."""

        def is_intercepted(self) -> bool:
            """Whether there are compute functions, and they are intercepted."""

        def loaded(self, model: Any) -> None:
            """Notes that a model's weights now have values that only a file has."""

        def causes(self, model: Any) -> list[causes.Told]:
            """Causes in the devices why a model cannot be resumed exactly."""

# From these a generation may take batches, besides arrays and indexable data sets.
GENERATORS, PIPELINES, PROCESSES = "a Python generator", "a tf.data pipeline", "worker processes"
LOADERS, TENSORS = "a torch DataLoader", "tensors of TensorFlow"


@on_own_account
def causes_of(model: Any, arguments: dict[str, Any]) -> list[causes.Told]:
    """Causes in a call's arguments why it cannot be resumed exactly yet. Empty if there are none."""
    # Keras 1 called it `pickle_safe` (keras 2.3.1, keras/legacy/interfaces.py).
    in_processes = bool(arguments.get("use_multiprocessing") or arguments.get("pickle_safe"))
    in_processes = in_processes and arguments.get("workers", 1) > 0
    found = []
    for name in ("x", "generator", "validation_data"):
        for source in _parts(name, arguments.get(name)):
            cause = _cause(source, in_processes)
            if cause:
                found.append(causes.DATA(kind=cause, name=name))
    if not engine().counts_steps and engine().steps_per_execution(model) > 1:
        found.append(causes.STEPS_PER_EXECUTION())
    found.extend(engine().causes(model))
    return found


@on_own_account
def has_items(arguments: dict[str, Any]) -> bool:
    """Whether a call gets a data set whose items are looked at before it trains (`datasets/items.py`)."""
    source = arguments.get("x", arguments.get("generator"))
    is_data = source is None or isinstance(source, (list, tuple, dict, str)) or fingerprint.is_tensor_like(source)
    return not is_data and hasattr(source, "__getitem__") and hasattr(source, "__len__")


def _parts(name: str, value: Any) -> list[Any]:
    if name == "validation_data" and isinstance(value, (tuple, list)):
        return list(value)
    return [value]


def _cause(source: Any, in_processes: bool) -> str | None:
    if fingerprint.is_symbolic(source):
        return _unless_known(TENSORS)
    if source is None or isinstance(source, (list, tuple, dict, str)) or fingerprint.is_tensor_like(source):
        return None
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        if in_processes or (getattr(source, "use_multiprocessing", False) and getattr(source, "workers", 1) > 0):
            return _unless_known(PROCESSES) or _unless_forked()
        return None
    if hasattr(source, "element_spec") or type(source).__name__.endswith(("Dataset", "DatasetV1Adapter")):
        return _unless_known(PIPELINES) or _unless_in_order(source)
    if type(source).__module__.startswith("torch.utils.data"):
        # TensorFlow would iterate over it in another thread.
        return _unless_known(LOADERS) or (LOADERS if backend() == "tensorflow" else None)
    if hasattr(source, "__next__"):
        copies = f"{GENERATORS} in worker processes, each of which has a copy of it" if in_processes else None
        return _unless_known(GENERATORS) or copies
    return f"data of type {type(source).__name__}"


def _unless_known(kind: str) -> str | None:
    return None if kind in engine().sources else kind


def _unless_forked() -> str | None:
    return None if worker_processes.are_forked() else f"{PROCESSES} that are not forked"


def _unless_in_order(dataset: Any) -> str | None:
    if not hasattr(dataset, "options") or "tensorflow" not in sys.modules:
        return None
    name = tensorflow_facts().option_of_order
    return f"{PIPELINES} that keeps no order (`{name}=False`)" if getattr(dataset.options(), name, None) is False else None


class _Engine:
    """What the entry points ask about weights, devices and data: an object such as `keras3.weights.Weights`."""

    answers: Engine | None = None


def use(engine: Engine) -> None:
    """Called once, when a generation of Keras is prepared.

    Args:
        engine: has the attributes and methods of `keras3.weights.Weights`.
    """
    _Engine.answers = engine


def engine() -> Engine:
    """The engine of the generation in use."""
    return _Engine.answers


def distribution_causes(distribution: Any) -> list[causes.Told]:
    """The cause for a strategy or distribution: none for the one of ranks, for None, and if the script entered no scope."""
    name = type(distribution).__name__
    is_of_ranks = distribution is getattr(recorder.CALLS.agreement, "strategy", None)
    if distribution is None or is_of_ranks or name == "_DefaultDistributionStrategy":
        return []
    return [causes.DISTRIBUTED(strategy=name)]


def tensorflow_device_causes() -> list[causes.Told]:
    """The cause for TensorFlow's devices, unless they are processors."""
    devices = sys.modules["tensorflow"].config.list_physical_devices()
    kinds = sorted({device.device_type for device in devices} - {"CPU", "XLA_CPU"})
    return [causes.DEVICE(device=", ".join(kinds))] if kinds else []


def backend() -> str | None:
    """The backend of Keras 3, or of Keras 2; None if Keras is not imported."""
    keras = sys.modules.get("keras")
    return keras.backend.backend() if keras is not None else None


@on_own_account
def describe_model(model: Any) -> dict[str, str]:
    """Short texts of the optimizer's configuration, and of the weights: their values if a replay knows them."""
    described = {}
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:
        described["optimizer"] = type(optimizer).__name__
        for name, value in _configuration(optimizer).items():
            described[f"optimizer's `{name}`"] = fingerprint.describe(value)
    weights = weights_of(model)
    described["weights"] = ", ".join(
        "{}{}".format(getattr(weight, "path", None) or weight.name, _shape(weight)) for weight in weights
    )
    tables = tables_of(model)
    if tables:
        described["tables"] = ", ".join(tables)
    if weights and not any(engine().is_stale(weight) for weight in weights):
        described["weight values"] = fingerprint.describe(engine().values(model, weights))
    return described


def weights_of(holder: Any) -> list[Any]:
    """The weights of a model or an optimizer that are variables; none if they do not exist yet, or it does not list them.

    tf.keras raises then (tensorflow 1.15.5, tensorflow/python/keras/engine/network.py, `_assert_weights_created`, and
    optimizers.py, `TFOptimizer.weights`).
    """
    return [weight for weight in _all_weights_of(holder) if is_variable(weight)]


def is_variable(weight: Any) -> bool:
    """Whether a weight is a variable, and not the handle of a table.

    Lookup layers of Keras 2 have one among their weights (keras 2.15.0, keras/src/layers/preprocessing/index_lookup.py,
    `VocabWeightHandler`). It holds nothing that is trained: the code that fills it runs again in a replay.
    """
    return hasattr(weight, "shape") and hasattr(weight, "name")


def tables_of(holder: Any) -> list[str]:
    """The types of those weights of a model that are not variables."""
    return [type(weight).__name__ for weight in _all_weights_of(holder) if not is_variable(weight)]


def _all_weights_of(holder: Any) -> list[Any]:
    try:
        return list(getattr(holder, "weights", ()))
    except (ValueError, NotImplementedError):
        return []


def _shape(weight: Any) -> tuple[int | None, ...]:
    return tuple(None if size is None else int(size) for size in getattr(weight.shape, "as_list", weight.shape.__iter__)())


def _configuration(optimizer: Any) -> dict[str, Any]:
    """An optimizer's configuration, without values that training itself changes."""
    configuration = dict(optimizer.get_config())
    return {name: configuration[name] for name in sorted(configuration) if _is_constant(configuration[name])}


def _is_constant(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str, list, tuple, dict)) or hasattr(value, "dtype")
