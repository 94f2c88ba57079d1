"""Keras 2 on TensorFlow 2: the rows of all these generations, by modules below the package of Keras.

Call paths (read from tf.keras of 2.3.4, and from 2.6.0, 2.12.0, 2.13.1 and 2.15.0):

    Model.fit             -> DataHandler.enumerate_epochs -> an adapter's pipeline -> Model.train_function   the loop
    Model.train_on_batch                                                           -> Model.train_function
    evaluate, predict, test_on_batch, predict_on_batch                             -> test_function, predict_function
    fit_generator, evaluate_generator, predict_generator                           -> fit, evaluate, predict
    models of graph mode (`training_v1`)                                              stopped
"""
from __future__ import annotations

from py_hooks.engine.patch import Patch
from py_hooks.keras import accumulators, entry_points, plan
from py_hooks.keras.keras2_eager import eager, handlers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    # What `Patch` takes: module, attribute, advice, why.
    _Rows = tuple[tuple[Any, ...], ...]

_MODEL = "engine.training"
_GRAPH_MODE = "engine.training_v1"
_ADAPTERS = "engine.data_adapter"
_CALLBACKS = "callbacks"

_ROWS: _Rows = (
    #module       attribute                                 advice                         why
    (_MODEL,      "Model.fit",                     entry_points.fit,              "know where a training call begins"),
    (_MODEL,      "Model.evaluate",                entry_points.evaluate,         "know where an evaluation begins"),
    (_MODEL,      "Model.predict",                 entry_points.predict,          "know where a prediction begins"),
    (_MODEL,      "Model.train_on_batch",          entry_points.train_on_batch,   "know where a training call begins"),
    (_MODEL,      "Model.test_on_batch",           entry_points.test_on_batch,    "know where an evaluation begins"),
    (_MODEL,      "Model.predict_on_batch",        entry_points.predict_on_batch, "know where a prediction begins"),
    (_MODEL,      "Model.make_train_function",     eager.make_train_function,     "record and answer training calls"),
    (_MODEL,      "Model.make_test_function",      eager.make_test_function,      "record and answer test calls"),
    (_MODEL,      "Model.make_predict_function",   eager.make_predict_function,   "record and answer predict calls"),
    (_MODEL,      "Model.reset_metrics",           accumulators.reset_metrics,    "know the sums before they are reset"),
    (_MODEL,      "Model.get_weights",             entry_points.get_weights,      "record and answer reads of weights"),
    (_MODEL,      "Model.save",                    entry_points.save,             "keep saved models with checkpoints"),
    (_MODEL,      "Model.save_weights",            entry_points.save,             "keep saved models with checkpoints"),
    (_MODEL,      "Model.load_weights",            entry_points.load_weights,     "not read a file of the future"),
    (_GRAPH_MODE, "Model.fit",                     eager.graph_mode,              "not train unprotected"),
    (_GRAPH_MODE, "Model.fit_generator",           eager.graph_mode,              "not train unprotected"),
    (_GRAPH_MODE, "Model.train_on_batch",          eager.graph_mode,              "not train unprotected"),
    (_CALLBACKS,  "CallbackList.on_epoch_begin",   entry_points.epoch_begin,      "name the epoch"),
    (_CALLBACKS,  "CallbackList.on_train_batch_end", plan.train_batch_end,        "validate when the plan says so"),
    (_CALLBACKS,  "CallbackList.on_epoch_end",     plan.epoch_end,                "take note of validations"),
    (_ADAPTERS,   "DataHandler.enumerate_epochs",  handlers.enumerate_epochs,     "skip in a replay"),
    (_ADAPTERS,   "KerasSequenceAdapter.__init__", handlers.sequence_adapter,     "key the random numbers of items"),
    (_ADAPTERS,   "KerasSequenceAdapter._peek_and_restore", handlers.peek,        "key the random numbers of items"),
    (_ADAPTERS,   "KerasSequenceAdapter._handle_multiprocessing", handlers.sequence_items, "skip in a replay"),
    (_ADAPTERS,   "GeneratorDataAdapter.__init__", handlers.generator_adapter,    "keep its random numbers apart"),
    (_ADAPTERS,   "KerasSequenceAdapter.on_epoch_end", handlers.sequence_epoch_end, "key the random numbers of hooks"),
)


def _below(package: str) -> tuple[Patch, ...]:
    return tuple(Patch(f"{package}.{module}", *row) for module, *row in _ROWS)


IN_KERAS = _below("keras")
IN_KERAS_SRC = _below("keras.src")
IN_TENSORFLOW = _below("tensorflow.python.keras")
