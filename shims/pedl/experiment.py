"""The experiment that the trial belongs to."""
from __future__ import annotations

from pedl._context import context

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def get_experiment_id() -> int:
    """The number of this experiment, from 1.

    Raises:
        NotUnderHost: the script does not run under pedl-run.
    """
    return context()["experiment_id"]


def get_experiment_config() -> dict[str, Any]:
    """The whole experiment configuration, with defaults filled in, as plain dicts and lists.

    Returns:
        A new dict for each call; empty if the run has no configuration (`--config`).

    Raises:
        NotUnderHost: the script does not run under pedl-run.
    """
    return context().get("configuration") or {}


def get_data_config() -> dict[str, Any]:
    """The section `data` of the experiment configuration: whatever the model code reads from it.

    Returns:
        A new dict for each call; empty if there is no such section, or no configuration.

    Raises:
        NotUnderHost: the script does not run under pedl-run.
    """
    return get_experiment_config().get("data") or {}
