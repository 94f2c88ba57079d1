//! All runs of one executable: each file in each way, and the file with the results.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::list::{List, RealPython};
use super::outcomes::Outcomes;
use super::subject::{Runner, Subject};
use crate::environment;
use crate::failure::{At as _, Failure, Result};
use crate::process::{self, Output, Running};
use crate::repository::Repository;
use crate::summary::Counts;

/// Enough for one file of tests; those of multiprocessing take two minutes on an idle machine.
const FILE_LIMIT: Duration = Duration::from_secs(30 * 60);

/// The program that tests start as python (`python.rs`), and the file beside it that says what to
/// run.
const WRAPPER: &str = "pedl-dev-python";
const WRAPPER_ROWS: &str = "commands";

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

/// All runs of one executable.
pub(super) struct Campaign {
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
    pub(super) fn new(repository: &Repository, built: &Path, list: &List) -> Result<Self> {
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
    pub(super) fn files(
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
    pub(super) fn run(
        &self,
        subject: &Subject,
        way: &str,
        file: &str,
        tests: &[&str],
    ) -> Result<Outcomes> {
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
