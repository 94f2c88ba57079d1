"""What a reader finds in a folder of event files."""
import glob

import tensorflow as tf


def read(directory):
    """`(tag, step, value)` of every value in the folder, sorted; files are read whole, in TensorFlow's own way."""
    found = []
    for path in sorted(glob.glob(directory + "/*tfevents*")):
        for event in tf.compat.v1.train.summary_iterator(path):
            for value in event.summary.value:
                data = value.tensor.SerializeToString() if value.HasField("tensor") else value.simple_value
                # How fast it went is another number each time.
                found.append((value.tag, event.step, "" if "per_second" in value.tag else repr(data)))
    return sorted(found)
