"""Checks a trial class, and finds its loop."""
from __future__ import annotations

import importlib

from pedl.errors import DefinitionError
from pedl.trial import Trial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def check_class(found: Any, entrypoint: object) -> None:
    """Checks that an object is a trial class, and that it is complete.

    Args:
        found: the object.
        entrypoint: how it was named.

    Raises:
        DefinitionError: it is none, or lacks methods.
    """
    if not isinstance(found, type) or not issubclass(found, Trial):
        is_object = not isinstance(found, type)
        what = f"an object of class `{type(found).__name__}`" if is_object else f"the class `{found.__name__}`"
        raise DefinitionError(
            f"`{entrypoint}` is {what}, which is no trial class\n"
            "  expected: a class that is derived from one of `pedl.frameworks`, such as `TFKerasTrial`",
            "derive it, or correct `entrypoint`",
        )
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        raise DefinitionError(
            f"the trial class `{found.__name__}` lacks {listed(missing)}\n"
            f"  expected: all abstract methods of `{_base_of(found).__name__}`",
            f"define {listed(missing)} in `{found.__name__}`",
        )


def _base_of(cls: type) -> type:
    """The nearest base that is part of `pedl`."""
    return next(base for base in cls.__mro__ if base.__module__.partition(".")[0] == "pedl")


def loop_of(trial_class: type[Trial]) -> Any:
    """The module with the loop of a trial class."""
    return importlib.import_module(trial_class._loop)


def listed(names: list[str]) -> str:
    """Names in a text, in their order."""
    return ", ".join(f"`{name}`" for name in names) if names else "nothing"
