"""TensorFlow 2.2 to 2.5. Its Keras is a part of it: `py_hooks/tensorflow_keras/generations/v2_2_0_to_v2_5_3.py`.

Call paths (read from 2.2.3, 2.3.4, 2.4.4 and 2.5.3): those of `rows_of_v2.py`.
"""
from py_hooks.engine.patch import Generation, Patch
from py_hooks.tensorflow.data import pipelines
from py_hooks.tensorflow.generations import rows_of_v2
from py_hooks.tensorflow.variables import resource_variables

_DATA = "tensorflow.python.data.ops.dataset_ops"

PATCHES = rows_of_v2.ROWS + (
    #     module attribute                             advice                     why
    Patch(_DATA, "StructuredFunctionWrapper.__init__", pipelines.function_within, "know the functions of pipelines"),
    Patch(_DATA, "DatasetV2.repeat",                   pipelines.repeated,        "repeat elements in a replay"),
)

GENERATION = Generation("tensorflow", "2.2.0", "2.5.3", None, PATCHES, prepare=resource_variables.prepare)
