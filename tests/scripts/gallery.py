"""Trains a small model with each of the public names of a Keras that it is given, one after the other.

    python gallery.py --list
    python gallery.py KIND:NAME[=SHAPE*COUNT]...

The names are found in the package, and what they have to be given is found by trying. That takes a while, so a line
`found KIND:NAME=SHAPE*COUNT` says what was found, and another start can be given that. Prints a line for each: a hash of what
was learned and told, or why Keras cannot train with it here. With DIES in the environment the process kills itself once within
each cell, after the first checkpoint of that cell.
"""
import hashlib
import importlib
import inspect
import os
import re
import signal
import sys
import time
import warnings

import numpy

keras = importlib.import_module(os.environ.get("KERAS_PACKAGE", "keras"))

KINDS = ("layers", "optimizers", "losses", "metrics", "callbacks", "initializers", "constraints", "regularizers")

ROWS, BATCH, EPOCHS = 24, 4, 2
LATEST = os.path.join(".pedl", "gallery", "latest")

# What a parameter without a default is given, by its name.
GIVEN = {
    "units": 4, "filters": 4, "kernel_size": 2, "pool_size": 2, "rate": 0.3, "stddev": 0.1, "size": 2, "n": 3, "groups": 1,
    "input_dim": 10, "output_dim": 4, "num_heads": 2, "key_dim": 2, "num_tokens": 4, "axis": -1, "axes": -1, "dims": (2, 1),
    "factor": 0.1, "height": 6, "width": 6, "scale": 0.5, "num_bins": 4, "head_dim": 2, "num_query_heads": 2,
    "num_key_value_heads": 1, "alpha": 0.1, "l1": 0.01, "l2": 0.01, "value": 0.5, "theta": 1.0, "target_height": 6,
    "target_width": 6, "target_shape": (-1,), "mask_value": 0.0, "bin_boundaries": [0.3, 0.6], "num_classes": 2,
    "target_class_ids": [0], "precision": 0.5, "recall": 0.5, "sensitivity": 0.5, "specificity": 0.5, "thresholds": 0.5,
    "factor_range": 0.1, "min_value": 0.0, "max_value": 1.0, "sequence_stride": 1, "sequence_length": 2, "fft_length": 4,
    "schedule": lambda epoch: 0.01 / (1 + epoch), "monitor": "loss", "filepath": "saved.weights.h5", "cell": "cell",
    "layer": "layer", "cells": "cells", "layers": "layers", "function": lambda x: 2 * x, "filename": "log.csv",
    "max_tokens": 8, "vocabulary": [1, 2, 3], "initial_learning_rate": 0.01, "decay_steps": 4, "decay_rate": 0.9,
    "inner_optimizer": "sgd", "default_optimizer": "sgd", "optimizer": "sgd", "activation": "relu", "backup_dir": "backup",
    "equation": "ab,bc->ac", "output_shape": 4, "name": "named", "crop_to_aspect_ratio": False,
    "call_fn": lambda inputs: 2 * inputs, "padding": 1, "cropping": 1, "reduction_factor": 2, "mean_metric": "mse",
    "output_size": 2, "max_number": 3, "height_factor": 0.1, "width_factor": 0.1, "directory": "checkpoints",
    "fn": lambda y_true, y_pred: (y_true - y_pred) ** 2,
}

# Shapes of what a layer is given, in the order in which they are tried.
SHAPES = [(8,), (6, 8), (6, 6, 3), (4, 4, 4, 4), (3, 4, 4, 4, 4)]
# What is needed though it has a default, by the name of the class.
NEEDED = {
    "CategoryEncoding": {"num_tokens": 10}, "Discretization": {"bin_boundaries": [0.3, 0.6]},
    "GroupNormalization": {"groups": 2}, "IntegerLookup": {"vocabulary": [1, 2, 3]},
    "ModelCheckpoint": {"save_weights_only": True}, "RandomPosterization": {"factor": 4},
    "STFTSpectrogram": {"mode": "real", "frame_length": 4, "frame_step": 2, "fft_length": 4},
    "StringLookup": {"vocabulary": ["a", "b", "c"]},
    "TextVectorization": {"vocabulary": ["a", "b", "c"], "output_sequence_length": 4},
}
# What a layer is called with besides.
STATES = {"GRUCell": 1, "SimpleRNNCell": 1, "LSTMCell": 2}

# Whether a model can be called on arrays: all but Keras on TensorFlow 1.
TENSORFLOW = sys.modules.get("tensorflow")
IS_EAGER = TENSORFLOW is None or TENSORFLOW.executing_eagerly()

STRINGS = ("StringLookup", "TextVectorization")
INTEGERS = ("Embedding", "IntegerLookup", "Hashing", "CategoryEncoding", "HashedCrossing", "ReversibleEmbedding")


class DoesNotRun(Exception):
    """Keras cannot train with it here."""


def names_of(kind):
    """The public classes of a kind."""
    module = getattr(keras, kind)
    base = {"layers": "Layer", "optimizers": "Optimizer", "losses": "Loss", "metrics": "Metric", "callbacks": "Callback"}
    base = base.get(kind, kind.capitalize()[:-1])
    found = {}
    for name in sorted(dir(module)):
        value = getattr(module, name)
        if name.startswith("_") or not inspect.isclass(value) or name == base:
            continue
        if name.lower() in (found.get(id(value), "").lower(), "inputspec", "inputlayer", "callbacklist"):
            continue
        found.setdefault(id(value), name)
    return sorted(found.values())


def made(kind, name):
    """An object of the class, with what it has to be given."""
    cls = getattr(getattr(keras, kind), name)
    arguments = dict(NEEDED.get(name, {}))
    for parameter in inspect.signature(cls.__init__ if inspect.isclass(cls) else cls).parameters.values():
        if parameter.default is not parameter.empty or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.name in ("self", "args", "kwargs", *arguments):
            continue
        if parameter.name not in GIVEN:
            raise DoesNotRun("nobody knows what to give it for `%s`" % parameter.name)
        value = GIVEN[parameter.name]
        if value == "cell":
            value = keras.layers.LSTMCell(4)
        elif value == "cells":
            value = [keras.layers.LSTMCell(4), keras.layers.LSTMCell(4)]
        elif value == "layers":
            value = [keras.layers.Dense(4)]
        elif parameter.name in ("inner_optimizer", "default_optimizer"):
            value = keras.optimizers.SGD()
        elif value == "layer":
            value = keras.layers.LSTM(4) if name == "Bidirectional" else keras.layers.Dense(4)
        arguments[parameter.name] = value
    created = cls(**arguments)
    return keras.layers.RNN(created) if name == "StackedRNNCells" else created


def layer_model(name, found=None):
    """A model with the layer in it, and the shapes of its rows.

    Args:
        name: of the layer.
        found: what an earlier start found: `6x8*2` for two inputs whose rows have the shape (6, 8).
    """
    if found is not None:
        shape, _, count = found.partition("*")
        shape, count = tuple(map(int, shape.split("x"))), int(count)
        return _layer_model(name, shape, count), [shape] * count
    problem = None
    for shape in [(1,)] if name in STRINGS else SHAPES:
        for count in (1, 2):
            try:
                model = _layer_model(name, shape, count)
                if IS_EAGER:
                    # Keras 3 builds some layers on shapes with which they do not compute.
                    _computes(model, name, [shape] * count)
            except DoesNotRun:
                raise
            except Exception as error:
                problem = problem or error
                continue
            print("found layers:%s=%s*%d" % (name, "x".join(map(str, shape)), count))
            seed()
            return _layer_model(name, shape, count), [shape] * count
    raise DoesNotRun("%s: %.120s" % (type(problem).__name__, str(problem).strip().replace("\n", " ")))


def _layer_model(name, shape, count):
    layer = made("layers", name)
    given = kind_of_rows(name)
    inputs = [keras.layers.Input(shape, **({} if given == "float32" else {"dtype": given})) for _ in range(count)]
    x = [keras.layers.Dense(shape[-1])(each) if given == "float32" else each for each in inputs]
    out = _called(layer, name, x)
    if isinstance(out, (list, tuple)):
        out = out[0]
    if any(size is None for size in tuple(out.shape)[1:]):
        raise ValueError("a shape that is not known")
    if given != "float32" and hasattr(keras, "ops"):
        out = keras.ops.cast(out, "float32")
    out = keras.layers.Dense(1)(keras.layers.Flatten()(out) if len(out.shape) > 2 else out)
    return keras.models.Model(inputs if count > 1 else inputs[0], out)


def kind_of_rows(name):
    """What numbers, or strings, a layer is given."""
    return "string" if name in STRINGS else "int32" if name in INTEGERS else "float32"


def rows(kind, shape, count, dice):
    if kind == "float32":
        return dice.rand(count, *shape).astype("float32")
    drawn = dice.randint(0, 8, (count,) + shape)
    return drawn if kind == "int32" else numpy.array(list("abcdefgh"), object)[drawn]


def _computes(model, name, shapes):
    x = [rows(kind_of_rows(name), shape, BATCH, numpy.random.RandomState(1)) for shape in shapes]
    x = [TENSORFLOW.constant(each) if each.dtype == object else each for each in x]
    model(x if len(x) > 1 else x[0], training=True)


def _called(layer, name, x):
    if name in STATES:
        states = [keras.layers.Dense(4)(x[0]) for _ in range(STATES[name])]
        return layer(x[0], states)
    if name.endswith("Attention") and name not in ("Attention", "AdditiveAttention"):
        return layer(x[0], x[0])
    return layer(x[0] if len(x) == 1 else x)


def dense_model(**options):
    inputs = keras.layers.Input((8,))
    hidden = keras.layers.Dense(4, activation="relu", **options)(inputs)
    return keras.models.Model(inputs, keras.layers.Dense(2, activation="softmax")(keras.layers.Dropout(0.2)(hidden)))


def cell_of(kind, name, found=None):
    """Model, rows, targets, what `compile` and what `fit` are given."""
    dice = numpy.random.RandomState(7)
    shapes, given_rows = [(8,)], "float32"
    compiled, given = {"optimizer": "sgd", "loss": "mse"}, {}
    if kind == "layers":
        (model, shapes), given_rows = layer_model(name, found), kind_of_rows(name)
    else:
        options = {}
        if kind in ("initializers", "constraints", "regularizers"):
            options["kernel_" + kind[:-1]] = made(kind, name)
        model = dense_model(**options)
        if kind == "optimizers":
            compiled["optimizer"] = made(kind, name)
        elif kind == "losses":
            compiled["loss"] = made(kind, name)
        elif kind == "metrics":
            compiled["metrics"] = [made(kind, name)]
        elif kind == "callbacks":
            given["callbacks"] = [made(kind, name)]
    x = [rows(given_rows, shape, ROWS, dice) for shape in shapes]
    y = numpy.eye(2, dtype="float32")[dice.randint(0, 2, ROWS)] if kind != "layers" else dice.rand(ROWS, 1).astype("float32")
    if "Sparse" in name and kind in ("losses", "metrics"):
        y = y.argmax(1).reshape(-1, 1)
    return model, x if len(x) > 1 else x[0], y, compiled, given


def resumed_batch():
    """The batch of the newest checkpoint; -1 without."""
    return int(os.readlink(LATEST).rpartition("-")[2]) if os.path.lexists(LATEST) else -1


class Dies(keras.callbacks.Callback):
    """Counts the batches of all cells; kills this process once in each, when there is a checkpoint of it."""

    batches = 0
    resumed = resumed_batch()
    first = 0

    def on_train_batch_end(self, batch, logs=None):
        Dies.batches += 1
        if "DIES" in os.environ and Dies.first > Dies.resumed and Dies.batches - Dies.first > BATCH:
            # It is being written: whether it is in time decides only when the kill comes.
            end = time.monotonic() + 5
            while resumed_batch() <= Dies.first and time.monotonic() < end:
                time.sleep(0.01)
            if resumed_batch() > Dies.first:
                os.kill(os.getpid(), signal.SIGKILL)


def seed():
    numpy.random.seed(3)
    import random

    random.seed(3)
    if hasattr(getattr(keras, "utils", None), "set_random_seed"):
        keras.utils.set_random_seed(3)
    elif "tensorflow" in sys.modules:
        tensorflow = sys.modules["tensorflow"]
        getattr(tensorflow, "random", tensorflow).set_seed(3) if hasattr(tensorflow.random, "set_seed") else (
            tensorflow.set_random_seed(3)
        )


def train(kind, name, found):
    """Trains one cell; returns a hash of what was learned and told."""
    model, x, y, compiled, given = cell_of(kind, name, found)
    model.compile(**compiled)
    callbacks = given.pop("callbacks", []) + [Dies()]
    Dies.first = Dies.batches
    history = model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, verbose=0, callbacks=callbacks, **given)
    digest = hashlib.sha256()
    for weights in model.get_weights():
        digest.update(numpy.ascontiguousarray(weights).tobytes())
    for key in sorted(history.history):
        digest.update(repr((key, numpy.asarray(history.history[key], "float64").tobytes())).encode())
    return digest.hexdigest()


def main():
    warnings.simplefilter("ignore")
    if sys.argv[1:] == ["--list"]:
        for kind in KINDS:
            for name in names_of(kind) if hasattr(keras, kind) else ():
                print("%s:%s" % (kind, name))
        return
    for cell in sys.argv[1:]:
        cell, _, found = cell.partition("=")
        kind, name = cell.split(":")
        seed()
        try:
            said = train(kind, name, found or None)
        except DoesNotRun as error:
            said = "does not run: %s" % error
        except Exception as error:
            # Addresses are others in each process.
            text = re.sub("0x[0-9a-f]+", "0x", str(error).strip().replace("\n", " "))
            said = "does not run: %s: %.120s" % (type(error).__name__, text)
        print("cell %s %s" % (cell, said), flush=True)
        keras.backend.clear_session()


main()
