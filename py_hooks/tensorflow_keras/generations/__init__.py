"""WHERE the Keras within TensorFlow 1 is intercepted: one file per range of versions."""
