//! `cargo dev conformance`: test suites of other projects, by python itself and with `pedl-run` in
//! its place.
//!
//! They are those of CPython, for each Python of `tests/conformance/list.toml`, and those of a
//! library, for each stack that the list names. `unittest` runs the former, `python -m pytest` the
//! latter. Each file is run three times: by that Python, and by `pedl-run` in both modes, in which
//! the tests start `pedl-run` too if they would start python. Tests that no package contains come
//! from a checkout of their repository (`--checkout DIR`), at the revision in the list. A test must
//! have the same outcome. A test that differs is run again by itself, up to three times, because
//! many depend on the time. If it still differs, it must be in the list of known differences, which
//! names the cause.
//!
//! A short part of it, the gate, belongs to `cargo dev test`.
//!
//! Results are kept below the cache directory in `conformance/`, in a file for each executable
//! (those of python itself in one for all), so an interrupted run continues where it was.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Options;
use crate::environment::{self, Environment};
use crate::failure::{At as _, Failure, Result};
use crate::interpreter::Interpreter;
use crate::matrix::{Matrix, Stack};
use crate::process::{self, Output, Running};
use crate::repository::{Repository, has_revision};
use crate::summary::Counts;

/// Enough for one file of tests; those of multiprocessing take two minutes on an idle machine.
const FILE_LIMIT: Duration = Duration::from_secs(30 * 60);

/// How many times a test that differs is run again. On a busy machine some pass only by luck.
const REPETITIONS: usize = 3;

/// If more tests of a file differ, the whole file is run again: one test may have left something
/// that makes the others fail.
const MOST_ALONE: usize = 5;

/// The ways of running a test: python itself, and the modes of `pedl-run`.
const WAYS: [&str; 3] = ["python", "embed", "exec"];

/// The program that tests start as python (`python.rs`), and the file beside it that says what to
/// run.
const WRAPPER: &str = "pedl-dev-python";
const WRAPPER_ROWS: &str = "commands";

/// The list of what is run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    pythons: Vec<String>,
    files: Vec<String>,
    gate_pythons: Vec<String>,
    gate_files: Vec<String>,
    #[serde(rename = "library")]
    libraries: Vec<Library>,
    #[serde(default, rename = "difference")]
    differences: Vec<Difference>,
    #[serde(default, rename = "real_python")]
    real_pythons: Vec<RealPython>,
}

/// A file whose tests find the real python in `sys.executable`, as every script does, and start
/// that.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RealPython {
    file: String,
    /// Prefixes of the versions.
    pythons: Vec<String>,
    cause: String,
}

/// A library with tests for pytest. The fields are explained in the list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Library {
    source: Option<String>,
    repository: Option<String>,
    revision: Option<String>,
    files: Vec<String>,
    #[serde(rename = "stack")]
    stacks: Vec<OnStack>,
}

/// What the tests of a library need on a stack of `tests/matrix.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OnStack {
    name: String,
    requirements: Vec<String>,
}

impl Library {
    /// The stack that its tests need: with more requirements, and with the library from its source
    /// distribution if that contains the tests.
    fn stack(&self, on: &OnStack, matrix: &Matrix) -> Result<Stack> {
        let mut stack = matrix.stack(&on.name)?.clone();
        if on.requirements.is_empty() && self.source.is_none() {
            return Ok(stack);
        }
        stack.name += "-conformance";
        stack.requirements.extend(on.requirements.iter().cloned());
        let source = self.source.iter();
        stack
            .requirements
            .extend(source.map(|source| format!("--no-binary={source}")));
        Ok(stack)
    }

    /// The folder of its tests, if they are not in the library: the files at the revision of the
    /// list, extracted from a checkout. Or the reason why there are none.
    fn tests(&self, checkouts: &[&str]) -> Result<std::result::Result<Option<PathBuf>, String>> {
        let (Some(repository), Some(revision)) = (&self.repository, &self.revision) else {
            return Ok(Ok(None));
        };
        let git = |checkout: &str, arguments: &[&str]| {
            let mut git = Command::new("git");
            git.args(["-C", checkout]).args(arguments).output()
        };
        let has_it = |checkout: &&&str| has_revision(checkout, revision);
        let Some(checkout) = checkouts.iter().find(has_it) else {
            let what = format!("its tests are those of {repository} at {revision}");
            return Ok(Err(format!(
                "{what}; `--checkout DIR` names one that has it"
            )));
        };
        let directory = environment::cache_directory()?.join("conformance");
        let directory = directory.join(format!("tests-{revision}"));
        for file in &self.files {
            let path = directory.join(file);
            if path.exists() {
                continue;
            }
            let parent = path.parent().unwrap_or(&directory);
            fs::create_dir_all(parent).at("create", parent)?;
            let object = format!("{revision}:{file}");
            let shown = git(checkout, &["show", &object]).at("run git for", &path)?;
            if !shown.status.success() {
                return Err(Failure::new(format!("`{checkout}` has no {object}")));
            }
            let part = path.with_extension("part");
            fs::write(&part, shown.stdout).at("write", &part)?;
            fs::rename(&part, &path).at("create", &path)?;
        }
        Ok(Ok(Some(directory)))
    }
}

/// A Python whose tests are run, or whose environment runs the tests of a library.
struct Subject {
    /// The version, or the name of the stack.
    name: String,
    python: PathBuf,
    /// Environment variables of the stack.
    variables: BTreeMap<String, String>,
    runner: Runner,
    /// The folder of the test files, if no package contains them.
    tests: Option<PathBuf>,
}

/// What runs a file of tests.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Runner {
    /// `run_file.py`, for files of CPython's tests.
    Unittest,
    /// `python -m pytest`, for modules of a library.
    Pytest,
}

impl Subject {
    fn python(interpreter: &Interpreter) -> Self {
        Self {
            name: interpreter.version.clone(),
            python: interpreter.path.clone(),
            variables: BTreeMap::new(),
            runner: Runner::Unittest,
            tests: None,
        }
    }

    fn stack(on: &OnStack, environment: Environment, tests: Option<PathBuf>) -> Self {
        Self {
            name: on.name.clone(),
            python: environment.python,
            variables: environment.variables,
            runner: Runner::Pytest,
            tests,
        }
    }
}

/// A known difference.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    /// A part of the names of the tests.
    test: String,
    /// Prefixes of the versions, or of the names of the stacks. Empty means all.
    #[serde(default)]
    pythons: Vec<String>,
    /// Empty means both.
    #[serde(default)]
    modes: Vec<String>,
    cause: String,
}

impl Difference {
    fn holds(&self, test: &str, python: &str, way: &str) -> bool {
        let is_of = |list: &[String], found: &str| {
            list.is_empty() || list.iter().any(|one| found.starts_with(&**one))
        };
        // Whole names: `test_process` is not a part of `test_process_name`.
        let is_part = test.match_indices(&self.test).any(|(at, part)| {
            let next = test[at + part.len()..].chars().next();
            !next.is_some_and(|next| next.is_alphanumeric() || next == '_')
        });
        is_part && is_of(&self.pythons, python) && is_of(&self.modes, way)
    }
}

/// The outcomes of the tests of one file, in one way.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Outcomes {
    /// The version, or the name of the stack.
    python: String,
    way: String,
    file: String,
    /// By the name of the test: its outcome, and why.
    tests: BTreeMap<String, (String, String)>,
    /// How the process ended, if it did not reach the end of the file.
    broke_off: Option<String>,
    seconds: u64,
}

/// A line of `run_file.py`, or of the plugin for pytest.
#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    done: bool,
    #[serde(default)]
    test: String,
    #[serde(default)]
    outcome: String,
    #[serde(default)]
    text: String,
}

/// Runs the files without results, and compares. Returns whether everything is as expected.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<bool> {
    let names = ["python", "stack", "mode", "file", "checkout"];
    let options = Options::parse(arguments, &names)?.no_rest()?;
    let checkouts: Vec<&str> = options.all("checkout").collect();
    let repository = Repository::find();
    let list = read_list(&repository)?;
    let matrix = Matrix::read(&repository)?;
    let built = repository.build()?;
    let campaign = Campaign::new(&repository, &built, &list)?;
    let chosen = |name: &str, found: &str| {
        let mut values = options.all(name).peekable();
        values.peek().is_none() || values.any(|value| value == found)
    };
    // A command line that names only Pythons runs no stack, and the other way round.
    let is_given = |name: &str| options.all(name).next().is_some();
    let (pythons, stacks) = (is_given("python"), is_given("stack"));
    let modes: Vec<_> = WAYS[1..]
        .iter()
        .copied()
        .filter(|mode| chosen("mode", mode))
        .collect();
    let of = |files: &[String]| -> Vec<String> {
        files
            .iter()
            .filter(|file| chosen("file", file))
            .cloned()
            .collect()
    };
    let mut good = true;
    for version in list
        .pythons
        .iter()
        .filter(|version| (pythons || !stacks) && chosen("python", version))
    {
        println!("\n{version}");
        match Interpreter::exactly(version) {
            Some(interpreter) => {
                let subject = Subject::python(&interpreter);
                good &= campaign
                    .files(&list, &subject, &of(&list.files), &modes)?
                    .good();
            }
            None => println!("  skipped: no Python {version} was found"),
        }
    }
    for library in list.libraries.iter().filter(|_| stacks || !pythons) {
        let on = library.stacks.iter().filter(|on| chosen("stack", &on.name));
        for on in on {
            println!("\n{}", on.name);
            let tests = match library.tests(&checkouts)? {
                Ok(tests) => tests,
                Err(why) => {
                    println!("  skipped: {why}");
                    continue;
                }
            };
            let stack = library.stack(on, &matrix)?;
            let interpreter = match Interpreter::of(&stack) {
                Ok(interpreter) => interpreter,
                Err(why) => {
                    println!("  skipped: {why}");
                    continue;
                }
            };
            let environment = Environment::of(&stack, &interpreter)?;
            println!("  {}", environment.directory.display());
            let subject = Subject::stack(on, environment, tests);
            good &= campaign
                .files(&list, &subject, &of(&library.files), &modes)?
                .good();
        }
    }
    Ok(good)
}

/// The part that belongs to `cargo dev test`: a few short files, on the oldest and the newest
/// Python.
pub(crate) fn gate(repository: &Repository, executable: &Path) -> Result<Counts> {
    let list = read_list(repository)?;
    let campaign = Campaign::new(repository, executable, &list)?;
    let mut counts = Counts::default();
    for version in &list.gate_pythons {
        println!("\n{version}");
        if let Some(interpreter) = Interpreter::find(std::slice::from_ref(version)) {
            let subject = Subject::python(&interpreter);
            counts += campaign.files(&list, &subject, &list.gate_files, &WAYS[1..])?;
        } else {
            println!("  skipped: no Python {version} was found");
            counts += Counts::SKIPPED;
        }
    }
    Ok(counts)
}

fn read_list(repository: &Repository) -> Result<List> {
    let path = repository.root().join("tests/conformance/list.toml");
    let text = fs::read_to_string(&path).at("read", &path)?;
    toml::from_str(&text)
        .map_err(|error| Failure::new(format!("`{}` is not valid:\n{error}", path.display())))
}

/// Whether a Python has a file of tests.
fn has_file(subject: &Subject, file: &str) -> Result<bool> {
    let question = "import importlib.util, sys; import test; test.__path__.append(sys.argv[2]); \
                    print(importlib.util.find_spec('test.' + sys.argv[1]) is not None)";
    let missing = Repository::find().root().join("tests/conformance/missing");
    let mut python = process::python(&subject.python);
    python.args(["-c", question, file]).arg(missing);
    let mut running = Running::start(python, Output::KeepStdout)?;
    let ended = running.wait(FILE_LIMIT)?;
    Ok(ended.success() && running.text().trim() == "True")
}

/// The beginning of the hash of some files.
fn hash_of(files: &[&Path]) -> Result<String> {
    let mut hash = blake3::Hasher::new();
    for file in files {
        hash.update(&fs::read(file).at("read", file)?);
    }
    Ok(hash.finalize().to_hex()[..12].to_owned())
}

/// All runs of one executable.
struct Campaign {
    executable: PathBuf,
    /// The folder of the programs that run the tests.
    runners: PathBuf,
    /// The folder of its results.
    directory: PathBuf,
    /// The folder of the results of python itself, for every executable.
    directory_of_python: PathBuf,
    /// The folder of the programs that tests start as python.
    wrappers: PathBuf,
    real_pythons: Vec<RealPython>,
}

impl Campaign {
    /// Copies the executable, because builds in the next hours must not change that of these
    /// results.
    fn new(repository: &Repository, built: &Path, list: &List) -> Result<Self> {
        let wrapper = repository.build_own(WRAPPER)?;
        let results = environment::cache_directory()?.join("conformance");
        let directory = results.join(hash_of(&[built, &wrapper])?);
        let wrappers = directory.join("python");
        fs::create_dir_all(&wrappers).at("create", &wrappers)?;
        let executable = directory.join("pedl-run");
        if !executable.exists() {
            let copy = directory.join(format!("pedl-run.{}", std::process::id()));
            fs::copy(built, &copy).at("copy", built)?;
            fs::rename(&copy, &executable).at("replace", &executable)?;
            let copy = wrappers.join(WRAPPER);
            fs::copy(&wrapper, &copy).at("write", &copy)?;
        }
        println!("{}", directory.display());
        Ok(Self {
            executable,
            runners: repository.root().join("tests/conformance"),
            directory,
            directory_of_python: results,
            wrappers,
            real_pythons: list.real_pythons.clone(),
        })
    }

    /// Why a file's tests start the real python, if they do.
    fn real_python(&self, subject: &Subject, file: &str) -> Option<&RealPython> {
        self.real_pythons.iter().find(|one| {
            let mut versions = one.pythons.iter();
            one.file == file && versions.any(|version| subject.name.starts_with(version))
        })
    }

    /// The results file of a way. Another runner has another file.
    fn results(&self, subject: &Subject, way: &str) -> Result<PathBuf> {
        let parts: &[&str] = match subject.runner {
            Runner::Unittest => &["run_file.py"],
            Runner::Pytest => &["pytest/conftest.py", "pytest/pytest.ini"],
        };
        let parts: Vec<_> = parts.iter().map(|part| self.runners.join(part)).collect();
        let parts: Vec<_> = parts.iter().map(PathBuf::as_path).collect();
        let hash = hash_of(&parts)?;
        Ok(match way {
            "python" => self
                .directory_of_python
                .join(format!("python-{hash}.jsonl")),
            _ => self.directory.join(format!("results-{hash}.jsonl")),
        })
    }

    /// Runs files by one Python in all ways, and compares.
    fn files(
        &self,
        list: &List,
        subject: &Subject,
        files: &[String],
        modes: &[&str],
    ) -> Result<Counts> {
        let mut counts = Counts::default();
        if subject.name.starts_with("3.7.") {
            println!(
                "  -I, -E and -S are refused on Python 3.7; where tests use them, python itself runs"
            );
        }
        for file in files {
            if subject.runner == Runner::Unittest && !has_file(subject, file)? {
                println!("  {file:<36} skipped: this Python was installed without it");
                counts += Counts::SKIPPED;
                continue;
            }
            if let Some(one) = self.real_python(subject, file) {
                println!(
                    "  {file:<36} its tests start the real python: {}",
                    one.cause
                );
            }
            let expected = self.outcomes(subject, "python", file)?;
            if let Some(how) = &expected.broke_off {
                println!("  {file:<36} python itself broke off: {how}");
            }
            for mode in modes {
                let found = self.outcomes(subject, mode, file)?;
                counts += self.compare(list, subject, &expected, &found)?;
            }
        }
        Ok(counts)
    }

    /// The outcomes of the tests of a file: already known, or determined now.
    fn outcomes(&self, subject: &Subject, way: &str, file: &str) -> Result<Outcomes> {
        let path = self.results(subject, way)?;
        let text = fs::read_to_string(&path).unwrap_or_default();
        let known = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Outcomes>(line).ok())
            .find(|known| known.python == subject.name && known.way == way && known.file == file);
        if let Some(known) = known {
            return Ok(known);
        }
        let found = self.run(subject, way, file, &[])?;
        let mut results = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .at("open", &path)?;
        let line = serde_json::to_string(&found)
            .map_err(|error| Failure::new(format!("cannot write results: {error}")))?;
        writeln!(results, "{line}").at("write", &path)?;
        Ok(found)
    }

    /// Runs a file, or some tests of it.
    fn run(&self, subject: &Subject, way: &str, file: &str, tests: &[&str]) -> Result<Outcomes> {
        let ours = |name: &str| {
            let name = format!("{name}.{}", std::process::id());
            self.directory.join(name)
        };
        let (lines, directory) = (ours("lines"), ours("work"));
        let _ = fs::remove_file(&lines);
        fs::create_dir_all(&directory).at("create", &directory)?;
        let python = match way {
            "python" => subject.python.clone(),
            mode => self.wrapper(subject, mode)?,
        };
        let started_by_tests = match self.real_python(subject, file) {
            Some(_) => &subject.python,
            None => &python,
        };
        let mut command = process::python(&python);
        command.envs(&subject.variables).current_dir(&directory);
        match subject.runner {
            Runner::Unittest => command
                .arg(self.runners.join("run_file.py"))
                .arg(&lines)
                .arg(started_by_tests)
                .arg(file)
                .args(tests),
            Runner::Pytest => command
                .env("PYTHONPATH", self.runners.join("pytest"))
                .args([
                    "-m",
                    "pytest",
                    "-p",
                    "conftest",
                    "-p",
                    "no:cacheprovider",
                    "-c",
                ])
                .arg(self.runners.join("pytest/pytest.ini"))
                .arg("--results")
                .arg(&lines)
                .args(tests.iter().map(|test| format!("--only={test}"))),
        };
        match (subject.runner, &subject.tests) {
            (Runner::Unittest, _) => {}
            (Runner::Pytest, None) => drop(command.args(["--pyargs", file])),
            (Runner::Pytest, Some(directory)) => drop(command.arg(directory.join(file))),
        }
        let mut running = Running::start(command, Output::Keep)?;
        let ended = running.wait(FILE_LIMIT)?;
        let seconds = running.elapsed().as_secs();
        let printed = running.text();
        let text = fs::read_to_string(&lines).unwrap_or_default();
        let _ = fs::remove_file(&lines);
        let _ = fs::remove_dir_all(&directory);
        let mut outcomes = Outcomes {
            python: subject.name.clone(),
            way: way.to_owned(),
            file: file.to_owned(),
            tests: BTreeMap::new(),
            broke_off: None,
            seconds,
        };
        let mut is_done = false;
        for line in text
            .lines()
            .filter_map(|line| serde_json::from_str::<Line>(line).ok())
        {
            if line.done {
                is_done = true;
            } else {
                outcomes.tests.insert(line.test, (line.outcome, line.text));
            }
        }
        if !is_done {
            let last = printed.trim_end().lines().next_back().unwrap_or_default();
            outcomes.broke_off = Some(format!("{}: {last}", ended.describe()));
        }
        Ok(outcomes)
    }

    /// A program that acts as python for the tests, and runs `pedl-run`. With `-I`, `-E` or `-S`
    /// exec mode is refused, and `--mode auto` embeds. On Python 3.7 these options are refused in
    /// both modes, so python itself is run.
    fn wrapper(&self, subject: &Subject, mode: &str) -> Result<PathBuf> {
        let directory = self.wrappers.join(format!("{}-{mode}", subject.name));
        fs::create_dir_all(&directory).at("create", &directory)?;
        let (executable, python) = (self.executable.display(), subject.python.display());
        let command = |mode: &str| format!("{executable}\t--quiet\t--mode\t{mode}\t{python}\n");
        let isolated = if subject.name.starts_with("3.7.") {
            format!("{python}\n")
        } else {
            command("embed")
        };
        let rows = directory.join(WRAPPER_ROWS);
        fs::write(&rows, command(mode) + &isolated).at("write", &rows)?;
        let wrapper = directory.join("python");
        if !wrapper.exists() {
            // Not a link, because some tests ask where it leads.
            fs::copy(self.wrappers.join(WRAPPER), &wrapper).at("write", &wrapper)?;
        }
        Ok(wrapper)
    }

    /// Compares, prints a line, and below it the differences. One without a known cause is a
    /// failure.
    fn compare(
        &self,
        list: &List,
        subject: &Subject,
        expected: &Outcomes,
        found: &Outcomes,
    ) -> Result<Counts> {
        let known = |test: &str| {
            let mut all = list.differences.iter();
            all.find(|one| one.holds(test, &found.python, &found.way))
        };
        let mut differing = different(expected, found);
        let first = differing.len();
        for _ in 0..REPETITIONS {
            let unknown: Vec<_> = differing
                .iter()
                .copied()
                .filter(|test| known(test).is_none())
                .collect();
            if unknown.is_empty() {
                break;
            }
            // Most tests that sometimes fail wait for something; alone they have enough time.
            let again = |tests: &[&str]| -> Result<_> {
                let one = self.run(subject, "python", &found.file, tests)?;
                Ok((one, self.run(subject, &found.way, &found.file, tests)?))
            };
            let is_whole = unknown.len() > MOST_ALONE;
            let mut both = again(if is_whole { &[] } else { &unknown })?;
            let was_run =
                |test: &&str| both.0.tests.contains_key(*test) || both.1.tests.contains_key(*test);
            if !is_whole && !unknown.iter().all(was_run) {
                // The failure was not in a test but in the preparation of some tests.
                both = again(&[])?;
            }
            let still = different(&both.0, &both.1);
            differing.retain(|test| known(test).is_some() || still.contains(test));
        }
        let unknown = differing
            .iter()
            .filter(|test| known(test).is_none())
            .count();
        let verdict = match (first, differing.len(), unknown) {
            (0, ..) => "same".to_owned(),
            (_, 0, _) => format!("same, {first} when run again"),
            (_, all, 0) => format!("same but for {all} with a known cause"),
            (_, _, unknown) => format!("{unknown} DIFFERENT"),
        };
        let (file, way) = (&found.file, &found.way);
        let (tests, seconds) = (found.tests.len(), found.seconds);
        println!("  {file:<36} {way:<6} {tests:>5} tests {seconds:>4} s   {verdict}");
        for test in &differing {
            let outcome = |of: &Outcomes| {
                of.tests
                    .get(*test)
                    .map_or("not run", |one| &one.0)
                    .to_owned()
            };
            println!(
                "      {test}: {} by python, {} by pedl-run",
                outcome(expected),
                outcome(found)
            );
            if let Some(one) = known(test) {
                println!("        {}", one.cause);
                continue;
            }
            let text = found.tests.get(*test).map_or("", |one| &one.1);
            let lines: Vec<_> = text.trim_end().lines().collect();
            for line in &lines[lines.len().saturating_sub(12)..] {
                println!("        | {line}");
            }
        }
        let broke_off = expected
            .broke_off
            .is_none()
            .then_some(found.broke_off.as_ref())
            .flatten();
        if let Some(how) = broke_off {
            println!("      BROKE OFF: {how}");
        }
        Ok(Counts {
            failed: unknown as u64,
            passed: tests.saturating_sub(unknown) as u64,
            errors: u64::from(broke_off.is_some()),
            ..Counts::default()
        })
    }
}

/// The tests with different outcomes.
fn different<'a>(expected: &'a Outcomes, found: &'a Outcomes) -> Vec<&'a str> {
    let mut names: Vec<&str> = expected
        .tests
        .keys()
        .chain(found.tests.keys())
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    names.dedup();
    let outcome = |of: &'a Outcomes, name: &str| of.tests.get(name).map(|one| one.0.as_str());
    names.retain(|name| outcome(expected, name) != outcome(found, name));
    names
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Difference, Outcomes, different, read_list};
    use crate::matrix::Matrix;
    use crate::repository::Repository;

    fn outcomes(tests: &[(&str, &str)]) -> Outcomes {
        let tests = tests
            .iter()
            .map(|(test, outcome)| ((*test).to_owned(), ((*outcome).to_owned(), String::new())));
        Outcomes {
            python: "3.13.0".to_owned(),
            way: "embed".to_owned(),
            file: "test_x".to_owned(),
            tests: tests.collect::<BTreeMap<_, _>>(),
            broke_off: None,
            seconds: 0,
        }
    }

    #[test]
    fn what_failed_what_was_not_run_and_what_is_new_differs() {
        let expected = outcomes(&[("a", "ok"), ("b", "ok"), ("c", "failure")]);
        let found = outcomes(&[("a", "failure"), ("c", "failure"), ("d", "ok")]);
        assert_eq!(different(&expected, &found), ["a", "b", "d"]);
        assert!(different(&expected, &expected).is_empty());
    }

    #[test]
    fn a_known_difference_is_of_whole_names() {
        let known = Difference {
            test: "test_x.Class.test_process".to_owned(),
            pythons: vec!["3.7.".to_owned()],
            modes: vec!["embed".to_owned()],
            cause: String::new(),
        };
        let holds = |test| known.holds(test, "3.7.16", "embed");
        assert!(holds("test.test_x.Class.test_process"));
        assert!(holds("setUp (test.test_x.Class.test_process)"));
        assert!(!holds("test.test_x.Class.test_process_name"));
        assert!(!known.holds("test.test_x.Class.test_process", "3.13.0", "embed"));
        assert!(!known.holds("test.test_x.Class.test_process", "3.7.16", "exec"));
    }

    #[test]
    fn a_known_difference_names_a_file_that_is_run() {
        let list = read_list(&Repository::find()).expect("the list is valid");
        for difference in &list.differences {
            let of_libraries = list.libraries.iter().flat_map(|library| &library.files);
            let is_there = list
                .files
                .iter()
                .chain(of_libraries)
                .any(|file| difference.test.contains(&**file));
            assert!(is_there, "{}", difference.test);
            assert!(
                difference.holds(&difference.test, "3.7.16", "embed")
                    || !difference.pythons.is_empty()
                    || !difference.modes.is_empty()
            );
        }
    }

    #[test]
    fn the_libraries_are_on_stacks_and_what_they_need_is_pinned() {
        let repository = Repository::find();
        let list = read_list(&repository).expect("the list is valid");
        let matrix = Matrix::read(&repository).expect("the matrix is valid");
        for library in &list.libraries {
            // Its tests come with it, or from a revision of its repository.
            assert_ne!(library.source.is_some(), library.revision.is_some());
            assert_eq!(library.repository.is_some(), library.revision.is_some());
            for on in &library.stacks {
                let stack = library.stack(on, &matrix).expect("the stack is there");
                if let Some(source) = &library.source {
                    let named = format!("{source}==");
                    let mut requirements = stack.requirements.iter();
                    assert!(requirements.any(|one| one.starts_with(&named)), "{named}");
                }
                for requirement in &on.requirements {
                    assert_eq!(requirement.matches("==").count(), 1, "{requirement}");
                }
            }
        }
    }
}
