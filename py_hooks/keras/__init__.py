"""Keras, the `keras` distribution: the call paths of the generations that are intercepted.

    2.2.0 - 2.3.1, tf.keras of TensorFlow 1 (graph mode); the rows of all of these are in `entry_points_of_graph_mode.py`
        Model.fit(arrays)     -> training_arrays.fit_loop         -> train_function(ins)     a K.function
        Model.fit(generator)  -> Model.fit_generator
        Model.fit_generator   -> training_generator.fit_generator -> Model.train_on_batch -> train_function(ins)
        Model.evaluate*, predict* the same way                    -> test_function, predict_function
        everything else that computes                             -> Session.run

    2.6 - 2.15, tf.keras of TensorFlow 2.2 - 2.5 (TensorFlow 2); the rows of all of these are in `entry_points_of_eager_mode.py`
        Model.fit             -> DataHandler -> a tf.data pipeline -> train_function(iterator)   a tf.function
        Model.train_on_batch                                       -> train_function(one batch)
        Model.evaluate, predict, *_on_batch the same way           -> test_function, predict_function
        reads and writes outside of these                          -> the variables of TensorFlow

    3 (JAX, TensorFlow)
        Model.fit             -> EpochIterator -> data adapter    -> train_function([state,] iterator)
        Model.train_on_batch                                      -> train_function([state,] one batch)
        Model.evaluate, predict, *_on_batch the same way          -> test_function, predict_function
        reads outside of these                                    -> Variable.value (JAX), a resource read (TensorFlow)

Rooms: `generations/` says WHERE; `keras3/` is for Keras 3 on JAX, TensorFlow and torch, `keras2_eager/` for Keras 2 on
TensorFlow 2, and `keras2_graph/` for Keras 2 on TensorFlow 1. Each has a `prepare` that wires it.

For all of them: `entry_points.py` has what the script calls, `functions.py` the compute functions below; `sources.py` examines
the data and the model of a fit, and `accumulators.py` sums of metrics; `plan.py` and `validation.py` apply a configuration's
length of a fit and its validations; `models.py` has what a checkpoint contains of models, for exports; `images.py` is for
Keras's image iterators, `loops.py` for loops of the script; `packages.py` distinguishes `keras` from `tf.keras`.
"""
