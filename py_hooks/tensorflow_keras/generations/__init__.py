"""WHERE the Keras within TensorFlow is intercepted: one file per range of versions, with the facts of these versions."""
