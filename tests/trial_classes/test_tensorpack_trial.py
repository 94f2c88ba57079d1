"""`TensorpackTrial`: its metrics and when they come, that killed trials equal the undisturbed ones, and refusals."""

import json
import shutil
import signal
import subprocess
import sys
import textwrap

import pytest
import support
from support import events_of, metrics_of

STACK = pytest.mark.stack("tfkeras-1.15")

DEFINITION = support.ROOT / "tests" / "definitions" / "tensorpack_trial"

STEPS, BATCHES, PERIOD = 6, 10, 2
# The mean size of the batches of the 28 rows for validation: three full batches and a shorter one.
MEAN_ROWS = 7.0

OF_VALIDATIONS = ["accuracy", "first_value", "global_step", "rows_of_batch", "training"]


@pytest.fixture
def run_of(script_run, tmp_path):
    """A function that makes a run of the definition, in a separate copy, with the same seeds as all others."""
    made = []

    def make(*options, kind=None, entrypoint=":Trial", metric="val_accuracy", pause="0", steps=STEPS, seed=7):
        root = tmp_path / f"definition-{len(made)}" / "model"
        shutil.copytree(str(DEFINITION), str(root), ignore=shutil.ignore_patterns("__pycache__"))
        file = root.parent / "configuration.yaml"
        written = [
            support.seeded_configuration(BATCHES, steps).replace("metric: loss", f"metric: {metric}").replace(": 7", f": {seed}"),
            f"min_validation_period: {PERIOD}",
            f'entrypoint: "{entrypoint}"',
            "hyperparameters: {batch_size: 8, units: 16}",
            f"data: {{kind: {kind}}}" if kind else "",
        ]
        file.write_text("\n".join(written) + "\n")
        run = script_run(root, options=["--config", file, *options], environment={"PAUSE": pause})
        made.append(run)
        run.root = root
        return run

    return make


def refused(run, *texts):
    """Checks that nothing was trained, and that one error message says so."""
    support.refused(run.run(), *texts)
    assert events_of(run, "step") == []


# -- metrics and their moments -----------------------------------------------------------------------------------------


@STACK
def test_the_loss_and_training_metrics_are_means_over_the_batches_of_a_step(run_of):
    run = run_of()
    ended = run.run().check()
    assert "MODEL {'batch_size': 8, 'units': 16} replicated" in ended.stdout
    steps = metrics_of(run, "step")
    names = ["accuracy", "learning_rate", "loss", "rows_of_batch", "training"]
    assert [sorted(metrics) for metrics in steps] == [names] * STEPS
    assert {metrics["training"] for metrics in steps} == {1.0}
    rates = [sum(0.01 * 0.9 ** (batch / 10) for batch in range(first, first + 10)) / 10 for first in range(0, 60, 10)]
    assert [metrics["learning_rate"] for metrics in steps] == pytest.approx(rates)
    shown = [line.split(maxsplit=3)[1:] for line in ended.stdout.splitlines() if line.startswith("STEP")]
    assert [(int(step), int(count)) for step, count, _ in shown] == [(step, BATCHES) for step in range(1, STEPS + 1)]
    # Values without a mean, as the callbacks receive them.
    assert all("'losses'" in of_callbacks and "'norm/mean/EMA'" in of_callbacks for _, _, of_callbacks in shown)


@STACK
def test_validations_come_by_their_period_and_their_metrics_are_prefixed(run_of):
    run = run_of(steps=3)
    ended = run.run().check()
    validations = events_of(run, "validation")
    assert [event["batch"] for event in validations] == [20, 30]
    assert [sorted(event["metrics"]) for event in validations] == [[f"val_{name}" for name in OF_VALIDATIONS]] * 2
    assert [event["metrics"]["val_training"] for event in validations] == [0.0, 0.0]
    assert [event["metrics"]["val_global_step"] for event in validations] == [20.0, 30.0]
    # One pass over the set from its beginning. Its last batch is shorter.
    assert [event["metrics"]["val_rows_of_batch"] for event in validations] == [MEAN_ROWS] * 2
    assert len({event["metrics"]["val_first_value"] for event in validations}) == 1
    assert ended.stderr.count("the validation metric `val_losses` is left out: its shape differs between batches") == 1
    assert "'val_hidden/W'" in ended.stdout
    assert events_of(run, "evaluation") == []
    assert run.trial.checkpoint == 30


@STACK
def test_a_validation_ends_where_the_length_of_its_dataflow_says(run_of):
    run = run_of(kind="endless validation", steps=1)
    run.run().check()
    assert [metrics["val_rows_of_batch"] for metrics in metrics_of(run, "validation")] == [MEAN_ROWS]


@STACK
def test_nothing_but_the_model_and_its_validation_metrics_has_to_be_there(run_of):
    run = run_of(entrypoint=":Defaults", steps=1)
    run.run().check()
    assert [list(metrics) for metrics in metrics_of(run, "step")] == [["loss"]]
    assert [list(metrics) for metrics in metrics_of(run, "validation")] == [["val_accuracy"]]


@STACK
def test_the_metric_of_the_searcher_has_its_prefix(run_of):
    ended = run_of(metric="accuracies", steps=1).run()
    assert ended.code != 0
    assert "`accuracies`" in ended.stderr
    assert "`val_accuracy`" in ended.stderr


@STACK
def test_monitors_are_given_summaries_and_validations(run_of):
    run = run_of(steps=2)
    given = [line.split()[1:] for line in run.run().check().stdout.splitlines() if line.startswith("SCALAR")]
    of_step = [["10", "cross_entropy"], ["10", "accuracy"], ["10", "rate"]]
    assert given[:3] == of_step
    assert given[3:6] == [["20", name] for _, name in of_step]
    assert sorted(given[6:]) == [["20", f"val_{name}"] for name in OF_VALIDATIONS]
    stats = json.loads((run.root / "tensorboard" / "1" / "stats.json").read_text())
    assert [(each["epoch_num"], each["global_step"]) for each in stats] == [(1, 10), (2, 20)]
    assert stats[1]["val_rows_of_batch"] == MEAN_ROWS


# -- kills -------------------------------------------------------------------------------------------------------------


@STACK
@pytest.mark.parametrize("kind", ["slow", "seeded"])
def test_a_trial_that_is_killed_is_the_undisturbed_one(run_of, kind):
    undisturbed = run_of("--exact", kind=kind)
    expected = undisturbed.run().check()
    assert "exact resume: yes" in expected.stderr
    assert len(expected.hashes) == STEPS // PERIOD
    run = run_of("--exact", "--checkpoint-batches", "13,37", kind=kind, pause="0.1")
    run.kill_at_checkpoints(13, 37)
    run.run().check()
    assert run.hashes == expected.hashes
    assert run.trial.count("resumed") == 2
    assert summaries_of(run) == summaries_of(undisturbed)
    files = [each.root / "tensorboard" / "1" / "stats.json" for each in (run, undisturbed)]
    assert len({file.read_text() for file in files}) == 1


READ_EVENTS = """
import json, sys
from tensorflow.compat.v1.train import summary_iterator
events = [event for path in sys.argv[1:] for event in summary_iterator(path)]
values = [[event.step, value.tag, value.simple_value] for event in events for value in event.summary.value]
print(json.dumps([values, sum(bool(event.graph_def) for event in events)]))
"""


def summaries_of(run):
    """The contents of the event files of a run: values by steps and tags, each once, and the number of graphs."""
    files = sorted((run.root / "tensorboard" / "1").glob("events.out.tfevents.*"))
    command = [sys.executable, "-W", "ignore", "-c", READ_EVENTS, *map(str, files)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    values, graphs = json.loads(done.stdout.decode())
    found = {(step, tag): value for step, tag, value in values}
    assert len(found) == len(values) == 3 * STEPS + len(OF_VALIDATIONS) * STEPS // PERIOD
    assert graphs == 1
    return found


@STACK
def test_a_trial_that_is_killed_while_it_validates_is_the_undisturbed_one(run_of):
    expected = run_of("--exact", kind="slow").run().check()
    run = run_of("--exact", "--checkpoint-batches", "13,37", kind="slow", pause="0.1")
    for step in (2, 4):
        running = run.start()
        running.wait_until(lambda: f"VALIDATES {step}" in running.stdout)  # noqa: B023
        assert running.ends_within(0.25) is None
        assert f"VALIDATED {step}" not in running.kill_everything().stdout
    run.run().check()
    assert run.hashes == expected.hashes


@STACK
def test_a_trial_that_is_told_to_end_goes_on_from_there(run_of):
    expected = run_of("--exact", kind="slow").run().check()
    run = run_of("--exact", kind="slow", pause="0.1")
    running = run.start()
    running.wait_until(lambda: "VALIDATES 4" in running.stdout)
    running.send(signal.SIGTERM)
    assert "VALIDATED 4" not in running.wait().check(-signal.SIGTERM).stdout
    assert run.trial.checkpoint == 40
    running = run.start()
    running.wait_until(lambda: "STEP 5" in running.stdout)
    running.send(signal.SIGTERM)
    running.wait().check(-signal.SIGTERM)
    assert run.trial.checkpoint > 50
    run.run().check()
    assert run.hashes == expected.hashes


@STACK
def test_the_order_and_the_noise_are_of_the_trial(run_of):
    one, same, other = (run_of("--exact", steps=2, seed=seed).run().check().hashes for seed in (7, 7, 8))
    assert one == same
    assert one != other


# -- DataFlows that do not repeat --------------------------------------------------------------------------------------


@STACK
@pytest.mark.parametrize(("kind", "name"), [("threads", "MultiThreadMapData"), ("processes", "MultiProcessRunner")])
def test_a_dataflow_of_no_order_is_a_cause_and_the_trial_goes_on_all_the_same(run_of, kind, name):
    cause = f"the DataFlow `{name}` has processes or threads of its own"
    ended = run_of("--exact", kind=kind).run().check(77)
    assert cause in ended.stderr
    assert "before it trained" in ended.stderr
    run = run_of("--checkpoint-batches", "23", kind=kind, pause="0.1")
    running = run.start()
    running.wait_until(lambda: run.trial.checkpoint == 23)
    ended = running.kill_everything()
    assert f"exact resume: no: {cause}" in ended.stderr
    assert "checkpoints are taken all the same" in ended.stderr
    run.run().check()
    assert run.trial.count("resumed") == 1
    assert [event["batch"] for event in events_of(run, "validation")][-1] == 60


@STACK
@pytest.mark.parametrize("kind", ["clock", "clock, threads to validate"])
def test_a_dataflow_that_gives_something_else_in_a_replay_is_noticed(run_of, kind):
    run = run_of("--checkpoint-batches", "23", kind=f"'{kind}'", pause="0.1")
    running = run.start()
    running.wait_until(lambda: run.trial.checkpoint == 23)
    running.kill_everything()
    ended = run.run().check(76)
    assert "the replay differs from the record" in ended.stderr
    assert ended.stderr.count("pedl: error:") == 1


# -- refusals ----------------------------------------------------------------------------------------------------------


@STACK
@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("no model", ["`build_model` returned an object of class `object`", "expected: a `tensorpack.ModelDesc`"]),
        ("incomplete", ["the model `Incomplete` that `build_model` returned lacks `build_graph`, `optimizer`"]),
        ("no list of inputs", ["the model `Model` cannot be built", "should return a list of tf.TensorSpec"]),
        ("no cost", ["`build_graph` returned an object of class `NoneType`", "expected: the tensor that is minimized"]),
        ("costs", ["`build_graph` returned a tensor of shape (", "tf.reduce_mean"]),
        ("no optimizer", ["the model `Model` cannot be built", "must return an instance of tf.train.Optimizer"]),
        ("text", ["`training_metrics` returned an object of class `str`", "a list of names of tensors"]),
        ("unknown training metric", ["`training_metrics` returned `accuracies`, and there is no tensor of this name"]),
        ("unknown validation metric", ["`validation_metrics` returned `val_accuracy`, and there is no tensor"]),
        ("no monitors", ["`tensorpack_monitors` returned `object`", "expected: a list of `tensorpack.MonitorBase`"]),
        ("arrays", ["returned an object of class `list` to train on", "expected: a `tensorpack.DataFlow`"]),
        ("unbatched", ["gave an array of shape (8,) for the input `row`", "tensorpack.BatchData"]),
        ("three parts", ["gave an object of class `list` of 3", "as `inputs` of the model returns, 2"]),
        ("nothing", ["the DataFlow to train on that `make_data_loaders` returned has no batches"]),
    ],
)
def test_what_is_not_as_it_has_to_be_is_refused_before_training(run_of, kind, texts):
    refused(run_of(kind=kind), *texts)


@STACK
def test_a_validation_without_batches_is_refused(run_of):
    ended = run_of(kind="nothing to validate on").run()
    support.refused(ended, "the DataFlow to validate on that `make_data_loaders` returned has no batches")


@STACK
def test_missing_methods_are_told_before_training(run_of):
    refused(run_of(entrypoint=":WithoutMethods"), "the trial class `WithoutMethods` lacks `build_model`, `validation_metrics`")


WITHOUT_TENSORPACK = """
    from pedl.frameworks.tensorflow.tensorpack_trial import TensorpackTrial

    def make_data_loaders(experiment_config, hparams):
        raise AssertionError("it is not asked for data")

    class Trial(TensorpackTrial):
        def build_model(self, hparams, trainer_type):
            raise AssertionError("it is not asked for a model")

        def validation_metrics(self, hparams):
            return ["accuracy"]
"""


@pytest.fixture
def run_without(script_run, tmp_path):
    """A run of a definition that does not import tensorpack."""
    root = tmp_path / "model"
    root.mkdir()
    (root / "__init__.py").write_text(textwrap.dedent(WITHOUT_TENSORPACK))
    file = tmp_path / "configuration.yaml"
    file.write_text(support.seeded_configuration(BATCHES, STEPS))
    return script_run(root, options=["--config", file])


@pytest.mark.stack("keras2-tensorflow1")
def test_tensorpack_has_to_be_installed(run_without):
    refused(run_without, "there is no package `tensorpack`", "pip install tensorpack==0.11")


@pytest.mark.stack("keras2.15-tensorflow2.15")
def test_tensorflow_2_is_refused(run_without):
    refused(run_without, "a `TensorpackTrial` with TensorFlow 2.15.1", "expected: TensorFlow 1")


# -- exports -----------------------------------------------------------------------------------------------------------


SERVE = """
import numpy, sys
import tensorflow.compat.v1 as tf
with tf.Session(graph=tf.Graph()) as session:
    signatures = tf.saved_model.loader.load(session, ["serve"], sys.argv[1]).signature_def
    signature = signatures["val_losses"]
    feeds = {signature.inputs["row"].name: numpy.ones((5, 8)), signature.inputs["label"].name: numpy.zeros(5)}
    print("SERVED", sorted(signatures), session.run(signature.outputs["val_losses"].name, feeds).shape)
"""


def exported(run, out):
    """The folder to which the trial's last checkpoint is exported."""
    command = [support.executable(), "--pedl", "checkpoint", "export", str(run.trial.directory)]
    command += ["--output", str(out), "--python", sys.executable]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, done.stdout.decode()
    return out


@STACK
def test_the_tower_for_validations_is_exported(run_of, tmp_path):
    run = run_of(steps=1)
    run.run().check()
    out = exported(run, tmp_path / "exported")
    command = [sys.executable, "-W", "ignore", "-c", SERVE, str(out)]
    served = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode()
    assert "'val_accuracy', 'val_first_value'" in served
    assert served.endswith("(5,)\n")


# -- ends before the last step -----------------------------------------------------------------------------------------


WEIGHT = """
import sys
import tensorflow.compat.v1 as tf
with tf.Session(graph=tf.Graph()) as session:
    tf.saved_model.loader.load(session, ["serve"], sys.argv[1])
    print(session.run("hidden/W:0").tolist())
"""


def weight_of(folder):
    """A weight of the SavedModel in a folder."""
    command = [sys.executable, "-W", "ignore", "-c", WEIGHT, str(folder)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode())


@STACK
def test_a_trial_that_a_monitor_ends_has_its_weights_in_the_last_checkpoint(run_of, tmp_path):
    run = run_of("--exact", "--checkpoint-batches", "13", kind="ends")
    ended = run.run().check()
    assert "a monitor of the trial class has ended its training, 35 batches before the last step" in ended.stderr
    assert run.trial.checkpoint == 25
    found = weight_of(exported(run, tmp_path / "exported"))
    # The same as in a training that continues: the weights of batch 25, not of batch 13.
    whole = run_of("--exact", "--checkpoint-batches", "25", pause="0.1")
    running = whole.start()
    running.wait_until(lambda: whole.trial.checkpoint == 25)
    running.kill_everything()
    assert found == weight_of(exported(whole, tmp_path / "whole"))
    # Nothing is left to train, and the checkpoint remains.
    run.run().check()
    assert run.trial.checkpoint == 25
    assert weight_of(exported(run, tmp_path / "again")) == found


@STACK
def test_a_monitor_that_fails_has_no_checkpoint_of_the_end(run_of):
    run = run_of(kind="fails")
    assert "ValueError: of a monitor" in run.run().check(1).stderr
    # The checkpoint of the validation.
    assert run.trial.checkpoint == 20


@STACK
def test_a_checkpoint_of_the_end_that_would_lack_the_weights_is_not_taken(run_of, tmp_path):
    run = run_of(kind="closes")
    support.refused(run.run(), "the session of `Trial` is closed", "the checkpoint of its end would lack `", "clear_session()")
    assert run.trial.checkpoint == 20
    assert len(weight_of(exported(run, tmp_path / "exported"))) == 8
