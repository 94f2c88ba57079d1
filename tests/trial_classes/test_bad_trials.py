"""Everything that can happen to a trial that trains, or has trained: the message, the exit code, and that nothing is lost.

A trial that was killed after several checkpoints is copied for each case, and something is done to it. Then either the
start is refused, and the copy is unchanged, byte for byte; or it continues, perhaps after room was made, and ends with
the weights of an undisturbed training. The message is in `snapshots/<name>.txt`.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import support
from support import snapshots

SCRIPT = support.SCRIPTS / "fit_and_hold.py"

# A step is longer than the training, because the line of a step would contain a time.
OPTIONS = ["--batches-per-step", "1000", "--checkpoint-seconds", "0.05"]

pytestmark = pytest.mark.stack("keras3-jax")

# Shifts the clock of the C library by a number of seconds.
CLOCK = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, id, now);
    if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) now->tv_sec += atol(getenv("CLOCK_SHIFT"));
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (now) *now = precise.tv_sec;
    return precise.tv_sec;
}
"""
# The batch at which the script waits if a test asks it to, and the number of batches.
HELD_BATCH, BATCHES = 160, 240

TEN_YEARS = 10 * 365 * 24 * 3600


class Run:
    """One script in one directory, with or without a trial.

    Args:
        directory: it is made.
        script: the script to run; by default `train.py` of the directory.
        trial: a trial directory that is copied, or None.
        options: of pedl-run.
        trial_dir: the directory of the trial, if it is not the default.
    """

    def __init__(self, directory, trial=None, options=OPTIONS, trial_dir=None):
        np = pytest.importorskip("numpy")
        self.bench = snapshots.Bench(directory)
        self.directory = self.bench.directory
        np.save(str(self.directory / "data.npy"), np.random.RandomState(0).normal(size=(480, 64)).astype("float32"))
        shutil.copy(str(SCRIPT), str(self.directory / "train.py"))
        self.options = list(options)
        self.trial_dir = Path(str(trial_dir or self.directory / ".pedl" / "train"))
        if trial_dir:
            self.options += ["--trial-dir", str(trial_dir)]
        if trial is not None:
            shutil.copytree(str(trial), str(self.trial_dir), symlinks=True)
        self.running = support.ScriptRun(self.directory, "train.py", options=self.options)
        self.running.trial = support.Trial(self.trial_dir)

    @property
    def trial(self):
        return self.running.trial

    @property
    def newest(self):
        """The folder of the newest checkpoint."""
        return (self.trial_dir / "latest").resolve()

    @property
    def checkpoints(self):
        """The folders of all checkpoints, oldest first."""
        return sorted((self.trial_dir / "checkpoints").glob("batch-*"))

    def start(self):
        """Starts it; returns the `support.Running`."""
        self.running.options = self.options
        return self.running.start()

    def end(self, *more, **settings):
        """Runs it to its end; returns the `support.Ended`.

        Args:
            more: options of this run alone.
            settings: of `snapshots.Bench.run`.
        """
        python = ["--python", sys.executable]
        return self.bench.run(python + self.options + list(more) + ["train.py"], **settings)

    def edit_identity(self, edit):
        """Changes `trial.json`: `edit(dict)`."""
        identity = self.trial.identity
        edit(identity)
        (self.trial_dir / "trial.json").write_text(json.dumps(identity))


class Killed:
    """A trial that was killed after its third checkpoint, and the result of an undisturbed one."""

    def __init__(self, folder):
        run = Run(folder / "killed")
        (run.directory / "slow").touch()
        running = run.start()
        running.wait_until(lambda: run.trial.count("checkpoint") >= 3)
        running.kill_everything()
        assert run.trial.checkpoint < HELD_BATCH
        # What the kill left half done is not part of the cases.
        for left in (run.trial_dir / "checkpoints").glob(".staging-*"):
            shutil.rmtree(str(left))
        self.trial_dir = run.trial_dir
        undisturbed = Run(folder / "undisturbed")
        undisturbed.trial_dir.mkdir(parents=True)
        shutil.copy(str(run.trial_dir / "trial.json"), str(undisturbed.trial_dir / "trial.json"))
        ended = undisturbed.end().check()
        self.hashes = ended.hashes
        assert len(self.hashes) == 1, ended
        assert len(run.checkpoints) == 2


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    return Killed(tmp_path_factory.mktemp("trial"))


@pytest.fixture
def run(killed, tmp_path):
    """A copy of the killed trial; its processes end with the test."""
    made = Run(tmp_path / "here", killed.trial_dir)
    yield made
    made.running.close()


@pytest.fixture
def new_run(tmp_path):
    """A trial that has not begun."""
    made = Run(tmp_path / "here")
    yield made
    made.running.close()


@pytest.fixture
def told(request):
    """A function that compares the output with the snapshot of this test."""
    name = request.node.originalname[len("test_"):]
    assert name in NAMES, "the snapshots of this file are listed in NAMES"

    def told(run, ended, options=()):
        shown = " ".join(["pedl-run"] + list(options) + ["train.py"])
        snapshots.compare(name, ended, run.bench, shown, request.config.getoption("--renew"))
        assert "Traceback" not in ended.stderr

    return told


@pytest.fixture
def goes_on(run, killed, told):
    """A function that starts the trial: it prints what the snapshot says, resumes, and ends as the undisturbed one."""

    def goes_on(**settings):
        ended = run.end(**settings)
        told(run, ended)
        ended.check()
        assert run.trial.count("resumed") == 1
        assert ended.hashes == killed.hashes

    return goes_on


# -- changes to the files of a trial -----------------------------------------------------------------------------------


def test_checkpoint_with_a_flipped_bit(run, goes_on):
    # The first of its packs is the one that was written for this checkpoint.
    pack = json.loads((run.newest / "manifest.json").read_text())["packs"][0]["blake3"]
    path = run.trial_dir / "checkpoints" / "tensors" / (pack + ".safetensors")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    goes_on()


def test_latest_leads_nowhere(run, goes_on):
    (run.trial_dir / "latest").unlink()
    (run.trial_dir / "latest").symlink_to("checkpoints/batch-0000000001")
    goes_on()


def test_ledger_is_rubbish(run, goes_on):
    (run.trial_dir / "files.jsonl").write_bytes(b"\x00\xff\n[]\nnull\n7\n{}\n{\"created\": 7}\n{\"eve")
    goes_on()


def test_second_start_while_the_first_imports(run, killed, told):
    """Neither has begun to train: the second changes nothing, and the first finds its files as they were."""
    script = run.directory / "train.py"
    text = script.read_text()
    made = "open('made.txt', 'a').write('by the script\\n')\n"
    wait = "import os, time\nopen('waits', 'w').close()\nwhile os.path.exists('wait'): time.sleep(0.01)\n"
    script.write_text(wait + made + text)
    (run.directory / "wait").touch()
    running = run.start()
    running.wait_until((run.directory / "waits").exists)
    ended = run.end()
    told(run, ended)
    ended.check(75)
    (run.directory / "wait").unlink()
    # The script differs from that of the trial; only the lock of the trial matters here.
    assert "in use" not in running.wait().stderr
    assert 75 not in [event.get("exit_code") for event in run.trial.events]


def test_trial_of_another_user(run, killed, told):
    """A user who may read but not write it gets a message with its owner, and it is unchanged."""
    snapshots.skip_unless_permissions_hold(run.directory.parent)
    if os.geteuid() != 0:
        pytest.skip("only root may give a trial to another user")
    before = snapshots.tree(run.trial_dir)
    paths = [run.trial_dir, *run.trial_dir.rglob("*")]
    for path in paths:
        os.chown(str(path), 12345, 12345, follow_symlinks=False)
    ended = run.end(as_owner=True)
    told(run, ended)
    ended.check(73)
    assert snapshots.tree(run.trial_dir) == before
    for path in paths:
        os.chown(str(path), 0, 0, follow_symlinks=False)
    assert run.end(as_owner=True).check().hashes == killed.hashes


# -- changes to the machine ----------------------------------------------------------------------------------------------


def test_trial_of_another_python(run, goes_on):
    run.edit_identity(lambda identity: identity.update(python="3.6.15"))
    goes_on()


def test_clock_was_set_back(run, goes_on, tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler, and without it no other clock")
    (tmp_path / "clock.c").write_text(CLOCK)
    library = str(tmp_path / "clock.so")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, str(tmp_path / "clock.c")], check=True)
    before = run.trial.events[-1]["time"]
    goes_on(environment={"LD_PRELOAD": library, "CLOCK_SHIFT": str(-TEN_YEARS)})
    after = run.trial.events[-1]["time"]
    assert int(after[:4]) + 10 in (int(before[:4]), int(before[:4]) + 1)


# -- changes to the script and its data ------------------------------------------------------------------------------------


@pytest.fixture
def stops(run, killed, told):
    """A function that starts the trial, which stops; then undoes the change, after which the trial continues."""

    def stops(code, undo, *options):
        ended = run.end(*options)
        told(run, ended, options)
        ended.check(code)
        assert ended.hashes == []
        undo()
        assert run.end().check().hashes == killed.hashes
        assert run.trial.count("resumed") == 1

    return stops


def test_trial_of_another_keras(run, stops):
    """With `--exact`, which promises something that another version cannot keep."""
    before = run.trial.identity["versions"]["keras"]
    run.edit_identity(lambda identity: identity["versions"].update(keras="3.14.0"))
    stops(77, lambda: run.edit_identity(lambda identity: identity["versions"].update(keras=before)), "--exact")


def test_script_that_fails_again(new_run, told):
    """What it printed before is not printed again, but the reason why it ended is."""
    script = new_run.directory / "train.py"
    script.write_text(script.read_text() + "raise RuntimeError('after the training')\n")
    assert "RuntimeError: after the training" in new_run.end().check(1).stderr
    ended = new_run.end().check(1)
    told(new_run, ended)
    assert new_run.trial.count("resumed") == 1


# -- a disk that is full ---------------------------------------------------------------------------------------------------


class Disk:
    """A small separate file system: if it is full, no other program is affected."""

    def __init__(self, path):
        self.path = path
        path.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", "size=16m,nr_inodes=400", "tmpfs", str(path)]
        ended = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if ended.returncode != 0:
            pytest.skip(f"no file system may be mounted here: {ended.stdout.decode().strip()}")

    def fill_names(self, left):
        """Leaves room for this many new files and directories."""
        folder = self.path / "names"
        folder.mkdir()
        made = []
        while True:
            path = folder / str(len(made))
            try:
                path.touch()
            except OSError:
                break
            made.append(path)
        for path in made[len(made) - left:]:
            path.unlink()

    def fill_bytes(self, left):
        """Leaves this many bytes of room."""
        size = 0
        with (self.path / "bytes").open("wb", buffering=0) as file:
            while True:
                try:
                    written = file.write(b"x" * 4096)
                except OSError:
                    break
                size += written
            file.truncate(size - left)

    def make_room(self):
        shutil.rmtree(str(self.path / "names"), ignore_errors=True)
        if (self.path / "bytes").exists():
            (self.path / "bytes").unlink()

    def close(self):
        subprocess.run(["umount", "-l", str(self.path)], check=True)


@pytest.fixture
def disk(tmp_path):
    if not shutil.which("mount"):
        pytest.skip("there is no `mount`")
    made = Disk(tmp_path / "disk")
    yield made
    made.close()


@pytest.fixture
def fills_up(killed, tmp_path, disk, told):
    """A function that trains on a disk and fills it in the middle; the run stops with 201, and resumes after room is made."""

    def fills_up(fill, options=OPTIONS, files=("hold",)):
        run = Run(tmp_path / "here", trial_dir=disk.path / "trial", options=options)
        run.bench.replaced.insert(0, (str(disk.path), "DISK"))
        run.trial_dir.mkdir()
        shutil.copy(str(killed.trial_dir / "trial.json"), str(run.trial_dir / "trial.json"))
        for name in files:
            (run.directory / name).touch()
        running = run.start()
        folder = run.trial_dir / "checkpoints"
        running.wait_until(lambda: "holding" in running.stdout and run.trial.checkpoint and not any(folder.glob(".*")))
        checkpoint = run.trial.checkpoint
        fill()
        # Even if the rest would train fast: a checkpoint becomes due during it, and its failure is noticed during it.
        (run.directory / "slow").touch()
        (run.directory / "hold").unlink()
        ended = running.wait()
        told(run, ended, ["--trial-dir", "DISK/trial"])
        ended.check(201)
        assert run.trial.checkpoint == checkpoint
        assert "holding" in ended.stdout
        disk.make_room()
        (run.directory / "slow").unlink()
        ended = run.end().check()
        assert ended.hashes == killed.hashes
        assert [event["batch"] for event in run.trial.events if event["event"] == "resumed"] == [checkpoint]

    return fills_up


def test_disk_full_before_the_trial(new_run, disk, told):
    new_run.bench.replaced.insert(0, (str(disk.path), "DISK"))
    disk.fill_names(left=0)
    ended = new_run.end("--trial-dir", str(disk.path / "trial"))
    told(new_run, ended, ["--trial-dir", "DISK/trial"])
    ended.check(73)
    disk.make_room()
    new_run.end("--trial-dir", str(disk.path / "trial")).check()


def test_disk_full_when_a_trial_begins(new_run, disk, told):
    """The directory can be made, but nothing in it."""
    new_run.bench.replaced.insert(0, (str(disk.path), "DISK"))
    disk.fill_bytes(left=0)
    ended = new_run.end("--trial-dir", str(disk.path / "trial"))
    told(new_run, ended, ["--trial-dir", "DISK/trial"])
    ended.check(73)
    disk.make_room()
    new_run.end("--trial-dir", str(disk.path / "trial")).check()


def test_disk_full_at_the_start_of_a_checkpoint(disk, fills_up):
    fills_up(lambda: disk.fill_names(left=0))


def test_disk_full_in_the_middle_of_a_checkpoint(disk, fills_up):
    """There is room for half of the tensors."""
    fills_up(lambda: disk.fill_bytes(left=300_000))


def test_disk_full_at_the_end_of_a_checkpoint(disk, fills_up):
    fills_up(lambda: disk.fill_names(left=3))


def test_a_disk_on_which_room_is_made_in_time_costs_nothing(disk, killed, tmp_path):
    """The training does not end: the failure is an event, and the next checkpoint is tried."""
    # Far enough apart for room to be made before the fifth.
    options = ["--batches-per-step", "1000", "--checkpoint-seconds", "0.5"]
    run = Run(tmp_path / "here", trial_dir=disk.path / "trial", options=options)
    (run.directory / "slow").touch()
    run.trial_dir.mkdir()
    shutil.copy(str(killed.trial_dir / "trial.json"), str(run.trial_dir / "trial.json"))
    (run.directory / "hold").touch()
    running = run.start()
    folder = run.trial_dir / "checkpoints"
    running.wait_until(lambda: "holding" in running.stdout and run.trial.checkpoint and not any(folder.glob(".*")))
    checkpoint = run.trial.checkpoint
    disk.fill_bytes(left=300_000)
    (run.directory / "hold").unlink()
    running.wait_until(lambda: run.trial.count("checkpoint_failed"))
    disk.make_room()
    running.wait_until(lambda: run.trial.checkpoint > checkpoint)
    (run.directory / "slow").unlink()
    ended = running.wait().check()
    assert ended.hashes == killed.hashes
    failed = [event for event in run.trial.events if event["event"] == "checkpoint_failed"]
    assert [event["failures"] for event in failed] == list(range(1, len(failed) + 1))
    assert ended.stderr.count("was not written") == len(failed) < 5


def test_disk_full_at_the_last_checkpoint(disk, killed, tmp_path, told):
    """The script ends at once: what it has learned is kept, and a message says that its checkpoint is not."""
    options = ["--checkpoint-seconds", "3600", "--checkpoint-period", "1", "--batches-per-step", str(BATCHES // 2)]
    run = Run(tmp_path / "here", trial_dir=disk.path / "trial", options=options)
    run.bench.replaced.insert(0, (str(disk.path), "DISK"))
    run.trial_dir.mkdir()
    shutil.copy(str(killed.trial_dir / "trial.json"), str(run.trial_dir / "trial.json"))
    (run.directory / "hold").touch()
    running = run.start()
    running.wait_until(lambda: "holding" in running.stdout)
    disk.fill_names(left=1)
    (run.directory / "hold").unlink()
    ended = running.wait().check()
    assert ended.hashes == killed.hashes
    told(run, ended, ["--trial-dir", "DISK/trial"])
    assert run.trial.count("checkpoint") == 1


def test_disk_full_between_checkpoints(disk, fills_up):
    # One event per batch: the last page of the journal has room for some.
    options = ["--checkpoint-seconds", "3600", "--checkpoint-period", "150", "--batches-per-step", "1"]
    fills_up(lambda: disk.fill_bytes(left=0), options)


_TELL_NO_SNAPSHOT = [test_a_disk_on_which_room_is_made_in_time_costs_nothing]

NAMES = sorted(
    name[len("test_"):]
    for name, value in list(globals().items())
    if name.startswith("test_") and value not in _TELL_NO_SNAPSHOT
)
