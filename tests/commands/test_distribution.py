"""A training that is distributed over devices runs as under python, and says that it cannot be resumed exactly."""

import pytest

SCRIPT = """
import os
import sys
import keras
import numpy as np

x = np.arange(64.0, dtype="float32").reshape(32, 2) / 64


def fit():
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(4), keras.layers.BatchNormalization()])
    model.add(keras.layers.Dense(1))
    model.compile("adam", "mse", metrics=["mae"])
    history = model.fit(x, x[:, :1], batch_size=8, epochs=2, verbose=0, validation_data=(x, x[:, :1]))
    print(len(history.history["loss"]), "epochs of", len(model.get_weights()), "weights")


if sys.argv[1] == "tensorflow":
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        fit()
else:
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=["cpu:0", "cpu:1"]))
    fit()
"""


@pytest.mark.parametrize(
    ("backend", "what"),
    [
        pytest.param("tensorflow", "MirroredStrategy", marks=pytest.mark.stack("keras3-tensorflow")),
        pytest.param("jax", "DataParallel", marks=pytest.mark.stack("keras3-jax")),
    ],
)
def test_a_distributed_training_is_not_exact_and_says_so(script_run, tmp_path, monkeypatch, backend, what):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    run = script_run(script, backend, options=["--checkpoint-seconds", "0"])
    ended = run.start().wait().check()
    assert ended.stdout == "2 epochs of 8 weights\n"
    assert f"exact resume: no: training distributed over devices (`{what}`); no checkpoints are taken" in ended.stderr
    assert run.trial.count("checkpoint") == 0
    run = script_run(script, backend, options=["--exact"])
    assert "training distributed over devices" in run.start().wait().check(77).stderr
