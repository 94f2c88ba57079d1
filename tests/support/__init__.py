"""Runs scripts as a user does, under pedl-run or plain Python, and kills them at chosen moments.

    run = script_run(SCRIPTS / "fit_arrays.py", options=["--checkpoint-seconds", "1"])
    undisturbed = run.python()                          # -> Ended
    assert run.start().wait().hashes == undisturbed.hashes

    running = run.start()                               # -> Running
    running.wait_until(lambda: run.trial.checkpoint is not None)
    running.kill_everything()
    assert run.start().wait().hashes == undisturbed.hashes

`kill_at_random` does this again and again at random moments until the script finishes.

Nothing here sleeps for a time that was guessed: a wait ends with the process, with a condition on
its output, or with a failure after `timeout` seconds. Output goes to files, so that a
script never waits for its reader and a condition can look at the output so far. This module runs
on Python 3.7 and imports no framework.
"""

import ast
import ctypes
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPTS = ROOT / "tests" / "scripts"
EXAMPLES = ROOT / "examples"

# Seconds after which a script counts as hanging. The slowest takes a minute on a busy machine.
TIMEOUT = 300

# Seconds between two looks at a condition: a batch of the small models here takes milliseconds.
LOOK_INTERVAL = 0.005

_PR_SET_PDEATHSIG = 1
_HASH = re.compile(r"\b[0-9a-f]{64}\b")
_LIBC = ctypes.CDLL(None)


def executable():
    """Returns the path of the pedl-run under test."""
    path = os.environ.get("PEDL_RUN")
    if not path:
        raise RuntimeError("PEDL_RUN does not name the executable to test; `cargo dev test` builds it and does")
    return path


def shown(word):
    """A word of a command line as a user would type it; bytes that are no text are shown by their numbers."""
    text = word.decode("utf-8", "backslashreplace") if isinstance(word, bytes) else word
    return shlex.quote(text)


def hashes_in(text):
    """The lines with a SHA-256 in them."""
    return [line for line in text.splitlines() if _HASH.search(line)]


class Ended:
    """One start of a script that is over.

    Attributes:
        code: The exit code, or minus the number of the signal that ended it, as in `subprocess`.
        stdout, stderr: All that it printed.
        seconds: From its start to its end, on the wall clock.
    """

    def __init__(self, code, stdout, stderr, seconds):
        self.code = code
        self.stdout = stdout
        self.stderr = stderr
        self.seconds = seconds

    @property
    def hashes(self):
        """The lines of the output with a SHA-256 in them, by which two runs are compared."""
        return hashes_in(self.stdout)

    def check(self, code=0):
        """Fails with everything that was printed if the exit code is another; returns itself."""
        assert self.code == code, f"expected exit code {code}, got {self}"
        return self

    def __repr__(self):
        text = "{} after {:.1f} s\n---- stdout\n{}\n---- stderr\n{}"
        return text.format(self.code, self.seconds, self.stdout, self.stderr)


def refused(ended, *texts):
    """Checks that a run ended with code 65 and one error of pedl-run that contains all of the texts."""
    ended.check(65)
    assert ended.stderr.count("pedl: error:") == 1, ended
    assert "Traceback" not in ended.stderr
    for text in texts:
        assert text in ended.stderr, ended


class Running:
    """One start of a script that is running; see `ScriptRun.start`."""

    def __init__(self, command, directory, environment, output):
        self._stdout = Path(f"{output}.stdout")
        self._stderr = Path(f"{output}.stderr")
        self._started = time.monotonic()
        with self._stdout.open("wb") as stdout, self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                command,
                cwd=str(directory),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - pytest has no other thread
            )

    @property
    def pid(self):
        """The process that was started. For pedl-run that is the supervisor."""
        return self._process.pid

    @property
    def trial_pid(self):
        """The process that trains, below the supervisor; None if there is none."""
        below = [pid for pid in _children(self.pid) if not _is_server(pid)]
        return below[0] if below else None

    @property
    def workers(self):
        """The worker processes of data sets: below the process that trains, or started by a server beside it."""
        return sorted(pid for pid in _descendants(self.pid) if _is_worker(pid))

    @property
    def stdout(self):
        """What it has printed on standard output so far."""
        return _read(self._stdout)

    @property
    def stderr(self):
        """What it, and pedl-run, have printed on standard error so far."""
        return _read(self._stderr)

    @property
    def seconds(self):
        """Seconds since it was started."""
        return time.monotonic() - self._started

    def wait(self, timeout=TIMEOUT):
        """Waits for its end; returns an `Ended`, with any exit code."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            ended = self.kill_everything()
            raise AssertionError(f"still running after {timeout} s; killed: {ended!r}") from None
        return self._ended()

    def wait_until(self, condition, timeout=TIMEOUT):
        """Waits until `condition()` is true. Fails if the script ends before that."""
        assert self.ends_before(condition, timeout) is None, f"it ended too early: {self._ended()!r}"

    def ends_within(self, seconds):
        """Waits this long at most; returns an `Ended` if it ended meanwhile, else None."""
        moment = time.monotonic() + seconds
        return self.ends_before(lambda: time.monotonic() >= moment, seconds + TIMEOUT)

    def ends_before(self, condition, timeout=TIMEOUT):
        """Waits until `condition()` is true, then returns None; returns an `Ended` if the script ended meanwhile."""
        limit = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > limit:
                ended = self.kill_everything()
                raise AssertionError(f"it did not happen within {timeout} s; killed: {ended!r}")
            try:
                self._process.wait(LOOK_INTERVAL)
                return self._ended()
            except subprocess.TimeoutExpired:
                continue
        return None

    def send(self, number):
        """Sends a signal to the process that was started, as `kill PID` does."""
        self._process.send_signal(number)

    def kill_everything(self):
        """SIGKILL to all processes at once, as when the machine's power goes; returns an `Ended`.

        Afterwards none of them is left, and so none of their locks.
        """
        # Processes that left the session are found by their parents, while the parents still exist.
        below = _descendants(self.pid)
        if self._process.poll() is None:
            _kill_group(self.pid)
        for pid in below:
            _kill(pid)
        self._process.wait()
        while any(pid in below for pid in _parents()):
            time.sleep(LOOK_INTERVAL)
        return self._ended()

    def kill_trial(self):
        """SIGKILL only to the process that trains, as the kernel does if memory runs out.

        Returns:
            Whether there was such a process. The supervisor lives, and decides what comes next.
        """
        pid = self.trial_pid
        return pid is not None and _kill(pid)

    def replace_trial(self):
        """As `kill_trial`; then waits for the reaction of the supervisor.

        Returns:
            An `Ended` if it gave up, None if it started the process that trains again.
        """
        before = self.trial_pid
        self.kill_trial()
        return self.when_replaced(before)

    def when_replaced(self, pid):
        """Waits for the supervisor's reaction to the death of the process that trained; returns as `replace_trial`."""
        ended = self.ends_before(lambda: pid not in _parents())
        return ended or self.ends_before(lambda: self.trial_pid not in (None, pid))

    def _ended(self):
        return Ended(self._process.returncode, self.stdout, self.stderr, self.seconds)


class Trial:
    """A trial directory, seen from outside; it need not exist yet."""

    def __init__(self, directory):
        self.directory = Path(directory)

    @property
    def events(self):
        """The journal, a list of dicts. A line that a kill has torn is left out, unless it lacks only its end."""
        try:
            text = _read(self.directory / "events.jsonl")
        except FileNotFoundError:
            return []
        return [event for event in map(_event, text.splitlines()) if event]

    def count(self, kind):
        """How many events of this kind there are."""
        return sum(event["event"] == kind for event in self.events)

    @property
    def checkpoint(self):
        """The number of batches before the newest checkpoint; None if there is none yet."""
        try:
            target = os.readlink(str(self.directory / "latest"))
        except FileNotFoundError:
            return None
        return int(os.path.basename(target).rpartition("-")[2])

    @property
    def identity(self):
        """The contents of trial.json."""
        return json.loads(_read(self.directory / "trial.json"))


def events_of(run, kind):
    """The events of this kind of the run's trial."""
    return [event for event in run.trial.events if event["event"] == kind]


def metrics_of(run, kind):
    """The metrics of each event of this kind."""
    return [event["metrics"] for event in events_of(run, kind)]


def seeded_configuration(batches_per_step, steps):
    """A configuration that gives all trials the same seeds, and ends with the first error."""
    return (
        f"batches_per_step: {batches_per_step}\n"
        f"searcher: {{name: single, metric: loss, max_steps: {steps}}}\n"
        "reproducibility: {experiment_seed: 7}\n"
        "max_restarts: 0\n"
    )


class ScriptRun:
    """One command line in one directory, started any number of times, like a user who types it again.

    Args:
        directory: The current directory of the script; made if needed. Outputs are kept beside it.
        script: Path of the script.
        arguments: The arguments of the script.
        options: Options of pedl-run.
        environment: Variables to set; variables of the caller's shell for Python and pedl are removed.
        wrapper: Words in front of every command, of a program that becomes the command.
    """

    def __init__(self, directory, script, arguments=(), options=(), environment=None, wrapper=()):
        self.directory = Path(str(directory))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.script = str(script)
        self.arguments = [str(argument) for argument in arguments]
        self.options = [str(option) for option in options]
        self.wrapper = list(wrapper)
        self.trial = Trial(self.directory / ".pedl" / Path(self.script).stem)
        self.environment = clean_environment(environment or {})
        self._starts = []

    def start(self):
        """Starts it under pedl-run, with the Python that runs the tests unless the options name another."""
        options = ([] if "--python" in self.options else ["--python", sys.executable]) + self.options
        return self._start([executable()] + options + [self.script] + self.arguments)

    def start_python(self):
        """Starts it under plain Python."""
        return self._start([sys.executable, self.script] + self.arguments)

    def run(self, timeout=TIMEOUT):
        """Runs it under pedl-run to its end; returns an `Ended`, with any exit code."""
        return self.start().wait(timeout)

    def python(self, timeout=TIMEOUT):
        """Runs it under plain Python to its end; returns an `Ended`, with any exit code."""
        return self.start_python().wait(timeout)

    def start_and_kill(self, condition=lambda: True):
        """Starts it under pedl-run, and kills all of it once this start has taken a checkpoint and `condition()` is true.

        Returns:
            An `Ended`. Fails if the script ends before that.
        """
        count = self.trial.count("checkpoint")
        running = self.start()
        running.wait_until(lambda: self.trial.count("checkpoint") > count and condition())
        return running.kill_everything()

    def kill_at_checkpoints(self, *batches):
        """Starts it once for each number of batches, and kills all of it once the newest checkpoint has that number."""
        for batch in batches:
            running = self.start()
            running.wait_until(lambda: self.trial.checkpoint == batch)  # noqa: B023
            running.kill_everything()

    def _start(self, command):
        output = f"{self.directory}.start-{len(self._starts) + 1}"
        self._starts.append(Running(self.wrapper + command, self.directory, self.environment, output))
        return self._starts[-1]

    @property
    def hashes(self):
        """The lines with a SHA-256 in them that the starts have printed, each once.

        If a start was killed after it had printed them, the next start prints nothing; unless the next start has printed
        something else before (a progress bar with times in it), because then it prints everything from there on.
        """
        return list(dict.fromkeys(line for running in self._starts for line in hashes_in(running.stdout)))

    def close(self):
        """Ends the processes that still run."""
        for running in self._starts:
            running.kill_everything()


class Kill:
    """One kill of `kill_at_random`: the target, the time, and the checkpoint to continue from."""

    def __init__(self, target, seconds, checkpoint):
        self.target = target
        self.seconds = seconds
        self.checkpoint = checkpoint

    def __repr__(self):
        return f"{self.target} after {self.seconds:.2f} s (checkpoint {self.checkpoint})"


def kill_at_random(run, dice, undisturbed_seconds, targets=("everything", "trial"), most_kills=12):
    """Starts a script, kills it at a random moment, and so on until it finishes.

    A moment is drawn evenly from 0 to the time that an undisturbed run takes, anew for each kill:
    some are in the imports, some in training, and some starts are quick enough to finish before.

    Args:
        run: The `ScriptRun`.
        dice: A `random.Random`; the same one repeats the same moments.
        undisturbed_seconds: The time of an undisturbed run.
        targets: The possible targets: `everything`, or `trial`, which is only the process that trains.
        most_kills: After this many kills the script runs undisturbed.

    Returns:
        (ended, kills): the `Ended` of the last start, and the list of `Kill`.
    """
    kills = []
    running = run.start()
    since = time.monotonic()
    while len(kills) < most_kills:
        moment = dice.uniform(0, undisturbed_seconds)
        target = dice.choice(list(targets))
        ended = running.ends_within(moment)
        if ended is None and target == "trial" and running.trial_pid is None:
            continue
        if ended is None:
            kills.append(Kill(target, time.monotonic() - since, run.trial.checkpoint))
            since = time.monotonic()
            ended = running.kill_everything() if target == "everything" else running.replace_trial()
            if ended is None:
                continue
        if ended.code != -signal.SIGKILL:
            return ended, kills
        running = run.start()
    return running.wait(), kills


def clean_environment(changes):
    """The variables for a command: those of the caller's shell for Python and pedl are removed, `changes` are set.

    The directory of the unpacked library is kept: `cargo dev contract --mutate` breaks the library in it.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name == "PEDL_CACHE_DIR"
        or (not name.startswith(("PYTHON", "PEDL_", "PYTEST_")) and name not in ("VIRTUAL_ENV", "CONDA_PREFIX"))
    }
    kept.update(changes)
    return kept


def die_with_parent():
    """Runs in the child: if pytest dies, its processes do not train for ever. Ctrl-C reaches them."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # A shell that starts the tests with `&` makes them ignore it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _event(line):
    try:
        return json.loads(line)
    except ValueError:
        return None


def _read(path):
    return path.read_bytes().decode("utf-8", "replace")


def _kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _kill_group(pid):
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _parents():
    """Maps each living process to its parent, from /proc."""
    parents = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The second field is the program's name in parentheses, which may contain any character.
                fields = file.read().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] not in (b"Z", b"X"):
            parents[int(name)] = int(fields[1])
    return parents


def _is_server(pid):
    """Whether the process starts worker processes."""
    return b"process.serve()" in _read_bytes(f"/proc/{pid}/cmdline")


def _is_worker(pid):
    """Whether one of its threads watches the process that started it."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    return any(_read_bytes(f"/proc/{pid}/task/{thread}/comm") == b"pedl-trainer\n" for thread in threads)


def _read_bytes(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _children(pid):
    return sorted(child for child, parent in _parents().items() if parent == pid)


def _descendants(pid):
    parents = _parents()
    found, front = [], [pid]
    while front:
        parent = front.pop()
        below = [child for child, above in parents.items() if above == parent]
        found += below
        front += below
    return found


def lines_of(path):
    """How many lines a file has that a running script makes. A replay removes the file for a moment."""
    try:
        return len(path.read_text().splitlines())
    except FileNotFoundError:
        return 0


def parse(path):
    """The syntax tree of a Python file, without what only type checkers read (`if TYPE_CHECKING:`)."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    for node in ast.walk(tree):
        if isinstance(getattr(node, "body", None), list):
            node.body = [one for one in node.body if not _is_for_type_checkers(one)]
    return tree


def _is_for_type_checkers(node):
    if isinstance(node, ast.If):
        return getattr(node.test, "id", None) == "TYPE_CHECKING"
    # `TYPE_CHECKING = False` costs less than the module that has it.
    return isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "TYPE_CHECKING"


def launch_message(directory, **settings):
    """A launch message of the host."""
    message = {
        "schema": 1,
        "trial_dir": str(directory),
        "command": ["train.py"],
        "python_options": [],
        "trial_id": 1,
        "experiment_id": 1,
        "trial_seed": 7,
        "hash_seed": 9,
        "hyperparameters": {},
        "batches_per_step": 3,
        "checkpoint_period": None,
        "checkpoint_seconds": 60.0,
        "exact": False,
        "log_limit_bytes": 1 << 30,
        "no_hooks": ["torch"],
        "log_format": "text",
        "verbosity": -1,
        "threads": 2,
        "resume": False,
        "attempt": 0,
        "library": "/",
        "mode": "embed",
    }
    message.update(settings)
    return json.dumps(message)
