"""TensorFlow 1.13, under Keras 2: its random ops have no state that can be read, and are built as stateless ones.

Call paths (read from 1.13.1): those of `rows_of_v1.py`, and

    tf.random.*, initialisers, dropout -> gen_random_ops.*                     built as stateless ops with a count
"""
from py_hooks.engine.patch import Generation, Patch
from py_hooks.tensorflow.generations import rows_of_v1
from py_hooks.tensorflow.random_ops import keyed_ops
from py_hooks.tensorflow.sessions import sessions

_RANDOM = "tensorflow.python.ops.gen_random_ops"

PATCHES = (
    #     module   attribute                 advice                            why
    Patch(_RANDOM, "random_uniform",         keyed_ops.random_uniform,         "keep the state of a random op"),
    Patch(_RANDOM, "random_standard_normal", keyed_ops.random_standard_normal, "keep the state of a random op"),
    Patch(_RANDOM, "truncated_normal",       keyed_ops.truncated_normal,       "keep the state of a random op"),
    Patch(_RANDOM, "random_uniform_int",     keyed_ops.random_uniform_int,     "keep the state of a random op"),
    Patch(_RANDOM, "random_shuffle",         keyed_ops.random_shuffle,         "keep the state of a random op"),
    Patch(_RANDOM, "multinomial",            keyed_ops.multinomial,            "keep the state of a random op"),
) + rows_of_v1.ROWS

GENERATION = Generation("tensorflow", "1.13.1", "1.13.2", None, PATCHES, prepare=sessions.prepare)
