"""Keras 2.4 is another name for the `tf.keras` of the TensorFlow below it (2.2 to 2.5), where everything is intercepted.

Call paths (read from 2.4.3): those of `py_hooks/tensorflow/generations/v2_2_0_to_v2_5_3.py`.
"""
from py_hooks.engine.patch import Generation

GENERATION = Generation("keras", "2.4.0", "2.4.3", None, ())
