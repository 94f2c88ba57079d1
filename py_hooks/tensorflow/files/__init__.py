"""Files that TensorFlow writes in C++: event files for TensorBoard (`event_files.py`), and those of `tf.io.gfile`."""
