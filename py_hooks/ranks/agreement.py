"""Coordinates several processes that train one model, for all frameworks: each process is a rank, and has a trial.

Ranks agree by one exchange at the end of each batch on what all must do at the same batch: whether a signal that asks
for the end has come to any of them, and whether a checkpoint is to be taken (rank 0 decides when).
No rank takes a checkpoint before all have written the previous one: so there are always two moments of which all have a
checkpoint, or one such moment while none is writing. A replay exchanges nothing.

Subclasses of `Ranks` define how ranks meet, exchange, and notice that one of them is lost: `torch/ranks.py` for
PyTorch, `tensorflow/ranks.py` for TensorFlow.
"""
from __future__ import annotations

import contextlib
import json
import os

from py_hooks import causes
from py_hooks.border import Due, ExitCode
from py_hooks.recording import ending

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Any, NoReturn, TypeVar, TypeVarTuple, Unpack

    from py_hooks.recording.recorder import Calls

    _Result = TypeVar("_Result")
    _Arguments = TypeVarTuple("_Arguments")

# The exit code of a process that has lost another rank: the same command may continue.
_LOST = ExitCode.IN_USE

# The purposes of an exchange.
_BATCH, _SAVE, _END = 1, 2, 3

# Fields of the launch message that are the same for all ranks.
_COMMON = (
    "command",
    "hyperparameters",
    "trial_seed",
    "batches_per_step",
    "steps",
    "validation_period",
    "checkpoint_period",
    "checkpoint_batches",
)


class One:
    """A single process, which has no other ranks. Its methods are those of `Ranks`."""

    size = 1
    rank = 0
    key: tuple[()] = ()

    def compare(self, described: dict[str, str]) -> None:
        """Does nothing."""

    def compare_resumption(self) -> None:
        """Does nothing."""

    def guard(self) -> AbstractContextManager[None]:
        """Does nothing."""
        return contextlib.nullcontext()

    def with_guard(self, function: Callable[[Unpack[_Arguments]], _Result]) -> Callable[[Unpack[_Arguments]], _Result]:
        """The function itself."""
        return function


class Ranks:
    """The processes that train one model, as one of them sees them.

    Args:
        calls: the recorder.
        told: what the host reports about them.

    Attributes:
        size: the number of ranks.
        rank: the number of this one.
        key: what is added to keys of random streams that differ between ranks.
    """

    size: int
    rank: int
    key: tuple[str | int, ...]

    def __init__(self, calls: Calls, told: dict[str, Any]) -> None:
        self._calls = calls
        self.size, self.rank = told["size"], told["rank"]
        self.key = ("rank", self.rank) if self.rank else ()
        self._signal = 0
        self._join(told)
        calls.agreement = self

    # -- what each framework defines -----------------------------------------------------------------------------------

    def _join(self, told: dict[str, Any]) -> None:
        """Waits until all ranks have come."""
        raise NotImplementedError

    def _gathered(self, own: list[int]) -> list[list[int]]:
        """The lists of integers of all ranks, by rank."""
        raise NotImplementedError

    def _gathered_objects(self, own: dict[str, str]) -> list[dict[str, str]]:
        """The dicts of texts of all ranks, by rank."""
        raise NotImplementedError

    def _leave(self) -> None:
        """All ranks have ended."""
        raise NotImplementedError

    def guard(self) -> AbstractContextManager[None]:
        """`with`: if a rank is lost within it, this one ends too, with a message."""
        raise NotImplementedError

    def with_guard(self, function: Callable[[Unpack[_Arguments]], _Result]) -> Callable[[Unpack[_Arguments]], _Result]:
        """A function that calls this one within `guard`."""

        def call(*args: Unpack[_Arguments]) -> _Result:
            with self.guard():
                return function(*args)

        return call

    def _undisturbed(self) -> AbstractContextManager[None]:
        """`with`: if another rank ends meanwhile, this one ends only after the block."""
        return contextlib.nullcontext()

    def _order_of_data(self) -> int:
        """A number that identifies the order of the training data in the running pass, which all ranks must share."""
        return 0

    def _lose(self, what: str) -> NoReturn:
        """Ends the process: it has lost another rank."""
        ending.stop(
            self._calls,
            _LOST,
            f"rank {self.rank} of {self.size} has lost another rank\n  {what[:200]}\n"
            "  the run was stopped; every checkpoint that was committed is kept",
            "start all ranks again with the same commands: they go on from the newest checkpoint that all of them have",
        )

    # -- before the first batch ----------------------------------------------------------------------------------------

    def compare(self, described: dict[str, str]) -> None:
        """Ends the process if the ranks do not train the same.

        Args:
            described: texts by what they describe, which must be the same for all.
        """
        launch = json.loads(self._calls.trial.launch)
        mine = {f"`{name}`": json.dumps(launch.get(name), sort_keys=True) for name in _COMMON}
        mine.update({f"`{name}`": value for name, value in launch["configuration"].items() if name != "ranks"})
        mine["a trial that is begun anew"] = str(launch["replaces"] is not None)
        self._compare({**mine, **described})

    def compare_resumption(self) -> None:
        """Ends the process if the ranks do not resume from the same call."""
        self._compare({"the calls before the checkpoint": str(self._calls.trial.resume_call)})

    def _compare(self, mine: dict[str, str]) -> None:
        with self._undisturbed():
            self._compare_all(self._gathered_objects(mine))

    def _compare_all(self, everyone: list[dict[str, str]]) -> None:
        names = sorted(set().union(*everyone))
        for other, told in enumerate(everyone):
            differing = [name for name in names if told.get(name) != everyone[0].get(name)]
            if differing:
                name = differing[0]
                ending.stop(
                    self._calls,
                    ExitCode.CONFIGURATION,
                    f"the ranks do not train the same: they differ in {name}\n"
                    f"  rank 0: {everyone[0].get(name)}\n  rank {other}: {told.get(name)}\n  nothing was trained",
                    "start all ranks with one command; or with `--fresh`, which begins a new trial",
                )

    # -- batches -------------------------------------------------------------------------------------------------------

    def of_batch(self, due: Due | None) -> Due:
        """A batch ended, after which `due` is to be done by this rank. Returns what is to be done by all."""
        calls, trial = self._calls, self._calls.trial
        own = due or Due()
        is_due = self.rank == 0 and own.checkpoint
        everyone = self._exchanged(_BATCH, trial.pending_signal, is_due, own.checkpoint_wanted, trial.saving())
        signal, by_time, wanted, busy = (max(column) for column in zip(*everyone))
        if signal:
            self._signal = signal
        is_taken = wanted or (by_time and not busy)
        agreed = Due(
            signal=bool(signal),
            checkpoint=bool(is_taken and calls.exactness.takes_checkpoints),
            checkpoint_wanted=bool(wanted),
        )
        return own.without_checkpoint() | agreed

    def heed_signal(self) -> None:
        """Ends this rank if a signal came to it or to another: all end at the same batch."""
        calls = self._calls
        with self._undisturbed():
            if not calls.trial.pending_signal and self._signal:
                calls.checkpoints.save(is_wanted=True)
                calls.guarded(calls.trial.wait_saved)
                os.kill(os.getpid(), self._signal)
            calls.preemption.heed()

    def may_save(self) -> bool:
        """A checkpoint is to be taken: waits until all ranks have written the previous one. Returns whether all take it."""
        self._calls.guarded(self._calls.trial.wait_saved)
        self._exchanged(_SAVE)
        return self._calls.exactness.takes_checkpoints

    def end(self) -> None:
        """The trial has ended: waits for the last checkpoint of all ranks, so that none counts as over before the others."""
        self._calls.guarded(self._calls.trial.wait_saved)
        with self._undisturbed():
            self._exchanged(_END)
            self._leave()

    def _exchanged(self, purpose: int, *told: int) -> list[list[int]]:
        """The values of all ranks, by rank."""
        calls = self._calls
        common = [purpose, calls.batches, self._order_of_data()]
        with self._undisturbed():
            everyone = self._gathered([*common, int(calls.exactness.takes_checkpoints), *map(int, told)])
            for place, name in enumerate(("what they do", "the batch", "the order of the training data")):
                if any(one[place] != common[place] for one in everyone):
                    self._differ(name)
        if calls.exactness.takes_checkpoints and not all(one[3] for one in everyone):
            calls.exactness.refuse(causes.OTHER_RANK())
        return [one[4:] for one in everyone]

    def _differ(self, name: str) -> NoReturn:
        ending.stop(
            self._calls,
            ExitCode.CONFIGURATION,
            f"the ranks do not train the same: they differ in {name}\n  rank {self.rank}, batch {self._calls.batches}\n"
            "  the trial was stopped; every checkpoint that was committed is kept",
            "look for what a rank does by its own number or time, such as the seed of a sampler",
        )
