"""Random numbers, data and states for the loop of a `PyTorchTrial` (`shims/pedl/_loops/pytorch.py`).

Each batch, each validation and each pass over a loader draws from separate streams: of python, NumPy, torch, and of the
generators that the trial holds. So none of their state has to be restored. A replay makes none of these, and leaves the
streams of the script where they were.
"""
from __future__ import annotations

import os

from py_hooks import causes
from py_hooks.random_numbers import owned_generators
from py_hooks.random_numbers.random_streams import PrivateStream, seed_of
from py_hooks.torch import data_loader
from py_hooks.torch.generator import BatchDrawing, Drawing, TorchGenerator
from py_hooks.torch.ranks import of as of_ranks
from py_hooks.torch.states import ModelState, TrialState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, Protocol

    from py_hooks.recording.recorder import Calls
    from py_hooks.torch.states import _HasState

    class _Batches(Protocol):
        """A pass: gives its batches, or counts one as taken."""

        def __iter__(self) -> Iterator[Any]: ...

        def __next__(self) -> Any: ...

        def skip(self) -> object: ...

# The name of the state provider that holds the tensors of a trial in a checkpoint.
STATE = "torch trial"

# With these a user sets how many threads compute.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


class Training:
    """The training of one trial class by torch.

    Args:
        calls: the recorder.
        ranks: what the host says about the ranks; None or nothing if there is one process.

    Attributes:
        ranks: the object of `ranks.py`.
        of_batch: called with the number of a batch; returns a `BatchDrawing`, within which all draws are of streams of this
            batch, in this rank.
    """

    def __init__(self, calls: Calls, ranks: dict[str, Any] | None = None) -> None:
        import torch

        self._calls = calls
        self.ranks = of_ranks(calls, ranks)
        self._generator = TorchGenerator()
        self._owned: owned_generators.Rooted | None = None
        self._has_gpu = torch.cuda.is_available()
        calls.checkpoints.keep("torch", self._generator)
        calls.lifecycle.at_due.append(self._put_back)
        self._impose_threads()
        self._key = calls.streams.new_key()
        self._draw_batches()

    def _impose_threads(self) -> None:
        """Sets as many threads as when the checkpoint was taken, because their number changes floats."""
        import torch

        known = self._calls.checkpoints.states().get(STATE) if self._calls.trial.resume else None
        if known is not None:
            torch.set_num_threads(known["threads"])
        elif not any(map(os.environ.get, _THREAD_VARIABLES)):
            torch.set_num_threads(self._calls.trial.threads)

    def compare(self, described: dict[str, str]) -> None:
        """Called before training: checks that all ranks train the same.

        Args:
            described: texts that must be the same in all ranks, by what they describe.
        """
        self.ranks.compare({**described, "random numbers drawn so far": str(self._key)})

    def causes(self) -> list[causes.Told]:
        """What cannot be repeated exactly."""
        return [causes.TORCH_DEVICE()] if self._has_gpu else []

    def provide(self, trial: Any, model: Any, optimizer: Any, scheduler: _HasState | None, others: Iterable[Any]) -> None:
        """Called before training: checkpoints keep these objects. See `states.TrialState`."""
        self._owned = owned_generators.Rooted(owned_generators.find(trial))
        self._draw_batches()
        self._calls.checkpoints.keep(STATE, TrialState(trial, model, optimizer, scheduler, others))
        self._calls.checkpoints.keep("models", ModelState(model, STATE))

    def alone(self, *key: Any) -> Drawing:
        """Within it, all draws are of streams of the key."""
        self._put_back()
        key = (*self._key, *key)
        return Drawing(PrivateStream(*key), seed_of("torch", key), self._owned, self._has_gpu)

    def _draw_batches(self) -> None:
        first_seed = seed_of("torch", (*self._key, "train", *self.ranks.key))
        self._of_batches = BatchDrawing((*self._key, "train"), first_seed, self.ranks.key, self._owned, self._has_gpu)
        self.of_batch = self._of_batches.of

    def _put_back(self) -> None:
        """Called before something other than a batch may draw from torch's generator."""
        self._of_batches.put_back()

    def passes(self, loader: Any, is_shared: bool = False) -> Passes:
        """The passes over a loader, as `Passes`.

        Args:
            loader: a loader of the user.
            is_shared: each rank has its share of the batches.
        """
        made = Passes(loader, self, self._calls.streams.new_key(), (self.ranks.rank, self.ranks.size) if is_shared else (0, 1))
        if is_shared:
            self.ranks.watch(made.order)
        return made


class Passes:
    """The passes over a `DataLoader`, one after another. Their batches do not depend on who builds them.

    Args:
        loader: a loader of the user.
        training: its streams are drawn from.
        key: `Streams.new_key()`.
        share: (rank, number of ranks): the passes are for this rank.

    Attributes:
        loader: a loader of the user.
        length: how many batches a pass has; None if that is not known.
    """

    def __init__(self, loader: Any, training: Training, key: tuple[Any, ...], share: tuple[int, int] = (0, 1)) -> None:
        self.loader = loader
        self._share = share
        self._training = training
        self._key = "pass", *key
        self._number = -1
        self._has_places = data_loader.has_places(loader)
        self._ours: data_loader.Loader | None = None
        try:
            self.length: int | None = data_loader.length_of_share(loader, share[1])
        except TypeError:
            self.length = None

    def begin(self) -> _Batches:
        """Begins a pass, which has `__next__` and `skip`."""
        self._number += 1
        key = (*self._key, self._number)
        with self._training.alone(*key):
            if not self._has_places:
                return _PassOfTorch(iter(self.loader), self._training, key)
            if self._ours is None:
                # Workers that are not forked from this process do not know the definition.
                workers = self.loader.num_workers if data_loader.is_forked(self.loader) else 0
                self._ours = data_loader.Loader(self.loader, self._key, workers, self._share)
            made = self._ours.begin()
            return _Pass(made) if self.loader.num_workers else made

    def order(self) -> int:
        """A number that identifies the order of the running pass, of all ranks."""
        return self._ours.order if self._ours is not None else 0

    def end(self) -> None:
        """The pass is over."""
        if self._ours is not None:
            self._ours.end_epoch(goes_on=False)

    def close(self) -> None:
        """No other pass begins."""
        if self._ours is not None:
            self._ours.close()


class _Pass:
    """A pass whose batches workers build, by their places."""

    def __init__(self, source: _Batches) -> None:
        self._next = iter(source).__next__
        self.skip = source.skip

    def __iter__(self) -> _Pass:
        return self

    def __next__(self) -> Any:
        return self._next()


class _PassOfTorch:
    """A pass of torch's iterator: batches that it skips are built, too."""

    def __init__(self, iterator: Iterator[Any], training: Training, key: tuple[Any, ...]) -> None:
        self._iterator = iterator
        self._training = training
        self._key = key
        self._place = 0

    def __iter__(self) -> _PassOfTorch:
        return self

    def __next__(self) -> Any:
        self._place += 1
        with self._training.alone(*self._key, self._place):
            return next(self._iterator)

    def skip(self) -> None:
        """Counts one batch as taken."""
        next(self)
