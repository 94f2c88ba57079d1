"""Training loops of the script's own: what is said of them, once.

One that nothing intercepts runs as under python. A kill loses it, and `--exact` refuses it; that is said at the first step
of an optimizer. An import alone says nothing: many scripts import a framework and do not train with it.

One that is intercepted decides how long it trains: a plan (`searcher.max_steps`, `--steps`) cannot end it.
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


def keeps_its_length(calls, what):
    """Says that the trial's plan has no effect on a loop.

    Args:
        calls: the recorder.
        what: the call in it that trains.
    """
    if calls.trial.batches_left is not None:
        say_once(
            calls,
            "{}: {} in a loop of the script's own, which decides how long it trains; "
            "the number of steps has no effect on it".format(":".join(map(str, places.user_place(1))), what),
        )


def goes_on(calls):
    """Says that a loop has trained the trial's last step, and trains on."""
    say_once(calls, "the trial's last step was trained; a loop of the script's own goes on after it, and decides how long")


def say_once(calls, text):
    """Says something, if it was not said before."""
    if text not in _TOLD:
        _TOLD.add(text)
        calls.trial.log(text)
