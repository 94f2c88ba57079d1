"""tf.keras of TensorFlow 2.2, in `tensorflow.python.keras`: each execution has one step.

Call paths (read from 2.2.3): those of `py_hooks/keras/generations/entry_points_of_eager_mode.py`, which has
`Model.fit` and its siblings.
"""
from py_hooks.engine.patch import Generation, Patch
from py_hooks.facts.keras import EagerFacts
from py_hooks.keras import entry_points, images
from py_hooks.keras.generations import entry_points_of_eager_mode
from py_hooks.keras.keras2_eager import eager
from py_hooks.tensorflow import loops

FACTS = EagerFacts(
    package="tensorflow.python.keras",
    models_have_steps_per_execution=False,
    options_of_split={"shuffle": False},
    callback_lists_hold_model=True,
)

_SAVE = "tensorflow.python.keras.saving.save"
_OPTIMIZER = "tensorflow.python.keras.optimizer_v2.optimizer_v2"
_IMAGES = "keras_preprocessing.image.iterator"

PATCHES = entry_points_of_eager_mode.IN_TENSORFLOW + (
    #     module      attribute                      advice                   why
    Patch(_SAVE,      "save_model",                  entry_points.save,       "keep saved models with checkpoints"),
    Patch(_SAVE,      "load_model",                  entry_points.load_model, "not read a file of the future"),
    Patch(_OPTIMIZER, "OptimizerV2.apply_gradients", loops.applied,           "tell of loops of the script's own"),
    Patch(_IMAGES,    "Iterator.__init__",           images.made,             "key the random numbers of items"),
    Patch(_IMAGES,    "Iterator.__getitem__",        images.item,             "key the random numbers of items"),
)

GENERATION = Generation("tensorflow.keras", "2.2.0", "2.2.3", FACTS, PATCHES, prepare=eager.prepare_tf_keras)
