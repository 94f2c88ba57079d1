"""TensorFlow 2.8 to 2.15, under Keras 2 (the `keras` package).

Call paths (read from 2.8.4 to 2.15.1): those of `rows_of_v2.py`, and those of the functions of pipelines and
of strategies.
"""
from py_hooks.engine.patch import Generation, Patch
from py_hooks.tensorflow import ranks
from py_hooks.tensorflow.generations import rows_of_v2
from py_hooks.tensorflow.random_ops import random_states
from py_hooks.tensorflow.variables import resource_variables

PATCHES = rows_of_v2.ROWS + (
    Patch("tensorflow.python.data.ops.structured_function", "StructuredFunctionWrapper.__init__",
          random_states.pipeline_function, "know the functions of pipelines"),
    Patch("tensorflow.python.distribute.mirrored_run", "_MirroredReplicaThread.run", ranks.replica_thread,
          "see what a strategy traces"),
)

GENERATION = Generation("tensorflow", "2.8.0", "2.15.1", None, PATCHES, prepare=resource_variables.prepare)
