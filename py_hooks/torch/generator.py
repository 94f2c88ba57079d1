"""torch's global generator on the CPU: what calls of the trial draw from it, and what the script itself draws.

A replay does not make these calls, so it would not draw what they draw. Therefore each call runs with a separate state of the
generator, and the state before it is restored before anything else draws. The generator sees only the draws of the script
itself, and is compared at the resume point. The generators of GPUs, if there are any, are set, and not restored.
"""
from __future__ import annotations

from py_hooks.random_numbers import owned_generators
from py_hooks.random_numbers.random_streams import THREAD, CallStream, PrivateStream, StreamDiffers, in_row, mix, root_of_torch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import numpy


class Drawing:
    """`with`: all draws are of a stream and of seeds from its key; afterwards all generators are as they were before.

    A class, because a generator function takes some microseconds more at each batch.

    Args:
        stream: a `PrivateStream`, for the global functions of `random` and numpy.
        seed: for torch's global generator, a number of 64 bits.
        owned: generators besides the global ones, an `owned_generators.Rooted`; None if there are none.
        has_gpu: there are global generators of GPUs, too.
    """

    __slots__ = ("_stream", "_seed", "_owned", "_has_gpu", "_generator", "_state")

    def __init__(
        self, stream: PrivateStream, seed: int, owned: owned_generators.Rooted | None = None, has_gpu: bool = False
    ) -> None:
        self._stream = stream
        self._seed = seed >> 1
        self._owned = owned_generators.Keyed(owned, stream.key) if owned else None
        self._has_gpu = has_gpu

    def __enter__(self) -> None:
        import torch

        if self._owned is not None:
            # First, because it raises if it cannot take the state of a generator.
            self._owned.__enter__()
        self._stream.__enter__()
        self._generator = torch.default_generator
        self._state = self._generator.get_state()
        self._generator.manual_seed(self._seed)
        if self._has_gpu:
            torch.cuda.manual_seed_all(self._seed)

    def __exit__(self, *exception: object) -> None:
        self._generator.set_state(self._state)
        self._stream.__exit__(*exception)
        if self._owned is not None:
            self._owned.__exit__(*exception)


class BatchDrawing(PrivateStream):
    """`with drawing.of(number)`: a batch is trained, and draws from streams of its number.

    It is itself the stream of the global functions of `random` and numpy. It makes as few calls as possible: between two
    batches each call takes longer than a call that is made again and again.

    Setting torch's global generator, or taking its state, takes longer than all the rest. So `compute` sets it once the data
    of the batch has been taken: data draws from seeds of its place in a pass. It is not restored from one batch to the next;
    `put_back` is called before anything else draws from it. In the loop of a `PyTorchTrial`, `Lifecycle.at_due` and
    `Training.alone` do that.

    Args:
        key: of the streams of all batches.
        first_seed: of the row of seeds for torch's generator (`in_row`).
        key_of_rank: follows the number of the batch in the key.
        owned: as in `Drawing`.
        has_gpu: as in `Drawing`.

    Attributes:
        of_data: torch's global generator while a batch takes its data; else None. Who sets it then need not restore it.
    """

    __slots__ = (
        "_generator", "_state", "_is_running", "_torch_seed", "_first_seed", "_of_batches", "_of_rank", "_generators", "_owned",
        "_has_gpu",
    )

    _seed: int  # type: ignore[assignment]  # hides a method of the base
    of_data: Any = None

    def __init__(
        self,
        key: tuple[Any, ...],
        first_seed: int,
        key_of_rank: tuple[Any, ...],
        owned: owned_generators.Rooted | None,
        has_gpu: bool = False,
    ) -> None:
        import torch

        super().__init__(*key)
        self._generator = torch.default_generator
        # The state of the generator before the first batch since it was last restored.
        self._state: Any = None
        self._is_running = False
        self._torch_seed = self._first_seed = first_seed
        self._of_batches = key
        self._of_rank = key_of_rank
        self._generators = owned
        self._owned: owned_generators.Keyed | None = None
        self._has_gpu = has_gpu

    def of(self, number: int) -> BatchDrawing:
        """The next batch has this number."""
        self._torch_seed = in_row(self._first_seed, number) >> 1
        self.begin((*self._of_batches, number, *self._of_rank))
        return self

    def __enter__(self) -> BatchDrawing:
        if self._generators:
            self._enter_owned()
        self._outer = THREAD.stream
        THREAD.stream = self
        generator = self._generator
        if self._state is None:
            self._state = generator.get_state()
        self._is_running = True
        BatchDrawing.of_data = generator
        return self

    def _enter_owned(self) -> None:
        self._owned = owned_generators.Keyed(self._generators, self.key)
        try:
            self._owned.__enter__()
        except BaseException:
            self.put_back()
            raise

    def compute(self) -> None:
        """The data of the batch has been taken: from here on the batch draws from torch's global generator."""
        BatchDrawing.of_data = None
        self._generator.manual_seed(self._torch_seed)
        if self._has_gpu:
            self._seed_gpus()

    def _seed_gpus(self) -> None:
        import torch

        torch.cuda.manual_seed_all(self._torch_seed)

    def __exit__(  # type: ignore[override]  # it is given three values
        self, kind: type[BaseException] | None, *exception: object
    ) -> None:
        THREAD.stream = self._outer
        self._is_running = False
        if self._generators:
            self._owned.__exit__(kind, *exception)
        if kind is not None:
            BatchDrawing.of_data = None
            self.put_back()

    def put_back(self) -> None:
        """Restores torch's global generator as it was before the first batch, unless a batch is running."""
        if self._state is not None and not self._is_running:
            state, self._state = self._state, None
            self._generator.set_state(state)


class TorchGenerator:
    """torch's global generator on the CPU: part of a checkpoint, and not changed by what compute calls draw."""

    def __init__(self) -> None:
        self._calls = 0

    def own_state(self, owned: Any = ()) -> Drawing:
        """`with`: a compute call runs, and draws from separate streams.

        Args:
            owned: generators besides the global ones, which it draws from too.
        """
        self._calls += 1
        key = "torch", self._calls
        # As they are now: a replay reaches this call with the same generators.
        owned = owned_generators.Rooted(owned) if owned else None
        return Drawing(CallStream(*key), mix(*key, root_of_torch()), owned)

    def skip(self) -> None:
        """A compute call is answered from the log."""
        self._calls += 1

    def capture(self) -> tuple[list[tuple[str, numpy.ndarray]], None]:
        """The state: part of a checkpoint."""
        import torch

        return [("state", torch.default_generator.get_state().numpy())], None

    def restore(self, tensors: dict[str, numpy.ndarray], state: object) -> None:
        """Compares the generator with that of the checkpoint: the replay must have drawn what the recorded run drew."""
        ((_, now),), _ = self.capture()
        if (now != tensors["state"]).any():
            raise StreamDiffers("torch", None, None)
