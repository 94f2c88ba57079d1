"""The values that were chosen for this trial."""
from __future__ import annotations

from pedl._context import context
from pedl.errors import HyperparameterNotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The names that this process has asked for.
ASKED: set[str] = set()


def get_hyperparameter(name: str) -> Any:
    """This trial's value of a hyperparameter.

    May be called anywhere: in the script, while a module is imported, in a data worker process.

    Args:
        name: its name, as given with `--hp NAME=VALUE`, or in `hyperparameters` of the configuration.

    Returns:
        The value: a bool, int, float, str, None, or a list or dict of these.

    Raises:
        HyperparameterNotFound: there is none of this name; the message lists the existing ones.
        NotUnderHost: the script does not run under pedl-run.
    """
    values = context()["hyperparameters"]
    if name not in values:
        known = ", ".join(f"`{known}`" for known in sorted(values)) or "none"
        raise HyperparameterNotFound(
            f"this trial has no hyperparameter `{name}`\n"
            f"  known: {known}\n"
            f"  give it on the command line: pedl-run --hp {name}=VALUE ...\n"
            "  with `--config FILE`, add it to `hyperparameters` there"
        )
    ASKED.add(name)
    return values[name]


def get_hyperparameters() -> dict[str, Any]:
    """All of this trial's hyperparameters, as a new dict for each call.

    Raises:
        NotUnderHost: the script does not run under pedl-run.
    """
    values = dict(context()["hyperparameters"])
    ASKED.update(values)
    return values
