"""tf.keras of TensorFlow 1.15, in graph mode: each function of Keras has a training loop of its own for its data.

Call paths (read from 1.15.5, tensorflow/python/keras/engine):

    Model.fit(arrays)    -> training_arrays.model_iteration -> Model.train_function                    the loop
    Model.fit(Sequence), Model.fit_generator
                         -> training_generator.model_iteration -> an enqueuer's get(), or iter_sequence_infinite
                                                               -> Model.train_on_batch -> Model.train_function
    Model.evaluate, predict and their `_generator` and `_on_batch` forms the same way
    Model.save, models.save_model -> saving.save.save_model -> hdf5_format.save_model_to_hdf5, or saved_model.save.save
"""
from py_hooks.engine.patch import Generation, Patch
from py_hooks.keras import advice, enqueuers, graph, images, plan
from py_hooks.tensorflow import sessions

_MODEL = "tensorflow.python.keras.engine.training"
_CALLBACKS = "tensorflow.python.keras.callbacks"
_DATA = "tensorflow.python.keras.utils.data_utils"
_IMAGES = "keras_preprocessing.image"
_HDF5 = "tensorflow.python.keras.saving.hdf5_format"
_OPTIMIZER = "tensorflow.python.keras.optimizer_v2.optimizer_v2"

PATCHES = (
    #     module      attribute                       advice                         why
    Patch(_MODEL,     "Model.fit",                    advice.fit,                    "know where a training call begins"),
    Patch(_MODEL,     "Model.fit_generator",          advice.fit_generator,          "know where a training call begins"),
    Patch(_MODEL,     "Model.evaluate",               advice.evaluate,               "know where an evaluation begins"),
    Patch(_MODEL,     "Model.evaluate_generator",     advice.evaluate_generator,     "know where an evaluation begins"),
    Patch(_MODEL,     "Model.predict",                advice.predict,                "know where a prediction begins"),
    Patch(_MODEL,     "Model.predict_generator",      advice.predict_generator,      "know where a prediction begins"),
    Patch(_MODEL,     "Model.train_on_batch",         advice.train_on_batch,         "know where a training call begins"),
    Patch(_MODEL,     "Model.test_on_batch",          advice.test_on_batch,          "know where an evaluation begins"),
    Patch(_MODEL,     "Model.predict_on_batch",       advice.predict_on_batch,       "know where a prediction begins"),
    Patch(_MODEL,     "Model._make_train_function",   graph.make_train_function,     "record and answer training calls"),
    Patch(_MODEL,     "Model._make_test_function",    graph.make_test_function,      "record and answer test calls"),
    Patch(_MODEL,     "Model._make_predict_function", graph.make_predict_function,   "record and answer predict calls"),
    Patch(_MODEL,     "Model.get_weights",            advice.get_weights,            "record and answer reads of weights"),
    Patch(_MODEL,     "Model.save",                   advice.save,                   "keep saved models with checkpoints"),
    Patch(_MODEL,     "Model.save_weights",           advice.save,                   "keep saved models with checkpoints"),
    Patch(_MODEL,     "Model.load_weights",           advice.load_weights,           "not read a file of the future"),
    Patch(_HDF5,      "save_model_to_hdf5",           advice.save,                   "keep saved models with checkpoints"),
    Patch(_HDF5,      "load_model_from_hdf5",         advice.load_model,             "not read a file of the future"),
    Patch("tensorflow.python.keras.saving.saved_model.save", "save", advice.save,    "keep saved models with checkpoints"),
    Patch("tensorflow.python.keras.saving.saved_model.load", "load", advice.load_model, "not read a file of the future"),
    Patch(_CALLBACKS, "CallbackList.on_epoch_begin",  advice.epoch_begin,            "name the epoch"),
    Patch(_CALLBACKS, "CallbackList._call_batch_hook", plan.batch_hook,              "validate when the plan says so"),
    Patch(_CALLBACKS, "CallbackList.on_epoch_end",    plan.epoch_end,                "take note of validations"),
    Patch(_DATA,      "OrderedEnqueuer.start",        enqueuers.start_ordered,       "skip in a replay"),
    Patch(_DATA,      "GeneratorEnqueuer.start",      enqueuers.start_generator,     "keep its random numbers apart"),
    Patch(_DATA,      "iter_sequence_infinite",       enqueuers.iter_sequence_infinite, "skip in a replay"),
    Patch(_OPTIMIZER, "OptimizerV2.apply_gradients",  sessions.apply_gradients,      "say what is not intercepted"),
    Patch(_IMAGES,    "Iterator.__init__",            images.made,                   "key the random numbers of items"),
    Patch(_IMAGES,    "Iterator.__getitem__",         images.item,                   "key the random numbers of items"),
)

GENERATION = Generation("tensorflow.keras", "1.15.0", "1.15.5", None, PATCHES, prepare=graph.prepare)
