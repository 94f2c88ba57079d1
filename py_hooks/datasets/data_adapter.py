"""The source of the batches of `pedl.frameworks.keras.data.KerasDataAdapter`."""
from __future__ import annotations

import pickle

from py_hooks.datasets.item_epochs import ItemEpochs
from py_hooks.recording import recorder
from py_hooks.workers import worker_processes
from py_hooks.workers.transfer import sendable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn, Protocol

    class _Adapter(Protocol):
        """A `KerasDataAdapter`."""

        sequence: Any
        workers: int
        use_multiprocessing: bool
        max_queue_size: int


def start(adapter: _Adapter, offset: int, is_validation: bool) -> ItemEpochs:
    """The batches of an adapter, without the first `offset` ones.

    Args:
        adapter: the `KerasDataAdapter`.
        offset: number of batches to leave out, from the first epoch on.
        is_validation: whether there is only one pass.
    """
    if recorder.CALLS is None:
        raise RuntimeError("KerasDataAdapter needs a framework: import keras or tensorflow before it is started")
    if adapter.use_multiprocessing and adapter.workers and not worker_processes.are_forked():
        _refuse(adapter.sequence)
    batches = _OnePass(adapter) if is_validation else _Epochs(adapter)
    for _ in range(offset):
        batches.begin_next()
        batches.skip()
    return batches


class _Epochs(ItemEpochs):
    """Epoch after epoch; the end of each calls the `on_epoch_end` of the data set, if it has one."""

    def __init__(self, adapter: _Adapter) -> None:
        ItemEpochs.__init__(
            self,
            adapter.sequence,
            adapter.workers,
            adapter.max_queue_size,
            shuffle=False,
            notifies=hasattr(adapter.sequence, "on_epoch_end"),
            in_processes=adapter.use_multiprocessing,
        )


class _OnePass(_Epochs):
    """One pass over the items."""

    def __init__(self, adapter: _Adapter) -> None:
        _Epochs.__init__(self, adapter)
        self._notifies = False

    def begin_next(self) -> tuple[int, int]:
        """As of `_Epochs`, but there is no second epoch."""
        if self._pass is not None and self._taken == self._length:
            raise StopIteration
        return _Epochs.begin_next(self)


def _refuse(sequence: object) -> NoReturn:
    """The script chose a start method other than fork, but workers are forked: raises an error that names what cannot be sent."""
    import multiprocessing

    name, method = type(sequence).__name__, multiprocessing.get_start_method()
    help = "set the start method `fork`, or use threads (use_multiprocessing=False)"
    why = sendable.cause_in(sequence, pickle.dumps)
    if why is not None:
        raise TypeError(
            f"KerasDataAdapter cannot send `{name}` to worker processes that are started by `{method}`: {why}\n  {help}"
        )
    raise RuntimeError(
        f"KerasDataAdapter starts its worker processes by itself; this script has set the start method `{method}`\n  {help}"
    )
