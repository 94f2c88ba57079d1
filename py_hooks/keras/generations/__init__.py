"""WHERE Keras is intercepted: one file per range of versions (`v*.py`), with the facts of these versions.

Rows that several of them share are in `entry_points_of_graph_mode.py` (on TensorFlow 1) and `entry_points_of_eager_mode.py` (on
TensorFlow 2). The file of a range names the table that it takes.
"""
