"""A run that a scheduler ends by a signal takes a checkpoint at the end of its batch, and the same command continues.

Each of these runs gets a real signal at a known place, and is started again. It must finally have learned
the same as the undisturbed run, bit for bit.
"""

import os
import signal
import time

import pytest
import support

SCRIPT = support.SCRIPTS / "preempted.py"

# With these options no checkpoint is taken by time, so that every checkpoint was taken for the signal.
NEVER = ["--exact", "--checkpoint-seconds", "600"]

BATCHES = 180


class Met:
    """One command that receives signals.

    Args:
        run: the `support.ScriptRun`.
    """

    def __init__(self, run):
        self.run = run
        self.directory = run.directory

    def hold(self, place):
        (self.directory / place).touch()

    def release(self, place):
        (self.directory / place).unlink()

    def start_until(self, place):
        """Starts it, and waits until it has reached a place where it is held."""
        reached = self.directory / f"{place}-reached"
        if reached.exists():
            reached.unlink()
        running = self.run.start()
        running.wait_until(reached.exists)
        return running

    def meet(self, place, number=signal.SIGTERM, send=None):
        """Starts it, signals it at a place, lets it continue, and returns the `Ended`."""
        self.hold(place)
        running = self.start_until(place)
        send_and_wait(running, number, send or support.Running.send)
        self.release(place)
        return running.wait(60)

    def events(self, kind):
        return [event for event in self.run.trial.events if event["event"] == kind]


def send_and_wait(running, number=signal.SIGTERM, send=support.Running.send):
    """Sends a signal, and returns only when the process that trains has received it."""
    supervisor, trial = running.pid, running.trial_pid
    before = _status(supervisor).get("voluntary_ctxt_switches")
    send(running, number)
    # The supervisor passes it on, and sleeps again.
    while send is not to_trial:
        now = _status(supervisor)
        if not now or (now["voluntary_ctxt_switches"] != before and "sleeping" in now["State"]):
            break
        time.sleep(0.01)
    while trial is not None and _is_pending(_status(trial), number):
        time.sleep(0.01)


def _status(pid):
    """The fields of a process's status; empty if there is no such process."""
    try:
        with open(f"/proc/{pid}/status") as lines:
            return dict(line.split(":", 1) for line in lines)
    except (FileNotFoundError, ProcessLookupError):
        return {}


def _is_pending(status, number):
    return any(int(status.get(name, "0").strip(), 16) >> (number - 1) & 1 for name in ("SigPnd", "ShdPnd"))


def to_trial(running, number):
    """Sends a signal to the process that trains, as Slurm does to all processes of a job."""
    os.kill(running.trial_pid, number)


def to_group(running, number):
    """Sends a signal to the process group: the trial process gets it, and once more from the supervisor."""
    os.killpg(running.pid, number)


@pytest.fixture
def met(script_run):
    """A function that makes a `Met`."""

    def make(*arguments, options=()):
        by_time = [] if "--checkpoint-seconds" in options else NEVER
        return Met(script_run(SCRIPT, *arguments, options=[*by_time, *options]))

    return make


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """The hashes that the undisturbed run prints of what it has learned."""
    run = support.ScriptRun(tmp_path_factory.mktemp("undisturbed"), SCRIPT, options=NEVER)
    hashes = run.run().check().hashes
    assert len(hashes) == 2
    return hashes


def assert_continued(met, learned, kept):
    """Starts it again, and compares; `kept` is the batch after which it must continue."""
    assert met.run.trial.checkpoint == kept
    ended = met.run.run().check()
    assert ended.hashes == learned
    resumed = met.events("resumed")[-1]
    assert resumed["batch"] == kept
    # This file belongs to the script, and must be the same as after the undisturbed run.
    assert len((met.directory / "batches").read_text().splitlines()) == BATCHES
    assert met.run.trial.events[-1] == dict(met.run.trial.events[-1], event="trial_ended", exit_code=0)


def assert_preempted(met, ended, batch, name="SIGTERM"):
    """Checks what a preempted run prints, once, and writes."""
    line = f"pedl: preempted by {name}: checkpoint after batch {batch}; the same command continues\n"
    assert ended.stderr.count("preempted") == 1, ended
    assert line in ended.stderr, ended
    (event,) = met.events("preempted")
    assert (event["signal"], event["batch"], event["checkpoint"], event["is_new"]) == (name, batch, batch, True)
    assert met.run.trial.events[-1]["event"] == "trial_ended"
    assert met.run.trial.events[-1]["signal"] == name
    assert met.events("restart") == []


@pytest.mark.stack("keras")
@pytest.mark.parametrize("send", [support.Running.send, to_trial, to_group], ids=["supervisor", "trial", "group"])
def test_sigterm_ends_it_after_the_batch_with_a_checkpoint(met, learned, send):
    here = met()
    ended = here.meet("batch-30", send=send).check(-signal.SIGTERM)
    assert_preempted(here, ended, 31)
    assert_continued(here, learned, 31)


@pytest.mark.stack("keras3-jax")
def test_the_notice_of_slurm_does_the_same(met, learned):
    here = met()
    ended = here.meet("batch-90", signal.SIGUSR1, to_group).check(-signal.SIGUSR1)
    # The second fit begins after batch 60.
    assert_preempted(here, ended, 91, "SIGUSR1")
    assert_continued(here, learned, 91)


@pytest.mark.stack("keras3-jax")
def test_ctrl_c_ends_it_as_python_does_and_what_the_same_command_does_is_said(met, learned):
    here = met(options=["--checkpoint-batches", "20"])
    ended = here.meet("batch-30", signal.SIGINT).check(-signal.SIGINT)
    assert "KeyboardInterrupt\n" in ended.stderr
    assert "interrupted; the same command continues after batch 20\n" in ended.stderr, ended
    assert_continued(here, learned, 20)
    early = met(options=["--fresh"]).meet("batch-10", signal.SIGINT).check(-signal.SIGINT)
    assert "interrupted, and there is no checkpoint; the same command starts from the beginning\n" in early.stderr, early


@pytest.mark.stack("keras3-jax")
def test_a_script_with_a_handler_for_the_notice_is_left_alone(met, learned):
    here = met("--handler", "note", "--signal", "SIGUSR1")
    ended = here.meet("batch-30", signal.SIGUSR1).check()
    assert ended.hashes == learned
    assert (here.directory / "handled").read_text() == f"{int(signal.SIGUSR1)} after batch 30\n"
    assert here.events("preempted") == []


@pytest.mark.stack("keras")
@pytest.mark.parametrize(
    ("moment", "kept"),
    [
        pytest.param("evaluate", 60, id="in-an-evaluation"),
        pytest.param("validate-120", 120, id="in-the-validation-of-a-fit"),
        pytest.param("between", 60, id="between-two-fits"),
    ],
)
def test_where_no_batch_is_trained_it_ends_after_the_next_call(met, learned, moment, kept):
    here = met()
    ended = here.meet(moment).check(-signal.SIGTERM)
    assert_preempted(here, ended, kept)
    assert_continued(here, learned, kept)


@pytest.mark.stack("keras3-jax")
def test_after_the_training_the_script_comes_to_its_end(met, learned):
    here = met()
    ended = here.meet("after").check()
    assert ended.hashes == learned
    assert here.events("preempted") == []
    last = here.run.trial.events[-1]
    assert (last["event"], last["exit_code"], "signal" in last) == ("trial_ended", 0, False)


@pytest.mark.stack("keras3-jax")
def test_preempted_again_and_again_it_comes_to_its_end(met, learned):
    here = met()
    for place in ("batch-30", "between", "batch-90"):
        here.meet(place).check(-signal.SIGTERM)
    assert here.events("restart") == []
    assert_continued(here, learned, 91)


@pytest.mark.stack("keras")
def test_a_long_callback_ends_it_when_the_grace_is_over(met, learned):
    here = met(options=["--grace", "1.5", "--exact", "--checkpoint-seconds", "0"])
    here.hold("batch-30")
    running = here.start_until("batch-30")
    running.wait_until(lambda: here.run.trial.checkpoint)
    sent = time.monotonic()
    running.send(signal.SIGTERM)
    ended = running.wait(60).check(-signal.SIGTERM)
    assert 1.4 < time.monotonic() - sent < 8
    kept = here.run.trial.checkpoint
    assert f"preempted by SIGTERM: no new checkpoint; the same command continues after batch {kept}\n" in ended.stderr
    (event,) = here.events("preempted")
    assert (event["signal"], event["checkpoint"], event["is_new"]) == ("SIGTERM", kept, False)
    here.release("batch-30")
    assert_continued(here, learned, kept)


@pytest.mark.stack("keras3-jax")
def test_a_long_computation_ends_it_when_the_grace_is_over(met):
    here = met(options=["--grace", "1.5"])
    here.hold("compute")
    running = here.start_until("compute")
    sent = time.monotonic()
    running.send(signal.SIGTERM)
    ended = running.wait(60).check(-signal.SIGTERM)
    assert 1.4 < time.monotonic() - sent < 8
    assert "preempted by SIGTERM: no checkpoint was taken; the same command starts from the beginning" in ended.stderr


@pytest.mark.stack("keras3-jax")
def test_a_second_signal_ends_it_at_once(met, learned):
    here = met(options=["--checkpoint-seconds", "0"])
    here.hold("batch-30")
    running = here.start_until("batch-30")
    running.wait_until(lambda: here.run.trial.checkpoint)
    running.send(signal.SIGTERM)
    assert running.ends_within(2) is None
    running.send(signal.SIGTERM)
    sent = time.monotonic()
    running.wait(60).check(-signal.SIGTERM)
    assert time.monotonic() - sent < 8
    here.release("batch-30")
    assert_continued(here, learned, here.run.trial.checkpoint)


@pytest.mark.stack("keras3-jax")
def test_while_a_large_checkpoint_is_written(met):
    here = met("--units", "100000", options=["--checkpoint-seconds", "0"])
    undisturbed = here.run.run().check().hashes
    here = met("--units", "100000", options=["--checkpoint-seconds", "0"])
    running = here.run.start()
    checkpoints = here.run.trial.directory / "checkpoints"
    running.wait_until(lambda: checkpoints.exists() and any(name.name.startswith(".") for name in checkpoints.iterdir()))
    running.send(signal.SIGTERM)
    ended = running.wait(60).check(-signal.SIGTERM)
    (event,) = here.events("preempted")
    assert_preempted(here, ended, event["batch"])
    assert here.run.run().check().hashes == undisturbed
    assert here.events("resumed")[-1]["batch"] == event["batch"]


@pytest.mark.stack("keras3-jax")
@pytest.mark.parametrize("when", ["import", "fit"])
def test_a_handler_that_exits_runs_after_the_checkpoint(met, learned, when):
    here = met("--handler", "exit", "--when", when)
    ended = here.meet("batch-30").check(0)
    assert (here.directory / "handled").read_text() == f"{int(signal.SIGTERM)} after batch 30\n"
    assert "checkpoint after batch 31; the script handled that, and ended with exit code 0" in ended.stderr, ended
    assert here.run.trial.events[-1]["signal"] == "SIGTERM"
    assert_continued(here, learned, 31)


@pytest.mark.stack("keras3-jax")
@pytest.mark.parametrize("send", [support.Running.send, to_trial], ids=["supervisor", "trial"])
@pytest.mark.parametrize("handler", ["flag", "stop"])
def test_a_handler_after_which_the_script_ends_early_is_no_end_of_the_trial(met, learned, handler, send):
    here = met("--handler", handler)
    here.hold("between")
    here.hold("batch-30")
    running = here.start_until("batch-30")
    send_and_wait(running, send=send)
    here.release("batch-30")
    running.wait_until((here.directory / "between-reached").exists)
    here.release("between")
    ended = running.wait().check(0)
    assert here.run.trial.checkpoint == 31
    assert here.events("preempted")[0]["batch"] == 31
    if handler == "stop":
        assert "the script handled SIGTERM by itself, and trains on: no further checkpoints are taken" in ended.stderr
    assert_continued(here, learned, 31)


@pytest.mark.stack("keras3-jax")
def test_a_script_that_ignores_it_trains_on(met, learned):
    here = met("--handler", "ignore", options=["--grace", "0.5"])
    here.hold("batch-30")
    running = here.start_until("batch-30")
    running.send(signal.SIGTERM)
    assert running.ends_within(7) is None
    here.release("batch-30")
    assert running.wait().check().hashes == learned


@pytest.mark.stack("keras3-jax")
def test_a_handler_that_trains_on_is_not_killed(met, learned):
    here = met("--handler", "note", options=["--grace", "0.5"])
    here.hold("batch-90")
    here.hold("batch-30")
    running = here.start_until("batch-30")
    send_and_wait(running)
    here.release("batch-30")
    assert running.ends_within(7) is None
    here.release("batch-90")
    assert running.wait().check().hashes == learned
    assert len(here.events("trained_on")) == 1


@pytest.mark.stack("keras3-jax")
def test_a_handler_that_hangs_is_killed(met, learned):
    here = met("--handler", "hang", options=["--grace", "5"])
    here.hold("handler")
    ended = here.meet("batch-30").check(-signal.SIGTERM)
    assert "the trial process did not end within 8 s of SIGTERM" in ended.stderr, ended
    assert "preempted by SIGTERM: checkpoint after batch 31; the same command continues" in ended.stderr
    here.release("handler")
    assert_continued(here, learned, 31)


@pytest.mark.stack("keras")
def test_in_a_replay_a_handler_that_exits_is_no_divergence(met, learned):
    here = met("--handler", "exit")
    here.meet("batch-90").check(0)
    ended = here.meet("batch-30").check(0)
    assert "the replay differs" not in ended.stderr
    assert "no new checkpoint; the script handled that, and ended with exit code 0" in ended.stderr, ended
    assert_continued(here, learned, 91)


@pytest.mark.stack("keras3-jax")
def test_in_a_replay_a_script_that_stops_is_no_divergence(met, learned):
    here = met("--handler", "stop")
    here.meet("batch-150").check()
    assert here.run.trial.checkpoint == 151
    # The handler ends the second fit after batch 120.
    ended = here.meet("batch-90").check(-signal.SIGTERM)
    assert "the replay differs" not in ended.stderr
    assert here.run.run().check().hashes == learned


@pytest.mark.stack("keras3-jax")
@pytest.mark.parametrize("handler", ["none", "exit"])
def test_before_the_first_batch_it_acts_at_once(met, learned, handler):
    here = met("--handler", handler)
    here.hold("batch-1")
    running = here.run.start()
    running.wait_until(lambda: here.run.trial.count("trial_begun") == 1)
    if not (here.directory / "batch-1-reached").exists():
        running.send(signal.SIGTERM)
        running.wait(60).check(0 if handler == "exit" else -signal.SIGTERM)
        assert here.events("checkpoint") == []
    here.release("batch-1")
    assert here.run.run().check().hashes == learned


@pytest.mark.stack("keras3-jax")
def test_the_exit_code_of_a_preempted_run_can_be_chosen(met, learned):
    here = met(options=["--preempt-exit-code", "99"])
    here.meet("batch-30").check(99)
    assert_continued(here, learned, 31)
    other = met("--handler", "exit", options=["--preempt-exit-code", "99"])
    other.meet("batch-30").check(99)
    assert_continued(other, learned, 31)


@pytest.mark.stack("keras3-jax")
def test_a_preemption_is_none_of_its_restarts(met, learned):
    here = met(options=["--max-restarts", "1"])
    here.meet("batch-30", send=to_trial).check(-signal.SIGTERM)
    assert here.events("restart") == []
    assert_continued(here, learned, 31)


@pytest.mark.stack("keras3-jax")
def test_what_cannot_be_kept_ends_at_once(met):
    # A cause because of which no checkpoint is taken; `--exact` would refuse it.
    here = met(options=["--log-limit", "1", "--checkpoint-seconds", "0"])
    here.hold("batch-30")
    running = here.start_until("batch-30")
    running.send(signal.SIGTERM)
    ended = running.wait(60).check(-signal.SIGTERM)
    assert "preempted by SIGTERM: no checkpoint was taken; the same command starts from the beginning" in ended.stderr
