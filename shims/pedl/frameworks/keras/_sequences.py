"""The classes of data sets that the installed Keras knows."""
import importlib
import sys

# Where data sets of each package are: that of today, and that of Keras 2.
_PACKAGES = ("keras", "tensorflow.keras", "tf_keras")


def sequence_classes():
    """The class for data sets of each Keras that is imported, so that all of them take an object for one.

    Where none is imported yet, the first one that is installed is.
    """
    if not any(package.split(".")[0] in sys.modules for package in _PACKAGES):
        for package in _PACKAGES:
            try:
                importlib.import_module(package)
                break
            except ImportError:
                continue
    found = []
    for package in _PACKAGES:
        # `tensorflow.keras` is no module of that name in all versions, but always an attribute.
        module = sys.modules.get(package.split(".")[0])
        for name in package.split(".")[1:]:
            module = getattr(module, name, None)
        utils = getattr(module, "utils", None)
        kind = getattr(utils, "PyDataset", None) or getattr(utils, "Sequence", None)
        if kind is not None and not any(issubclass(other, kind) for other in found):
            found = [other for other in found if not issubclass(kind, other)] + [kind]
    return found or [object]
