"""Keras 2.2.0 to 2.2.2 on TensorFlow 1.13 and later: the iterator over a `Sequence` never ends.

Call paths (read from 2.2.0, 2.2.1 and 2.2.2); the rows of `Model.fit` and its siblings are in
`entry_points_of_graph_mode.py`:

    Model.fit(arrays)    -> training_arrays.fit_loop -> Model.train_function                         the loop
    Model.fit_generator  -> training_generator.fit_generator -> an enqueuer's get(), or Sequence.__iter__
                                                             -> Model.train_on_batch -> Model.train_function
    Model.evaluate, predict and their `_generator` and `_on_batch` forms the same way
"""
from py_hooks.engine.patch import Generation, Patch
from py_hooks.facts.keras import GraphFacts
from py_hooks.keras import plan
from py_hooks.keras.generations import entry_points_of_graph_mode
from py_hooks.keras.keras2_graph import enqueuers, graph

FACTS = GraphFacts(
    backend_module="keras.backend",
    attribute_of_generator="_generator",
    attribute_of_processes="_use_multiprocessing",
    attributes_with_metrics=("stateful_metric_functions", "metrics"),
    functions_have_fetch_callbacks=False,
    models_have_strategy=False,
    callback_lists_hold_model=False,
)

_CALLBACKS = "keras.callbacks"

PATCHES = entry_points_of_graph_mode.IN_KERAS + (
    #     module      attribute                    advice          why
    Patch(_CALLBACKS, "CallbackList.on_batch_end", plan.batch_end, "validate when the plan says so"),
    Patch("keras.utils.data_utils", "Sequence.__iter__", enqueuers.iterate_sequence, "skip in a replay"),
)

BACKENDS = {
    "tensorflow": (),
}

GENERATION = Generation("keras", "2.2.0", "2.2.2", FACTS, PATCHES, BACKENDS, graph.prepare)
