"""One run of a command of the script: what is noted when it ends, and how a replay answers it (`commands.py`).

A command that runs leaves its exit code, what it wrote into pipes, and what it changed in the files and folders of the script.
A `Popen` that is answered looks like that of a process which has ended.

Source: CPython 3.7 to 3.13, Lib/subprocess.py (`_execute_child`, `_communicate`).
"""
from __future__ import annotations

import io
import os
import stat

from py_hooks import causes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from subprocess import Popen
    from typing import Any

    from _typeshed import WriteableBuffer

    from py_hooks.script_io import folders
    from py_hooks.script_io.commands import Commands

    # A place in the run: recorded calls so far, or in another thread the digest; and the number of the command since.
    Place = tuple[int | str, int]
    # A line of the journal.
    Line = dict[str, Any]
    State = tuple[int, int, int, int] | str | None

# Above any process number of Linux (`pid_max` is at most 2**22): an answered command has no process.
_NO_PROCESS = (1 << 22) + 1

# Positions of what `Popen.__init__` passes to `_execute_child` after `args`, the same in all versions.
_STDIN_READ, _STDIN_WRITE, _STDOUT_READ, _STDOUT_WRITE, _STDERR_READ, _STDERR_WRITE = range(9, 15)


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


class Command:
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
        at: Place,
        program: str,
        look: Callable[[], folders.Look],
        ended: Line | None = None,
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
        self._before: dict[str, State] | None = None
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
        line: Line = {"code": code}
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

    def _finish(self, line: Line) -> None:
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
        for name, descriptor in given_files(rest):
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


class _Rest(_Noted):
    """A pipe whose rest was noted."""

    readinto: Callable[..., int] = io.FileIO.readinto
    read: Callable[..., bytes] = io.FileIO.read
    readall = io.FileIO.readall


def _nothing() -> None:
    """What a weak reference to nothing returns."""


def given_files(rest: Sequence[Any]) -> list[tuple[str, int]]:
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
