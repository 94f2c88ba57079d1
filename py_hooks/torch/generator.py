"""torch's global generator on the CPU: what a call of the trial's draws from it, and what the script itself does.

Of a call that a replay does not make the global generator would not be drawn from. So each runs from a state of its own, and
the generator is put back afterwards: it sees only what the script itself draws, and is compared at the resume point.
"""
from py_hooks.advice.random_streams import StreamDiffers, hash_of, mix


class Seeded:
    """`with Seeded(seed)`: torch's global generator draws from a state of its own.

    Args:
        seed: a number of 64 bits.
    """

    __slots__ = ("_seed", "_generator", "_state")

    def __init__(self, seed):
        self._seed = seed

    def __enter__(self):
        import torch

        self._generator = generator = torch.default_generator
        self._state = generator.get_state()
        generator.manual_seed(self._seed >> 1)

    def __exit__(self, *exception):
        self._generator.set_state(self._state)


class TorchGenerator:
    """torch's global generator on the CPU: part of a checkpoint, and apart from what compute calls draw."""

    def __init__(self):
        self._calls = 0

    def own_state(self):
        """`with`: a compute call runs, from a state of its own."""
        self._calls += 1
        return Seeded(mix("torch", self.hash(), self._calls))

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
