"""Keras 3: its variables, compute functions and passes over data, on JAX, TensorFlow and torch."""
