"""Trial classes of Keras: `KerasTrial`, `KerasFunctionalTrial`, `TFKerasTrial`."""
import json
import subprocess
import sys

import pytest
import support

KERAS = pytest.mark.stack("keras3-jax", "keras2-tensorflow1")
TENSORFLOW = pytest.mark.stack("keras3-tensorflow", "tfkeras-1.15")

DEFINITION = support.ROOT / "tests" / "definitions" / "keras_trial"

CONFIGURATION = """
hyperparameters:
  framework: {framework}
  trial: {trial}
  loaders: {loaders}
  weighted: {weighted}
  compiled: {compiled}
  stops: {stops}
  own_session: {own_session}
batches_per_step: 5
min_validation_period: 2
searcher: {{name: single, metric: {metric}, max_steps: {steps}}}
reproducibility: {{experiment_seed: 7}}
max_restarts: 0
checkpoint_policy: all
"""


@pytest.fixture
def trial(script_run, tmp_path):
    """A function that makes a run of the definition: 5 steps of 5 batches, 7 in an epoch, validated after 2 and 4."""

    def make(kind, *options, metric="val_loss", steps=5, **settings):
        given = {"loaders": "sequences", "weighted": "false", "compiled": "true", "stops": "false", "own_session": "false"}
        given.update(settings)
        framework = "tensorflow" if kind == "tf" else "keras"
        file = tmp_path / "configuration-{}.yaml".format(len(list(tmp_path.glob("*.yaml"))))
        file.write_text(CONFIGURATION.format(framework=framework, trial=kind, metric=metric, steps=steps, **given))
        notes = file.with_suffix(".notes")
        notes.write_text("")
        run = script_run(DEFINITION, options=["--config", file, *options], environment={"NOTES": str(notes)})
        run.notes = lambda: notes.read_text().splitlines()
        return run

    return make


@pytest.fixture(autouse=True)
def in_a_copy(monkeypatch, tmp_path):
    """The definition writes files into its directory."""
    import shutil

    copy = tmp_path / "keras_trial"
    shutil.copytree(str(DEFINITION), str(copy), ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(f"{__name__}.DEFINITION", copy)
    return copy


def steps_of(run, kind):
    events = [event for event in run.trial.events if event["event"] == kind]
    return [(event.get("batch") or event["batches"][1], sorted(event["metrics"])) for event in events]


def check_steps(run, training, validation):
    """Steps and validations are where the plan has them, and metrics have the names that the user chose."""
    steps = steps_of(run, "step")
    assert [batch for batch, _ in steps] == [5, 10, 15, 20, 25]
    assert all(set(names) >= set(training) for _, names in steps)
    assert steps_of(run, "validation") == [(batch, sorted(validation)) for batch in (10, 20, 25)]


def callbacks_of(directory):
    return (directory / "callbacks.txt").read_text().splitlines()


def read(directory):
    """`(tag, step, value)` of everything that TensorFlow reads from event files."""
    code = "import json, sys, event_reader\nprint(json.dumps(event_reader.read(sys.argv[1])))"
    command = [sys.executable, "-W", "ignore", "-c", code, directory]
    done = subprocess.run(command, cwd=str(support.SCRIPTS), stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.decode().splitlines()[-1])


@KERAS
def test_m1_c1_c9_k4_a_keras_trial_has_its_names_steps_and_validations(trial, in_a_copy):
    run = trial("plain", metric="squared")
    ended = run.run().check()
    names = ["distance", "loss", "spread", "squared", "validation_error"]
    check_steps(run, ["distance", "loss"], [f"val_{name}" for name in names])
    assert len(ended.hashes) == 1
    lines = callbacks_of(in_a_copy)
    assert lines[:3] == ["trial", "begin 1", "end 1 5 ['distance', 'loss']"]
    validation = ["spread", "squared", "val_loss", "validation_error"]
    assert [line for line in lines if line.startswith("valid")] == [
        line for step in (2, 4, 5) for line in (f"validation {step}", f"validated {step} {validation}")
    ]
    # 25 batches, 7 in an epoch: the epoch that is cut short ends like the others.
    assert (in_a_copy / "epochs.txt").read_text().split() == ["0", "1", "2", "3"]
    # The same as in Keras: the enqueuer of 2.x also calls the data set at the end of the epoch that it builds ahead.
    assert run.notes().count("epoch") in (3, 4)


@KERAS
def test_k4_a_metric_that_is_called_like_one_of_a_validation_is_one_of_batches_too(trial, in_a_copy):
    run = trial("prefixed", metric="val_distance")
    run.run().check()
    check_steps(run, ["distance", "loss"], ["val_distance", "val_loss"])
    validations = [event["metrics"] for event in run.trial.events if event["event"] == "validation"]
    assert [one["val_distance"] for one in validations] == [5, 5, 5]
    assert [line for line in callbacks_of(in_a_copy) if line.startswith("validated")] == [
        f"validated {step} ['val_distance', 'val_loss']" for step in (2, 4, 5)
    ]


@KERAS
@pytest.mark.parametrize("kind", ["plain", "functional"])
def test_p2_a_killed_trial_is_the_undisturbed_one(trial, in_a_copy, kind):
    whole = trial(kind, "--exact").run().check()
    undisturbed = callbacks_of(in_a_copy)
    (in_a_copy / "callbacks.txt").unlink()
    (in_a_copy / "epochs.txt").unlink()
    run = trial(kind, "--exact", "--checkpoint-seconds", "0")
    for batches in (7, 13):
        run.start_and_kill(lambda least=batches: run.trial.checkpoint and run.trial.events[-1].get("batch", 0) >= least)
    assert run.run().check().hashes == whole.hashes
    assert callbacks_of(in_a_copy) == undisturbed
    assert run.trial.count("resumed") == 2


@KERAS
def test_a_trial_of_several_outputs_is_searched_by_its_own_names(trial):
    run = trial("functional", metric="sign_error")
    run.run().check()
    names = [set(names) for _, names in steps_of(run, "validation")]
    assert len(names) == 3
    assert all(one >= {"val_loss", "val_distance", "val_sign_error"} for one in names)


@KERAS
def test_k2_the_loaders_are_a_pair(trial):
    support.refused(trial("plain", loaders="three").run(), "`make_data_loaders` returned an object of class `tuple` of 3")


@KERAS
def test_k3_arrays_are_no_data_set(trial):
    support.refused(trial("plain", loaders="arrays").run(), "class `ndarray`", "InMemorySequence")


@KERAS
@pytest.mark.parametrize("loaders", ["sequences", "items"])
def test_k4_weights_of_samples_count(trial, loaders):
    # The targets of the rows without weight are a million, squared.
    run = trial("plain", weighted="true", loaders=loaders, steps=2)
    run.run().check()
    losses = [event["metrics"]["loss"] for event in run.trial.events if event["event"] == "step"]
    assert all(0 < loss < 100 for loss in losses), losses


@KERAS
def test_k7_k9_who_builds_the_batches(trial):
    hashes = set()
    for loaders in ("main", "threads", "processes"):
        run = trial("plain", loaders=loaders)
        hashes.update(run.run().check().hashes)
        built = {tuple(line.split()[1:]) for line in run.notes() if line.startswith("built")}
        if loaders == "processes":
            assert len({pid for pid, _ in built}) >= 2
        else:
            assert len({pid for pid, _ in built}) == 1
            assert {is_main for _, is_main in built} >= {str(loaders == "main")}
    assert len(hashes) == 1


@TENSORFLOW
def test_k1_a_trial_of_tf_keras_has_keras_names(trial, in_a_copy):
    run = trial("tf")
    run.run().check()
    metrics = steps_of(run, "validation")[0][1]
    assert "val_loss" in metrics
    assert len(metrics) == 2
    assert [batch for batch, _ in steps_of(run, "validation")] == [10, 20, 25]
    assert callbacks_of(in_a_copy)[-1].startswith("validated 5 ['val_")


@TENSORFLOW
def test_k1_a_killed_trial_of_tf_keras_is_the_undisturbed_one(trial, in_a_copy):
    whole = trial("tf", "--exact").run().check()
    (in_a_copy / "callbacks.txt").unlink()
    run = trial("tf", "--exact", "--checkpoint-seconds", "0")
    run.start_and_kill(lambda: run.trial.events[-1].get("batch", 0) >= 8)
    assert run.run().check().hashes == whole.hashes


@TENSORFLOW
def test_k3_a_killed_trial_with_datasets_of_tensorflow_is_the_undisturbed_one(trial):
    whole = trial("tf", "--exact", loaders="datasets").run().check()
    run = trial("tf", "--exact", "--checkpoint-seconds", "0", loaders="datasets")
    run.start_and_kill(lambda: run.trial.events[-1].get("batch", 0) >= 12)
    assert run.run().check().hashes == whole.hashes


@TENSORFLOW
def test_k17_data_is_downloaded_once_and_before_the_loaders_are_made(trial):
    run = trial("tf", "--checkpoint-seconds", "0")
    run.start_and_kill()
    run.run().check()
    lines = [line for line in run.notes() if line.startswith(("download", "loaders"))]
    assert lines == ["download", "loaders in downloaded", "loaders in downloaded"]


@TENSORFLOW
def test_k20_a_model_that_is_not_compiled_is_refused(trial):
    run = trial("tf", compiled="false")
    support.refused(run.run(), "a model that is not compiled", "hint: call `model.compile(")
    assert not run.trial.events


@TENSORFLOW
def test_k3_k6_datasets_of_tensorflow_are_trained_on_and_validated_on(trial, in_a_copy):
    run = trial("tf", loaders="datasets")
    run.run().check()
    assert [batch for batch, _ in steps_of(run, "step")] == [5, 10, 15, 20, 25]
    validations = steps_of(run, "validation")
    assert [batch for batch, _ in validations] == [10, 20, 25]
    assert all("val_loss" in names and len(names) == 2 for _, names in validations)
    # All of its rows, which are 7 batches, in each epoch.
    assert (in_a_copy / "epochs.txt").read_text().split() == ["0", "1", "2", "3"]


@TENSORFLOW
def test_k3_one_data_set_of_tensorflow(trial):
    run = trial("tf", loaders="sequence and dataset")
    run.run().check()
    assert [batch for batch, _ in steps_of(run, "validation")] == [10, 20, 25]
    run = trial("tf", loaders="dataset and sequence")
    if support.os.environ["PEDL_STACK"] == "tfkeras-1.15":
        support.refused(run.run(), "a `tf.data.Dataset` to train on, and a `Sequence` to validate on")
    else:
        run.run().check()
        assert [batch for batch, _ in steps_of(run, "validation")] == [10, 20, 25]


def cluster(**processes):
    """`TF_CONFIG` with this many processes of each kind; this process is the first worker."""
    addresses = {kind: [f"127.0.0.1:{port}" for port in range(count)] for kind, count in processes.items()}
    return json.dumps({"cluster": addresses, "task": {"type": "worker", "index": 0}})


@TENSORFLOW
@pytest.mark.parametrize("processes", [{"worker": 2}, {"chief": 1, "worker": 1}], ids=["workers", "chief"])
def test_k5_several_workers_are_refused_where_they_would_not_share_the_data(trial, processes):
    run = trial("tf")
    run.environment["TF_CONFIG"] = cluster(**processes)
    expected = "`TF_CONFIG` names 2 workers, and this is TensorFlow ", "expected: TensorFlow 2.15", "hint: unset `TF_CONFIG`"
    support.refused(run.run(), *expected)
    assert not run.trial.events


@KERAS
def test_k5_other_trials_of_keras_are_trained_by_one_process(trial):
    run = trial("plain")
    run.environment["TF_CONFIG"] = cluster(worker=2)
    support.refused(run.run(), "`TF_CONFIG` names 2 workers, and the trial class `Trained` is trained by one process")
    assert not run.trial.events


@TENSORFLOW
def test_k5_servers_of_parameters_are_refused_and_one_worker_is_alone(trial):
    run = trial("tf")
    run.environment["TF_CONFIG"] = cluster(chief=1, worker=1, ps=1)
    support.refused(run.run(), "`TF_CONFIG` names 2 workers, and a process of the kind `ps`")
    run = trial("tf", steps=1, loaders="datasets")
    run.environment["TF_CONFIG"] = cluster(worker=1, evaluator=1)
    assert "TF_CONFIG" not in run.run().check().stderr


@KERAS
def test_k22_a_callback_of_keras_may_end_the_trial(trial):
    run = trial("plain", stops="true")
    run.run().check()
    # Two epochs, and a validation of the model at the end.
    assert [batch for batch, _ in steps_of(run, "validation")][-1] == 14


@pytest.mark.stack("tfkeras-1.15", "keras2-tensorflow1")
@pytest.mark.parametrize("given", [False, True], ids=["default", "own"])
def test_k21_the_session_has_the_configuration_of_the_trial(trial, given):
    kind = "tf" if support.os.environ.get("KERAS_PACKAGE") else "plain"
    run = trial(kind, loaders="sequences", steps=1, own_session=str(given).lower())
    ended = run.run().check()
    assert f"SESSION soft True threads {3 if given else 0}" in ended.stdout


@KERAS
def test_k20_hyperparameters_reach_the_model(trial):
    run = trial("plain", steps=1)
    assert "HPARAMS ['compiled'" in run.run().check().stdout


@TENSORFLOW
def test_c10_c11_what_tensorboard_reads_is_there_once_after_a_kill(trial, in_a_copy):
    run = trial("tf", "--checkpoint-seconds", "0")
    run.start_and_kill(lambda: run.trial.events[-1].get("batch", 0) >= 12)
    run.run().check()
    training, validation = (read(str(in_a_copy / "logs" / "1" / kind)) for kind in ("training", "validation"))
    steps = [event for event in run.trial.events if event["event"] == "step"]
    means = {(name, step["step"]): value for step in steps for name, value in step["metrics"].items()}
    assert [(tag, step) for tag, step, _ in training if tag == "loss"] == [("loss", step) for step in (1, 2, 3, 4, 5)]
    assert all(abs(float(value) - means[tag, step]) < 1e-6 for tag, step, value in training)
    assert [step for tag, step, _ in validation if tag == "val_loss"] == [2, 4, 5]
    # That of Keras, in the trial's folder.
    found = [path for path in (in_a_copy / "tensorboard" / "1").rglob("*tfevents*") if read(str(path.parent))]
    assert found
