"""torch's global generator on the CPU: what a call of the trial's draws from it, and what the script itself does.

Of a call that a replay does not make the global generator would not be drawn from. So each runs from a state of its own, and
the generator is put back afterwards: it sees only what the script itself draws, and is compared at the resume point.
"""
from py_hooks.advice import owned_generators
from py_hooks.advice.random_streams import CallStream, StreamDiffers, hash_of, mix


class Drawing:
    """`with`: all draws are of a stream and of what goes by its key; then all generators are as they were before.

    A class, since a generator function takes some microseconds more at each batch.

    Args:
        stream: a `PrivateStream`, of the global functions of `random` and numpy.
        seed: of torch's global generator, a number of 64 bits.
        owned: generators besides the global ones.
    """

    __slots__ = ("_stream", "_seed", "_owned", "_generator", "_state")

    def __init__(self, stream, seed, owned=()):
        self._stream = stream
        self._seed = seed
        self._owned = owned_generators.Keyed(owned, stream.key) if owned else None

    def __enter__(self):
        import torch

        if self._owned is not None:
            # First: what it cannot take the state of raises.
            self._owned.__enter__()
        self._stream.__enter__()
        self._generator = generator = torch.default_generator
        self._state = generator.get_state()
        generator.manual_seed(self._seed >> 1)

    def __exit__(self, *exception):
        self._generator.set_state(self._state)
        self._stream.__exit__(*exception)
        if self._owned is not None:
            self._owned.__exit__(*exception)


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
