"""WHERE TensorFlow is intercepted: one file per range of versions (`v*.py`), with the facts of these versions.

Rows that several of them share are in `entry_points_of_*.py`. The file of a range names each table that it takes.
"""
