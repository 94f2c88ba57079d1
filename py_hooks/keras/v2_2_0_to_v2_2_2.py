"""Keras 2.2.0 to 2.2.2 on TensorFlow 1.13 and later: what iterates over a `Sequence` never comes to its end.

Call paths (read from 2.2.0, 2.2.1 and 2.2.2):

    Model.fit(arrays)    -> training_arrays.fit_loop -> Model.train_function                         the loop
    Model.fit_generator  -> training_generator.fit_generator -> an enqueuer's get(), or Sequence.__iter__
                                                             -> Model.train_on_batch -> Model.train_function
    Model.evaluate, predict and their `_generator` and `_on_batch` forms the same way
"""
from py_hooks.engine.patch import Generation, Patch
from py_hooks.keras import advice, enqueuers, graph, images, plan
from py_hooks.keras.facts import KerasFacts

FACTS = KerasFacts(backend_module="keras.backend")

_MODEL = "keras.engine.training"
_IMAGES = "keras_preprocessing.image"

PATCHES = (
    #     module    attribute                      advice                           why
    Patch(_MODEL,   "Model.fit",                   advice.fit,                      "know where a training call begins"),
    Patch(_MODEL,   "Model.fit_generator",         advice.fit_generator,            "know where a training call begins"),
    Patch(_MODEL,   "Model.evaluate",              advice.evaluate,                 "know where an evaluation begins"),
    Patch(_MODEL,   "Model.evaluate_generator",    advice.evaluate_generator,       "know where an evaluation begins"),
    Patch(_MODEL,   "Model.predict",               advice.predict,                  "know where a prediction begins"),
    Patch(_MODEL,   "Model.predict_generator",     advice.predict_generator,        "know where a prediction begins"),
    Patch(_MODEL,   "Model.train_on_batch",        advice.train_on_batch,           "know where a training call begins"),
    Patch(_MODEL,   "Model.test_on_batch",         advice.test_on_batch,            "know where an evaluation begins"),
    Patch(_MODEL,   "Model.predict_on_batch",      advice.predict_on_batch,         "know where a prediction begins"),
    Patch(_MODEL,   "Model._make_train_function",  graph.make_train_function,       "record and answer training calls"),
    Patch(_MODEL,   "Model._make_test_function",   graph.make_test_function,        "record and answer test calls"),
    Patch(_MODEL,   "Model._make_predict_function", graph.make_predict_function,    "record and answer predict calls"),
    Patch(_MODEL,   "Model.get_weights",           advice.get_weights,              "record and answer reads of weights"),
    Patch(_MODEL,   "Model.save",                  advice.save,                     "keep saved models with checkpoints"),
    Patch(_MODEL,   "Model.save_weights",          advice.save,                     "keep saved models with checkpoints"),
    Patch(_MODEL,   "Model.load_weights",          advice.load_weights,             "not read a file of the future"),
    Patch("keras.models", "save_model",            advice.save,                     "keep saved models with checkpoints"),
    Patch("keras.engine.saving", "save_model",     advice.save,                     "keep saved models with checkpoints"),
    Patch("keras.models", "load_model",            advice.load_model,               "not read a file of the future"),
    Patch("keras.engine.saving", "load_model",     advice.load_model,               "not read a file of the future"),
    Patch("keras.callbacks", "CallbackList.on_epoch_begin", advice.epoch_begin,     "name the epoch"),
    Patch("keras.callbacks", "CallbackList.on_batch_end", plan.batch_end,           "validate when the plan says so"),
    Patch("keras.callbacks", "CallbackList.on_epoch_end", plan.epoch_end,           "take note of validations"),
    Patch("keras.utils.data_utils", "OrderedEnqueuer.start", enqueuers.start_ordered, "skip in a replay"),
    Patch("keras.utils.data_utils", "GeneratorEnqueuer.start", enqueuers.start_generator, "keep its random numbers apart"),
    Patch("keras.utils.data_utils", "Sequence.__iter__", enqueuers.iterate_sequence, "skip in a replay"),
    Patch("keras.optimizers", "Optimizer.get_gradients", graph.get_gradients,       "say what is not intercepted"),
    Patch(_IMAGES,  "Iterator.__init__",           images.made,                     "key the random numbers of items"),
    Patch(_IMAGES,  "Iterator.__getitem__",        images.item,                     "key the random numbers of items"),
)

BACKENDS = {
    "tensorflow": (),
}

GENERATION = Generation("keras", "2.2.0", "2.2.2", FACTS, PATCHES, BACKENDS, graph.prepare)
