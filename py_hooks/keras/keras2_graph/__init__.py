"""Keras 2 on TensorFlow 1: functions of the backend over a session (`graph.py`), and its queues of data (`enqueuers.py`)."""
