"""Keras 2.12, which `tf.keras` of TensorFlow 2.12 is too: the first that exports models.

Call paths (read from 2.12.0): those of `entry_points_of_eager_mode.py`, where `Model.fit` and its siblings are.
"""
from py_hooks.engine.patch import Generation, Patch
from py_hooks.facts.keras import EagerFacts
from py_hooks.keras import entry_points, images
from py_hooks.keras.generations import entry_points_of_eager_mode
from py_hooks.keras.keras2_eager import eager
from py_hooks.tensorflow import loops

FACTS = EagerFacts(
    package="keras",
    models_have_steps_per_execution=True,
    options_of_split={},
    callback_lists_hold_model=True,
)

PATCHES = entry_points_of_eager_mode.IN_KERAS + (
    Patch("keras.engine.training", "Model._validate_and_get_metrics_result", eager.metrics_result,
          "record and answer epoch logs"),
    Patch("keras.engine.training", "Model.export", entry_points.save,
          "keep saved models with checkpoints"),
    Patch("keras.saving.legacy.save", "save_model", entry_points.save,
          "keep saved models with checkpoints"),
    Patch("keras.saving.legacy.save", "load_model", entry_points.load_model,
          "not read a file of the future"),
    Patch("keras.saving.saving_lib", "save_model", entry_points.save,
          "keep saved models with checkpoints"),
    Patch("keras.saving.saving_lib", "load_model", entry_points.load_model,
          "not read a file of the future"),
    Patch("keras.optimizers.legacy.optimizer_v2", "OptimizerV2.apply_gradients", loops.applied,
          "tell of loops of the script's own"),
    Patch("keras.optimizers.optimizer", "_BaseOptimizer.apply_gradients", loops.applied,
          "tell of loops of the script's own"),
    Patch("keras.preprocessing.image", "Iterator.__init__", images.made,
          "key the random numbers of items"),
    Patch("keras.preprocessing.image", "Iterator.__getitem__", images.item,
          "key the random numbers of items"),
)

GENERATION = Generation("keras", "2.12.0", "2.12.0", FACTS, PATCHES, prepare=eager.prepare_keras)
