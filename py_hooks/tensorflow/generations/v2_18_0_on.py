"""TensorFlow 2.18 and later, under Keras 3.

Call paths (read from 2.21.0): those of the four files `entry_points_of_*.py`, the one of the functions of pipelines, and

    tf.random.shuffle in a Dataset.map -> gen_random_ops.random_shuffle            the order of Keras's array pipelines
    tf.train.Checkpoint                -> TrackableSaver
"""
from py_hooks.engine.patch import Generation, Patch
from py_hooks.facts.tensorflow import TensorFlowFacts
from py_hooks.tensorflow.data import pipelines
from py_hooks.tensorflow.files import gfile
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

_DATASETS = "tensorflow.python.data.ops.dataset_ops"
_SAVER = "tensorflow.python.checkpoint.checkpoint"

PATCHES = (
    Patch("tensorflow.python.data.ops.structured_function", "StructuredFunctionWrapper.__init__",
          random_states.pipeline_function, "know the functions of pipelines"),
    Patch(_DATASETS, "DatasetV2.snapshot",     pipelines.stored, "note which files are made"),
    Patch(_DATASETS, "DatasetV2.save",         pipelines.stored, "note which files are made"),
    Patch(_SAVER,    "TrackableSaver.save",    gfile.checkpoint, "say what is not exact"),
    Patch(_SAVER,    "TrackableSaver.restore", gfile.checkpoint, "say what is not exact"),
) + entry_points_of_variables.ROWS + entry_points_of_sessions.ROWS + entry_points_of_files.ROWS + entry_points_of_pipelines.ROWS

GENERATION = Generation("tensorflow", "2.18.0", "on", FACTS, PATCHES, prepare=resource_variables.prepare)
