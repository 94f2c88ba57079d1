"""What a fit is given: which of it can be resumed exactly, and how it is told from another."""
import sys

from py_hooks.advice import fingerprint
from py_hooks.keras.variables import VARIABLES


def causes(model, arguments):
    """What in a call's arguments cannot be resumed exactly yet. Empty where all of it can."""
    found = []
    for name in ("x", "generator", "validation_data"):
        for source in _parts(name, arguments.get(name)):
            cause = _cause(source)
            if cause:
                found.append("{} ({})".format(cause, f"`{name}`"))
    # `pickle_safe` is what Keras 1 called it (keras 2.3.1, keras/legacy/interfaces.py).
    if (arguments.get("use_multiprocessing") or arguments.get("pickle_safe")) and arguments.get("workers", 1) > 0:
        found.append("worker processes (`use_multiprocessing=True`)")
    if (getattr(model, "steps_per_execution", None) or 1) > 1:
        found.append("`steps_per_execution` above 1")
    found.extend(below.causes(model))
    return found


def _parts(name, value):
    if name == "validation_data" and isinstance(value, (tuple, list)):
        return list(value)
    return [value]


def _cause(source):
    if source is None or isinstance(source, (list, tuple, dict, str)) or fingerprint.is_tensor_like(source):
        return None
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        if getattr(source, "use_multiprocessing", False) and getattr(source, "workers", 1) > 0:
            return "worker processes of a data set"
        return None
    if hasattr(source, "element_spec") or type(source).__name__.endswith("Dataset"):
        return "a tf.data pipeline"
    if hasattr(source, "__next__"):
        return "a Python generator"
    return f"data of type {type(source).__name__}"


class _EagerWeights:
    """What the entry points ask about weights and devices: the answers of Keras 3."""

    def is_stale(self, weight):
        """Whether training changed the weight since Python last wrote it."""
        return VARIABLES.is_stale(weight)

    def values(self, weights):
        """The values of weights."""
        return [weight.numpy() for weight in weights]

    def loaded(self, model):
        """Notes that a model's weights now hold what only a file knows."""
        VARIABLES.mark_stale(model.variables)

    def causes(self, model):
        """What about the devices cannot be resumed exactly."""
        distribution = _distribution(model)
        if distribution is not None:
            return [f"training distributed over devices (`{type(distribution).__name__}`)"]
        jax = sys.modules.get("jax")
        if jax is not None and _backend() == "jax" and jax.default_backend() != "cpu":
            return [f"training on {jax.default_backend()}, where exact resume was not tried"]
        tensorflow = sys.modules.get("tensorflow")
        if tensorflow is not None and _backend() == "tensorflow":
            devices = tensorflow.config.list_physical_devices()
            kinds = sorted({device.device_type for device in devices} - {"CPU", "XLA_CPU"})
            if kinds:
                return ["training on {}, where exact resume was not tried".format(", ".join(kinds))]
        return []


# A generation whose variables are others puts its own answers here when it is prepared.
below = _EagerWeights()


def _distribution(model):
    """What spreads a training over devices: a strategy of TensorFlow, or Keras's own on JAX; None without."""
    strategy = getattr(model, "distribute_strategy", None)
    if strategy is not None:
        # That of every model that was made outside of any scope.
        return None if type(strategy).__name__ == "_DefaultDistributionStrategy" else strategy
    distribution = getattr(sys.modules.get("keras"), "distribution", None)
    return distribution.distribution() if distribution is not None else None


def _backend():
    keras = sys.modules.get("keras")
    return keras.backend.backend() if keras is not None else None


def describe_model(model):
    """Short texts of the optimizer's configuration, and of the weights: values where a replay knows them."""
    described = {}
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:
        described["optimizer"] = type(optimizer).__name__
        for name, value in _configuration(optimizer).items():
            described[f"optimizer's `{name}`"] = fingerprint.describe(value)
    weights = list(getattr(model, "weights", ()))
    described["weights"] = ", ".join(
        "{}{}".format(getattr(weight, "path", weight.name), _shape(weight)) for weight in weights
    )
    if weights and not any(below.is_stale(weight) for weight in weights):
        described["weight values"] = fingerprint.describe(below.values(weights))
    return described


def _shape(weight):
    return tuple(None if size is None else int(size) for size in getattr(weight.shape, "as_list", weight.shape.__iter__)())


def _configuration(optimizer):
    """An optimizer's configuration, without what training itself changes."""
    configuration = dict(optimizer.get_config())
    return {name: configuration[name] for name in sorted(configuration) if _is_constant(configuration[name])}


def _is_constant(value):
    return value is None or isinstance(value, (bool, int, float, str, list, tuple, dict)) or hasattr(value, "dtype")
