//! `--config`: simple model definitions (rules P1, P3, P4, P6 and P9), without a
//! framework.

use crate::support::{Dir, Output, run_in};

const SEARCH: &str = "searcher: {name: single, metric: loss, max_steps: 1}\n";

/// Prints what a script can query, and its directory.
const TELL: &str = "import json, os, sys, pedl\n\
    print(json.dumps({\n\
        'argv': sys.argv, 'name': __name__, 'here': os.path.basename(os.getcwd()),\n\
        'lr': pedl.get_hyperparameter('lr'), 'data': pedl.get_data_config(),\n\
        'description': pedl.get_experiment_config().get('description'),\n\
        'steps': pedl.util.get_experiment_config()['searcher']['max_steps'],\n\
        'trial': pedl.get_trial_id(), 'seed': pedl.get_trial_seed(),\n\
    }))\n";

/// A directory with a model definition in `model`, and its configuration beside it.
fn definition(configuration: &str) -> Dir {
    let directory = Dir::new();
    directory.write("model/train.py", TELL);
    directory.write("c.yaml", configuration);
    directory
}

fn told(output: &Output) -> serde_json::Value {
    let line = output.stdout.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {output}"))
}

#[track_caller]
fn assert_refused(directory: &Dir, arguments: &[&str], expected: &str) {
    let before = directory.list();
    let output = run_in(directory, arguments).assert_code(65);
    let output = output.assert_stderr(expected);
    assert_eq!(output.stdout, "");
    assert_eq!(directory.list(), before);
}

#[test]
fn p1_p9_a_directory_is_run_by_its_entrypoint_as_main_and_in_it() {
    let directory = definition(&format!(
        "description: a try\ndata: {{path: /d}}\nhyperparameters: {{lr: 0.5}}\n\
         entrypoint: {{script: train.py, args: [--epochs, 3]}}\n\
         reproducibility: {{experiment_seed: 42}}\n{SEARCH}"
    ));
    let output = run_in(&directory, &["--config", "c.yaml", "model", "--fast"]).assert_code(0);
    let expected = serde_json::json!({
        "argv": ["train.py", "--epochs", "3", "--fast"],
        "name": "__main__",
        "here": "model",
        "lr": 0.5,
        "data": {"path": "/d"},
        "description": "a try",
        "steps": 1,
        "trial": 1,
        "seed": 996_406_378,
    });
    assert_eq!(told(&output), expected);
    // Nothing was trained, so there is no trace.
    assert_eq!(directory.list(), ["c.yaml", "model"]);
}

#[test]
fn p3_a_directory_needs_an_entrypoint() {
    let directory = definition(&format!("hyperparameters: {{lr: 0.5}}\n{SEARCH}"));
    assert_refused(
        &directory,
        &["--config", "c.yaml", "model"],
        "pedl: error: there is no `entrypoint` in c.yaml\n  \
         `model` has no `__init__.py`, whose trial class could be taken\n  \
         expected: an `entrypoint`, which says what in it is run\n\
         hint: add `entrypoint: {script: train.py}` or `entrypoint: module:TrialClass`, or run `model/train.py`\n",
    );
}

#[test]
fn a_script_needs_no_entrypoint_and_stays_where_it_is() {
    let directory = definition(&format!("hyperparameters: {{lr: 0.5}}\n{SEARCH}"));
    let output = run_in(&directory, &["--config", "c.yaml", "model/train.py", "a"]).assert_code(0);
    let told = told(&output);
    assert_eq!(told["argv"], serde_json::json!(["model/train.py", "a"]));
    assert_ne!(told["here"], "model");
}

#[test]
fn another_script_than_the_entrypoint_is_refused() {
    let directory = definition(&format!("entrypoint: {{script: main.py}}\n{SEARCH}"));
    assert_refused(
        &directory,
        &["--config", "c.yaml", "model/train.py"],
        "pedl: error: `entrypoint.script` is `main.py` in c.yaml\n  \
         the command runs `model/train.py`\n\
         hint: name the same script in both, or leave `entrypoint` out\n",
    );
    assert_refused(
        &directory,
        &["--config", "c.yaml", "model"],
        "pedl: error: `entrypoint.script` is `main.py` in c.yaml\n  \
         expected: a script in `model`\n  there is: `train.py`\n\
         hint: correct `entrypoint.script`\n",
    );
}

#[test]
fn what_is_not_executed_stops_by_its_name() {
    let directory = definition(&format!("entrypoint: {{script: train.py}}\n{SEARCH}"));
    directory.write("model/startup-hook.sh", "echo\n");
    assert_refused(
        &directory,
        &["--config", "c.yaml", "model"],
        "pedl: error: `model/startup-hook.sh` is not run\n  \
         expected: a model definition without it; the script was not started\n\
         hint: run it yourself, and keep it out of the directory\n",
    );
    directory.write(
        "class.yaml",
        &format!("entrypoint: model_def:Trial\n{SEARCH}"),
    );
    assert_refused(
        &directory,
        &["--config", "class.yaml", "-c", "1"],
        "pedl: error: `entrypoint` is `model_def:Trial` in class.yaml\n  \
         expected behind `--config FILE`: the model definition that has the class, a directory or a file\n\
         hint: name it, as in `pedl-run --config FILE DIR`\n",
    );
    directory.write(
        "pbt.yaml",
        "searcher: {name: adaptive_simple, metric: loss, max_steps: 4, max_trials: 4}\n",
    );
    assert_refused(
        &directory,
        &["--config", "pbt.yaml", "model/train.py"],
        "pedl: error: `searcher.name` is `adaptive_simple` in pbt.yaml\n  \
         expected: `single`, `random` or `grid`; this one compares trials while they run\n  \
         nothing was run\n\
         hint: name one of these, and the trial with `--trial N`\n",
    );
}

#[test]
fn each_trial_of_a_search_has_its_own_hyperparameters() {
    let directory = definition(
        "hyperparameters: {lr: {type: double, minval: 0, maxval: 1, count: 3}}\n\
         searcher: {name: grid, metric: loss, max_steps: 1}\n\
         reproducibility: {experiment_seed: 1}\n",
    );
    let lr = |trial: &str| {
        let arguments = ["--config", "c.yaml", "--trial", trial, "model/train.py"];
        let told = told(&run_in(&directory, &arguments).assert_code(0));
        assert_eq!(told["trial"].to_string(), trial);
        told["lr"].to_string()
    };
    assert_eq!(["1", "2", "3"].map(lr), ["0.0", "0.5", "1.0"]);
    assert_refused(
        &directory,
        &["--config", "c.yaml", "--trial", "4", "model/train.py"],
        "pedl: error: `--trial` is `4`\n  expected: 1 to 3, the trials of c.yaml\n",
    );
}

#[test]
fn p6_a_hyperparameter_on_the_command_line_takes_the_place_of_a_configured_one() {
    let directory = definition(&format!("hyperparameters: {{lr: 0.5}}\n{SEARCH}"));
    let arguments = ["--config", "c.yaml", "--hp", "lr=2", "model/train.py"];
    assert_eq!(told(&run_in(&directory, &arguments))["lr"], 2);
    assert_refused(
        &directory,
        &["--config", "c.yaml", "--hp", "rl=2", "model/train.py"],
        "pedl: error: `--hp rl`: the configuration has no hyperparameter of this name\n  \
         it has: `lr`\n\
         hint: correct the name, or add `rl` to `hyperparameters`\n",
    );
}

#[test]
fn variables_are_set_in_order() {
    let directory = definition(&format!(
        "environment: {{environment_variables: [\"A=1\", \"B=$A/${{A}}\"]}}\n{SEARCH}"
    ));
    directory.write(
        "env.py",
        "import os; print(os.environ['A'], os.environ['B'])",
    );
    let output = run_in(&directory, &["--config", "c.yaml", "env.py"]).assert_code(0);
    assert_eq!(output.stdout, "1 1/1\n");
}

#[test]
fn variables_of_ours_are_refused() {
    let directory = definition(&format!(
        "environment: {{environment_variables: [\"A=1\", \"PEDL_EXACT=1\"]}}\n{SEARCH}"
    ));
    assert_refused(
        &directory,
        &["--config", "c.yaml", "model/train.py"],
        "pedl: error: `environment.environment_variables` sets `PEDL_EXACT` in c.yaml\n  \
         expected: variables of the script; this one belongs to pedl-run\n\
         hint: set it where you start pedl-run, or use the option that it stands for\n",
    );
}

#[test]
fn a_login_reaches_no_script() {
    let directory = definition(&format!(
        "environment: {{registry_auth: {{password: hidden-word}}}}\n{SEARCH}"
    ));
    directory.write(
        "look.py",
        "import os, pedl\nprint(pedl.get_experiment_config()['environment'])\n\
         print('hidden' in ''.join(os.environ.values()))\n",
    );
    let output = run_in(&directory, &["--config", "c.yaml", "look.py"]).assert_code(0);
    assert!(output.stdout.ends_with("\nFalse\n"), "{output}");
    assert!(!output.stdout.contains("hidden"), "{output}");
}

#[test]
fn a_configuration_that_cannot_be_read_is_named() {
    let directory = Dir::new();
    directory.write("train.py", "");
    let output = run_in(&directory, &["--config", "none.yaml", "train.py"]).assert_code(65);
    output.assert_stderr(
        "pedl: error: cannot read the configuration `none.yaml`\n  \
         No such file or directory (os error 2)\n\
         hint: name the file with `--config FILE`\n",
    );
    let output = run_in(&directory, &["--trial", "2", "train.py"]).assert_code(64);
    output.assert_stderr(
        "pedl: error: `--trial` is `2`, and there is no configuration\n  \
         expected: `--config FILE`, whose searcher has several trials\n\
         hint: leave `--trial` out, or name the file with `--config FILE`\n",
    );
}

#[test]
fn a_wrong_field_is_shown_with_its_line() {
    let directory = Dir::new();
    directory.write("train.py", "");
    directory.write(
        "c.yaml",
        "searcher:\n  name: single\n  metric: loss\n  max_step: 1\n",
    );
    let output = run_in(&directory, &["--config", "c.yaml", "train.py"]).assert_code(65);
    assert!(
        output.stderr.contains("in c.yaml, line 4, column 3:"),
        "{output}"
    );
    assert!(output.stderr.contains("max_steps"), "{output}");
}

#[test]
fn data_that_is_too_long_for_a_process_is_refused() {
    let directory = definition(&format!(
        "data: {{list: \"{}\"}}\n{SEARCH}",
        "x".repeat(140_000)
    ));
    let output = run_in(&directory, &["--config", "c.yaml", "model/train.py"]).assert_code(65);
    assert!(
        output
            .stderr
            .contains("which is what Linux passes to a process"),
        "{output}"
    );
}

#[test]
fn without_a_configuration_there_is_an_empty_one() {
    let directory = Dir::new();
    directory.write(
        "train.py",
        "import pedl\nprint(pedl.get_experiment_config(), pedl.get_data_config())\n\
         print(pedl.is_valid_url('s3://bucket/key'), pedl.is_valid_url('bucket/key'))\n\
         try:\n    pedl.get_download_data_dir()\n\
         except pedl.NothingDownloaded as error:\n    print(str(error).splitlines()[0])\n",
    );
    let output = run_in(&directory, &["train.py"]).assert_code(0);
    assert_eq!(
        output.stdout,
        "{} {}\nTrue False\nthis trial has no directory of downloaded data\n"
    );
}

#[test]
fn a_script_that_fails_before_it_trains_is_not_started_again() {
    let directory = Dir::new();
    directory.write("c.yaml", SEARCH);
    directory.write("train.py", "print('once')\nraise SystemExit(3)\n");
    let output = run_in(&directory, &["--config", "c.yaml", "train.py"]).assert_code(3);
    assert_eq!(output.stdout, "once\n");
}
