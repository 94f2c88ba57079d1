"""Keras, the `keras` distribution: the call paths of the generations that are intercepted.

    2.2.5 - 2.3.1 (TensorFlow 1)
        Model.fit(arrays)     -> training_arrays.fit_loop         -> train_function(ins)     a K.function
        Model.fit(generator)  -> Model.fit_generator
        Model.fit_generator   -> training_generator.fit_generator -> Model.train_on_batch -> train_function(ins)
        Model.evaluate*, predict* the same way                    -> test_function, predict_function
        everything else that computes                             -> Session.run

    3 (JAX, TensorFlow)
        Model.fit             -> EpochIterator -> data adapter    -> train_function([state,] iterator)
        Model.train_on_batch                                      -> train_function([state,] one batch)
        Model.evaluate, predict, *_on_batch the same way          -> test_function, predict_function
        reads outside of these                                    -> Variable.value (JAX), a resource read (TensorFlow)

Files: `v*.py` are the generations (WHERE, data); `facts.py` names their differences; `advice.py` are the entry points
of all generations, `functions.py` the compute functions below them; `compute.py`, `variables.py`, `passes.py` are what
only Keras 3 has there, `loops.py` what becomes of loops of the script's own; `plan.py` and `validation.py` are how a
configuration decides the length of a fit and its validations; `graph.py` and `enqueuers.py` are what only
Keras 2 has.
"""
