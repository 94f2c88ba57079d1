"""What `pedl.frameworks.keras.data.KerasDataAdapter` takes its batches from."""
import pickle

from py_hooks.advice import calls as recorder
from py_hooks.advice import sendable, worker_processes
from py_hooks.advice.item_epochs import ItemEpochs


def start(adapter, offset, is_validation):
    """The batches of an adapter, whose first `offset` ones are left out.

    Args:
        adapter: the `KerasDataAdapter`.
        offset: batches of the epochs from the first one on.
        is_validation: one pass only.
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
    """Epoch after epoch; the end of each is told to the data set, if it has an `on_epoch_end`."""

    def __init__(self, adapter):
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

    def __init__(self, adapter):
        _Epochs.__init__(self, adapter)
        self._notifies = False

    def begin_next(self):
        """As of every epoch, but there is no second one."""
        if self._pass is not None and self._taken == self._length:
            raise StopIteration
        return _Epochs.begin_next(self)


def _refuse(sequence):
    """The script has chosen that its processes are not forked, which workers are: says so, and what could not be sent."""
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
