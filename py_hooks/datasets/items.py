"""Items of indexable data sets, each built under a private random stream; `item_passes.py` takes them in order.

An item's random numbers come from (the generator's state, stream, epoch, index): they depend neither on the number of workers
nor on which of them builds it, nor on whether the items before it were built. So a replay never builds an item that only an
answered call would have seen.

Some data sets have items that are more than functions of their index. Such a data set changes one of its attributes (a
counter) while it builds the first item. Then a replay builds its items too, all of them in order. If there is no order,
with several workers, or if the change comes to light later, that is a cause of "not exact". It is also a cause if something
else changes the data set while its items are built, and this is noticed: with threads, or with workers that start within a
pass.

Before the first pass over a data set one of its items is built twice, with another one in between: the two have to be equal.
Only then the run reports whether it is exact. If worker processes build items, two of them build these, too, each of them
all. Otherwise the thread that takes the items does, and numbers and texts that the data set has counted up meanwhile are put
back.
"""
from __future__ import annotations

import itertools
import operator
import sys
import threading
import weakref

from py_hooks import causes
from py_hooks.own_account import on_own_account
from py_hooks.random_numbers import owned_generators
from py_hooks.random_numbers.random_streams import PrivateStream
from py_hooks.random_numbers.worker_streams import WorkerStream
from py_hooks.recording import fingerprint, recorder
from py_hooks.workers import worker_processes
from py_hooks.workers.transfer.dataset_state import DatasetState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Sequence
    from typing import Any

    from py_hooks.datasets.item_passes import ItemThreads, SequencePass


class _Local(threading.local):
    # `(epoch, index)` of the item that a thread builds.
    item: tuple[int, int] | None = None


_LOCAL = _Local()


def item_being_built() -> tuple[int, int] | None:
    """`(epoch, index)` of the item that this thread builds; None if it builds none."""
    return _LOCAL.item


class Items:
    """The items of one data set, in one stream.

    Generators that the data set itself draws from are keyed like the global ones (`owned_generators.py`). Then items are
    built one at a time, because the generator is shared.

    Args:
        dataset: has `__getitem__`.
        key: `Streams.new_key()`; every adapter of a data set has another one.
        workers: threads or processes that build the items; with one at most, the items are built in order.
        in_processes: whether the workers are processes.
        probes: whether an item is built twice before the first pass, to check that it is the same.

    Attributes:
        is_known: whether an item was built, so that `must_be_built` is correct.
        must_be_built: whether a replay has to build each item too, in order.
        left: workers of passes that were dropped, which may still be building.
    """

    _rank: int
    _ranks: int
    _at_begin: dict[str, Any] | None
    _state_at_begin: DatasetState | None
    _stream_of_worker: WorkerStream | None
    _before: dict[str, Any] | None

    def __init__(
        self, dataset: Any, key: tuple[Any, ...], workers: int = 0, in_processes: bool = False, probes: bool = True
    ) -> None:
        self.dataset = dataset
        self.key: tuple[Any, ...] = ("items",) + key
        # With several ranks, each has its share of the items, and draws other numbers than the other ranks.
        self._rank, self._ranks = getattr(dataset, "_pedl_share", (0, 1))
        self.workers = workers
        self.in_processes = in_processes and workers > 0
        self.is_known = False
        self.must_be_built = False
        self._is_probed = not probes
        # Whether a cause was reported, about something in its items that no checkpoint holds.
        self._is_refused = False
        # The generators of the data set; None while they are not known. Their states of now, which `_met` has, are those that
        # the script gives them in every start.
        self._owned: owned_generators.Rooted | None = None
        self._met = owned_generators.Rooted(owned_generators.find(dataset))
        # Attributes of the data set when threads began what they build now, and its state when a replayed pass began.
        self._at_begin = self._state_at_begin = None
        # In a worker: its stream, and the attributes of the data set as they were after the item before.
        self._stream_of_worker = self._before = None
        # In a worker: the data set of the script, once it is ready to build items.
        self._known: Any = None
        self._passes: weakref.WeakSet[SequencePass] = weakref.WeakSet()
        self._processes: worker_processes.ItemProcesses | None = None
        self.left: list[worker_processes.ItemProcesses | ItemThreads] = []
        self._at_close: list[Callable[[], object]] = []
        self.started = 0

    def processes(self, window: int) -> worker_processes.ItemProcesses:
        """The worker processes, which see the data set as it is now; at most `window` items may be under way."""
        if self._processes is None:
            self._processes = worker_processes.ItemProcesses(self.workers, window, recorder.CALLS.trial.worker_timeout)
            self._close_with_call()
        self._compare_with_begin()
        self._processes.refresh(self)
        return self._processes

    def _close_with_call(self) -> None:
        self.started = next(_STARTS)
        _RUNNING.add(self)

    def close(self) -> None:
        """Nobody takes items any more, or not for now: ends the worker processes. A pass that continues starts others."""
        while self._at_close:
            self._at_close.pop()()
        # This comes first, so that a thread that continues to take items has no workers that nobody ends.
        processes, self._processes = self._processes, None
        if processes is not None:
            for items_pass in list(self._passes):
                items_pass.put_back()
            processes.close()

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.close()

    def begin(self, items_pass: SequencePass, start: int, ahead: int = 1) -> None:
        """A pass over the data begins, or continues after `start` items that were left out; `ahead` items may be under way."""
        if self.in_processes:
            # The processes have room for the items of one pass.
            for other in list(self._passes):
                other.put_back()
        self._passes.add(items_pass)
        if not start:
            self.begin_anew()
        if not self._is_probed:
            self._is_probed = True
            if not _was_probed(self._source(), self.in_processes):
                self._probe(ahead)
                # The threads of this pass have not begun.
                self._at_begin = None
        recorder.CALLS.exactness.looked()

    def begin_anew(self) -> None:
        """Items from here on are built from the data set as it is when the first of them is requested.

        The generators that it draws from may be other objects than before.
        """
        self._owned = self._at_begin = self._state_at_begin = None

    def leave_out(self) -> None:
        """An item is not built; in a replay, the data set was as it is now when the workers began."""
        if self.in_processes and self._state_at_begin is None and recorder.CALLS.skips_data:
            self._state_at_begin = DatasetState(self._source())

    def _compare_with_begin(self) -> None:
        """Worker processes start within a pass. In a run without a kill they have the data set as it was when the pass began."""
        before, self._state_at_begin = self._state_at_begin, None
        if before is not None:
            self.notice_differences(before.differences(), before.untold)

    def notice_differences(self, names: Collection[str], untold: Container[str] = ()) -> None:
        """The data set differs from the one at the beginning of a pass: this is a cause if an item may see it.

        Args:
            names: names of attributes; an empty name means something else than an attribute.
            untold: those of the names that may be the same.
        """
        read = owned_generators.names_read(self._source()) if names else None
        for name in names:
            if not name:
                self._refuse_exactness("what it is made of", name in untold)
            elif read is None or name in read:
                self._refuse_exactness(f"its attribute `{name}`", name in untold)

    def _refuse(self, cause: causes.Cause) -> None:
        self._is_refused = True
        recorder.CALLS.exactness.refuse(cause(kind=type(self._source()).__name__))

    def _refuse_exactness(self, what: str, is_untold: bool = False) -> None:
        cause = causes.ITEM_MAY_CHANGE if is_untold else causes.ITEM_CHANGES
        recorder.CALLS.exactness.refuse(cause(kind=type(self._source()).__name__, what=what))

    def _probe(self, ahead: int) -> None:
        """Builds an item twice, and another one in between, to check whether it is a function of its key."""
        if _length(self.dataset) == 0 or (self.in_processes and recorder.CALLS.skips_data):
            # Items that worker processes build change nothing here, and were checked before there was anything to replay.
            return
        try:
            texts = self._probed_by_workers(ahead) if self.in_processes else self._probed_here()
        except Exception as error:  # noqa: BLE001 - the script's own: it is raised where the item is asked for
            # The exception that is raised then may be this object.
            error.__traceback__ = None
            return
        if len(set(texts)) > 1 and not self._is_refused:
            self._refuse(causes.ITEM_TWICE)

    def _probed_indices(self) -> list[int]:
        """The indices of the items that a probe builds, in this order: the first item comes again."""
        is_single = getattr(self.dataset, "num_batches", None) == 1 or _length(self.dataset) == 1
        return [0, 0] if is_single else [0, 1, 0]

    @on_own_account
    def _probed_here(self) -> list[str]:
        """Short texts of the first item; only one if each item has to be built in order."""
        source, texts = self._source(), []
        before = dict(getattr(source, "__dict__", ()))
        for index in self._probed_indices():
            item = self.build(_PROBE, index)
            if index == 0:
                texts.append(fingerprint.describe(item))
            if self.must_be_built:
                break
        for name in self._changes(before):
            # The data set counts the items that it builds, and nobody took this one.
            if name in before:
                vars(source)[name] = before[name]
            else:
                vars(source).pop(name, None)
        return texts

    def _probed_by_workers(self, ahead: int) -> list[str]:
        """Short texts of the first item, as two workers built it, or one if there is room for one item only.

        Each of them builds all items of a probe. Otherwise chance would decide whether a worker builds an item twice, and
        what an item remembers of those before it would show only then.
        """
        workers, texts, count = self.processes(ahead), [], len(self._probed_indices())
        for task in workers.submit(self, _PROBE, [0] * min(2, ahead, self.workers)):
            texts.extend(workers.take(self, task, count))
        return texts

    def _probed_in_worker(self) -> tuple[list[str], str | None]:
        """Short texts of the first item, in a list, and what `build_in_worker` returns as the second."""
        texts, changes = [], []
        for index in self._probed_indices():
            item, changed = self._built_in_worker(_PROBE, index)
            if index == 0:
                texts.append(fingerprint.describe(item))
            if changed is not None:
                changes.append(changed)
        return texts, _IN_THREADS if _IN_THREADS in changes else min(changes, default=None)

    def build(self, epoch: int, index: int) -> Any:
        """The item at `index`, as the data set makes it in that epoch."""
        outer, _LOCAL.item = _LOCAL.item, (epoch, index)
        try:
            with PrivateStream(*self._key_of(epoch, index)) as stream:
                if self._owned is None:
                    self._look_for_generators()
                if not self._owned:
                    return self._watched(index)
                with _OWNED, self._keyed(stream.key):
                    return self._watched(index)
        except StopIteration as error:
            raise RuntimeError(_STOPPED) from error
        finally:
            _LOCAL.item = outer

    def build_in_worker(self, epoch: int, index: int) -> tuple[Any, str | None]:
        """As `build`, in a worker process. Returns the item with the name of an attribute that it changed, or None."""
        if epoch == _PROBE:
            return self._probed_in_worker()
        return self._built_in_worker(epoch, index)

    def _built_in_worker(self, epoch: int, index: int) -> tuple[Any, str | None]:
        _LOCAL.item = epoch, index
        stream = self._stream_of_worker
        if stream is None:
            stream = self._stream_of_worker = WorkerStream()
            # Nothing else is done in this thread.
            stream.__enter__()
        if self._known is None:
            if not getattr(self.dataset, "_pedl_has_begun", True):
                # What the beginning draws and seeds is for no item.
                stream.begin(self.key + ("worker", epoch, index))
                self.dataset._pedl_begin()
                self.forget_dataset()
            self._known = self._source()
        stream.begin(self._key_of(epoch, index))
        try:
            built = self._compared(stream, index)
        except BaseException:
            if not stream.catch_up():
                raise
        else:
            if not stream.catch_up():
                return built
        return self._compared(stream, index)

    def _compared(self, stream: WorkerStream, index: int) -> tuple[Any, str | None]:
        before, streams = self._before, recorder.CALLS.streams
        drawn = streams.drawn_elsewhere
        if before is None:
            before = self._before = self._attributes()
        if self._owned is None:
            self._look_for_generators()
        try:
            if not self._owned:
                item = self.dataset[index]
            else:
                with self._keyed(stream.key):
                    item = self.dataset[index]
        except StopIteration as error:
            raise RuntimeError(_STOPPED) from error
        changed = self._first_change(before, self._known)
        if changed is not _SAME:
            self._before = None
        return item, _IN_THREADS if streams.drawn_elsewhere != drawn else changed or None

    def forget_dataset(self) -> None:
        """In a worker: the data set is about to be used with other attributes, and may draw from other generators."""
        self._before = self._owned = self._known = None

    def _key_of(self, epoch: int, index: int) -> tuple[Any, ...]:
        return self.key + (epoch, index * self._ranks + self._rank)

    def _keyed(self, key: tuple[Any, ...]) -> owned_generators.Keyed:
        return owned_generators.Keyed(self._owned, key)

    def _look_for_generators(self) -> None:
        with _OWNED:
            self._met = owned_generators.Rooted(owned_generators.find(self.dataset), self._met)
            self._owned = self._met

    def roots(self) -> list[int]:
        """The roots of the streams of the data set's generators, in an order that is the same in every process."""
        self._look_for_generators()
        return self._met.roots

    def adopt_roots(self, roots: Sequence[int]) -> None:
        """In another process, which has read the data set: takes the roots from the process that trains."""
        self._met.adopt(roots)

    def notify(self, hook: Callable[[], Any], epoch: int) -> Any:
        """Calls the data set's `on_epoch_begin` or `on_epoch_end` under a private stream. Returns what it returns."""
        with PrivateStream(*(self.key + (hook.__name__, epoch))) as stream:
            self._look_for_generators()
            before = dict(getattr(self._source(), "__dict__", ()))
            with self._keyed(stream.key):
                done = hook()
        if self._first_change(before) is not _SAME:
            # Generators that the hook has made are found here, in a replay too.
            self._look_for_generators()
        return done

    def replace_attribute(self, name: str, stand_in: Callable[[Any], Any]) -> None:
        """Until `close`, an attribute of the data set is what `stand_in` makes of it, if the data set can have attributes."""
        before = getattr(self.dataset, name, None)
        attributes = getattr(self.dataset, "__dict__", None)
        if before is None or attributes is None or name in attributes:
            return
        attributes[name] = stand_in(before)
        self._at_close.append(lambda: attributes.pop(name, None))
        self._close_with_call()

    def end_epoch(self, taken: int, goes_on: bool = False) -> None:
        """An epoch is over, and the data set's hook may be called next: nothing is being built when this returns.

        Args:
            taken: items of the epoch. Image iterators count the items that were built before, and use the count as a seed.
            goes_on: the pass is for the next epoch too (`steps_per_epoch`): what it has built ahead is built again.
        """
        if goes_on:
            self.begin_anew()
        for items_pass in list(self._passes):
            if goes_on:
                items_pass.put_back()
            elif items_pass.has_begun:
                items_pass.close()
        while self.left:
            self.left.pop().release(waits=True)
        if hasattr(self.dataset, "total_batches_seen"):
            self.dataset.total_batches_seen += taken

    def order(self, length: int, epoch: int, shuffle: bool) -> list[int]:
        """The indices of one epoch, shuffled by the trial's seed if the framework would shuffle them."""
        indices = list(range(length))
        if shuffle:
            PrivateStream(*(self.key + ("order", epoch))).python.shuffle(indices)
        return indices

    # -- data sets that change while they build ----------------------------------------------------------------------

    def _watched(self, index: int) -> Any:
        calls, source = recorder.CALLS, self._source()
        before, drawn = dict(getattr(source, "__dict__", ())), calls.streams.drawn_elsewhere
        # Within a recorded call nothing else is recorded.
        position = None if calls.depth else calls.position()
        if self._at_begin is None:
            self._at_begin = before
        elif self.workers and not self.must_be_built and self._first_change(self._at_begin):
            # Threads build ahead, by an unknown number of items, from a data set that something else changes.
            self.notice_differences(self._changes(self._at_begin))
        item = self.dataset[index]
        changed = self._first_change(before, source)
        if calls.streams.drawn_elsewhere != drawn:
            self._refuse(causes.ITEM_THREADS)
        if changed is not _SAME or not self.is_known:
            self.notice(changed or None)
        if position is not None and calls.recordable() and calls.position() != position:
            # What the item computes, or writes, has records.
            self.must_be_built = True
        return item

    def notice(self, changed: str | None) -> None:
        """An item was built.

        Args:
            changed: the name of an attribute of the data set that the item changed, or None; `_IN_THREADS` if it drew in threads.
        """
        if changed == _IN_THREADS:
            self._refuse(causes.ITEM_THREADS)
            changed = None
        if changed is not None and not self.must_be_built:
            if self.is_known or self.workers > 1 or self.in_processes:
                self._refuse_exactness(f"its attribute `{changed}`")
            else:
                self.must_be_built = True
        self.is_known = True

    def _source(self) -> Any:
        """The data set of the script: `dataset` may be a wrapper of it."""
        return getattr(self.dataset, "_pedl_source", self.dataset)

    def _attributes(self) -> dict[str, Any]:
        return dict(getattr(self._source(), "__dict__", ()))

    def _first_change(self, before: dict[str, Any], source: Any = None) -> str | None:
        """The name of an attribute whose value differs from before, or None; `_SAME` if each attribute is the same object.

        Args:
            before: the attributes as they were.
            source: the data set of the script, if it is known.
        """
        # Values that can change without being bound anew are not compared, because this is done for every item.
        now = getattr(self._source() if source is None else source, "__dict__", before)
        try:
            if len(now) == len(before) and all(map(operator.is_, now.values(), before.values())):
                return _SAME
        except RuntimeError:
            # Another thread binds attributes meanwhile.
            pass
        return min(self._changes(before), default=None)

    def _changes(self, before: dict[str, Any]) -> list[str]:
        """The names of plain attributes whose values differ from before."""
        before, after = _plain(before), _plain(self._attributes())
        if after == before:
            return []
        return sorted(name for name in set(before) | set(after) if after.get(name, _NONE) != before.get(name, _NONE))


def _plain(attributes: dict[str, Any]) -> dict[str, Any]:
    """The attributes that are numbers, texts or flags, except those whose values have keys.

    An array of JAX is usually a key for random numbers, so it is compared as an object.
    """
    keyed = attributes.get("_pedl_keyed", ())
    found = {name: value for name, value in attributes.items() if type(value) in _PLAIN and name not in keyed}
    found.update((name, id(value)) for name, value in attributes.items() if _is_of_jax(value))
    return found


def _is_of_jax(value: object) -> bool:
    return type(value).__module__.startswith("jax") and hasattr(value, "shape")


# If a data set raises StopIteration for an item, that would end the epoch. Keras's generators turn it into this error.
_STOPPED = "generator raised StopIteration"

# The epoch of items that are built before the first one.
_PROBE = -2

# For a thread that has no stream: the order in which several threads draw from a global generator is not known.
_IN_THREADS = "draws random numbers in threads of its own while it builds an item"

# The data sets that were probed (an item was built twice), by their ids and whether processes built the item.
_PROBED: dict[tuple[int, bool], weakref.ref[Any]] = {}


def _was_probed(dataset: Any, in_processes: bool) -> bool:
    """Whether items of a data set were built twice before; from now on this returns True."""
    key = id(dataset), in_processes
    try:
        reference = weakref.ref(dataset, lambda _: _PROBED.pop(key, None))
    except TypeError:
        # The data set cannot be distinguished from another one that gets its id.
        return False
    return _PROBED.setdefault(key, reference) is not reference

# Held while an item is built whose data set owns generators: several data sets may share a generator.
_OWNED = threading.RLock()


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None


_PLAIN = {bool, int, float, str, bytes, type(None)}
_NONE = object()
# No attribute has changed at all.
_SAME = ""


# `Items` that have to be closed, such as those with worker processes, and the order in which they began.
_RUNNING: weakref.WeakSet[Items] = weakref.WeakSet()
_STARTS = itertools.count(1)


def started() -> int:
    """How often `Items` began that have to be closed."""
    return max((items.started for items in _RUNNING), default=0)


def close_started_since(before: int) -> None:
    """Closes the `Items` that were used by a call of the framework, which has ended.

    Args:
        before: what `started` returned before the call.
    """
    for items in list(_RUNNING):
        if items.started > before:
            items.close()
            _RUNNING.discard(items)
