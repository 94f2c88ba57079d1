"""A script that goes on by itself where it finds something of its own, in one of the usual ways: its first argument."""
import glob
import hashlib
import os
import pickle
import sys
import time

import keras
import numpy as np

WAY = sys.argv[1]
IS_KERAS3 = not keras.__version__.startswith("2")
WEIGHTS, WHOLE = (".weights.h5", ".keras") if IS_KERAS3 else (".h5", ".hdf5")
getattr(keras.utils, "set_random_seed", np.random.seed)(5)
x = np.random.normal(size=(320, 6)).astype("float32")
y = (x[:, :1] > 0).astype("float32")
model = keras.models.Sequential([keras.layers.Dense(1, activation="sigmoid", input_shape=(6,))])
model.compile(keras.optimizers.Adam(0.1), "binary_crossentropy")
first, callbacks, found = 0, [], None


class Slow(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        with open("progress.txt", "a") as progress:
            progress.write(f"{epoch}\n")
        time.sleep(0.05)


class Newest(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.save_weights(f"newest/{epoch:03d}" + WEIGHTS)
        for old in sorted(os.listdir("newest"))[:-2]:
            os.remove("newest/" + old)


class State(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        with open("state.pickle.new", "wb") as file:
            pickle.dump({"epoch": epoch + 1, "weights": self.model.get_weights()}, file)
        os.replace("state.pickle.new", "state.pickle")


if WAY == "exists":
    if os.path.exists("w" + WEIGHTS):
        found = "weights"
        model.load_weights("w" + WEIGHTS)
    callbacks = [keras.callbacks.ModelCheckpoint("w" + WEIGHTS, save_weights_only=True)]
elif WAY == "newest":
    os.makedirs("newest", exist_ok=True)
    names = sorted(glob.glob("newest/*"))
    if names:
        found = names[-1]
        first = int(os.path.basename(names[-1]).split(".")[0]) + 1
        model.load_weights(names[-1])
    callbacks = [Newest()]
elif WAY == "whole":
    if os.path.isfile("whole" + WHOLE):
        found = "model"
        model = keras.models.load_model("whole" + WHOLE)
    callbacks = [keras.callbacks.ModelCheckpoint("whole" + WHOLE, monitor="loss", save_best_only=True)]
elif WAY == "pickle":
    if os.path.exists("state.pickle"):
        with open("state.pickle", "rb") as file:
            found = pickle.load(file)
        first = found["epoch"]
        model.set_weights(found["weights"])
    callbacks = [State()]
elif WAY == "backup":
    callbacks = [keras.callbacks.BackupAndRestore("backup")]
history = model.fit(x, y, batch_size=8, epochs=16, initial_epoch=first, verbose=0, callbacks=callbacks + [Slow()])
weights = b"".join(np.asarray(part).tobytes() for part in model.get_weights())
print("began at", first, "found", found, "epochs", len(history.epoch))
print("model", hashlib.sha256(weights).hexdigest(), len(open("progress.txt").readlines()))
