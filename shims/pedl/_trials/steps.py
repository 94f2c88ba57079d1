"""Steps of a trial: calls the user's callbacks around them, in their order (contract.md C1 to C12)."""
import copy

from pedl.callback import Callback
from pedl.errors import DefinitionError


class Steps:
    """Counts the batches of steps.

    Args:
        callbacks: what the trial's `callbacks` returned.
        batches_per_step: how many batches are a step.

    Raises:
        DefinitionError: it is no list of callbacks.
    """

    def __init__(self, callbacks, batches_per_step):
        if not isinstance(callbacks, (list, tuple)) or not all(isinstance(one, Callback) for one in callbacks):
            kinds = (
                ", ".join(f"`{type(one).__name__}`" for one in callbacks)
                if isinstance(callbacks, (list, tuple))
                else f"an object of class `{type(callbacks).__name__}`"
            )
            raise DefinitionError(
                f"`callbacks` returned {kinds}\n  expected: a list of `pedl.callback.Callback`",
                "derive them from `pedl.callback.Callback`; those of Keras belong into `keras_callbacks`",
            )
        self._callbacks = callbacks
        self._size = batches_per_step
        self._batches = 0
        self._of_step = []

    @property
    def has_callbacks(self):
        """Whether anybody is told."""
        return bool(self._callbacks)

    @property
    def completed(self):
        """How many steps were made."""
        return self._batches // self._size

    def batch_begins(self):
        """A batch is to be trained."""
        if self._batches == 0:
            self._call("on_trial_begin")
        if self._batches % self._size == 0:
            self._of_step = []
            self._call("on_train_step_begin", self.completed + 1)

    def batch_ended(self, metrics):
        """A batch was trained, with such metrics."""
        self._batches += 1
        self._of_step.append(metrics)
        if self._batches % self._size == 0:
            self._call("on_train_step_end", self.completed, self._of_step)

    def validation_begins(self):
        """The model is to be validated."""
        self._call("on_validation_step_begin", self.completed)

    def validated(self, metrics):
        """The model was validated, with such metrics."""
        self._call("on_validation_step_end", self.completed, metrics)

    def _call(self, hook, *args):
        for callback in self._callbacks:
            # Each gets its own: what one does with it is nothing to the others.
            getattr(callback, hook)(*copy.deepcopy(args))
