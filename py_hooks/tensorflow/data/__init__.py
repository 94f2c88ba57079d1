"""`tf.data` pipelines, which a replay can skip (`pipelines.py`), and the DataFlows of tensorpack (`dataflows.py`)."""
