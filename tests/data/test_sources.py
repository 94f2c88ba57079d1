"""Sources of batches for a fit, beyond those of test_exact_resume.py: after kills it equals the undisturbed training."""

import shutil

import pytest
import support

# A checkpoint every twenty batches, or at the next ones if the last is still being written.
OPTIONS = ["--exact", "--batches-per-step", "20", "--checkpoint-period", "1"]


def killed(script_run, undisturbed, script, *arguments, kills=2):
    """Runs a script again, killed after each of its first new checkpoints; returns the `ScriptRun`, and its last end."""
    run = script_run(script, *arguments, options=OPTIONS)
    run.trial.directory.mkdir(parents=True)
    shutil.copy(str(undisturbed.trial.directory / "trial.json"), str(run.trial.directory / "trial.json"))
    last = None
    for _ in range(kills):
        running = run.start()
        assert running.ends_before(lambda: run.trial.checkpoint not in (None, last)) is None  # noqa: B023
        running.kill_everything()
        last = run.trial.checkpoint
    return run, run.run()


@pytest.mark.stack("keras3")
@pytest.mark.parametrize("source", ["arrays", "sequence", "generator"])
def test_with_several_steps_in_each_execution(script_run, source):
    script = support.SCRIPTS / "several_steps.py"
    undisturbed = script_run(script, source, options=OPTIONS)
    expected = undisturbed.run().check()
    run, ended = killed(script_run, undisturbed, script, source)
    assert ended.check().hashes == expected.hashes
    assert "exact resume: yes" in expected.stderr
    assert run.trial.count("resumed") == 2
    batches = {"arrays": 60 * 19, "sequence": 60 * 24, "generator": 60 * 25}[source]
    steps = [event["batches"] for event in undisturbed.trial.events if event["event"] == "step"]
    assert steps[-1][1] == batches // 20 * 20


@pytest.mark.stack("keras2")
@pytest.mark.parametrize("workers", [1, 3])
def test_items_that_are_none_are_left_out_in_a_replay_too(script_run, workers):
    script = support.SCRIPTS / "none_batches.py"
    undisturbed = script_run(script, str(workers), options=OPTIONS)
    expected = undisturbed.run().check()
    run, ended = killed(script_run, undisturbed, script, str(workers))
    assert ended.check().hashes == expected.hashes
    assert "exact resume: yes" in expected.stderr
    assert run.trial.count("resumed") == 2


ON_ARRAYS = """
import importlib, os
import numpy
keras = importlib.import_module(os.environ.get("KERAS_PACKAGE", "keras"))
numbers = numpy.arange(160, dtype="float32").reshape(160, 1)

class Rows(keras.utils.Sequence):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return numbers[index * 16:index * 16 + 16], numbers[index * 16:index * 16 + 16]

model = keras.Sequential([keras.layers.Dense(1, input_shape=(1,), kernel_initializer="zeros")])
model.compile(keras.optimizers.SGD(0.0), "mse")
fit = model.fit_generator(
    Rows(), epochs=4, workers=2, use_multiprocessing=True, validation_data=(numbers, numbers ** 2), verbose=0)
expected = model.evaluate(numbers, numbers ** 2, batch_size=16, verbose=0)
assert numpy.allclose(fit.history["val_loss"], expected, rtol=1e-5), (fit.history["val_loss"], expected)
print("validated")
"""


@pytest.mark.stack("tf.keras", "keras2")
def test_arrays_to_validate_on_are_gone_through_once_beside_worker_processes(script_run, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(ON_ARRAYS)
    ended = script_run(path, options=["--exact"]).run().check()
    assert "exact resume: yes" in ended.stderr
    assert ended.stdout == "validated\n"


ODD = support.SCRIPTS / "odd_dataset.py"
CHANGES = "the data set `Rows` changes its attribute `built` while its items are built"
NOT_TWICE = "the data set `Rows` does not build an item twice in the same way"


@pytest.mark.stack("keras3-jax", "keras2")
@pytest.mark.parametrize(
    ("kind", "workers", "cause"),
    [("counts", 3, CHANGES), ("counts-late", 0, CHANGES), ("remembers", 0, NOT_TWICE), ("draws-elsewhere", 3, NOT_TWICE)],
)
def test_exact_refuses_items_that_are_no_functions_of_their_key(script_run, kind, workers, cause):
    ended = script_run(ODD, kind, str(workers), options=["--exact"]).run().check(77)
    assert cause in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "trained" not in ended.stdout


@pytest.mark.stack("keras3-jax")
@pytest.mark.parametrize("workers", ["0", "2p"])
@pytest.mark.parametrize("options", [[], ["--exact"]], ids=["as it is", "exact"])
@pytest.mark.parametrize(
    ("kind", "cause"), [("draws-in-threads", "draws random numbers in threads of its own"), ("remembers", NOT_TWICE)]
)
def test_items_are_looked_at_before_the_run_says_that_it_is_exact(script_run, kind, cause, workers, options):
    ended = script_run(ODD, kind, workers, options=options).run().check(77 if options else 0)
    assert cause in ended.stderr
    assert "exact resume: yes" not in ended.stderr


@pytest.mark.stack("keras3-jax", "keras2")
def test_items_that_count_what_was_built_are_built_again_in_a_replay(script_run):
    ended = script_run(ODD, "counts", "0", options=["--exact"]).run().check()
    assert "exact resume: yes" in ended.stderr


@pytest.mark.stack("keras3-jax")
@pytest.mark.parametrize("kind", ["splits-key", "draws-in-layer"])
def test_items_that_jax_draws_for_are_built_again_in_a_replay(script_run, kind):
    undisturbed = script_run(ODD, kind, "0", "30", options=OPTIONS)
    expected = undisturbed.run().check()
    assert "exact resume: yes" in expected.stderr
    run, ended = killed(script_run, undisturbed, ODD, kind, "0", "30")
    assert ended.check().hashes == expected.hashes
    assert run.trial.count("resumed") == 2


@pytest.mark.stack("keras3-jax", "keras2")
def test_without_exact_the_cause_is_told_once(script_run):
    run = script_run(ODD, "counts", "3")
    ended = run.run().check()
    # It is printed once more if another cause is added to it.
    assert ended.stderr.count(CHANGES) in (1, 2)
    assert "exact resume: no" in ended.stderr
    told = [event for event in run.trial.events if event["event"] == "exactness"]
    assert {event["causes"].count(CHANGES) for event in told} <= {0, 1}
    assert told[-1]["causes"].count(CHANGES) == 1
    assert [event["exact"] for event in told] == [not event["causes"] for event in told]


@pytest.mark.stack("tensorflow2", "tfkeras", "tf.keras")
def test_what_is_shuffled_within_a_pipeline_without_any_seed_is_the_same_when_it_is_pulled_again(script_run):
    _pulled_again(script_run, "shuffles-within")


@pytest.mark.stack("tensorflow2", "keras2.15-tensorflow2.15", "tf.keras")
def test_random_numbers_without_any_seed_are_the_same_when_a_pipeline_is_pulled_again(script_run):
    _pulled_again(script_run, "gamma")


@pytest.mark.stack("tensorflow2", "keras2.15-tensorflow2.15", "tf.keras")
def test_random_numbers_within_a_pipeline_are_the_same_when_it_is_pulled_again(script_run):
    _pulled_again(script_run, "noise-within")


@pytest.mark.stack("tfkeras-tensorflow2.3")
@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("gamma", "random numbers that is repeated (`repeat`)"),
        ("noise-within", "random numbers in a data set within a data set"),
    ],
)
def test_exact_refuses_to_repeat_random_numbers_where_tensorflow_does_not(script_run, kind, cause):
    assert cause in script_run(support.SCRIPTS / "odd_pipeline.py", kind, options=["--exact"]).run().check(77).stderr


@pytest.mark.stack("tfkeras-1.14", "tfkeras-1.15")
def test_a_parallel_map_of_the_old_kind_is_the_same_when_it_is_pulled_again(script_run):
    _pulled_again(script_run, "legacy-map")


@pytest.mark.stack("tf.keras")
def test_tensors_that_an_iterator_gives_are_the_same_when_they_are_pulled_again(script_run):
    _pulled_again(script_run, "tensors")


def _pulled_again(script_run, kind):
    script = support.SCRIPTS / "odd_pipeline.py"
    undisturbed = script_run(script, kind, options=OPTIONS)
    expected = undisturbed.run().check()
    run, ended = killed(script_run, undisturbed, script, kind)
    assert ended.check().hashes == expected.hashes
    assert run.trial.count("resumed") == 2


@pytest.mark.stack("tensorflow2", "tfkeras", "tf.keras")
@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("map-and-batch", "`tf.data.experimental.map_and_batch` with a state"),
        ("parallel-interleave", "a tf.data pipeline that keeps no order (`sloppy`)"),
        ("without-order", "a tf.data pipeline that keeps no order (`"),
        ("draws-in-python", "a Python function that TensorFlow calls draws random numbers"),
    ],
)
def test_exact_refuses_pipelines_that_do_not_repeat(script_run, kind, cause):
    assert cause in script_run(support.SCRIPTS / "odd_pipeline.py", kind, options=["--exact"]).run().check(77).stderr


@pytest.mark.stack("tensorflow2", "tfkeras", "tf.keras")
def test_what_a_function_in_a_pipeline_draws_is_drawn_anew_for_each_element(script_run):
    ended = script_run(support.SCRIPTS / "odd_pipeline.py", "draws-in-python").run().check()
    (line,) = (line for line in ended.stdout.splitlines() if line.startswith("different"))
    assert int(line.rpartition(" ")[2]) >= 12 * 160


MOVES = "a model that moves something on that is no variable"


@pytest.mark.stack("tensorflow2", "tfkeras-tensorflow2.3")
@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("iterator", f"{MOVES} (`IteratorGetNext"),
        ("iterator-within", f"{MOVES} (`IteratorGetNext"),
        ("table", f"{MOVES} (`LookupTableInsert"),
        ("python", "a model that calls Python (`tf.py_function`, `tf.numpy_function`)"),
    ],
)
def test_exact_refuses_models_that_do_what_a_replay_leaves_out(script_run, kind, cause):
    assert cause in script_run(support.SCRIPTS / "odd_model.py", kind, options=["--exact"]).run().check(77).stderr


@pytest.mark.stack("tensorflow2", "tfkeras-tensorflow2.3")
def test_a_table_that_a_model_only_reads_is_no_cause(script_run):
    ended = script_run(support.SCRIPTS / "odd_model.py", "reads-table", options=["--exact"]).run().check()
    assert "exact resume: yes" in ended.stderr


@pytest.mark.stack("tf.keras")
@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("tensors-by-hand", "a batch by hand of tensors that TensorFlow is still to compute"),
        ("tensors-of-a-queue", "tensors of TensorFlow that come from the op `FIFOQueueV2`"),
    ],
)
def test_exact_refuses_tensors_that_do_not_repeat(script_run, kind, cause):
    assert cause in script_run(support.SCRIPTS / "odd_pipeline.py", kind, options=["--exact"]).run().check(77).stderr


@pytest.mark.stack("keras2")
def test_two_trials_of_a_script_that_seeds_numpy_alone_are_given_the_same_items(script_run):
    script = support.SCRIPTS / "seeds_numpy_alone.py"
    first, second = (script_run(script, options=["--exact"]).run().check() for _ in range(2))
    assert "exact resume: yes" in first.stderr
    (*same, other), (*again, another) = first.stdout.splitlines(), second.stdout.splitlines()
    assert [line.split()[0] for line in (*same, other)] == ["SAME"] * 4 + ["OTHER"]
    assert same == again
    assert other != another, "what draws without a seed is the trial's"
