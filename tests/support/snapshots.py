"""Compares the output that a user sees after a mistake with files: exit code, standard error, standard output.

    bench = Bench(directory)
    ended = bench.run(["--trail-dir", "x", "train.py"])
    compare("option_misspelt", ended, bench)           # with snapshots/option_misspelt.txt

Text that differs from machine to machine, or from run to run, is replaced: directories, the interpreter, its version,
process ids, times, numbers of batches. `cargo dev test -- --renew` writes the files again; read them before you
commit them. `tree` defines "nothing was lost": every file under a directory, with content and permissions.
"""

import ctypes
import hashlib
import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

import support

FOLDER = support.ROOT / "tests" / "messages" / "snapshots"

# Seconds after which a command counts as hanging.
TIMEOUT = 300

_PATTERNS = [
    # Each version of Python prints frames differently. Only the last line is compared.
    (r"Traceback \(most recent call last\):\n(  .*\n)+", "Traceback (most recent call last):\n  ...\n"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"process \d+", "process PID"),
    (r"pedl-run \d+\.\d+\.\d+", "pedl-run VERSION"),
    (r"batch-\d{10}", "batch-N"),
    (r"staging-\d+-\d+", "staging-PID-N"),
    (r"\.json\.\d+", ".json.PID"),
    (r"(calls? (?:number )?)\d+", r"\1N"),
    (r"after batch \d+ \(step \d+\): \d+ calls", "after batch N (step N): N calls"),
    (r"byte \d+", "byte N"),
    (r"of batch \d+", "of batch N"),
    (r"is \d+ of \d+ bytes", "is N of N bytes"),
    (r"and is \d+\.\d+\.\d+", "and is N.N.N"),
    (r"(crc|checksum) [0-9a-f]{8}", r"\1 X"),
    (r"call \d+ of", "call N of"),
    # The number of these lines depends on the speed of the machine.
    (r"pedl: step \d+ \(.*\n", ""),
    (r"(batch \d+ \.+\n)+", "batch ...\n"),
    (r"\b[0-9a-f]{64}\b", "SHA256"),
    (r"line \d+ column \d+", "line N column N"),
]

_PR_CAPBSET_DROP = 24
_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 1, 2
_LIBC = ctypes.CDLL(None, use_errno=True)


class Bench:
    """A directory in which commands are tried.

    Args:
        directory: it is made if needed.
        executable: the path of the command; pedl-run by default.
    """

    def __init__(self, directory, executable=None):
        self.directory = Path(str(directory))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.executable = executable or support.executable()
        self.replaced = [(str(self.directory), "DIR"), (sys.executable, "PYTHON")]

    def write(self, name, text, mode=None):
        """Writes a file, with the directories above it; text or bytes."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        if mode is not None:
            path.chmod(mode)
        return path

    def run(self, arguments, environment=None, directory=None, as_owner=False, before=None, stdin=subprocess.DEVNULL):
        """Runs the command to its end; returns a `support.Ended`.

        Args:
            arguments: words; text or bytes.
            environment: variables to set; a variable that is None is removed.
            directory: to run it in, instead of the directory of the bench.
            as_owner: permissions hold, even if the tests run as root.
            before: called in the child, last.
            stdin: its input, as for `subprocess`.
        """
        variables = support.clean_environment(dict({"PYTHONDONTWRITEBYTECODE": "1"}, **(environment or {})))
        variables = {name: value for name, value in variables.items() if value is not None}

        def prepare():
            support.die_with_parent()
            if as_owner:
                _obey_permissions()
            if before is not None:
                before()

        started = time.monotonic()
        ended = subprocess.run(
            [self.executable] + list(arguments),
            cwd=str(directory or self.directory),
            env=variables,
            stdin=stdin,
            capture_output=True,
            timeout=TIMEOUT,
            preexec_fn=prepare,
            check=False,
        )
        out, err = (text.decode("utf-8", "backslashreplace") for text in (ended.stdout, ended.stderr))
        return support.Ended(ended.returncode, out, err, time.monotonic() - started)

    def without_places(self, text):
        """A text in which everything that differs from run to run is replaced."""
        for place, word in self.replaced:
            text = text.replace(place, word)
        for pattern, word in _PATTERNS:
            text = re.sub(pattern, word, text)
        return text


def _obey_permissions():
    """Root may read and write everything; without two of its capabilities it has the rights of any owner."""
    for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
        if os.geteuid() == 0 and _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "cannot drop a capability")


def skip_unless_permissions_hold(directory):
    """Skips the test if even an owner may write to a directory that forbids it."""
    probe = Path(str(directory)) / "read-only"
    probe.mkdir()
    probe.chmod(0o555)
    code = "import os; os.mkdir('read-only/x')"
    settings = {"cwd": str(directory), "stderr": subprocess.DEVNULL, "preexec_fn": _obey_permissions}
    try:
        ended = subprocess.run([sys.executable, "-c", code], check=False, **settings)
    except subprocess.SubprocessError as error:
        pytest.skip(f"permissions do not hold for this user: {error}")
    if ended.returncode == 0:
        pytest.skip("permissions do not hold for this user, who may write everywhere")
    probe.rmdir()


def tree(directory, but=()):
    """Every file under a directory: `{name: description}`. Names in `but` are left out, with everything below them."""
    found = {}
    directory = Path(str(directory))
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if name.split(os.sep)[0] in but or name in but:
            continue
        status = path.lstat()
        mode = oct(stat.S_IMODE(status.st_mode))
        if path.is_symlink():
            found[name] = "link to " + os.readlink(str(path))
        elif path.is_file():
            readable = os.access(str(path), os.R_OK)
            found[name] = f"{mode} {hashlib.sha256(path.read_bytes()).hexdigest() if readable else status.st_size}"
        else:
            found[name] = mode
    return found


def compare(name, ended, bench, command, renew):
    """Compares the result of a command with its snapshot, or writes the snapshot.

    Args:
        name: of the file, without `.txt`.
        ended: the `support.Ended`.
        bench: that it ran in.
        command: as a user would type it.
        renew: whether the file is written, and nothing compared.
    """
    told = f"{command}\nexit code {ended.code}\n\n---- stderr\n{ended.stderr}\n---- stdout\n{ended.stdout}"
    text = bench.without_places(told)
    path = FOLDER / f"{name}.txt"
    if renew:
        path.write_text(text)
        return
    expected = path.read_text() if path.exists() else "(there is no such file; `cargo dev test -- --renew` makes it)"
    assert text == expected, f"{path.name} says otherwise:\n{expected}\n\n{ended!r}"
