use serde_json::json;

use super::{Entrypoint, Experiment, Trial};

/// Sampling, bit-for-bit: `mnist_keras_simple/const.yaml`.
const CONST: &str = "
description: mnist-cnn-keras-entrypoint
hyperparameters:
  dropout: 0.25
  kernel_size: 3
  activation:
    type: categorical
    vals: [\"relu\", \"sigmoid\"]
searcher:
  name: single
  metric: val_loss
  max_steps: 1
entrypoint:
  script: mnist_cnn.py
max_restarts: 0
";

/// The ranges of `mnist_keras/random.yaml`.
const RANDOM: &str = "
hyperparameters:
  batch_size: {type: int, minval: 32, maxval: 64}
  dropout: {type: double, minval: 0.1, maxval: 0.5}
  learning_rate: {type: log, minval: -5.0, maxval: -1.0, base: 10}
  kernel_size: 3
  activation: {type: categorical, vals: [relu, sigmoid]}
searcher: {name: random, metric: accuracy, smaller_is_better: False, max_trials: 10, max_steps: 20}
";

/// The ranges of `mnist_keras_simple/adaptive.yaml`.
const ADAPTIVE: &str = "
hyperparameters:
  kernel_size: 3
  dropout: {type: double, minval: 0.10, maxval: 0.40}
  activation: {type: categorical, vals: [relu, sigmoid]}
searcher:
  {name: adaptive_simple, metric: val_loss, max_steps: 64, max_trials: 16, mode: standard, max_rungs: 2, divisor: 4}
";

fn read(text: &str) -> Experiment {
    Experiment::read("test.yaml", text).expect("a configuration")
}

fn problem(text: &str) -> String {
    Experiment::read("test.yaml", text)
        .expect_err("no configuration")
        .to_string()
}

fn trials(text: &str, seed: u32, number: usize) -> Vec<Trial> {
    read(text).trials(seed).take(number).collect()
}

#[test]
fn a_single_trial_is_drawn_as_the_reference_draws_it() {
    let found = trials(CONST, 42, 9);
    let expected = Trial {
        hyperparameters: json!({"activation": "relu", "dropout": 0.25, "kernel_size": 3})
            .as_object()
            .expect("a map")
            .clone(),
        id: "b33deacb-5c03-42f3-8e95-f52e6af463bb".to_owned(),
        seed: 1_201_263_687,
    };
    assert_eq!(found, [expected]);
}

#[test]
fn random_trials_are_drawn_as_the_reference_draws_them() {
    let found = trials(RANDOM, 42, 2);
    let expected = [
        (
            json!({"activation": "relu", "batch_size": 51, "dropout": 0.480_285_722_563_966_5,
                   "kernel_size": 3, "learning_rate": 0.008_471_801_418_819_973}),
            "bcae4199-142c-4b98-a6d6-f02779182272",
            669_991_378,
        ),
        (
            json!({"activation": "relu", "batch_size": 42, "dropout": 0.283_699_556_786_346_84,
                   "kernel_size": 3, "learning_rate": 0.000_216_189_424_065_744_26}),
            "67eb9224-973e-44b5-82a0-a0a695064505",
            242_285_876,
        ),
    ];
    for (found, (hyperparameters, id, seed)) in found.iter().zip(expected) {
        assert_eq!(json!(found.hyperparameters), hyperparameters);
        assert_eq!((found.id.as_str(), found.seed), (id, seed));
    }
    assert_eq!(trials(RANDOM, 42, 99).len(), 10);
}

#[test]
fn trials_of_an_adaptive_search_are_drawn_as_the_reference_draws_them() {
    let found = trials(ADAPTIVE, 300, 2);
    let expected = [
        (
            0.166_133_580_850_859_77,
            "ca96c28a-ea1b-4c5e-8974-7129d546704a",
            1_362_061_403,
        ),
        (
            0.310_112_338_025_971_7,
            "29d6236c-4ce1-43cf-b6a6-4ffe72359a66",
            1_230_653_662,
        ),
    ];
    for (found, (dropout, id, seed)) in found.iter().zip(expected) {
        assert_eq!(found.hyperparameters["activation"], json!("sigmoid"));
        assert_eq!(found.hyperparameters["dropout"], json!(dropout));
        assert_eq!((found.id.as_str(), found.seed), (id, seed));
    }
    assert_eq!(trials(ADAPTIVE, 300, 99).len(), 16);
}

#[test]
fn a_grid_has_a_trial_for_each_point_and_each_has_its_id() {
    let text = "
hyperparameters:
  dropout: {type: double, minval: 0.1, maxval: 0.5, count: 3}
  learning_rate: {type: log, minval: -4.0, maxval: -2.0, base: 10, count: 3}
  activation: {type: categorical, vals: [relu, sigmoid]}
searcher: {name: grid, metric: accuracy, max_steps: 20}
";
    let found = trials(text, 7, 99);
    assert_eq!(found.len(), 18);
    assert_eq!(read(text).number_of_trials(), Some(18));
    let last = json!({"activation": "sigmoid", "dropout": 0.5, "learning_rate": 0.01});
    assert_eq!(json!(found[17].hyperparameters), last);
    let mut ids: Vec<_> = found.iter().map(|trial| trial.id.clone()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 18);
}

#[test]
fn defaults_are_those_of_the_reference() {
    let found = read(CONST);
    assert_eq!(found.batches_per_step, 100);
    assert_eq!(found.max_restarts, 0);
    assert_eq!(
        (found.min_validation_period, found.min_checkpoint_period),
        (None, None)
    );
    assert_eq!(found.configuration["checkpoint_policy"], json!("best"));
    assert_eq!(
        found.configuration["resources"]["slots_per_trial"],
        json!(1)
    );
    assert_eq!(
        found.configuration["optimizations"]["mixed_precision"],
        json!("O0")
    );
    assert_eq!(found.configuration["data"], json!({}));
    assert_eq!(
        found.configuration["hyperparameters"]["dropout"],
        json!(0.25)
    );
    assert!(found.smaller_is_better);
    let script = Entrypoint::Script {
        script: "mnist_cnn.py".to_owned(),
        arguments: Vec::new(),
    };
    assert_eq!(found.entrypoint, Some(script));
    assert_eq!(read(RANDOM).max_restarts, 5);
}

/// Three ways to name the model code are accepted.
#[test]
fn every_generation_of_entrypoints_is_understood() {
    let searcher = "searcher: {name: single, metric: loss, max_steps: 1}\n";
    let of = |text: &str| read(&format!("{searcher}{text}")).entrypoint;
    assert_eq!(of(""), None);
    let trial = Some(Entrypoint::Trial("model_def:Trial".to_owned()));
    assert_eq!(of("entrypoint: model_def:Trial"), trial);
    assert_eq!(
        of("entrypoints: {trial_class: 'model_def:Trial', data_loaders_function: 'data:make'}"),
        trial
    );
    let script = Entrypoint::Script {
        script: "a/train.py".to_owned(),
        arguments: vec!["--lr".to_owned(), "1".to_owned()],
    };
    assert_eq!(
        of("entrypoint: {script: a/train.py, args: [--lr, 1]}"),
        Some(script)
    );
}

#[test]
fn what_only_a_cluster_needs_is_named_and_not_refused() {
    let text = format!("{CONST}resources: {{weight: 2, max_slots: 8, shm_size: 4294967296}}\n");
    assert_eq!(
        read(&text).unused,
        ["resources.weight", "resources.max_slots"]
    );
    assert_eq!(read(CONST).unused, Vec::<String>::new());
    assert_eq!(
        read(&format!("{CONST}internal: null\nsecurity: {{a: 1}}\n")).unused,
        ["security"]
    );
}

#[test]
fn numbers_of_checkpoints_need_no_storage() {
    let searcher = "searcher: {name: single, metric: loss, max_steps: 1}\n";
    let numbers = |text: &str| {
        let experiment = Experiment::read("const.yaml", &format!("{searcher}{text}"));
        let experiment = experiment.unwrap_or_else(|problem| panic!("{text}: {problem:?}"));
        let retention = experiment.retention;
        (
            retention.experiment_best,
            retention.trial_best,
            retention.trial_latest,
        )
    };
    assert_eq!(numbers(""), (0, 1, 1));
    assert_eq!(numbers("checkpoint_storage:\n"), (0, 1, 1));
    assert_eq!(numbers("checkpoint_storage: {}\n"), (0, 1, 1));
    let text = "checkpoint_storage: {save_trial_latest: 4, save_experiment_best: 2}\n";
    assert_eq!(numbers(text), (2, 1, 4));
}

#[test]
fn secrets_are_not_in_problems() {
    let text = "
checkpoint_storage: {type: s3, bucket: b, access_key: [AKIASECRET], secret_key: x}
searcher: {name: single, metric: loss, max_steps: 1}
";
    let found = problem(text);
    assert!(
        found.starts_with("`checkpoint_storage.access_key` is a list"),
        "{found}"
    );
    assert!(!found.contains("AKIASECRET"), "{found}");
}

#[test]
fn no_line_of_a_secret_is_shown() {
    let searcher = "searcher: {name: single, metric: loss, max_steps: 1}\n";
    let cases = [
        "environment:\n  environment_variables:\n  - AWS_SECRET_ACCESS_KEY=hunter2\n  - DEBUG\n",
        "environment:\n  environment_variables:\n  - AWS_SECRET_ACCESS_KEY: hunter2\n",
        "environment:\n  environment_variables:\n    - =hunter2\n",
        "checkpoint_storage:\n  type: s3\n  bucket: b\n  secret-key: hunter2\n",
        "checkpoint_storage:\n  type: s3\n  bucket: b\n  acess_key: hunter2\n",
        "checkpoint_storage:\n  type: s3\n  bucket: b\n  access_key:\n    - hunter2\n",
        "data: {password: 123456789012345678901hunter2}\nlabels: 1\n",
        "data:\n  Password: {a: b: hunter2}\n",
    ];
    for text in cases {
        let found = problem(&format!("{searcher}{text}"));
        assert!(!found.contains("hunter2"), "{found}");
    }
}

#[test]
fn a_problem_says_what_was_found_where_and_what_was_expected() {
    let found = problem("searcher:\n  name: single\n  metric: loss\n  max_step: 1\n");
    let expected = "`max_step` is not a field of `searcher`
  in test.yaml, line 4, column 3:
    4 |   max_step: 1
      |   ^^^^^^^^
  expected: `name`, `metric`, `smaller_is_better`, `max_steps`, `source_trial_id` or `source_checkpoint_uuid`
hint: write `max_steps`";
    assert_eq!(found, expected);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn each_way_to_be_wrong_has_its_message() {
    let searcher = "searcher: {name: single, metric: loss, max_steps: 1}\n";
    let cases = [
        (
            "batches_per_step: 0",
            "`batches_per_step` is `0`",
            "an integer, at least 1",
        ),
        (
            "batches_per_step: 1.5",
            "`batches_per_step` is `1.5`",
            "an integer, at least 1",
        ),
        (
            "batches_per_step: '100'",
            "`batches_per_step` is the text `100`",
            "an integer, at least 1",
        ),
        ("debug: yes", "`debug` is `yes`", "`true` or `false`"),
        ("data: [1]", "`data` is a list", "a map"),
        (
            "labels: a",
            "`labels` is `a`",
            "a list, each item text, not empty",
        ),
        ("labels: [a, '']", "`labels[1]` is ``", "text, not empty"),
        (
            "checkpoint_policy: bset",
            "`checkpoint_policy` is `bset`",
            "`best`, `all` or `none`",
        ),
        (
            "reproducibility: {experiment_seed: 2147483648}",
            "`reproducibility.experiment_seed` is `2147483648`",
            "an integer from 0 to 2147483647",
        ),
        (
            "hyperparameters: 3",
            "`hyperparameters` is `3`",
            "a map of hyperparameters by name",
        ),
        (
            "hyperparameters: {a: {type: uniform}}",
            "`hyperparameters.a.type` is `uniform`",
            "`const`, `int`, `double`, `log` or `categorical`",
        ),
        (
            "hyperparameters: {a: {type: int, minval: 1}}",
            "`hyperparameters.a.maxval` is missing",
            "an integer: above",
        ),
        (
            "hyperparameters: {a: {type: int, minval: 2, maxval: 2}}",
            "`hyperparameters.a` has a `minval` of 2",
            "`minval` below `maxval`",
        ),
        (
            "hyperparameters: {a: {type: categorical, vals: []}}",
            "`hyperparameters.a` has no values",
            "at least one",
        ),
        (
            "hyperparameters: {a: {b: {type: log, base: 0, minval: 1, maxval: 2}}}",
            "`hyperparameters.a.b.base` is `0`",
            "a number above 0",
        ),
        (
            "environment: {environment_variables: [A]}",
            "`environment.environment_variables` has an item",
            "NAME=VALUE",
        ),
        (
            "bind_mounts: [{host_path: a, container_path: b}]",
            "`bind_mounts[0].host_path` is `a`",
            "an absolute path",
        ),
        (
            "bind_mounts: [{host_path: /a, container_path: b}]",
            "`bind_mounts` is not something this version carries out",
            "`[]`, or the field left out",
        ),
        (
            "resources: {slots_per_trial: 4}",
            "`resources.slots_per_trial` is not something this version carries out",
            "`1`, or the field",
        ),
        (
            "optimizations: {mixed_precision: O1}",
            "`optimizations.mixed_precision` is not something",
            "`\"O0\"`",
        ),
        (
            "optimizations: {mixed_precision: 01}",
            "`optimizations.mixed_precision` is `1`",
            "`O0`, `O1`",
        ),
        (
            "checkpoint_storage: {type: gcs, bucket: b}",
            "`checkpoint_storage` is not something this version carries out with `type`",
            "the field left out",
        ),
        (
            "checkpoint_storage: {type: ftp}",
            "`checkpoint_storage.type` is `ftp`",
            "`shared_fs`, `s3`, `gcs` or `hdfs`",
        ),
        (
            "environment: {image: a:b}",
            "`environment.image` is not something",
            "the field left out",
        ),
        (
            "hyperparameters: {a: {tpye: double, minval: 1, maxval: 2}}",
            "`hyperparameters.a` has `minval` and no `type`",
            "a `type`: `const`",
        ),
        (
            "hyperparameters: {a: {type: log, base: 10, minval: 1, maxval: 400}}",
            "`hyperparameters.a` has a range too wide",
            "finite",
        ),
        (
            "resources: {max_slots: 0}",
            "`resources.max_slots` is `0`",
            "at least 1",
        ),
        (
            "seracher: 1",
            "`seracher` is not a field of the configuration",
            "`description`",
        ),
    ];
    for (text, what, expected) in cases {
        let found = problem(&format!("{searcher}{text}\n"));
        assert!(found.starts_with(what), "{text}: {found}");
        let line = found.lines().find(|line| line.starts_with("  expected: "));
        assert!(
            line.is_some_and(|line| line.contains(expected)),
            "{text}: {found}"
        );
    }
}

#[test]
fn searchers_are_checked_as_a_whole() {
    let cases = [
        ("", "`searcher` is missing"),
        (
            "searcher: {name: single, metric: loss}",
            "`searcher.max_steps` is missing",
        ),
        (
            "searcher: {metric: loss, max_steps: 1}",
            "`searcher.name` is missing",
        ),
        (
            "searcher: {name: hyperband, metric: loss}",
            "`searcher.name` is `hyperband`",
        ),
        (
            "searcher: {name: grid, metric: loss, max_steps: 1}\nhyperparameters: {a: {type: int, minval: 0, maxval: 9}}",
            "`hyperparameters.a` has no `count`",
        ),
        (
            "searcher: {name: grid, metric: loss, max_steps: 1}\n\
             hyperparameters: {a: {type: int, minval: 0, maxval: 9999, count: 2001}}",
            "the grid has 2001 trials",
        ),
        (
            "searcher: {name: adaptive, metric: loss, target_trial_steps: 4, step_budget: 4}",
            "`searcher.step_budget` is `4`",
        ),
        (
            "searcher: {name: adaptive, metric: loss, target_trial_steps: 4, step_budget: 5}",
            "`searcher.step_budget` has no trial for the bracket of 5 rungs",
        ),
        (
            "searcher: {name: adaptive_simple, metric: loss, max_steps: 4, max_trials: 5, max_rungs: 1000}",
            "`searcher.max_rungs` is `1000`",
        ),
    ];
    for (text, expected) in cases {
        let found = problem(text);
        assert!(found.starts_with(expected), "{text}: {found}");
    }
}
