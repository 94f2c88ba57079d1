"""The trial that the script runs in, and the base of all trial classes."""
from __future__ import annotations

import abc
import copy
import inspect
from typing import Any, Callable

from pedl._context import context
from pedl.errors import DefinitionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from pedl.callback import Callback

# Names for the annotations of model definitions.
MetricOp = Callable[..., Any]
ValidOp = Callable[..., Any]


def get_trial_id() -> int:
    """The number of this trial in its experiment, from 1.

    Raises:
        NotUnderHost: the script does not run under pedl-run.
    """
    return context()["trial_id"]


def get_trial_seed() -> int:
    """The seed of this trial: 0 to 2**31 - 1, drawn at random once and kept over restarts.

    Raises:
        NotUnderHost: the script does not run under pedl-run.
    """
    return context()["trial_seed"]


class Trial(abc.ABC):  # noqa: B024 - what has to be defined is for each framework to say
    """The base of the trial classes of all frameworks. Derived classes need not call its `__init__`.

    Args:
        hparams: the hyperparameters of this trial, by name.
    """

    # The module with its training loop, whether it uses `make_data_loaders`, and the environment variable by which its
    # framework finds several processes that train one model.
    _loop: Any = None
    _has_data_loaders = True
    _ranks_by: str | None = None
    # Why `pedl.local` does not run classes that are derived from it; None if it does.
    _not_local: str | None = None

    def __init__(  # noqa: B027 - so that `super().__init__(hparams)` may be called
        self, hparams: dict[str, Any], *_: Any, **__: Any
    ) -> None:
        pass

    def callbacks(self, hparams: dict[str, Any]) -> Sequence[Callback]:
        """The callbacks around steps: a list of `pedl.callback.Callback`; none by default."""
        return []


def call_with(function: Any, **available: Any) -> Any:
    """Calls a function, or makes an object, with those of the arguments that it takes; by name, or by place.

    Definitions differ in whether they take `hparams`, and in what they call it. Each call gets copies,
    so that changes to `hparams` in one method do not affect the others.

    Raises:
        DefinitionError: it cannot be called, or needs more.
    """
    available = copy.deepcopy(available)
    what = f"`{getattr(function, '__qualname__', type(function).__name__)}`"
    if not callable(function):
        raise DefinitionError(f"{what} is an object of class `{type(function).__name__}`\n  expected: a function")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return function(*available.values())
    plain = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    named = {one.name: available[one.name] for one in plain if one.name in available and one.kind != one.POSITIONAL_ONLY}
    if named and all(one.name in named or one.default is not one.empty for one in plain):
        return function(**named, **_rest(parameters, named, available))
    if any(one.kind == one.VAR_POSITIONAL for one in parameters):
        return function(*available.values())
    places = [one for one in plain if one.kind != one.KEYWORD_ONLY][: len(available)]
    missing = [one.name for one in plain if one not in places and one.default is one.empty]
    if missing:
        raise DefinitionError(
            f"{what} takes `{'`, `'.join(one.name for one in plain)}`\n"
            f"  expected: at most `{'`, `'.join(available)}`, which is what it is given",
            f"leave out `{'`, `'.join(missing)}`, or give it a default",
        )
    given = dict(zip([one.name for one in places], available.items()))
    taken = [name for name, _ in given.values()]
    return function(*[value for _, value in given.values()], **_rest(parameters, taken, available))


def _rest(parameters: list[inspect.Parameter], taken: Container[str], available: dict[str, Any]) -> dict[str, Any]:
    """The arguments for `**` of a function."""
    takes_rest = any(one.kind == one.VAR_KEYWORD for one in parameters)
    return {name: value for name, value in available.items() if takes_rest and name not in taken}
