"""Recording and answering: the one place that knows whether a run computes or replays.

`recorder.py` has `Calls`, the Python half of the recorder, and `CALLS`, the one of this process; `call_kinds.py` names the kinds
of calls. `boundary.py` does what is due after a call, `checkpoints.py` takes and restores checkpoints, `preemption.py` lets
signals act, `lifecycle.py` lists the moments at which others are called, and `ending.py` is the one way to end the process.

`exactness.py` collects the causes for which a resume may not be exact, `entries.py` names the lines of the script from which
calls are made, `fingerprint.py` describes values, `step_callbacks.py` calls what a configuration or a definition has for steps,
`forks.py` handles forked children, and `loops.py` reports training that is not recorded.
"""
