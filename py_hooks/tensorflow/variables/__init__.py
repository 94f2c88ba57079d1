"""Variables of TensorFlow 2 (`resource_variables.py`), and the traced functions that read and write them (`functions.py`)."""
