"""Keras 2 in graph mode, on TensorFlow 1: the rows of all these generations, by modules below the package of Keras.

Call paths (read from Keras 2.2.0 to 2.2.5, 2.3.0 and 2.3.1, and from tf.keras of 1.13.1, 1.14.0 and 1.15.5):

    Model.fit, fit_generator, train_on_batch      -> a function of the backend, made once     `Model._make_train_function`
    Model.evaluate, test_on_batch, ...            -> another one                              `Model._make_test_function`
    Model.predict, predict_on_batch, ...          -> another one                              `Model._make_predict_function`
    Model.fit_generator, ...(Sequence, workers=N) -> an enqueuer's start() and get()
"""
from __future__ import annotations

from py_hooks.engine.patch import Patch
from py_hooks.keras import entry_points, images, plan
from py_hooks.keras.keras2_graph import enqueuers, graph

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    # What `Patch` takes: module, attribute, advice, why.
    _Rows = tuple[tuple[Any, ...], ...]

_MODEL = "engine.training"
_CALLBACKS = "callbacks"
_DATA = "utils.data_utils"
_SAVING = "engine.saving"
_IMAGES = "keras_preprocessing.image"

_ROWS = (
    #module      attribute                       advice                           why
    (_MODEL,     "Model.fit",                    entry_points.fit,                "know where a training call begins"),
    (_MODEL,     "Model.fit_generator",          entry_points.fit_generator,      "know where a training call begins"),
    (_MODEL,     "Model.evaluate",               entry_points.evaluate,           "know where an evaluation begins"),
    (_MODEL,     "Model.evaluate_generator",     entry_points.evaluate_generator, "know where an evaluation begins"),
    (_MODEL,     "Model.predict",                entry_points.predict,            "know where a prediction begins"),
    (_MODEL,     "Model.predict_generator",      entry_points.predict_generator,  "know where a prediction begins"),
    (_MODEL,     "Model.predict_on_batch",       entry_points.predict_on_batch,   "know where a prediction begins"),
    (_MODEL,     "Model._make_train_function",   graph.make_train_function,       "record and answer training calls"),
    (_MODEL,     "Model._make_test_function",    graph.make_test_function,        "record and answer test calls"),
    (_MODEL,     "Model._make_predict_function", graph.make_predict_function,     "record and answer predict calls"),
    (_MODEL,     "Model.get_weights",            entry_points.get_weights,        "record and answer reads of weights"),
    (_MODEL,     "Model.save",                   entry_points.save,               "keep saved models with checkpoints"),
    (_MODEL,     "Model.save_weights",           entry_points.save,               "keep saved models with checkpoints"),
    (_MODEL,     "Model.load_weights",           entry_points.load_weights,       "not read a file of the future"),
    (_CALLBACKS, "CallbackList.on_epoch_begin",  entry_points.epoch_begin,        "name the epoch"),
    (_CALLBACKS, "CallbackList.on_epoch_end",    plan.epoch_end,                  "take note of validations"),
    (_DATA,      "OrderedEnqueuer.start",        enqueuers.start_ordered,         "skip in a replay"),
    (_DATA,      "GeneratorEnqueuer.start",      enqueuers.start_generator,       "keep its random numbers apart"),
)

# Only in `keras`.
_ROWS_OF_KERAS = (
    (_MODEL,   "Model.train_on_batch", entry_points.train_on_batch, "know where a training call begins"),
    (_MODEL,   "Model.test_on_batch",  entry_points.test_on_batch,  "know where an evaluation begins"),
    ("models", "save_model",           entry_points.save,           "keep saved models with checkpoints"),
    ("models", "load_model",           entry_points.load_model,     "not read a file of the future"),
    (_SAVING,  "save_model",           entry_points.save,           "keep saved models with checkpoints"),
    (_SAVING,  "load_model",           entry_points.load_model,     "not read a file of the future"),
)

# A separate package, which `keras` and `tf.keras` share.
_ROWS_OF_IMAGES = (
    Patch(_IMAGES, "Iterator.__init__",    images.made, "key the random numbers of items"),
    Patch(_IMAGES, "Iterator.__getitem__", images.item, "key the random numbers of items"),
)


def _below(package: str, rows: _Rows) -> tuple[Patch, ...]:
    return tuple(Patch(f"{package}.{module}", *row) for module, *row in rows) + _ROWS_OF_IMAGES


IN_KERAS = _below("keras", _ROWS + _ROWS_OF_KERAS)
IN_TENSORFLOW = _below("tensorflow.python.keras", _ROWS)
