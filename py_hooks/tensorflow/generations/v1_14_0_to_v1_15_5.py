"""TensorFlow 1.14 and 1.15, under Keras 2: random ops are built as twins whose state can be read.

Call paths (read from 1.14.0 and 1.15.5): those of `rows_of_v1.py`, and

    tf.random.*, initialisers, dropout -> gen_random_ops.*                     ops of the graph
"""
from py_hooks.engine.patch import Generation, Patch
from py_hooks.tensorflow.data import pipelines
from py_hooks.tensorflow.generations import rows_of_v1
from py_hooks.tensorflow.random_ops import random_ops
from py_hooks.tensorflow.sessions import sessions

_RANDOM = "tensorflow.python.ops.gen_random_ops"

PATCHES = (
    #     module   attribute                 advice                             why
    Patch(_RANDOM, "random_uniform",         random_ops.random_uniform,         "keep the state of a random op"),
    Patch(_RANDOM, "random_standard_normal", random_ops.random_standard_normal, "keep the state of a random op"),
    Patch(_RANDOM, "truncated_normal",       random_ops.truncated_normal,       "keep the state of a random op"),
    Patch(_RANDOM, "random_uniform_int",     random_ops.random_uniform_int,     "keep the state of a random op"),
    Patch(_RANDOM, "random_shuffle",         random_ops.random_shuffle,         "keep the state of a random op"),
    Patch(_RANDOM, "multinomial",            random_ops.multinomial,            "keep the state of a random op"),
    Patch("tensorflow.python.data.ops.dataset_ops", "DatasetV1.map_with_legacy_function", pipelines.mapped,
          "repeat elements in a replay"),
) + rows_of_v1.ROWS

GENERATION = Generation("tensorflow", "1.14.0", "1.15.5", None, PATCHES, prepare=sessions.prepare)
