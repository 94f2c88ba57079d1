"""The private stream of a worker process: the global generators themselves are set to it.

A worker process only builds items, so nothing else needs the states of its generators. An item draws the same numbers from
`random` and numpy as under a `PrivateStream` of the same key in the process that trains.
"""
from __future__ import annotations

import sys

from py_hooks.random_numbers.random_streams import PrivateStream, generator_of_torch, in_row, seed_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from numpy.random import RandomState


class WorkerStream(PrivateStream):
    """A private stream in a worker process: numpy's global generator itself is set to the stream.

    So code that bypasses the dispatchers, such as libraries that use `numpy.random.mtrand._rand`, draws from the stream
    too. Code can use `random` only by its functions, so its generator is made when one of them is called.

    Setting the generator takes longer than building a small item, and few data sets draw. So it is set for the first item,
    and for all items from the first that draws; an item that has drawn before it was set (`catch_up`) is built again.

    The global generator of torch is set for each item, once torch is imported.
    """

    __slots__ = ("_mark", "_is_late", "_torch", "_of_torch")

    # Of this process: returns the position of numpy's global generator; None if every stream sets it.
    _where: Callable[[], tuple[int, int]] | None = None
    _is_known = False

    def __init__(self) -> None:
        super().__init__()
        # A key without the index of the item, and the hash of that.
        self._of_torch: tuple[Any, int] = (None, 0)

    def begin(self, key: tuple[Any, ...]) -> None:
        """As of `PrivateStream`; the key ends with the index of an item."""
        super().begin(key)
        self._is_late = False
        if WorkerStream._where is None:
            self._set()
            if not WorkerStream._is_known:
                WorkerStream._is_known = True
                WorkerStream._where = _position_of(self._numpy)
        if WorkerStream._where is not None:
            self._mark = WorkerStream._where()
        self._torch = generator_of_torch()
        if self._torch is not None:
            self._set_torch()

    @property
    def numpy(self) -> RandomState:
        """The global generator of numpy, set to the stream."""
        if self._numpy is None:
            self._is_late = WorkerStream._where() != self._mark
            self._set_always()
        return self._numpy

    def catch_up(self) -> bool:
        """Sets the generator, if an item has drawn from it before it was set.

        Returns:
            Whether the item has to be built again.
        """
        where = WorkerStream._where
        if where is not None and where() != self._mark:
            self._is_late = self._numpy is None
            self._set_always()
        elif self._is_late:
            self._set()
        is_late, self._is_late = self._is_late, False
        if self._torch is None and "torch" in sys.modules:
            # The item has imported torch.
            self._torch = generator_of_torch()
            is_late = is_late or self._torch is not None
        if is_late:
            self._python = self._entropy = None
            if self._torch is not None:
                self._set_torch()
        return is_late

    def _set_torch(self) -> None:
        # A hash for each item would take as long as setting the generator.
        if self._of_torch[0] != self.key[:-1]:
            self._of_torch = self.key[:-1], seed_of("torch", self.key[:-1])
        self._torch.manual_seed(in_row(self._of_torch[1], self.key[-1]) >> 1)

    def _set_always(self) -> None:
        WorkerStream._where = None
        self._set()

    def _set(self) -> None:
        self._numpy = sys.modules["numpy"].random.mtrand._rand
        self._numpy.seed(self._seed("numpy") % (1 << 32))


def _position_of(generator: RandomState) -> Callable[[], tuple[int, int]] | None:
    """A function that returns the position of a `RandomState`, much faster than reading its state; None if there is none.

    The function returns another value after every draw, except that of a second gaussian, which seeding drops. The value is
    the generator's position in its 624 words, and the first of them, which changes when all are used (numpy,
    `mt19937_state` in mt19937.h).
    """
    try:
        import ctypes

        address = generator._bit_generator.ctypes.state_address
        kind, words, position = generator.get_state()[:3]
    except Exception:  # noqa: BLE001 - a numpy before 1.17, or no ctypes
        return None
    if kind != "MT19937" or len(words) != 624:
        return None
    # The memory is valid as long as the generator lives, which is as long as this process.
    state = memoryview((ctypes.c_uint32 * 625).from_address(address)).cast("B").cast("I")
    if state.tolist() != [*words.tolist(), position]:
        return None

    def where() -> tuple[int, int]:
        return state[624], state[0]

    return where
