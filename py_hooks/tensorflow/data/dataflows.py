"""DataFlows of tensorpack, from which a `TensorpackTrial` takes its batches (`py_hooks/trial_classes/tensorpack.py`).

A DataFlow keeps its position in itself, and only running it moves it there. So a replay draws from it too, in the process
that trains, as from generators (`datasets/generators.py`): all random numbers that it takes from `random` and `numpy.random`
come from a separate stream. A replay compares what it feeds with what was fed, so it notices a DataFlow that differs.

tensorpack seeds the generators of its DataFlows and augmentors (`get_rng`) by the clock, the process and an address. Those
that `reset_state` makes get a seed from the trial, the DataFlow, and their place in it; others that tensorpack makes all have
one seed of the trial. If the definition has called `fix_rng_seed`, all of them keep that seed.

Some DataFlows have separate processes or threads, and give batches in the order in which these finish. They are a cause:
their batches are not compared then, and a resumed trial continues with other batches.

Source: tensorpack 0.11, tensorpack/utils/utils.py, `get_rng`; dataflow/base.py, parallel.py, parallel_map.py, remote.py, raw.py.
"""
from __future__ import annotations

import importlib
import itertools

from py_hooks import causes
from py_hooks.datasets.generators import SOURCES
from py_hooks.random_numbers import owned_generators
from py_hooks.random_numbers.random_streams import mix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from py_hooks.recording.recorder import Calls

# Modules whose DataFlows have no fixed order, and a DataFlow of another module that has none.
_UNORDERED = frozenset(f"tensorpack.dataflow.{name}" for name in ("parallel", "parallel_map", "remote"))
_FROM_A_QUEUE = "DataFromQueue"
# Exceptions in these modules: they pass on what they get, one by one.
_ORDERED = ("PlasmaPutData", "PlasmaGetData")


def fix_seed(trial_seed: int) -> None:
    """Gives tensorpack's generators a seed of the trial, unless the definition has given them one."""
    utils = importlib.import_module("tensorpack.utils.utils")
    if utils._RNG_SEED is None:
        utils.fix_rng_seed(_of_trial(trial_seed))


def _of_trial(trial_seed: int) -> int:
    return mix(trial_seed, "tensorpack") % (1 << 32)


def causes_of(flows: Iterable[Any]) -> list[causes.Told]:
    """The causes in DataFlows: what cannot be repeated."""
    names = sorted({name for flow in flows for name in _unordered_in(flow)})
    return [causes.DATAFLOW(name=name) for name in names]


def _unordered_in(flow: Any) -> Iterator[str]:
    """Names of the classes without an order, among all DataFlows that a DataFlow is made of."""
    base = importlib.import_module("tensorpack").DataFlow
    seen: list[Any]
    seen, waiting = [], [flow]
    while waiting:
        value = waiting.pop()
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], base):
            waiting.extend(value)
        elif isinstance(value, base) and not any(value is one for one in seen):
            seen.append(value)
            waiting.extend(vars(value).values())
            if any(map(_has_no_order, type(value).__mro__)):
                yield type(value).__name__


def _has_no_order(kind: type) -> bool:
    is_of_them = kind.__module__ in _UNORDERED and kind.__name__ not in _ORDERED
    return is_of_them or (kind.__name__ == _FROM_A_QUEUE and kind.__module__.startswith("tensorpack."))


class Source:
    """The batches of a DataFlow, pass after pass.

    Args:
        calls: the recorder.
        flow: the DataFlow, which nobody else draws from. Its `reset_state` is called.
        is_cut: a pass ends after as many batches as its length says, if it has a length.
    """

    def __init__(self, calls: Calls, flow: Any, is_cut: bool) -> None:
        _, self._number = calls.streams.new_key()
        self._trial_seed = calls.trial.seed
        self._generator = self._batches(flow, is_cut)
        # It knows the generator by a weak reference.
        self._source = SOURCES.of(self._generator, calls.streams)
        self.next()

    def next(self) -> Any:
        """The next batch; None if a pass is over, and the next one is to begin."""
        return next(self._source)

    def _batches(self, flow: Any, is_cut: bool) -> Iterator[Any]:
        self._reset(flow)
        yield None
        while True:
            yield from itertools.islice(flow, _length_of(flow) if is_cut else None)
            yield None

    def _reset(self, flow: Any) -> None:
        before = owned_generators.find(flow)
        flow.reset_state()
        given = importlib.import_module("tensorpack.utils.utils")._RNG_SEED
        if given != _of_trial(self._trial_seed):
            return
        for number, generator in enumerate(owned_generators.find(flow)):
            # A generator that existed before belongs to the definition.
            if not any(generator is one for one in before):
                owned_generators.seed(generator, mix("dataflow", number, self._trial_seed, self._number))


def _length_of(flow: Any) -> int | None:
    try:
        return len(flow) or None
    except (NotImplementedError, TypeError, ValueError, AttributeError):
        return None
