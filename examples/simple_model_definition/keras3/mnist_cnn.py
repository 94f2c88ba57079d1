"""A simple model definition for Keras 3: a script whose length, and whose hyperparameters, a configuration decides.

    pedl-run --config const.yaml .                  # 1 step of 100 batches: a look whether it works
    pedl-run --config long.yaml .                   # 64 steps: 3 epochs and the begin of a fourth
    pedl-run --config random.yaml --trial 3 .       # the third of its trials

The twin of `../keras2/mnist_cnn.py`: `fit` is given no `epochs`, and data settings come from the configuration. The data
set has the shape of MNIST (60 000 images of 28 x 28, 1 875 batches an epoch), and nothing is downloaded: an image of
class c is noise with a bright bar whose place depends on c.
"""

import hashlib
import logging

import keras
import numpy as np
import pedl
from keras import layers

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


class Batches(keras.utils.PyDataset):
    """Batches of images, shifted to the side by chance where `shift` is above 0."""

    def __init__(self, images, classes, shift=0, **settings):
        super().__init__(**settings)
        self.images, self.classes, self.shift = images, classes, shift

    def __len__(self):
        return len(self.images) // batch_size

    def __getitem__(self, index):
        rows = slice(index * batch_size, (index + 1) * batch_size)
        columns = np.random.randint(-self.shift, self.shift + 1)
        return np.roll(self.images[rows], columns, axis=2), self.classes[rows]


experiment_config = pedl.get_experiment_config()
logging.basicConfig(level=logging.INFO)
logging.info("experiment: %s", experiment_config.get("description"))
data_config = pedl.get_data_config()

keras.utils.set_random_seed(pedl.get_trial_seed() % 1000)
x_train, y_train = make_images(num_train, seed=1)
x_validation, y_validation = make_images(num_validation, seed=2)

model = keras.models.Sequential(
    [
        layers.Input((28, 28, 1)),
        layers.Conv2D(4, 5, strides=3, activation=pedl.get_hyperparameter("activation")),
        layers.Flatten(),
        layers.Dropout(pedl.get_hyperparameter("dropout")),
        layers.Dense(num_classes, activation="softmax"),
    ]
)
model.compile(keras.optimizers.Adadelta(), "categorical_crossentropy", metrics=["accuracy"])

history = model.fit(
    Batches(x_train, y_train, shift=3, workers=data_config.get("workers", 1)),
    validation_data=Batches(x_validation, y_validation),
    verbose=2,
)

last = {name: values[-1] for name, values in history.history.items()}
print("epochs:", history.epoch, "last:", {name: round(float(value), 4) for name, value in sorted(last.items())})
weights = hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights()))
print("sha256 of the weights:", weights.hexdigest())
