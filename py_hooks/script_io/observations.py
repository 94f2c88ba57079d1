"""Records what the script reads of the file system while it trains, so that a replay returns the same.

A script looks for a file `STOP` after each epoch, or reads its learning rate from `lr.txt`. Another program makes these files,
and they may differ in a replay. So from the first training call on, the answers to user code are recorded, and a replay returns
them again: `os.stat` and its callers (`os.path.exists`, `Path.is_file`), `os.access`, `os.listdir`, `os.scandir` (with
`glob` and `os.walk`), `os.readlink`, and `open` for reading files of up to `MAX_FILE_BYTES`. For `os.remove`, `os.rename`,
`os.mkdir`, and the like the outcome is recorded: in a replay, an operation that fails because it was already done (another
program's file does not come back) counts as done.

`observations.jsonl` in the trial directory has the answers, by the calling line, the function and the path. They seldom change,
so only changes are kept, each with its time: the recorded call before it, and the number of other answers since that call.
A replay that asks more or less often, because it uses a timer, gets the answer of that time. Without one, the system is asked.

    {"at": [position, m], "of": question, "answer": answer}
    {"from": [position, m]}              a start records new answers from this time on: earlier lines of later times do not count

From the resume point on, the system is asked. Behind it, recorded answers are used only as far as commands are answered too
(`commands.py`): before the kill, the script may have moved what the commands had made.

If a larger file was made or changed after the trial began, and the script did not write it, that is a cause: no checkpoints
are taken after it is read. Files that recorded calls have saved are not handled here (`saved_files.py`).

Not seen: what libraries ask for themselves, except files that they open on behalf of the script; other threads, what C
code reads, and the code that builds items of a data set.
"""
from __future__ import annotations

import _io
import io
import os
import stat
import sys
from _thread import get_ident

from py_hooks import causes, places
from py_hooks.random_numbers import random_streams
from py_hooks.script_io import functions_of_os, inputs, kept
from py_hooks.script_io.file_calls import DRAWN_PATHS
from py_hooks.script_io.recorded_answers import CODECS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import IO, Any

    from _pedl import InPlace

    from py_hooks.recording.recorder import Calls
    from py_hooks.script_io.commands import Commands
    from py_hooks.script_io.files import Files

    # The number of recorded calls, and of questions since the last of them.
    _At = tuple[int, int]

# A larger file is not kept in checkpoints.
MAX_FILE_BYTES = 64 << 10

# The most changed answers that are kept.
MAX_CHANGES = 100_000

# The most that is kept of files that the script writes itself and reads. Beyond it, a replay reads what it has written again.
MAX_OWN_BYTES = 16 << 20

# Modules that ask on behalf of their callers.
_ASKERS = frozenset(["os", "posixpath", "genericpath", "pathlib", "pathlib._local", "pathlib._abc", "glob", "io"])
# `shutil` compares the `stat` of a folder with what it opens, so its questions are not answered from records.
_DOERS = _ASKERS | {"shutil"}

# Functions that need only the kind of file from a `stat`.
_KIND_ONLY = frozenset(["exists", "lexists", "isfile", "isdir", "islink", "is_file", "is_dir", "is_symlink"])

_DONE = "done"

# Errors which say that an operation was already done.
_DONE_BEFORE = (FileNotFoundError, FileExistsError)


class _Question:
    """The answers to one question of one line.

    Attributes:
        changes: `(at, answer)`: the time from which on the answer holds, as of `Observations.now`.
    """

    __slots__ = ("changes", "_next")

    def __init__(self) -> None:
        self.changes: list[tuple[_At, Any]] = []
        self._next = 0

    def answer(self, at: _At) -> Any:
        """The answer at that time; None without one."""
        while self._next < len(self.changes) and self.changes[self._next][0] <= at:
            self._next += 1
        return self.changes[self._next - 1][1] if self._next else None

    def is_last(self, answer: object) -> bool:
        """Whether the last answer was the same."""
        return bool(self.changes) and self.changes[-1][1] == answer

    def forget_from(self, at: _At) -> None:
        """Forgets the answers after that time."""
        while self.changes and self.changes[-1][0] > at:
            self.changes.pop()


class Observations:
    """The questions of this process, and their answers.

    Args:
        calls: the recorder.
        files: the files of the script.
        commands: the journal of commands.
    """

    _path: str
    _file: kept.Lines | None

    def __init__(self, calls: Calls, files: Files, commands: Commands) -> None:
        self._calls = calls
        self._files = files
        self._commands = commands
        self._kept = commands.kept
        self._pid = os.getpid()
        self._questions: dict[str, _Question] = {}
        self._path = self._file = None
        self._count = self._own_bytes = 0
        # The time of the last answer of earlier starts, and the time of this start.
        self._horizon = self._at = (-1, 0)
        # When the trial began, in seconds since 1970.
        self._began: int | None = None
        self._is_told = False
        # While this class asks the system, its own calls are not recorded.
        self._is_asking = False

    # -- the life of a trial -----------------------------------------------------------------------------------------

    def begin(self, directory: str) -> None:
        """The trial has begun, in that directory: reads what was recorded."""
        import json
        from calendar import timegm
        from time import strptime

        self._path = os.path.join(directory, "observations.jsonl")
        for line in kept.lines(self._path):
            self._load(line)
        with io.FileIO(os.path.join(directory, "trial.json")) as file:
            created = json.loads(file.readall().decode())["created"]
        self._began = timegm(strptime(created.partition(".")[0], "%Y-%m-%dT%H:%M:%S")) + 1

    def _load(self, line: dict[str, Any]) -> None:
        if "from" in line:
            start = tuple(line["from"])
            self._horizon = min(self._horizon, start)
            for question in self._questions.values():
                question.forget_from(start)
        elif "at" in line:
            at = tuple(line["at"])
            self._horizon = max(self._horizon, at)
        if "of" in line:
            self._questions.setdefault(line["of"], _Question()).changes.append((at, line["answer"]))
            self._count += 1

    # -- questions ---------------------------------------------------------------------------------------------------

    def asker(self, depth: int, through: frozenset[str] | None = _ASKERS) -> FrameType | None:
        """The frame of the user's line that asks; None if the question is not recorded.

        Args:
            depth: the number of frames between.
            through: modules that ask on its behalf; None for any library.
        """
        calls = self._calls
        if not (calls.batches or calls.entries) or calls.depth or self._is_asking or get_ident() != calls.main_thread:
            return None
        if random_streams.THREAD.stream is not None or self._pid != os.getpid():
            return None
        frame = sys._getframe(depth + 1)
        if through is None:
            return places.user_frame(frame)
        while frame.f_back is not None and frame.f_globals.get("__name__") in through:
            frame = frame.f_back
        return frame if places.is_user_file(frame.f_code.co_filename) else None

    def now(self) -> _At:
        """The time of the run: the number of recorded calls so far, and the number of questions since the last of them."""
        position, count = self._at
        now = self._calls.position()
        self._at = (now, 0) if now != position else (now, count + 1)
        return self._at

    def recorded(self, frame: FrameType, function: str, path: object, at: _At) -> Any:
        """The recorded answer at that time; None if the system is to be asked."""
        calls = self._calls
        if not self._calls.is_past and (calls.exactness.causes or at > self._horizon or at[0] > self._commands.last_position):
            return None
        question = self._questions.get(_key(frame, function, path))
        return None if question is None else question.answer(at)

    def note(self, frame: FrameType, function: str, path: object, at: _At, answer: Any) -> None:
        """Records an answer of the system; not in a replay, which asks only what was not asked before."""
        if self._calls.is_past:
            return
        key = _key(frame, function, path)
        question = self._questions.get(key)
        if question is None:
            question = self._questions[key] = _Question()
        if question.is_last(answer):
            if answer == _DONE and self._commands.has_any():
                # It was done again. Behind the checkpoint, an answered command makes no file that it could be done to.
                self._lines(at).add({"at": at})
            return
        lines = self._lines(at)
        question.changes.append((at, answer))
        lines.add({"at": at, "of": key, "answer": answer})
        self._count += 1
        if self._count > MAX_CHANGES:
            self._say_unkept(causes.LEARNS_MUCH())

    def _lines(self, at: _At) -> kept.Lines:
        """The file of the answers; what earlier starts recorded from this time on does not count."""
        if self._file is None:
            self._file = kept.Lines(self._path, self._calls)
            self._file.add({"from": at})
            for other in self._questions.values():
                other.forget_from(at)
        return self._file

    def keep(self, path: str, data: bytes) -> str | None:
        """Keeps the content of a file; returns its hash, or None if it is not kept."""
        if self._files.writes(path):
            self._own_bytes += len(data)
            if self._own_bytes > MAX_OWN_BYTES:
                return None
        elif not self._kept.has_room(len(data)):
            self._say_unkept(causes.READS_MUCH())
            return None
        return self._kept.keep(data)

    def read(self, name: str) -> bytes:
        """The content that was kept."""
        return self._kept.read(name)

    def _say_unkept(self, cause: causes.Told) -> None:
        if not self._is_told:
            self._is_told = True
            self._calls.exactness.refuse(cause)

    def asking(self) -> _Asking:
        """`with observations.asking()`: nothing is recorded."""
        return _Asking(self)

    def is_left_out(self, path: str) -> bool:
        """Whether reads of a file are recorded elsewhere, or need no record."""
        return self._files.saved.has(path) or inputs.is_left_out(path) or path in DRAWN_PATHS

    def bring_back(self, path: Any) -> None:
        """Restores the file of an operation that a replay counts as done, as it was left."""
        self._files.bring_back(path)

    def refuse_newer(self, path: str, found: os.stat_result) -> None:
        """A file is read that is too large to be kept: refuses exactness if the file is newer than the trial."""
        if found.st_mtime > self._began and not self._files.writes(path):
            self._say_unkept(causes.READS_LARGE(path=places.display_path(path), kibibytes=MAX_FILE_BYTES >> 10))


class _Asking:
    __slots__ = ("_observations",)

    def __init__(self, observations: Observations) -> None:
        self._observations = observations

    def __enter__(self) -> None:
        self._observations._is_asking = True

    def __exit__(self, *exception: object) -> None:
        self._observations._is_asking = False


def _key(frame: FrameType, function: str, path: object) -> str:
    return f"{places.display_path(frame.f_code.co_filename)}:{frame.f_lineno} {function} {_named(path)}"


def _named(path: object) -> str:
    """A path as it is in keys. `tempfile` makes other names each time, so they are replaced."""
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    elif hasattr(path, "__fspath__"):
        path = os.fspath(path)
    if not isinstance(path, str):
        return "."
    if "tmp" not in path:
        return path
    import re

    return re.sub(r"\btmp[a-z0-9_]{8}\b", "tmp*", path)


# -- what replaces functions of `os` ------------------------------------------------------------------------------------


def install(observations: Observations, in_place: type[InPlace]) -> None:
    """Routes the script's questions through `observations`.

    Args:
        observations: those of this process.
        in_place: what `file_calls.py` has replaced builtin functions with (`src/native/in_place.rs`).
    """
    for name, (encode, decode) in CODECS.items():
        _, original = functions_of_os.replaced(name)
        functions_of_os.ask_first(name, in_place, _question(observations, name, original, encode, decode))
    for name in ("remove", "unlink", "rename", "replace", "rmdir", "mkdir", "symlink", "link"):
        # The replacement, which notes what is done. While it is called from here, it does not ask first again.
        original, _ = functions_of_os.replaced(name)
        functions_of_os.ask_first(name, in_place, _deed(observations, name, original))
    functions_of_os.ask_first("io.open", in_place, _opening(observations))
    _rebind_pathlib()


def _rebind_pathlib() -> None:
    """Before Python 3.10 `pathlib` holds functions of `os` in a class, and may be imported before this package."""
    accessor = getattr(sys.modules.get("pathlib"), "_NormalAccessor", None)
    for name in () if accessor is None else [*CODECS, "unlink", "rename", "replace", "rmdir", "mkdir", "symlink", "link"]:
        if name in vars(accessor):
            setattr(accessor, name, staticmethod(functions_of_os.replaced(name)[0]))


def _question(
    observations: Observations,
    name: str,
    original: Callable[..., Any],
    encode: Callable[[Any], tuple[Any, Any]],
    decode: Callable[[Any, object], Any],
) -> Callable[..., Any]:
    """Makes the hook of a function that asks something."""

    def before(*args: Any, **kwargs: Any) -> Any:
        frame = observations.asker(1)
        path = args[0] if args else "."
        if frame is None or isinstance(path, int) or kwargs.get("dir_fd") is not None:
            return NotImplemented
        kind = name
        asked_by = sys._getframe(1).f_code
        if name in ("stat", "lstat") and asked_by.co_name in _KIND_ONLY and asked_by is not frame.f_code:
            kind = "kind"
        at = observations.now()
        recorded = observations.recorded(frame, kind, path, at)
        if recorded is not None:
            return _told(recorded, decode, path)
        with observations.asking():
            try:
                answer = original(*args, **kwargs)
            except OSError as error:
                observations.note(frame, kind, path, at, _failure(error))
                return NotImplemented
            if kind == "kind":
                observations.note(frame, kind, path, at, [stat.S_IFMT(answer.st_mode), 0, 0, 1, 0, 0, 0, 0, 0, 0])
                return answer
            noted, answer = encode(answer)
            observations.note(frame, kind, path, at, noted)
            return answer

    return before


def _deed(observations: Observations, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Makes the hook of a function that changes something: if the change is already made, it counts as done."""

    def before(*args: Any, **kwargs: Any) -> Any:
        frame = observations.asker(1, _DOERS)
        if frame is None or any(value is not None for option, value in kwargs.items() if option.endswith("dir_fd")):
            return NotImplemented
        path = args[0] if args else None
        at = observations.now()
        recorded = observations.recorded(frame, name, path, at)
        with observations.asking():
            if recorded is not None and recorded != _DONE:
                raise _error(recorded)
            try:
                answer = original(*args, **kwargs)
            except OSError as error:
                if recorded is not None and isinstance(error, _DONE_BEFORE):
                    observations.bring_back(args[-1])
                    return None
                # It fails again, without this function in the traceback.
                observations.note(frame, name, path, at, _failure(error))
                return NotImplemented
        observations.note(frame, name, path, at, _DONE)
        return answer

    return before


def _opening(observations: Observations) -> Callable[..., Any]:
    """Makes the hook of `open`."""

    def before(file: Any = None, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
        if not _is_read(mode) or len(args) > 4 or not functions_of_os.is_plain(kwargs.pop("opener", None)):
            return NotImplemented
        frame = observations.asker(1, through=None)
        path = _path(file) if frame is not None else None
        if path is None or observations.is_left_out(path):
            return NotImplemented
        at = observations.now()
        recorded = observations.recorded(frame, "open", file, at)
        if recorded is not None:
            return _reopened(observations, recorded, file, mode, args, kwargs)
        with observations.asking():
            try:
                answer: Any = _read(observations, path)
            except OSError as error:
                answer = _failure(error)
            if answer is None:
                return NotImplemented
            observations.note(frame, "open", file, at, answer)
            if not isinstance(answer, str):
                return NotImplemented
            # Bypasses the check that compares read files with those of the checkpoint: this file may differ each time.
            return _io.open(file, mode, *args, **kwargs)

    return before


def _is_read(mode: object) -> bool:
    return isinstance(mode, str) and set(mode).issubset("rbtU")


def _path(file: Any) -> str | None:
    """The absolute path of a file to be opened; None without one."""
    if isinstance(file, int):
        return None
    try:
        return os.path.abspath(os.fsdecode(file))
    except (TypeError, ValueError):
        return None


def _read(observations: Observations, path: str) -> str | None:
    """The hash of a file's content; None if that is not recorded."""
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        return None
    data = _content(path) if found.st_size <= MAX_FILE_BYTES else None
    if data is None:
        observations.refuse_newer(path, found)
        return None
    return observations.keep(path, data)


def _reopened(
    observations: Observations, recorded: Any, file: Any, mode: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> IO[Any]:
    """Opens a file with the content that it had in the recorded run."""
    if not isinstance(recorded, str):
        raise _error(recorded)

    def opener(path: str, flags: int) -> int:
        import tempfile

        with observations.asking(), tempfile.TemporaryFile(buffering=0) as copy:
            copy.write(observations.read(recorded))
            copy.seek(0)
            return os.dup(copy.fileno())

    return _io.open(file, mode, *args, opener=opener, **kwargs)  # type: ignore[call-overload]  # `args` has no opener


def _content(path: str) -> bytes | None:
    """The content of a file; None if it is too large, even if its size does not say so (files of the kernel)."""
    with io.FileIO(path) as file:
        data = file.read(MAX_FILE_BYTES + 1)
    return data if len(data) <= MAX_FILE_BYTES else None


def _failure(error: OSError) -> dict[str, Any]:
    return {"errno": error.errno, "strerror": error.strerror, "filename": _named(error.filename)}


def _error(recorded: dict[str, Any]) -> OSError:
    return OSError(recorded["errno"], recorded["strerror"], recorded["filename"])


def _told(recorded: Any, decode: Callable[[Any, object], Any], path: object) -> Any:
    if isinstance(recorded, dict):
        raise _error(recorded)
    return decode(recorded, path)
