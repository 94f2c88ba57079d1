"""Several processes that train one model of PyTorch, as `torchrun` starts them: the PyTorch part of `ranks/agreement.py`.

`DistributedDataParallel` averages gradients. Its buckets of gradients are never rebuilt, so that a resumed start adds in
the same order.

Source: torch 2.15, torch/nn/parallel/distributed.py; torch/csrc/distributed/c10d/reducer.cpp, `should_rebuild_buckets`.
"""
from __future__ import annotations

import os
import weakref
import zlib
from time import monotonic, sleep

from py_hooks.border import ExitCode
from py_hooks.ranks import agreement
from py_hooks.recording import ending

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Any

    from py_hooks.recording.recorder import Calls

# What the environment of a rank contains besides its numbers.
_MEETING = ("MASTER_ADDR", "MASTER_PORT")

# How long a rank waits at the end until threads of the group release tensors, and the pause between two looks, in seconds.
_LETTING_GO_SECONDS, _PAUSE_SECONDS = 10, 0.001

# The whole numbers that an exchange sends; each exchange uses fewer.
_NUMBERS = 12

# Words in errors of gloo, and of the store where ranks meet.
_CONNECTING = "gloo", "Connection", "connection", "TCPStore", "Broken pipe", "socket", "failed to recv"

# Files that raise them. The C++ below has no frames.
_BETWEEN_RANKS = "/torch/distributed/", "/torch/nn/parallel/distributed.py", "/torch/autograd/"


class One(agreement.One):
    """One process, which has no other to agree with. `Ranks` describes the methods."""

    def wrapped(self, model: Any, device: Any) -> Any:
        """The model itself."""
        return model

    def device(self) -> Any:
        """A GPU, if there is one."""
        import torch

        return torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def watch(self, order: Callable[[], int]) -> None:
        """Does nothing."""

    def level(self, model: Any, wrapped: Any, measured: dict[str, Any]) -> dict[str, Any]:
        """The metrics as they are."""
        return measured

    def share(self, live: Callable[[], Any]) -> Any:
        """What `live()` returns."""
        return live()


class Ranks(agreement.Ranks):
    """The processes that train one model of PyTorch."""

    _order: Callable[[], int] | None = None

    # References to tensors of exchanges, some of which threads of the group may hold.
    _exchanged_tensors: Sequence[weakref.ref[Any]] = ()

    def _join(self, told: dict[str, Any]) -> None:
        import torch.distributed

        if not hasattr(torch.distributed, "broadcast_object_list"):
            # torch 1.8 has it.
            ending.stop(
                self._calls,
                ExitCode.CONFIGURATION,
                f"a trial is trained by {self.size} ranks, and torch is {torch.__version__}\n"
                "  expected: torch 1.8 or later; before, ranks exchange no objects\n  nothing was trained",
                "install another torch, or unset `WORLD_SIZE` and `RANK` to train by one process",
            )
        self._local = told["local_rank"]
        missing = [name for name in _MEETING if not os.environ.get(name)]
        if missing:
            ending.stop(
                self._calls,
                ExitCode.CONFIGURATION,
                f"`WORLD_SIZE` is {self.size}, and the environment variable `{missing[0]}` is not set\n"
                "  expected: where the ranks meet\n  nothing was trained",
                "start the ranks with `torchrun --no_python --nproc_per_node N pedl-run ...`",
            )
        with self.guard():
            if not torch.distributed.is_initialized():
                torch.distributed.init_process_group("gloo", store=self._store(), rank=self.rank, world_size=self.size)
            # A rank may end for a mistake in the definition, which all of them see. Then no other is still on its way here.
            torch.distributed.barrier()

    def _store(self) -> Any:
        """The store where ranks meet. That of `torchrun` survives a restart, and holds addresses of processes that ended."""
        from torch.distributed import PrefixStore, TCPStore

        is_of_torchrun = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        host, port = (os.environ[name] for name in _MEETING)
        store = TCPStore(host, int(port), self.size, self.rank == 0 and not is_of_torchrun)
        return PrefixStore("pedl-run {}".format(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")), store)

    def device(self) -> Any:
        """The device on which this rank trains: each rank has its own GPU."""
        import torch

        if not torch.cuda.is_available():
            return torch.device("cpu")
        torch.cuda.set_device(self._local)
        return torch.device("cuda", self._local)

    def watch(self, order: Callable[[], int]) -> None:
        """Has the order of the training data compared between ranks.

        Args:
            order: returns a number that identifies the order of the running pass, of all ranks.
        """
        self._order = order

    def _order_of_data(self) -> int:
        return self._order() if self._order is not None else 0

    def guard(self) -> _Guard:
        """Within it, a rank that is lost ends this one too, with a message."""
        return _Guard(self._lose)

    def _gathered(self, own: list[int]) -> list[list[int]]:
        import torch
        import torch.distributed

        mine = torch.zeros(_NUMBERS, dtype=torch.int64)
        mine[: len(own)] = torch.tensor(own)
        everyone = [torch.empty_like(mine) for _ in range(self.size)]
        with self.guard():
            torch.distributed.all_gather(everyone, mine)
        held = [reference for reference in self._exchanged_tensors if reference() is not None]
        self._exchanged_tensors = [*held, *map(weakref.ref, [mine, *everyone])]
        return [one.tolist()[: len(own)] for one in everyone]

    def _gathered_objects(self, own: dict[str, str]) -> list[dict[str, str]]:
        import torch.distributed

        everyone: list[dict[str, str]] = [None] * self.size
        with self.guard():
            torch.distributed.all_gather_object(everyone, own)
        return everyone

    def _leave(self) -> None:
        import torch.distributed

        # A thread of the group releases the tensors of an exchange after the exchange is over. If it does so while Python
        # ends, it cannot get Python's lock any more, and aborts the process. DDP keeps the group and its threads to the end.
        until = monotonic() + _LETTING_GO_SECONDS
        while any(reference() is not None for reference in self._exchanged_tensors) and monotonic() < until:
            sleep(_PAUSE_SECONDS)
        torch.distributed.destroy_process_group()

    def wrapped(self, model: Any, device: Any) -> Any:
        """The model to train with: the gradients of what it computes are averaged over the ranks.

        Which parameters a batch leaves out is known only after it, which is too late to search for them. So every batch
        searches for them. If a model uses all its parameters, torch says once in each start that this is not necessary.
        """
        import torch

        class Averaged(torch.nn.parallel.DistributedDataParallel):
            """Counts its calls, and has the attributes of the model."""

            forwards = 0

            def __getattr__(self, name: str) -> Any:
                try:
                    return super().__getattr__(name)
                except AttributeError:
                    return getattr(super().__getattr__("module"), name)

            def forward(self, *args: Any, **kwargs: Any) -> Any:
                self.forwards += 1
                return super().forward(*args, **kwargs)

        with self.guard():
            return Averaged(
                model, device_ids=[device.index] if device.type == "cuda" else None, find_unused_parameters=True
            )

    def level(self, model: Any, wrapped: Any, measured: dict[str, Any]) -> dict[str, Any]:
        """Called after a batch: sets buffers to those of rank 0. Returns the metrics, numbers as means of all ranks."""
        import torch

        if not wrapped.forwards:
            ending.stop(
                self._calls,
                ExitCode.CONFIGURATION,
                "the loss of a batch was not computed by calling the model that `train_batch` was given\n"
                "  expected: `model(...)`; what is computed in another way is not averaged over the ranks\n"
                "  the trial was stopped",
                "call the argument `model` of `train_batch`",
            )
        wrapped.forwards = 0
        for buffer in model.buffers():
            torch.distributed.broadcast(buffer, 0)
        names = [name for name, value in measured.items() if isinstance(value, (int, float))]
        own = zlib.crc32(repr(names).encode())
        values = torch.tensor([own, *(measured[name] for name in names)], dtype=torch.float64)
        torch.distributed.all_reduce(values)
        means = (values / self.size).tolist()
        if means[0] != own:
            self._differ("the names of the metrics of a batch")
        return {**measured, **dict(zip(names, means[1:]))}

    def share(self, live: Callable[[], Any]) -> Any:
        """What `live()` returns on rank 0, which alone calls it."""
        import torch.distributed

        held = [live() if self.rank == 0 else None]
        with self.guard():
            torch.distributed.broadcast_object_list(held, 0)
        return held[0]


class _Guard:
    """`with`: an error that says that another rank is lost ends the process.

    Such an error is raised by what torch does between ranks, and has the words of a connection error. Errors of the user's
    code, whatever their words are, and of torch anywhere else, pass through.

    Args:
        lose: ends the process; called with what the error says.
    """

    __slots__ = ("_lose",)

    def __init__(self, lose: Callable[[str], object]) -> None:
        self._lose = lose

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, RuntimeError) and _is_of_connection(error) and _is_between_ranks(trace):
            self._lose(str(error).splitlines()[0])


def _is_of_connection(error: BaseException) -> bool:
    return any(word in str(error) for word in _CONNECTING)


def _is_between_ranks(trace: TracebackType) -> bool:
    """Whether the error was raised by what torch does between ranks. This includes averaging gradients in `backward`."""
    while trace.tb_next is not None:
        trace = trace.tb_next
    file = trace.tb_frame.f_code.co_filename
    return file == __file__ or any(part in file for part in _BETWEEN_RANKS)


def of(calls: Calls, told: dict[str, Any] | None) -> Ranks | One:
    """The ranks of this process: `Ranks`, or `One` if the host names no ranks."""
    return Ranks(calls, told) if told else One()
