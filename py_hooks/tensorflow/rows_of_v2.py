"""TensorFlow 2: the rows that all of its generations share.

Call paths (read from 2.1.4, 2.3.4, 2.6.5, 2.12.1, 2.15.1 and 2.21.0):

    tf.random.* in a layer, a function -> gen_random_ops.random_*               twins with a state that can be read
    tf.random.set_seed, clear_session  -> TFE_ContextClearCaches                    their states start again
    variable.numpy(), model(x), ...    -> BaseResourceVariable._read_variable_op
    embedding lookups                  -> BaseResourceVariable.sparse_read, gather_nd
    a tf.function                      -> ConcreteFunction._call_flat
    tf.compat.v1.Session               -> those of `rows_of_sessions.py`
    tf.summary, tf.io.gfile            -> those of `rows_of_files.py`
    tf.data                            -> those of `rows_of_pipelines.py`
"""
from py_hooks.engine.patch import Patch
from py_hooks.keras import loops
from py_hooks.tensorflow import (
    eager,
    functions,
    pipelines,
    random_ops,
    random_states,
    rows_of_files,
    rows_of_pipelines,
    rows_of_sessions,
)

_RANDOM = "tensorflow.python.ops.gen_random_ops"
_VARIABLES = "tensorflow.python.ops.resource_variable_ops"
_BASE = "BaseResourceVariable."

ROWS = (
    #     module      attribute                       advice                                why
    Patch(_RANDOM,    "random_shuffle",               eager.random_shuffle,                 "repeat orders in a replay"),
    Patch(_RANDOM,    "random_uniform",               random_ops.random_uniform,            "keep the state of a random op"),
    Patch(_RANDOM,    "random_standard_normal",       random_ops.random_standard_normal,    "keep the state of a random op"),
    Patch(_RANDOM,    "truncated_normal",             random_ops.truncated_normal,          "keep the state of a random op"),
    Patch(_RANDOM,    "random_uniform_int",           random_states.random_uniform_int,     "keep the state of a random op"),
    Patch(_RANDOM,    "multinomial",                  random_ops.multinomial,               "keep the state of a random op"),
    Patch("tensorflow.python.pywrap_tfe", "TFE_ContextClearCaches", random_states.cleared,  "keep the state of a random op"),
    Patch(_VARIABLES, _BASE + "__init__",             eager.created,                        "number the variables"),
    Patch(_VARIABLES, _BASE + "_read_variable_op",    eager.read,                           "record and answer reads"),
    Patch(_VARIABLES, "_UnreadVariable._read_variable_op", eager.read,                      "record and answer reads"),
    Patch(_VARIABLES, _BASE + "sparse_read",          eager.read,                           "record and answer reads"),
    Patch(_VARIABLES, _BASE + "gather_nd",            eager.read,                           "record and answer reads"),
    Patch(_VARIABLES, _BASE + "assign",               eager.write,                          "check what the script writes"),
    Patch(_VARIABLES, _BASE + "assign_add",           eager.update,                         "change true values only"),
    Patch(_VARIABLES, _BASE + "assign_sub",           eager.update,                         "change true values only"),
    Patch(_VARIABLES, _BASE + "scatter_add",          eager.update,                         "change true values only"),
    Patch(_VARIABLES, _BASE + "scatter_sub",          eager.update,                         "change true values only"),
    Patch(_VARIABLES, _BASE + "scatter_max",          eager.update,                         "change true values only"),
    Patch(_VARIABLES, _BASE + "scatter_min",          eager.update,                         "change true values only"),
    Patch(_VARIABLES, _BASE + "scatter_mul",          eager.update,                         "change true values only"),
    Patch(_VARIABLES, _BASE + "scatter_div",          eager.update,                         "change true values only"),
    Patch(_VARIABLES, _BASE + "scatter_update",       eager.update,                         "change true values only"),
    Patch(_VARIABLES, _BASE + "batch_scatter_update", eager.update,                         "change true values only"),
    Patch(_VARIABLES, _BASE + "scatter_nd_add",       eager.update,                         "change true values only"),
    Patch(_VARIABLES, _BASE + "scatter_nd_sub",       eager.update,                         "change true values only"),
    Patch(_VARIABLES, _BASE + "scatter_nd_update",    eager.update,                         "change true values only"),
    Patch(_VARIABLES, _BASE + "_strided_slice_assign", eager.update,                        "change true values only"),
    Patch("tensorflow.python.eager.function", "ConcreteFunction._call_flat", functions.called,
          "see what functions read and write"),
    Patch("tensorflow.python.framework.func_graph", "FuncGraph.__init__", functions.count_trace,
          "see which calls traced"),
    Patch("tensorflow.python.training.optimizer", "Optimizer.apply_gradients", loops.applied_on_tensorflow,
          "tell of loops of the script's own"),
    Patch("tensorflow.python.data.ops.dataset_ops", "DatasetV1.map_with_legacy_function", pipelines.mapped,
          "repeat elements in a replay"),
) + rows_of_sessions.ROWS + rows_of_files.ROWS + rows_of_pipelines.ROWS
