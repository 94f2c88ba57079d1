"""A simple model definition for Keras 2: a script whose length, and whose hyperparameters, a configuration decides.

    pedl-run --config const.yaml .                  # 1 step of 100 batches: a look whether it works
    pedl-run --config long.yaml .                   # 64 steps: 3 epochs and the begin of a fourth
    pedl-run --config random.yaml --trial 3 .       # the third of its trials

It is written as such scripts were for PEDL: `fit_generator` is given neither `epochs` nor `steps_per_epoch`, and data
settings come from the configuration. The data set has the shape of MNIST (60 000 images of 28 x 28, 1 875 batches an
epoch), and nothing is downloaded: an image of class c is noise with a bright bar whose place depends on c.
"""

import hashlib
import logging

import keras
import numpy as np
import pedl
import tensorflow as tf
from keras import layers
from keras.preprocessing.image import ImageDataGenerator

batch_size = 32
num_train, num_validation = 60000, 640
num_classes = 10


def make_images(count, seed):
    """Returns `count` images, shape (count, 28, 28, 1), and their classes, shape (count, 10)."""
    generator = np.random.RandomState(seed)
    classes = generator.randint(0, num_classes, count)
    images = generator.randint(0, 128, (count, 28, 28, 1)).astype("float32") / 255
    images[np.arange(count), 4 + 2 * classes] += 0.3
    return images, keras.utils.to_categorical(classes, num_classes)


experiment_config = pedl.get_experiment_config()
logging.basicConfig(level=logging.INFO)
logging.info("experiment: %s", experiment_config.get("description"))
data_config = pedl.get_data_config()

np.random.seed(pedl.get_trial_seed() % 1000)
tf.compat.v1.set_random_seed(1)
x_train, y_train = make_images(num_train, seed=1)
x_validation, y_validation = make_images(num_validation, seed=2)

model = keras.models.Sequential(
    [
        layers.Conv2D(4, 5, strides=3, activation=pedl.get_hyperparameter("activation"), input_shape=(28, 28, 1)),
        layers.Flatten(),
        layers.Dropout(pedl.get_hyperparameter("dropout")),
        layers.Dense(num_classes, activation="softmax"),
    ]
)
model.compile(keras.optimizers.Adadelta(), "categorical_crossentropy", metrics=["accuracy"])

history = model.fit_generator(
    ImageDataGenerator(width_shift_range=0.1).flow(x_train, y_train, batch_size),
    validation_data=ImageDataGenerator().flow(x_validation, y_validation, batch_size, shuffle=False),
    validation_steps=num_validation // batch_size,
    workers=data_config.get("workers", 1),
    max_queue_size=data_config.get("max_queue_size", 10),
    verbose=2,
)

last = {name: values[-1] for name, values in history.history.items()}
print("epochs:", history.epoch, "last:", {name: round(float(value), 4) for name, value in sorted(last.items())})
weights = hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights()))
print("sha256 of the weights:", weights.hexdigest())
