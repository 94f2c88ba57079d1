"""WHERE TensorFlow is intercepted: one file per range of versions (`v*.py`), and rows that several of them share."""
