"""The examples run under plain Python as they are, learn what they should, and say so."""

import re
import subprocess
import sys

import pytest
import support


def accuracy(ended):
    found = re.search(r"test accuracy (\d\.\d+)$", ended.stdout, re.MULTILINE)
    assert found, ended
    return float(found.group(1))


@pytest.mark.stack("keras3")
def test_keras_fit_images_learns_to_read_digits(script_run):
    ended = script_run(support.EXAMPLES / "keras_fit_images.py").python().check()
    assert accuracy(ended) > 0.9
    assert len(ended.hashes) == 1


@pytest.mark.stack("keras2")
def test_keras2_fit_generator_images_learns_to_read_digits(script_run):
    ended = script_run(support.EXAMPLES / "keras2_fit_generator_images.py").python().check()
    assert accuracy(ended) > 0.9
    assert len(ended.hashes) == 1


# -- simple model definitions ----------------------------------------------------------------------------------------

EPOCH = 1875


def definition(script_run, configuration):
    """A run of the model definition of this stack's Keras, as `pedl-run --config FILE DIR`."""
    generation = "keras2" if sys.version_info < (3, 8) else "keras3"
    model = support.EXAMPLES / "simple_model_definition" / generation
    run = script_run(model, options=["--config", model / configuration, "--exact", "--trial-dir", "trial"])
    run.trial = support.Trial(run.directory / "trial")
    return run


@pytest.mark.stack("keras", "keras2.2-tensorflow1")
def test_p1_p4_p5_one_step_of_the_simple_model_definition(script_run):
    run = definition(script_run, "const.yaml")
    ended = run.run().check()
    assert "epochs: [0] last: {" in ended.stdout
    assert "val_loss" in ended.stdout
    steps = [event["batches"] for event in run.trial.events if event["event"] == "step"]
    assert steps == [[1, 100]]


@pytest.mark.stack("keras2", "keras2.2-tensorflow1", "keras3-jax")
def test_p2_the_simple_model_definition_killed_in_its_extended_part(script_run):
    """Epochs end after 1 875, 3 750 and 5 625 batches, where Keras itself ends them; 64 steps are 6 400."""
    undisturbed = definition(script_run, "long.yaml")
    ended = undisturbed.run().check()
    assert "epochs: [0, 1, 2, 3] last: {" in ended.stdout
    epochs = {}
    for event in undisturbed.trial.events:
        if event["event"] == "step":
            epochs.setdefault(event["epoch"], []).append(event["batches"][1])
    assert [steps[-1] for _, steps in sorted(epochs.items())] == [1800, 3700, 5600, 6400]
    validations = [event["batch"] for event in undisturbed.trial.events if event["event"] == "validation"]
    assert [batch for batch in validations if batch % EPOCH == 0] == [EPOCH, 2 * EPOCH, 3 * EPOCH]
    assert validations[-1] == 6400

    killed = definition(script_run, "long.yaml")
    killed.options += ["--checkpoint-seconds", "0.2"]
    running = killed.start()
    running.wait_until(lambda: (killed.trial.checkpoint or 0) > 2 * EPOCH)
    running.kill_everything()
    assert "resuming after batch" in killed.run().check().stderr
    assert killed.hashes == ended.hashes


# -- trial classes ---------------------------------------------------------------------------------------------------


@pytest.mark.stack("keras3-jax")
def test_the_trial_of_keras_is_exact_learns_to_read_digits_and_is_opened_by_keras_alone(script_run):
    model = support.EXAMPLES / "trial_classes" / "keras"
    options = ["--config", model / "const.yaml", "--exact", "--checkpoint-seconds", "0.2"]

    def trained(*kills):
        run = script_run(model, options=options)
        for batches in kills:
            run.start_and_kill(lambda: (run.trial.checkpoint or 0) > batches)  # noqa: B023 - called at once
        ended = run.run().check()
        last = [event for event in run.trial.events if event["event"] == "validation"][-1]
        assert last["batch"] == 1600, ended
        assert last["metrics"][next(name for name in last["metrics"] if "acc" in name)] > 0.9
        return run, last["metrics"]

    whole, metrics = trained()
    killed, metrics_of_killed = trained(150, 700)
    assert metrics_of_killed == metrics
    assert weights_of(killed) == weights_of(whole)


def weights_of(run):
    """The hashes of the weights that Keras, without pedl, finds in what is exported of a trial's last checkpoint."""
    command = [support.executable(), "--pedl", "checkpoint", "export", str(run.trial.directory)]
    subprocess.run([*command, "--python", sys.executable, "--output", "digits.h5"], cwd=str(run.directory), check=True)
    code = (
        "import hashlib, keras\nmodel = keras.models.load_model('digits.h5', compile=False)\n"
        "print([hashlib.sha256(one.tobytes()).hexdigest() for one in model.get_weights()])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=str(run.directory), check=True, stdout=subprocess.PIPE)
    return done.stdout.decode().splitlines()[-1]
