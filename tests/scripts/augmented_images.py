"""A fit on images that `ImageDataGenerator` augments, with workers; prints the hash of the weights. Keras 2 and 3.

    python augmented_images.py WORKERS threads|processes    the variables WORKERS and WAY are stronger
"""

import hashlib
import os
import sys
import time

import keras
import numpy as np

workers = int(os.environ.get("WORKERS", sys.argv[1]))
in_processes = os.environ.get("WAY", sys.argv[2]) == "processes"
is_keras_3 = keras.__version__.startswith("3")
if is_keras_3:
    from keras.src.legacy.preprocessing.image import ImageDataGenerator
else:
    from keras.preprocessing.image import ImageDataGenerator

images = np.random.RandomState(3).rand(40, 12, 12, 1).astype("float32")
generator = ImageDataGenerator(
    rotation_range=40, width_shift_range=0.2, zoom_range=0.3, shear_range=10, horizontal_flip=True, brightness_range=None
)
model = keras.models.Sequential([keras.layers.Flatten(input_shape=(12, 12, 1)), keras.layers.Dense(3), keras.layers.Dense(1)])
model.compile("sgd", "mse")
flow = generator.flow(images, images.mean(axis=(1, 2, 3)), batch_size=8)
settings = {"epochs": 4, "verbose": 0}
hook = "on_train_batch_end" if is_keras_3 else "on_batch_end"
settings["callbacks"] = [keras.callbacks.LambdaCallback(**{hook: lambda batch, logs: time.sleep(0.02)})]
if is_keras_3:
    flow.workers, flow.use_multiprocessing = workers, in_processes and workers > 0
    model.fit(flow, **settings)
else:
    # Keras does not shuffle where there are no workers; the iterator does.
    model.fit_generator(flow, workers=workers, use_multiprocessing=in_processes, shuffle=False, **settings)
weights = b"".join(np.ascontiguousarray(array).tobytes() for array in model.get_weights())
print("HASH", hashlib.sha256(weights).hexdigest())
