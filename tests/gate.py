"""What `cargo dev test` leaves to `cargo dev test --all`: files whose tests prove the same mechanism on several stacks.

Each of these files runs in the gate on one stack at least, the one on which it is fastest or says most. On the stacks below it
repeats what that one proves, by the same code of `py_hooks` and the same core. `--all` runs it everywhere, and is run before an
issue is called resolved and before a release. A file that is not named here runs wherever its marks say.
"""

LEFT = {
    # keras3-jax has these: the same rows, entry points and core; another backend computes.
    "keras3-tensorflow": (
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
    ),
    # keras3-jax has these, which do not depend on the framework that computes.
    "keras2-tensorflow1": (
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
    ),
    # keras2-tensorflow1 has these: tf.keras of TensorFlow 1 has the same rows.
    "tfkeras-1.15": (
        "data/test_data_adapter.py",
        "resume/test_plan.py",
        "resume/test_step_callbacks.py",
        "trial_classes/test_examples.py",
        "trial_classes/test_keras_trial.py",
        "trial_classes/test_local.py",
    ),
    # keras2-tensorflow1 has the sessions, keras3-jax the rest.
    "keras2.15-tensorflow2.15": (
        "files/test_checkpoint_export.py",
        "resume/test_session_loops.py",
        "resume/test_step_callbacks.py",
        "trial_classes/test_local.py",
    ),
}
