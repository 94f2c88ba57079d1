"""`TensorpackTrial`: known by its name, so that a definition with one is told that it cannot be run."""
from pedl.trial import Trial


class TensorpackTrial(Trial):
    """A model of tensorpack. It is not run: its trainers have loops, sessions and threads that feed them, of their own."""

    _unsupported = (
        "`TensorpackTrial` is not supported because the trainers of tensorpack have a loop of their own, and a thread that feeds "
        "it by a queue, whose place in the data checkpoints do not hold yet"
    )
