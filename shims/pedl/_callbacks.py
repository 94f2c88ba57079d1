"""Calls what users give as callbacks of steps, of trial classes and of scripts (contract.md C1 to C12)."""
import copy
import os

from pedl import _context
from pedl.callback import Callback
from pedl.errors import DefinitionError, described


class Callbacks:
    """What is called around steps.

    Args:
        callbacks: what the user gave, which is to be a list of `pedl.callback.Callback`.
        source: what has given it, as a message names it.

    Raises:
        DefinitionError: it is no list of callbacks.
    """

    def __init__(self, callbacks, source):
        if not isinstance(callbacks, (list, tuple)) or not all(isinstance(one, Callback) for one in callbacks):
            raise DefinitionError(
                f"{source} {described(callbacks)}\n  expected: a list of `pedl.callback.Callback`",
                "derive them from `pedl.callback.Callback`; those of Keras belong into `keras_callbacks`, or into its `fit`",
            )
        self._callbacks = list(callbacks)

    def __len__(self):
        return len(self._callbacks)

    def add(self, others):
        """Has those of another `Callbacks` called behind these."""
        self._callbacks += others._callbacks

    def call(self, hook, *args):
        """Calls a hook of each, in their order."""
        for callback in self._callbacks:
            # Each gets its own: what one does with it is nothing to the others.
            getattr(callback, hook)(*map(_copied, args))


# What nobody can change.
_NUMBERS_AND_TEXTS = frozenset((int, float, str, bool, type(None)))


def _copied(value):
    """A deep copy. Of the metrics of a step, which are many dicts of few numbers, in a fraction of the time of `deepcopy`."""
    kind = type(value)
    if kind in _NUMBERS_AND_TEXTS:
        return value
    if kind is list:
        return [_copied(one) for one in value]
    if kind is dict:
        return {name: one if type(one) in _NUMBERS_AND_TEXTS else _copied(one) for name, one in value.items()}
    return copy.deepcopy(value)


def register(callbacks):
    """Has `Callbacks` called by the process that trains. There the host puts its own in the place of this.

    Raises:
        NotUnderHost: the script does not run under pedl-run.
    """
    if _context.VARIABLE not in os.environ:
        # It raises, and says how the script is started.
        _context.context()


def callbacks(*given):
    """Has callbacks called around the steps of the script's training, in their order.

    It is called before training begins; a further call adds to those of the first. What they are told, and when:
    `pedl.callback.Callback`. Metrics of a step are the numbers of each batch, by the framework's names;
    validations are those that a `fit` makes. In another process of the script's, which trains nothing, it does nothing.

    Args:
        given: objects of classes that are derived from `pedl.callback.Callback`.

    Raises:
        DefinitionError: something else was given; training has begun; or a trial class is run, which has a method for it.
        NotUnderHost: the script does not run under pedl-run.

    Example:
        pedl.callbacks(TensorBoard("logs"))
        model.fit(...)
    """
    register(Callbacks(given, "`pedl.callbacks` was given"))
