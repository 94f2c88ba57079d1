"""Reports hyperparameters that nothing has asked for: a misspelt `--hp` would silently train with the default."""
from __future__ import annotations

import atexit
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from _pedl import Trial

    from py_hooks.options.offer import Offer


def watch(trial: Trial, offer: Callable[[], Offer | None]) -> None:
    """Has them reported at the end of this process.

    Args:
        trial: the native trial.
        offer: returns what is offered to the parsers of the script; None if nothing is offered.
    """
    from pedl import _context

    # The hyperparameters of a configuration may be for a definition, or for another trial of the search.
    if _context.context().get("configuration") is None:
        atexit.register(_tell, trial, offer, os.getpid())


def _tell(trial: Trial, offer: Callable[[], Offer | None], pid: int) -> None:
    if os.getpid() != pid:
        return
    module = sys.modules.get("pedl.hyperparameters")
    asked = set(getattr(module, "ASKED", ()))
    if offer() is not None:
        asked |= offer().taken()
    for name in sorted(set(json.loads(trial.hyperparameters)) - asked):
        trial.log(
            f"the hyperparameter `{name}` of `--hp` was asked for by nobody: the script has no option of this name, and "
            f"has not called `pedl.get_hyperparameter({name!r})`"
        )
