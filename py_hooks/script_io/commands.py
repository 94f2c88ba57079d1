"""Commands that the script runs while it trains: each runs once, however often the script is killed.

A script copies its weights by `subprocess.run(["aws", "s3", "cp", ...])`, moves them by `os.system("mv ...")`, or
appends to a log by a shell. In a replay the files that such a command reads are stand-ins, and the effects of the command
outside already exist. So a command that the script starts and waits for is an *activity*: its exit code and what it wrote
into pipes are noted when it ends, and a replay returns these instead of running the command again.

    {"started": n, "at": [position, m], "command": digest, "program": name}
    {"ended": n, "code": c, "stdout": hash, "files": {path: hash, or null},
     "folders": {path: [before, after]}, ...}

`commands.jsonl` in the trial directory has these lines; the contents that they refer to by hash are kept (`kept.py`). A
command is found again by the number of recorded calls before it, and how many commands had run since that call (in another
thread: by its digest). The lines are on the disk before the script sees the end of the command, so commands after the newest
checkpoint have lines, too. After the resume point a command is answered if it is the same one, the files of the script that
it names hold what they held, and no cause of inexact resume is known; otherwise it runs again. A command that was running when
the process was killed has no second line, and runs again: one line says so, because what it had done by then stays.

A command may change files that the script writes itself, and that a replay writes again: it appends to the script's log, or
moves the script's model away. The content of such a file after the command is noted, and is written into the file when the
command is answered. The same holds for the folders and links that the command made, moved and removed, if the script uses
them (`folders.py`). What only commands touch is left as it is.

Not activities: commands before the first training call, unless a model has been saved (a download has to happen again on
a new machine); commands that build an item of a data set, or run inside of a recorded call; commands of forked children. A
command that is still running when a checkpoint is taken is a cause. If it has no pipes, it is started again at the resume
point, and not in the replay.

Source: CPython 3.7 to 3.13, Lib/subprocess.py (`_execute_child`, `_internal_poll`, `_try_wait`, `_handle_exitstatus`,
`_communicate`), Lib/os.py (`_spawnvef`).
"""
from __future__ import annotations

import io
import os
import stat
import sys
import threading
from _thread import get_ident

from py_hooks import causes, places
from py_hooks.random_numbers import random_streams
from py_hooks.script_io import folders, functions_of_os, kept

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from subprocess import Popen, TimeoutExpired
    from types import ModuleType
    from typing import Any

    import numpy
    from _pedl import InPlace, Trial
    from _typeshed import StrOrBytesPath, WriteableBuffer

    from py_hooks.boot.process import _Process
    from py_hooks.recording.recorder import Calls

    # A place in the run: recorded calls so far, or in another thread the digest; and the number of the command since.
    _Place = tuple[int | str, int]
    # A line of the journal.
    _Line = dict[str, Any]
    _State = tuple[int, int, int, int] | str | None

_FILE_NAME = "commands.jsonl"

# The number of bytes that one command may leave in pipes, or in files of the script.
MAX_BYTES = 64 << 20

# Above any process number of Linux (`pid_max` is at most 2**22): an answered command has no process.
_NO_PROCESS = (1 << 22) + 1

# Positions of what `Popen.__init__` passes to `_execute_child` after `args`, the same in all versions.
_CWD, _ENV = 4, 5
_STDIN_READ, _STDIN_WRITE, _STDOUT_READ, _STDOUT_WRITE, _STDERR_READ, _STDERR_WRITE = range(9, 15)

# Separators of words for a shell, and between an option and its value.
_SEPARATORS = r"[\s;&|<>()'\"=]+"


class _Noted(io.FileIO):
    """The raw layer of a pipe from a command: keeps what the script reads."""

    def __init__(self, descriptor: int) -> None:
        io.FileIO.__init__(self, descriptor, "r")
        self.parts: list[bytes] = []

    def readinto(self, buffer: WriteableBuffer) -> int:
        count = io.FileIO.readinto(self, buffer)
        if count:
            self.parts.append(bytes(memoryview(buffer)[:count]))
        return count

    def read(self, size: int | None = -1) -> bytes:
        data = io.FileIO.read(self, size)
        if data:
            self.parts.append(data)
        return data

    def readall(self) -> bytes:
        data = io.FileIO.readall(self)
        if data:
            self.parts.append(data)
        return data


class _Command:
    """One run of a command.

    Args:
        commands: the journal.
        number: the number of its `started` line.
        at: its place in the run.
        program: its name.
        look: examines the folders and links that it may change.
        ended: the `ended` line that answers it; None if it runs.
    """

    def __init__(
        self,
        commands: Commands,
        number: int,
        at: _Place,
        program: str,
        look: Callable[[], folders.Look],
        ended: _Line | None = None,
    ) -> None:
        self.number = number
        self.at = at
        self.program = program
        self.ended = ended
        self.has_pipes = False
        self.timeouts = 0
        # Starts it, if it waits for the resume point.
        self.start: Callable[[], None] | None = None
        # A weak reference to the `Popen`, if there is one.
        self.popen: Callable[[], Any] = _nothing
        self.is_waited_for = False
        # Whether it runs, or has run. A program that does not exist has an exit code as well, before there is an error.
        self.has_started = False
        self._commands = commands
        self._pipes: dict[str, _Noted] = {}
        self._before: dict[str, _State] | None = None
        self._look = look
        self._folders_before: folders.Look | None = None
        # Copies of descriptors of the script's files that it writes to, by their names.
        self._given: dict[str, int] = {}

    # -- a command that runs ---------------------------------------------------------------------------------------

    def begins(self, given: Iterable[tuple[str, int]] = ()) -> None:
        """The command is about to run; `given` has pairs of a name and the descriptor of a regular file that it gets."""
        self._before = self._commands.files_now()
        self._folders_before = self._look()
        self._given = {name: os.dup(descriptor) for name, descriptor in given}

    def watch_pipes(self, popen: Popen[Any]) -> None:
        """Notes what the script reads from the output of the command."""
        for name in ("stdout", "stderr"):
            stream = getattr(popen, name)
            if stream is None:
                continue
            self.has_pipes = True
            noted = self._pipes[name] = _Noted(os.dup(stream.fileno()))
            if isinstance(stream, io.FileIO):
                setattr(popen, name, noted)
                stream.close()
                continue
            # The layers are made anew, as the same objects.
            buffer = getattr(stream, "buffer", stream)
            raw = buffer.raw
            buffer.__init__(noted)
            if buffer is not stream:
                stream.__init__(buffer, encoding=stream.encoding, errors=stream.errors)
            raw.close()

    def ends(self, code: int, popen: Popen[Any] | None = None) -> None:
        """The command has ended: notes its output and its effects."""
        line: _Line = {"code": code}
        if self.timeouts:
            line["timeouts"] = self.timeouts
        for name, noted in self._pipes.items():
            read = getattr(popen, "_fileobj2output", {}).get(getattr(popen, name), [])
            rest = _take_rest(noted)
            if rest is None:
                self._commands.say(causes.COMMAND_OUTLIVED(program=self.program))
                return
            line[name] = b"".join(noted.parts + list(read)) + rest
        self._finish(line)

    def code_of(self, run: Callable[[], int]) -> int:
        """What `run()` returns, which runs the command and waits; or what `run()` returned the first time."""
        if self.ended is not None:
            return self.ended["code"]
        self.begins()
        self._commands.runs(self)
        code = run()
        self.ends(code)
        return code

    def failed(self, error: OSError) -> None:
        """The command could not be started."""
        self._finish({"error": [error.errno, error.strerror, error.filename]})

    def _finish(self, line: _Line) -> None:
        line["offsets"] = {name: os.lseek(descriptor, 0, os.SEEK_CUR) for name, descriptor in self._given.items()}
        self._close_given()
        line["files"] = self._commands.changed_since(self._before)
        line["folders"] = self._folders_before.changes_until(self._look())
        self._commands.note_end(self, line)

    def _close_given(self) -> None:
        for descriptor in self._given.values():
            os.close(descriptor)
        self._given = {}

    # -- a command that is answered --------------------------------------------------------------------------------

    def stand_in(self, popen: Any, rest: Sequence[Any]) -> None:
        """Makes a `Popen` look like that of a process which has ended.

        Args:
            popen: the object, in the middle of its `__init__`.
            rest: the arguments of `_execute_child` after `args`.
        """
        if "error" in self.ended:
            raise OSError(*self.ended["error"])
        for name, read in (("stdout", rest[_STDOUT_READ]), ("stderr", rest[_STDERR_READ])):
            if read != -1:
                _put_content(read, self._commands.kept.read(self.ended.get(name)))
        if rest[_STDIN_WRITE] != -1:
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(nowhere, rest[_STDIN_WRITE], inheritable=False)
            os.close(nowhere)
        for name, descriptor in _given_files(rest):
            offset = self.ended.get("offsets", {}).get(name)
            if offset is not None:
                os.lseek(descriptor, offset, os.SEEK_SET)
        _close_ends_of_child(popen, rest)
        self._look_started(popen)

    def wait_for_resume(self, popen: Any, start: Callable[[], None]) -> None:
        """In a replay, of a command that was running when the checkpoint was taken: `start()` starts it at the resume point."""
        self._look_started(popen)
        self.start = start

    def start_now(self) -> None:
        """Starts a command that waited for the resume point."""
        start, self.start = self.start, None
        start()

    @staticmethod
    def _look_started(popen: Any) -> None:
        popen.pid = _NO_PROCESS
        popen._child_created = True

    def apply(self) -> None:
        """Changes the files of the script as the command changed them."""
        files = self.ended.get("files", {})
        for name in [name for name, content in files.items() if content is None]:
            self._commands.put_file(name, None)
        self._commands.put_folders(self.ended.get("folders", {}))
        for name in [name for name, content in files.items() if content is not None]:
            self._commands.put_file(name, files[name])

    def raises_timeout(self, timeout: float | None) -> bool:
        """Whether the next wait for the command ended by its timeout, if it has one."""
        if timeout is None or self.timeouts >= self.ended.get("timeouts", 0):
            return False
        self.timeouts += 1
        return True


class Commands:
    """The commands of one trial. A provider of state.

    Args:
        trial: the native trial.
        calls: the recorder.

    Attributes:
        kept: the contents that the trial keeps.
        last_position: the number of recorded calls before the last command that earlier starts have noted.
    """

    def __init__(self, trial: Trial, calls: Calls) -> None:
        self.kept = kept.Kept(trial.directory, calls)
        self._path = os.path.join(trial.directory, _FILE_NAME)
        self._file = kept.Lines(self._path, calls)
        self._calls = calls
        self._pid = os.getpid()
        self._count = 0
        # The lines that earlier starts of the trial noted, by place.
        self._known: dict[tuple[Any, ...], _Line] = {}
        self.last_position = -1
        # How many commands were run since the recorded call of this number; and in other threads, by digest.
        self._position, self._since = -1, 0
        self._in_threads: dict[str, int] = {}
        self._running: set[_Command] = set()
        self._told: set[causes.Told] = set()
        # Held while a line is written. A signal handler of the script may run a command while it is held.
        self._lock = threading.RLock()
        self._resumed = threading.Event()

    # -- the life of a trial -----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The trial has begun: reads the journal."""
        started: dict[int, _Line] = {}
        for line in kept.lines(self._path):
            if "started" in line:
                started[line["started"]] = line
                self._count = max(self._count, line["started"] + 1)
            elif line.get("ended") in started:
                first = started[line["ended"]]
                self._known[tuple(first["at"])] = dict(first, **line)
        for line in started.values():
            self._known.setdefault(tuple(line["at"]), line)
            if isinstance(line["at"][0], int):
                self.last_position = max(self.last_position, line["at"][0])
        if not self._calls.replaying:
            self._resumed.set()

    def capture(self) -> tuple[list[tuple[str, numpy.ndarray]], None]:
        """Part of a checkpoint: nothing. A command that is still running at a checkpoint is a cause."""
        for command in list(self._running):
            popen = command.popen()
            if popen is None or popen.poll() is not None:
                continue
            talks = command.has_pipes or popen.stdin is not None
            self.say((causes.COMMAND_TALKS if talks else causes.COMMAND_RUNS)(program=command.program))
        return [], None

    def restore(self, tensors: dict[str, numpy.ndarray], state: object) -> None:
        """The replay is over: starts the commands that were running at the checkpoint."""
        self._resumed.set()
        for command in list(self._running):
            if command.start is not None:
                command.start_now()

    def has_any(self) -> bool:
        """Whether a command was noted, in this start or an earlier one."""
        return self._count > 0

    # -- whether a command runs or is answered -----------------------------------------------------------------------

    def is_activity(self) -> bool:
        """Whether a command that the script runs now is noted, or answered."""
        calls = self._calls
        if not calls.begun or self._pid != os.getpid() or random_streams.THREAD.stream is not None:
            return False
        if not (calls.batches or calls.entries or calls.files.has_saved()):
            return False
        if get_ident() == calls.main_thread:
            return not calls.depth
        # A thread of C code builds items.
        return calls.depth < 1 << 20 and not isinstance(threading.current_thread(), threading._DummyThread)

    def meet(self, words: list[str], folder: str, is_users: bool) -> _Command | None:
        """The script runs a command.

        Args:
            words: the words of the command.
            folder: the directory that it runs in.
            is_users: whether a file of the user runs it, and not a library for its purposes.

        Returns:
            A `_Command`, with `ended` if it is answered, without if it is to run; None if it is no activity.
        """
        for other in list(self._running):
            if other.popen() is not None:
                # A command that the script does not wait for may have ended.
                other.popen().poll()
        digest = _digest(words, folder)
        program = os.path.basename(words[0] if len(words) > 1 else (words[0].split() or [""])[0])
        at = self._place(digest, program)
        with self._lock:
            known = self._known.get(at)
        if known is not None and known["program"] != program:
            known = None
        if not self._calls.replaying:
            return self._meet_live(known, at, digest, program, words, folder)
        if known is not None and ("ended" in known or at[0] != digest):
            return self._answer(known, at, words, folder)
        if at[0] == digest:
            # A command in a thread, for which the script did not wait before the checkpoint.
            self._resumed.wait()
            return self._start(at, digest, program, words, folder)
        if is_users:
            self._stop(at, program)
        return None

    def _meet_live(
        self, known: _Line | None, at: _Place, digest: str, program: str, words: list[str], folder: str
    ) -> _Command:
        """After the resume point: answers the command if an earlier start has run it here, and runs it otherwise."""
        if known is not None and "ended" in known and self._is_as_before(known, digest, words, folder):
            return self._answer(known, at, words, folder)
        if known is not None and "ended" not in known and known["command"] == digest:
            # What it had done by then stays.
            self._calls.trial.log(
                f"the command `{known['program']}` was running when the start before this one was killed; it runs again"
            )
        return self._start(at, digest, program, words, folder)

    def _place(self, digest: str, program: str) -> _Place:
        if get_ident() != self._calls.main_thread:
            self.say(causes.THREAD_RUNS_COMMANDS(program=program))
            with self._lock:
                count = self._in_threads[digest] = self._in_threads.get(digest, 0) + 1
            return digest, count
        position = self._calls.position()
        if position != self._position:
            self._position, self._since = position, 0
        self._since += 1
        return position, self._since

    def _answer(self, known: _Line, at: _Place, words: list[str], folder: str) -> _Command:
        ended = known if "ended" in known else None
        command = _Command(self, known["started"], at, known["program"], self._look_for(words, folder), ended)
        if command.ended is not None:
            command.apply()
        return command

    def _is_as_before(self, known: _Line, digest: str, words: list[str], folder: str) -> bool:
        """After the resume point: whether a command would do the same again."""
        if known["command"] != digest or self._calls.exactness.causes:
            return False
        return known.get("named", []) == self._named(words, folder)

    def _start(self, at: _Place, digest: str, program: str, words: list[str], folder: str) -> _Command:
        command = _Command(self, self._count, at, program, self._look_for(words, folder))
        self._count += 1
        line = {"started": command.number, "at": list(at), "command": digest, "program": program}
        contents = self._named(words, folder)
        if contents:
            line["named"] = contents
        with self._lock:
            self._file.add(line)
        return command

    def _look_for(self, words: list[str], folder: str) -> Callable[[], folders.Look]:
        return lambda: folders.Look(self._calls.files, _paths_in(words, folder), folder)

    def _stop(self, at: _Place, program: str) -> None:
        from py_hooks.recording import ending

        file, line = places.user_place(3)
        known = self._known.get(at)
        before = f"the command `{known['program']}`" if known else "no command"
        ending.stop(
            self._calls,
            76,
            f"the replay differs from the record: another command is run after call {at[0]}\n"
            f"  recorded: {before}\n"
            f"  now: the command `{program}`, at {file}:{line}\n"
            "  it was not run; the checkpoint and the log are kept",
            "make the script run the same commands each time; `--fresh` begins a new trial",
        )

    def say(self, cause: causes.Told) -> None:
        """Notes a cause, once."""
        with self._lock:
            if cause in self._told:
                return
            self._told.add(cause)
        self._calls.exactness.refuse(cause)

    def runs(self, command: _Command) -> None:
        """The command was started, and its end is not known."""
        self._running.add(command)

    def is_running(self, command: _Command) -> bool:
        """Whether the end of a command is not known."""
        return command in self._running

    def is_replay(self) -> bool:
        """Whether recorded calls are answered."""
        return self._calls.replaying

    # -- the journal ---------------------------------------------------------------------------------------------------

    def note_end(self, command: _Command, line: _Line) -> None:
        """A command has ended."""
        self._running.discard(command)
        contents = [line[name] for name in ("stdout", "stderr") if line.get(name)]
        contents += [content for content in line["files"].values() if content is not None]
        size = sum(map(len, contents))
        if size > MAX_BYTES or not self.kept.has_room(size):
            leaves = f"leaves {size / 1e6:.0f} MB in pipes and in files of the script"
            self.say(causes.COMMAND_LARGE(program=command.program, leaves=leaves))
            return
        for name in ("stdout", "stderr"):
            if name in line:
                line[name] = self.kept.keep(line[name])
        files = self._calls.files.ledger()
        line["files"] = {
            files.stored(path): None if content is None else self.kept.keep(content) for path, content in line["files"].items()
        }
        if len(line["folders"]) > folders.MAX_LISTED:
            self.say(causes.COMMAND_FOLDERS(program=command.program, count=folders.MAX_LISTED))
            line["folders"] = {}
        self._calls.files.note_commanded(line["folders"])
        line["folders"] = {files.stored(path): change for path, change in line["folders"].items()}
        line["ended"] = command.number
        with self._lock:
            self._file.add({name: value for name, value in line.items() if value not in ({}, None)}, is_durable=True)

    # -- files of the script -------------------------------------------------------------------------------------------

    def files_now(self) -> dict[str, _State]:
        """The states of the files that the script has written, by path."""
        return {path: _state(path) for path in self._calls.files.written_paths()}

    @staticmethod
    def changed_since(before: dict[str, _State]) -> dict[str, bytes | None]:
        """The contents of the files that a command has changed, by path; None for those that it has removed."""
        after = {path: _state(path) for path in before}
        changed = [path for path, state in before.items() if after[path] != state and _OTHER not in (state, after[path])]
        return {path: _content(path) for path in changed}

    def put_file(self, name: str, content: str | None) -> None:
        """Writes into a file of the script what a command left in it, or removes the file."""
        ledger = self._calls.files.ledger()
        path = ledger.resolved(name)
        if not ledger.may_touch(path):
            self._say_foreign(path)
            return
        if content is not None:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            # The file is written in place, because the script may have it open.
            kept.write(path, self.kept.read(content), "r+" if os.path.isfile(path) else "w")
        elif os.path.isfile(path) or os.path.islink(path):
            os.unlink(path)

    def put_folders(self, entries: dict[str, Any]) -> None:
        """Makes and removes folders and links of the script as a command did."""
        if entries:
            for path in folders.put(self._calls.files, self._calls.files.ledger(), entries):
                self._say_foreign(path)

    def _say_foreign(self, path: str) -> None:
        self.say(causes.COMMAND_FOREIGN(path=places.display_path(path)))

    def _named(self, words: list[str], folder: str) -> list[str]:
        """Hashes of the contents of the script's files that a command names, and of those in folders that it names."""
        written = self._calls.files.written_paths()
        named: set[str] = set()
        for path in _paths_in(words, folder):
            if path in written:
                # Not the files in a folder that the script wrote: a second `mv` would move it into the first one.
                named.add(path)
            elif os.path.isdir(path):
                named.update(each for each in written if each.startswith(path + os.sep))
        return [kept.hash_of(content) for content in map(_content, sorted(named)) if content is not None]


# -- replacements of functions of Python ---------------------------------------------------------------------------------


class _Installed:
    """The journal of this process; None until the first library is intercepted."""

    commands: Commands | None = None


def attach(trial: Trial, calls: Calls) -> Commands:
    """The first library is intercepted: makes the journal, and returns it."""
    _Installed.commands = Commands(trial, calls)
    return _Installed.commands


_ONE_WORD = str, bytes, os.PathLike


def _meet(words: list[str], folder: str, depth: int) -> _Command | None:
    """Whether a command runs or is answered: see `Commands.meet`."""
    commands = _Installed.commands
    if commands is None or not commands.is_activity():
        return None
    frame = sys._getframe(depth + 1)
    while frame.f_back is not None and frame.f_globals.get("__name__") in ("subprocess", "os", __name__):
        frame = frame.f_back
    if frame.f_globals.get("__name__", "").startswith("asyncio."):
        commands.say(causes.COMMAND_BY_ASYNCIO())
        return None
    return commands.meet(words, folder, places.is_user_file(frame.f_code.co_filename))


def watch_subprocess(module: ModuleType, process: _Process) -> None:
    """`subprocess` was imported: watches its `Popen`, by which all its functions start commands.

    Args:
        module: `subprocess`.
        process: what `boot` knows about this process.
    """
    import functools

    kind = module.Popen
    replaced = {
        "_execute_child": _starting(kind._execute_child, process),
        "__init__": _made(kind.__init__),
        "_internal_poll": _polled(kind._internal_poll),
        "_try_wait": _waited_once(kind._try_wait),
        "_handle_exitstatus": _ended(kind._handle_exitstatus),
        "send_signal": _signalled(kind.send_signal),
        "wait": _waited(kind.wait, 0, module.TimeoutExpired),
        "communicate": _waited(kind.communicate, 1, module.TimeoutExpired),
    }
    for name, function in replaced.items():
        setattr(kind, name, functools.wraps(getattr(kind, name))(function))


def _starting(original: Callable[..., None], process: _Process) -> Callable[..., None]:
    """`Popen._execute_child`."""

    def execute_child(popen: Any, args: Any, *rest: Any) -> None:
        if not isinstance(args, _ONE_WORD):
            # As `subprocess` does itself: an iterator is read once.
            args = list(args)
        command = _meet(_words(args), _folder(rest[_CWD]), 1)
        if command is None:
            return original(popen, args, *_seen_by(process, args, rest))
        return _execute(command, popen, lambda: original(popen, args, *rest), rest)

    return execute_child


def _seen_by(process: _Process, args: Any, rest: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a command that is no activity. If it runs a python, that may report whether it imports a framework."""
    script = _python_script(args)
    if script is None:
        return rest
    return (*rest[:_ENV], process.environment_of_child(script, rest[_ENV]), *rest[_ENV + 1:])


def _execute(command: _Command, popen: Any, execute: Callable[[], None], rest: Sequence[Any]) -> None:
    """Starts a command, answers it, or lets it wait for the resume point."""
    import weakref

    popen._pedl_command = command
    command.popen = weakref.ref(popen)
    if command.ended is not None:
        return command.stand_in(popen, rest)

    def start() -> None:
        command.begins(_given_files(rest))
        try:
            execute()
        except OSError as error:
            command.failed(error)
            raise
        command.has_started = True

    _Installed.commands.runs(command)
    if _Installed.commands.is_replay():
        return command.wait_for_resume(popen, start)
    return start()


def _made(original: Callable[..., None]) -> Callable[..., None]:
    """`Popen.__init__`."""

    def init(popen: Any, *args: Any, **kwargs: Any) -> None:
        original(popen, *args, **kwargs)
        command = _command_of(popen)
        if command is not None and command.ended is None and command.start is None:
            command.watch_pipes(popen)

    return init


def _polled(original: Callable[..., int | None]) -> Callable[..., int | None]:
    """`Popen._internal_poll`."""

    def internal_poll(popen: Any, *args: Any, **kwargs: Any) -> int | None:
        command = _command_of(popen)
        if command is None or popen.returncode is not None or (command.ended is None and command.start is None):
            return original(popen, *args, **kwargs)
        if command.ended is not None:
            popen.returncode = command.ended["code"]
        return popen.returncode

    return internal_poll


def _waited_once(original: Callable[..., tuple[int, int]]) -> Callable[..., tuple[int, int]]:
    """`Popen._try_wait`."""

    def try_wait(popen: Any, flags: int) -> tuple[int, int]:
        command = _command_of(popen)
        if command is not None and command.start is not None:
            command.start_now()
        if command is None or command.ended is None:
            return original(popen, flags)
        code = command.ended["code"]
        return popen.pid, -code if code < 0 else code << 8

    return try_wait


def _ended(original: Callable[..., None]) -> Callable[..., None]:
    """`Popen._handle_exitstatus`."""

    def handle_exitstatus(popen: Any, *args: Any, **kwargs: Any) -> None:
        original(popen, *args, **kwargs)
        command = _command_of(popen)
        if command is not None and command.has_started and _Installed.commands.is_running(command):
            command.ends(popen.returncode, popen)

    return handle_exitstatus


def _signalled(original: Callable[..., None]) -> Callable[..., None]:
    """`Popen.send_signal`, which asks for no exit code before Python 3.9."""

    def send_signal(popen: Any, *args: Any, **kwargs: Any) -> None:
        command = _command_of(popen)
        if command is None or command.ended is None:
            original(popen, *args, **kwargs)

    return send_signal


def _waited(original: Callable[..., Any], place: int, timeout_expired: type[TimeoutExpired]) -> Callable[..., Any]:
    """`Popen.wait` and `Popen.communicate`; `place` is the index of the timeout among the arguments."""

    def until(popen: Any, *args: Any, **kwargs: Any) -> Any:
        command = _command_of(popen)
        if command is None or command.is_waited_for:
            return original(popen, *args, **kwargs)
        timeout = kwargs.get("timeout", args[place] if len(args) > place else None)
        if command.ended is not None and command.raises_timeout(timeout):
            raise timeout_expired(popen.args, timeout)
        # One of these calls the other.
        command.is_waited_for = True
        try:
            return original(popen, *args, **kwargs)
        except timeout_expired:
            command.timeouts += 1
            raise
        finally:
            command.is_waited_for = False

    return until


def _command_of(popen: Any) -> _Command | None:
    return popen.__dict__.get("_pedl_command")


def watch_os(in_place: type[InPlace]) -> None:
    """Watches the functions of `os` that run a command and wait for it.

    Args:
        in_place: makes the replacement of a builtin function (`src/native/in_place.rs`).
    """
    _, system = functions_of_os.replaced("system")
    functions_of_os.ask_first("system", in_place, _before_system(system))
    os._spawnvef = _spawned(os._spawnvef)  # type: ignore[attr-defined]  # it is private
    for name in ("posix_spawn", "posix_spawnp"):
        functions_of_os.ask_first(name, in_place, _before_posix_spawn)


def _before_system(original: Callable[..., int]) -> Callable[..., Any]:
    def before_system(command: Any = None, *wrong: object, **named: object) -> Any:
        if wrong or named or not isinstance(command, (str, bytes)):
            return NotImplemented
        met = _meet([os.fsdecode(command)], os.getcwd(), 1)
        return NotImplemented if met is None else met.code_of(lambda: original(command))

    return before_system


def _spawned(original: Callable[..., int]) -> Callable[..., int]:
    def spawnvef(mode: int, file: StrOrBytesPath, args: Any, env: Any, function: Callable[..., Any]) -> int:
        spawn = lambda: original(mode, file, args, env, function)  # noqa: E731
        if not isinstance(args, (tuple, list)) or not args:
            return spawn()
        if mode != os.P_WAIT:
            _say_not_waited_for(file)
            return spawn()
        met = _meet([os.fsdecode(word) for word in (file, *args)], os.getcwd(), 1)
        return spawn() if met is None else met.code_of(spawn)

    return spawnvef


def _before_posix_spawn(file: Any = None, *args: object, **kwargs: object) -> Any:
    # `subprocess` calls this too; its commands are seen in `Popen`.
    if sys._getframe(1).f_globals.get("__name__") != "subprocess":
        _say_not_waited_for(file)
    return NotImplemented


def _say_not_waited_for(program: StrOrBytesPath) -> None:
    commands = _Installed.commands
    if commands is not None and commands.is_activity():
        name = os.path.basename(os.fsdecode(program))
        commands.say(causes.COMMAND_NOT_WAITED_FOR(program=name))


# -- helpers -------------------------------------------------------------------------------------------------------------


def _python_script(args: Any) -> str | None:
    """`python SCRIPT` as a user types it, if a command runs a script; None for other commands."""
    words = _words(args)
    if len(words) == 1:
        words = words[0].split()
    if not words or not os.path.basename(words[0]).startswith("python"):
        return None
    rest = [word for word in words[1:] if not word.startswith("-")] if "-m" not in words and "-c" not in words else []
    return f"python {rest[0]}" if rest and rest[0].endswith(".py") else None


def _nothing() -> None:
    """What a weak reference to nothing returns."""


def _words(args: Any) -> list[str]:
    """The words of a command; something that is no word, for which `subprocess` raises, is given by its `repr`."""
    words = [args] if isinstance(args, _ONE_WORD) else args
    return [os.fsdecode(word) if isinstance(word, _ONE_WORD) else repr(word) for word in words] or [""]


def _folder(folder: StrOrBytesPath | None) -> str:
    return os.path.abspath(os.fsdecode(folder)) if folder is not None else os.getcwd()


def _given_files(rest: Sequence[Any]) -> list[tuple[str, int]]:
    """Descriptors of files of the script that a command gets, with their names."""
    ends = (
        ("stdin", _STDIN_READ, _STDIN_WRITE), ("stdout", _STDOUT_WRITE, _STDOUT_READ), ("stderr", _STDERR_WRITE, _STDERR_READ)
    )  # fmt: skip
    given = [(name, rest[end]) for name, end, other in ends if rest[end] > 2 and rest[other] == -1]
    return [(name, descriptor) for name, descriptor in given if _is_regular(descriptor)]


def _is_regular(descriptor: int) -> bool:
    return stat.S_ISREG(os.fstat(descriptor).st_mode)


def _close_ends_of_child(popen: Any, rest: Sequence[Any]) -> None:
    """Closes what the child would have held, as `_execute_child` does at its end."""
    devnull = getattr(popen, "_devnull", None)
    for end, other in ((_STDIN_READ, _STDIN_WRITE), (_STDOUT_WRITE, _STDOUT_READ), (_STDERR_WRITE, _STDERR_READ)):
        if rest[end] != -1 and rest[other] != -1 and rest[end] != devnull:
            os.close(rest[end])
    if devnull is not None:
        os.close(devnull)
    popen._closed_child_pipe_fds = True


def _put_content(descriptor: int, data: bytes) -> None:
    """Makes these bytes the content that is read from a descriptor."""
    # In a file, not in a pipe, which holds 64 KiB.
    import tempfile

    with tempfile.TemporaryFile(buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view):]
        file.seek(0)
        os.dup2(file.fileno(), descriptor, inheritable=False)


def _take_rest(pipe: _Noted) -> bytes | None:
    """The rest in the pipe of a process that has ended, which the script can still read; None if others write into it."""
    if pipe.closed:
        return b""
    import select

    descriptor, parts = pipe.fileno(), []
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while True:
        events = poll.poll(0)
        if not events:
            return None
        part = os.read(descriptor, 1 << 16)
        if not part:
            break
        parts.append(part)
    rest = b"".join(parts)
    if rest:
        _put_content(descriptor, rest)
        # The script reads the rest from here on, and it is noted already.
        pipe.__class__ = _Rest
    return rest


class _Rest(_Noted):
    """A pipe whose rest was noted."""

    readinto: Callable[..., int] = io.FileIO.readinto
    read: Callable[..., bytes] = io.FileIO.read
    readall = io.FileIO.readall


def _paths_in(words: list[str], folder: str) -> set[str]:
    """The paths that the words of a command may name."""
    import re

    parts = {part for word in words for part in {word, *re.split(_SEPARATORS, word)} if part and "\0" not in part}
    return {os.path.abspath(os.path.join(folder, part)) for part in parts}


def _digest(words: list[str], folder: str) -> str:
    import json

    return kept.hash_of(json.dumps([folder, words]).encode())[:32]


# The state of a folder or a link, which is not compared.
_OTHER = "other"


def _state(path: str) -> _State:
    """The state of a file, which differs if the file was changed; None if there is no file."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return _OTHER
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode


def _content(path: str) -> bytes | None:
    """The bytes of a file; None if there is no file."""
    try:
        with io.FileIO(path) as file:
            return file.readall()
    except OSError:
        return None
