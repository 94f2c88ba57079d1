"""A script that does not repeat itself continues identically after a kill, or stops with exit code 76.

There must be no third outcome: a good end with other numbers. Each case is trained
undisturbed, then killed after a checkpoint, changed, and started again.
"""

import re
import shutil

import pytest
import support

np = pytest.importorskip("numpy", reason="the stack has no numpy, and no framework to train with")

DIVERGED = 76
OPTIONS = ["--exact", "--checkpoint-seconds", "0.01"]

FIRST_FIT, SECOND_FIT = 1, 2
BATCHES_OF_A_FIT = 8 * 320 // 8
BATCHES_OF_TWO_EPOCHS = BATCHES_OF_A_FIT // 4
SCRIPT = support.SCRIPTS / "divergence.py"

# What the script does in addition after the change, and the source of its batches.
CHANGED_CASES = [
    ("predict", "arrays"),
    ("predict-in-callback", "arrays"),
    ("predict-between", "arrays"),
    ("draw", "arrays"),
    ("draw-in-callback", "arrays"),
    ("draw-between", "arrays"),
    ("python-draw", "arrays"),
    ("predict", "by-hand"),
    ("draw", "by-hand"),
    ("predict-between", "by-hand"),
]

# How the script ends before it trains, or between its fits, and what it prints then.
ENDS = [
    ("exit", FIRST_FIT, {"stdout": "nothing to do\n", "stderr": ""}),
    ("exit-code", FIRST_FIT, {"stdout": "nothing to do\n", "stderr": ""}),
    ("exit-message", FIRST_FIT, {"stdout": "nothing to do\n", "stderr": "the data is gone"}),
    ("exit-between", SECOND_FIT, {"stdout": "", "stderr": ""}),
]

# Edits of the script: text and replacement.
EDITS = {
    "another line before": ("losses = []", "losses = []\npass"),
    "a comment at the end": ('print("sha256:"', '# the result\nprint("sha256:"'),
    "dropout": ("layers.Dropout(0.2)", "layers.Dropout(0.3)"),
    "activation": ('activation="relu"', 'activation="tanh"'),
    "rate of the first fit": ("rate, batch_size = 8, 0.05, 8", "rate, batch_size = 8, 0.06, 8"),
    "rate of the second fit": ("keras.optimizers.SGD(0.02)", "keras.optimizers.SGD(0.03)"),
    "loss of the second fit": ('"mse"', '"mae"'),
    "epochs": ("rate, batch_size = 8,", "rate, batch_size = 9,"),
}

# The edit, the source of the batches, and the batch of the second fit after which it is killed. Files are compared before
# anything is called. So it makes no difference what an edit changes, and what follows it, except for the first.
EDITED_CASES = [(edit, "arrays", BATCHES_OF_TWO_EPOCHS) for edit in sorted(EDITS)]
EDITED_CASES += [(edit, "by-hand", BATCHES_OF_TWO_EPOCHS) for edit in ("another line before", "loss of the second fit")]
EDITED_CASES += [("epochs", "arrays", 0)]

# Rows of the data file that change, and the batch of the first fit after which it is killed.
CHANGED_ROWS = [(slice(None), 0), (slice(200, 201), BATCHES_OF_TWO_EPOCHS)]


class Case:
    """One script in one directory: trained undisturbed there, then killed and changed in another."""

    def __init__(self, script_run, script, arguments):
        self._script_run = script_run
        self._script = script
        self._arguments = arguments

    def run(self, **settings):
        run = self._script_run(self._script, *self._arguments, options=OPTIONS, **settings)
        np.save(str(run.directory / "data.npy"), data())
        return run

    def undisturbed_like(self, run, **settings):
        """Trains undisturbed as the trial of `run`, with the same seed; returns the `Ended`."""
        other = self.run(**settings)
        other.trial.directory.mkdir(parents=True)
        shutil.copy(str(run.trial.directory / "trial.json"), str(other.trial.directory / "trial.json"))
        return other.run().check()

    def kill(self, run, fit, batch=BATCHES_OF_TWO_EPOCHS):
        """Starts it, and kills it after a checkpoint beyond a batch of a fit, which is slowed down for that."""
        batch += (fit - FIRST_FIT) * BATCHES_OF_A_FIT
        hold = run.directory / f"hold-{fit}"
        hold.write_text(str(batch))
        running = run.start()
        running.wait_until(lambda: (run.trial.checkpoint or 0) > batch)
        running.kill_everything()
        hold.unlink()


def data():
    return np.random.RandomState(0).normal(size=(320, 6))


def check_same_or_stopped(ended, hashes, name="divergence.py"):
    """Checks for the identical end, or exit code 76 and a message; returns whether it was stopped."""
    if ended.code == 0:
        assert ended.hashes == hashes, f"it ended well, with other numbers than {hashes}: {ended!r}"
        return False
    ended.check(DIVERGED)
    _, _, message = ended.stderr.partition("pedl: error: ")
    assert re.search(rf"{re.escape(name)}:\d+", message), f"the message does not name the script's line: {ended!r}"
    for side in ("recorded", "now"):
        assert side in message, f"the message does not name both sides: {ended!r}"
    assert "hint: " in message, ended
    return True


def check_resume(here, fit):
    """Killed in a fit and started again, it ends as the undisturbed one."""
    run = here.run()
    here.kill(run, fit)
    ended = run.run().check()
    assert run.trial.count("resumed") == 1
    assert ended.hashes == here.undisturbed_like(run).hashes


@pytest.fixture
def case(script_run):
    def make(*arguments, script=SCRIPT):
        return Case(script_run, script, arguments)

    return make


@pytest.mark.stack("keras")
@pytest.mark.parametrize(("what", "source"), CHANGED_CASES)
def test_an_extra_call_or_draw_is_no_drift(case, what, source):
    here = case(what, "--data", source)
    run = here.run()
    here.kill(run, SECOND_FIT if what.endswith("between") else FIRST_FIT)
    (run.directory / "changed").touch()
    ended = run.run()
    if ended.code == 0:
        check_same_or_stopped(ended, here.undisturbed_like(run).hashes)
    else:
        check_same_or_stopped(ended, None)


@pytest.mark.stack("keras3-jax")
@pytest.mark.parametrize(("what", "fit", "printed"), ENDS)
def test_an_end_before_the_recorded_calls_is_no_success(case, what, fit, printed):
    here = case(what)
    run = here.run()
    here.kill(run, fit)
    (run.directory / "changed").touch()
    ended = run.run().check(DIVERGED)
    assert "the script ended before" in ended.stderr
    assert ended.stdout == printed["stdout"]
    assert printed["stderr"] in ended.stderr


@pytest.mark.stack("keras")
def test_an_exception_in_a_replay_is_the_users_own(case):
    here = case("raise-in-callback")
    run = here.run()
    here.kill(run, FIRST_FIT)
    (run.directory / "changed").touch()
    ended = run.run().check(1)
    _, _, traceback = ended.stderr.partition("Traceback (most recent call last):\n")
    assert "ValueError: what the callback needs is gone" in traceback.splitlines(), ended
    assert "pedl: the script failed before it came to where its trial continues" in ended.stderr
    assert "divergence.py" in traceback
    (run.directory / "changed").unlink()
    assert run.run().check().hashes == here.undisturbed_like(run).hashes


@pytest.mark.stack("keras3-jax")
@pytest.mark.parametrize("what", ["epochs", "rate", "rate-in-callback"])
def test_what_comes_from_the_clock_is_no_drift(case, what):
    here = case(what)
    run = here.run()
    here.kill(run, FIRST_FIT)
    first = clock(run)[0]
    ended = run.run()
    if what == "rate-in-callback":
        # It receives the same times again, and other times after the resume point.
        ended.check()
    elif ended.code == 0:
        check_same_or_stopped(ended, here.undisturbed_like(run, environment={"CLOCK": first}).hashes)
    else:
        check_same_or_stopped(ended, None)
        assert clock(run)[0] != clock(run)[-1]


def clock(run):
    """The times that the starts of the script used."""
    return (run.directory / "clock").read_text().split()


@pytest.mark.stack("keras")
def test_the_order_of_a_set_of_texts_is_that_of_the_trial(case):
    here = case("hashed-columns")
    run = here.run()
    here.kill(run, FIRST_FIT)
    ended = run.run().check()
    assert ended.hashes == here.undisturbed_like(run).hashes


@pytest.mark.stack("keras3")  # Python 3.7 refuses these options
@pytest.mark.parametrize("option", ["-E", "-I"])
def test_what_ignores_the_hash_seed_of_the_trial_is_not_exact(script_run, option):
    run = script_run(SCRIPT, "edit", options=[*OPTIONS, option])
    np.save(str(run.directory / "data.npy"), data())
    ended = run.run().check(77)
    assert "ignores the trial's hash seed" in ended.stderr


@pytest.mark.stack("each-keras")
def test_the_order_of_a_set_of_objects_is_no_drift(case):
    here = case("addressed-columns")
    run = here.run()
    here.kill(run, FIRST_FIT)
    ended = run.run()
    first, second = (run.directory / "columns").read_text().splitlines()
    if first == second:
        ended.check()
        check_same_or_stopped(ended, here.undisturbed_like(run, environment={"COLUMNS_ARE": first}).hashes)
    else:
        assert check_same_or_stopped(ended, None), f"the columns were {first}, then {second}: {ended!r}"


@pytest.mark.stack("keras3-jax")
@pytest.mark.parametrize("source", ["arrays", "files", "by-hand"])
@pytest.mark.parametrize(("rows", "batch"), CHANGED_ROWS)
def test_another_data_file_is_no_drift(case, source, rows, batch):
    here = case("data", "--data", source)
    run = here.run()
    here.kill(run, FIRST_FIT, batch)
    other = data()
    other[rows] *= 1.5
    np.save(str(run.directory / "data.npy"), other)
    ended = run.run()
    check_same_or_stopped(ended, here.undisturbed_like(run).hashes if ended.code == 0 else None)


@pytest.mark.stack("keras3-jax")
@pytest.mark.parametrize(("edit", "source", "batch"), EDITED_CASES)
def test_an_edited_script_is_no_drift(case, tmp_path, edit, source, batch):
    text, replacement = EDITS[edit]
    script = tmp_path / "edited.py"
    shutil.copy(str(SCRIPT), str(script))
    here = case("edit", "--data", source, script=script)
    run = here.run()
    here.kill(run, SECOND_FIT, batch)
    source_text = script.read_text()
    assert source_text.count(text) == 1, f"`{text}` is there {source_text.count(text)} times"
    script.write_text(source_text.replace(text, replacement))
    ended = run.run()
    script.write_text(source_text)
    check_same_or_stopped(ended, here.undisturbed_like(run).hashes if ended.code == 0 else None, "edited.py")
    if ended.code != 0:
        assert "the replay differs from the record: a file of the script was edited\n" in ended.stderr, ended
        assert "\n  file `edited.py`: recorded crc " in ended.stderr, ended
        assert "exact resume: yes" not in ended.stderr


@pytest.mark.stack("keras")
@pytest.mark.parametrize("fit", [FIRST_FIT, SECOND_FIT])
def test_what_callbacks_read_is_true_after_a_resume(case, fit):
    check_resume(case(script=support.SCRIPTS / "reads_in_callbacks.py"), fit)


@pytest.mark.stack("keras2")
def test_what_a_metric_of_the_script_sees_is_true_after_a_resume(case):
    check_resume(case(script=support.SCRIPTS / "own_metric.py"), FIRST_FIT)


@pytest.mark.stack("keras")
def test_batches_by_hand_repeat_whatever_the_script_does_with_their_results(case):
    check_resume(case("plain", script=support.SCRIPTS / "batches_by_hand.py"), FIRST_FIT)


@pytest.mark.stack("keras3")
@pytest.mark.parametrize("mode", ["metric", "eager"])
def test_batches_by_hand_in_which_code_of_the_script_runs_repeat(case, mode):
    check_resume(case(mode, script=support.SCRIPTS / "batches_by_hand.py"), FIRST_FIT)


@pytest.mark.stack("keras3")
def test_a_batch_that_failed_and_does_not_fail_again_is_no_drift(case):
    here = case("eager", script=support.SCRIPTS / "batches_by_hand.py")
    run = here.run()
    (run.directory / "fail").touch()
    here.kill(run, FIRST_FIT)
    (run.directory / "fail").unlink()
    ended = run.run()
    assert check_same_or_stopped(ended, None, "batches_by_hand.py")
    assert "a call that failed does not fail now" in ended.stderr


@pytest.mark.stack("each-keras")
@pytest.mark.parametrize("rows", [slice(None), slice(200, 201)], ids=["all-rows", "one-row"])
@pytest.mark.parametrize("source", ["arrays", "by-hand"])
def test_other_data_from_a_file_that_nobody_saw_opened_is_no_drift(case, source, rows):
    """C code reads the file, so only the arguments of the calls are compared."""
    here = case("unseen-data", "--data", source)
    run = here.run()
    here.kill(run, FIRST_FIT)
    other = data()
    other[rows] *= 1.5
    np.save(str(run.directory / "data.npy"), other)
    ended = run.run()
    assert "has changed" not in ended.stderr
    check_same_or_stopped(ended, None)
