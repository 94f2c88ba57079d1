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
the process was killed has no second line, and runs again: first, what it has done is taken back (`interrupted.py`).

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
import threading
from _thread import get_ident

from py_hooks import causes, places
from py_hooks.border import ExitCode
from py_hooks.random_numbers import random_streams
from py_hooks.script_io import command, folders, interrupted, kept

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import numpy
    from _pedl import Trial

    from py_hooks.recording.recorder import Calls
    from py_hooks.script_io.command import Command, Line, Place, State

_FILE_NAME = "commands.jsonl"

# The number of bytes that one command may leave in pipes, or in files of the script.
MAX_BYTES = 64 << 20

# Separators of words for a shell, and between an option and its value.
_SEPARATORS = r"[\s;&|<>()'\"=]+"


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
        self._known: dict[tuple[Any, ...], Line] = {}
        # Those of commands whose end is not noted, because the process was killed while they ran.
        self._interrupted: dict[tuple[Any, ...], Line] = {}
        self._before = interrupted.Before(trial.directory, calls.files.ledger())
        self.last_position = -1
        # How many commands were run since the recorded call of this number; and in other threads, by digest.
        self._position, self._since = -1, 0
        self._in_threads: dict[str, int] = {}
        self._running: set[Command] = set()
        self._told: set[causes.Told] = set()
        # Held while a line is written. A signal handler of the script may run a command while it is held.
        self._lock = threading.RLock()
        self._resumed = threading.Event()

    # -- the life of a trial -----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The trial has begun: reads the journal."""
        started: dict[int, Line] = {}
        for line in kept.lines(self._path):
            if "started" in line:
                started[line["started"]] = line
                self._count = max(self._count, line["started"] + 1)
            elif line.get("ended") in started:
                first = started.pop(line["ended"])
                self._known[tuple(first["at"])] = dict(first, **line)
                self._note_last(first)
        for line in started.values():
            self._known.setdefault(tuple(line["at"]), line)
            self._interrupted[tuple(line["at"])] = line
            self._note_last(line)
        if not self._calls.resumes:
            self._resumed.set()

    def _note_last(self, line: Line) -> None:
        if isinstance(line["at"][0], int):
            self.last_position = max(self.last_position, line["at"][0])

    def capture(self) -> tuple[list[tuple[str, numpy.ndarray]], None]:
        """Part of a checkpoint: nothing. A command that is still running at a checkpoint is a cause."""
        for met in list(self._running):
            popen = met.popen()
            if popen is None or popen.poll() is not None:
                continue
            talks = met.has_pipes or popen.stdin is not None
            self.say((causes.COMMAND_TALKS if talks else causes.COMMAND_RUNS)(program=met.program))
        return [], None

    def restore(self, tensors: dict[str, numpy.ndarray], state: object) -> None:
        """The replay is over: starts the commands that were running at the checkpoint."""
        self._resumed.set()
        for met in list(self._running):
            if met.start is not None:
                met.start_now()

    def has_any(self) -> bool:
        """Whether a command was noted, in this start or an earlier one."""
        return self._count > 0

    # -- whether a command runs or is answered -----------------------------------------------------------------------

    def is_activity(self) -> bool:
        """Whether a command that the script runs now is noted, or answered."""
        calls = self._calls
        if not calls.begun or self._pid != os.getpid() or random_streams.THREAD.stream is not None:
            return False
        if not (calls.batches or calls.entries or calls.files.saved.has()):
            return False
        if get_ident() == calls.main_thread:
            return not calls.depth
        # A thread of C code builds items.
        return calls.depth < 1 << 20 and not isinstance(threading.current_thread(), threading._DummyThread)

    def meet(self, words: list[str], folder: str, is_users: bool) -> Command | None:
        """The script runs a command.

        Args:
            words: the words of the command.
            folder: the directory that it runs in.
            is_users: whether a file of the user runs it, and not a library for its purposes.

        Returns:
            A `Command`, with `ended` if it is answered, without if it is to run; None if it is no activity.
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
        if not self._calls.is_past:
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
        self, known: Line | None, at: Place, digest: str, program: str, words: list[str], folder: str
    ) -> Command:
        """After the resume point: answers the command if an earlier start has run it here, and runs it otherwise."""
        if known is not None and "ended" in known and self._is_as_before(known, digest, words, folder):
            return self._answer(known, at, words, folder)
        return self._start(at, digest, program, words, folder)

    def _place(self, digest: str, program: str) -> Place:
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

    def _answer(self, known: Line, at: Place, words: list[str], folder: str) -> Command:
        ended = known if "ended" in known else None
        met = command.Command(self, known["started"], at, known["program"], self._look_for(words, folder), ended)
        if met.ended is not None:
            met.apply()
        return met

    def _is_as_before(self, known: Line, digest: str, words: list[str], folder: str) -> bool:
        """After the resume point: whether a command would do the same again."""
        if known["command"] != digest or self._calls.exactness.causes:
            return False
        return known.get("named", []) == self._named(words, folder)

    def _start(self, at: Place, digest: str, program: str, words: list[str], folder: str) -> Command:
        interrupted_one = self._take_back(at, digest)
        met = command.Command(self, self._count, at, program, self._look_for(words, folder))
        self._count += 1
        line = {"started": met.number, "at": list(at), "command": digest, "program": program}
        contents = self._named(words, folder)
        if contents:
            line["named"] = contents
        before = self._before.note(met.number, self._others_in(words, folder))
        if before:
            line["before"] = before
        with self._lock:
            self._file.add(line, is_durable=bool(before))
        if interrupted_one is not None:
            self._before.forget(interrupted_one)
        return met

    def _take_back(self, at: Place, digest: str) -> int | None:
        """Takes back what a command did that was running here when the process was killed. Returns its number."""
        line = self._interrupted.pop(at, None)
        if line is None or line["command"] != digest:
            return None
        mended, left = self._before.take_back(line["started"], line.get("before"))
        text = f"the command `{line['program']}` was running when the start before this one was killed; it runs again"
        if mended:
            text += f"; taken back: {_listed(mended)}"
        if left:
            text += f"; stays as it is: {_listed(left)}"
        self._calls.trial.log(text)
        return line["started"]

    def _others_in(self, words: list[str], folder: str) -> list[str]:
        """The paths that a command may name, but for those that the script itself has written."""
        files = self._calls.files
        return [path for path in _paths_in(words, folder) if not files.is_known(path) and not files.is_of_trial(path)]

    def _look_for(self, words: list[str], folder: str) -> Callable[[], folders.Look]:
        return lambda: folders.Look(self._calls.files, _paths_in(words, folder), folder)

    def _stop(self, at: Place, program: str) -> None:
        from py_hooks.recording import ending

        file, line = places.user_place(3)
        known = self._known.get(at)
        before = f"the command `{known['program']}`" if known else "no command"
        ending.stop(
            self._calls,
            ExitCode.DIVERGED,
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

    def runs(self, met: Command) -> None:
        """The command was started, and its end is not known."""
        self._running.add(met)

    def is_running(self, met: Command) -> bool:
        """Whether the end of a command is not known."""
        return met in self._running

    def is_past(self) -> bool:
        """Whether the commands of the script have run in an earlier start."""
        return self._calls.is_past

    # -- the journal ---------------------------------------------------------------------------------------------------

    def note_end(self, met: Command, line: Line) -> None:
        """A command has ended."""
        self._running.discard(met)
        contents = [line[name] for name in ("stdout", "stderr") if line.get(name)]
        contents += [content for content in line["files"].values() if content is not None]
        size = sum(map(len, contents))
        if size > MAX_BYTES or not self.kept.has_room(size):
            leaves = f"leaves {size / 1e6:.0f} MB in pipes and in files of the script"
            self.say(causes.COMMAND_LARGE(program=met.program, leaves=leaves))
            return
        for name in ("stdout", "stderr"):
            if name in line:
                line[name] = self.kept.keep(line[name])
        files = self._calls.files.ledger()
        line["files"] = {
            files.stored(path): None if content is None else self.kept.keep(content) for path, content in line["files"].items()
        }
        if len(line["folders"]) > folders.MAX_LISTED:
            self.say(causes.COMMAND_FOLDERS(program=met.program, count=folders.MAX_LISTED))
            line["folders"] = {}
        self._calls.files.commanded.note(line["folders"])
        line["folders"] = {files.stored(path): change for path, change in line["folders"].items()}
        line["ended"] = met.number
        with self._lock:
            self._file.add({name: value for name, value in line.items() if value not in ({}, None)}, is_durable=True)
        self._before.forget(met.number)

    # -- files of the script -------------------------------------------------------------------------------------------

    def files_now(self) -> dict[str, State]:
        """The states of the files that the script has written, by path."""
        return {path: _state(path) for path in self._calls.files.written_paths()}

    @staticmethod
    def changed_since(before: dict[str, State]) -> dict[str, bytes | None]:
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


# -- helpers ---------------------------------------------------------------------------------------------------------------


def _paths_in(words: list[str], folder: str) -> set[str]:
    """The paths that the words of a command may name."""
    import re

    parts = {part for word in words for part in {word, *re.split(_SEPARATORS, word)} if part and "\0" not in part}
    return {os.path.abspath(os.path.join(folder, part)) for part in parts}


def _listed(paths: list[str]) -> str:
    return ", ".join(map(places.display_path, paths))


def _digest(words: list[str], folder: str) -> str:
    import json

    return kept.hash_of(json.dumps([folder, words]).encode())[:32]


# The state of a folder or a link, which is not compared.
_OTHER = "other"


def _state(path: str) -> State:
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
