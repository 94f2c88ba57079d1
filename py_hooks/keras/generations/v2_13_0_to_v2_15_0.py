"""Keras 2.13 to 2.15, which `tf.keras` of TensorFlow 2.13 to 2.15 is too: modules below `keras.src`.

Call paths (read from 2.13.1 and 2.15.0): those of `entry_points_of_eager_mode.py`, where `Model.fit` and its siblings are.
"""
from py_hooks.engine.patch import Generation, Patch
from py_hooks.facts.keras import EagerFacts
from py_hooks.keras import entry_points, images
from py_hooks.keras.generations import entry_points_of_eager_mode
from py_hooks.keras.keras2_eager import eager, handlers
from py_hooks.tensorflow import loops

FACTS = EagerFacts(
    package="keras.src",
    models_have_steps_per_execution=True,
    options_of_split={},
    callback_lists_hold_model=True,
)

PATCHES = entry_points_of_eager_mode.IN_KERAS_SRC + (
    Patch("keras.src.engine.training", "Model._validate_and_get_metrics_result", eager.metrics_result,
          "record and answer epoch logs"),
    Patch("keras.src.engine.data_adapter", "DataHandler._configure_dataset_and_inferred_steps", handlers.local_dataset,
          "leave the data of ranks as it is"),
    Patch("keras.src.engine.training", "Model.export", entry_points.save,
          "keep saved models with checkpoints"),
    Patch("keras.src.saving.legacy.save", "save_model", entry_points.save,
          "keep saved models with checkpoints"),
    Patch("keras.src.saving.legacy.save", "load_model", entry_points.load_model,
          "not read a file of the future"),
    Patch("keras.src.saving.saving_lib", "save_model", entry_points.save,
          "keep saved models with checkpoints"),
    Patch("keras.src.saving.saving_lib", "load_model", entry_points.load_model,
          "not read a file of the future"),
    Patch("keras.src.optimizers.legacy.optimizer_v2", "OptimizerV2.apply_gradients", loops.applied,
          "tell of loops of the script's own"),
    Patch("keras.src.optimizers.optimizer", "_BaseOptimizer.apply_gradients", loops.applied,
          "tell of loops of the script's own"),
    Patch("keras.src.preprocessing.image", "Iterator.__init__", images.made,
          "key the random numbers of items"),
    Patch("keras.src.preprocessing.image", "Iterator.__getitem__", images.item,
          "key the random numbers of items"),
)

GENERATION = Generation("keras", "2.13.0", "2.15.0", FACTS, PATCHES, prepare=eager.prepare_keras)
