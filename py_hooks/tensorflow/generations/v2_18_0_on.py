"""TensorFlow 2.18 and later, under Keras 3.

Call paths (read from 2.21.0): those of `rows_of_v2.py`, the one of the functions of pipelines, and

    tf.random.shuffle in a Dataset.map -> gen_random_ops.random_shuffle            the order of Keras's array pipelines
    tf.train.Checkpoint                -> TrackableSaver
"""
from py_hooks.engine.patch import Generation, Patch
from py_hooks.tensorflow.data import pipelines
from py_hooks.tensorflow.files import gfile
from py_hooks.tensorflow.generations import rows_of_v2
from py_hooks.tensorflow.random_ops import random_states
from py_hooks.tensorflow.variables import resource_variables

_DATASETS = "tensorflow.python.data.ops.dataset_ops"
_SAVER = "tensorflow.python.checkpoint.checkpoint"

PATCHES = rows_of_v2.ROWS + (
    Patch("tensorflow.python.data.ops.structured_function", "StructuredFunctionWrapper.__init__",
          random_states.pipeline_function, "know the functions of pipelines"),
    Patch(_DATASETS, "DatasetV2.snapshot",     pipelines.stored, "note which files are made"),
    Patch(_DATASETS, "DatasetV2.save",         pipelines.stored, "note which files are made"),
    Patch(_SAVER,    "TrackableSaver.save",    gfile.checkpoint, "say what is not exact"),
    Patch(_SAVER,    "TrackableSaver.restore", gfile.checkpoint, "say what is not exact"),
)

GENERATION = Generation("tensorflow", "2.18.0", "on", None, PATCHES, prepare=resource_variables.prepare)
