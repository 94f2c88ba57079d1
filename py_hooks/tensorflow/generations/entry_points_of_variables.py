"""TensorFlow 2: the rows of variables, random ops and functions, which all of its generations share.

Call paths (read from 2.1.4, 2.3.4, 2.6.5, 2.12.1, 2.15.1 and 2.21.0):

    tf.random.* in a layer, a function -> gen_random_ops.random_*               twins with a state that can be read
    tf.random.set_seed, clear_session  -> TFE_ContextClearCaches                    their states start again
    variable.numpy(), model(x), ...    -> BaseResourceVariable._read_variable_op
    embedding lookups                  -> BaseResourceVariable.sparse_read, gather_nd
    a tf.function                      -> ConcreteFunction._call_flat
"""
from py_hooks.engine.patch import Patch
from py_hooks.tensorflow import loops
from py_hooks.tensorflow.data import pipelines
from py_hooks.tensorflow.random_ops import random_ops, random_states
from py_hooks.tensorflow.variables import functions, resource_variables

_RANDOM = "tensorflow.python.ops.gen_random_ops"
_VARIABLES = "tensorflow.python.ops.resource_variable_ops"
_BASE = "BaseResourceVariable."

ROWS = (
    #     module      attribute                 advice                             why
    Patch(_RANDOM,    "random_shuffle",         resource_variables.random_shuffle, "repeat orders in a replay"),
    Patch(_RANDOM,    "random_uniform",         random_ops.random_uniform,         "keep the state of a random op"),
    Patch(_RANDOM,    "random_standard_normal", random_ops.random_standard_normal, "keep the state of a random op"),
    Patch(_RANDOM,    "truncated_normal",       random_ops.truncated_normal,       "keep the state of a random op"),
    Patch(_RANDOM,    "random_uniform_int",     random_states.random_uniform_int,  "keep the state of a random op"),
    Patch(_RANDOM,    "multinomial",            random_ops.multinomial,            "keep the state of a random op"),
    Patch("tensorflow.python.pywrap_tfe", "TFE_ContextClearCaches", random_states.cleared, "keep the state of a random op"),
    Patch(_VARIABLES, _BASE + "__init__",       resource_variables.created,        "number the variables"),
    Patch(_VARIABLES, _BASE + "_read_variable_op", resource_variables.read,        "record and answer reads"),
    Patch(_VARIABLES, "_UnreadVariable._read_variable_op", resource_variables.read, "record and answer reads"),
    Patch(_VARIABLES, _BASE + "sparse_read",    resource_variables.read,           "record and answer reads"),
    Patch(_VARIABLES, _BASE + "gather_nd",      resource_variables.read,           "record and answer reads"),
    Patch(_VARIABLES, _BASE + "assign",         resource_variables.write,          "check what the script writes"),
    Patch(_VARIABLES, _BASE + "assign_add",     resource_variables.update,         "change true values only"),
    Patch(_VARIABLES, _BASE + "assign_sub",     resource_variables.update,         "change true values only"),
    Patch(_VARIABLES, _BASE + "scatter_add",    resource_variables.update,         "change true values only"),
    Patch(_VARIABLES, _BASE + "scatter_sub",    resource_variables.update,         "change true values only"),
    Patch(_VARIABLES, _BASE + "scatter_max",    resource_variables.update,         "change true values only"),
    Patch(_VARIABLES, _BASE + "scatter_min",    resource_variables.update,         "change true values only"),
    Patch(_VARIABLES, _BASE + "scatter_mul",    resource_variables.update,         "change true values only"),
    Patch(_VARIABLES, _BASE + "scatter_div",    resource_variables.update,         "change true values only"),
    Patch(_VARIABLES, _BASE + "scatter_update", resource_variables.update,         "change true values only"),
    Patch(_VARIABLES, _BASE + "batch_scatter_update", resource_variables.update,   "change true values only"),
    Patch(_VARIABLES, _BASE + "scatter_nd_add", resource_variables.update,         "change true values only"),
    Patch(_VARIABLES, _BASE + "scatter_nd_sub", resource_variables.update,         "change true values only"),
    Patch(_VARIABLES, _BASE + "scatter_nd_update", resource_variables.update,      "change true values only"),
    Patch(_VARIABLES, _BASE + "_strided_slice_assign", resource_variables.update,  "change true values only"),
    Patch("tensorflow.python.eager.function", "ConcreteFunction._call_flat", functions.called,
          "see what functions read and write"),
    Patch("tensorflow.python.framework.func_graph", "FuncGraph.__init__", functions.count_trace,
          "see which calls traced"),
    Patch("tensorflow.python.training.optimizer", "Optimizer.apply_gradients", loops.applied,
          "tell of loops of the script's own"),
    Patch("tensorflow.python.data.ops.dataset_ops", "DatasetV1.map_with_legacy_function", pipelines.mapped,
          "repeat elements in a replay"),
)
