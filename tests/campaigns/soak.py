"""Starts a script again and again, under python and under pedl-run, and compares what each start leaves behind.

    python -m campaigns.soak --pedl-run PATH --python PATH... [--starts N] [--results FILE]

The actions of scripts/soak.py depend on a seed alone: it forks, spawns, threads, and gets signals at points that it names.
Each seed is run by python itself and by pedl-run in both modes, and these must agree in

- how they ended: the exit code, or the signal;
- what the script printed;
- which processes remained, found in all of /proc by a mark in the environment. Orphans become children of this process,
  which is a subreaper, and so do zombies that nobody waited for;
- what remained in the current directory, in the directory for temporary files and in /dev/shm.

No file may remain in the cache of pedl-run. While pedl-run lives it may have one child, no zombie, and as many open files
as at the first point. One start in seven gets its signal while it starts, before the script prints
anything. A start that is in the results file is not made again.
"""
import argparse
import collections
import contextlib
import ctypes
import json
import os
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "soak.py"
MODES = ["embed", "exec"]

# The part of all starts that get a signal at a random moment of their first milliseconds.
EARLY = 1 / 7
EARLY_SIGNALS = ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGQUIT", "SIGKILL"]
EARLY_MOST_SECONDS = 0.08
WAIT_FOR_SIGNAL = "import signal\nwhile True: signal.pause()"

# A start that takes longer counts as hanging.
LIMIT = 60.0
# How long the remains of a dead process may take to disappear, and how long a count must be constant to be final.
SETTLE = 10.0
STAYS = 1.0

PR_SET_CHILD_SUBREAPER = 36

Left = collections.namedtuple("Left", "end stdout processes files")


class Problem(Exception):
    """A start that failed the check."""


def become_subreaper():
    """Makes this process the new parent of all orphans below it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def children_of(pid):
    """The children of a process, and which of them are zombies."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return [], []
    children = [int(word) for word in text.split()]
    return children, [child for child in children if state_of(child) == "Z"]


def state_of(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return None


def reap():
    """Waits for every orphan that has ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass


def marked(mark):
    """The processes that have a mark in their environment. Zombies are left out, because they have no environment."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if mark in Path(f"/proc/{entry}/environ").read_bytes():
                    found.append(int(entry))
    return found


def listing(directory):
    return sorted(str(path.relative_to(directory)) for path in Path(directory).rglob("*"))


def settle(count, expected=None):
    """Counts until the number is the expected one, or (without one) until it is 0 or constant; returns the last."""
    deadline = time.monotonic() + SETTLE
    changed, last = time.monotonic(), count()
    while last != (expected or 0) and time.monotonic() < deadline:
        time.sleep(0.01)
        before, last = last, count()
        if last != before:
            changed = time.monotonic()
        elif expected is None and time.monotonic() - changed > STAYS:
            break
    return last


class Start:
    """One start of the script."""

    def __init__(self, command, seed, cache, name):
        self.command = command
        self.seed = seed
        self.cache = cache
        self.mark = f"SOAK_MARK={os.getpid()}-{seed}-{name}".encode()
        self.is_ours = name != "python"
        self.problems = []
        self.first_files = None

    def run(self, expected=None):
        """Runs to the end and returns what remained. `expected`: what remained under python."""
        with tempfile.TemporaryDirectory(prefix="pedl-soak-") as directory:
            try:
                return self._run(Path(directory), expected)
            finally:
                self._kill_all()

    def _run(self, directory, expected):
        for name in ("work", "tmp"):
            (directory / name).mkdir()
        say, go, hold = os.pipe(), os.pipe(), os.pipe()
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PEDL_"))}
        environment.update(
            SOAK_MARK=self.mark.decode().partition("=")[2], SOAK_SAY=str(say[1]), SOAK_GO=str(go[0]),
            SOAK_HOLD=str(hold[0]), TMPDIR=str(directory / "tmp"), PEDL_CACHE_DIR=str(self.cache), PYTHONHASHSEED="0",
        )  # fmt: skip
        dice = random.Random(self.seed)
        early = dice.choice(EARLY_SIGNALS) if dice.random() < EARLY else None
        arguments = ["-c", WAIT_FOR_SIGNAL] if early else [str(SCRIPT), str(self.seed)]
        with (directory / "stdout").open("wb") as stdout, (directory / "stderr").open("wb") as stderr:
            process = subprocess.Popen(
                self.command + arguments, cwd=str(directory / "work"), env=environment, stdin=subprocess.DEVNULL,
                stdout=stdout, stderr=stderr, start_new_session=True, pass_fds=(say[1], go[0], hold[0]),
            )  # fmt: skip
        for descriptor in (say[1], go[0], hold[0]):
            os.close(descriptor)
        try:
            if early:
                time.sleep(dice.uniform(0, EARLY_MOST_SECONDS))
                process.send_signal(getattr(signal, early))
                process.wait(LIMIT)
            else:
                self._answer(process, say[0], go[1])
        except subprocess.TimeoutExpired:
            raise Problem(f"no end within {LIMIT:.0f} s") from None
        finally:
            process.kill()
            process.wait()
            os.close(say[0])
            os.close(go[1])
        processes = settle(lambda: len(marked(self.mark)), expected and expected.processes)
        files = settle(lambda: len(listing(directory / "tmp")), expected and expected.files)
        os.close(hold[1])
        left = Left(process.returncode, (directory / "stdout").read_text(), processes, files)
        self._look_for_ours(directory)
        if self.problems:
            raise Problem("; ".join(self.problems))
        return left

    def _answer(self, process, say, go):
        """Sends the signals that the script asks for, until it has ended."""
        deadline = time.monotonic() + LIMIT
        while process.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(process.args, LIMIT)
            if not select.select([say], [], [], 0.01)[0]:
                continue
            for wanted in os.read(say, 4096).decode().split():
                if self.is_ours:
                    self._look_at_supervisor(process.pid)
                if wanted != "none":
                    process.send_signal(getattr(signal, wanted))
                with contextlib.suppress(BrokenPipeError):
                    os.write(go, b".")

    def _look_at_supervisor(self, pid):
        files = len(os.listdir(f"/proc/{pid}/fd"))
        self.first_files = self.first_files or files
        if files != self.first_files:
            self.problems.append(f"pedl-run has {files} open files, and had {self.first_files}")
        children, zombies = children_of(pid)
        if len(children) != 1 or zombies:
            self.problems.append(f"pedl-run has the children {children}, of which {zombies} are zombies")

    def _look_for_ours(self, directory):
        """Checks for what must never exist after a start of this script."""
        text = (directory / "stderr").read_text(errors="replace")
        if "pedl" in text:
            self.problems.append(f"printed on stderr: {text!r}")
        made = listing(directory / "work")
        if made:
            self.problems.append(f"left in the current directory: {made}")

    def _kill_all(self):
        """Ends the processes that remain, and waits for them: a start must leave nothing behind."""
        deadline = time.monotonic() + SETTLE
        while True:
            reap()
            left = marked(self.mark)
            children, _ = children_of(os.getpid())
            if not left and not children:
                return
            if time.monotonic() > deadline:
                raise Problem(f"cannot be ended: {left}, {children}")
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)


class Soak:
    """All starts."""

    def __init__(self, pedl_run):
        self.pedl_run = pedl_run
        self.cache = Path(tempfile.mkdtemp(prefix="pedl-soak-cache-"))
        self.plain = {}

    def command(self, python, mode):
        if mode == "python":
            return [python]
        return [self.pedl_run, "--python", python, "--mode", mode]

    def start(self, python, mode, seed, expected=None):
        return Start(self.command(python, mode), seed, self.cache, mode).run(expected)

    def compare(self, python, mode, seed):
        """Compares one start of pedl-run with that of python. Returns the differences, or an empty text."""
        try:
            if (python, seed) not in self.plain:
                self.plain = {(python, seed): self.start(python, "python", seed)}
            expected = self.plain[python, seed]
            before = listing(self.cache)
            found = self.start(python, mode, seed, expected)
            after = listing(self.cache)
        except Problem as problem:
            return str(problem)
        wrong = [
            f"{name}: {one!r}, and {other!r} under python"
            for name, one, other in zip(Left._fields, found, expected)
            if one != other
        ]
        if before != after:
            wrong.append(f"left in the cache: {sorted(set(after) ^ set(before))}")
        return "; ".join(wrong)

    def warm_up(self, pythons):
        """Unpacks the library, queries every interpreter and compiles the library."""
        for python in pythons:
            for mode in MODES:
                command = self.command(python, mode) + ["-c", "import pedl"]
                environment = dict(os.environ, PEDL_CACHE_DIR=str(self.cache))
                subprocess.run(command, env=environment, check=True, cwd=str(self.cache))

    def close(self):
        shutil.rmtree(self.cache)


def read_results(path):
    """The results so far, by python, mode and seed."""
    if path is None or not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {tuple(line["start"]): line["wrong"] for line in lines}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pedl-run", required=True)
    parser.add_argument("--python", action="append", required=True)
    parser.add_argument("--starts", type=int, default=2000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--results", type=Path)
    arguments = parser.parse_args()

    become_subreaper()
    # The children would inherit the signals that a background job ignores.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # A script that aborts must not fill the disk with core files.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    done = read_results(arguments.results)
    known = len(done)
    shared_memory = set(os.listdir("/dev/shm"))
    ways = [(python, mode) for python in arguments.python for mode in MODES]
    seeds = -(-arguments.starts // len(ways))
    soak = Soak(arguments.pedl_run)
    wrong = {}
    began = time.monotonic()
    try:
        soak.warm_up(arguments.python)
        for number in range(seeds):
            for python, mode in ways:
                start = (python, mode, arguments.first_seed + number)
                if start not in done:
                    done[start] = soak.compare(*start)
                    if arguments.results is not None:
                        with arguments.results.open("a") as file:
                            file.write(json.dumps({"start": start, "wrong": done[start]}) + "\n")
                if done[start]:
                    wrong[start] = done[start]
                    print("{} --mode {}, seed {}: {}".format(*start, done[start]), flush=True)
            if number % 50 == 49:
                print(f"{(number + 1) * len(ways)} starts, {len(wrong)} wrong", flush=True)
        left = set(os.listdir("/dev/shm")) - shared_memory
        if left:
            print(f"new in /dev/shm, of these starts or of others: {sorted(left)}")
    finally:
        soak.close()
    count = seeds * len(ways)
    seconds = time.monotonic() - began
    print(f"{count} starts ({min(known, count)} of them before), {len(wrong)} wrong, in {seconds:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
