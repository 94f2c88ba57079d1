"""tf.keras 2: saves a model as a folder, removes it, and trains on."""
import hashlib
import shutil
import time

import numpy as np
from tensorflow import keras

np.random.seed(5)
keras.utils.set_random_seed(5) if hasattr(keras.utils, "set_random_seed") else None
x = np.random.normal(size=(160, 3)).astype("float32")
model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(3,))])
model.compile("sgd", "mse")
model.fit(x, x[:, :1], batch_size=8, verbose=0)
model.save("exported", save_format="tf")
shutil.rmtree("exported")
slowly = keras.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: time.sleep(0.01))
model.fit(x, x[:, :1], batch_size=8, epochs=10, verbose=0, callbacks=[slowly])
print("sha256 of the weights:", hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights())).hexdigest())
