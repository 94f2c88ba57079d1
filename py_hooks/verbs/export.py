"""Converts a checkpoint to a format that the framework reads: the host runs it in a separate interpreter.

    main([FOLDER, TARGET, MODEL, WEIGHTS_ONLY, BATCH, IS_TRUSTED])

FOLDER holds `state.json` and `tensors.safetensors` of the checkpoint, MODEL is a number or empty, WEIGHTS_ONLY is 1 or
0, and BATCH is the batch of the checkpoint. IS_TRUSTED is 1 if code that the checkpoint holds or names may be run: a
checkpoint may come from anybody, and an architecture of Keras may hold code (`Lambda`) and name modules to import.

The ending of TARGET chooses the format:

    .npz, .safetensors    the weights by name; no framework is needed
    .weights.h5           the weights, for `load_weights`
    .keras, .h5           the model, for `load_model`
    .pt, .pth             for a model of PyTorch: a dict of `model_state_dict`, `optimizer_state_dict` and, if there is
                          one, `lr_scheduler_state_dict`, for `torch.load(..., weights_only=True)`; for the weights alone,
                          the value of the first
    anything else         a folder: a SavedModel of TensorFlow, of a model of Keras or of the graph of a `TensorFlowTrial`

A model of Keras is exported without its optimizer: it is for predictions, and must be compiled again to be trained further.

Exit codes are those of the host: 0; 64 if something is asked for that does not exist; 69 if the framework cannot be
imported, or does not write the format; 65 if the model cannot be built again; 73 if TARGET cannot be made.
"""
from __future__ import annotations

import json
import os
import sys

from py_hooks.border import ExitCode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, TypeVar

    import numpy

    # What a checkpoint says of its providers' states by their names, and of one model.
    _States = dict[str, Any]
    _Model = dict[str, Any]
    _Value = TypeVar("_Value")

USAGE, DAMAGED, FRAMEWORK, CANNOT_CREATE = ExitCode.USAGE, ExitCode.CONFIGURATION, ExitCode.UNSUPPORTED, ExitCode.CANNOT_CREATE

# NumPy's names for the types of the format. Source: safetensors 0.8.0, src/tensor.rs, `Dtype`.
_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "C64": "complex64",
}
_WEIGHTS = (".npz", ".safetensors", ".weights.h5")
_MODELS = (".keras", ".h5")
_OF_TORCH = (".pt", ".pth")

# Formats of files that are not written here; the name of a folder may end in anything else.
_OTHER_FILES = (".ckpt", ".hdf5", ".index", ".json", ".onnx", ".pb", ".pickle", ".pkl", ".tflite", ".zip")

# A checkpoint may name one of the frameworks, and an architecture parts of these modules. Functions that were registered
# have the module `builtins`.
_FRAMEWORKS = ("keras", "tf_keras", "tensorflow", "torch")
_MODULES = ("", "keras", "tensorflow", "tf_keras", "builtins")

# The name of the state of a trial of PyTorch in a checkpoint (`py_hooks/torch/trials.py`).
_STATE_OF_TORCH = "torch trial"

# The names of the graph of a `TensorFlowTrial` in a checkpoint (`py_hooks/tensorflow/served_graphs.py`).
_STATE_OF_GRAPH = "tensorflow graph"
_GRAPH = _STATE_OF_GRAPH + "/graph"

# Source: keras 2.12.0, keras/saving/saving_api.py, `save_model`.
_FIRST_WITH_KERAS_FILES = (2, 12)


class Refused(Exception):
    """A request that cannot be met: text, hint and exit code."""

    def __init__(self, code: int, text: str, hint: str | None = None) -> None:
        Exception.__init__(self, text)
        self.code = code
        self.hint = hint


def main(arguments: Sequence[str]) -> int:
    """Exports. Returns the exit code."""
    folder, target, number, weights_only, batch, trusted = arguments
    try:
        if weights_only == "1" and not target.endswith(_WEIGHTS + _OF_TORCH):
            raise Refused(USAGE, f"`--weights` with `{target}`\n  expected: a file whose name ends in {_listed(_WEIGHTS)}")
        if target.endswith(_OTHER_FILES):
            raise Refused(
                USAGE,
                f"`{target}`: nothing is exported to a file of this kind\n"
                f"  expected: a file whose name ends in {_listed(_MODELS + _WEIGHTS)}, or a folder, for a SavedModel",
            )
        states, model, held = _opened(folder, target, number)
        _let_in_code(trusted == "1", model, target)
        try:
            if target.endswith(".safetensors"):
                held.write(target, _told_apart(model["weights"]))
            elif target.endswith(_OF_TORCH):
                _write_torch(states[_STATE_OF_TORCH], held, target, weights_only == "1")
            else:
                _write(states, model, held, target)
        except OSError as error:
            if os.path.isfile(target):
                # It is an incomplete export, because it did not exist before.
                os.remove(target)
            text = f"`{target}` cannot be made\n  {_in_words(error)}"
            raise Refused(CANNOT_CREATE, text, "name a file in a folder that is there, and that you may write to") from error
    except Refused as refused:
        hint = f"\nhint: {refused.hint}" if refused.hint else ""
        sys.stderr.write(_printable(f"pedl: error: {refused}{hint}\n"))
        return refused.code
    # A file may have any name.
    name = os.fsencode(target).decode("utf-8", "replace")
    is_whole = model["framework"] == "tensorflow" or target.endswith(_WEIGHTS + _OF_TORCH)
    without = "" if is_whole else ", without its optimizer: `compile` it to train it further"
    sys.stdout.write(_printable(f"{_title(model)}, as it was after batch {batch}, was exported to `{name}`{without}\n"))
    return 0


def _opened(folder: str, target: str, number: str) -> tuple[_States, _Model, Tensors]:
    """The states of a checkpoint, the model that is asked for, and the `Tensors` of the checkpoint."""
    with open(os.path.join(folder, "state.json"), encoding="utf-8") as file:
        states = json.load(file)
    held = Tensors(os.path.join(folder, "tensors.safetensors"))
    try:
        model = _chosen(states.get("models"), number)
        _check_framework(model, target)
        _check_whole(model, held)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        text = f"what the checkpoint says of its models is not what pedl-run writes\n  {_in_words(error)}"
        raise Refused(DAMAGED, text) from error
    if model["weights"] is None or None in [key for _, key in model["weights"]]:
        raise Refused(DAMAGED, f"{_title(model)}: the checkpoint does not know which weights it has")
    return states, model, held


def _check_whole(model: _Model, held: Tensors) -> None:
    """Raises an error if a model lacks something that is needed below."""
    if model["framework"].partition(".")[0] not in _FRAMEWORKS:
        raise ValueError("`{}` is no framework".format(model["framework"]))
    for name, key in model["weights"] or ():
        if not isinstance(name, str) or (key is not None and key not in held):
            raise ValueError(f"there is no tensor `{key}`")


def _let_in_code(is_trusted: bool, model: _Model, target: str) -> None:
    """Lets code of the checkpoint run, if it is trusted; otherwise refuses what would run any."""
    if is_trusted:
        # As in `python`: modules of the user's layers are in the current folder.
        sys.path.insert(0, "")
    elif not target.endswith(_WEIGHTS + _OF_TORCH):
        _check_safe(model)


def _check_safe(model: _Model) -> None:
    """Refuses an architecture that holds code, or names modules that are not the framework's."""
    if model["framework"] in ("torch", "tensorflow") or model.get("architecture") is None:
        return
    try:
        found = _code_in(json.loads(model["architecture"]))
    except (TypeError, ValueError, RecursionError) as error:
        raise Refused(DAMAGED, f"the architecture of {_title(model)} cannot be read\n  {_in_words(error)}") from error
    if found is not None:
        raise Refused(
            DAMAGED,
            f"{_title(model)} {found}\n  it was not built: whoever made the checkpoint decides what that does",
            "if you know who that is, run the same command with `--trust`; or export the weights with `--weights` to `.npz`",
        )


def _code_in(node: Any) -> str | None:
    """Describes what part of an architecture is code; None if there is none."""
    if isinstance(node, list):
        return next((found for found in map(_code_in, node) if found is not None), None)
    if not isinstance(node, dict):
        return None
    config = node.get("config")
    config = config if isinstance(config, dict) else {}
    if node.get("class_name") == "__lambda__" or "lambda" in (config.get("function_type"), config.get("output_shape_type")):
        return "holds a function as code (`Lambda`)"
    module = node.get("module", config.get("module"))
    if isinstance(module, str) and module.partition(".")[0] not in _MODULES:
        return f"has a part that is imported from `{module}`"
    return _code_in(list(node.values()))


def _check_framework(model: _Model, target: str) -> None:
    """Each framework has its own kinds of files; files of weights in other formats are for all frameworks."""
    for_all = (".npz", ".safetensors")
    names = {"torch": "PyTorch", "tensorflow": "TensorFlow"}
    name = names.get(model["framework"], "Keras")
    of_file = "PyTorch" if target.endswith(_OF_TORCH) else "Keras" if target.endswith((*_MODELS, ".weights.h5")) else None
    # A folder is for Keras and TensorFlow.
    if target.endswith(for_all) or name == of_file or (of_file is None and name != "PyTorch"):
        return
    expected = {
        "PyTorch": _listed(_OF_TORCH + for_all),
        "TensorFlow": f"{_listed(for_all)}, or a folder, for a SavedModel",
        "Keras": f"{_listed(_MODELS + _WEIGHTS)}, or a folder, for a SavedModel",
    }
    raise Refused(
        USAGE, f"{_title(model)} is of {name}, and `{target}` is not\n  expected: a file whose name ends in {expected[name]}"
    )


def _listed(endings: Iterable[str]) -> str:
    return ", ".join(f"`{ending}`" for ending in endings)


def _title(model: _Model) -> str:
    # In one line, whatever the name is.
    return "model {} (`{}`)".format(model["number"], json.dumps(model["class"])[1:-1])


def _chosen(models: list[_Model] | None, number: str) -> _Model:
    """The model with this number; the only model, if no number is given."""
    if not models:
        raise Refused(USAGE, "the checkpoint knows of no model", "only models of Keras can be exported")
    listed = "\n".join(f"  {_title(model)}" for model in models)
    if number:
        found = [model for model in models if str(model["number"]) == number]
        if not found:
            raise Refused(USAGE, f"the checkpoint has no model {number}\n  there is:\n{listed}")
        return found[0]
    if len(models) > 1:
        raise Refused(USAGE, f"the checkpoint has {len(models)} models\n{listed}", "name one of them with `--model N`")
    return models[0]


# -- tensors -----------------------------------------------------------------------------------------------------------


class Tensors:
    """A file of the format safetensors.

    Source: https://github.com/huggingface/safetensors, README.md, "Format".
    """

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            content = file.read()
        end = 8 + int.from_bytes(content[:8], "little")
        self._header: dict[str, Any] = json.loads(content[8:end].decode("utf-8"))
        self._bytes = memoryview(content)[end:]

    def array(self, key: str) -> numpy.ndarray:
        """A tensor as an array of NumPy."""
        import numpy

        entry = self._header[key]
        if entry["dtype"] == "BF16":
            # Registers the type.
            import ml_dtypes  # noqa: F401
        dtype = numpy.dtype(_DTYPES[entry["dtype"]])
        return numpy.frombuffer(self._slice(key), dtype).reshape(entry["shape"])

    def of(self, provider: str) -> dict[str, numpy.ndarray]:
        """All tensors of one provider, by their names in it."""
        return {key[len(provider) + 1:]: self.array(key) for key in self._header if key.startswith(provider + "/")}

    def _slice(self, key: str) -> memoryview:
        start, end = self._header[key]["data_offsets"]
        return self._bytes[start:end]

    def __contains__(self, key: object) -> bool:
        return key in self._header

    def write(self, path: str, weights: Sequence[tuple[str, str]]) -> None:
        """Writes tensors in the same format under other names, `(name, key)`, each name once."""
        header, offset = {}, 0
        for name, key in weights:
            size = len(self._slice(key))
            header[name] = dict(self._header[key], data_offsets=[offset, offset + size])
            offset += size
        text = json.dumps(header).encode("utf-8")
        text += b" " * (-len(text) % 8)
        with open(path, "xb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for _, key in weights:
                file.write(self._slice(key))


# -- models ------------------------------------------------------------------------------------------------------------


def _write(states: _States, model: _Model, held: Tensors, target: str) -> None:
    weights = [(name, held.array(key)) for name, key in model["weights"]]
    if target.endswith(".npz"):
        import numpy

        numpy.savez(target, **dict(_told_apart(weights)))
        return
    framework = _framework(model)
    if model["framework"] == "tensorflow":
        _write_graph(states[_STATE_OF_GRAPH], held.array(_GRAPH), dict(weights), target)
        return
    built = _built(framework, model, [value for _, value in weights])
    try:
        _save(framework, built, target)
    except Refused:
        raise
    except Exception as error:  # whatever the framework has against this file
        raise Refused(
            FRAMEWORK,
            f"{framework.__name__} {framework.__version__} cannot write `{target}`\n  {_in_words(error)}",
            "export to another format, or with `--weights` to `.npz`"
            if target.endswith(_MODELS + _WEIGHTS)
            else f"a name that ends in none of {_listed(_MODELS + _WEIGHTS)} is a folder, for a SavedModel of TensorFlow",
        ) from error


def _write_torch(state: Any, held: Tensors, target: str, weights_only: bool) -> None:
    """What `torch.load(..., weights_only=True)` reads: dicts, tensors and numbers."""
    try:
        import torch
    except Exception as error:  # an import can fail in any way
        raise Refused(
            FRAMEWORK,
            f"`torch` cannot be imported by {sys.executable}\n  {_in_words(error)}",
            "name the Python of the trial with `--python PATH`, or export the weights to `.npz`",
        ) from error
    from py_hooks.torch.state_codec import decode

    tensors = held.of(_STATE_OF_TORCH)
    saved = {"model_state_dict": decode(state["model"], tensors)}
    if weights_only:
        saved = saved["model_state_dict"]
    else:
        saved["optimizer_state_dict"] = decode(state["optimizer"], tensors)
        if state["scheduler"] is not None:
            saved["lr_scheduler_state_dict"] = decode(state["scheduler"], tensors)
    with open(target, "xb") as file:
        torch.save(saved, file)


def _write_graph(state: Any, definition: numpy.ndarray, values: dict[str, numpy.ndarray], target: str) -> None:
    """A SavedModel of the graph of a `TensorFlowTrial`, with the variables of the checkpoint."""
    from py_hooks.tensorflow import served_graphs

    try:
        served_graphs.write(state, definition, values, target)
    except Exception as error:  # whatever TensorFlow has against this graph
        raise Refused(
            FRAMEWORK, f"TensorFlow cannot write `{target}`\n  {_in_words(error)}", "export the weights to `.npz`"
        ) from error


def _told_apart(weights: Sequence[tuple[str, _Value]]) -> list[tuple[str, _Value]]:
    """Weights with unique names: a name that two of them have gets its place as a prefix."""
    names = [name for name, _ in weights]
    return [
        (name if names.count(name) == 1 else f"{place} {name}", value) for place, (name, value) in enumerate(weights)
    ]


def _printable(text: str) -> str:
    """A text without control characters for the terminal: whoever made the checkpoint chose the names."""
    return "".join(
        character if character == "\n" or character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def _in_words(error: BaseException) -> str:
    lines = (str(error).strip() or "no text").splitlines()
    return f"{type(error).__name__}: " + "\n  ".join(lines[:3])


def _framework(model: _Model) -> Any:
    """The package of the model, imported with the backend on which the model was trained."""
    os.environ["KERAS_BACKEND"] = model["backend"]
    package = model["framework"].partition(".")[0]
    try:
        framework = __import__(package)
        # `tf.keras` in TensorFlow.
        framework = framework.keras if package == "tensorflow" and model["framework"] != package else framework
    except Exception as error:  # an import can fail in any way
        raise Refused(
            FRAMEWORK,
            f"`{package}` cannot be imported by {sys.executable}\n  {_in_words(error)}",
            "name the Python of the trial with `--python PATH`, or export the weights with `--weights` to `.npz`",
        ) from error
    if framework.__version__ != model["version"]:
        sys.stderr.write(
            "pedl: warning: the model was trained with {} {}, and is exported with {}\n".format(
                package, model["version"], framework.__version__
            )
        )
    return framework


def _built(framework: Any, model: _Model, values: list[numpy.ndarray]) -> Any:
    """The model, built from its architecture, with the weights of the checkpoint."""
    hint = "export its weights with `--weights` to `.npz`, `.safetensors`"
    if model["architecture"] is None:
        raise Refused(
            DAMAGED,
            "{} cannot be built again: it does not tell its architecture\n  {}".format(_title(model), model["why_not"]),
            hint,
        )
    try:
        built = framework.models.model_from_json(model["architecture"])
        _set_weights(framework, built, values)
    except Exception as error:  # a class that cannot be imported here, or does not fit
        raise Refused(DAMAGED, f"{_title(model)} cannot be built again\n  {_in_words(error)}", hint) from error
    return built


def _set_weights(framework: Any, built: Any, values: list[numpy.ndarray]) -> None:
    """Sets `weights` in their order: in Keras 2 the order of `set_weights` differs from it."""
    if len(built.weights) != len(values):
        raise ValueError(f"it has {len(built.weights)} weights, and the checkpoint has {len(values)} of it")
    if _version(framework) < (3,):
        framework.backend.batch_set_value(list(zip(built.weights, values)))
        return
    for weight, value in zip(built.weights, values):
        weight.assign(value)


def _version(framework: Any) -> tuple[int, ...]:
    return tuple(int(number) for number in framework.__version__.split("-")[0].split(".")[:2])


def _save(framework: Any, built: Any, target: str) -> None:
    version = _version(framework)
    if target.endswith(".weights.h5"):
        built.save_weights(target)
    elif target.endswith(".h5"):
        built.save(target)
    elif target.endswith(".keras"):
        if version < _FIRST_WITH_KERAS_FILES:
            raise Refused(
                FRAMEWORK,
                f"{framework.__name__} {framework.__version__} does not read `.keras`",
                "export to `.h5`",
            )
        # Only the first version with these files needs the option; without it, it writes another format.
        options = {"save_format": "keras_v3"} if version == _FIRST_WITH_KERAS_FILES else {}
        built.save(target, **options)
    elif version >= (3,):
        built.export(target)
    elif _is_eager():
        built.save(target, save_format="tf")
    else:
        _save_graph(framework, built, target)


def _is_eager() -> bool:
    import tensorflow

    return tensorflow.executing_eagerly()


def _save_graph(framework: Any, built: Any, target: str) -> None:
    """A SavedModel of the graph that Keras 2 has built in TensorFlow's session, without eager execution."""
    import tensorflow

    tensorflow.compat.v1.saved_model.simple_save(
        framework.backend.get_session(),
        target,
        {f"input_{place}": tensor for place, tensor in enumerate(built.inputs)},
        {f"output_{place}": tensor for place, tensor in enumerate(built.outputs)},
    )
