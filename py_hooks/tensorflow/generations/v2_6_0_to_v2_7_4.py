"""TensorFlow 2.6 and 2.7, under Keras 2 (the `keras` package).

Call paths (read from 2.6.5 and 2.7.4): those of `rows_of_v2.py`, and the one of the functions of pipelines.
"""
from py_hooks.engine.patch import Generation, Patch
from py_hooks.tensorflow.generations import rows_of_v2
from py_hooks.tensorflow.random_ops import random_states
from py_hooks.tensorflow.variables import resource_variables

PATCHES = rows_of_v2.ROWS + (
    Patch("tensorflow.python.data.ops.dataset_ops", "StructuredFunctionWrapper.__init__",
          random_states.pipeline_function, "know the functions of pipelines"),
)

GENERATION = Generation("tensorflow", "2.6.0", "2.7.4", None, PATCHES, prepare=resource_variables.prepare)
