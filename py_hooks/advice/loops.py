"""Training loops that nothing intercepts: said once, at the first step of an optimizer.

Such a loop runs as under python. A kill loses it, and `--exact` refuses it. An import alone says nothing: many scripts
import a framework and do not train with it.
"""
from py_hooks.advice import calls as recorder
from py_hooks.advice import places

# What has been said.
_TOLD = set()


def tell(holder, what, hint):
    """Says what is not intercepted, once; or ends the process, where `--exact` was given.

    Args:
        holder: what has the trial, and `at_stop` for the end: the recorder, or what `boot` knows of this process.
        what: the half sentence.
        hint: what would help with `--exact`.
    """
    if what in _TOLD:
        return
    _TOLD.add(what)
    if not holder.trial.exact:
        holder.trial.log(f"{what}: it trains as under python, and a kill loses that")
        return
    file, line = places.user_place(1)
    recorder.stop(
        holder,
        77,
        f"`--exact` was given, and {what}\n  at {file}:{line}\n  the script was stopped before this step",
        hint,
    )
