"""The journal of a trial: what its starts made or changed on disk, so that the next start finds the disk as the first did.

`files.jsonl` in the trial directory has a line for each change, written before the change is made.

    {"created": path}                    did not exist: a start moves it to `aside/`, whatever it contains then
    {"logged": path}                     did not exist, and grows with the training (event files): moved to `aside/`
                                         like a created file; at the resume point it is moved back, cut to its length
                                         at the checkpoint, and a file that was begun later is removed
    {"made": path}                       a directory that did not exist: moved to `aside/` if it is empty by then
    {"removed": path}                    existed (a file, a link, an empty directory), and was removed, moved or
                                         replaced: the entry itself is in `originals/` (a hard link) and is moved back
    {"appended": path, "bytes": n}       was n bytes long: cut to that length, the rest is moved to `aside/`
    {"overwritten": path}                its first content, kept in `originals/`, is written into it; its later content
                                         is moved to `aside/`
    {"begun": path}                      a file cache of `tf.data` that did not exist, whose files have names with this
                                         prefix: the existing ones are moved to `aside/`
    {"changed": path, "mode": m, "times": [a, b]}   its mode and its times: set again, the later ones are kept in `aside/`
    {"given_up": path}                   something else has changed it between two starts: it is left as it is, and the
                                         lines before this one do not count

A start takes the changes back from the last line to the first (`withdraw`). Changes that the replay does not make again are
made again from the first line to the last (`put_back`): when the process ends, or at the next start. A path may have several
lines, one for each change: a file that was appended to and then removed is moved back and cut. Files in `aside/` and
`originals/` are named by the number of the line, from 0. A path below the directory that the trial was started in is relative
to the trial directory, if that is there too: a trial that was moved or copied with its files is independent.

Which lines count. A trial may be a copy, or come from somebody else, and its journal then names files that do not belong to
it. A line counts if its path is below the directory that the trial was started in, links followed, or below the trial
directory. A line with a path elsewhere counts only in the trial directory in which it was written. The proof is the file
`files_origin`, whose inode and time of change no copy can have: `files_origin.json` records both, with the number of the first
line that counts. Other lines are ignored, and their paths are reported (`foreign`).

Each step can be repeated, and the process may die between any two. An entry in `originals/` is missing at its path; if
`originals/` has none, the removal is already taken back. A file in `aside/` says the same for the other lines. If the process
dies between a line and its change, the line names an unchanged file, which withdrawing leaves alone. A torn line is ignored.
"""
from __future__ import annotations

import errno
import json
import os

# Not `os`: its functions are replaced, and note the calls.
import posix
import stat

from py_hooks.script_io import changes, disk, given_paths, seen_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container
    from typing import Any

    # What JSON has of a line of the journal.
    _Entry = dict[str, Any]
    # The number of a line, its path, and what JSON has of it.
    _Line = tuple[int, str, _Entry]
    # An entry that is held in memory: the bytes of a file, the target of a link, or nothing for a folder.
    Held = bytes | tuple[str, ...]
    # Kind, path, held entry and other members of a line that is not written yet.
    Waiting = tuple[str, str, Held | None, dict[str, Any]]

_FILE_NAME = "files.jsonl"

# A larger file is not copied before it is overwritten. A start that reads it again ends with exit code 76 (`inputs`).
MAX_ORIGINAL_BYTES = 64 << 20

# The total of removed files without another name. They use disk space as long as the trial exists.
MAX_REMOVED_BYTES = 1 << 30

# Limits of the files that are removed before a trial exists and held in memory: of one file, and of all.
_MAX_HELD_FILE = 1 << 20
_MAX_HELD = 16 << 20

# In `aside/`: its files were put there by the rules of `put_back`. Before these rules a file there proved nothing.
_RULES = "rules-2"

# The name, before the number of the process, of the folder that is used as `originals/` before a trial exists.
_KEEPING = ".pedl-kept-"

ABSENT = frozenset(["created", "logged", "made"])
KINDS = ABSENT | {"removed", "appended", "overwritten", "changed", "begun", "given_up"}

# The state of the files when a process ended.
_SEEN_NAME = "files_seen.json"

# These show that the journal was written in this directory.
_ORIGIN_NAME = "files_origin"
_ORIGIN_RECORD = "files_origin.json"

# The maximum number of files that are examined when a process ends.
_MAX_SEEN = 1000


class TooLarge(Exception):
    """An entry that a script removes or overwrites is too large to be kept."""


class Ledger:
    """The journal of the trial in a directory, which need not exist before `open`.

    Args:
        directory: the trial directory.
        started_in: the directory that the trial was started in.

    Attributes:
        path: the file of the journal.
        count: the number of its lines, and so the number of the next one.
    """

    def __init__(self, directory: str, started_in: str) -> None:
        self._directory = directory
        self._around = os.path.join(started_in, "")
        self._inside: dict[str, bool] = {}
        self.path = os.path.join(directory, _FILE_NAME)
        self._file: int | None = None
        self.count = 0
        self._removed_bytes = self._held_bytes = 0

    def exists(self) -> bool:
        """Whether an earlier start has begun a journal."""
        return os.path.exists(self.path)

    def lines(self) -> list[tuple[str, str, int]]:
        """`(kind, path, number)` of each line."""
        return [(_kind(entry), path, number) for number, path, entry in self._entries()]

    # -- before the script -----------------------------------------------------------------------------------------

    def withdraw(self) -> set[str]:
        """Takes back what earlier starts made and changed. Nothing is lost, whenever the process dies.

        Returns:
            The directories that could not be moved: they have entries that the journal does not name.
        """
        for folder in ("aside", "originals"):
            if os.path.islink(os.path.join(self._directory, folder)):
                # Files that are put aside or discarded there would be those of others.
                raise OSError(errno.ELOOP, "it is a link, and has to be a directory", os.path.join(self._directory, folder))
        self._adopt()
        self._give_up_changed()
        entries = self._entries()
        if not entries:
            return set()
        self._convert(entries)
        self.put_back()
        left = set()
        for number, path, entry in reversed(entries):
            if not changes.UNDO[_kind(entry)](path, self._place("aside", number), self._place("originals", number), entry):
                left.add(path)
        return {path for path in left if os.path.isdir(path)}

    def put_back(self, but: Container[str] = frozenset(), only: str | None = None) -> None:
        """Makes the changes again that were taken back, if the replay has not made them.

        Args:
            but: paths that the replay has written, even if they have changed since.
            only: the one path to put back; None for all.
        """
        for number, path, entry in self._entries():
            if only is not None and path != only:
                continue
            places = self._place("aside", number), self._place("originals", number)
            changes.REDO[_kind(entry)](path, *places, entry=entry, is_written=path in but)

    def given_up(self) -> list[str]:
        """The paths that something else has changed between two starts."""
        return [self.resolved(entry["given_up"]) for _, entry in self._all() if "given_up" in entry]

    def foreign(self) -> list[str]:
        """The paths of lines that do not count, because they lead outside, and were written in another directory."""
        since, paths = self._own_since(), []
        for number, entry in self._all():
            path = self.resolved(entry[_kind(entry)])
            if path not in paths and not self._counts(number, path, since):
                paths.append(path)
        return paths

    def may_touch(self, path: str) -> bool:
        """Whether a replay may change this file if the notes of the trial name it."""
        return self.is_inside(path) or any(known == path for _, known, _ in self._entries())

    def may_lead(self, path: str, made: list[Any] | None) -> bool:
        """Whether a replay may make this entry. A link that leads outside must have been noted in this directory.

        Args:
            path: of the entry.
            made: its state, as `folders.what_is` returns it.
        """
        return made is None or made[0] != "link" or self._leads_in(path, made[1]) or self._own_since() <= self.count

    def note_link(self, path: str, target: str) -> None:
        """A command has made a link that the script uses: it is noted as written here, if it leads outside."""
        if not self._leads_in(path, target):
            self._note_origin([os.path.join(os.path.dirname(path), target, "")])

    def _leads_in(self, path: str, target: str) -> bool:
        # Links have changed, so the cache is out of date.
        self._inside.clear()
        return self.is_inside(os.path.join(os.path.dirname(path), target, ""))

    def note_seen(self) -> None:
        """The process ends: notes the state of its files, and which ones do not exist."""
        seen: dict[int, list[Any] | bool]
        seen, held = {}, seen_files.open_files()
        for number, path, entry in self._entries():
            if _kind(entry) not in ("made", "logged", "changed", "begun") and path not in held and len(seen) < _MAX_SEEN:
                seen[number] = seen_files.state(path)
        if seen:
            disk.write(os.path.join(self._directory, _SEEN_NAME), json.dumps(seen).encode())

    def _give_up_changed(self) -> None:
        """Files that something else has changed since the process ended belong to the user."""
        name = os.path.join(self._directory, _SEEN_NAME)
        seen = seen_files.states_in(disk.read(name))
        paths = []
        for number, path, _ in self._entries():
            if str(number) in seen and path not in paths and seen_files.has_changed(path, seen[str(number)]):
                paths.append(path)
        if paths:
            self.open()
            for path in paths:
                self.add("given_up", path)
        disk.discard(name)

    def again(self, kind: str, number: int) -> None:
        """The replay is about to make a change again: the data that was set aside for it is no longer needed."""
        aside = self._place("aside", number)
        if kind == "appended" and os.path.lexists(aside):
            # If the replay does not get as far, this is longer than what it appends.
            posix.rename(aside, aside + changes.LONGER)
        elif kind in ("overwritten", "changed"):
            disk.discard(aside)

    def restore_logged(self, lengths: dict[str, int]) -> list[str]:
        """Puts back the files that grow with the training, as they were at a checkpoint.

        Args:
            lengths: in bytes, by their names in the journal. A file without one was begun later, and is removed.

        Returns:
            The paths of the restored files.
        """
        restored = []
        for number, path, entry in self._entries():
            aside = self._place("aside", number)
            if "logged" not in entry or not os.path.lexists(aside):
                continue
            length = lengths.get(self.stored(path))
            if length is None:
                disk.discard(aside)
                continue
            posix.truncate(aside, min(length, os.path.getsize(aside)))
            disk.move(aside, path)
            restored.append(path)
        return restored

    def _convert(self, entries: list[_Line]) -> None:
        """Begins `aside/`. Files that an older version left there are put back by its rules, or discarded."""
        folder = os.path.join(self._directory, "aside")
        rules = os.path.join(folder, _RULES)
        if os.path.lexists(rules):
            return
        for number, path, entry in entries:
            aside, kind = self._place("aside", number), _kind(entry)
            if not os.path.lexists(aside):
                continue
            if kind == "appended" and os.path.isfile(path) and os.path.getsize(path) == entry["bytes"]:
                disk.write(path, disk.read(aside) or b"", "a")
            elif kind == "overwritten" and disk.read(path) == disk.read(self._place("originals", number)):
                disk.move(aside, path)
            if kind in ("appended", "overwritten"):
                disk.discard(aside)
        disk.make_folders(folder)
        disk.write(rules, b"")

    # -- while the script runs -------------------------------------------------------------------------------------

    def open(self) -> None:
        """Opens the journal for adding lines. The directory exists by now."""
        text = disk.read(self.path) or b""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = posix.open(self.path, flags, 0o666)
        if text and not text.endswith(b"\n"):
            posix.write(self._file, b"\n")
        self.count = len(text.splitlines())

    def is_open(self) -> bool:
        """Whether `add` may be called."""
        return self._file is not None

    def add(self, kind: str, path: str, original: Held | None = None, **more: Any) -> int:
        """Adds a line; with the content of a file that is about to be overwritten, or with a removed entry as `hold` returns it.

        Returns:
            The number of the line.
        """
        number = self.count
        self._note_origin([path])
        if original is not None:
            self._make_originals()
            _make(self._place("originals", number), original, more)
        posix.write(self._file, (json.dumps(dict({kind: self.stored(path)}, **more)) + "\n").encode())
        self.count += 1
        return number

    def adopt(self, folder: str | None, lines: list[Waiting]) -> None:
        """Records the changes of a script before it trained, in one step: the first lines, and the entries that were kept.

        Args:
            folder: the folder that was used as `originals/` until now; None if nothing was kept.
            lines: `(kind, path, original, more)` of each, as for `add`, or as `hold` returns them.
        """
        entries = [dict({kind: self.stored(path)}, **more) for kind, path, _, more in lines]
        self._note_origin([path for _, path, _, _ in lines])
        if folder is not None:
            entries[0]["kept"] = folder
        for number, (_, _, original, more) in enumerate(lines):
            if original is not None and folder is not None:
                _make(os.path.join(folder, str(number)), original, more)
            elif original is not None:
                self._make_originals()
                _make(self._place("originals", number), original, more)
        posix.write(self._file, "".join(json.dumps(entry) + "\n" for entry in entries).encode())
        self.count += len(entries)
        self._adopt()

    def hold(self, path: str) -> tuple[Held, dict[str, Any]] | None:
        """Holds in memory a small entry that is about to be removed before a trial exists.

        So a script that trains nothing leaves no trace.

        Returns:
            The entry, and the other members of its line; None if it must be kept on the disk.
        """
        found = posix.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            return (posix.readlink(path),), {}
        more = {"mode": stat.S_IMODE(found.st_mode), "times": disk.times_of(found)}
        if stat.S_ISDIR(found.st_mode):
            return (), more
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or found.st_size > _MAX_HELD_FILE:
            return None
        data = disk.read(path)
        if data is None or self._held_bytes + len(data) > _MAX_HELD:
            return None
        self._held_bytes += len(data)
        return data, more

    def make_keeping(self) -> str:
        """Makes a hidden folder beside the future trial directory, which is used as `originals/` until that exists."""
        folder = os.path.dirname(self._directory)
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        kept = os.path.join(folder, f"{_KEEPING}{posix.getpid()}")
        disk.discard(kept)
        posix.mkdir(kept, 0o700)
        return kept

    def drop_keeping(self, folder: str) -> None:
        """The script has ended, and there is no trial."""
        disk.discard(folder)

    def _adopt(self) -> None:
        for _, _, entry in self._entries()[:1]:
            folder, originals = entry.get("kept"), os.path.join(self._directory, "originals")
            if self._is_keeping(folder) and not os.path.lexists(originals):
                disk.move(folder, originals)

    def _is_keeping(self, folder: object) -> bool:
        """Whether this is a folder that `make_keeping` makes. It is about to be moved, and anybody may have written its name."""
        if not isinstance(folder, str) or not os.path.basename(folder).startswith(_KEEPING) or not given_paths.is_folder(folder):
            return False
        parent = os.path.realpath(os.path.dirname(folder))
        return os.path.join(os.path.realpath(self._directory), "").startswith(os.path.join(parent, ""))

    def keep(self, path: str, number: int, folder: str | None = None, is_copied: bool = False) -> None:
        """Keeps an entry that is about to be removed: by a second name, or on another file system by a copy.

        Args:
            path: a file, a link, or a directory, of which the entries are not kept.
            number: of its line.
            folder: the folder that is used as `originals/` before the trial has begun.
            is_copied: whether to copy it, because the file itself is about to be changed.
        """
        found = posix.lstat(path)
        if folder is None:
            self._make_originals()
        kept = os.path.join(folder, str(number)) if folder is not None else self._place("originals", number)
        disk.discard(kept)
        if stat.S_ISDIR(found.st_mode):
            posix.mkdir(kept)
            posix.chmod(kept, stat.S_IMODE(found.st_mode))
            return
        if is_copied:
            _copy_kept(path, kept, found, is_copied)
            return
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            self._count_removed(found.st_size)
        try:
            posix.link(path, kept, follow_symlinks=False)
        except OSError:
            if stat.S_ISLNK(found.st_mode):
                posix.symlink(posix.readlink(path), kept)
            else:
                _copy_kept(path, kept, found, is_copied)

    def _count_removed(self, size: int) -> None:
        if self._removed_bytes + size > MAX_REMOVED_BYTES:
            raise TooLarge(f"more than {MAX_REMOVED_BYTES >> 30} GiB")
        self._removed_bytes += size

    def keep_again(self, path: str, number: int, is_copied: bool = False) -> None:
        """The replay is about to remove an entry that was moved back: it is kept as before."""
        if not os.path.lexists(self._place("originals", number)) and os.path.lexists(path):
            self.keep(path, number, is_copied=is_copied)

    def is_kept_itself(self, path: str, number: int) -> bool:
        """Whether the kept file and the file at the path are the same file."""
        return disk.is_same(path, self._place("originals", number))

    def _make_originals(self) -> None:
        disk.make_folders(os.path.join(self._directory, "originals"))

    def _place(self, folder: str, number: int) -> str:
        return os.path.join(self._directory, folder, str(number))

    def _entries(self) -> list[_Line]:
        """`(number of the line, path, entry)` of each line that counts."""
        found: list[_Line]
        found, since = [], self._own_since()
        for number, entry in self._all():
            kind = _kind(entry)
            path = self.resolved(entry[kind])
            if not self._counts(number, path, since):
                continue
            if kind == "given_up":
                found = [line for line in found if line[1] != path]
            else:
                found.append((number, path, entry))
        return found

    def _all(self) -> list[tuple[int, _Entry]]:
        found = []
        for number, line in enumerate((disk.read(self.path) or b"").split(b"\n")[:-1]):
            try:
                entry = json.loads(line.decode())
            except ValueError:
                continue
            kind = _kind(entry) if isinstance(entry, dict) else None
            if kind is not None and _is_whole(kind, entry):
                # Other lines are not from pedl-run.
                found.append((number, entry))
        return found

    # -- which lines count -----------------------------------------------------------------------------------------

    def _counts(self, number: int, path: str, since: float) -> bool:
        return number >= since or self.is_inside(path)

    def is_inside(self, path: str) -> bool:
        """Whether a path is below the directory that the trial was started in, or below that of the trial."""
        folder = os.path.dirname(path)
        inside = self._inside.get(folder)
        if inside is None:
            real = os.path.join(os.path.realpath(folder), "")
            around = [name for name in (self._around, self._directory) if name]
            inside = any(real.startswith(os.path.join(os.path.realpath(name), "")) for name in around)
            self._inside[folder] = inside
        return inside

    def _own_since(self) -> float:
        """The first line from which on the journal was written in this very directory; infinity if no line was."""
        try:
            record = json.loads((disk.read(os.path.join(self._directory, _ORIGIN_RECORD)) or b"{}").decode())
            if record["origin"] == self._origin():
                return int(record["since"])
        except (ValueError, KeyError, TypeError, OSError):
            pass
        return float("inf")

    def _origin(self) -> list[int]:
        found = posix.lstat(os.path.join(self._directory, _ORIGIN_NAME))
        return [found.st_ino, found.st_ctime_ns]

    def _note_origin(self, paths: list[str]) -> None:
        """Lines with these paths are about to be written: if one leads outside, notes that this is their directory."""
        if all(self.is_inside(path) for path in paths) or self._own_since() <= self.count:
            return
        name = os.path.join(self._directory, _ORIGIN_NAME)
        disk.discard(name)
        disk.write(name, b"")
        record = {"origin": self._origin(), "since": self.count}
        disk.write(os.path.join(self._directory, _ORIGIN_RECORD), json.dumps(record).encode())

    def resolved(self, name: str) -> str:
        """The absolute path of a name in the journal."""
        return os.path.normpath(os.path.join(self._directory, name))

    def stored(self, path: str) -> str:
        """A path as the journal contains it: relative if it can be moved, or copied, together with the trial."""
        if path.startswith(self._around) and self._directory.startswith(self._around):
            return os.path.relpath(path, self._directory)
        return path


def content(path: str) -> bytes | None:
    """The content of a file; None if it is no file, or too large to be kept."""
    if not os.path.isfile(path) or os.path.getsize(path) > MAX_ORIGINAL_BYTES:
        return None
    return disk.read(path)


def _copy_kept(path: str, kept: str, found: os.stat_result, is_changed: bool) -> None:
    """Keeps, by a copy, a file that cannot have a second name, or that is about to be changed."""
    if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_ORIGINAL_BYTES:
        raise TooLarge(f"more than {MAX_ORIGINAL_BYTES >> 20} MiB, on another file system") from None
    if found.st_nlink > 1 and not is_changed:
        raise TooLarge("it has other names, on another file system than the trial") from None
    disk.copy_whole(path, kept)


def _kind(entry: _Entry) -> str | None:
    return next((kind for kind in entry if kind in KINDS), None)


def _is_whole(kind: str, entry: _Entry) -> bool:
    """Whether a line has the form of those that pedl-run writes."""
    if not isinstance(entry[kind], str) or "\0" in entry[kind]:
        return False
    if kind == "appended":
        return _is_number(entry.get("bytes"))
    if kind == "changed":
        times = entry.get("times")
        are_two = isinstance(times, list) and len(times) == 2
        are_times = are_two and all(type(time) is int and abs(time) < 1 << 62 for time in times)
        return are_times and _is_number(entry.get("mode")) and entry["mode"] <= 0o7777
    return True


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _make(path: str, thing: Held, more: dict[str, Any]) -> None:
    """Makes an entry that was held: from the bytes of a file, the target of a link, or nothing for a folder."""
    disk.discard(path)
    if isinstance(thing, bytes):
        disk.write(path, thing)
    elif thing:
        posix.symlink(thing[0], path)
    else:
        posix.mkdir(path)
    if "times" in more:
        disk.set_mode_and_times(path, more)
    elif "mode" in more:
        posix.chmod(path, more["mode"])
