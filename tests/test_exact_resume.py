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


def _kill_in_both_fits(killed):
    killed.start()
    assert killed.wait_until(lambda: killed.checkpoint_in_fit(1)), "it ended before a checkpoint in the first fit"
    assert killed.kill("everything")
    killed.start()
    assert killed.wait_until(lambda: killed.checkpoint_in_fit(2)), "it ended before a checkpoint in the second fit"
    if killed.kill("trial"):
        killed.start()
