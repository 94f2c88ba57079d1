"""A training that is killed and started again is the training that nobody killed.

For every source of batches, with a seed and without: killed after a checkpoint in the first of its two
fits, and again after one in the second. `cargo dev campaign` does the same at many random moments.
"""

import os

import everything
import pytest
import support

SOURCES = ["arrays", "arrays-unshuffled", "sequence-0", "sequence-1", "sequence-3", "train-on-batch"]
IS_KERAS2 = "keras2" in os.environ.get("PEDL_STACK_TAGS", "").split()
SCRIPT = support.SCRIPTS / ("everything_keras2.py" if IS_KERAS2 else "everything_keras3.py")

# A few seconds of training in each fit, and a checkpoint about every tenth of that.
EPOCHS = 10 if IS_KERAS2 else 5
OPTIONS = ["--exact", "--checkpoint-seconds", "0.2"]


@pytest.fixture
def cell(tmp_path):
    """A function that makes an `everything.Cell`; what it started ends with the test."""
    made = []

    def make(source, seed, options=OPTIONS, **settings):
        made.append(everything.Cell(tmp_path, SCRIPT, source, seed, EPOCHS, options, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.stack("keras")
@pytest.mark.parametrize("seed", [3, None], ids=["seeded", "unseeded"])
@pytest.mark.parametrize("source", SOURCES)
def test_killed_in_both_fits_it_is_the_undisturbed_training(cell, source, seed):
    here = cell(source, seed)
    undisturbed = here.undisturbed()
    killed = here.killed("killed", undisturbed)
    _kill_in_both_fits(killed)
    assert killed.finish() == []


@pytest.mark.stack("keras3")
def test_a_model_that_is_compiled_as_usual_is_the_undisturbed_one(cell):
    """The op that tells what was computed keeps TensorFlow from XLA; without it there is nothing but the hashes."""
    here = cell("arrays", 3, arguments=["--unwatched"])
    undisturbed = here.undisturbed()
    killed = here.killed("killed", undisturbed)
    _kill_in_both_fits(killed)
    assert killed.finish() == []


@pytest.mark.stack("keras2")
def test_without_exact_it_is_resumed_all_the_same(cell):
    """TensorFlow 1 runs operations at once then, which need not repeat in the last bits; no work is lost for that."""
    here = cell("arrays", 3, options=OPTIONS[1:])
    killed = here.killed("killed", here.undisturbed())
    _kill_in_both_fits(killed)
    killed.finish()
    assert killed.ended.code == 0
    assert "checkpoints are taken all the same" in killed.ended.stderr
    assert "pedl: resuming after batch" in killed.ended.stderr


@pytest.mark.stack("keras")
def test_the_files_of_the_script_are_those_of_an_undisturbed_run(script_run):
    found = []
    for kills in ([], [5, 12]):
        run = script_run(support.SCRIPTS / "keeps_two_checkpoints.py", options=OPTIONS)
        (run.directory / "runs.json").write_text("7")
        for epochs in kills:
            running = run.start()
            running.wait_until(lambda: _lines(run.directory / "train.log") >= epochs and run.trial.checkpoint)  # noqa: B023
            running.kill_everything()
        ended = run.run().check()
        assert run.trial.count("resumed") == len(kills)
        files = sorted(path for path in run.directory.rglob("*") if ".pedl" not in path.parts)
        names = [str(path.relative_to(run.directory)) for path in files]
        texts = [(run.directory / name).read_text() for name in ("runs.json", "state.json", "train.log")]
        found.append((ended.hashes, names, texts))
    assert found[0] == found[1]
    assert "RUNNING" not in found[0][1]
    assert found[0][2][0] == "8"


def _lines(path):
    return len(path.read_text().splitlines()) if path.exists() else 0


def _kill_in_both_fits(killed):
    killed.start()
    assert killed.wait_until(lambda: killed.checkpoint_in_fit(1)), "it ended before a checkpoint in the first fit"
    assert killed.kill("everything")
    killed.start()
    assert killed.wait_until(lambda: killed.checkpoint_in_fit(2)), "it ended before a checkpoint in the second fit"
    if killed.kill("trial"):
        killed.start()
