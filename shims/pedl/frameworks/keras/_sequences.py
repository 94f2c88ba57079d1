"""The classes of data sets that the installed Keras knows."""
from __future__ import annotations

import importlib
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The packages of Keras whose `utils` have a class for data sets: those of today, and the one of Keras 2.
_PACKAGES = ("keras", "tensorflow.keras", "tf_keras")


def sequence_classes() -> list[Any]:
    """The class for data sets of each Keras that is imported, so that each of them accepts an object of all these classes.

    If none is imported yet, this imports the first one that is installed.
    """
    if not any(package.split(".")[0] in sys.modules for package in _PACKAGES):
        for package in _PACKAGES:
            try:
                importlib.import_module(package)
                break
            except ImportError:
                continue
    found: list[Any] = []
    for package in _PACKAGES:
        # `tensorflow.keras` is not a module in all versions, but always an attribute.
        module: Any = sys.modules.get(package.split(".")[0])
        for name in package.split(".")[1:]:
            module = getattr(module, name, None)
        utils = getattr(module, "utils", None)
        kind = getattr(utils, "PyDataset", None) or getattr(utils, "Sequence", None)
        if kind is not None and not any(issubclass(other, kind) for other in found):
            found = [other for other in found if not issubclass(kind, other)] + [kind]
    return found or [object]
