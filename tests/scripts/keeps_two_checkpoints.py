"""Keeps files as repositories do: the last two checkpoints, a marker, a state that is replaced, a log that grows."""
import glob
import hashlib
import json
import os
import shutil
import time

import keras
import numpy as np

getattr(keras.utils, "set_random_seed", np.random.seed)(5)
x = np.random.normal(size=(320, 6)).astype("float32")
y = (x[:, :1] > 0).astype("float32")
model = keras.models.Sequential([keras.layers.Dense(1, activation="sigmoid", input_shape=(6,))])
model.compile(keras.optimizers.SGD(0.1), "binary_crossentropy")
if not os.path.isdir("checkpoints"):
    os.makedirs("checkpoints")
runs = json.load(open("runs.json")) + 1
with open("runs.json", "w") as file:
    json.dump(runs, file)
open("RUNNING", "w").close()


class Keep(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.save_weights(f"checkpoints/{epoch:04d}.weights.h5")
        for path in sorted(glob.glob("checkpoints/*.h5"))[:-2]:
            os.remove(path)
        with open("state.json.new", "w") as state:
            json.dump({"epoch": epoch, "loss": float(logs["loss"])}, state)
        os.replace("state.json.new", "state.json")
        with open("train.log", "a") as log:
            log.write("epoch {} loss {!r}\n".format(epoch, float(logs["loss"])))
        os.makedirs(f"scratch/{epoch}")
        open(f"scratch/{epoch}/notes", "w").close()
        if epoch >= 2:
            shutil.rmtree(f"scratch/{epoch - 2}")
        time.sleep(0.1)


model.fit(x, y, batch_size=8, epochs=20, verbose=0, callbacks=[Keep()])
os.remove("RUNNING")
print("sha256 of the weights:", hashlib.sha256(repr(model.get_weights()).encode()).hexdigest(), "run", runs)
