"""torch's global generator on the CPU: what a call of the trial's draws from it, and what the script itself does.

Of a call that a replay does not make the global generator would not be drawn from. So each runs from a state of its own, and
the generator is put back afterwards: it sees only what the script itself draws, and is compared at the resume point.
"""
import contextlib

from py_hooks.advice import owned_generators
from py_hooks.advice.random_streams import CallStream, StreamDiffers, hash_of, mix


@contextlib.contextmanager
def drawing_from(seed):
    """Within it torch's global generator draws from a state of its own.

    Args:
        seed: a number of 64 bits.
    """
    import torch

    generator = torch.default_generator
    state = generator.get_state()
    generator.manual_seed(seed >> 1)
    try:
        yield
    finally:
        generator.set_state(state)


class TorchGenerator:
    """torch's global generator on the CPU: part of a checkpoint, and apart from what compute calls draw."""

    def __init__(self):
        self._calls = 0

    @contextlib.contextmanager
    def own_state(self, owned=()):
        """Within it a compute call runs, and draws from streams of its own.

        Args:
            owned: generators besides the global ones, which it draws from too.
        """
        self._calls += 1
        key = "torch", self.hash(), self._calls
        keyed = owned_generators.Keyed(owned, lambda number: mix("owned", number, *key))
        with CallStream(*key), drawing_from(mix(*key)), keyed:
            yield

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
