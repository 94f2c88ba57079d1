"""The examples run under plain Python as they are, learn what they should, and say so."""

import re
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
