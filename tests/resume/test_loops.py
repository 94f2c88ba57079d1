"""Training that is not intercepted runs as under python, and one line says so."""

import os
import re
import subprocess
import sys

import pytest
import support

SCRIPT = support.SCRIPTS / "own_loop.py"
OUTSIDE = "an optimizer is applied outside of `fit`, where nothing is intercepted"
TRACED = "an optimizer is applied in a `tf.function` of the script's own, which may be called again unseen"
LINE = f"pedl: {OUTSIDE}: it trains as under python, and a kill loses that\n"

on_tensorflow = pytest.mark.stack("keras3-tensorflow")
IN_A_THREAD = "a model is trained in a thread of the script's own"
LOOPS = {"keras3-tensorflow": ["tape", "function"], "keras3-jax": ["stateless"]}.get(os.environ.get("PEDL_STACK"), [])


@pytest.mark.stack("keras3")
@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_of_the_scripts_own_runs_as_under_python_and_says_so_once(script_run, loop):
    run = script_run(SCRIPT, loop, loop)
    expected, found = run.python().check(), run.run().check()
    assert found.stdout == expected.stdout
    assert LINE in found.stderr
    assert found.stderr.count("pedl:") == 1
    assert not run.trial.directory.exists()


@pytest.mark.stack("keras3")
@pytest.mark.parametrize("loop", LOOPS)
def test_exact_refuses_it_before_its_first_step(script_run, loop):
    ended = script_run(SCRIPT, loop, options=["--exact"]).run().check(77)
    assert "epoch" not in ended.stdout
    assert f"pedl: error: `--exact` was given, and {OUTSIDE}\n  at own_loop.py:" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.stack("keras3")
@pytest.mark.parametrize("parts", [["fit"], ["fit-eagerly"], ["fit", "fit-eagerly", "fit"]], ids="+".join)
def test_the_frameworks_own_loop_is_not_taken_for_one(script_run, parts):
    ended = script_run(SCRIPT, *parts).run().check()
    assert OUTSIDE not in ended.stderr
    assert ended.stderr.count("exact resume: yes") == 1


@pytest.mark.stack("keras3")
@pytest.mark.parametrize("loop", LOOPS)
def test_one_before_fit_is_run_again_in_a_replay(script_run, loop):
    run = script_run(SCRIPT, loop, "fit", options=["--checkpoint-period", "1", "--batches-per-step", "3"])
    expected = run.python().check()
    found = run.run().check()
    assert found.hashes == expected.hashes
    assert found.stderr.count(OUTSIDE) == 1
    if loop == "function":
        # A traced function may be called again, and in a replay it would use variables without their true values.
        assert f"exact resume: no: {TRACED}; no checkpoints are taken" in found.stderr
        assert run.trial.count("checkpoint") == 0
    else:
        assert found.stderr.count("exact resume: yes") == 1
        assert run.trial.count("checkpoint") > 0


@pytest.mark.stack("keras3", "keras2.15-tensorflow2.15")
def test_a_model_that_is_trained_in_a_thread_trains_as_under_python_and_that_is_said(script_run):
    run = script_run(support.SCRIPTS / "fits_in_thread.py")
    expected, found = run.python().check(), run.run().check()
    assert found.hashes == expected.hashes
    assert len(found.hashes) == 1
    said = [line for line in found.stderr.splitlines() if line.startswith("pedl:")]
    assert said == [f"pedl: {IN_A_THREAD}: it trains as under python, and a kill loses that"]
    assert not run.trial.directory.exists()


@pytest.mark.stack("keras3", "keras2.15-tensorflow2.15")
def test_exact_refuses_a_model_that_is_trained_in_a_thread(script_run):
    ended = script_run(support.SCRIPTS / "fits_in_thread.py", options=["--exact"]).run().check(77)
    assert f"pedl: error: `--exact` was given, and {IN_A_THREAD}\n  at fits_in_thread.py:" in ended.stderr
    assert ended.hashes == []


LEAVES = support.SCRIPTS / "leaves_the_process.py"
OF_THREADS = "a thread of the script reads variables that training changes"
OF_CHILDREN = "a child process of the script has changed `[^`]*log.txt`, which a replay does again"
OF_SPAWNED = "the script starts a process by `spawn`, which a replay does again"


@pytest.mark.stack("keras3", "keras2.15-tensorflow2.15")
@pytest.mark.parametrize("way", ["saves", "predicts"])
def test_what_a_thread_reads_of_a_model_is_a_cause(script_run, way):
    check_cause(script_run(LEAVES, way, options=["--checkpoint-seconds", "0.01"]), OF_THREADS)


@pytest.mark.stack("keras3-jax")
@pytest.mark.parametrize(("ways", "cause"), [("prepares appends", OF_CHILDREN), ("spawns", OF_SPAWNED)])
def test_what_a_child_changes_while_the_parent_trains_is_a_cause(script_run, ways, cause):
    run = script_run(LEAVES, *ways.split(), options=["--checkpoint-seconds", "0.01"])
    check_cause(run, cause)


@pytest.mark.stack("keras3-jax")
def test_what_a_child_has_changed_is_known_to_the_next_start_from_its_beginning(script_run):
    run = script_run(LEAVES, "appends", options=["--checkpoint-batches", "4"])
    running = run.start()
    running.wait_until((run.trial.directory / "child_changes.txt").exists)
    running.kill_everything()
    found = run.run().check()
    assert re.search(f"exact resume: no: {OF_CHILDREN}; no checkpoints are taken", found.stderr)
    assert "exact resume: yes" not in found.stderr


@pytest.mark.stack("keras3-jax")
def test_a_child_that_changes_nothing_while_the_parent_trains_is_none(script_run):
    run = script_run(LEAVES, "prepares", "computes", options=["--exact", "--checkpoint-seconds", "0.01"])
    expected, found = run.python().check(), run.run().check()
    assert found.hashes == expected.hashes
    assert run.trial.count("checkpoint") > 0


def check_cause(run, cause):
    expected, found = run.python().check(), run.run().check()
    assert found.hashes == expected.hashes
    assert re.search(f"exact resume: no: {cause}; no checkpoints are taken", found.stderr)
    # A checkpoint may be of training that came before.
    assert all(event["batch"] <= 8 for event in run.trial.events if event["event"] == "checkpoint")


@on_tensorflow
@pytest.mark.parametrize("loop", LOOPS)
def test_after_fit_no_checkpoint_is_taken_any_more(script_run, loop):
    run = script_run(SCRIPT, "fit", loop, "fit", options=["--checkpoint-period", "1", "--batches-per-step", "3"])
    expected = run.python().check()
    found = run.run().check()
    assert found.hashes == expected.hashes
    assert found.stderr.count(OUTSIDE) == 1
    assert f"exact resume: no: {OUTSIDE}; no checkpoints are taken" in found.stderr
    batches = [event["batch"] for event in run.trial.events if event["event"] == "checkpoint"]
    assert batches
    assert max(batches) <= 8


TRAINER = """
import keras
import numpy as np
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer


class Trained(TensorFlowTrainer, keras.layers.Dense):
    def __init__(self):
        keras.layers.Dense.__init__(self, 1, use_bias=False, kernel_initializer="ones")
        TensorFlowTrainer.__init__(self)


x = np.arange(8.0, dtype="float32").reshape(4, 2)
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, x[:, :1], verbose=0)
trained = Trained()
trained.compile("sgd", "mse")
history = trained.fit(((x, x[:, :1]) for _ in range(3)), epochs=1, verbose=0)
print(history.history["loss"])
"""


@on_tensorflow
def test_a_trainer_that_is_no_model_is_left_alone_after_one_that_is(script_run, tmp_path):
    (tmp_path / "train.py").write_text(TRAINER)
    run = script_run(tmp_path / "train.py")
    assert run.run().check().stdout == run.python().check().stdout


# -- PyTorch -----------------------------------------------------------------------------------------------------------

TORCH = """
import sys
import torch
model = torch.nn.Linear(4, 1)
if "train" in sys.argv:
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        print("step", step, flush=True)
"""
TORCH_LINE = "pedl: PyTorch is not intercepted: it trains as under python, and a kill loses that\n"


def _python_with_torch():
    """An interpreter that has a PyTorch with hooks for optimizers, or None."""
    code = "import torch.optim.optimizer as o; o.register_optimizer_step_pre_hook"
    for python in filter(None, [os.environ.get("PEDL_TORCH_PYTHON"), sys.executable, "/usr/bin/python3"]):
        if os.path.exists(python) and subprocess.call([python, "-c", code], stderr=subprocess.DEVNULL) == 0:
            return python
    return None


@pytest.fixture(scope="module")
def torch_python():
    python = _python_with_torch()
    if python is None:
        pytest.skip("no Python here has PyTorch 2.1 or later; PEDL_TORCH_PYTHON names one")
    return python


@pytest.mark.parametrize("options", [["--mode", "auto"], ["--mode", "exec"]], ids=" ".join)
def test_pytorch_is_told_of_at_its_first_step(script_run, tmp_path, torch_python, options):
    script = tmp_path / "with_torch.py"
    script.write_text(TORCH)
    run = script_run(script, "train", options=["--python", torch_python] + options)
    ended = run.run().check()
    assert ended.stdout == "step 0\nstep 1\nstep 2\n"
    assert ended.stderr == TORCH_LINE
    assert not run.trial.directory.exists()
    assert script_run(script, options=["--python", torch_python]).run().check().stderr == ""
    exact = script_run(script, "train", options=["--python", torch_python, "--exact"]).run().check(77)
    assert exact.stdout == ""
    assert "`--exact` was given, and PyTorch is not intercepted\n  at with_torch.py:11\n" in exact.stderr


LEGACY = """
import numpy
import tf_keras
model = tf_keras.Sequential([tf_keras.layers.Dense(1, input_shape=(2,))])
model.compile("sgd", "mse")
print("compiled")
for _ in range(2):
    model.fit(numpy.zeros((4, 2)), numpy.zeros((4, 1)), verbose=0)
print("trained")
"""


@on_tensorflow
def test_the_keras_2_beside_tensorflow_is_told_and_refused(script_run, tmp_path):
    script = tmp_path / "legacy.py"
    script.write_text(LEGACY)
    ended = script_run(script).run().check()
    assert ended.stdout == "compiled\ntrained\n"
    told = "pedl: `tf_keras` is not intercepted: it trains as under python, and a kill loses that\n"
    assert ended.stderr.count(told) == 1
    ended = script_run(script, options=["--exact"]).run().check(77)
    assert ended.stdout == "compiled\n"
    assert "`--exact` was given, and `tf_keras` is not intercepted\n  at legacy.py:8" in ended.stderr
