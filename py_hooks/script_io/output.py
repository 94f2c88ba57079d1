"""Prints stdout and stderr once: a replay does not print again what was already printed.

Both streams get a raw layer of pedl-run below Python's text and buffer layers (`raw_streams.py`), so that code which already
holds one of these prints through the layer too. From the first import of a framework on, the layer

- copies what the script prints into `stdout.log` and `stderr.log` of the trial directory, once the trial has begun;
- drops everything while a replay runs;
- after the resume point drops what repeats the copy (printed between the checkpoint and the crash), up to the first
  line that differs: progress bars contain times, so counting bytes is not enough;
- if the process ends in its replay, prints by the same rule what it dropped, because that contains the reason;
- on a terminal clears pedl-run's status line before it prints;
- passes everything on while the script has redirected the descriptor (`os.dup2`) to one of its files: a replay writes that
  file again, as it does all files of the script.

A checkpoint flushes the streams and stores the lengths of the copies. What C code and child processes print does not
pass through the layer and is printed again.
"""
from __future__ import annotations

import contextlib
import io
import os
import sys
import weakref

from py_hooks.recording import ending, recorder
from py_hooks.script_io import functions_of_os, raw_streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import numpy
    from _pedl import InPlace
    from _typeshed import ReadableBuffer

_NAMES = ("stdout", "stderr")

_TRACEBACK = b"Traceback (most recent call last):\n"

# The most that is kept of dropped output, in case that there is no replay after all, or that it fails.
_MOST_HELD_BYTES = 1 << 20


class _Stream(raw_streams.RawStream):
    """The raw layer of one stream. It is never constructed: an existing layer becomes one (`take`)."""

    @classmethod
    def take(cls, raw: Any) -> _Stream:
        """Changes the class of a raw layer to this one, at once for all threads; returns the layer."""
        cls._prepare(raw)
        raw.__class__ = cls
        return raw

    def _prepare(self) -> None:
        self._copy: int | None = None
        self._path: str | None = None
        self._make_way: Callable[[bool], None] | None = None
        self._pid = os.getpid()
        self._dropping = False
        self._is_led_away = False
        self._held = b""
        self._forgotten = 0
        self._expected = b""
        self._line = b""
        self._length = 0
        # Whether everything printed since the resume point had been printed before.
        self.only_repeats = False

    # -- writing ---------------------------------------------------------------------------------------------------

    def write(self, data: ReadableBuffer) -> int:
        """Prints, copies or drops bytes; always takes all of them."""
        data = bytes(data)
        if not data:
            # Python writes this if it has no buffer. Nothing was printed.
            return 0
        if self._is_led_away or (self._pid != os.getpid() and not self._dropping):
            _write_all(self.fileno(), data)
        elif self._pid != os.getpid():
            pass
        elif self._dropping:
            self._hold(data)
        elif self._expected:
            self._repeat(data)
        else:
            self._print(data)
        return len(data)

    def _hold(self, data: bytes) -> None:
        """Keeps the end of what is dropped."""
        held = self._held + data
        self._held = held[-_MOST_HELD_BYTES:]
        self._forgotten += len(held) - len(self._held)

    def _print(self, data: bytes) -> None:
        self.only_repeats = False
        if self._make_way is not None and data:
            self._make_way(data.endswith(b"\n"))
        _write_all(self.fileno(), data)
        if self._copy is not None:
            self._copy_all(data)
            self._length += len(data)
        elif len(self._held) < _MOST_HELD_BYTES:
            self._held += data

    def _copy_all(self, data: bytes) -> None:
        """Appends to the copy. If its disk is full, `print` in the script does not fail: the run is stopped."""
        try:
            _write_all(self._copy, data)
        except OSError as error:
            self._copy = None
            ending.stop_for_file(recorder.CALLS, self._path, error)

    def _repeat(self, data: bytes) -> None:
        """Drops what equals the copy; from the first differing line on, prints."""
        expected, self._expected = self._expected, b""
        same = len(os.path.commonprefix([data, expected]))
        self._line = (self._line + data[:same]).rpartition(b"\n")[2]
        if same == len(data):
            self._length += same
            self._expected = expected[same:]
            return
        self._length -= len(self._line) - same
        line, self._line = self._line, b""
        os.ftruncate(self._copy, self._length)
        os.lseek(self._copy, self._length, os.SEEK_SET)
        self._print(line + data[same:])

    def look_where_it_leads(self) -> None:
        """Checks whether the descriptor refers to another file than it did when the process began."""
        self._is_led_away = raw_streams.leads_to(self.fileno()) != self.leads_to

    # -- the life of a trial ---------------------------------------------------------------------------------------

    def drop(self) -> None:
        """From here on nothing is printed; output is held back in case that there is no replay after all."""
        self._dropping = True

    def begin(self, path: str, replaying: bool, make_way: Callable[[bool], None] | None) -> None:
        """The trial has begun: opens the copy; prints what was held back if nothing is replayed."""
        self._path = path
        if os.isatty(self.fileno()):
            self._make_way = make_way
        self._copy = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if replaying:
            return
        os.ftruncate(self._copy, 0)
        held, self._held = self._held, b""
        if self._dropping:
            self._dropping = False
            self._print(held)
        else:
            _write_all(self._copy, held)
            self._length = len(held)

    def resume(self, length: int) -> None:
        """The replay is over: drops what follows as far as the copy contains it after `length` bytes."""
        self._dropping = False
        self._held = b""
        self._length = length
        os.lseek(self._copy, length, os.SEEK_SET)
        self._expected = _read_all(self._copy)
        self.only_repeats = bool(self._expected)

    def end(self, path: str) -> None:
        """The process ends in its replay: prints what was dropped, from the first line that is not in the copy."""
        if not self._dropping:
            return
        self._dropping = False
        if self._copy is not None:
            # What other threads and destructors print later is not part of the trial.
            os.close(self._copy)
            self._copy = None
        copied = _read_file(path)[self._forgotten :]
        same = len(os.path.commonprefix([self._held, copied]))
        if same < len(self._held):
            _write_all(self.fileno(), self._held[self._held.rfind(b"\n", 0, same) + 1 :])

    def cut_copy(self) -> None:
        """The script has ended: removes from the copy the traceback of a failure that did not happen again."""
        is_left = self._expected.startswith(_TRACEBACK) and not hasattr(sys, "last_value")
        if is_left and self._copy is not None and self._pid == os.getpid():
            os.ftruncate(self._copy, self._length)
            self._expected = b""

    def copied_bytes(self) -> int:
        """Length of the copy."""
        return self._length


class Output:
    """Both streams of this process."""

    def __init__(self) -> None:
        self._streams: dict[str, _Stream] = {}
        # Held weakly: see `raw_streams.PUT`.
        self._texts: list[weakref.ref[io.TextIOWrapper]] = []
        for descriptor, name in enumerate(_NAMES, 1):
            raw = _raw_layer(name, descriptor)
            if raw is not None:
                self._streams[name] = _Stream.take(raw)
            own = getattr(sys, name), getattr(sys, f"__{name}__")
            self._texts += [weakref.ref(text) for text in own if isinstance(text, io.TextIOWrapper)]

    def watch_descriptors(self, in_place: type[InPlace]) -> None:
        """Notices if the script redirects its descriptors.

        Args:
            in_place: makes the replacement of a builtin function (`src/native/in_place.rs`).
        """
        original = os.dup2

        def before_dup2(fd: Any = None, fd2: Any = None, *args: Any, **kwargs: Any) -> Any:
            if fd2 not in (1, 2):
                return NotImplemented
            try:
                answer = original(fd, fd2, *args, **kwargs)
            except (OSError, TypeError):
                # It fails again, without this function in the traceback.
                return NotImplemented
            self._look_where_they_lead()
            return answer

        functions_of_os.replace("dup2", in_place, before_dup2)
        self._look_where_they_lead()

    def _look_where_they_lead(self) -> None:
        for stream in self._streams.values():
            stream.look_where_it_leads()

    def drop(self) -> None:
        """Nothing is printed until the resume point."""
        for stream in self._streams.values():
            stream.drop()

    def begin(self, directory: str, replaying: bool, make_way: Callable[[bool], None] | None = None) -> None:
        """The trial has begun.

        Args:
            directory: the trial directory.
            replaying: whether there is a replay.
            make_way: called before anything is printed on a terminal, with whether that ends its line.
        """
        for name, stream in self._streams.items():
            stream.begin(os.path.join(directory, name + ".log"), replaying, make_way)

    def end(self, directory: str) -> None:
        """The process ends: prints what an unfinished replay has dropped, as far as it is new."""
        self._flush()
        for name, stream in self._streams.items():
            stream.end(os.path.join(directory, name + ".log"))

    def give_back(self) -> None:
        """Flushes the layers and turns them into plain ones. What destructors print after this is not copied.

        This is the last thing to do before Python clears its modules: after that, no code of this package can run.
        """
        self._flush()
        stream: Any
        for stream in self._streams.values():
            stream.cut_copy()
            stream.__class__ = raw_streams.RawStream

    def only_repeats(self, name: str) -> bool:
        """Whether everything that a stream got since the resume point had been printed before."""
        return name in self._streams and self._streams[name].only_repeats

    def capture(self) -> tuple[list[tuple[str, numpy.ndarray]], dict[str, int]]:
        """Lengths of the copies, with everything flushed: part of a checkpoint."""
        self._flush()
        return [], {name: stream.copied_bytes() for name, stream in self._streams.items()}

    def restore(self, tensors: dict[str, numpy.ndarray], state: dict[str, int] | None) -> None:
        """The replay is over."""
        self._flush()
        for name, stream in self._streams.items():
            stream.resume((state or {}).get(name, 0))

    def _flush(self) -> None:
        """Flushes everything printed so far to the raw layers, also if the script put another stream above them."""
        ending.flush_streams()
        for text in self._texts:
            # A closed or deleted stream has nothing to flush.
            with contextlib.suppress(ValueError, OSError, RuntimeError, AttributeError):
                text().flush()


def _raw_layer(name: str, descriptor: int) -> raw_streams.RawStream | None:
    """The raw layer below the stream that writes to descriptor 1 or 2 of the process; None without one."""
    text = getattr(sys, name)
    # The script has made this stream for the same descriptor. A thread that prints must not see it half made.
    if raw_streams.is_plain(text, descriptor) and len(sys._current_frames()) == 1:
        return raw_streams.put_below(text)
    raw = raw_streams.PUT.get(name)
    return None if raw is None or raw.closed else raw


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view):]


def _read_file(path: str) -> bytes:
    """The bytes of a file; none if it does not exist."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        return _read_all(descriptor)
    finally:
        os.close(descriptor)


def _read_all(descriptor: int) -> bytes:
    parts: list[bytes] = []
    while True:
        part = os.read(descriptor, 1 << 20)
        if not part:
            return b"".join(parts)
        parts.append(part)
