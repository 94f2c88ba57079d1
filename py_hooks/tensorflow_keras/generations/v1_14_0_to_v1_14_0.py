"""tf.keras of TensorFlow 1.14, in graph mode: each function of Keras has a separate training loop for its data.

Call paths (read from 1.14.0, tensorflow/python/keras/engine); the rows of `Model.fit` and its siblings are in
`py_hooks/keras/generations/entry_points_of_graph_mode.py`:

    Model.fit(arrays)    -> training_arrays.model_iteration -> Model.train_function                    the loop
    Model.fit(Sequence), Model.fit_generator
                         -> training_generator.model_iteration -> an enqueuer's get(), or iter_sequence_infinite
                                                               -> Model.train_on_batch -> Model.train_function
    Model.evaluate, predict and their `_generator` and `_on_batch` forms the same way
    Model.save, models.save_model -> saving.save.save_model -> hdf5_format.save_model_to_hdf5
"""
from py_hooks.engine.patch import Generation, Patch
from py_hooks.facts.keras import GraphFacts
from py_hooks.keras import entry_points, plan
from py_hooks.keras.generations import entry_points_of_graph_mode
from py_hooks.keras.keras2_graph import enqueuers, graph
from py_hooks.tensorflow.sessions import not_intercepted

FACTS = GraphFacts(
    backend_module=None,
    attribute_of_generator="sequence",
    attribute_of_processes="use_multiprocessing",
    attributes_with_metrics=("metrics",),
    functions_have_fetch_callbacks=True,
    models_have_strategy=True,
    callback_lists_hold_model=True,
)

_MODEL = "tensorflow.python.keras.engine.training"
_CALLBACKS = "tensorflow.python.keras.callbacks"
_DATA = "tensorflow.python.keras.utils.data_utils"
_HDF5 = "tensorflow.python.keras.saving.hdf5_format"
_OPTIMIZER = "tensorflow.python.keras.optimizer_v2.optimizer_v2"

PATCHES = entry_points_of_graph_mode.IN_TENSORFLOW + (
    #     module  attribute                 advice                            why
    Patch(_MODEL, "Model.train_on_batch",   entry_points.train_on_batch,      "know where a training call begins"),
    Patch(_MODEL, "Model.test_on_batch",    entry_points.test_on_batch,       "know where an evaluation begins"),
    Patch(_HDF5,  "save_model_to_hdf5",     entry_points.save,                "keep saved models with checkpoints"),
    Patch(_HDF5,  "load_model_from_hdf5",   entry_points.load_model,          "not read a file of the future"),
    Patch(_CALLBACKS, "CallbackList._call_batch_hook", plan.batch_hook,       "validate when the plan says so"),
    Patch(_DATA,  "iter_sequence_infinite", enqueuers.iter_sequence_infinite, "skip in a replay"),
    Patch(_OPTIMIZER, "OptimizerV2.apply_gradients", not_intercepted.apply_gradients, "say what is not intercepted"),
)

GENERATION = Generation("tensorflow.keras", "1.14.0", "1.14.0", FACTS, PATCHES, prepare=graph.prepare)
