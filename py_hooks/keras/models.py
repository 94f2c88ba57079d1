"""What a checkpoint contains of models: enough to build each again without its script, and to find its weights.

A model is described once, when its first compute function is made: by then it is built, and on JAX its variables still
hold their values. Each checkpoint also has the names of the weights in it, in the order of `model.weights`. A resume
restores nothing of this: the script makes its models itself. `py_hooks/verbs/export.py` reads it.

Source: keras 3.15.1, keras/src/models/model.py, `Model.to_json`; keras 2.3.1, keras/engine/network.py,
`Network.to_json`.
"""
from __future__ import annotations

import json
import sys

from py_hooks.keras import sources
from py_hooks.keras.functions import MODELS
from py_hooks.recording import recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from py_hooks.recording.recorder import Calls


class ModelStates:
    """The models of this process, for checkpoints.

    Args:
        key_of: returns the name of a weight in a checkpoint, or None if it has none.
    """

    def __init__(self, key_of: Callable[[Any], str | None]) -> None:
        self._key_of = key_of

    def capture(self) -> tuple[list[Any], list[dict[str, Any]]]:
        """No tensors; for each model in use, its description and the names of its weights."""
        models = MODELS.in_use()
        return [], [dict(_description(model), number=number, weights=self._weights(model)) for number, model in models]

    def _weights(self, model: Any) -> list[list[str | None]] | None:
        """`[name, name in the checkpoint]` of each weight; None if a class of the script cannot list them."""
        try:
            return [[_name_of(weight), self._key_of(weight)] for weight in model.weights if sources.is_variable(weight)]
        except Exception:  # noqa: BLE001 - a property that the script may have overridden
            return None

    def restore(self, tensors: object, state: object) -> None:
        """Does nothing: the script makes its models itself."""


def _name_of(weight: Any) -> str:
    return getattr(weight, "path", None) or weight.name


def _description(model: Any) -> dict[str, Any]:
    known = MODELS.descriptions.get(model)
    if known is None:
        known = MODELS.descriptions[model] = describe(model)
    return known


def describe(model: Any) -> dict[str, Any]:
    """Framework, class and architecture of a model, the latter as JSON text; or why there is none, in words."""
    framework = _framework(model)
    description = {
        "class": f"{type(model).__module__}.{type(model).__qualname__}",
        "framework": framework.__name__,
        "version": framework.__version__,
        "backend": framework.backend.backend(),
        "architecture": None,
        "why_not": None,
    }
    try:
        with recorder.CALLS.unrecorded():
            architecture = json.loads(model.to_json())
    except Exception as error:  # noqa: BLE001 - whatever `get_config` of the script's own class raises
        # A text of the framework can be long; its first line is enough.
        text = (str(error).strip() or "no text").splitlines()[0]
        description["why_not"] = f"{type(error).__name__}: {text}"
    else:
        tables = sources.tables_of(model)
        if tables:
            description["why_not"] = f"its architecture does not hold what is in its tables ({', '.join(tables)})"
            return description
        # An export does not need to know how the model was trained, and that may hold functions of the script.
        architecture.pop("compile_config", None)
        description["architecture"] = json.dumps(architecture)
    return description


def _framework(model: Any) -> Any:
    """The package of a model's class, however the script has imported it."""
    for kind in type(model).__mro__:
        package = kind.__module__.partition(".")[0]
        if package == "keras":
            return sys.modules["keras"]
        if package == "tensorflow":
            return sys.modules["tensorflow"].keras
    raise TypeError(f"no model of Keras: {type(model).__mro__}")


def prepare(calls: Calls, key_of: Callable[[Any], str | None]) -> None:
    """Has the models described in checkpoints."""
    calls.checkpoints.keep("models", ModelStates(key_of))
    MODELS.describe = describe
