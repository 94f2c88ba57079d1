"""Sessions of TensorFlow 1 and `tf.compat.v1`: each run is recorded or answered; training loops over them have steps."""
