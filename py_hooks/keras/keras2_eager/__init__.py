"""Keras 2 on TensorFlow 2, where functions are traced (`eager.py`), and its handlers of data (`handlers.py`)."""
