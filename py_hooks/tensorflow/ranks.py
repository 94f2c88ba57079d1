"""Several processes that train one model of `tf.keras` under `TF_CONFIG`: the part of `ranks/agreement.py` for TensorFlow.

`tf.distribute.MultiWorkerMirroredStrategy` averages the gradients; the model is made in its scope. It has one replica in
each process. The strategy does not distribute the batches here: each rank gets its share of them (`shims/pedl/_loops/
shares.py`), and Keras gets the pipelines as those of one process, which a replay can skip
(`py_hooks/keras/keras2_eager/handlers.py`).

A collective operation waits for all ranks, for ever. So the ranks meet before TensorFlow connects them, at the address that
the server of the first rank has afterwards. They keep these connections, which end with the process.

Source: tensorflow 2.15.1, tensorflow/python/distribute/collective_all_reduce_strategy.py; keras 2.15.0,
keras/src/engine/training.py, `make_train_function` and `reduce_per_replica`; tensorflow/python/distribute/mirrored_run.py.
"""
from __future__ import annotations

import contextlib
import signal
import threading

from py_hooks.border import ExitCode
from py_hooks.ranks import agreement, meeting
from py_hooks.recording import ending, recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from typing import Any, TypeVar

    _Message = TypeVar("_Message")

# How long the process waits, after a collective operation failed, for news that a rank is lost (which ends it), in seconds.
_NOTICED_SECONDS = 10


def replica_thread(original: Callable[..., Any], thread: Any) -> Any:
    """`_MirroredReplicaThread.run`: a strategy traces in its thread on behalf of the main thread, so that thread counts too."""
    calls, ident = recorder.CALLS, threading.get_ident()
    is_of_ranks = thread.distribution is getattr(calls.agreement, "strategy", None)
    if is_of_ranks:
        calls.stand_ins.add(ident)
    try:
        return original(thread)
    finally:
        calls.stand_ins.discard(ident)


class One(agreement.One):
    """One process, which has nobody to agree with. `Ranks` explains the methods."""

    def scope(self) -> AbstractContextManager[None]:
        """Nothing."""
        return contextlib.nullcontext()

    def adopt(self, model: Any) -> bool:
        """Nothing: True."""
        return True


class Ranks(agreement.Ranks):
    """The processes that train one model of `tf.keras`.

    Attributes:
        strategy: TensorFlow's strategy; None before `begin`.
    """

    strategy: Any = None

    def _join(self, told: dict[str, Any]) -> None:
        self._address = told["first"]
        host, _, port = self._address.rpartition(":")
        try:
            with self._losing():
                self._meeting = meeting.Meeting(self.rank, self.size, (host.strip("[]"), int(port)), self._lose)
        except (OSError, ValueError) as error:
            ending.stop(
                self._calls,
                ExitCode.CONFIGURATION,
                f"`TF_CONFIG` names `{self._address}` as the address of the first worker, where the ranks do not meet\n"
                f"  {error}\n  expected: `HOST:PORT`, a port of that machine which no other program has\n  nothing was trained",
                "name another port in `TF_CONFIG`, the same for all workers",
            )

    def begin(self) -> None:
        """Has TensorFlow connect the ranks."""
        import tensorflow
        from tensorflow.python.eager import context

        if context.context()._context_handle is not None:
            ending.stop(
                self._calls,
                ExitCode.CONFIGURATION,
                "TensorFlow has computed something before it was told of the other workers\n"
                "  expected: nothing of it but definitions where the module is imported, in `__init__` of the trial class, in "
                "`session_config` and in `download_data`\n  nothing was trained",
                "do it in `make_data_loaders` or `build_model`",
            )
        handler = signal.getsignal(signal.SIGTERM)
        with self.guard():
            self.strategy = tensorflow.distribute.MultiWorkerMirroredStrategy()
        if handler is not None:
            # TensorFlow has installed another handler, which takes the signal and reports it to nobody
            # (tensorflow/core/distributed_runtime/preemption/preemption_notifier.cc).
            signal.signal(signal.SIGTERM, handler)

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """The model of all ranks is made within it."""
        with self.guard(), self.strategy.scope():
            yield

    def adopt(self, model: Any) -> bool:
        """A model is about to be trained. Returns whether it was made in the scope."""
        if getattr(model, "distribute_strategy", None) is not self.strategy:
            return False
        if getattr(model, "distribute_reduction_method", None) == "auto":
            # The metrics of a batch are over all ranks already; Keras would add them up once more.
            model.distribute_reduction_method = "first"
        return True

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Within it, a collective operation that fails because a rank is lost ends this process too, with a message."""
        import tensorflow

        try:
            yield
        except tensorflow.errors.OpError:
            # The connection may end a moment later, which ends this process.
            self._meeting.wait_for_loss(_NOTICED_SECONDS)
            raise

    @contextlib.contextmanager
    def _undisturbed(self) -> Iterator[None]:
        with self._losing(), self._meeting.undisturbed():
            yield

    @contextlib.contextmanager
    def _losing(self) -> Iterator[None]:
        try:
            yield
        except meeting.Lost as error:
            self._lose(str(error))

    def _gathered(self, own: _Message) -> list[_Message]:
        with self._losing():
            return self._meeting.gather(own)

    _gathered_objects = _gathered

    def _leave(self) -> None:
        self._meeting.close()
