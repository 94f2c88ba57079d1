"""Random ops, each with a state that can be saved: of TensorFlow 2 and 1 (`random_ops.py`), of 1.13 (`keyed_ops.py`)."""
