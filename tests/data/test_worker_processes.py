"""Worker processes of data sets: a fault in one of them costs only time, or is reported (issue 6)."""

import os
import re
import signal
import time

import pytest
import support

pytestmark = pytest.mark.stack("keras3-jax", "keras2-tensorflow1")

SCRIPT = support.SCRIPTS / "worker_faults.py"

EPOCHS, BATCHES = 4, 12

CONFIGURATION = support.seeded_configuration(BATCHES, EPOCHS)


@pytest.fixture
def run_of(script_run, tmp_path):
    """A function that makes a run with this many workers, one of which has a fault."""

    def make(workers, fault, *words, **settings):
        file = tmp_path / "seeds.yaml"
        file.write_text(CONFIGURATION)
        options = ["--config", file, "--exact"] + settings.pop("options", [])
        return script_run(SCRIPT, workers, fault, *words, options=options, **settings)

    return make


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The `Ended` of a run whose items are built by two processes, and the directory that it ran in."""
    directory = tmp_path_factory.mktemp("undisturbed")
    (directory / "seeds.yaml").write_text(CONFIGURATION)
    run = support.ScriptRun(directory / "run", SCRIPT, [2, "none"], ["--config", directory / "seeds.yaml", "--exact"])
    yield run.run().check(), run.directory
    run.close()


def test_workers_live_through_a_fit_and_end_with_it(undisturbed):
    ended, directory = undisturbed
    trainer = re.search("TRAINER ([0-9]+)", ended.stdout).group(1)
    built = [pid for pid in (directory / "built.txt").read_text().split() if pid != trainer]
    assert len(built) >= EPOCHS * BATCHES
    assert len(set(built)) == 2, "each epoch is built by the same two"
    assert "LEFT 0" in ended.stdout


@pytest.mark.parametrize("words", [(0,), (1,), (4,), (1, "threads"), (2, "threads"), (4, "threads")], ids=str)
def test_what_is_delivered_is_the_same_with_any_workers(run_of, undisturbed, words):
    ended = run_of(words[0], "none", *words[1:]).run().check()
    assert ended.hashes == undisturbed[0].hashes
    assert "LEFT 0" in ended.stdout


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("kill", "was ended by SIGKILL while it built item 5"),
        ("segv", "was ended by SIGSEGV while it built item 5"),
        ("exit", "ended with exit code 3 while it built item 5"),
        ("stuck", "took longer than --worker-timeout, and was ended while it built item 5"),
    ],
)
def test_a_worker_that_dies_is_replaced_and_its_item_built_again(run_of, undisturbed, fault, told):
    run = run_of(2, fault, options=["--worker-timeout", "2"])
    ended = run.run().check()
    assert ended.hashes == undisturbed[0].hashes
    assert told in ended.stderr
    (event,) = [event for event in run.trial.events if event["event"] == "worker_ended"]
    assert f"worker process {event['pid']} of the data set {event['how']} while it built item {event['item']};" in ended.stderr
    assert "LEFT 0" in ended.stdout


@pytest.mark.parametrize("fault", ["kill", "segv", "stuck"])
def test_an_item_that_ends_its_worker_each_time_ends_the_run(run_of, fault):
    run = run_of(2, fault + "-always", options=["--worker-timeout", "1"])
    ended = run.run().check(1)
    assert "item 5 of the data set has ended 3 worker processes that built it; the last one" in ended.stderr
    if fault != "kill":
        assert 'worker_faults.py", line' in ended.stderr.partition("the last one")[2], "where the worker was"
        assert "suffer" in ended.stderr.partition("the last one")[2]
    assert "pedl-run bug" not in ended.stderr
    assert_nothing_is_left(run)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("raise", "ValueError: item 5 is broken"),
        ("unlike", "item 5 is broken"),
        ("unsendable", "pickle"),
    ],
)
def test_what_a_worker_raises_is_raised_where_the_item_is_asked_for(run_of, fault, told):
    run = run_of(2, fault)
    ended = run.run().check(1)
    assert told in ended.stderr
    assert "in suffer" in ended.stderr or fault == "unsendable", "the traceback of the worker"
    assert_nothing_is_left(run)


def test_workers_killed_from_outside_are_missed_for_a_moment(run_of, undisturbed):
    run = run_of(2, "none")
    running, killed, built = run.start(), [], [0]
    # One after the other, with other items in between: an item that loses three workers counts as faulty.
    while running.ends_before(lambda: count_built(run) > built[-1] + 4 and running.workers) is None:
        for pid in running.workers[-1:]:
            support._kill(pid)
            killed.append(pid)
        built.append(count_built(run))
    ended = running.wait().check()
    assert ended.hashes == undisturbed[0].hashes
    assert len(killed) > 3
    assert all(f"worker process {pid} of the data set was ended by SIGKILL" in ended.stderr for pid in killed[:-1])


def count_built(run):
    """How many items have been built."""
    try:
        return (run.directory / "built.txt").read_text().count("\n")
    except FileNotFoundError:
        return 0


def test_no_worker_outlives_the_supervisor(run_of):
    run = run_of(2, "stuck")
    running = run.start()
    running.wait_until((run.directory / "suffered.txt").exists)
    workers = running.workers
    assert len(workers) == 2
    os.kill(running.pid, signal.SIGKILL)
    wait_for_the_end_of(workers)


def test_no_worker_outlives_the_trainer(run_of):
    run = run_of(2, "stuck")
    running = run.start()
    running.wait_until((run.directory / "suffered.txt").exists)
    workers = running.workers
    running.kill_trial()
    wait_for_the_end_of(workers)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_trial_goes_on_with_another_number_of_workers(run_of, undisturbed, workers):
    run = run_of("-", "none", options=["--checkpoint-seconds", "0.05"], environment={"WORKERS": "2"})
    run.start_and_kill()
    run.environment["WORKERS"] = str(workers)
    ended = run.run().check()
    assert ended.hashes == undisturbed[0].hashes
    assert run.trial.count("resumed") == 1


@pytest.mark.parametrize("words", [(1, "processes"), (2, "processes"), (4, "processes"), (2, "threads"), (4, "threads")])
def test_augmented_images_are_the_same_with_any_workers(script_run, tmp_path, words):
    file = tmp_path / "seeds.yaml"
    file.write_text(CONFIGURATION)
    script = support.SCRIPTS / "augmented_images.py"
    ended = [
        script_run(script, *settings, options=["--config", file, "--exact"]).run().check()
        for settings in [(0, "threads"), words]
    ]
    assert ended[0].hashes == ended[1].hashes


@pytest.mark.parametrize(("workers", "way"), [("1", "processes"), ("3", "processes"), ("2", "threads")])
def test_augmented_images_go_on_with_other_workers(script_run, tmp_path, workers, way):
    file = tmp_path / "seeds.yaml"
    file.write_text(CONFIGURATION)
    script = support.SCRIPTS / "augmented_images.py"
    options = ["--config", file, "--exact"]
    whole = script_run(script, 2, "processes", options=options).run().check()
    options += ["--checkpoint-seconds", "0.05"]
    run = script_run(script, "2", "processes", options=options, environment={"WORKERS": "2", "WAY": "processes"})
    run.start_and_kill()
    run.environment.update(WORKERS=workers, WAY=way)
    assert run.run().check().hashes == whole.hashes
    assert run.trial.count("resumed") == 1


@pytest.mark.stack("keras3-jax")
@pytest.mark.parametrize("way", ["attribute", "array", "global", "class", "function", "package", "environment"])
def test_what_a_callback_changes_reaches_the_workers(script_run, way):
    script = support.SCRIPTS / "changes_in_the_trainer.py"
    alone = script_run(script, way, 1, "threads").run().check()
    processes = script_run(script, way, 2)
    assert processes.run().check().hashes == alone.hashes
    # A change that can be sent to workers does not restart them.
    count = len(set((processes.directory / "built.txt").read_text().split()))
    assert (count <= 3) == (way in ("attribute", "array"))


def wait_for_the_end_of(processes):
    limit = time.monotonic() + 10
    while any(pid in support._parents() for pid in processes):
        assert time.monotonic() < limit, "they live on"
        time.sleep(support.LOOK_INTERVAL)


SHARED_MEMORY = set(os.listdir("/dev/shm"))


def assert_nothing_is_left(run):
    """Checks that no process and no named shared memory is left, except what existed before the tests."""
    names = set(os.listdir("/dev/shm")) - SHARED_MEMORY
    assert not [name for name in names if re.search("pedl|psm|mp-", name)]
    for pid in support._parents():
        try:
            where = os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            continue
        assert where != str(run.directory), "a process is left"
