"""stdout and stderr once: what the world has seen is not printed again by a replay.

The two streams have a raw layer of ours below python's own text and buffer layers (`raw_streams.py`), so that whoever
holds one of these, from before, prints through the layer too. From the first import of a framework on it

- copies what the script prints into `stdout.log` and `stderr.log` of the trial directory, once the trial has begun;
- drops everything while a replay runs;
- after the resume point drops what repeats the copy (printed between the checkpoint and the crash), up to the first
  line that differs: progress bars hold times, so a count of bytes would not do;
- where the process ends in its replay, prints by the same rule what it dropped: that is where the reason stands;
- on a terminal tells our own line there to make way for what it prints;
- lets everything pass while the script has led the descriptor elsewhere (`os.dup2`, into a file of its own): that file is written
  again by a replay, as all its files are.

A checkpoint flushes the streams and stores the lengths of the copies. What C code and child processes print does not
come through here and is printed again.
"""
import contextlib
import io
import os
import sys
import weakref

from py_hooks.advice import calls as recorder
from py_hooks.advice import functions_of_os, raw_streams

_NAMES = ("stdout", "stderr")

_TRACEBACK = b"Traceback (most recent call last):\n"

# Of what is dropped, so much is kept for the case that there is no replay after all, or that it does not end well.
_MOST_HELD_BYTES = 1 << 20


class _Stream(raw_streams.RawStream):
    """The raw layer of one stream. It is never made: a layer that is there becomes one (`take`)."""

    @classmethod
    def take(cls, raw):
        """Makes a raw layer one of these, at once for all threads; returns it."""
        cls._prepare(raw)
        raw.__class__ = cls
        return raw

    def _prepare(self):
        self._copy = None
        self._path = None
        self._make_way = None
        self._pid = os.getpid()
        self._dropping = False
        self._is_led_away = False
        self._held = b""
        self._forgotten = 0
        self._expected = b""
        self._line = b""
        self._length = 0
        # Whether all that was printed since the resume point had been printed before.
        self.only_repeats = False

    # -- what becomes of written bytes ---------------------------------------------------------------------------

    def write(self, data):
        """Prints, copies or drops bytes; always takes all of them."""
        data = bytes(data)
        if not data:
            # As Python does where it has no buffer; it is nothing that was printed.
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

    def _hold(self, data):
        """Keeps what is dropped, the last of it."""
        held = self._held + data
        self._held = held[-_MOST_HELD_BYTES:]
        self._forgotten += len(held) - len(self._held)

    def _print(self, data):
        self.only_repeats = False
        if self._make_way is not None and data:
            self._make_way(data.endswith(b"\n"))
        _write_all(self.fileno(), data)
        if self._copy is not None:
            self._copy_all(data)
            self._length += len(data)
        elif len(self._held) < _MOST_HELD_BYTES:
            self._held += data

    def _copy_all(self, data):
        """Appends to the copy. A disk that is full there is not the doing of the script's `print`."""
        try:
            _write_all(self._copy, data)
        except OSError as error:
            self._copy = None
            recorder.stop_for_file(recorder.CALLS, self._path, error)

    def _repeat(self, data):
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

    def look_where_it_leads(self):
        """The descriptor may lead elsewhere than it did when the process began, or there again."""
        self._is_led_away = raw_streams.leads_to(self.fileno()) != self.leads_to

    # -- the life of a trial ---------------------------------------------------------------------------------------

    def drop(self):
        """From here on nothing is printed; what was, is held back in case there is no replay after all."""
        self._dropping = True

    def begin(self, path, replaying, make_way):
        """The trial has begun: opens the copy; prints what was held back where nothing is replayed."""
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

    def resume(self, length):
        """The replay is over: what follows is dropped as far as the copy has it after `length` bytes."""
        self._dropping = False
        self._held = b""
        self._length = length
        os.lseek(self._copy, length, os.SEEK_SET)
        self._expected = _read_all(self._copy)
        self.only_repeats = bool(self._expected)

    def end(self, path):
        """The process ends in its replay: prints what was dropped, from the first line that is not in the copy."""
        if not self._dropping:
            return
        self._dropping = False
        if self._copy is not None:
            # What comes later, from other threads and destructors, is none of the trial's.
            os.close(self._copy)
            self._copy = None
        copied = _read_file(path)[self._forgotten :]
        same = len(os.path.commonprefix([self._held, copied]))
        if same < len(self._held):
            _write_all(self.fileno(), self._held[self._held.rfind(b"\n", 0, same) + 1 :])

    def cut_copy(self):
        """The script has ended: the traceback of a failure that did not come again is no part of what it has printed."""
        is_left = self._expected.startswith(_TRACEBACK) and not hasattr(sys, "last_value")
        if is_left and self._copy is not None and self._pid == os.getpid():
            os.ftruncate(self._copy, self._length)
            self._expected = b""

    def copied_bytes(self):
        """Length of the copy."""
        return self._length


class Output:
    """Both streams of this process."""

    def __init__(self):
        self._streams = {}
        # Held weakly: see `raw_streams.PUT`.
        self._texts = []
        for descriptor, name in enumerate(_NAMES, 1):
            raw = _raw_layer(name, descriptor)
            if raw is not None:
                self._streams[name] = _Stream.take(raw)
            own = getattr(sys, name), getattr(sys, f"__{name}__")
            self._texts += [weakref.ref(text) for text in own if isinstance(text, io.TextIOWrapper)]

    def watch_descriptors(self, in_place):
        """The script may lead its descriptors elsewhere.

        Args:
            in_place: makes what stands in the place of a builtin function (`src/native/in_place.rs`).
        """
        original = os.dup2

        def before_dup2(fd=None, fd2=None, *args, **kwargs):
            if fd2 not in (1, 2):
                return NotImplemented
            try:
                answer = original(fd, fd2, *args, **kwargs)
            except (OSError, TypeError):
                # It fails again, without us between.
                return NotImplemented
            self._look_where_they_lead()
            return answer

        functions_of_os.replace("dup2", in_place, before_dup2)
        self._look_where_they_lead()

    def _look_where_they_lead(self):
        for stream in self._streams.values():
            stream.look_where_it_leads()

    def drop(self):
        """Nothing is printed until the resume point."""
        for stream in self._streams.values():
            stream.drop()

    def begin(self, directory, replaying, make_way=None):
        """The trial has begun.

        Args:
            directory: where it is kept.
            replaying: whether there is a replay.
            make_way: called before anything is printed on a terminal, with whether that ends its line.
        """
        for name, stream in self._streams.items():
            stream.begin(os.path.join(directory, name + ".log"), replaying, make_way)

    def end(self, directory):
        """The process ends: what a replay that is not over has dropped is printed, as far as it is new."""
        self._flush()
        for name, stream in self._streams.items():
            stream.end(os.path.join(directory, name + ".log"))

    def give_back(self):
        """The layers do nothing any more, with nothing left in them. What destructors print after this is not copied.

        The last thing to do before python takes its modules apart: then no code of ours can run any more.
        """
        self._flush()
        for stream in self._streams.values():
            stream.cut_copy()
            stream.__class__ = raw_streams.RawStream

    def only_repeats(self, name):
        """Whether a stream got nothing since the resume point that had not been printed before."""
        return name in self._streams and self._streams[name].only_repeats

    def capture(self):
        """Lengths of the copies, with everything flushed: part of a checkpoint."""
        self._flush()
        return [], {name: stream.copied_bytes() for name, stream in self._streams.items()}

    def restore(self, tensors, state):
        """The replay is over."""
        self._flush()
        for name, stream in self._streams.items():
            stream.resume((state or {}).get(name, 0))

    def _flush(self):
        """Everything printed so far gets to the raw layers: also where the script put a stream of its own above them."""
        recorder.flush_streams()
        for text in self._texts:
            # A stream that is closed, or gone, has nothing left to flush.
            with contextlib.suppress(ValueError, OSError, RuntimeError, AttributeError):
                text().flush()


def _raw_layer(name, descriptor):
    """The raw layer below what writes to the process's descriptor 1 or 2; None without one."""
    text = getattr(sys, name)
    # A stream that the script has made for the same descriptor. A thread that prints must not meet it half made.
    if raw_streams.is_plain(text, descriptor) and len(sys._current_frames()) == 1:
        return raw_streams.put_below(text)
    raw = raw_streams.PUT.get(name)
    return None if raw is None or raw.closed else raw


def _write_all(descriptor, data):
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view):]


def _read_file(path):
    """The bytes of a file; none where it is not there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        return _read_all(descriptor)
    finally:
        os.close(descriptor)


def _read_all(descriptor):
    parts = []
    while True:
        part = os.read(descriptor, 1 << 20)
        if not part:
            return b"".join(parts)
        parts.append(part)
