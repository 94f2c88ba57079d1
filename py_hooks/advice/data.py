"""Items of indexable data sets, built under streams of their own, and passes over them that can skip.

An item's random numbers come from (the generator's state, stream, epoch, index): they depend neither on the number of workers
nor on which of them builds it, nor on whether the items before it were built. So in a replay an item that only an
answered call would have seen is never built.

A data set whose items are more than functions of their index shows that by changing its own attributes (a counter)
while it builds the first of them. Its items are then built in a replay too, all of them in order. Where that is no
order, with several workers, or comes to light later, it is a cause of "not exact"; so is a data set that somebody else
changes while its items are built, where that shows: by threads, or by workers that start within a pass.

Before the first pass over a data set one of its items is built twice, with another one in between: the two have to be equal.
Only then the run says whether it is exact. Where worker processes build items, they build these, too; else who takes the
items does, and numbers and texts that the data set has counted up meanwhile are put back.
"""
import atexit
import collections
import itertools
import operator
import sys
import threading
import weakref
from time import perf_counter

from py_hooks import causes
from py_hooks.advice import calls as recorder
from py_hooks.advice import fingerprint, owned_generators, worker_processes
from py_hooks.advice.dataset_state import DatasetState
from py_hooks.advice.random_streams import PrivateStream, WorkerStream
from py_hooks.own_account import on_own_account


class _Local(threading.local):
    # `(epoch, index)` of the item that a thread builds.
    item = None


_LOCAL = _Local()


def item_being_built():
    """`(epoch, index)` of the item that this thread builds; None where it builds none."""
    return _LOCAL.item


class Items:
    """The items of one data set, in one stream.

    Generators that the data set draws from by itself are keyed like the global ones (`owned_generators.py`). Then items
    are built one at a time, since the generator is shared.

    Args:
        dataset: has `__getitem__`.
        key: `Streams.new_key()`; every adapter of a data set has its own.
        workers: threads or processes that build them; up to one builds them in order.
        in_processes: whether the workers are processes.
        probes: an item is built twice before the first pass, to see that it is the same.

    Attributes:
        is_known: an item was built, so that `must_be_built` says the truth.
        must_be_built: a replay has to build each item too, in order.
        left: workers of passes that were dropped, which may be building still.
    """

    def __init__(self, dataset, key, workers=0, in_processes=False, probes=True):
        self.dataset = dataset
        self.key = ("items",) + key
        # Of several ranks each has its share of the items; what one draws is not what those of others do.
        self._rank, self._ranks = getattr(dataset, "_pedl_share", (0, 1))
        self.workers = workers
        self.in_processes = in_processes and workers > 0
        self.is_known = False
        self.must_be_built = False
        self._is_probed = not probes
        # Whether something about its items was told that no checkpoint holds.
        self._is_refused = False
        # Generators of the data set's own, as far as it is known which: the script's own states of them in every start are
        # those of now.
        self._owned = None
        self._met = owned_generators.Rooted(owned_generators.find(dataset))
        # Attributes of the data set when threads began with what they build now, and its state when a replayed pass began.
        self._at_begin = self._state_at_begin = None
        # In a worker: its stream, and the attributes of the data set as they were after the item before.
        self._stream_of_worker = self._before = None
        # In a worker: the data set of the script, once it is as items are built from it.
        self._known = None
        self._passes = weakref.WeakSet()
        self._processes = None
        self.left = []
        self._at_close = []
        self.started = 0

    def processes(self, window):
        """The worker processes, which see the data set as it is now; up to `window` items may be under way."""
        if self._processes is None:
            self._processes = worker_processes.ItemProcesses(self.workers, window, recorder.CALLS.trial.worker_timeout)
            self._close_with_call()
        self._compare_with_begin()
        self._processes.refresh(self)
        return self._processes

    def _close_with_call(self):
        self.started = next(_STARTS)
        _RUNNING.add(self)

    def close(self):
        """Nobody takes items any more, or not for now: worker processes end. A pass that goes on starts others."""
        while self._at_close:
            self._at_close.pop()()
        # First, so that a thread that goes on asking has no workers that nobody ends.
        processes, self._processes = self._processes, None
        if processes is not None:
            for items_pass in list(self._passes):
                items_pass.put_back()
            processes.close()

    def __del__(self):
        if not sys.is_finalizing():
            self.close()

    def begin(self, items_pass, start, ahead=1):
        """A pass over the data begins, or goes on where `start` items of it were left out; `ahead` may be under way."""
        if self.in_processes:
            # They have places for the items of one pass.
            for other in list(self._passes):
                other.put_back()
        self._passes.add(items_pass)
        if not start:
            self.begin_anew()
        if not self._is_probed:
            self._is_probed = True
            if not _was_probed(self._source(), self.in_processes):
                self._probe(ahead)
                # Threads of this pass have begun nothing yet.
                self._at_begin = None
        recorder.CALLS.looked()

    def begin_anew(self):
        """What is built from here on is built of the data set as it is when the first of it is asked for.

        What it draws from may be other objects than before.
        """
        self._owned = self._at_begin = self._state_at_begin = None

    def leave_out(self):
        """An item is not built; where that is in a replay, the data set was as it is now when workers began."""
        if self.in_processes and self._state_at_begin is None and recorder.CALLS.replaying:
            self._state_at_begin = DatasetState(self._source())

    def _compare_with_begin(self):
        """Worker processes start within a pass. In the undisturbed run they have the data set as it was at its begin."""
        before, self._state_at_begin = self._state_at_begin, None
        if before is not None:
            self.notice_differences(before.differences(), before.untold)

    def notice_differences(self, names, untold=()):
        """The data set is another one than at the begin of a pass, where an item may see that.

        Args:
            names: of attributes; an empty one stands for something else.
            untold: those of them that may be the same.
        """
        read = owned_generators.names_read(self._source()) if names else None
        for name in names:
            if not name:
                self._refuse_exactness("what it is made of", name in untold)
            elif read is None or name in read:
                self._refuse_exactness(f"its attribute `{name}`", name in untold)

    def _refuse(self, cause):
        self._is_refused = True
        recorder.CALLS.refuse_exactness(cause(kind=type(self._source()).__name__))

    def _refuse_exactness(self, what, is_untold=False):
        cause = causes.ITEM_MAY_CHANGE if is_untold else causes.ITEM_CHANGES
        recorder.CALLS.refuse_exactness(cause(kind=type(self._source()).__name__, what=what))

    def _probe(self, ahead):
        """Builds an item twice, and another one in between, to see whether it is a function of its key."""
        if _length(self.dataset) == 0 or (self.in_processes and recorder.CALLS.replaying):
            # What worker processes build leaves nothing here, and was seen before there was anything to replay.
            return
        is_single = getattr(self.dataset, "num_batches", None) == 1 or _length(self.dataset) == 1
        indices = [0, 0] if is_single else [0, 1, 0]
        try:
            texts = self._probed_by_workers(indices, ahead) if self.in_processes else self._probed_here(indices)
        except Exception as error:  # noqa: BLE001 - the script's own: it is raised where the item is asked for
            # It may be the same object then.
            error.__traceback__ = None
            return
        if texts[0] != texts[-1] and not self._is_refused:
            self._refuse(causes.ITEM_TWICE)

    @on_own_account
    def _probed_here(self, indices):
        """Short texts of items; fewer where each item has to be built in order."""
        source, texts = self._source(), []
        before = dict(getattr(source, "__dict__", ()))
        for index in indices:
            texts.append(fingerprint.describe(self.build(_PROBE, index)))
            if self.must_be_built:
                break
        for name in self._changes(before):
            # It counts what it builds, and this was nobody's.
            if name in before:
                vars(source)[name] = before[name]
            else:
                vars(source).pop(name, None)
        return texts

    def _probed_by_workers(self, indices, ahead):
        """Short texts of items: of several at once, as far as there is room for them."""
        workers, texts = self.processes(ahead), []
        for start in range(0, len(indices), ahead):
            for task in workers.submit(self, _PROBE, indices[start : start + ahead]):
                texts.append(fingerprint.describe(workers.take(self, task)))
        return texts

    def build(self, epoch, index):
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

    def build_in_worker(self, epoch, index):
        """As `build`, in a worker process; with the name of an attribute that it changed, or None."""
        _LOCAL.item = epoch, index
        stream = self._stream_of_worker
        if stream is None:
            stream = self._stream_of_worker = WorkerStream()
            # Nothing else is done in this thread.
            stream.__enter__()
        if self._known is None:
            if not getattr(self.dataset, "_pedl_has_begun", True):
                # What it draws and seeds is for nobody's items.
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

    def _compared(self, stream, index):
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

    def forget_dataset(self):
        """In a worker: the data set is about to be used with other attributes, and may draw from other generators."""
        self._before = self._owned = self._known = None

    def _key_of(self, epoch, index):
        return self.key + (epoch, index * self._ranks + self._rank)

    def _keyed(self, key):
        return owned_generators.Keyed(self._owned, key)

    def _look_for_generators(self):
        with _OWNED:
            self._met = owned_generators.Rooted(owned_generators.find(self.dataset), self._met)
            self._owned = self._met

    def roots(self):
        """What the streams of the data set's own generators grow from, in an order that is the same in every process."""
        self._look_for_generators()
        return self._met.roots

    def adopt_roots(self, roots):
        """In another process, which has read the data set: they are those of the process that trains."""
        self._met.adopt(roots)

    def notify(self, hook, epoch):
        """Calls the data set's `on_epoch_begin` or `on_epoch_end` under a stream of its own. Returns what it does."""
        with PrivateStream(*(self.key + (hook.__name__, epoch))) as stream:
            self._look_for_generators()
            before = dict(getattr(self._source(), "__dict__", ()))
            with self._keyed(stream.key):
                done = hook()
        if self._first_change(before) is not _SAME:
            # Those that it has made are met here, in a replay too.
            self._look_for_generators()
        return done

    def replace_attribute(self, name, stand_in):
        """Until it is closed, an attribute of the data set is what `stand_in` makes of it, where it may have attributes."""
        before = getattr(self.dataset, name, None)
        attributes = getattr(self.dataset, "__dict__", None)
        if before is None or attributes is None or name in attributes:
            return
        attributes[name] = stand_in(before)
        self._at_close.append(lambda: attributes.pop(name, None))
        self._close_with_call()

    def end_epoch(self, taken, goes_on=False):
        """An epoch is over, and the data set may be told so next: nothing is being built when this returns.

        Args:
            taken: items of the epoch. Image iterators count what was built before, and seed by it.
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

    def order(self, length, epoch, shuffle):
        """The indices of one epoch, shuffled by the trial's seed where the framework would shuffle them."""
        indices = list(range(length))
        if shuffle:
            PrivateStream(*(self.key + ("order", epoch))).python.shuffle(indices)
        return indices

    # -- data sets that change while they build ----------------------------------------------------------------------

    def _watched(self, index):
        calls, source = recorder.CALLS, self._source()
        before, drawn = dict(getattr(source, "__dict__", ())), calls.streams.drawn_elsewhere
        # Within a call that is recorded nothing else is.
        position = None if calls.depth else calls.position()
        if self._at_begin is None:
            self._at_begin = before
        elif self.workers and not self.must_be_built and self._first_change(self._at_begin):
            # Threads build ahead, nobody knows how far, of what somebody else changes.
            self.notice_differences(self._changes(self._at_begin))
        item = self.dataset[index]
        changed = self._first_change(before, source)
        if calls.streams.drawn_elsewhere != drawn:
            self._refuse(causes.ITEM_THREADS)
        if changed is not _SAME or not self.is_known:
            self.notice(changed or None)
        if position is not None and calls.recordable() and calls.position() != position:
            # What it computes, or writes, has its records.
            self.must_be_built = True
        return item

    def notice(self, changed):
        """An item was built.

        Args:
            changed: the name of an attribute of the data set that it changed, or None; `_IN_THREADS` where it drew there.
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

    def _source(self):
        """The data set of the script: the one that is looked at stands before it."""
        return getattr(self.dataset, "_pedl_source", self.dataset)

    def _attributes(self):
        return dict(getattr(self._source(), "__dict__", ()))

    def _first_change(self, before, source=None):
        """The name of an attribute whose value is another one than before, or None; `_SAME` where it is no other object.

        Args:
            before: the attributes as they were.
            source: the data set of the script, where it is known.
        """
        # What can change without being bound anew is not compared, and this is done for every item.
        now = getattr(self._source() if source is None else source, "__dict__", before)
        try:
            if len(now) == len(before) and all(map(operator.is_, now.values(), before.values())):
                return _SAME
        except RuntimeError:
            # Another thread binds attributes meanwhile.
            pass
        return min(self._changes(before), default=None)

    def _changes(self, before):
        """The names of plain attributes whose values are others than before."""
        before, after = _plain(before), _plain(self._attributes())
        if after == before:
            return []
        return sorted(name for name in set(before) | set(after) if after.get(name, _NONE) != before.get(name, _NONE))


def _plain(attributes):
    """The attributes that are numbers, texts or flags, but for those whose values have keys of their own.

    An array of JAX, which is a key for random numbers more often than not, stands for itself.
    """
    keyed = attributes.get("_pedl_keyed", ())
    found = {name: value for name, value in attributes.items() if type(value) in _PLAIN and name not in keyed}
    found.update((name, id(value)) for name, value in attributes.items() if _is_of_jax(value))
    return found


def _is_of_jax(value):
    return type(value).__module__.startswith("jax") and hasattr(value, "shape")


# A data set raises StopIteration for an item, which would be the end of the epoch. Of Keras's generators it comes as this.
_STOPPED = "generator raised StopIteration"

# The epoch of items that are built before the first one.
_PROBE = -2

# Of a thread that has no stream: nobody knows in which order several draw from a global generator.
_IN_THREADS = "draws random numbers in threads of its own while it builds an item"

# The data sets of which items were built twice, by their ids and whether that was in processes.
_PROBED = {}


def _was_probed(dataset, in_processes):
    """Whether items of a data set were built twice before; from now on they were."""
    key = id(dataset), in_processes
    try:
        reference = weakref.ref(dataset, lambda _: _PROBED.pop(key, None))
    except TypeError:
        # It cannot be told from another one that comes in its place.
        return False
    return _PROBED.setdefault(key, reference) is not reference

# Held while an item is built whose data set owns generators: several data sets may share one.
_OWNED = threading.RLock()


def _length(dataset):
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None


_PLAIN = {bool, int, float, str, bytes, type(None)}
_NONE = object()
# No attribute has changed at all.
_SAME = ""


# Items that have to be closed, such as those with worker processes, and the order in which they began.
_RUNNING = weakref.WeakSet()
_STARTS = itertools.count(1)


def started():
    """How often items began that have to be closed."""
    return max((items.started for items in _RUNNING), default=0)


def close_started_since(before):
    """Closes items that are there for a call of the framework's, which has ended.

    Args:
        before: what `started` returned before the call.
    """
    for items in list(_RUNNING):
        if items.started > before:
            items.close()
            _RUNNING.discard(items)


class SequencePass:
    """One pass over the items in a given order: `next` builds, `skip` only counts, unless items must be built.

    Args:
        items: the `Items`.
        epoch: number of the epoch, part of each item's key.
        order: iterable of indices.
        ahead: how many items may be under way.
        start: how many items of the order to skip at first.

    Attributes:
        has_begun: an item was taken or skipped.
    """

    def __init__(self, items, epoch, order, ahead=0, start=0):
        self.has_begun = False
        self._items = items
        self._epoch = epoch
        self._order = iter(order)
        self._ahead = max(1, ahead)
        # No more are under way when others are handed to workers. To processes several at once: to wake one for each
        # costs more than to hand it over. Not to threads: where items are built in order, how many are built has to
        # follow from how many were taken, in a replay too.
        self._fewest = self._ahead - 1
        if items.in_processes:
            self._fewest = self._ahead - max(1, self._ahead // 3)
        # Pairs of an index, and of what its workers know the item by.
        self._building = collections.deque()
        self._workers = None
        # What processes build ahead of it; most of its items are given there, without asking this.
        self._going = recorder.CALLS.trial.ahead(items.workers) if items.in_processes else None
        self._is_over = False
        # A framework takes items in a thread of its own, and does not always wait for it when it ends an epoch.
        self._lock = threading.Lock()
        items.begin(self, start, self._ahead)
        for _ in range(start):
            self.skip()

    def __iter__(self):
        if self._going is None:
            return self
        return self._going.items(self.__next__, self._open)

    def __next__(self):
        begun = perf_counter()
        with self._lock:
            if self._going is None:
                item = self._next()
            else:
                self._stop()
                item = self._next()
                self._go_on()
        recorder.CALLS.trial.waited(perf_counter() - begun, self._items.workers)
        return item

    def _next(self):
        self.has_begun = True
        if self._is_over:
            raise StopIteration
        if not self._items.workers:
            return self._items.build(self._epoch, next(self._order))
        if len(self._building) <= self._fewest:
            # What a replay builds ahead, it skips; but where it is built anyway, as much has to be as was.
            ahead = 1 if recorder.CALLS.replaying and not self._items.must_be_built else self._ahead
            if len(self._building) < ahead:
                self._submit(ahead - len(self._building))
        if not self._building:
            self._is_over = True
            self._release(waits=True)
            raise StopIteration
        return self._workers.take(self._items, self._building.popleft()[1])

    def _go_on(self):
        """From here on items are given without asking this, where they need nothing but to be taken."""
        items = self._items
        if self._workers is None or not items.is_known or recorder.CALLS.replaying:
            return
        processes = self._workers
        self._going.begin(
            processes.pool, self._order, self._epoch, processes.state, self._building, self._fewest, self._ahead,
            processes.limit_s,
        )

    def _stop(self):
        """From here on this is asked for every item."""
        if self._going is not None:
            self._going.end()

    def _open(self, sent):
        return worker_processes.opened(self._items, sent)

    def skip(self):
        """Counts one item as consumed. Raises StopIteration where `next` would."""
        with self._lock:
            self._stop()
            if self._is_over or self._items.must_be_built or not self._items.is_known:
                self._next()
                return
            self.has_begun = True
            self._items.leave_out()
            if self._building:
                self._workers.cancel(self._building.popleft()[1])
            else:
                next(self._order)

    def put_back(self):
        """What is being built ahead is built anew when it is asked for: the data set is about to change.

        Where items must be built in order, nothing is built ahead; and worker processes have no order to keep.
        """
        with self._lock:
            self._stop()
            if self._items.must_be_built and not self._items.in_processes:
                return
            indices = [index for index, _ in self._building]
            self._release(waits=True)
            self._items.begin_anew()
            self._order = itertools.chain(indices, self._order)

    def close(self):
        """Ends the pass. What the workers have begun they finish; what they have not is not built, unless items must be."""
        # At once: who takes items may do so again before it lets others have the lock.
        self._is_over = True
        with self._lock:
            self._release(waits=True)

    def __del__(self):
        # Maybe in a thread that builds an item.
        self._release(waits=False)

    def _release(self, waits):
        self._stop()
        while self._building:
            _, building = self._building.popleft()
            if self._items.must_be_built and not self._items.in_processes:
                self._workers.take(self._items, building)
            else:
                self._workers.cancel(building)
        workers, self._workers = self._workers, None
        if workers is not None:
            if not waits:
                self._items.left.append(workers)
            workers.release(waits)

    def _submit(self, count):
        indices = list(itertools.islice(self._order, count))
        if not indices:
            return
        if self._workers is None:
            items = self._items
            self._workers = items.processes(self._ahead) if items.in_processes else _ItemThreads(items)
        self._building.extend(zip(indices, self._workers.submit(self._items, self._epoch, indices)))


# The tasks of each worker thread, also where nobody knows the pass any more.
_TASKS_OF_THREADS = weakref.WeakKeyDictionary()


@atexit.register
def _end_threads():
    # One that comes back to an interpreter that is gone ends the process by SIGABRT.
    for thread, tasks in list(_TASKS_OF_THREADS.items()):
        tasks.close()
        thread.join()


class _ItemThreads:
    """The worker threads of one pass."""

    def __init__(self, items):
        self._tasks = recorder.CALLS.trial.thread_tasks()
        self._threads = [
            threading.Thread(target=self._tasks.serve, args=(items.build,), name=f"pedl-data_{number}", daemon=True)
            for number in range(items.workers)
        ]
        for thread in self._threads:
            _TASKS_OF_THREADS[thread] = self._tasks
            thread.start()

    def submit(self, items, epoch, indices):
        """Has items built; returns a task for each."""
        return self._tasks.submit(epoch, indices)

    def take(self, items, task):
        """Waits for the item."""
        return task.take()

    def cancel(self, task):
        """An item is not needed any more."""
        task.cancel()

    def release(self, waits):
        """The pass is over: lets the threads go, once what they build now is built where it `waits`."""
        self._tasks.close()
        if waits:
            for thread in self._threads:
                thread.join()


def skip(iterator, count=1):
    """Moves an iterator on by up to so many elements: without building them where the iterator can.

    Returns:
        How many there were.

    Raises:
        StopIteration: there is not even one.
    """
    step = getattr(iterator, "skip", None) or getattr(iterator, "__next__", None)
    if step is None:
        return count
    step()
    for done in range(1, count):
        try:
            step()
        except StopIteration:
            return done
    return count


class Counted:
    """An iterator, and how many elements were taken from it."""

    def __init__(self, iterator):
        self._iterator = iterator
        self.taken = 0

    def __iter__(self):
        return self

    def __next__(self):
        element = next(self._iterator)
        self.taken += 1
        return element
