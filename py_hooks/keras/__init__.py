"""Keras, the `keras` distribution: the call paths of the generations that are intercepted.

    2.2.0 - 2.3.1, tf.keras of TensorFlow 1 (graph mode); the rows of all of these are in `rows_of_graph_mode.py`
        Model.fit(arrays)     -> training_arrays.fit_loop         -> train_function(ins)     a K.function
        Model.fit(generator)  -> Model.fit_generator
        Model.fit_generator   -> training_generator.fit_generator -> Model.train_on_batch -> train_function(ins)
        Model.evaluate*, predict* the same way                    -> test_function, predict_function
        everything else that computes                             -> Session.run

    2.6 - 2.15, tf.keras of TensorFlow 2.2 - 2.5 (TensorFlow 2); the rows of all of these are in `rows_of_v2.py`
        Model.fit             -> DataHandler -> a tf.data pipeline -> train_function(iterator)   a tf.function
        Model.train_on_batch                                       -> train_function(one batch)
        Model.evaluate, predict, *_on_batch the same way           -> test_function, predict_function
        reads and writes outside of these                          -> the variables of TensorFlow

    3 (JAX, TensorFlow)
        Model.fit             -> EpochIterator -> data adapter    -> train_function([state,] iterator)
        Model.train_on_batch                                      -> train_function([state,] one batch)
        Model.evaluate, predict, *_on_batch the same way          -> test_function, predict_function
        reads outside of these                                    -> Variable.value (JAX), a resource read (TensorFlow)

Files: `v*.py` are the generations (WHERE, data); `facts.py` names their differences; `advice.py` are the entry points
of all generations, `functions.py` the compute functions below them; `compute.py`, `variables.py`, `passes.py` are those
of Keras 3, of which Keras 2 on TensorFlow 2 uses a part, `loops.py` what becomes of loops of the script's own; `plan.py`
and `validation.py` are how a configuration decides the length of a fit and its validations; `models.py` is what a
checkpoint knows of models, for exports; `images.py` are Keras's image iterators; `graph.py` and `enqueuers.py` are what
only Keras 2 on TensorFlow 1 has, and `packages.py` tells it from tf.keras; `eager.py` and `handlers.py` are what only
Keras 2 on TensorFlow 2 has; `torch_backend.py` is what only Keras 3 on torch has.
"""
