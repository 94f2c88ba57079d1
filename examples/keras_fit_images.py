"""A small convolutional network that learns to read digits, in Keras 3.

    python examples/keras_fit_images.py
    pedl-run examples/keras_fit_images.py
    pedl-run --checkpoint-seconds 1 examples/keras_fit_images.py    # kill -9 it, run it again

The data set has the shape of MNIST (28 x 28 grey images of ten classes) but nothing is downloaded:
every image is a digit of a 5 x 7 pixel font, moved about, dimmed and buried in noise. It works with
every backend of Keras (`KERAS_BACKEND=jax`, `tensorflow`, `torch`). The last line is a hash over
all weights: two runs that end with the same hash have learned the same numbers, bit for bit.
"""

import hashlib

import keras
import numpy as np
from keras import layers

# data
num_train = 16000
num_test = 2000
noise = 0.5  # standard deviation; a stroke of a digit is 0.5 to 1 bright

# training
seed = 1
batch_size = 32
epochs = 3
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


def make_images(count, random):
    """Returns `count` images, shape (count, 28, 28, 1), and their digits, shape (count,)."""
    glyphs = make_glyphs()
    height, width = glyphs.shape[1:]
    images = random.normal(0, noise, (count, 28, 28)).astype("float32")
    digits = random.integers(0, 10, count)
    tops = random.integers(0, 28 - height + 1, count)
    lefts = random.integers(0, 28 - width + 1, count)
    inks = random.uniform(0.5, 1, count).astype("float32")
    for image, digit, top, left, ink in zip(images, digits, tops, lefts, inks):
        image[top : top + height, left : left + width] += ink * glyphs[digit]
    return images[..., np.newaxis], digits


keras.utils.set_random_seed(seed)
random = np.random.default_rng(seed)
x_train, y_train = make_images(num_train, random)
x_test, y_test = make_images(num_test, random)

model = keras.Sequential(
    [
        keras.Input((28, 28, 1)),
        layers.Conv2D(16, 3, activation="relu"),
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
    optimizer=keras.optimizers.Adam(learning_rate),
    loss="sparse_categorical_crossentropy",
    metrics=["accuracy"],
)
model.fit(
    x_train,
    y_train,
    batch_size=batch_size,
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
