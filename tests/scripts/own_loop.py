"""A training loop of the script's own, around the optimizer of a Keras model.

    own_loop.py PART...     in this order; each is one of
        fit                 the framework's loop, two epochs
        fit-eagerly         the same, run eagerly
        tape                `GradientTape` and `apply_gradients`, eagerly
        function            the same in a `tf.function`
        stateless           `stateless_apply` in a function of JAX
"""
import hashlib
import sys

import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
y = (x.sum(axis=1, keepdims=True) > 0).astype("float32")
layers = [keras.layers.Dense(8, "relu"), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
model = keras.Sequential([keras.layers.Input((4,))] + layers)
optimizer = keras.optimizers.Adam(0.01)
loss_of = keras.losses.MeanSquaredError()
model.compile(optimizer, "mse")


def batches():
    for start in range(0, 64, 16):
        yield x[start : start + 16], y[start : start + 16]


def fit(eagerly=False):
    model.run_eagerly = eagerly
    model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False)


def tape_loop(compiled):
    import tensorflow as tf

    def step(inputs, targets):
        with tf.GradientTape() as tape:
            loss = loss_of(targets, model(inputs, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    if compiled:
        step = tf.function(step)
    for epoch in range(2):
        for inputs, targets in batches():
            loss = step(inputs, targets)
        print("epoch", epoch, float(loss), flush=True)


def stateless_loop():
    import jax

    optimizer.build(model.trainable_variables)

    def loss_and_state(trainable, fixed, inputs, targets):
        outputs, fixed = model.stateless_call(trainable, fixed, inputs, training=True)
        return loss_of(targets, outputs), fixed

    @jax.jit
    def step(state, inputs, targets):
        trainable, fixed, slots = state
        gradients = jax.value_and_grad(loss_and_state, has_aux=True)
        (loss, fixed), gradients = gradients(trainable, fixed, inputs, targets)
        trainable, slots = optimizer.stateless_apply(slots, gradients, trainable)
        return loss, (trainable, fixed, slots)

    groups = model.trainable_variables, model.non_trainable_variables, optimizer.variables
    state = tuple([variable.value for variable in group] for group in groups)
    for epoch in range(2):
        for inputs, targets in batches():
            loss, state = step(state, inputs, targets)
        print("epoch", epoch, float(loss), flush=True)
    for group, values in zip(groups, state):
        for variable, value in zip(group, values):
            variable.assign(value)


PARTS = {
    "fit": fit,
    "fit-eagerly": lambda: fit(eagerly=True),
    "tape": lambda: tape_loop(False),
    "function": lambda: tape_loop(True),
    "stateless": stateless_loop,
}

for part in sys.argv[1:]:
    PARTS[part]()
    print("did", part, flush=True)
digest = hashlib.sha256()
for weights in model.get_weights():
    digest.update(weights.tobytes())
print(digest.hexdigest())
