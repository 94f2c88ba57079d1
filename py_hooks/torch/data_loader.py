"""`torch.utils.data.DataLoader` with worker processes: processes of a pool build its batches.

A batch is an item of `datasets/items.py`. What it draws from `random`, `numpy.random`, torch's global generator, the generators
of its data set, or with the seed of `get_worker_info`, comes from separate streams. Their key is the pass and the place in it.
So a batch depends neither on the number of workers nor on which of them builds it, and a worker that dies costs only time.
The exception is what a script computes from the number of a worker (`get_worker_info().id`). Tensors are in the memory of the
pool, and are read there.

The indices of a whole pass are drawn when it begins, in the order in which torch draws them. If that is impossible, or if the
loader asks for something that the pool does not do, torch's worker processes build the batches: see `is_for_pool`.

Source: torch 2.15, torch/utils/data/dataloader.py, `_BaseDataLoaderIter.__init__`; _utils/worker.py, `_worker_loop`;
_utils/fetch.py; _utils/collate.py, `collate_tensor_fn`.
"""
from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import zlib

from py_hooks.datasets import items
from py_hooks.datasets.item_passes import SequencePass
from py_hooks.random_numbers.random_streams import in_row, mix
from py_hooks.torch.generator import BatchDrawing
from py_hooks.workers import worker_processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any


def is_for_pool(loader: Any) -> bool:
    """Whether the batches of a loader can be built by the processes of a pool."""
    import torch

    if loader.num_workers < 1 or not has_places(loader):
        return False
    is_pinned = loader.pin_memory and torch.cuda.is_available()
    return is_forked(loader) and not is_pinned and not loader.timeout and getattr(loader, "in_order", True)


def is_forked(loader: Any) -> bool:
    """Whether the worker processes of a loader are forked."""
    context = loader.multiprocessing_context
    return worker_processes.are_forked() if context is None else context.get_start_method() == "fork"


def has_places(loader: Any) -> bool:
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
        # It may have no end, so its indices cannot all be drawn in advance.
        return False
    return True


def length_of_share(loader: Any, size: int) -> int:
    """How many batches of a pass each of `size` processes has."""
    return len(loader) // size if loader.drop_last else -(-len(loader) // size)


def share_of(order: list[Any], rank: int, size: int, auto_collation: bool, drop_last: bool) -> list[Any]:
    """The batches of one process: one of each `size` batches in a row, which together are a batch of all processes.

    If fewer are left at the end, their rows are shared evenly; rows of the beginning fill up what is missing.
    `DistributedSampler` does the same. The result is as if one process had batches that are `size` times as large.

    Args:
        order: indices of all batches.
        rank: number of the process.
        size: number of processes.
        auto_collation: whether a batch is a list of indices.
        drop_last: whether to leave out what does not fill a batch of all processes.
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
        order: a number that identifies the order in which the running pass takes the data set.

    Args:
        loader: a `DataLoader` that `has_places`.
        key: `Streams.new_key()`.
        workers: how many processes of a pool build the batches; 0: the process that takes them. None: as the loader says.
        share: (rank, number of processes): the passes are for this process, which has its share of all batches.
    """

    def __init__(self, loader: Any, key: tuple[Any, ...], workers: int | None = None, share: tuple[int, int] = (0, 1)) -> None:
        self._loader = loader
        if share[0]:
            # Ranks draw different numbers for their items.
            key = (*key, "rank", share[0])
        workers = loader.num_workers if workers is None else workers
        self._batches = LoaderBatches(loader, share)
        # If `worker_init_fn` prepares a worker, only a worker can build a batch, so no batch is built as a probe.
        probes = loader.worker_init_fn is None
        self._items = items.Items(self._batches, key, workers, in_processes=workers > 0, probes=probes)
        self._epoch = -1

    @property
    def order(self) -> int:
        """See the class."""
        return self._batches.number

    def end_epoch(self, goes_on: bool) -> None:
        """Ends an epoch. If the pass `goes_on`, its next batches are of the data set as it is then."""
        self._items.end_epoch(len(self._batches), goes_on)

    def close(self) -> None:
        """No pass begins any more."""
        self._items.close()

    def begin(self) -> SequencePass:
        """One pass over the batches, in the order of the sampler. The pass before it is over."""
        self._epoch += 1
        self._batches.draw(self._loader)
        ahead = self._loader.num_workers * (getattr(self._loader, "prefetch_factor", None) or 2)
        return SequencePass(self._items, self._epoch, range(len(self._batches)), ahead)


class LoaderBatches:
    """The batches of a loader by their places in the pass that was drawn last.

    Args:
        loader: the `DataLoader`.
        share: as in `Loader`.

    Attributes:
        number: identifies the order of the pass; 0 if the pass is not shared.
    """

    def __init__(self, loader: Any, share: tuple[int, int] = (0, 1)) -> None:
        self._share = share
        self.number = 0
        self.dataset = loader.dataset
        self._collate = loader.collate_fn
        self._kind = loader._dataset_kind, loader._auto_collation, loader.drop_last
        self._worker_init = loader.worker_init_fn
        self._workers = loader.num_workers
        self._base_seed: int | None = None
        self._first_seed = 0
        self._passes = 0
        self._order: _Held | _Order | list[Any] = _Held([])
        # Builds a batch, if this process does that.
        self._fetch: Callable[[Any], Any] | None = None

    @property
    def _pedl_source(self) -> Any:
        return self.dataset

    def draw(self, loader: Any) -> None:
        """Draws what a pass begins with: the seed of its workers, and the indices of its batches."""
        import torch

        if self._base_seed is None or not getattr(loader, "persistent_workers", False):
            # torch, too, makes two iterators, and takes the indices from the second.
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

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, place: int) -> Any:
        rank, size = self._share
        seed = in_row(self._first_seed, place * size + rank) >> 1
        of_data = BatchDrawing.of_data
        if of_data is None or self._fetch is None:
            return self._built_aside(place, seed)
        # A batch in the process that trains: that process sets the generator itself before it computes.
        of_data.manual_seed(seed)
        return self._fetch(self._order[place])

    def _built_aside(self, place: int, seed: int) -> Any:
        """A batch. In the process that trains, torch's generator is restored afterwards."""
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

    def _fetcher(self, collate: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The function that makes a batch from its indices."""
        from torch.utils.data import _DatasetKind

        kind, auto_collation, drop_last = self._kind
        return _DatasetKind.create_fetcher(kind, self.dataset, auto_collation, collate, drop_last).fetch

    def _info(self, seed: int) -> Any:
        """What `get_worker_info` returns while a batch is built: a seed of the batch, whichever worker builds it."""
        from torch.utils.data._utils import worker

        number = _number() or 0
        return worker.WorkerInfo(id=number, num_workers=self._workers, seed=seed, dataset=self.dataset)

    @property
    def _pedl_has_begun(self) -> bool:
        return self.dataset is _BEGUN.get("dataset")

    def _pedl_begin(self) -> None:
        """Calls the script's `worker_init_fn` in a worker, before it builds anything of a data set."""
        import torch

        _BEGUN["dataset"] = self.dataset
        # OpenMP does not survive a fork.
        torch.set_num_threads(1)
        number = _number()
        torch.default_generator.manual_seed(self._base_seed + number)
        if self._worker_init is not None:
            with _told(self._info(self._base_seed + number)):
                self._worker_init(number)


def _is_default(collate: Callable[[Any], Any]) -> bool:
    from torch.utils.data._utils.collate import default_collate

    return collate is default_collate


def _collated_here(samples: Any) -> Any:
    """`default_collate` without worker info. With it, it would collate into memory of `/dev/shm`."""
    from torch.utils.data._utils.collate import default_collate

    with _told(None):
        return default_collate(samples)


class _Held:
    """Indices that are not searched for generators. At each pass all attributes of a data set are searched."""

    __slots__ = ("_order",)

    def __init__(self, order: list[Any]) -> None:
        self._order = order

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, place: int) -> Any:
        return self._order[place]


class _Order:
    """Lists of whole numbers as two arrays, because they are sent to workers, and compared, at each pass."""

    def __init__(self, lists: Sequence[list[int]]) -> None:
        import numpy

        self._all = numpy.concatenate([numpy.asarray(one, "int64") for one in lists])
        self._ends = numpy.cumsum([len(one) for one in lists])

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, place: int) -> list[int]:
        return self._all[self._ends[place - 1] if place else 0 : self._ends[place]].tolist()


def _packed(order: list[Any]) -> _Order | list[Any]:
    """The order, in a smaller form if it consists of lists of whole numbers."""
    is_of_numbers = order and all(type(one) is list and all(type(index) is int for index in one) for one in order)
    return _Order(order) if is_of_numbers else order


# In a worker: the data set for which `worker_init_fn` was called.
_BEGUN: dict[str, Any] = {}


def _number() -> int | None:
    """The number of the worker that this process is, from 0 on; None in any other process."""
    name = multiprocessing.current_process().name
    return int(name[len(worker_processes.NAME) :]) - 1 if name.startswith(worker_processes.NAME) else None


@contextlib.contextmanager
def _told(info: Any) -> Iterator[None]:
    """Within it, `get_worker_info` returns `info`."""
    from torch.utils.data._utils import worker

    before, worker._worker_info = worker._worker_info, info
    try:
        yield
    finally:
        worker._worker_info = before
