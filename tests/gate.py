"""What `cargo dev test` leaves to `cargo dev test --all`: files whose tests prove the same mechanism on several stacks.

On the stacks below, each of these files repeats what another stack proves, by the same code of `py_hooks` and the same core.
`--all` runs it everywhere, and is run before an issue is called resolved and before a release. A file that is not named here
runs wherever its marks say, and so does a test that the other stack does not have.
"""

import collections

# Files that the stack `on` leaves to the stack `to`.
Left = collections.namedtuple("Left", ["on", "to", "files"])

LEFT = [
    # The same rows, entry points and core; another backend computes.
    Left(on="keras3-tensorflow", to="keras3-jax", files=[
        "commands/test_distribution.py",
        "commands/test_options.py",
        "commands/test_verify.py",
        "resume/test_divergence.py",
        "resume/test_plan.py",
        "resume/test_preemption.py",
        "resume/test_scripts_that_resume.py",
        "resume/test_step_callbacks.py",
        "trial_classes/test_examples.py",
        "trial_classes/test_keras_trial.py",
        "trial_classes/test_local.py",
    ]),
    # These do not depend on the framework that computes.
    Left(on="keras2-tensorflow1", to="keras3-jax", files=[
        "commands/test_events_stream.py",
        "commands/test_options.py",
        "commands/test_verify.py",
        "data/test_worker_memory.py",
        "data/test_worker_processes.py",
        "data/test_worker_server.py",
        "files/test_checkpoint_export.py",
        "files/test_clock.py",
        "files/test_terminal.py",
        "resume/test_moved_trial.py",
        "resume/test_plan.py",
        "resume/test_preemption.py",
        "resume/test_steps.py",
        "trial_classes/test_examples.py",
        "trial_classes/test_local.py",
    ]),
    # tf.keras of TensorFlow 1 has the same rows.
    Left(on="tfkeras-1.15", to="keras2-tensorflow1", files=[
        "data/test_data_adapter.py",
        "resume/test_plan.py",
        "resume/test_step_callbacks.py",
        "trial_classes/test_examples.py",
        "trial_classes/test_keras_trial.py",
        "trial_classes/test_local.py",
    ]),
    # The sessions are those of TensorFlow 1.
    Left(on="keras2.15-tensorflow2.15", to="keras2-tensorflow1", files=[
        "resume/test_session_loops.py",
    ]),
    # These do not depend on the framework that computes.
    Left(on="keras2.15-tensorflow2.15", to="keras3-jax", files=[
        "files/test_checkpoint_export.py",
        "resume/test_step_callbacks.py",
        "trial_classes/test_local.py",
    ]),
]


def is_left(stack, file, wanted, stacks):
    """Whether a stack leaves a test to another stack, which has the test too.

    No test is lost: the other one runs it, or leaves it to a third, and so on; `tests/hooks/test_gate.py` proves that this ends.

    Args:
        stack: where the test would run.
        file: its file, below `tests`.
        wanted: the names and tags of its mark.
        stacks: the stacks of the gate that this machine can run, `{name: tags}`.
    """
    others = [left.to for left in LEFT if left.on == stack and file in left.files]
    return any(other in stacks and not {other, *stacks[other]}.isdisjoint(wanted) for other in others)
