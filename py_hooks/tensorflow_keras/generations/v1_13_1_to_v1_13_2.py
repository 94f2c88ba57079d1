"""tf.keras of TensorFlow 1.13, in graph mode: loops that gather metrics run a separate function, `_fit_function`.

Call paths (read from 1.13.1, tensorflow/python/keras/engine); the rows of `Model.fit` and its siblings are in
`py_hooks/keras/generations/entry_points_of_graph_mode.py`:

    Model.fit(arrays)    -> training_arrays.model_iteration -> Model._fit_function                     the loop
    Model.fit(Sequence)  -> Model.fit_generator
    Model.fit_generator  -> training_generator.model_iteration -> an enqueuer's get(), or iter_sequence_infinite
                         -> Model.train_on_batch(reset_metrics=False) -> Model._fit_function
    Model.train_on_batch -> Model.train_function
    Model.evaluate, predict and their `_generator` and `_on_batch` forms the same way, with `_eval_function`
"""
from py_hooks.engine.patch import Generation, Patch
from py_hooks.facts.keras import GraphFacts
from py_hooks.keras import entry_points, plan
from py_hooks.keras.generations import entry_points_of_graph_mode
from py_hooks.keras.keras2_graph import enqueuers, graph

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
_API = "tensorflow.keras.models"
_MODELS = "tensorflow.python.keras.models"

PATCHES = entry_points_of_graph_mode.IN_TENSORFLOW + (
    #     module   attribute                    advice                              why
    Patch(_MODEL,  "Model.train_on_batch",      entry_points.train_on_batch_or_fit, "know where a training call begins"),
    Patch(_MODEL,  "Model.test_on_batch",       entry_points.test_on_batch_or_eval, "know where an evaluation begins"),
    Patch(_MODEL,  "Model._make_fit_function",  graph.make_fit_function,            "record and answer training calls"),
    Patch(_MODEL,  "Model._make_eval_function", graph.make_eval_function,           "record and answer test calls"),
    Patch(_API,    "save_model",                entry_points.save,                  "keep saved models with checkpoints"),
    Patch(_API,    "load_model",                entry_points.load_model,            "not read a file of the future"),
    Patch(_MODELS, "save_model",                entry_points.save,                  "keep saved models with checkpoints"),
    Patch(_MODELS, "load_model",                entry_points.load_model,            "not read a file of the future"),
    Patch(_CALLBACKS, "CallbackList._call_batch_hook", plan.batch_hook,             "validate when the plan says so"),
    Patch(_DATA,   "iter_sequence_infinite",    enqueuers.iter_sequence_infinite,   "skip in a replay"),
)

GENERATION = Generation("tensorflow.keras", "1.13.1", "1.13.2", FACTS, PATCHES, prepare=graph.prepare)
