"""The facts of Keras: of the `keras` distribution, and of `tensorflow.keras`, the Keras within TensorFlow 1 and 2.2 to 2.5."""
from __future__ import annotations

from py_hooks.facts import stated

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class KerasFacts:
    """The facts of one generation of Keras, whatever it computes with.

    Args:
        callback_lists_hold_model: a `CallbackList` has the `model` and the `params` of its callbacks (keras/callbacks.py); in
            `keras` from 2.2.5 on.
    """

    def __init__(self, *, callback_lists_hold_model: bool) -> None:
        self.callback_lists_hold_model = callback_lists_hold_model


class Keras3Facts(KerasFacts):
    """The facts of one generation of Keras 3.

    Args:
        backend_module: module whose `backend()` names the backend in use (keras/src/backend/config.py).
        callback_lists_hold_model: as in `KerasFacts`.
    """

    def __init__(self, *, backend_module: str, callback_lists_hold_model: bool) -> None:
        KerasFacts.__init__(self, callback_lists_hold_model=callback_lists_hold_model)
        self.backend_module = backend_module


class EagerFacts(KerasFacts):
    """The facts of one generation of Keras 2 on TensorFlow 2.

    Args:
        package: the package of its modules. In 2.13 the modules of `keras` were moved to `keras.src`.
        models_have_steps_per_execution: a model has `_steps_per_execution` (keras/engine/training.py); from TensorFlow 2.3 on.
        options_of_split: arguments of `train_validation_split` with which it takes the last rows, as `fit` does
            (keras/engine/data_adapter.py). In TensorFlow 2.2 it shuffles the rows unless it is asked not to.
        callback_lists_hold_model: as in `KerasFacts`.
    """

    def __init__(
        self,
        *,
        package: str,
        models_have_steps_per_execution: bool,
        options_of_split: Mapping[str, Any],
        callback_lists_hold_model: bool,
    ) -> None:
        KerasFacts.__init__(self, callback_lists_hold_model=callback_lists_hold_model)
        self.package = package
        self.models_have_steps_per_execution = models_have_steps_per_execution
        self.options_of_split = options_of_split


class GraphFacts(KerasFacts):
    """The facts of one generation of Keras 2 on TensorFlow 1.

    Args:
        backend_module: as in `Keras3Facts` (keras/backend/__init__.py); None in `tensorflow.keras`, which has one backend.
        attribute_of_generator: attribute of a `GeneratorEnqueuer` with its generator (keras/utils/data_utils.py).
        attribute_of_processes: attribute that says whether it uses processes. Both begin with an underscore before Keras 2.2.3.
        attributes_with_metrics: attributes of a model with the metrics whose values a fit accumulates, or methods that return
            them (keras/engine/training.py); `_get_training_eval_metrics` in `keras` from 2.3 on, and in TensorFlow 1.15.
        functions_have_fetch_callbacks: a `K.function` calls its `fetch_callbacks` with what else it has fetched
            (tensorflow/python/keras/backend.py). In `keras` from 2.3 on, whose `K.function` is that of `tensorflow.keras`.
        models_have_strategy: a model has a `_distribution_strategy`, or None as such; in `tensorflow.keras`
            (tensorflow/python/keras/engine/training.py).
        callback_lists_hold_model: as in `KerasFacts`.
    """

    def __init__(
        self,
        *,
        backend_module: str | None,
        attribute_of_generator: str,
        attribute_of_processes: str,
        attributes_with_metrics: tuple[str, ...],
        functions_have_fetch_callbacks: bool,
        models_have_strategy: bool,
        callback_lists_hold_model: bool,
    ) -> None:
        KerasFacts.__init__(self, callback_lists_hold_model=callback_lists_hold_model)
        self.backend_module = backend_module
        self.attribute_of_generator = attribute_of_generator
        self.attribute_of_processes = attribute_of_processes
        self.attributes_with_metrics = attributes_with_metrics
        self.functions_have_fetch_callbacks = functions_have_fetch_callbacks
        self.models_have_strategy = models_have_strategy


def keras_facts(library: str) -> KerasFacts:
    """The facts of a Keras of this process: `keras`, or `tensorflow.keras`."""
    found: KerasFacts = stated.of(library)
    return found


def eager_facts(library: str) -> EagerFacts:
    """The same, for Keras 2 on TensorFlow 2."""
    found: EagerFacts = stated.of(library)
    return found


def graph_facts(library: str) -> GraphFacts:
    """The same, for Keras 2 on TensorFlow 1."""
    found: GraphFacts = stated.of(library)
    return found
