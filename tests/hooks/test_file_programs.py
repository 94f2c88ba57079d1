"""Random programs of file operations, killed at random places: they end with the tree of the undisturbed program.

A program begins anew after each kill, like a script whose calls are answered: `Files` undoes what its previous starts
did, and each operation finds the same as the first time. The results of the operations (errors, contents, names) and the
tree at the end (contents, modes, links, times that were set) are compared with a run without `Files`. Kills come
before an operation, after it, and between any two steps of the journal, also while it undoes operations.

`FILE_PROGRAMS` is the number of programs for each file system, `FILE_PROGRAMS_SEED` their seed.
"""

import contextlib
import json
import mmap
import os
import pathlib
import posix
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import types

import pytest

from py_hooks.script_io import files as files_module
from py_hooks.script_io import inputs  # noqa: F401 - once, and not in each start
from py_hooks.script_io import ledger as ledger_module
from py_hooks.script_io.file_calls import FileCalls

hypothesis = pytest.importorskip("hypothesis", reason="only the stacks without a framework have hypothesis")
from hypothesis import strategies  # noqa: E402

PROGRAMS = int(os.environ.get("FILE_PROGRAMS", "15"))
REFUSED = 77
SEED = int(os.environ.get("FILE_PROGRAMS_SEED", "27"))

# -- a tree, and the operations of a program in it ---------------------------------------------------------------------

FOLDERS = ["in", "in/sub", "out", "old", "old/sub"]
NAMES = [*FOLDERS, "in/a", "in/b", "in/sub/c", "out/a", "out/b", "old/a", "old/sub/c", "log"]
MODES = [0o600, 0o644, 0o755, 0o700]
# Times that only the programs set. Other times depend on when they ran.
TIMES = range(1_000_000_000, 1_000_000_010)

names = strategies.sampled_from(NAMES)
texts = strategies.sampled_from(["", "1", "two", "three\n"])


def _write(name, text):
    with open(name, "w") as file:
        file.write(text)


def _append(name, text):
    with open(name, "a") as file:
        file.write(text)


def _patch(name, text):
    with open(name, "r+") as file:
        file.write(text)


def _read(name, _):
    with open(name) as file:
        return file.read()


def _open_low(name, text):
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT, 0o640)
    os.write(descriptor, text.encode())
    os.close(descriptor)


def _map(name, text):
    with open(name, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[:1] = b"m"


def _within(name, other):
    descriptor = os.open(os.path.dirname(name) or ".", os.O_RDONLY)
    try:
        os.rename(os.path.basename(name), other, src_dir_fd=descriptor)
    finally:
        os.close(descriptor)


def _temporary(name, text):
    with tempfile.TemporaryDirectory(dir=name) as folder:
        _write(os.path.join(folder, "t"), text)
        os.rename(os.path.join(folder, "t"), os.path.join(name, "a"))


def _replace_whole(name, text):
    _write(name + ".new", text)
    os.replace(name + ".new", name)


def _copy_folder(name, other):
    if os.path.realpath(other).startswith(os.path.realpath(name) + os.sep):
        raise ValueError("without an end")
    shutil.copytree(name, other, symlinks=True)


# By name: the operation, and the kind of its second argument.
OPERATIONS = {
    "write": (_write, texts),
    "append": (_append, texts),
    "patch": (_patch, texts),
    "read": (_read, texts),
    "open_low": (_open_low, texts),
    "map": (_map, texts),
    "list": (lambda name, _: sorted(os.listdir(name)), texts),
    "exists": (lambda name, _: [os.path.exists(name), os.path.islink(name), os.path.isdir(name)], texts),
    "size": (lambda name, _: os.path.isfile(name) and len(_read(name, _)), texts),
    "mode": (lambda name, _: stat.S_IMODE(os.stat(name).st_mode), texts),
    "remove": (lambda name, _: os.remove(name), texts),
    "unlink": (lambda name, _: pathlib.Path(name).unlink(), texts),
    "rmdir": (lambda name, _: os.rmdir(name), texts),
    "mkdir": (lambda name, _: os.mkdir(name), texts),
    "makedirs": (lambda name, _: os.makedirs(name, exist_ok=True), texts),
    "rmtree": (lambda name, _: shutil.rmtree(name), texts),
    "touch": (lambda name, _: pathlib.Path(name).touch(), texts),
    "truncate": (lambda name, text: os.truncate(name, len(text)), texts),
    "chmod": (lambda name, mode: os.chmod(name, mode), strategies.sampled_from(MODES)),  # noqa: PLW0108 - looked up in `os` then
    "utime": (lambda name, time: os.utime(name, (time, time)), strategies.sampled_from(TIMES)),
    "rename": (lambda name, other: os.rename(name, other), names),  # noqa: PLW0108 - looked up in `os` then
    "replace": (lambda name, other: pathlib.Path(name).replace(other), names),
    "rename_within": (_within, names),
    "replace_whole": (_replace_whole, texts),
    "move": (lambda name, other: shutil.move(name, other), names),  # noqa: PLW0108 - looked up then
    "link": (lambda name, other: os.link(name, other), names),  # noqa: PLW0108 - looked up in `os` then
    "symlink": (lambda name, other: os.symlink(os.path.relpath(name, os.path.dirname(other)), other), names),
    "copytree": (_copy_folder, names),
    "copy": (lambda name, other: shutil.copy2(name, other), names),  # noqa: PLW0108 - looked up then
    "temporary": (_temporary, texts),
}


@strategies.composite
def operations(draw):
    kind = draw(strategies.sampled_from(sorted(OPERATIONS)))
    return kind, draw(names), draw(OPERATIONS[kind][1])


# The tree before the trial: folders, files, other names of files, links.
trees = strategies.fixed_dictionaries(
    {
        "folders": strategies.sets(strategies.sampled_from(FOLDERS), min_size=2),
        "files": strategies.dictionaries(
            strategies.sampled_from(NAMES), strategies.tuples(texts, strategies.sampled_from(MODES)), min_size=3, max_size=8
        ),
        "links": strategies.lists(strategies.tuples(names, names), max_size=2),
        "symlinks": strategies.lists(strategies.tuples(names, names), max_size=2),
    }
)

# A death: before or after an operation of the program, at a step of the journal, or by an end that pedl causes (`stop`).
deaths_of_starts = strategies.lists(
    strategies.tuples(strategies.sampled_from(["before", "after", "step", "step", "stop"]), strategies.integers(0, 20)),
    min_size=1,
    max_size=5,
)


def build(tree):
    for folder in sorted(tree["folders"]):
        os.makedirs(folder, exist_ok=True)
    with contextlib.suppress(OSError):
        for name, (text, mode) in sorted(tree["files"].items()):
            os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
            if not os.path.lexists(name):
                _write(name, text)
                os.chmod(name, mode)
    for name, other in tree["links"]:
        with contextlib.suppress(OSError):
            os.link(name, other)
    for name, other in tree["symlinks"]:
        with contextlib.suppress(OSError):
            os.symlink(os.path.relpath(name, os.path.dirname(other)), other)


def tree_of(folder):
    """The contents of a folder: kinds, modes, contents, links, the names of each file, and times that were set."""
    found, inodes = {}, {}
    for place, folders, files in os.walk(folder):
        if os.path.basename(place) == ".pedl":
            folders[:] = []
            continue
        for name in [*folders, *files]:
            path = os.path.join(place, name)
            if name == ".pedl":
                continue
            status = os.lstat(path)
            shown = os.path.relpath(path, folder)
            time = int(status.st_mtime) if int(status.st_mtime) in TIMES else None
            if stat.S_ISLNK(status.st_mode):
                found[shown] = ["link", os.readlink(path)]
            elif stat.S_ISDIR(status.st_mode):
                found[shown] = ["folder", stat.S_IMODE(status.st_mode)]
            else:
                found[shown] = ["file", stat.S_IMODE(status.st_mode), pathlib.Path(path).read_bytes(), time]
                inodes.setdefault(status.st_ino, []).append(shown)
    return found, sorted(sorted(group) for group in inodes.values() if len(group) > 1)


# -- a start, in a separate process ------------------------------------------------------------------------------------


class InPlace:
    """Does the same as `src/native/in_place.rs`."""

    def __init__(self, original, module, before):
        self.original, self.before = original, before

    def __call__(self, *args, **kwargs):
        answer = self.before(*args, **kwargs) if self.before else NotImplemented
        return self.original(*args, **kwargs) if answer is NotImplemented else answer


class Steps:
    """The `posix` that the journal calls: dies before the n-th of its calls that change something."""

    def __init__(self, number):
        self._left = number

    def __getattr__(self, name):
        function = getattr(posix, name)
        if name not in ("rename", "link", "unlink", "mkdir", "rmdir", "symlink", "truncate", "chmod", "utime", "write", "open"):
            return function

        def counted(*args, **kwargs):
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1
            return function(*args, **kwargs)

        return counted


def run(program, seen, begin=-1, files=None, dies=("none", 0)):
    """Runs a program in this process."""
    for number, (kind, name, argument) in enumerate(program):
        if number == begin:
            files.begin()
        if dies == ("before", number):
            os.kill(os.getpid(), signal.SIGKILL)
        if dies == ("stop", number):
            files.put_back()
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            seen.append(OPERATIONS[kind][0](name, argument))
        except (OSError, ValueError, shutil.Error) as error:
            seen.append(type(error).__name__)
        if dies == ("after", number) and number >= begin:
            os.kill(os.getpid(), signal.SIGKILL)


def as_process(folder, function):
    """Calls a function in a child process; returns its status."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    code = 1
    try:
        os.umask(0o022)
        os.chdir(folder)
        tempfile._RandomNameSequence.__next__ = lambda sequence: "tmp"
        function()
        code = 0
    except BaseException:  # noqa: BLE001 - the child prints any exception and ends here
        import traceback

        traceback.print_exc(limit=-6)
    finally:
        sys.stderr.flush()
        os._exit(code)


def undisturbed(folder, tree, program):
    seen = []

    def start():
        build(tree)
        run(program, seen)
        with open("seen.json", "w") as file:
            json.dump(seen, file, default=str)

    assert as_process(folder, start) == 0


class Refusals:
    """Causes for which this start or an earlier one refused the trial: they were said before the next operation."""

    def __init__(self, path):
        self._path = path

    def add(self, cause):
        descriptor = posix.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        posix.write(descriptor, f"{cause}\n".encode())
        posix.close(descriptor)

    def are_there(self):
        try:
            posix.stat(self._path)
        except FileNotFoundError:
            return False
        return True


def start_of_trial(folder, directory, program, begin, dies):
    """A start of a trial; returns whether it was killed."""

    def start():
        os.fsync = lambda descriptor: None
        refused = Refusals(directory + ".refused")
        files_module.places.STARTED_IN = os.getcwd()
        files = files_module.Files(types.SimpleNamespace(directory=directory))
        is_resumed = os.path.isdir(directory)
        if dies[0] == "step" and is_resumed:
            ledger_module.posix = Steps(dies[1])
        if is_resumed:
            files.withdraw()
        watched = FileCalls(files)
        watched.install(InPlace)
        exactness = types.SimpleNamespace(refuse=refused.add, causes=[])
        calls = types.SimpleNamespace(in_composite=False, begun=True, exactness=exactness, is_past=False)
        files.attach(calls)
        watched.watch_copies()
        seen = []
        own_begin = files.begin

        def begin_trial():
            os.makedirs(directory, exist_ok=True) if is_resumed else posix_makedirs(directory)
            if dies[0] == "step" and not is_resumed:
                ledger_module.posix = Steps(dies[1] + 8)
            own_begin()

        files.begin = begin_trial
        run(program, seen, begin, files, dies)
        with open("seen.json", "w") as file:
            json.dump(seen, file, default=str)
        files.put_back()
        if refused.are_there():
            # By name: only a trial on another file system must use it.
            os._exit(REFUSED)

    status = as_process(folder, start)
    assert status in (0, signal.SIGKILL, REFUSED << 8), status
    return "refused" if status == REFUSED << 8 else status != 0


def posix_makedirs(path):
    if not os.path.isdir(path):
        posix_makedirs(os.path.dirname(path))
        posix.mkdir(path)


# -- file systems ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["ext4", "tmpfs", "overlayfs", "two file systems"])
def places(request, tmp_path_factory):
    """A folder for programs on a file system, and one for trials; None if the trial is in the folder of its program."""
    folder = tmp_path_factory.mktemp("programs")
    if request.param == "ext4":
        yield folder, None
        return
    mounted = folder / "mounted"
    mounted.mkdir()
    command = ["mount", "-t", "tmpfs", "tmpfs", str(mounted)]
    if request.param == "overlayfs":
        layers = folder / "layers"
        assert mount(["mount", "-t", "tmpfs", "tmpfs", str(folder)]) is None or True
        for name in ("lower", "upper", "work"):
            (layers / name).mkdir(parents=True, exist_ok=True)
        mounted.mkdir(exist_ok=True)
        options = ",".join(f"{name}dir={layers / name}" for name in ("lower", "upper", "work"))
        command = ["mount", "-t", "overlay", "overlay", "-o", options, str(mounted)]
    error = mount(command)
    if error is not None:
        pytest.skip(f"cannot mount {request.param}: {error}")
    try:
        yield (folder, mounted) if request.param == "two file systems" else (mounted, None)
    finally:
        subprocess.run(["umount", str(mounted)], check=True)
        if request.param == "overlayfs":
            subprocess.run(["umount", str(folder)], check=False)


def mount(command):
    """The reason why a file system cannot be mounted; None if it was mounted."""
    done = subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True)
    return done.stderr.strip() if done.returncode else None


# -- the tests ---------------------------------------------------------------------------------------------------------

COUNTS = {"programs": 0, "kills": 0, "refused": 0}


def _behind(death, program, begin):
    """Moves a death after the beginning of the trial: before that, no start follows another."""
    kind, number = death
    if kind == "step":
        return death
    number = begin + 1 + number % (len(program) - begin)
    return ("after", number - 1) if number == len(program) else (kind, number)


def check(places, tree, program, begin, deaths):
    """A program that is killed ends as the undisturbed one."""
    around, apart = places
    folder = pathlib.Path(tempfile.mkdtemp(dir=str(around)))
    trials = pathlib.Path(tempfile.mkdtemp(dir=str(apart))) if apart else folder
    try:
        for name in ("plain", "killed"):
            (folder / name).mkdir()
        undisturbed(folder / "plain", tree, program)
        assert as_process(folder / "killed", lambda: build(tree)) == 0
        directory = str((trials / "trial") if apart else folder / "killed" / ".pedl" / "t")
        COUNTS["programs"] += 1
        for death in deaths:
            killed = start_of_trial(folder / "killed", directory, program, begin, _behind(death, program, begin))
            COUNTS["kills"] += killed is True
            if killed is not True:
                break
        else:
            killed = start_of_trial(folder / "killed", directory, program, begin, ("none", 0))
        if killed == "refused":
            assert apart is not None
            COUNTS["refused"] += 1
            return
        assert not killed
        assert json.loads((folder / "killed" / "seen.json").read_text()) == json.loads(
            (folder / "plain" / "seen.json").read_text()
        )
        assert tree_of(str(folder / "killed")) == tree_of(str(folder / "plain"))
    finally:
        shutil.rmtree(str(folder))
        if apart:
            shutil.rmtree(str(trials))


def test_killed_programs_end_as_undisturbed_ones(places):
    @hypothesis.seed(SEED)
    @hypothesis.settings(
        max_examples=PROGRAMS,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
    )
    @hypothesis.given(trees, strategies.lists(operations(), min_size=6, max_size=16), strategies.integers(0, 4), deaths_of_starts)
    def programs(tree, program, begin, deaths):
        check(places, tree, program, begin, deaths)

    programs()
    print(  # noqa: T201 - the purpose of the long run
        f"{COUNTS['programs']} programs, {COUNTS['kills']} kills, {COUNTS['refused']} refused, seed {SEED}"
    )
