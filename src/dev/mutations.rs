//! `cargo dev contract --mutate RULE|all`: whether the test of a rule fails if the rule is broken.
//!
//! For each rule, `tests/contract.toml` lists one line of the source that keeps it, and the change
//! that breaks it. The line is changed in a copy of the tree, below cargo's target directory, and
//! the test is run there. It has to fail, and to pass without the change.
//!
//! A line of Python needs no build (`copy`), and two such copies work side by side. A line of Rust
//! is built, without optimisation. Outcomes are kept for later runs (`outcomes`).

mod copy;
mod outcomes;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::failure::{At as _, Failure, Result};
use crate::matrix::Matrix;
use crate::process::{Ended, Output, Running};
use crate::repository::Repository;
use crate::test;
use copy::{Changed, Copy, laid_out, of_length};
use outcomes::Outcomes;

const BUILD_LIMIT: Duration = Duration::from_secs(1200);
const TEST_LIMIT: Duration = Duration::from_secs(600);
const PARSE_LIMIT: Duration = Duration::from_secs(60);

/// How many copies work side by side.
const COPIES: usize = 2;

/// The exit codes of a failed test: that of pytest, and that of cargo.
const FAILED: [i32; 2] = [1, 101];

/// The most characters of a remark.
const REMARK: usize = 100;

/// A change that breaks one line of the source.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Mutation {
    /// The file, below the repository.
    pub(crate) file: PathBuf,
    /// The text to replace, which is in the file once.
    pub(crate) from: String,
    /// The text that replaces it.
    to: String,
    /// A part of the name of the test; after ` and ` the parameters that are run.
    pub(crate) test: String,
    /// The file of the test.
    pub(crate) of: PathBuf,
    /// The stack that runs it; none for a test in Rust.
    stack: Option<String>,
}

impl Mutation {
    /// Whether it needs no build.
    fn is_of_python(&self) -> bool {
        self.file.extension().is_some_and(|end| end == "py")
    }

    /// The text of the file with the changed line.
    fn broken(&self, root: &Path) -> Result<String> {
        let path = root.join(&self.file);
        let text = fs::read_to_string(&path).at("read", &path)?;
        let count = text.matches(&self.from).count();
        if count != 1 {
            return Err(Failure::new(format!(
                "`{}` stands {count} times in {}",
                self.from,
                self.file.display()
            )));
        }
        Ok(text.replacen(&self.from, &self.to, 1))
    }
}

/// The outcome of a broken rule.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// The test passes without the change, and fails with it.
    Killed,
    /// The test passes in spite of the change.
    Survived,
    /// The test showed nothing.
    NotRun,
}

impl Verdict {
    /// The word that is printed.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Survived => "SURVIVED",
            Self::NotRun => "NOT RUN",
        }
    }
}

/// Mutations with the same test.
type Group<'a> = Vec<(&'a str, &'a Mutation)>;

/// Breaks one line at a time in copies of the tree.
pub(crate) struct Mutants {
    original: Repository,
    directory: PathBuf,
    environments: BTreeMap<String, Environment>,
    tags: BTreeMap<String, String>,
    outcomes: Outcomes,
    /// Held, because only one process at a time may use the copies.
    _lock: File,
}

impl Mutants {
    /// Reads the stored outcomes.
    pub(crate) fn new(original: Repository) -> Result<Self> {
        let directory = original.target_directory()?.join("mutants");
        fs::create_dir_all(&directory).at("create", &directory)?;
        let path = directory.join("lock");
        let lock = File::create(&path).at("create", &path)?;
        flock(&lock, FlockOperation::LockExclusive).at("lock", &path)?;
        let root = original.root().to_owned();
        Ok(Self {
            outcomes: Outcomes::read(root, directory.join("outcomes.jsonl")),
            original,
            directory,
            environments: BTreeMap::new(),
            tags: BTreeMap::new(),
            _lock: lock,
        })
    }

    /// Breaks the rules whose outcomes are unknown. Returns the verdicts by rule.
    pub(crate) fn run(
        &mut self,
        wanted: &[(&str, &Mutation)],
    ) -> Result<BTreeMap<String, Verdict>> {
        let mut verdicts = BTreeMap::new();
        let mut groups: BTreeMap<_, Group<'_>> = BTreeMap::new();
        let mut built: Group<'_> = Vec::new();
        for (rule, mutation) in wanted {
            if let Some(outcome) = self.outcomes.get(mutation)? {
                print(rule, mutation, outcome.verdict, &outcome.remark);
                verdicts.insert((*rule).to_owned(), outcome.verdict);
            } else if mutation.is_of_python() {
                let test = (&mutation.stack, &mutation.of, &mutation.test);
                groups.entry(test).or_default().push((rule, mutation));
            } else {
                built.push((rule, mutation));
            }
        }
        self.find_environments(groups.values().flatten().chain(&built))?;
        let verdicts = Mutex::new(verdicts);
        if !groups.is_empty() {
            self.run_python(groups.into_values().collect(), &verdicts)?;
        }
        if !built.is_empty() {
            self.run_built(&built, &verdicts)?;
        }
        Ok(verdicts
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner))
    }

    fn find_environments<'a>(
        &mut self,
        wanted: impl Iterator<Item = &'a (&'a str, &'a Mutation)>,
    ) -> Result<()> {
        let matrix = Matrix::read(&self.original)?;
        for name in wanted.filter_map(|(_, mutation)| mutation.stack.as_ref()) {
            let stack = matrix.stack(name)?;
            if self
                .tags
                .insert(name.clone(), stack.tags.join(" "))
                .is_none()
                && let Some(environment) = Environment::of_measured(stack)?
            {
                self.environments.insert(name.clone(), environment);
            }
        }
        Ok(())
    }

    // -- Python -----------------------------------------------------------------------------------

    fn run_python(
        &self,
        groups: Vec<Group<'_>>,
        verdicts: &Mutex<BTreeMap<String, Verdict>>,
    ) -> Result<()> {
        let built = self.original.build()?;
        let executable = self.directory.join("pedl-run");
        // A process that runs it may be left.
        let _ = fs::remove_file(&executable);
        fs::copy(&built, &executable).at("copy", &built)?;
        let waiting = Mutex::new(groups);
        thread::scope(|scope| {
            let copies: Vec<_> = (0..COPIES)
                .map(|number| {
                    let (waiting, executable) = (&waiting, executable.clone());
                    scope.spawn(move || -> Result<()> {
                        let copy = self.copy(&format!("copy-{number}"), executable)?;
                        let library = copy.lay_out()?;
                        loop {
                            let group =
                                waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
                            let Some(group) = group else { return Ok(()) };
                            self.run_group(&copy, &group, Some(&library), verdicts)?;
                        }
                    })
                })
                .collect();
            copies.into_iter().try_for_each(|copy| {
                copy.join()
                    .unwrap_or_else(|_| Err(Failure::new("a copy of the tree came to grief")))
            })
        })
    }

    fn run_group(
        &self,
        copy: &Copy,
        group: &Group<'_>,
        library: Option<&Path>,
        verdicts: &Mutex<BTreeMap<String, Verdict>>,
    ) -> Result<()> {
        let mut unbroken = None;
        for (rule, mutation) in group {
            let good = match &unbroken {
                Some(known) => known,
                None => unbroken.insert(self.is_good(copy, mutation)?),
            };
            let (verdict, remark) = match good {
                Err(remark) => (Verdict::NotRun, remark.clone()),
                Ok(()) => self.broken(copy, mutation, library)?,
            };
            self.settle(rule, mutation, (verdict, &remark), verdicts)?;
        }
        Ok(())
    }

    /// Prints the outcome of a mutation, and keeps it: for later runs too, unless the test was not
    /// run.
    fn settle(
        &self,
        rule: &str,
        mutation: &Mutation,
        (verdict, remark): (Verdict, &str),
        verdicts: &Mutex<BTreeMap<String, Verdict>>,
    ) -> Result<()> {
        print(rule, mutation, verdict, remark);
        if verdict != Verdict::NotRun {
            self.outcomes.keep(mutation, verdict, remark)?;
        }
        let mut verdicts = verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        verdicts.insert(rule.to_owned(), verdict);
        Ok(())
    }

    /// Whether the test passes if nothing is broken, or why not.
    fn is_good(&self, copy: &Copy, mutation: &Mutation) -> Result<std::result::Result<(), String>> {
        let Some((ended, text)) = self.test(copy, mutation)? else {
            return Ok(Err("there is no Python for its stack".to_owned()));
        };
        let passed = text
            .lines()
            .any(|line| line.contains(" passed") && !line.contains("ok. 0 passed"));
        Ok(if ended.success() && passed {
            Ok(())
        } else {
            Err(format!(
                "without the change: {}; {}",
                ended.describe(),
                reason(&text)
            ))
        })
    }

    /// Breaks the line, runs the test, and restores the line.
    fn broken(
        &self,
        copy: &Copy,
        mutation: &Mutation,
        library: Option<&Path>,
    ) -> Result<(Verdict, String)> {
        let text = match mutation.broken(&copy.tree) {
            Ok(text) => text,
            Err(error) => return Ok((Verdict::NotRun, error.to_string())),
        };
        let mut changed = Changed::nothing();
        changed.write(&copy.tree.join(&mutation.file), &text)?;
        if let Some(library) = library {
            let path = laid_out(library, &mutation.file).ok_or_else(|| {
                Failure::new(format!("{} is not in the library", mutation.file.display()))
            })?;
            let length = fs::metadata(&path).at("read", &path)?.len();
            changed.write(
                &path,
                &of_length(&text, usize::try_from(length).unwrap_or_default())?,
            )?;
        }
        if let Some(error) = self.build_error(copy, mutation)? {
            return Ok((Verdict::NotRun, format!("it is no program: {error}")));
        }
        let tested = self.test(copy, mutation)?;
        drop(changed);
        Ok(match tested {
            Some((Ended::Exited(status), text))
                if status.code().is_some_and(|code| FAILED.contains(&code)) =>
            {
                (Verdict::Killed, reason(&text))
            }
            Some((ended, _)) if ended.success() => (Verdict::Survived, String::new()),
            Some((ended, _)) => (Verdict::NotRun, ended.describe()),
            None => (
                Verdict::NotRun,
                "there is no Python for its stack".to_owned(),
            ),
        })
    }

    /// Why the broken file cannot be compiled, if it cannot.
    fn build_error(&self, copy: &Copy, mutation: &Mutation) -> Result<Option<String>> {
        if !mutation.is_of_python() {
            return self.build(copy, mutation);
        }
        let Some(environment) = mutation
            .stack
            .as_ref()
            .and_then(|name| self.environments.get(name))
        else {
            return Ok(None);
        };
        let mut parse = environment.command();
        parse.args(["-c", "import ast, sys; ast.parse(open(sys.argv[1]).read())"]);
        parse.arg(copy.tree.join(&mutation.file));
        let mut running = Running::start(parse, Output::Keep)?;
        let ended = running.wait(PARSE_LIMIT)?;
        Ok((!ended.success()).then(|| reason(&running.text())))
    }

    /// Runs the test of a rule: how it ended, and what it printed. None if there is no Python for
    /// it.
    fn test(&self, copy: &Copy, mutation: &Mutation) -> Result<Option<(Ended, String)>> {
        let command = if let Some(name) = &mutation.stack {
            let Some(environment) = self.environments.get(name) else {
                return Ok(None);
            };
            let mut pytest = test::pytest(&self.original, environment, name, &copy.executable);
            pytest
                .current_dir(&copy.tree)
                .env("PEDL_STACK_TAGS", &self.tags[name])
                .args(["-q", "-x", "-p", "no:cacheprovider", "-k", &mutation.test])
                .arg(&mutation.of);
            pytest
        } else {
            let mut cargo = self.cargo(copy);
            cargo.args(["test", "--quiet", "--package", "pedl-run", &mutation.test]);
            cargo
        };
        let mut command = command;
        command.env("PEDL_CACHE_DIR", &copy.cache);
        let mut running = Running::start(command, Output::Keep)?;
        let ended = running.wait(TEST_LIMIT)?;
        Ok(Some((ended, running.text())))
    }

    // -- Rust -------------------------------------------------------------------------------------

    fn run_built(
        &self,
        built: &Group<'_>,
        verdicts: &Mutex<BTreeMap<String, Verdict>>,
    ) -> Result<()> {
        let executable = self.directory.join("target/debug/pedl-run");
        let copy = self.copy("copy-built", executable)?;
        let mut good = Vec::new();
        for (rule, mutation) in built {
            if let Some(error) = self.build(&copy, mutation)? {
                return Err(Failure::new(format!("the copy cannot be built: {error}")));
            }
            match self.is_good(&copy, mutation)? {
                Ok(()) => good.push((*rule, *mutation)),
                Err(remark) => {
                    print(rule, mutation, Verdict::NotRun, &remark);
                    let mut verdicts = verdicts.lock().unwrap_or_else(PoisonError::into_inner);
                    verdicts.insert((*rule).to_owned(), Verdict::NotRun);
                }
            }
        }
        for (rule, mutation) in good {
            let (verdict, remark) = self.broken(&copy, mutation, None)?;
            self.settle(rule, mutation, (verdict, &remark), verdicts)?;
        }
        Ok(())
    }

    /// Builds a copy, for a test in Python or for one in Rust; returns the message of the compiler
    /// if that fails.
    fn build(&self, copy: &Copy, mutation: &Mutation) -> Result<Option<String>> {
        let mut cargo = self.cargo(copy);
        if mutation.stack.is_some() {
            cargo.args(["build", "--quiet", "--package", "pedl-run"]);
        } else {
            cargo.args(["test", "--no-run", "--quiet", "--package", "pedl-run"]);
        }
        let mut running = Running::start(cargo, Output::Keep)?;
        let ended = running.wait(BUILD_LIMIT)?;
        Ok((!ended.success()).then(|| reason(&running.text())))
    }

    fn cargo(&self, copy: &Copy) -> std::process::Command {
        let mut cargo = self.original.cargo();
        cargo
            .current_dir(&copy.tree)
            .env("CARGO_TARGET_DIR", self.directory.join("target"));
        cargo
    }

    fn copy(&self, name: &str, executable: PathBuf) -> Result<Copy> {
        Copy::new(&self.original, &self.directory.join(name), executable)
    }
}

/// Why something failed, from the output of pytest, of Rust's tests or of the compiler.
fn reason(text: &str) -> String {
    let beginnings = ["E  ", "assertion", "thread '", "error", "SyntaxError"];
    let found = beginnings
        .iter()
        .find_map(|beginning| text.lines().find(|line| line.starts_with(beginning)));
    let line = found
        .or_else(|| text.lines().next_back())
        .unwrap_or_default();
    let line = line.trim_start_matches('E').trim();
    line.chars().take(REMARK).collect()
}

fn print(rule: &str, mutation: &Mutation, verdict: Verdict, remark: &str) {
    println!(
        "{rule:<4} {:<9} {:<32} {remark}",
        verdict.word(),
        mutation.test
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_the_first_error_of_a_test() {
        assert_eq!(
            reason("...F\nE   assert 1 == 2\nE   other\n"),
            "assert 1 == 2"
        );
        assert_eq!(reason("one\ntwo\n"), "two");
    }
}
