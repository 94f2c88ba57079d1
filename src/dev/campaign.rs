//! `cargo dev campaign`: trainings killed at random moments, on every stack that has a Keras.
//!
//! What a cell is, and what it has to show, is told by `tests/campaign.py`, which does the work with
//! the Python of each stack. Results are kept below the cache directory in `campaign/`, in a file for
//! each state of the tree, so a campaign that was interrupted goes on where it was; the file of a
//! tree with changes is named by the commit and a hash of the changes.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Options;
use crate::environment::{self, Environment};
use crate::failure::{At as _, Failure, Result};
use crate::interpreter::Interpreter;
use crate::matrix::{Matrix, Stack};
use crate::process::{self, Ended, Output, Running};
use crate::repository::Repository;

/// The scripts, by the tag of the stacks they are for.
const SCRIPTS: [(&str, &str); 2] = [
    ("keras2", "everything_keras2.py"),
    ("keras3", "everything_keras3.py"),
];

/// All cells of one stack, on a slow machine.
const STACK_LIMIT: Duration = Duration::from_secs(12 * 60 * 60);

/// What git takes to name the state of the tree.
const GIT_LIMIT: Duration = Duration::from_secs(60);

/// Options that `tests/campaign.py` takes too.
const PASSED_ON: [&str; 3] = ["source", "kills", "epochs"];

/// Runs the cells; says whether all of them are good.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<bool> {
    let options = Options::parse(arguments, &["stack", "source", "kills", "epochs"])?.no_rest()?;
    let repository = Repository::find();
    let matrix = Matrix::read(&repository)?;
    let chosen: Vec<&str> = options.all("stack").collect();
    for name in &chosen {
        script_of(matrix.stack(name)?)
            .ok_or_else(|| Failure::usage(format!("`{name}` trains nothing: it has no Keras")))?;
    }
    let results = results_of(&repository)?;
    let executable = results.with_extension("pedl-run");
    // A copy: what is built in the hours to come is not what these results are about. A campaign of another
    // stack may be running it already, so it comes there by a rename.
    let built = repository.build()?;
    let copy = executable.with_extension(format!("pedl-run.{}", std::process::id()));
    fs::copy(&built, &copy).at("copy", &built)?;
    fs::rename(&copy, &executable).at("replace", &executable)?;
    println!("{}\n{}", executable.display(), results.display());

    let mut good = true;
    for stack in &matrix.stacks {
        let Some(script) = script_of(stack) else {
            continue;
        };
        if !chosen.is_empty() && !chosen.contains(&&*stack.name) {
            continue;
        }
        println!("\n{}", stack.name);
        let Some(interpreter) = Interpreter::find(&stack.python) else {
            println!("skipped: no Python {} was found", stack.python.join(", "));
            continue;
        };
        let environment = Environment::of(stack, &interpreter)?;
        let mut python = environment.command();
        python
            .arg("-u")
            .arg(repository.root().join("tests/campaign.py"));
        python
            .args(["--stack", &stack.name, "--script", script])
            .arg("--results")
            .arg(&results);
        for name in PASSED_ON {
            for value in options.all(name) {
                python.arg(format!("--{name}={value}"));
            }
        }
        python
            .current_dir(repository.root())
            .env("PEDL_RUN", &executable);
        let mut running = Running::start(python, Output::Copy)?;
        good &= matches!(running.wait(STACK_LIMIT)?, Ended::Exited(status) if status.success());
        running.text();
    }
    Ok(good)
}

/// The script that a stack runs; none where it has no Keras.
fn script_of(stack: &Stack) -> Option<&'static str> {
    let tagged = |tag: &str| stack.tags.iter().any(|other| other == tag);
    SCRIPTS
        .iter()
        .find(|(tag, _)| tagged(tag))
        .map(|(_, script)| *script)
}

/// The file with the results of this state of the tree.
fn results_of(repository: &Repository) -> Result<PathBuf> {
    let commit = git(repository, &["rev-parse", "--short=12", "HEAD"])?;
    let changes = git(repository, &["diff", "HEAD"])?;
    let directory = environment::cache_directory()?.join("campaign");
    fs::create_dir_all(&directory).at("create", &directory)?;
    Ok(directory.join(file_name(commit.trim(), &changes)))
}

fn file_name(commit: &str, changes: &str) -> String {
    if changes.is_empty() {
        return format!("{commit}.jsonl");
    }
    let hash = blake3::hash(changes.as_bytes()).to_hex();
    format!("{commit}-changed-{}.jsonl", &hash[..12])
}

fn git(repository: &Repository, arguments: &[&str]) -> Result<String> {
    let mut command = process::command(Path::new("git"));
    command.args(arguments).current_dir(repository.root());
    let mut running = Running::start(command, Output::Keep)?;
    let ended = running.wait(GIT_LIMIT)?;
    let text = running.text();
    if ended.success() {
        return Ok(text);
    }
    let what = format!(
        "`git {}`: {}\n{}",
        arguments.join(" "),
        ended.describe(),
        text.trim_end()
    );
    Err(Failure::new(what))
}

#[cfg(test)]
mod tests {
    use super::{file_name, script_of};
    use crate::matrix::Matrix;
    use crate::repository::Repository;

    #[test]
    fn results_are_of_one_state_of_the_tree() {
        assert_eq!(file_name("abc", ""), "abc.jsonl");
        assert!(file_name("abc", "x").starts_with("abc-changed-"));
        assert_ne!(file_name("abc", "x"), file_name("abc", "y"));
    }

    #[test]
    fn every_stack_with_a_keras_has_a_script_that_is_there() {
        let repository = Repository::find();
        let matrix = Matrix::read(&repository).expect("the file is valid");
        for stack in &matrix.stacks {
            let has_keras = stack.tags.iter().any(|tag| tag == "keras");
            assert_eq!(script_of(stack).is_some(), has_keras, "{}", stack.name);
            if let Some(script) = script_of(stack) {
                assert!(
                    repository
                        .root()
                        .join("tests/scripts")
                        .join(script)
                        .is_file()
                );
            }
        }
    }
}
