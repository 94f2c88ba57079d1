"""Keras 2.2.3 and 2.2.4 on TensorFlow 1.13 and later: `fit` takes arrays only, and no callback sees a test batch.

Call paths (read from 2.2.3 and 2.2.4); the rows of `Model.fit` and its siblings are in
`rows_of_graph_mode.py`:

    Model.fit(arrays)    -> training_arrays.fit_loop -> Model.train_function                         the loop
    Model.fit_generator  -> training_generator.fit_generator -> an enqueuer's get(), or iter_sequence_infinite
                                                             -> Model.train_on_batch -> Model.train_function
    Model.evaluate, predict and their `_generator` and `_on_batch` forms the same way
"""
from py_hooks.engine.patch import Generation, Patch
from py_hooks.keras import advice, enqueuers, graph, plan, rows_of_graph_mode
from py_hooks.keras.facts import KerasFacts

FACTS = KerasFacts(backend_module="keras.backend")

_MODEL = "keras.engine.training"
_CALLBACKS = "keras.callbacks"
_SAVING = "keras.engine.saving"
_MODELS = "keras.models"

PATCHES = rows_of_graph_mode.IN_KERAS + (
    #     module      attribute                       advice                         why
    Patch(_MODEL,     "Model.train_on_batch",         advice.train_on_batch,         "know where a training call begins"),
    Patch(_MODEL,     "Model.test_on_batch",          advice.test_on_batch,          "know where an evaluation begins"),
    Patch(_MODELS,    "save_model",                   advice.save,                   "keep saved models with checkpoints"),
    Patch(_SAVING,    "save_model",                   advice.save,                   "keep saved models with checkpoints"),
    Patch(_MODELS,    "load_model",                   advice.load_model,             "not read a file of the future"),
    Patch(_SAVING,    "load_model",                   advice.load_model,             "not read a file of the future"),
    Patch(_CALLBACKS, "CallbackList.on_batch_end",    plan.batch_end,                "validate when the plan says so"),
    Patch("keras.engine.training_generator", "iter_sequence_infinite", enqueuers.iter_sequence_infinite,
          "skip in a replay"),
    Patch("keras.optimizers", "Optimizer.get_gradients", graph.get_gradients,       "say what is not intercepted"),
)

BACKENDS = {
    "tensorflow": (),
}

GENERATION = Generation("keras", "2.2.3", "2.2.4", FACTS, PATCHES, BACKENDS, graph.prepare)
