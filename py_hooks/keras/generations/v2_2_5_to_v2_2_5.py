"""Keras 2.2.5 on TensorFlow 1.15: `fit` accepts generators and forwards them to `fit_generator`.

Call paths (read from 2.2.5); the rows of `Model.fit` and its siblings are in
`entry_points_of_graph_mode.py`:

    Model.fit(arrays)    -> training_arrays.fit_loop -> Model.train_function                         the loop
    Model.fit(generator) -> Model.fit_generator
    Model.fit_generator  -> training_generator.fit_generator -> an enqueuer's get(), or iter_sequence_infinite
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
    attribute_of_generator="sequence",
    attribute_of_processes="use_multiprocessing",
    attributes_with_metrics=("stateful_metric_functions", "metrics"),
    functions_have_fetch_callbacks=False,
    models_have_strategy=False,
    callback_lists_hold_model=True,
)

_CALLBACKS = "keras.callbacks"

PATCHES = entry_points_of_graph_mode.IN_KERAS + (
    #     module      attribute                        advice           why
    Patch(_CALLBACKS, "CallbackList._call_batch_hook", plan.batch_hook,              "validate when the plan says so"),
    Patch("keras.engine.training_generator", "iter_sequence_infinite", enqueuers.iter_sequence_infinite,
          "skip in a replay"),
)

BACKENDS = {
    "tensorflow": (),
}

GENERATION = Generation("keras", "2.2.5", "2.2.5", FACTS, PATCHES, BACKENDS, graph.prepare)
