"""tf.keras of TensorFlow 1.13, in graph mode: loops that gather metrics run a function of their own, `_fit_function`.

Call paths (read from 1.13.1, tensorflow/python/keras/engine):

    Model.fit(arrays)    -> training_arrays.model_iteration -> Model._fit_function                     the loop
    Model.fit(Sequence)  -> Model.fit_generator
    Model.fit_generator  -> training_generator.model_iteration -> an enqueuer's get(), or iter_sequence_infinite
                         -> Model.train_on_batch(reset_metrics=False) -> Model._fit_function
    Model.train_on_batch -> Model.train_function
    Model.evaluate, predict and their `_generator` and `_on_batch` forms the same way, with `_eval_function`
"""
from py_hooks.engine.patch import Generation, Patch
from py_hooks.keras import advice, enqueuers, graph, images, plan

_MODEL = "tensorflow.python.keras.engine.training"
_CALLBACKS = "tensorflow.python.keras.callbacks"
_DATA = "tensorflow.python.keras.utils.data_utils"
_IMAGES = "keras_preprocessing.image"
_API = "tensorflow.keras.models"
_MODELS = "tensorflow.python.keras.models"
_OPTIMIZER = "tensorflow.python.keras.optimizers"

PATCHES = (
    #     module      attribute                       advice                         why
    Patch(_MODEL,     "Model.fit",                    advice.fit,                    "know where a training call begins"),
    Patch(_MODEL,     "Model.fit_generator",          advice.fit_generator,          "know where a training call begins"),
    Patch(_MODEL,     "Model.evaluate",               advice.evaluate,               "know where an evaluation begins"),
    Patch(_MODEL,     "Model.evaluate_generator",     advice.evaluate_generator,     "know where an evaluation begins"),
    Patch(_MODEL,     "Model.predict",                advice.predict,                "know where a prediction begins"),
    Patch(_MODEL,     "Model.predict_generator",      advice.predict_generator,      "know where a prediction begins"),
    Patch(_MODEL,     "Model.train_on_batch",         advice.train_on_batch_or_fit,  "know where a training call begins"),
    Patch(_MODEL,     "Model.test_on_batch",          advice.test_on_batch_or_eval,  "know where an evaluation begins"),
    Patch(_MODEL,     "Model.predict_on_batch",       advice.predict_on_batch,       "know where a prediction begins"),
    Patch(_MODEL,     "Model._make_train_function",   graph.make_train_function,     "record and answer training calls"),
    Patch(_MODEL,     "Model._make_test_function",    graph.make_test_function,      "record and answer test calls"),
    Patch(_MODEL,     "Model._make_fit_function",     graph.make_fit_function,       "record and answer training calls"),
    Patch(_MODEL,     "Model._make_eval_function",    graph.make_eval_function,      "record and answer test calls"),
    Patch(_MODEL,     "Model._make_predict_function", graph.make_predict_function,   "record and answer predict calls"),
    Patch(_MODEL,     "Model.get_weights",            advice.get_weights,            "record and answer reads of weights"),
    Patch(_MODEL,     "Model.save",                   advice.save,                   "keep saved models with checkpoints"),
    Patch(_MODEL,     "Model.save_weights",           advice.save,                   "keep saved models with checkpoints"),
    Patch(_MODEL,     "Model.load_weights",           advice.load_weights,           "not read a file of the future"),
    Patch(_API,       "save_model",                   advice.save,                   "keep saved models with checkpoints"),
    Patch(_API,       "load_model",                   advice.load_model,             "not read a file of the future"),
    Patch(_MODELS,    "save_model",                   advice.save,                   "keep saved models with checkpoints"),
    Patch(_MODELS,    "load_model",                   advice.load_model,             "not read a file of the future"),
    Patch(_CALLBACKS, "CallbackList.on_epoch_begin",  advice.epoch_begin,            "name the epoch"),
    Patch(_CALLBACKS, "CallbackList._call_batch_hook", plan.batch_hook,              "validate when the plan says so"),
    Patch(_CALLBACKS, "CallbackList.on_epoch_end",    plan.epoch_end,                "take note of validations"),
    Patch(_DATA,      "OrderedEnqueuer.start",        enqueuers.start_ordered,       "skip in a replay"),
    Patch(_DATA,      "GeneratorEnqueuer.start",      enqueuers.start_generator,     "keep its random numbers apart"),
    Patch(_DATA,      "iter_sequence_infinite",       enqueuers.iter_sequence_infinite, "skip in a replay"),
    Patch(_OPTIMIZER, "Optimizer.get_gradients",      graph.get_gradients,           "say what is not intercepted"),
    Patch(_IMAGES,    "Iterator.__init__",            images.made,                   "key the random numbers of items"),
    Patch(_IMAGES,    "Iterator.__getitem__",         images.item,                   "key the random numbers of items"),
)

GENERATION = Generation("tensorflow.keras", "1.13.1", "1.13.2", None, PATCHES, prepare=graph.prepare)
