"""TensorFlow 2.18 on, under Keras 3: shuffles inside pipelines, and reads of variables outside compute calls.

Call paths (read from 2.21.0):

    tf.random.shuffle in a Dataset.map -> gen_random_ops.random_shuffle         the order of Keras's array pipelines
    variable.numpy(), model(x), ...    -> BaseResourceVariable._read_variable_op
    tf.random.* in a layer             -> gen_random_ops.random_*               kernels with a hidden state
"""
from py_hooks.engine.patch import Generation, Patch
from py_hooks.tensorflow import eager

_RANDOM = "tensorflow.python.ops.gen_random_ops"
_VARIABLES = "tensorflow.python.ops.resource_variable_ops"

PATCHES = (
    #     module      attribute                                 advice                     why
    Patch(_RANDOM,    "random_shuffle",                         eager.random_shuffle,      "repeat orders in a replay"),
    Patch(_RANDOM,    "random_uniform",                         eager.hidden_stream,       "see streams with a hidden state"),
    Patch(_RANDOM,    "random_standard_normal",                 eager.hidden_stream,       "see streams with a hidden state"),
    Patch(_RANDOM,    "truncated_normal",                       eager.hidden_stream,       "see streams with a hidden state"),
    Patch(_RANDOM,    "random_uniform_int",                     eager.hidden_stream,       "see streams with a hidden state"),
    Patch(_RANDOM,    "multinomial",                            eager.hidden_stream,       "see streams with a hidden state"),
    Patch(_VARIABLES, "ResourceVariable.__init__",              eager.created,             "number the variables"),
    Patch(_VARIABLES, "BaseResourceVariable._read_variable_op", eager.read,                "record and answer reads"),
)

GENERATION = Generation("tensorflow", "2.18.0", "on", None, PATCHES, prepare=eager.prepare)
