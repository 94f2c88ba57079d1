"""torch's global generator on the CPU: what a call of the trial's draws from it, and what the script itself does.

Of a call that a replay does not make the global generator would not be drawn from. So each runs from a state of its own, and
the generator is put back afterwards: it sees only what the script itself draws, and is compared at the resume point.
"""
from py_hooks.advice import owned_generators
from py_hooks.advice.random_streams import CallStream, PrivateStream, StreamDiffers, hash_of, in_row, mix


class Drawing:
    """`with`: all draws are of a stream and of what goes by its key; then all generators are as they were before.

    A class, since a generator function takes some microseconds more at each batch.

    Args:
        stream: a `PrivateStream`, of the global functions of `random` and numpy.
        seed: of torch's global generator, a number of 64 bits.
        owned: generators besides the global ones.

    Attributes:
        seed: as given.
    """

    __slots__ = ("_stream", "seed", "_owned", "_generator", "_state")

    def __init__(self, stream, seed, owned=()):
        self._stream = stream
        self.seed = seed
        self._owned = owned_generators.Keyed(owned, stream.key) if owned else None

    def __enter__(self):
        import torch

        if self._owned is not None:
            # First: what it cannot take the state of raises.
            self._owned.__enter__()
        self._stream.__enter__()
        self._generator = generator = torch.default_generator
        self._state = generator.get_state()
        generator.manual_seed(self.seed >> 1)

    def __exit__(self, *exception):
        self._generator.set_state(self._state)
        self._stream.__exit__(*exception)
        if self._owned is not None:
            self._owned.__exit__(*exception)


class BatchDrawing(Drawing):
    """`with drawing.of(number)`: a batch is trained, whose draws are of streams of its number.

    To set torch's global generator, or to take its state, takes longer than all the rest. So it is set once its data is
    there, by `begin`: what data draws goes by places in a pass. And from one batch to the next it is left as it is; before
    anything else draws from it, `put_back` is called.

    Args:
        key: of the streams of all batches.
        first_seed: of the row of seeds of torch's generator (`in_row`).
        key_of_rank: follows the number of the batch in the key.
        owned: generators besides the global ones.

    Attributes:
        is_awaited: a batch takes its data. Who sets the global generator then need not set it back.
    """

    __slots__ = ("_generators", "_key", "_key_of_rank", "_first_seed")

    is_awaited = False

    def __init__(self, key, first_seed, key_of_rank, owned):
        super().__init__(PrivateStream(), first_seed)
        # Of the generator before the first of the batches that have left it as they did.
        self._state = None
        self._key = key
        self._key_of_rank = key_of_rank
        self._first_seed = first_seed
        self._generators = owned

    def of(self, number):
        """The next batch is the one of this number."""
        self.seed = in_row(self._first_seed, number)
        self._stream.begin((*self._key, number, *self._key_of_rank))
        if self._generators:
            self._owned = owned_generators.Keyed(self._generators, self._stream.key)
        return self

    def __enter__(self):
        import torch

        if self._owned is not None:
            self._owned.__enter__()
        self._stream.__enter__()
        self._generator = torch.default_generator
        if self._state is None:
            self._state = self._generator.get_state()
        BatchDrawing.is_awaited = True
        return self

    def begin(self):
        """The data is there: from here on the batch draws from torch's global generator."""
        BatchDrawing.is_awaited = False
        self._generator.manual_seed(self.seed >> 1)

    def __exit__(self, kind, *exception):
        BatchDrawing.is_awaited = False
        self._stream.__exit__(kind, *exception)
        if self._owned is not None:
            self._owned.__exit__(kind, *exception)
        if kind is not None:
            self.put_back()

    def put_back(self):
        """Between two batches: torch's global generator is as it was before the first of them."""
        if self._state is not None and not BatchDrawing.is_awaited:
            state, self._state = self._state, None
            self._generator.set_state(state)


class TorchGenerator:
    """torch's global generator on the CPU: part of a checkpoint, and apart from what compute calls draw."""

    def __init__(self):
        self._calls = 0

    def own_state(self, owned=()):
        """`with`: a compute call runs, and draws from streams of its own.

        Args:
            owned: generators besides the global ones, which it draws from too.
        """
        self._calls += 1
        key = "torch", self.hash(), self._calls
        return Drawing(CallStream(*key), mix(*key), owned)

    def skip(self):
        """A compute call is answered."""
        self._calls += 1

    def hash(self):
        """A number of 64 bits of the state."""
        import torch

        return hash_of(torch.default_generator.get_state().numpy().tobytes())

    def capture(self):
        """The state: part of a checkpoint."""
        import torch

        return [("state", torch.default_generator.get_state().numpy())], None

    def restore(self, tensors, state):
        """Compares the generator with the checkpoint's: the replay must have drawn what the recorded run drew."""
        ((_, now),), _ = self.capture()
        if (now != tensors["state"]).any():
            raise StreamDiffers("torch", None, None)
