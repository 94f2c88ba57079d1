"""Calls the users' callbacks of steps, of trial classes and of scripts (rules C1 to C12)."""
from __future__ import annotations

import copy

from pedl import _context, _host
from pedl.callback import Callback
from pedl.errors import DefinitionError, described

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Callbacks:
    """The callbacks that are called around steps.

    Args:
        callbacks: the value that the user gave; it has to be a list of `pedl.callback.Callback`.
        source: the beginning of a message, which names the source of the value.

    Raises:
        DefinitionError: it is no list of callbacks.
    """

    def __init__(self, callbacks: object, source: str) -> None:
        if not isinstance(callbacks, (list, tuple)) or not all(isinstance(one, Callback) for one in callbacks):
            raise DefinitionError(
                f"{source} {described(callbacks)}\n  expected: a list of `pedl.callback.Callback`",
                "derive them from `pedl.callback.Callback`; those of Keras belong into `keras_callbacks`, or into its `fit`",
            )
        self._callbacks: list[Callback] = list(callbacks)

    def __len__(self) -> int:
        return len(self._callbacks)

    def add(self, others: Callbacks) -> None:
        """Has those of another `Callbacks` called after these."""
        self._callbacks += others._callbacks

    def call(self, hook: str, *args: object) -> None:
        """Calls a hook of each, in their order."""
        for callback in self._callbacks:
            # Each gets a copy, so that changes by one do not affect the others.
            getattr(callback, hook)(*map(_copied, args))


# Types of values that cannot be changed.
_NUMBERS_AND_TEXTS = frozenset((int, float, str, bool, type(None)))


def _copied(value: Any) -> Any:
    """A deep copy. For the metrics of a step, many dicts of few numbers, it takes a fraction of the time of `deepcopy`."""
    kind = type(value)
    if kind in _NUMBERS_AND_TEXTS:
        return value
    if kind is list:
        return [_copied(one) for one in value]
    if kind is dict:
        return {name: one if type(one) in _NUMBERS_AND_TEXTS else _copied(one) for name, one in value.items()}
    return copy.deepcopy(value)


def callbacks(*given: Callback) -> None:
    """Has callbacks called around the steps of the script's training, in their order.

    Call it before training begins; a further call adds callbacks. `pedl.callback.Callback` explains the hooks and their
    arguments. Metrics of a step are the numbers of each batch, by the framework's names; validations are those that a `fit`
    makes. In another process of the script, which trains nothing, it does nothing.

    Args:
        given: objects of classes that are derived from `pedl.callback.Callback`.

    Raises:
        DefinitionError: something else was given; training has begun; or a trial class runs, which has a method for it.
        NotUnderHost: the script does not run under pedl-run.

    Example:
        pedl.callbacks(TensorBoard("logs"))
        model.fit(...)
    """
    registered = Callbacks(given, "`pedl.callbacks` was given")
    if _host.current is not None:
        _host.current.register_callbacks(registered)
    else:
        # This raises `NotUnderHost`, with the command that starts the script, unless pedl-run runs it in another process.
        _context.context()
