"""Trains a model of Keras 2 that looks words and numbers up in tables, which are among its weights and no variables."""
import hashlib
import os
import signal

import numpy
import tensorflow
from tensorflow import keras

keras.utils.set_random_seed(1)
dice = numpy.random.RandomState(1)
texts = [" ".join(dice.choice(["a", "good", "bad", "film", "was", "seen"], 4)) for _ in range(64)]
targets = numpy.array([float("good" in text) for text in texts])
words = keras.layers.TextVectorization(max_tokens=20, output_sequence_length=4)
words.adapt(texts)
kinds = keras.layers.StringLookup(vocabulary=["a", "b"])
numbers = keras.layers.IntegerLookup()
numbers.adapt(numpy.arange(5))

text, kind, number = (
    keras.Input((1,), dtype="string"), keras.Input((1,), dtype="string"), keras.Input((1,), dtype="int64"),
)
parts = [
    keras.layers.Embedding(20, 4)(words(text)), keras.layers.Embedding(4, 4)(kinds(kind)),
    keras.layers.Embedding(8, 4)(numbers(number)),
]
joined = keras.layers.GlobalAveragePooling1D()(keras.layers.Concatenate(axis=1)(parts))
model = keras.Model([text, kind, number], keras.layers.Dense(1, activation="sigmoid")(keras.layers.Dropout(0.2)(joined)))
model.compile("adam", "binary_crossentropy")
given = [tensorflow.constant(texts), tensorflow.constant(dice.choice(["a", "b", "c"], 64)), dice.randint(0, 7, 64)]
given = [numpy.asarray(each).reshape(64, 1) for each in given]
LATEST = ".pedl/vocabulary/latest"
is_first = not os.path.lexists(LATEST)


class Dies(keras.callbacks.Callback):
    """Kills this process once, when there is a checkpoint."""

    def on_train_batch_end(self, batch, logs=None):
        if "DIES" in os.environ and is_first and os.path.lexists(LATEST):
            os.kill(os.getpid(), signal.SIGKILL)


history = model.fit(given, targets, batch_size=4, epochs=4, verbose=0, callbacks=[Dies()])
print(history.history["loss"])
print(hashlib.sha256(b"".join(numpy.asarray(each).tobytes() for each in model.trainable_weights)).hexdigest())
