"""torch's global generator on the CPU: what a call of the trial's draws from it, and what the script itself does.

Of a call that a replay does not make the global generator would not be drawn from. So each runs from a state of its own, and
the generator is put back before anything else draws: it sees only what the script itself draws, and is compared at the resume
point. What GPUs draw is set, where there are any, and not put back.
"""
from py_hooks.advice import owned_generators
from py_hooks.advice.random_streams import THREAD, CallStream, PrivateStream, StreamDiffers, in_row, mix, root_of_torch


class Drawing:
    """`with`: all draws are of a stream and of what goes by its key; then all generators are as they were before.

    A class, since a generator function takes some microseconds more at each batch.

    Args:
        stream: a `PrivateStream`, of the global functions of `random` and numpy.
        seed: of torch's global generator, a number of 64 bits.
        owned: generators besides the global ones, an `owned_generators.Rooted`; None without.
        has_gpu: there are global generators of GPUs, too.
    """

    __slots__ = ("_stream", "_seed", "_owned", "_has_gpu", "_generator", "_state")

    def __init__(self, stream, seed, owned=None, has_gpu=False):
        self._stream = stream
        self._seed = seed >> 1
        self._owned = owned_generators.Keyed(owned, stream.key) if owned else None
        self._has_gpu = has_gpu

    def __enter__(self):
        import torch

        if self._owned is not None:
            # First: what it cannot take the state of raises.
            self._owned.__enter__()
        self._stream.__enter__()
        self._generator = torch.default_generator
        self._state = self._generator.get_state()
        self._generator.manual_seed(self._seed)
        if self._has_gpu:
            torch.cuda.manual_seed_all(self._seed)

    def __exit__(self, *exception):
        self._generator.set_state(self._state)
        self._stream.__exit__(*exception)
        if self._owned is not None:
            self._owned.__exit__(*exception)


class BatchDrawing(PrivateStream):
    """`with drawing.of(number)`: a batch is trained, whose draws are of streams of its number.

    It is the stream of the global functions of `random` and numpy itself, and calls as little as it can: between two batches
    each call takes longer than where it is made again and again.

    To set torch's global generator, or to take its state, takes longer than all the rest. So it is set once its data is
    there, by `compute`: what data draws goes by places in a pass. And from one batch to the next it is left as it is; before
    anything else draws from it, `put_back` is called. In the loop of a `PyTorchTrial` that is what `Calls.at_due` tells of, and
    what `Training.alone` is for.

    Args:
        key: of the streams of all batches.
        first_seed: of the row of seeds of torch's generator (`in_row`).
        key_of_rank: follows the number of the batch in the key.
        owned: as of `Drawing`.
        has_gpu: as of `Drawing`.

    Attributes:
        of_data: torch's global generator, while a batch takes its data; else None. Who sets it then need not set it back.
    """

    __slots__ = (
        "_generator", "_state", "_is_running", "_seed", "_first_seed", "_of_batches", "_of_rank", "_generators", "_owned",
        "_has_gpu",
    )

    of_data = None

    def __init__(self, key, first_seed, key_of_rank, owned, has_gpu=False):
        import torch

        super().__init__(*key)
        self._generator = torch.default_generator
        # Of the generator before the first of the batches that have left it as they did.
        self._state = None
        self._is_running = False
        self._seed = self._first_seed = first_seed
        self._of_batches = key
        self._of_rank = key_of_rank
        self._generators = owned
        self._owned = None
        self._has_gpu = has_gpu

    def of(self, number):
        """The next batch is the one of this number."""
        self._seed = in_row(self._first_seed, number) >> 1
        self.begin((*self._of_batches, number, *self._of_rank))
        return self

    def __enter__(self):
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

    def _enter_owned(self):
        self._owned = owned_generators.Keyed(self._generators, self.key)
        try:
            self._owned.__enter__()
        except BaseException:
            self.put_back()
            raise

    def compute(self):
        """The data is there: from here on the batch draws from torch's global generator."""
        BatchDrawing.of_data = None
        self._generator.manual_seed(self._seed)
        if self._has_gpu:
            self._seed_gpus()

    def _seed_gpus(self):
        import torch

        torch.cuda.manual_seed_all(self._seed)

    def __exit__(self, kind, *exception):
        THREAD.stream = self._outer
        self._is_running = False
        if self._generators:
            self._owned.__exit__(kind, *exception)
        if kind is not None:
            BatchDrawing.of_data = None
            self.put_back()

    def put_back(self):
        """Has torch's global generator as it was before the first batch, unless one is under way."""
        if self._state is not None and not self._is_running:
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
        key = "torch", self._calls
        # As they are now: a replay comes to this call with the same.
        owned = owned_generators.Rooted(owned) if owned else None
        return Drawing(CallStream(*key), mix(*key, root_of_torch()), owned)

    def skip(self):
        """A compute call is answered."""
        self._calls += 1

    def capture(self):
        """The state: part of a checkpoint."""
        import torch

        return [("state", torch.default_generator.get_state().numpy())], None

    def restore(self, tensors, state):
        """Compares the generator with the checkpoint's: the replay must have drawn what the recorded run drew."""
        ((_, now),), _ = self.capture()
        if (now != tensors["state"]).any():
            raise StreamDiffers("torch", None, None)
