"""TensorFlow 2.2 to 2.5, whose `tf.keras` is a part of it (`tensorflow.python.keras`).

Call paths (read from 2.2.3, 2.3.4, 2.4.4 and 2.5.3): those of `rows_of_v2.py` here, and of `rows_of_v2.py` in
`py_hooks/keras`, which has `Model.fit` and its siblings.
"""
from py_hooks.engine.patch import Generation, Patch
from py_hooks.keras import entry_points, images, loops
from py_hooks.keras.generations import rows_of_v2 as keras_rows
from py_hooks.keras.keras2_eager import eager
from py_hooks.tensorflow.data import pipelines
from py_hooks.tensorflow.generations import rows_of_v2

_SAVE = "tensorflow.python.keras.saving.save"

PATCHES = rows_of_v2.ROWS + keras_rows.IN_TENSORFLOW + (
    Patch("tensorflow.python.data.ops.dataset_ops", "StructuredFunctionWrapper.__init__",
          pipelines.function_within, "know the functions of pipelines"),
    Patch("tensorflow.python.data.ops.dataset_ops", "DatasetV2.repeat", pipelines.repeated, "repeat elements in a replay"),
    Patch(_SAVE, "save_model", entry_points.save, "keep saved models with checkpoints"),
    Patch(_SAVE, "load_model", entry_points.load_model, "not read a file of the future"),
    Patch("tensorflow.python.keras.optimizer_v2.optimizer_v2", "OptimizerV2.apply_gradients",
          loops.applied_on_tensorflow, "tell of loops of the script's own"),
    Patch("keras_preprocessing.image.iterator", "Iterator.__init__", images.made,
          "key the random numbers of items"),
    Patch("keras_preprocessing.image.iterator", "Iterator.__getitem__", images.item,
          "key the random numbers of items"),
)

GENERATION = Generation("tensorflow", "2.2.0", "2.5.3", None, PATCHES, prepare=eager.prepare_tf_keras)
