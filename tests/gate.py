"""What `cargo dev test` leaves to `cargo dev test --all`: files whose tests prove the same mechanism on several stacks.

Each of these files runs in the gate on one stack at least, the one on which it is fastest or says most. On the stacks below it
repeats what that one proves, by the same code of `py_hooks` and the same core. `--all` runs it everywhere, and is run before an
issue is called resolved and before a release. A file that is not named here runs wherever its marks say, and so does each test
of `ONLY_HERE`.
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

# Tests in these files that no other stack of the gate has.
ONLY_HERE = frozenset([
    "test_a_folder_is_a_saved_model",
    "test_a_graph_has_one_too_and_the_graph_of_the_process_stays_as_it_was",
    "test_a_loop_over_sessions_is_identical",
    "test_a_move_to_no_workers_where_keras_then_trains_otherwise_is_no_drift",
    "test_a_planted_fault_is_named_in_a_graph",
    "test_a_script_on_tensorflow_is_identical",
    "test_an_estimator_whose_hook_ends_its_step_has_no_checkpoint",
    "test_arrays_validate_a_fit_on_a_generator",
    "test_c10_c11_what_tensorboard_reads_is_there_once_after_a_kill",
    "test_k17_data_is_downloaded_once_and_before_the_loaders_are_made",
    "test_k1_a_killed_trial_of_tf_keras_is_the_undisturbed_one",
    "test_k1_a_trial_of_tf_keras_has_keras_names",
    "test_k20_a_model_that_is_not_compiled_is_refused",
    "test_k3_a_killed_trial_with_datasets_of_tensorflow_is_the_undisturbed_one",
    "test_k3_k6_datasets_of_tensorflow_are_trained_on_and_validated_on",
    "test_k3_one_data_set_of_tensorflow",
    "test_k5_servers_of_parameters_are_refused_and_one_worker_is_alone",
    "test_k5_several_workers_are_refused_where_they_would_not_share_the_data",
    "test_keras2_fit_generator_images_learns_to_read_digits",
    "test_so_has_an_estimator_with_what_it_exports",
])
