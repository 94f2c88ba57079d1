"""TensorFlow 2.13 to 2.15, under Keras 2 (the `keras` package): C++ numbers the ops of a graph.

Call paths (read from 2.13.1 and 2.15.1): those of the four files `entry_points_of_*.py`, and those of the functions of
pipelines and of strategies.
"""
from py_hooks.engine.patch import Generation, Patch
from py_hooks.facts.tensorflow import TensorFlowFacts
from py_hooks.tensorflow import ranks
from py_hooks.tensorflow.generations import (
    entry_points_of_files,
    entry_points_of_pipelines,
    entry_points_of_sessions,
    entry_points_of_variables,
)
from py_hooks.tensorflow.random_ops import random_states
from py_hooks.tensorflow.variables import resource_variables

FACTS = TensorFlowFacts(
    computes_in_sessions=False,
    context_has_config=True,
    graph_numbers_ops=False,
    seeds_count_seeds=True,
    feeds_are_wrapped=False,
    feed_keys_are_references=True,
    writer_ends_by_event=False,
    option_of_order="deterministic",
    option_of_tuning="autotune.enabled",
)

PATCHES = (
    Patch("tensorflow.python.data.ops.structured_function", "StructuredFunctionWrapper.__init__",
          random_states.pipeline_function, "know the functions of pipelines"),
    Patch("tensorflow.python.distribute.mirrored_run", "_MirroredReplicaThread.run", ranks.replica_thread,
          "see what a strategy traces"),
) + entry_points_of_variables.ROWS + entry_points_of_sessions.ROWS + entry_points_of_files.ROWS + entry_points_of_pipelines.ROWS

GENERATION = Generation("tensorflow", "2.13.0", "2.15.1", FACTS, PATCHES, prepare=resource_variables.prepare)
