"""Worker processes that start from a clean process, if a data set can be sent there (issue 6)."""

import os
import re
import signal
import time

import pytest
import support

pytestmark = pytest.mark.stack("keras3-jax", "keras2-tensorflow1")

SCRIPT = support.SCRIPTS / "sent_data_set.py"


@pytest.fixture
def run_of(script_run, tmp_path):
    """A function that makes a run with the same seeds as all others."""

    def make(kind, *options):
        file = tmp_path / "seeds.yaml"
        file.write_text(support.seeded_configuration(12, 4))
        return script_run(SCRIPT, kind, options=["--verbose", "--config", file, *options])

    return make


def parents(run, ended):
    """The parents of the processes that built items, except of the one that trains."""
    pairs = [line.split() for line in (run.directory / "parents.txt").read_text().splitlines()]
    return {parent for pid, parent in pairs if pid != trainer_of(ended)}


def trainer_of(ended):
    return re.search("TRAINER ([0-9]+)", ended.stdout).group(1)


@pytest.fixture(scope="module")
def forked(tmp_path_factory):
    """The `Ended` of a run whose workers are copies of the process that trains."""
    directory = tmp_path_factory.mktemp("forked")
    (directory / "seeds.yaml").write_text(support.seeded_configuration(12, 4))
    run = support.ScriptRun(directory / "run", SCRIPT, ["of-script"], ["--exact", "--config", directory / "seeds.yaml"])
    ended = run.run().check()
    assert parents(run, ended) == {trainer_of(ended)}
    yield ended
    run.close()


def test_workers_of_a_server_build_what_forked_ones_build(run_of, forked):
    run = run_of("sent", "--exact")
    ended = run.run().check()
    assert ended.hashes == forked.hashes
    assert trainer_of(ended) not in parents(run, ended)
    assert len(parents(run, ended)) == 1
    assert "NO CHILD" in ended.stdout
    assert "worker processes of the data set `Rows` start from a clean process" in ended.stderr
    assert "fork() was called" not in ended.stderr


REASONS = {
    "of-script": "`OfScript` is defined in the script itself",
    "busy": "its module `busy_rows` does more than define, in line 5",
    "lambda": "its attribute `scale` cannot be pickled",
    "global": "what its class uses is not the same in another process",
    "setting": "the script has changed a setting (`",
    "text": "the script has changed a setting (`",
    "package": "the script has changed a setting (`rated`)",
    "state": "the script has changed a setting (`numpy.seterr`)",
}


@pytest.mark.parametrize("kind", sorted(REASONS))
def test_what_would_not_be_the_same_is_forked(run_of, forked, kind):
    run = run_of(kind, "--exact")
    ended = run.run().check()
    assert parents(run, ended) == {trainer_of(ended)}
    assert f"are forked: {REASONS[kind]}" in ended.stderr
    assert ended.stdout.count("IMPORTED") == (kind == "busy")
    assert (ended.hashes == forked.hashes) == (kind not in ("global", "package"))


def test_ctrl_c_is_not_for_the_workers_of_a_server(run_of):
    running = run_of("slow").start()
    running.wait_until(lambda: len(running.workers) == 2)
    for pid in running.workers:
        with open(f"/proc/{pid}/status") as status:
            (mask,) = [int(line.split()[1], 16) for line in status if line.startswith("SigIgn")]
        ignored = {number for number in range(1, 32) if mask >> (number - 1) & 1}
        # A process that an item starts ignores the signals that its worker ignores.
        assert signal.SIGINT in ignored
        assert ignored.isdisjoint({signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2})
    running.kill_everything()


def test_a_worker_that_is_killed_is_started_again_by_the_server(run_of, forked):
    run = run_of("slow", "--exact")
    running = run.start()
    running.wait_until(lambda: len(running.workers) == 2)
    support._kill(running.workers[0])
    ended = running.wait().check()
    assert ended.hashes == forked.hashes
    assert "of the data set was ended by SIGKILL" in ended.stderr
    assert len(parents(run, ended)) == 1


def test_a_step_tells_how_long_it_waited_for_its_data(run_of):
    """The start of the workers takes longer, and is not part of a step."""
    run = run_of("slow")
    ended = run.run().check()
    steps = [event for event in run.trial.events if event["event"] == "step"]
    assert len(steps) == 4
    for step in steps:
        assert 0 < step["data_wait_seconds"] <= step["seconds"]
    assert "waiting for data" in ended.stderr


def test_without_its_server_a_run_forks_its_workers(run_of, forked):
    run = run_of("slow", "--exact")
    running = run.start()
    running.wait_until(lambda: len(running.workers) == 2)
    before = running.workers
    for pid in support._descendants(running.pid):
        if support._is_server(pid) and pid not in before:
            support._kill(pid)
    ended = running.wait().check()
    assert ended.hashes == forked.hashes
    assert "ended with the process that had started it" in ended.stderr
    assert trainer_of(ended) in parents(run, ended)


def test_a_killed_run_goes_on(run_of, forked):
    run = run_of("slow", "--exact", "--checkpoint-seconds", "0.05")
    run.start_and_kill()
    ended = run.run().check()
    assert ended.hashes == forked.hashes
    assert run.trial.count("resumed") == 1


# Processes besides the trainer: if the data set can be read, a server, a pool, and two workers.
@pytest.mark.parametrize(("kind", "processes"), [("slow", 4), ("stuck", 2)])
@pytest.mark.parametrize("whom", ["trial", "supervisor"])
def test_nothing_outlives_the_run(run_of, kind, processes, whom):
    running = run_of(kind).start()
    servers = lambda: [pid for pid in support._descendants(running.pid) if support._is_server(pid)]  # noqa: E731
    running.wait_until(lambda: len(servers()) == processes)
    below = support._descendants(running.pid)
    os.kill(running.pid if whom == "supervisor" else running.trial_pid, signal.SIGKILL)
    limit = time.monotonic() + 10
    while any(pid in support._parents() for pid in below if pid != running.pid):
        assert time.monotonic() < limit, "they live on"
        time.sleep(support.LOOK_INTERVAL)


WITHIN = "the data set `Slow` changes its attribute `shift` while its items are built"


@pytest.mark.parametrize(("batch", "is_told"), [(8, False), (20, True)])
def test_what_is_changed_within_an_epoch_is_told_where_that_matters(run_of, batch, is_told):
    run, undisturbed = (run_of("within-epoch", "--checkpoint-batches", str(batch)) for _ in range(2))
    expected = undisturbed.run().check()
    assert WITHIN not in expected.stderr, "workers have it as it was when the epoch began"
    running = run.start()
    # After the change in the first epoch, whose workers a replay starts at the epoch's begin, or in the second.
    running.wait_until(lambda: run.trial.checkpoint == batch)
    running.kill_everything()
    ended = run.run().check()
    assert run.trial.count("resumed") == 1
    assert (WITHIN in ended.stderr) == is_told
    assert (ended.hashes == expected.hashes) != is_told
