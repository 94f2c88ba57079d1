"""The trial that the script runs in, and the base of all trial classes."""
import abc
import inspect
from typing import Any, Callable

from pedl._context import context

# What annotations of model definitions name.
MetricOp = Callable[..., Any]
ValidOp = Callable[..., Any]


def get_trial_id():
    """The number of this trial in its experiment, from 1.

    Raises:
        NotUnderHost: the script does not run under pedl-run.
    """
    return context()["trial_id"]


def get_trial_seed():
    """The seed of this trial: 0 to 2**31 - 1, drawn at random once and kept over restarts.

    Raises:
        NotUnderHost: the script does not run under pedl-run.
    """
    return context()["trial_seed"]


class Trial(abc.ABC):  # noqa: B024 - what has to be defined is for each framework to say
    """What the trial classes of all frameworks have. Classes that are derived from one need not call `__init__` of it.

    Args:
        hparams: the hyperparameters of this trial, by name.
    """

    # The module that runs it, and whether `make_data_loaders` is for it.
    _controller = None
    _has_data_loaders = True

    def __init__(self, hparams, *_, **__):  # noqa: B027 - so that `super().__init__(hparams)` may be called
        pass

    def callbacks(self, hparams):
        """What is called around steps: a list of `pedl.callback.Callback`; none by default."""
        return []


def call_with(function, **available):
    """Calls a function, or makes an object, with those of the arguments that it takes; by name, or by place.

    Definitions differ in whether `hparams` is given (contract.md 1.8, 5).
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return function(*available.values())
    kinds = {parameter.kind for parameter in parameters}
    if inspect.Parameter.VAR_KEYWORD in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        return function(**available)
    plain = [one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    named = {one.name: available[one.name] for one in plain if one.name in available}
    if named and all(one.name in named or one.default is not one.empty for one in plain):
        return function(**named)
    count = len(available) if inspect.Parameter.VAR_POSITIONAL in kinds else len(plain)
    return function(*list(available.values())[:count])
