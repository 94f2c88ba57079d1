"""Event files: keeps each step in them once, whatever is killed. TensorFlow's C++ writes them, with the time in their names.

A replay writes nothing new to them. At the resume point the files of the trial come back from the place to which its start
moved them (`script_io/ledger.py`, "logged"), cut to their lengths at the checkpoint. Each open writer begins a new file beside
them, as a reopened writer does; readers take all files of a folder together. A checkpoint flushes the writers, and the files
are on the disk, up to the lengths in the checkpoint, before the checkpoint is.

There are two kinds of writers:

    tf.summary.create_file_writer       a resource of C++, made by an op. A replay makes it too, for a folder that is
                                        deleted afterwards, so that every op that writes to it works
    tf.summary.FileWriter (TF 1)        a queue, a thread, and `EventsWriter`. A replay puts nothing into the queue

pedl-run cannot control a writer that an op in a graph makes, one of another thread, and one on a remote file system: they
are causes.

Source: tensorflow 1.15.5 and 2.21.0, tensorflow/python/ops/summary_ops_v2.py and
tensorflow/python/summary/writer/event_file_writer.py.
"""
from __future__ import annotations

import contextlib
import os
import weakref

from py_hooks import causes
from py_hooks.facts.tensorflow import tensorflow_facts
from py_hooks.recording import recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from py_hooks.recording.recorder import Calls

    class _Writer(Protocol):
        """A writer of the script: begins a file in a folder, perhaps in another one than its own."""

        directory: str

        def open(self, directory: str) -> None: ...
        def flush(self) -> None: ...
        def close(self) -> None: ...
        def is_open(self) -> bool: ...
        def is_of(self, handle: object) -> bool: ...

_PREFIX = "events.out.tfevents."


class EventFiles:
    """The event files of one trial, and their writers. A provider of state.

    Args:
        calls: the recorder.
    """

    def __init__(self, calls: Calls) -> None:
        trial = calls.trial
        self._calls = calls
        self._pid = os.getpid()
        self._paths: list[str] = []
        self._writers: list[_Writer] = []
        self._is_replay = trial.resume and trial.has_checkpoint()
        # The folder for writers in a replay.
        self._nowhere = os.path.join(trial.directory, "replayed-events")

    # -- writers -----------------------------------------------------------------------------------------------------

    def refuses(self, directory: str) -> bool:
        """Whether the files of a folder are left alone; reports the cause if they cannot be kept exact."""
        if os.getpid() != self._pid:
            # The files of a forked child are left alone.
            return True
        if not self._calls.on_main_thread():
            self._calls.exactness.refuse(causes.THREAD_WRITES_EVENTS())
        elif "://" in directory:
            self._calls.exactness.refuse(causes.EVENTS_ELSEWHERE(directory=directory))
        else:
            return False
        return True

    def begin_file(self, writer: _Writer) -> None:
        """A writer begins a file in its folder.

        Args:
            writer: `open(directory)`, `flush()`, `close()`, `is_open()` and the attribute `directory`.
        """
        self.make_directory(writer.directory)
        self._writers = [each for each in self._writers if each.is_open()]
        if writer not in self._writers:
            self._writers.append(writer)
        if self._is_replay:
            writer.open(self._nowhere)
        else:
            self._open(writer)

    def ended(self, handle: object) -> None:
        """The script closes a writer that is a resource."""
        self._writers = [each for each in self._writers if not each.is_of(handle)]

    def make_directory(self, directory: str) -> None:
        """Makes the folder as the script would, so that the ledger has it. TensorFlow reports any error later."""
        with contextlib.suppress(OSError):
            os.makedirs(directory, exist_ok=True)

    def _open(self, writer: _Writer) -> None:
        before = _files_in(writer.directory)
        writer.open(writer.directory)
        for path in sorted(_files_in(writer.directory) - before):
            self._calls.files.logging(path)
            self._paths.append(path)

    @property
    def is_replay(self) -> bool:
        """Whether what is written now was written before."""
        return self._is_replay

    # -- the life of a trial -------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The trial has begun. Without a replay, what earlier starts wrote is written again, and all writers are live."""
        if not self._calls.resumes:
            self._calls.files.restore_logged({})
            self._go_live()

    def _go_live(self) -> None:
        import shutil

        was_replay, self._is_replay = self._is_replay, False
        if was_replay:
            for writer in self._writers:
                if writer.is_open():
                    writer.close()
                    self._open(writer)
        shutil.rmtree(self._nowhere, ignore_errors=True)

    def capture(self) -> tuple[list[Any], dict[str, int]]:
        """Lengths of the event files by their names in the ledger, with everything flushed and on the disk."""
        for writer in self._writers:
            if writer.is_open():
                writer.flush()
        found = {}
        for path in self._paths:
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                # The script has removed it.
                continue
            try:
                os.fsync(descriptor)
                found[self._calls.files.ledger().stored(path)] = os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)
        return [], found

    def restore(self, tensors: object, state: dict[str, int] | None) -> None:
        """The replay is over: the files come back as they were at the checkpoint, and each writer begins a new one."""
        self._paths = self._calls.files.restore_logged(state or {})
        self._go_live()


EVENT_FILES: EventFiles | None = None


def prepare(calls: Calls) -> None:
    """Has the lengths of event files kept in checkpoints."""
    global EVENT_FILES  # noqa: PLW0603 - made once, when TensorFlow is intercepted
    EVENT_FILES = EventFiles(calls)
    calls.checkpoints.keep("event_files", EVENT_FILES)
    calls.lifecycle.at_begin.append(EVENT_FILES.begin)


def _files_in(directory: str) -> set[str]:
    try:
        names = os.listdir(directory)
    except OSError:
        return set()
    return {os.path.join(directory, name) for name in names if _PREFIX in name}


# -- writers that are resources ------------------------------------------------------------------------------------------


class _ResourceWriter:
    """A writer that an op made.

    Args:
        create: the op that has it begin a file.
        handle: the resource.
        directory: its folder.
        settings: the other arguments of the op.
    """

    def __init__(self, create: Callable[..., Any], handle: Any, directory: str, settings: tuple[Any, ...]) -> None:
        self._create = create
        self._handle = weakref.ref(handle)
        self._settings = settings
        self.directory = directory

    def open(self, directory: str) -> None:
        """Begins a file."""
        self._create(self._handle(), directory, *self._settings)

    def flush(self) -> None:
        """Writes the pending events."""
        from tensorflow.python.ops import gen_summary_ops

        gen_summary_ops.flush_summary_writer(self._handle())

    def close(self) -> None:
        """Ends the file; the handle stays, for another."""
        from tensorflow.python.ops import gen_summary_ops

        gen_summary_ops.close_summary_writer._pedl_original(self._handle())

    def is_open(self) -> bool:
        """Whether the script may still write to it."""
        return self._handle() is not None

    def is_of(self, handle: object) -> bool:
        """Whether it is the writer of a resource."""
        return self._handle() is handle


def create(
    original: Callable[..., Any],
    writer: Any,
    logdir: Any,
    max_queue: Any,
    flush_millis: Any,
    filename_suffix: Any,
    name: str | None = None,
) -> Any:
    """`create_summary_file_writer`: in a replay, for a folder that is deleted afterwards."""
    from tensorflow.python.eager import context

    calls = recorder.CALLS
    settings = max_queue, flush_millis, filename_suffix, name
    if not context.executing_eagerly():
        calls.exactness.refuse(causes.EVENTS_IN_GRAPH())
        return original(writer, logdir, *settings)
    directory = _text(logdir)
    if EVENT_FILES.refuses(directory):
        return original(writer, logdir, *settings)
    return EVENT_FILES.begin_file(_ResourceWriter(original, writer, os.path.abspath(directory), settings))


def close(original: Callable[..., Any], writer: Any, name: str | None = None) -> Any:
    """`close_summary_writer`: forgets the writer, which does not open again."""
    EVENT_FILES.ended(writer)
    return original(writer, name)


def _text(logdir: Any) -> str:
    value = logdir.numpy() if hasattr(logdir, "numpy") else logdir
    return os.fsdecode(value)


# -- writers with a queue ------------------------------------------------------------------------------------------------


class _QueueWriter:
    """A `FileWriter` of TensorFlow 1, by the `EventFileWriter` in it."""

    def __init__(self, writer: Any, suffix: bytes) -> None:
        self._writer = weakref.ref(writer)
        self._suffix = suffix
        self.directory = os.path.abspath(os.fsdecode(writer.get_logdir()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _QueueWriter) and self._writer() is other._writer()

    __hash__ = None

    def open(self, directory: str) -> None:
        """Begins a file; C++ would do so at the first event. A folder that is deleted afterwards gets none.

        C++ names a file by the second, and would overwrite one that was begun in the same second.
        """
        if directory == self.directory:
            taken = len(_files_in(directory))
            suffix = b".%d" % taken if taken else b""
            self._writer()._ev_writer.InitWithSuffix(suffix + self._suffix)

    def flush(self) -> None:
        """Writes the pending events."""
        self._writer().flush()

    def close(self) -> None:
        """Nothing: there is no file yet."""

    def is_open(self) -> bool:
        """Whether the script may still write to it."""
        writer = self._writer()
        return writer is not None and not writer._closed

    def is_of(self, handle: object) -> bool:
        """No: it is no resource."""
        return False


def created(
    original: Callable[..., Any],
    writer: Any,
    logdir: Any,
    max_queue: int = 10,
    flush_secs: float = 120,
    filename_suffix: str | None = None,
) -> None:
    """`EventFileWriter.__init__`: begins its file at once, so that it has a name; not in a replay."""
    refused = EVENT_FILES.refuses(os.fsdecode(logdir))
    if refused:
        original(writer, logdir, max_queue, flush_secs, filename_suffix)
        return
    EVENT_FILES.make_directory(os.path.abspath(os.fsdecode(logdir)))
    original(writer, logdir, max_queue, flush_secs)
    writer._pedl_file = _QueueWriter(writer, os.fsencode(filename_suffix or ""))
    EVENT_FILES.begin_file(writer._pedl_file)


def add_event(original: Callable[..., Any], writer: Any, event: Any) -> None:
    """`EventFileWriter.add_event`: skipped in a replay, except the event that ends the writer's thread."""
    is_end = tensorflow_facts().writer_ends_by_event and event is writer._sentinel_event
    if is_end or not EVENT_FILES.is_replay or not hasattr(writer, "_pedl_file"):
        original(writer, event)


def reopen(original: Callable[..., Any], writer: Any) -> None:
    """`EventFileWriter.reopen`: begins another file."""
    is_closed = writer._closed
    original(writer)
    if is_closed and hasattr(writer, "_pedl_file"):
        EVENT_FILES.begin_file(writer._pedl_file)
