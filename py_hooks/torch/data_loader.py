"""`torch.utils.data.DataLoader` with worker processes: its batches are built by those of a pool.

A batch is an item of `advice/data.py`: what it draws from `random`, `numpy.random`, torch's global generator, the generators
that its data set owns, or by the seed of `get_worker_info`, comes from streams of its own, of the pass and its place in it.
So it depends neither on the number of workers nor on which of them builds it, and one that dies costs nothing but time; but
for what a script makes of the number of a worker (`get_worker_info().id`). Tensors lie in the memory of the pool, and are
read there.

The indices of a whole pass are drawn when it begins, in the order in which torch draws them. A loader is left to torch's
own worker processes where that cannot be, or where it asks for what the pool does not do: see `is_for_pool`.

Source: torch 2.15, torch/utils/data/dataloader.py, `_BaseDataLoaderIter.__init__`; _utils/worker.py, `_worker_loop`;
_utils/fetch.py; _utils/collate.py, `collate_tensor_fn`.
"""
import contextlib
import itertools
import multiprocessing
import zlib

from py_hooks.advice import data, worker_processes
from py_hooks.advice.random_streams import in_row, mix
from py_hooks.torch.generator import BatchDrawing


def is_for_pool(loader):
    """Whether the batches of a loader can be built by the processes of a pool."""
    import torch

    if loader.num_workers < 1 or not has_places(loader):
        return False
    is_pinned = loader.pin_memory and torch.cuda.is_available()
    return is_forked(loader) and not is_pinned and not loader.timeout and getattr(loader, "in_order", True)


def is_forked(loader):
    """Whether the worker processes of a loader are forked."""
    context = loader.multiprocessing_context
    return worker_processes.are_forked() if context is None else context.get_start_method() == "fork"


def has_places(loader):
    """Whether each batch of a loader can be built by itself, by its place in a pass."""
    from torch.utils.data import dataloader

    if type(loader).__iter__ is not dataloader.DataLoader.__iter__:
        return False
    if loader._dataset_kind != dataloader._DatasetKind.Map:
        # Each worker has a part of an iterable data set.
        return False
    try:
        len(loader._index_sampler)
    except TypeError:
        # It may have no end, and all of it is drawn from.
        return False
    return True


def length_of_share(loader, size):
    """How many batches each of so many processes has of a pass."""
    return len(loader) // size if loader.drop_last else -(-len(loader) // size)


def share_of(order, rank, size, auto_collation, drop_last):
    """The batches of one process: of each so many in a row one, which together are a batch of all.

    Where less are left at the end, their rows are shared evenly; rows of the beginning fill up what is missing. It is as
    `DistributedSampler` does, and as if one process had batches that are `size` times as large.

    Args:
        order: indices of all batches.
        rank: of the process.
        size: of all of them.
        auto_collation: whether a batch is a list of indices.
        drop_last: whether what does not fill a batch of all is left out.
    """
    batches = order if auto_collation else [[index] for index in order]
    share = []
    for start in range(0, len(batches), size):
        group = batches[start : start + size]
        if len(group) == size and len(set(map(len, group))) == 1:
            share.append(group[rank])
        elif not drop_last or len(group) == size:
            rows = list(itertools.chain.from_iterable(group))
            per_rank = -(-len(rows) // size)
            everything = itertools.cycle(itertools.chain.from_iterable(batches))
            rows.extend(itertools.islice(everything, per_rank * size - len(rows)))
            share.append(rows[rank * per_rank : (rank + 1) * per_rank])
    return share if auto_collation else [batch[0] for batch in share]


class Loader:
    """The passes over a loader.

    Attributes:
        order: a number that stands for the order in which the running pass goes through the data set.

    Args:
        loader: a `DataLoader`, which `has_places`.
        key: `Streams.new_key()`.
        workers: processes of a pool that build the batches; with 0 who takes them does. None: as many as the loader has.
        share: which of how many processes the passes are for, each of which has its share of all batches.
    """

    def __init__(self, loader, key, workers=None, share=(0, 1)):
        self._loader = loader
        if share[0]:
            # What an item draws is not what those of others do.
            key = (*key, "rank", share[0])
        workers = loader.num_workers if workers is None else workers
        self._batches = LoaderBatches(loader, share)
        # Where nothing but a worker is prepared for it, no batch can be looked at before.
        probes = loader.worker_init_fn is None
        self._items = data.Items(self._batches, key, workers, in_processes=workers > 0, probes=probes)
        self._epoch = -1

    @property
    def order(self):
        """See the class."""
        return self._batches.number

    def end_epoch(self, goes_on):
        """An epoch is over; where the pass `goes_on`, its next batches are of the data set as it is then."""
        self._items.end_epoch(len(self._batches), goes_on)

    def close(self):
        """Nobody begins a pass any more."""
        self._items.close()

    def begin(self):
        """One pass over the batches, in the order of the sampler. A pass before is over."""
        self._epoch += 1
        self._batches.draw(self._loader)
        ahead = self._loader.num_workers * (getattr(self._loader, "prefetch_factor", None) or 2)
        return data.SequencePass(self._items, self._epoch, range(len(self._batches)), ahead)


class LoaderBatches:
    """The batches of a loader by their places in the pass that was drawn last.

    Args:
        loader: the `DataLoader`.
        share: as of `Loader`.

    Attributes:
        number: stands for the order of the pass; 0 where nobody shares it.
    """

    def __init__(self, loader, share=(0, 1)):
        self._share = share
        self.number = 0
        self.dataset = loader.dataset
        self._collate = loader.collate_fn
        self._kind = loader._dataset_kind, loader._auto_collation, loader.drop_last
        self._worker_init = loader.worker_init_fn
        self._workers = loader.num_workers
        self._base_seed = None
        self._first_seed = 0
        self._passes = 0
        self._order = _Held([])
        # Where this process builds them, what does so.
        self._fetch = None

    @property
    def _pedl_source(self):
        return self.dataset

    def draw(self, loader):
        """Draws what a pass begins with: the seed of its workers, and the indices of its batches."""
        import torch

        if self._base_seed is None or not getattr(loader, "persistent_workers", False):
            # As torch does, which makes two iterators, and asks the second for its indices.
            iter(loader._index_sampler)
            generator = getattr(loader, "generator", None)
            self._base_seed = torch.empty((), dtype=torch.int64).random_(generator=generator).item()
        sampler = iter(loader._index_sampler)
        self._passes += 1
        self._first_seed = mix("torch", self._base_seed, self._passes)
        order = list(itertools.islice(sampler, len(loader._index_sampler)))
        if self._share[1] > 1:
            self.number = zlib.crc32(repr(order).encode())
            order = share_of(order, *self._share, loader._auto_collation, loader.drop_last)
        self._order = _packed(order) if self._workers else _Held(order)
        self.dataset = loader.dataset
        if not self._workers:
            self._fetch = self._fetcher(self._collate)

    def __len__(self):
        return len(self._order)

    def __getitem__(self, place):
        rank, size = self._share
        seed = in_row(self._first_seed, place * size + rank) >> 1
        of_data = BatchDrawing.of_data
        if of_data is None or self._fetch is None:
            return self._built_aside(place, seed)
        # For a batch of the process that trains, which sets the generator itself before it computes.
        of_data.manual_seed(seed)
        return self._fetch(self._order[place])

    def _built_aside(self, place, seed):
        """A batch; in the process that trains, torch's generator is put back."""
        import torch

        generator = torch.default_generator
        is_here = not self._workers or _number() is None
        before = generator.get_state() if is_here else None
        generator.manual_seed(seed)
        try:
            if self._fetch is not None:
                return self._fetch(self._order[place])
            with _told(self._info(seed)):
                return self._fetcher(_collated_here if _is_default(self._collate) else self._collate)(self._order[place])
        finally:
            if before is not None:
                generator.set_state(before)

    def _fetcher(self, collate):
        """What makes a batch of its indices."""
        from torch.utils.data import _DatasetKind

        kind, auto_collation, drop_last = self._kind
        return _DatasetKind.create_fetcher(kind, self.dataset, auto_collation, collate, drop_last).fetch

    def _info(self, seed):
        """What `get_worker_info` tells while a batch is built: a seed of the batch, whichever worker builds it."""
        from torch.utils.data._utils import worker

        number = _number() or 0
        return worker.WorkerInfo(id=number, num_workers=self._workers, seed=seed, dataset=self.dataset)

    @property
    def _pedl_has_begun(self):
        return self.dataset is _BEGUN.get("dataset")

    def _pedl_begin(self):
        """In a worker, before it builds anything of a data set: calls the script's `worker_init_fn`."""
        import torch

        _BEGUN["dataset"] = self.dataset
        # OpenMP does not live through a fork.
        torch.set_num_threads(1)
        number = _number()
        torch.default_generator.manual_seed(self._base_seed + number)
        if self._worker_init is not None:
            with _told(self._info(self._base_seed + number)):
                self._worker_init(number)


def _is_default(collate):
    from torch.utils.data._utils.collate import default_collate

    return collate is default_collate


def _collated_here(samples):
    """The default, which collates into memory of `/dev/shm` where it is told that it is in a worker."""
    from torch.utils.data._utils.collate import default_collate

    with _told(None):
        return default_collate(samples)


class _Held:
    """Indices that nobody looks through for generators, as all attributes of a data set are at each pass."""

    __slots__ = ("_order",)

    def __init__(self, order):
        self._order = order

    def __len__(self):
        return len(self._order)

    def __getitem__(self, place):
        return self._order[place]


class _Order:
    """Lists of whole numbers, which are sent to workers at each pass, and are compared: as two arrays."""

    def __init__(self, lists):
        import numpy

        self._all = numpy.concatenate([numpy.asarray(one, "int64") for one in lists])
        self._ends = numpy.cumsum([len(one) for one in lists])

    def __len__(self):
        return len(self._ends)

    def __getitem__(self, place):
        return self._all[self._ends[place - 1] if place else 0 : self._ends[place]].tolist()


def _packed(order):
    """The order as it was, or what is like it and smaller."""
    is_of_numbers = order and all(type(one) is list and all(type(index) is int for index in one) for one in order)
    return _Order(order) if is_of_numbers else order


# In a worker: the data set for which `worker_init_fn` was called.
_BEGUN = {}


def _number():
    """The number of the worker that this process is, from 0 on; None for another."""
    name = multiprocessing.current_process().name
    return int(name[len(worker_processes.NAME) :]) - 1 if name.startswith(worker_processes.NAME) else None


@contextlib.contextmanager
def _told(info):
    """`get_worker_info` tells this."""
    from torch.utils.data._utils import worker

    before, worker._worker_info = worker._worker_info, info
    try:
        yield
    finally:
        worker._worker_info = before
