"""A small convolutional network that learns to read digits from augmented images, in Keras 2.

    python examples/keras2_fit_generator_images.py
    pedl-run examples/keras2_fit_generator_images.py
    pedl-run --checkpoint-seconds 1 examples/keras2_fit_generator_images.py    # kill -9 it, run it again

The twin of `keras_fit_images.py` for Keras 2.2.5 to 2.3.1 on TensorFlow 1, with what scripts of that
time did: an `ImageDataGenerator` turns and shifts every image anew in every epoch, and
`fit_generator` takes the batches from it. The data set has the shape of MNIST (28 x 28 grey images
of ten classes) but nothing is downloaded: every image is a digit of a 5 x 7 pixel font, dimmed and
buried in noise. The last line is a hash over all weights: two runs that end with the same hash have
learned the same numbers, bit for bit.
"""

import hashlib

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from keras.preprocessing.image import ImageDataGenerator

# data
num_train = 16000
num_test = 2000
noise = 0.5  # standard deviation; a stroke of a digit is 0.5 to 1 bright

# training
seed = 1
batch_size = 32
epochs = 2
learning_rate = 1e-3
dropout = 0.25

# the ten digits: seven rows of five pixels each, '#' is ink
FONT = """
.###. ..#.. .###. .###. ...#. ##### .###. ##### .###. .###.
#...# .##.. #...# #...# ..##. #.... #.... ....# #...# #...#
#..## ..#.. ....# ....# .#.#. ####. #.... ...#. #...# #...#
#.#.# ..#.. ...#. ..##. #..#. ....# ####. ..#.. .###. .####
##..# ..#.. ..#.. ....# ##### ....# #...# .#... #...# ....#
#...# ..#.. .#... #...# ...#. #...# #...# .#... #...# ....#
.###. .###. ##### .###. ...#. .###. .###. .#... .###. .###.
"""


def make_glyphs():
    """Returns the digits 0 to 9 as an array of shape (10, 21, 15), three pixels to a dot."""
    rows = [line.split() for line in FONT.split("\n") if line]
    dots = np.array([[[pixel == "#" for pixel in row[digit]] for row in rows] for digit in range(10)])
    return dots.repeat(3, axis=1).repeat(3, axis=2).astype("float32")


def make_images(count):
    """Returns `count` images, shape (count, 28, 28, 1), and their digits, shape (count, 10)."""
    glyphs = make_glyphs()
    height, width = glyphs.shape[1:]
    top, left = (28 - height) // 2, (28 - width) // 2
    digits = np.random.randint(0, 10, count)
    inks = np.random.uniform(0.5, 1, (count, 1, 1))
    images = np.random.normal(0, noise, (count, 28, 28))
    images[:, top : top + height, left : left + width] += inks * glyphs[digits]
    return images[..., np.newaxis].astype("float32"), keras.utils.to_categorical(digits, 10)


np.random.seed(seed)
tf.compat.v1.set_random_seed(seed)
x_train, y_train = make_images(num_train)
x_test, y_test = make_images(num_test)

model = keras.models.Sequential(
    [
        layers.Conv2D(16, 3, activation="relu", input_shape=(28, 28, 1)),
        layers.MaxPooling2D(2),
        layers.Conv2D(32, 3, activation="relu"),
        layers.MaxPooling2D(2),
        layers.Dropout(dropout),
        layers.Flatten(),
        layers.Dense(128, activation="relu"),
        layers.Dropout(2 * dropout),
        layers.Dense(10, activation="softmax"),
    ]
)
model.compile(
    optimizer=keras.optimizers.Adam(lr=learning_rate),
    loss="categorical_crossentropy",
    metrics=["accuracy"],
)
augmented = ImageDataGenerator(rotation_range=10, width_shift_range=3, height_shift_range=3)
model.fit_generator(
    augmented.flow(x_train, y_train, batch_size=batch_size),
    epochs=epochs,
    validation_data=(x_test, y_test),
    verbose=2,
)

loss, accuracy = model.evaluate(x_test, y_test, verbose=0)
digest = hashlib.sha256()
for weight in model.get_weights():
    digest.update(np.ascontiguousarray(weight).tobytes())
print(f"test loss {loss:.4f}, test accuracy {accuracy:.4f}")
print(f"sha256 of the weights: {digest.hexdigest()}")
