"""Training loops over TensorFlow sessions: after kills they equal the undisturbed training (issue 7)."""

import re

import pytest
import support

pytestmark = pytest.mark.stack("sessions")

SCRIPT = support.SCRIPTS / "session_loops.py"

KINDS = [
    "softmax",
    "convnet",
    "lstm",
    "gan",
    "iterator",
    "assign",
    "two",
    "growing",
    "saver",
    "monitored",
    "estimator",
    "function",
    "named",
    "randomized",
    "imported",
]
# Loops that sort and sample draw other numbers than TensorFlow's, but as random (`py_hooks/tensorflow/random_ops/random_ops.py`).
OTHER_NUMBERS = ["randomized", "imported"]


@pytest.fixture
def run_of(script_run, tmp_path):
    """A function that makes a run with the same seeds as all others."""

    def make(kind, calls, *options):
        file = tmp_path / "seeds.yaml"
        file.write_text(support.seeded_configuration(20, 10))
        return script_run(SCRIPT, kind, calls, options=["--config", file, *options], environment={"PAUSE": "0.002"})

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_p7_a_loop_that_is_killed_is_the_undisturbed_one(run_of, kind):
    expected = run_of(kind, 120, "--exact").run().check()
    assert "exact resume: yes" in expected.stderr
    assert len(expected.hashes) == 1
    run = run_of(kind, 120, "--exact", "--checkpoint-batches", "33,71")
    run.kill_at_checkpoints(33, 71)
    ended = run.run().check()
    assert ended.hashes == expected.hashes
    assert run.trial.count("resumed") == 2


# Not on 1.13, where random ops draw other numbers than TensorFlow (`py_hooks/tensorflow/random_ops/keyed_ops.py`). TensorFlow 2
# builds the same ops as 1.15, which is tested on a stack that starts in half the time.
@pytest.mark.stack("keras2-tensorflow1", "tfkeras-1.14")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in OTHER_NUMBERS])
def test_a_seeded_loop_is_what_it_is_under_python(script_run, kind):
    # In separate directories, because some write files and read them there.
    expected = script_run(SCRIPT, kind, 60, "seeded").python().check()
    assert script_run(SCRIPT, kind, 60, "seeded", options=["--exact"]).run().check().hashes == expected.hashes


def test_a_graph_that_is_written_is_the_scripts(script_run):
    expected = script_run(SCRIPT, "exported", 0, "seeded").python().check()
    assert script_run(SCRIPT, "exported", 0, "seeded").run().check().hashes == expected.hashes


def test_each_run_that_trains_is_a_batch_of_a_step(run_of):
    run = run_of("gan", 120)
    run.run().check()
    steps = [event for event in run.trial.events if event["event"] == "step"]
    assert [step["batches"] for step in steps] == [[first, first + 19] for first in range(1, 121, 20)]


def test_a_loop_is_told_that_it_decides_how_long_it_trains(script_run):
    ended = script_run(SCRIPT, "softmax", 40, options=["--steps", "2", "--batches-per-step", "10"]).run().check()
    assert re.search(r"session_loops\.py:\d+: a session trains in a loop of the script's own, which decides", ended.stderr)
    assert ended.stderr.count("the trial's last step was trained; a loop of the script's own goes on after it") == 1


def test_scalars_that_are_fetched_are_metrics_by_the_names_of_their_tensors(run_of):
    run = run_of("softmax", 40)
    run.run().check()
    (step, _) = [event for event in run.trial.events if event["event"] == "step"]
    assert list(step["metrics"]) == ["loss"]
    assert 0 < step["metrics"]["loss"] < 10


def test_numbers_of_steps_are_no_metrics(run_of):
    run = run_of("monitored", 40)
    run.run().check()
    steps = [event for event in run.trial.events if event["event"] == "step"]
    assert [list(step["metrics"]) for step in steps] == [["loss"], ["loss"]]


def test_runs_that_train_nothing_are_told_as_evaluations(run_of):
    run = run_of("iterator", 33)
    run.run().check()
    evaluations = [event for event in run.trial.events if event["event"] == "evaluation"]
    # Of 160 rows in batches of 16, after each of three epochs.
    assert [(each["batch"], each["runs"], list(each["metrics"])) for each in evaluations] == [
        (10, 10, ["loss"]),
        (20, 10, ["loss"]),
        (30, 10, ["loss"]),
    ]


def test_what_fills_the_log_is_told_by_its_name(run_of):
    ended = run_of("lstm", 120, "--log-limit", "20KiB").run().check()
    assert "the log of calls is over its limit (`--log-limit`); the values of `rnn/while/Exit" in ended.stderr
    assert ended.stderr.count("over its limit") == 1
    refused = run_of("lstm", 120, "--exact", "--log-limit", "20KiB").run().check(77)
    assert "the values of `rnn/while/Exit" in refused.stderr


def test_queues_that_threads_fill_are_told_and_resumed(run_of):
    run = run_of("queue", 120, "--checkpoint-batches", "33")
    running = run.start()
    running.wait_until(lambda: run.trial.checkpoint == 33)
    running.kill_everything()
    ended = run.run().check()
    assert "exact resume: no: a training run takes its data from queues, which threads fill" in ended.stderr
    assert run.trial.count("resumed") == 1
    refused = run_of("queue", 120, "--exact").run().check(77)
    assert "takes its data from queues" in refused.stderr


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("partial", "training by `partial_run` is not intercepted in this version"),
        ("threads", "a thread of the script trains"),
        ("writes", "training by a run that writes files is not intercepted in this version"),
    ],
)
def test_training_that_is_not_recorded_is_told(run_of, kind, cause):
    ended = run_of(kind, 40).run().check()
    assert cause in ended.stderr
    assert len(ended.hashes) == 1
    refused = run_of(kind, 40, "--exact").run().check(77)
    assert cause in refused.stderr
    assert "the script was stopped" in refused.stderr


def test_each_session_that_trains_is_asked_what_it_cannot_repeat(run_of):
    refused = run_of("several_at_once", 40, "--exact").run().check(77)
    assert "a session runs several operations at once" in refused.stderr
