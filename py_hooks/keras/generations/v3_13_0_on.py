"""Keras 3.13 on, backends JAX, TensorFlow and torch: one trainer for all sources, `train_function` below it.

Call paths (read from 3.13.0 and 3.15.1):

    Model.fit            -> EpochIterator -> a data adapter's iterator -> Model.train_function   the loop
    Model.train_on_batch                                               -> Model.train_function
    evaluate, predict, test_on_batch, predict_on_batch                 -> test_function, predict_function
    optimizer.apply_gradients, stateless_apply -> BaseOptimizer.apply   by these functions, or by the script
"""
from py_hooks.engine.patch import Generation, Patch
from py_hooks.facts.keras import Keras3Facts
from py_hooks.keras import accumulators, entry_points, images, loops, plan
from py_hooks.keras.keras3 import compute, makers, passes, torch, variables
from py_hooks.keras.keras3.prepare import prepare

FACTS = Keras3Facts(backend_module="keras.src.backend.config", callback_lists_hold_model=True)

_MODEL = "keras.src.models.model"
_CALLBACKS = "keras.src.callbacks.callback_list"
_VARIABLE = "keras.src.backend.common.variables"
_ADAPTERS = "keras.src.trainers.data_adapters."
_SEQUENCE = _ADAPTERS + "py_dataset_adapter"
_GENERATOR = _ADAPTERS + "generator_data_adapter"
_LOADER = _ADAPTERS + "torch_data_loader_adapter"
_TORCH = "keras.src.backend.torch."
_IMAGES = "keras.src.legacy.preprocessing.image"

PATCHES = (
    #     module          attribute               advice                       why
    Patch(_MODEL,         "Model.fit",            entry_points.fit,            "know where a training call begins"),
    Patch(_MODEL,         "Model.evaluate",       entry_points.evaluate,       "know where an evaluation begins"),
    Patch(_MODEL,         "Model.predict",        entry_points.predict,        "know where a prediction begins"),
    Patch(_MODEL,         "Model.train_on_batch", entry_points.train_on_batch, "know where a training call begins"),
    Patch(_MODEL,         "Model.test_on_batch",  entry_points.test_on_batch,  "know where an evaluation begins"),
    Patch(_MODEL,         "Model.predict_on_batch", entry_points.predict_on_batch, "know where a prediction begins"),
    Patch(_MODEL,         "Model.make_train_function", makers.make_train_function, "record and answer training calls"),
    Patch(_MODEL,         "Model.make_test_function", makers.make_test_function, "record and answer test calls"),
    Patch(_MODEL,         "Model.make_predict_function", makers.make_predict_function, "record and answer predict calls"),
    Patch(_MODEL,         "Model._get_metrics_result_or_logs", compute.metrics_result, "record and answer epoch logs"),
    Patch(_MODEL,         "Model.reset_metrics",  accumulators.reset_metrics,  "know the sums before they are reset"),
    Patch(_MODEL,         "Model.get_weights",    entry_points.get_weights,    "record and answer reads of weights"),
    Patch(_MODEL,         "Model.save",           entry_points.save,           "keep saved models with checkpoints"),
    Patch(_MODEL,         "Model.save_weights",   entry_points.save,           "keep saved models with checkpoints"),
    Patch(_MODEL,         "Model.load_weights",   entry_points.load_weights,   "not read a file of the future"),
    Patch(_MODEL,         "Model.export",         entry_points.save,           "keep saved models with checkpoints"),
    Patch("keras.saving", "save_model",           entry_points.save,           "keep saved models with checkpoints"),
    Patch("keras.saving", "save_weights",         entry_points.save,           "keep saved models with checkpoints"),
    Patch("keras.models", "save_model",           entry_points.save,           "keep saved models with checkpoints"),
    Patch(_CALLBACKS,     "CallbackList.on_epoch_begin", entry_points.epoch_begin, "name the epoch"),
    Patch(_CALLBACKS,     "CallbackList.on_train_batch_end", plan.train_batch_end, "validate when the plan says so"),
    Patch(_CALLBACKS,     "CallbackList.on_epoch_end", plan.epoch_end,         "take note of validations"),
    Patch("keras.src.optimizers.base_optimizer", "BaseOptimizer.apply", loops.applied, "tell of loops of the script's own"),
    Patch(_VARIABLE,      "Variable.__init__",    variables.created,           "number the variables"),
    Patch(_VARIABLE,      "Variable.assign",      variables.write,             "check what the script writes"),
    Patch("keras.src.trainers.epoch_iterator", "EpochIterator.__init__", passes.epoch_iterator, "know where a pass ends"),
    Patch(_SEQUENCE,      "PyDatasetAdapter.__init__", passes.sequence_adapter, "key the random numbers of items"),
    Patch(_SEQUENCE,      "PyDatasetAdapter._get_iterator", passes.sequence_iterator, "skip in a replay"),
    Patch(_SEQUENCE,      "PyDatasetAdapter.on_epoch_begin", passes.sequence_epoch_begin, "key the random numbers of hooks"),
    Patch(_SEQUENCE,      "PyDatasetAdapter.on_epoch_end", passes.sequence_epoch_end, "key the random numbers of hooks"),
    Patch(_LOADER,        "TorchDataLoaderAdapter.__init__", passes.loader_adapter, "build batches in worker processes"),
    Patch(_LOADER,        "TorchDataLoaderAdapter.get_numpy_iterator", passes.loader_iterator, "skip in a replay"),
    Patch(_GENERATOR,     "GeneratorDataAdapter.__init__", passes.generator_adapter, "keep its random numbers apart"),
    Patch(_IMAGES,        "Iterator.__init__",    images.made,                 "key the random numbers of items"),
    Patch(_IMAGES,        "Iterator.__getitem__", images.item,                 "key the random numbers of items"),
)

BACKENDS = {
    "jax": (
        Patch("keras.src.layers.layer", "Layer.__call__", compute.count_trace, "see which calls traced"),
        Patch(_VARIABLE, "Variable.value",       variables.read,            "record and answer reads"),
        Patch(_MODEL,    "Model._get_jax_state", variables.not_the_scripts, "keep the framework's reads out"),
        Patch(_MODEL,    "Model.jax_state_sync", variables.not_the_scripts, "keep the framework's writes out"),
        Patch(_ADAPTERS + "array_data_adapter", "ArrayDataAdapter._get_iterator", passes.array_iterator, "skip in a replay"),
        Patch(_SEQUENCE, "PyDatasetAdapter.get_jax_iterator", passes.sequence_jax_iterator, "skip in a replay"),
    ),
    "tensorflow": (
        Patch("keras.src.layers.layer", "Layer.__call__",   compute.count_trace,     "see which calls traced"),
        Patch(_SEQUENCE, "PyDatasetAdapter.get_tf_dataset", passes.sequence_dataset, "key the random numbers of items"),
        Patch(_GENERATOR, "GeneratorDataAdapter.get_tf_dataset", passes.generator_dataset, "draw what is consumed"),
        Patch(_ADAPTERS + "array_data_adapter", "ArrayDataAdapter.get_tf_dataset", passes.array_dataset,
              "repeat orders in a replay"),
        Patch("keras.src.backend.tensorflow.trainer", "TFEpochIterator._get_iterator", passes.dataset_iterator,
              "skip in a replay"),
    ),
    "torch": (
        Patch(_TORCH + "core",  "Variable.value",              torch.read,       "record and answer reads"),
        Patch(_TORCH + "layer", "TorchLayer.named_parameters", torch.parameters, "see reads past Keras"),
        Patch("keras.src.trainers.trainer", "Trainer._symbolic_build", torch.build, "build from real batches"),
        Patch(_ADAPTERS + "array_data_adapter", "ArrayDataAdapter.get_torch_dataloader", torch.array_loader,
              "skip in a replay"),
        Patch(_SEQUENCE, "PyDatasetAdapter.get_torch_dataloader",       torch.sequence_loader, "skip in a replay"),
        Patch(_LOADER,   "TorchDataLoaderAdapter.get_torch_dataloader", torch.own_loader,      "skip in a replay"),
    ),
}

GENERATION = Generation("keras", "3.13.0", "on", FACTS, PATCHES, BACKENDS, prepare)
