"""Hyperparameters that nobody has asked for: a misspelt `--hp` would train with the default, and without a word."""
import atexit
import json
import os
import sys


def watch(trial, offer):
    """Has it told at the end of this process.

    Args:
        trial: the native trial.
        offer: returns what is offered to the parsers of the script; None where it has none.
    """
    from pedl import _context

    # A configuration names what a definition, or another trial of the search, asks for.
    if _context.context().get("configuration") is None:
        atexit.register(_tell, trial, offer, os.getpid())


def _tell(trial, offer, pid):
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
