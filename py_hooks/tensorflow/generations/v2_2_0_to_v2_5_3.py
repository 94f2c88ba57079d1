"""TensorFlow 2.2 to 2.5. Its Keras is a part of it: `py_hooks/tensorflow_keras/generations`.

Call paths (read from 2.2.3, 2.3.4, 2.4.4 and 2.5.3): those of the four files `entry_points_of_*.py`.
"""
from py_hooks.engine.patch import Generation, Patch
from py_hooks.facts.tensorflow import TensorFlowFacts
from py_hooks.tensorflow.data import pipelines
from py_hooks.tensorflow.generations import (
    entry_points_of_files,
    entry_points_of_pipelines,
    entry_points_of_sessions,
    entry_points_of_variables,
)
from py_hooks.tensorflow.variables import resource_variables

FACTS = TensorFlowFacts(
    computes_in_sessions=False,
    context_has_config=True,
    graph_numbers_ops=True,
    seeds_count_seeds=True,
    feeds_are_wrapped=False,
    feed_keys_are_references=True,
    writer_ends_by_event=False,
    option_of_order="experimental_deterministic",
    option_of_tuning="experimental_optimization.autotune",
)

_DATA = "tensorflow.python.data.ops.dataset_ops"

PATCHES = (
    #     module attribute                             advice                     why
    Patch(_DATA, "StructuredFunctionWrapper.__init__", pipelines.function_within, "know the functions of pipelines"),
    Patch(_DATA, "DatasetV2.repeat",                   pipelines.repeated,        "repeat elements in a replay"),
) + entry_points_of_variables.ROWS + entry_points_of_sessions.ROWS + entry_points_of_files.ROWS + entry_points_of_pipelines.ROWS

GENERATION = Generation("tensorflow", "2.2.0", "2.5.3", FACTS, PATCHES, prepare=resource_variables.prepare)
