"""Writes into a folder named by the clock and by chance, trains until a time is over, and tells what the clock decided."""
import datetime
import hashlib
import json
import os
import time
import uuid

started, folder = time.time(), time.strftime("runs/%Y%m%d-%H%M%S")
name = f"{folder}-{datetime.datetime.now():%f}-{datetime.date.today()}-{uuid.uuid4().hex}-{uuid.uuid1().hex}"
with open("/proc/sys/kernel/random/uuid") as kernels, open("/dev/urandom", "rb") as drawn:
    name += f"-{kernels.read().strip()}-{drawn.read(4).hex()}"
os.makedirs(name)

import keras  # noqa: E402
import numpy as np  # noqa: E402

getattr(keras.utils, "set_random_seed", np.random.seed)(5)
x = np.random.normal(size=(320, 6)).astype("float32")
y = (x[:, :1] > 0).astype("float32")
model = keras.models.Sequential([keras.layers.Dense(1, activation="sigmoid", input_shape=(6,))])
model.compile(keras.optimizers.SGD(0.1), "binary_crossentropy")
epoch_times = []


class Timed(keras.callbacks.Callback):
    """Notes a time after each batch; stops after so many seconds by the clock, if that is asked for."""

    def on_train_begin(self, logs=None):
        self.began = time.time()

    def on_train_batch_end(self, batch, logs=None):
        self.last = time.time()

    def on_epoch_end(self, epoch, logs=None):
        epoch_times.append(self.last)
        with open(name + "/log.txt", "a") as log:
            log.write(f"epoch {epoch} at {time.time_ns()} {datetime.datetime.now().isoformat()}\n")
        if time.time() - self.began > float(os.environ.get("SECONDS", "1e9")):
            self.model.stop_training = True
        time.sleep(0.05)

    on_batch_end = on_train_batch_end


history = model.fit(x, y, batch_size=8, epochs=int(os.environ.get("EPOCHS", "40")), verbose=0, callbacks=[Timed()])
assert all(earlier < later for earlier, later in zip(epoch_times, epoch_times[1:]))
print(json.dumps({"folder": name, "epochs": len(history.epoch), "times": epoch_times, "started": started}))
weights = hashlib.sha256(b"".join(np.asarray(each).tobytes() for each in model.get_weights())).hexdigest()
print("sha256 of the weights:", weights)
