"""Writes event files in every way that its TensorFlow has, and tells what is in them at the end.

Each way has a folder of its own, named by the clock. `events.txt` gets the folder's name once it is known.
"""
import glob
import hashlib
import os
import sys
import time

import keras
import numpy as np
import tensorflow as tf

import event_reader

IS_TF1 = tf.__version__.startswith("1.")
folder = time.strftime("logs-%Y%m%d-%H%M%S")
with open("events.txt", "w") as file:
    file.write(folder)
getattr(keras.utils, "set_random_seed", np.random.seed)(5)
x = np.random.normal(size=(320, 6)).astype("float32")
y = (x[:, :1] > 0).astype("float32")
model = keras.models.Sequential([keras.layers.Dense(1, activation="sigmoid", input_shape=(6,))])
model.compile(keras.optimizers.SGD(0.1), "binary_crossentropy")


class Own(keras.callbacks.Callback):
    """Writes by itself: a scalar after each batch, and each epoch into a folder that is opened and closed again."""

    def __init__(self, name):
        keras.callbacks.Callback.__init__(self)
        self.name = name
        self.batches = 0
        self.writer = open_writer(f"{folder}/{name}-own")

    def after_batch(self, batch, logs=None):
        self.batches += 1
        write(self.writer, "loss", float(logs["loss"]), self.batches)

    def on_train_end(self, logs=None):
        self.writer.close()

    def on_epoch_end(self, epoch, logs=None):
        once = open_writer(f"{folder}/{self.name}-epochs")
        write(once, "loss", float(logs["loss"]), epoch)
        once.close()
        with open("progress.txt", "a") as progress:
            progress.write(f"{self.name} {epoch}\n")
        time.sleep(0.05)


def open_writer(directory):
    if IS_TF1:
        return tf.summary.FileWriter(directory)
    return tf.summary.create_file_writer(directory, flush_millis=10**9, max_queue=10**6)


def write(writer, tag, value, step):
    if IS_TF1:
        writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag=tag, simple_value=value)]), step)
        return
    with writer.as_default():
        tf.summary.scalar(tag, value, step=step)


setattr(Own, "on_batch_end" if IS_TF1 else "on_train_batch_end", Own.after_batch)
before = open_writer(folder + "/before")
write(before, "begun", 1.0, 0)
for name in ("first", "second"):
    settings = {} if IS_TF1 else {"update_freq": 3, "write_graph": False}
    board = keras.callbacks.TensorBoard(f"{folder}/{name}", **settings)
    model.fit(x, y, batch_size=8, epochs=12, verbose=0, validation_split=0.2, callbacks=[board, Own(name)])
write(before, "ended", 2.0, 1)
before.close()
kinds = sorted(set(os.path.dirname(path) for path in glob.glob(folder + "/**/*tfevents*", recursive=True)))
for directory in kinds:
    events = event_reader.read(directory)
    twice = [event[:2] for event in events if [other[:2] for other in events].count(event[:2]) > 1]
    text = repr(events).encode()
    print(os.path.relpath(directory, folder), len(events), "events", "twice:", twice, hashlib.sha256(text).hexdigest())
weights = hashlib.sha256(b"".join(np.asarray(each).tobytes() for each in model.get_weights())).hexdigest()
print("sha256 of the weights:", weights)
sys.stdout.flush()
