"""Loads what `pedl checkpoint export` made, with the framework alone, and prints hashes as `fit_and_export.py` does."""
import hashlib
import os
import sys

import numpy as np

path = sys.argv[1]
rng = np.random.RandomState(5)
data = rng.rand(64, 6).astype("float32")


def digest(array):
    """The hash of an array's bytes."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def tell_weights(arrays):
    """Prints a hash of weights, whatever their order."""
    print("sha256 of the weights:", hashlib.sha256("".join(sorted(map(digest, arrays))).encode()).hexdigest())


if path.endswith(".npz"):
    with np.load(path) as held:
        tell_weights([held[name] for name in held.files])
elif os.path.isdir(path):
    import tensorflow as tf

    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        graph = tf.compat.v1.saved_model.loader.load(session, ["serve"], path)
        signature = graph.signature_def["serving_default"]
        feeds = {tensor.name: data for tensor in signature.inputs.values()}
        # Dropout and the like do nothing then, as in `predict`.
        (output,) = signature.outputs.values()
        print("sha256 of what is predicted:", digest(session.run(output.name, feeds)))
else:
    import keras

    model = keras.models.load_model(path, compile=False)
    print("sha256 of what is predicted:", digest(model.predict(data, batch_size=64, verbose=0)))
    tell_weights(model.get_weights())
