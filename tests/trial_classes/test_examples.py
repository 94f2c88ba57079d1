"""The examples run unchanged under plain Python, reach their stated accuracy, and print it."""

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
    """Epochs end after 1 875, 3 750 and 5 625 batches, as in Keras itself; 64 steps are 6 400."""
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

# What the framework alone computes from an export: `right`, the validation rows it predicts correctly, and `weights`.
OF_KERAS = """
import keras
images, digits = data.make_images(1000, 0.15, seed=2)
model = keras.models.load_model("export.h5", compile=False)
right, weights = model.predict(images).argmax(1) == digits.argmax(1), model.get_weights()
"""
OF_TF_KERAS = """
import tensorflow as tf
reviews, labels = data.make_reviews(1000, seed=2)
model = tf.keras.models.load_model("export.h5", compile=False)
right, weights = (model.predict(reviews) > 0.5) == (labels > 0.5), model.get_weights()
"""
OF_A_SAVED_MODEL = """
import tensorflow.compat.v1 as tf

def predict(folder, name, output, **inputs):
    with tf.Session(graph=tf.Graph()) as session:
        signature = tf.saved_model.loader.load(session, ["serve"], folder).signature_def[name]
        assert set(signature.inputs) == set(inputs), signature
        feeds = {signature.inputs[name].name: value for name, value in inputs.items()}
        return session.run(signature.outputs[output].name, feeds)

def variables(folder):
    reader = tf.train.load_checkpoint(folder + "/variables/variables")
    return [reader.get_tensor(name) for name in sorted(reader.get_variable_to_shape_map())]
"""
OF_TENSORFLOW = """
images, labels = data.make_images(1000, 0.15, seed=2)
right = predict("export", "probabilities", "probabilities", images=images).argmax(1) == labels
accuracy = predict("export", "serving_default", "accuracy", images=images, labels=labels)
assert abs(accuracy - right.mean()) < 1e-5, accuracy
weights = variables("export")
"""
OF_AN_ESTIMATOR = """
people, labels = data.make_people(1000, seed=2)
folder = ".pedl/estimator/work/exports/raw"
people = {name: values[:, None] for name, values in people.items()}
right, weights = predict(folder, "predict", "class_ids", **people)[:, 0] == labels, variables(folder)
"""
OF_PYTORCH = """
import torch
from network import Network
signals = data.Signals(800, 0.4, seed=2, is_augmented=False)
network = Network(len(data.KINDS)).eval()
# That of torch 1.13 reads no floats.
safely = {"weights_only": True} if torch.__version__ >= "2" else {}
state = torch.load("export.pt", **safely)["model_state_dict"]
network.load_state_dict(state)
with torch.no_grad():
    scores = network(torch.stack([signals[place][0] for place in range(len(signals))]))
right, weights = scores.argmax(1).numpy() == signals.labels, [value.numpy() for value in state.values()]
"""
WITHOUT_PEDL = """
import hashlib, sys
try:
    import pedl
except ImportError:
    sys.path.insert(0, sys.argv[1])
else:
    raise SystemExit("pedl is there")
import data
"""
TOLD = """
print("OPENED", right.mean(), [hashlib.sha256(one.tobytes()).hexdigest() for one in weights])
"""


# The file that an example is exported to, and the code that opens it. The Estimator writes a SavedModel with its checkpoint.
EXPORTS = {
    "keras": ("export.h5", OF_KERAS),
    "tf_keras": ("export.h5", OF_TF_KERAS),
    "tensorflow": ("export", OF_A_SAVED_MODEL + OF_TENSORFLOW),
    "estimator": (None, OF_A_SAVED_MODEL + OF_AN_ESTIMATOR),
    "pytorch": ("export.pt", OF_PYTORCH),
}


@pytest.mark.parametrize(
    ("name", "stated", "batches"),
    [
        pytest.param("keras", 0.9, 1600, marks=pytest.mark.stack("keras3-jax")),
        pytest.param("tf_keras", 0.9, 800, marks=pytest.mark.stack("tfkeras-1.15")),
        pytest.param("tensorflow", 0.9, 800, marks=pytest.mark.stack("keras2-tensorflow1")),
        pytest.param("estimator", 0.85, 800, marks=pytest.mark.stack("keras2-tensorflow1")),
        pytest.param("pytorch", 0.9, 300, marks=pytest.mark.stack("torch")),
    ],
)
def test_a_trial_class_reaches_its_metric_is_exact_and_is_opened_by_its_framework_alone(script_run, name, stated, batches):
    model = support.EXAMPLES / "trial_classes" / name
    options = ["--config", model / "const.yaml", "--exact", "--checkpoint-seconds", "0.2"]

    def trained(*kills):
        run = script_run(model, options=options)
        for part in kills:
            run.start_and_kill(lambda: (run.trial.checkpoint or 0) > part * batches)  # noqa: B023 - called at once
        ended = run.run().check()
        last = [event for event in run.trial.events if event["event"] == "validation"][-1]
        assert last["batch"] == batches, ended
        accuracy = last["metrics"][min((one for one in last["metrics"] if "acc" in one), key=len)]
        opened = opened_without_pedl(run, model)
        assert accuracy > stated
        assert abs(float(opened.split()[1]) - accuracy) < 0.005
        return last["metrics"], opened

    undisturbed = trained()
    assert trained(0.1, 0.45) == undisturbed


def opened_without_pedl(run, model):
    """What the framework says of an export of the last checkpoint: its accuracy, and the hashes of its weights."""
    output, code = EXPORTS[model.name]
    if output is not None:
        command = [support.executable(), "--pedl", "checkpoint", "export", str(run.trial.directory)]
        subprocess.run([*command, "--python", sys.executable, "--output", output], cwd=str(run.directory), check=True)
    command = [sys.executable, "-I", "-c", WITHOUT_PEDL + code + TOLD, str(model)]
    done = subprocess.run(command, cwd=str(run.directory), check=True, stdout=subprocess.PIPE)
    return done.stdout.decode().splitlines()[-1]
