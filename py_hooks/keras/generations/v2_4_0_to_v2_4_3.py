"""Keras 2.4 is another name for the `tf.keras` of the TensorFlow below it (2.2 to 2.5), where everything is intercepted.

Call paths (read from 2.4.3): those of `tf.keras`, in `py_hooks/tensorflow_keras/generations`.
"""
from py_hooks.engine.patch import Generation

GENERATION = Generation("keras", "2.4.0", "2.4.3", None, ())
