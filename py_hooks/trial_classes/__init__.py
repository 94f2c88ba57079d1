"""The program that Python runs in a model definition for `pedl-run --config FILE DIR`, in place of a script.

It runs like a script, and again from its first line after a crash: its calls into a framework are recorded and answered
like those of a script. So a trial has no other machinery: its steps, checkpoints, exact resume, preemption and output are
those of scripts. What it raises is treated as what a script raises (`engine/guard.py`).

The room imports `pedl`, as a script does, and nothing of `py_hooks`: `boot/process.py` hands it the host that records
(`boot/trial_host.py`). Nothing of it is imported for a script. The training loops that `pedl.local` runs too are in
`shims/pedl/_loops`; the room has what runs only here.
"""
