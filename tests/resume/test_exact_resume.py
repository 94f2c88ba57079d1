"""A training that is killed and started again equals the training that was not killed.

Every source of batches is killed after a checkpoint in the first of its two fits, and again after one in the second.
Each is tested here once, with or without a seed. `cargo dev matrix` has both, on every stack, `cargo dev campaign` does
the same at many random moments, and `cargo dev kills` in the middle of a thousand writes.
"""

import os
import shutil

import pytest
import support
from campaigns import everything

IS_KERAS2 = "keras3" not in os.environ.get("PEDL_STACK_TAGS", "").split()
TAGS = os.environ.get("PEDL_STACK_TAGS", "").split()
# The sources in which generations and backends may differ; one stack has all sources.
OF_ALL = ["arrays", "sequence-3", "processes-2", "generator-1", "images", "tf-data", "train-on-batch"]
SOURCES = everything.sources_of(TAGS)
if "keras2" not in TAGS:
    SOURCES = [source for source in SOURCES if source in OF_ALL]
CELLS = [(source, 3 if number % 2 else None) for number, source in enumerate(SOURCES)]
SCRIPT = support.SCRIPTS / ("everything_keras2.py" if IS_KERAS2 else "everything_keras3.py")

# A few seconds of training in each fit, and a checkpoint about every tenth of that.
EPOCHS = 10 if IS_KERAS2 else 5
OPTIONS = ["--exact", "--checkpoint-seconds", "0.2"]
BATCH_BY_BATCH = ["--checkpoint-seconds", "0.01"]


@pytest.fixture
def cell(tmp_path):
    """A function that makes an `everything.Cell`; its processes end with the test."""
    made = []

    def make(source, seed, options=OPTIONS, **settings):
        made.append(everything.Cell(tmp_path, SCRIPT, source, seed, EPOCHS, options, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.stack("keras", "generation")
@pytest.mark.parametrize(("source", "seed"), CELLS)
def test_killed_in_both_fits_it_is_the_undisturbed_training(cell, source, seed):
    here = cell(source, seed)
    undisturbed = here.undisturbed()
    killed = here.killed("killed", undisturbed)
    _kill_in_both_fits(killed)
    assert killed.finish() == []


@pytest.mark.stack("keras3-jax", "keras2-tensorflow1")
def test_killed_in_the_midst_of_writes_it_is_the_undisturbed_training(cell, dice):
    here = cell("arrays", 3, options=["--exact", "--batches-per-step", "4", "--checkpoint-period", "1"])
    killed = here.killed("killed", here.undisturbed(), at_bytes=True, pace=0.01)
    killed.start()
    for number, target in enumerate(["everything", "trial"] * 3):
        # The first one counts from the start on, the others from a random point behind a checkpoint.
        assert number == 0 or killed.wait_until(lambda: killed.checkpoint and killed.is_training)
        again = killed.kill_at_byte(dice.choice([100, 1000, 10000, 30000]) + dice.randrange(100), target)
        assert again is not None, f"it ended before kill {number + 1}"
        if again:
            killed.start()
    assert killed.finish() == []
    # The kills happened, and some of them left a partial write.
    assert len(killed.hits) == 6
    assert any(0 < hit.done < hit.size for hit in killed.hits), killed.hits


@pytest.mark.stack("keras3")
def test_a_model_that_is_compiled_as_usual_is_the_undisturbed_one(cell):
    """The op that reports what was computed keeps TensorFlow from using XLA. Without it only the hashes can be compared."""
    here = cell("arrays", 3, arguments=["--unwatched"])
    undisturbed = here.undisturbed()
    killed = here.killed("killed", undisturbed)
    _kill_in_both_fits(killed)
    assert killed.finish() == []


@pytest.mark.stack("keras2")
def test_without_exact_it_is_resumed_all_the_same(cell):
    """TensorFlow 1 then runs operations concurrently, so the last bits need not repeat; but no work is lost for that."""
    here = cell("arrays", 3, options=OPTIONS[1:])
    killed = here.killed("killed", here.undisturbed())
    _kill_in_both_fits(killed)
    killed.finish()
    assert killed.ended.code == 0
    assert "checkpoints are taken all the same" in killed.ended.stderr
    assert "pedl: resuming after batch" in killed.ended.stderr


@pytest.mark.stack("each-keras")
def test_the_files_of_the_script_are_those_of_an_undisturbed_run(script_run):
    found = []
    for kills in ([], [5, 12]):
        run = script_run(support.SCRIPTS / "keeps_two_checkpoints.py", options=OPTIONS)
        (run.directory / "runs.json").write_text("7")
        for epochs in kills:
            run.start_and_kill(lambda: support.lines_of(run.directory / "train.log") >= epochs)  # noqa: B023
        ended = run.run().check()
        assert run.trial.count("resumed") == len(kills)
        files = sorted(path for path in run.directory.rglob("*") if ".pedl" not in path.parts)
        names = [str(path.relative_to(run.directory)) for path in files]
        texts = [(run.directory / name).read_text() for name in ("runs.json", "state.json", "train.log")]
        found.append((ended.hashes, names, texts))
    assert found[0] == found[1]
    assert "RUNNING" not in found[0][1]
    assert found[0][2][0] == "8"


@pytest.mark.stack("each-keras")
def test_a_warning_is_given_once_however_often_the_training_is_killed(script_run):
    run = script_run(support.SCRIPTS / "warns.py", options=OPTIONS)
    given = []
    for batches in (100, 200):
        given.append(run.start_and_kill(lambda: run.trial.checkpoint >= batches).stderr)  # noqa: B023
    given.append(run.run().check().stderr)
    assert run.trial.count("resumed") == 2
    for what in ("UserWarning: an item that warns", "FutureWarning: a save that warns"):
        assert [text.count(what) for text in given] == [1, 0, 0], given


@pytest.mark.stack("keras3-jax")
def test_with_every_warning_an_error_it_trains_and_is_the_undisturbed_training(script_run):
    """Only warnings that the script, or a library for it, causes are raised, and not those of `optimizer.get_config()`."""
    run = script_run(support.SCRIPTS / "strict_warnings.py", options=["--exact", "--checkpoint-batches", "15,35"])
    expected = run.python().check()
    killed = run.start_and_kill()
    ended = run.run().check()
    assert run.trial.count("resumed") == 1
    assert killed.stdout + ended.stdout == expected.stdout


@pytest.mark.stack("keras3")
def test_a_data_set_that_changes_between_epochs_is_the_same_with_any_workers_and_kills(script_run):
    """An epoch of `steps_per_epoch` ends in the middle of a pass: no batch behind it may be from before the change."""
    hashes = set()
    for workers in (["1"], ["3"], ["2", "processes"]):
        run = script_run(support.SCRIPTS / "changes_between_epochs.py", *workers, options=["--exact", *BATCH_BY_BATCH])
        for batches in (5, 12, 22):
            run.start_and_kill(lambda: run.trial.checkpoint >= batches)  # noqa: B023
        hashes.add(tuple(run.run().check().hashes))
        assert run.trial.count("resumed") == 3
    undisturbed = script_run(support.SCRIPTS / "changes_between_epochs.py", "3").run().check()
    assert hashes == {tuple(undisturbed.hashes)}


@pytest.mark.stack("keras2", "generation")
def test_models_that_are_made_in_turn_are_the_undisturbed_ones(script_run):
    """Calls that a replay skips make no operations; the seeds of a later model would depend on operations."""
    undisturbed_run, run = [script_run(support.SCRIPTS / "models_in_turn.py", options=OPTIONS) for _ in range(2)]
    undisturbed = undisturbed_run.run().check()
    run.trial.directory.mkdir(parents=True)
    shutil.copy(str(undisturbed_run.trial.directory / "trial.json"), str(run.trial.directory / "trial.json"))
    for batch in (30, 70, 110):
        run.start_and_kill(lambda: run.trial.checkpoint >= batch)  # noqa: B023
    assert run.run().check().hashes == undisturbed.hashes
    assert run.trial.count("resumed") == 3


def _kill_in_both_fits(killed):
    killed.start()
    assert killed.wait_until(lambda: killed.checkpoint_in_fit(1)), "it ended before a checkpoint in the first fit"
    assert killed.kill("everything")
    killed.start()
    assert killed.wait_until(lambda: killed.checkpoint_in_fit(2)), "it ended before a checkpoint in the second fit"
    if killed.kill("trial"):
        killed.start()
