"""Recording and answering: the one place that knows whether a run computes or replays.

`recorder.py` has `Calls`, the Python half of the recorder, and `CALLS`, the one of this process. `entries.py` names the lines
of the script from which calls are made, `fingerprint.py` describes values, `exactness.py` collects the reasons why a resume
may not be exact, `step_callbacks.py` calls what a configuration or a definition has for steps, `forks.py` handles forked
children, and `loops.py` reports training that is not recorded.
"""
