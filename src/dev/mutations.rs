//! `cargo dev contract --mutate RULE|all`: whether the test of a rule fails where the rule is broken.
//!
//! Of a rule `tests/contract.toml` lists one line of the source that keeps it, and what breaks it there. In a copy of
//! the tree, below cargo's target directory, the line is changed and the test is run, which has to fail. The copy is
//! built anew for each, since the Python files are packed into the executable.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::environment::Environment;
use crate::failure::{At as _, Failure, Result};
use crate::matrix::Matrix;
use crate::process::{self, Ended, Output, Running};
use crate::repository::Repository;
use crate::test;

const BUILD_LIMIT: Duration = Duration::from_secs(1200);
const TEST_LIMIT: Duration = Duration::from_secs(600);

/// What a test ends with where something failed: pytest's exit code, and that of cargo.
const FAILED: [i32; 2] = [1, 101];

/// One line of the source that is broken.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Mutation {
    /// The file, below the repository.
    file: PathBuf,
    /// What stands there, once.
    from: String,
    /// What takes its place.
    to: String,
    /// The name of the test.
    test: String,
    /// The file of the test.
    of: PathBuf,
    /// The stack that it runs on; none for a test in Rust.
    stack: Option<String>,
}

/// A copy of the tree, in which one line at a time is broken.
pub(crate) struct Mutants {
    original: Repository,
    tree: PathBuf,
    target: PathBuf,
}

impl Mutants {
    /// Copies the tree as it is, uncommitted changes included.
    pub(crate) fn new(original: Repository) -> Result<Self> {
        let directory = original.target_directory()?.join("mutants");
        let tree = directory.join("tree");
        let target = directory.join("target");
        if tree.exists() {
            fs::remove_dir_all(&tree).at("remove", &tree)?;
        }
        let mut git = process::command("git");
        git.current_dir(original.root());
        git.args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]);
        let mut listing = Running::start(git, Output::KeepStdout)?;
        listing.wait(BUILD_LIMIT)?;
        for name in listing
            .text()
            .split('\0')
            .filter(|name| !name.trim().is_empty())
        {
            let (from, to) = (original.root().join(name), tree.join(name));
            if let Some(folder) = to.parent() {
                fs::create_dir_all(folder).at("create", folder)?;
            }
            if from.is_file() {
                fs::copy(&from, &to).at("copy", &from)?;
            }
        }
        Ok(Self {
            original,
            tree,
            target,
        })
    }

    /// Whether a test fails where its rule is broken; prints what came out.
    pub(crate) fn fails(&self, rule: &str, mutation: &Mutation) -> Result<bool> {
        let path = self.tree.join(&mutation.file);
        let text = fs::read_to_string(&path).at("read", &path)?;
        let count = text.matches(&mutation.from).count();
        if count != 1 {
            println!(
                "{rule:<4} `{}` stands {count} times in {}",
                mutation.from,
                mutation.file.display()
            );
            return Ok(false);
        }
        fs::write(&path, text.replacen(&mutation.from, &mutation.to, 1)).at("write", &path)?;
        let ended = self.run(mutation);
        fs::write(&path, text).at("write", &path)?;
        let (is_failure, remark) = match ended? {
            Some(Ended::Exited(status))
                if status.code().is_some_and(|code| FAILED.contains(&code)) =>
            {
                (true, "fails".to_owned())
            }
            Some(ended) => (false, format!("does not fail: {}", ended.describe())),
            None => (false, "was not run".to_owned()),
        };
        println!("{rule:<4} {:<70} {remark}", mutation.test);
        Ok(is_failure)
    }

    /// Builds the copy, and runs the test in it.
    fn run(&self, mutation: &Mutation) -> Result<Option<Ended>> {
        let Some(name) = &mutation.stack else {
            let mut cargo = self.cargo();
            cargo.args(["test", "--release", "--package", "pedl-run", &mutation.test]);
            return Ok(Some(
                Running::start(cargo, Output::Keep)?.wait(BUILD_LIMIT)?,
            ));
        };
        let mut cargo = self.cargo();
        cargo.args(["build", "--quiet", "--release", "--package", "pedl-run"]);
        let ended = Running::start(cargo, Output::Keep)?.wait(BUILD_LIMIT)?;
        if !ended.success() {
            return Err(Failure::new(format!(
                "the build of a mutant failed: {}",
                ended.describe()
            )));
        }
        let stacks = Matrix::read(&self.original)?.stacks;
        let stack = stacks
            .iter()
            .find(|stack| stack.name == *name)
            .ok_or_else(|| Failure::new(format!("there is no stack `{name}`")))?;
        let Some(environment) = Environment::of_measured(stack)? else {
            return Ok(None);
        };
        let executable = self.target.join("release/pedl-run");
        let mut pytest = test::pytest(&self.original, &environment, name, &executable);
        pytest
            .current_dir(&self.tree)
            .env("PEDL_STACK_TAGS", stack.tags.join(" "))
            .args(["-q", "-x", "-k", &mutation.test])
            .arg(&mutation.of);
        Ok(Some(
            Running::start(pytest, Output::Keep)?.wait(TEST_LIMIT)?,
        ))
    }

    fn cargo(&self) -> std::process::Command {
        let mut cargo = self.original.cargo();
        cargo
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target);
        cargo
    }

    /// Where the copy is.
    pub(crate) fn tree(&self) -> &Path {
        &self.tree
    }
}
