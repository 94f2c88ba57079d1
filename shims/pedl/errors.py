"""The exceptions of `pedl`."""
from __future__ import annotations


class Error(Exception):
    """Every error of this package."""


class NotUnderHost(Error):
    """The script does not run under `pedl-run`, so there is no trial to ask about."""


class HyperparameterNotFound(Error):
    """The trial has no hyperparameter of this name."""


class NothingDownloaded(Error):
    """The model definition has no `download_data`, or it was not called."""


def described(given: object) -> str:
    """How a message describes a value that is not the expected list: the classes of its items, or its own class."""
    if isinstance(given, (list, tuple)):
        return ", ".join(f"`{type(one).__name__}`" for one in given)
    return f"an object of class `{type(given).__name__}`"


class DefinitionError(Error):
    """A model definition that cannot be run.

    Args:
        message: what was found and what was expected, in lines.
        hint: what to do.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\n  {hint}")
        self.message = message
        self.hint = hint
