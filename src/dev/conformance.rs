//! `cargo dev conformance`: CPython's own tests, by python itself and with `pedl-run` in its place.
//!
//! For each Python of `tests/conformance/list.toml`, each file of its tests is run three times: by that
//! Python, and by `pedl-run` in both modes, where the tests start `pedl-run` too where they would start
//! python. A test has to come out the same. One that does not is run again by itself, since many depend on
//! the time; if it still differs, it has to be on the list of known differences, which names the cause.
//!
//! A short part of it, the gate, belongs to `cargo dev test`.
//!
//! Results are kept below the cache directory in `conformance/`, in a file for each executable, so that a
//! run that was interrupted goes on where it was.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Options;
use crate::environment;
use crate::failure::{At as _, Failure, Result};
use crate::interpreter::Interpreter;
use crate::process::{self, Output, Running};
use crate::repository::Repository;
use crate::summary::Counts;

/// One file of tests; those of multiprocessing take two minutes on an idle machine.
const FILE_LIMIT: Duration = Duration::from_secs(20 * 60);

/// The ways of running a test: python itself, and the modes of `pedl-run`.
const WAYS: [&str; 3] = ["python", "embed", "exec"];

/// What tests start as python. With `-I`, `-E` or `-S` exec mode is refused, and `--mode auto` embeds; on
/// Python 3.7 they are refused altogether, so that python itself runs there.
const WRAPPER: &str = r#"#!/bin/sh
isolated=
value=
for word; do
    if [ "$value" ]; then
        value=
        continue
    fi
    case $word in
        -X | -W | --check-hash-based-pycs) value=next ;;
        -X* | -W* | --*) ;;
        -c* | -m* | -) break ;;
        -*[IES]*) isolated=yes ;;
        -*) ;;
        *) break ;;
    esac
done
[ "$isolated" ] && exec ISOLATED "$@"
exec 'EXECUTABLE' --quiet --mode MODE 'PYTHON' "$@"
"#;

/// The list of what is run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    pythons: Vec<String>,
    files: Vec<String>,
    gate_pythons: Vec<String>,
    gate_files: Vec<String>,
    #[serde(default, rename = "difference")]
    differences: Vec<Difference>,
}

/// A difference that is known.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    /// A part of the names of the tests.
    test: String,
    /// Beginnings of the versions; none: all.
    #[serde(default)]
    pythons: Vec<String>,
    /// None: both.
    #[serde(default)]
    modes: Vec<String>,
    cause: String,
}

impl Difference {
    fn holds(&self, test: &str, version: &str, way: &str) -> bool {
        let is_of = |list: &[String], found: &str| {
            list.is_empty() || list.iter().any(|one| found.starts_with(&**one))
        };
        test.contains(&self.test) && is_of(&self.pythons, version) && is_of(&self.modes, way)
    }
}

/// What became of the tests of one file, in one way.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Outcomes {
    python: String,
    way: String,
    file: String,
    /// By the names of the tests: what became of each, and why.
    tests: BTreeMap<String, (String, String)>,
    /// How the process ended, where it did not come to the end of the file.
    broke_off: Option<String>,
    seconds: u64,
}

/// A line of `run_file.py`.
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

/// Runs what is not there yet, and compares. Says whether all is as it should be.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<bool> {
    let options = Options::parse(arguments, &["python", "mode", "file"])?.no_rest()?;
    let repository = Repository::find();
    let list = read_list(&repository)?;
    let built = repository.build()?;
    let campaign = Campaign::new(&repository, &built)?;
    let chosen = |name: &str, found: &str| {
        let mut values = options.all(name).peekable();
        values.peek().is_none() || values.any(|value| value == found)
    };
    let modes: Vec<_> = WAYS[1..]
        .iter()
        .copied()
        .filter(|mode| chosen("mode", mode))
        .collect();
    let files: Vec<_> = list
        .files
        .iter()
        .filter(|file| chosen("file", file))
        .collect();
    let mut good = true;
    for version in list
        .pythons
        .iter()
        .filter(|version| chosen("python", version))
    {
        println!("\n{version}");
        match Interpreter::exactly(version) {
            Some(interpreter) => {
                good &= campaign.files(&list, &interpreter, &files, &modes)?.good();
            }
            None => println!("  skipped: no Python {version} was found"),
        }
    }
    Ok(good)
}

/// The part that belongs to `cargo dev test`: a few short files, on the oldest and the newest Python.
pub(crate) fn gate(repository: &Repository, executable: &Path) -> Result<Counts> {
    let list = read_list(repository)?;
    let campaign = Campaign::new(repository, executable)?;
    let files: Vec<_> = list.gate_files.iter().collect();
    let mut counts = Counts::default();
    for version in &list.gate_pythons {
        println!("\n{version}");
        if let Some(interpreter) = Interpreter::find(std::slice::from_ref(version)) {
            counts += campaign.files(&list, &interpreter, &files, &WAYS[1..])?;
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
fn has_file(interpreter: &Interpreter, file: &str) -> Result<bool> {
    let question = "import importlib.util, sys; import test; test.__path__.append(sys.argv[2]); \
                    print(importlib.util.find_spec('test.' + sys.argv[1]) is not None)";
    let missing = Repository::find().root().join("tests/conformance/missing");
    let mut python = process::python(&interpreter.path);
    python.args(["-c", question, file]).arg(missing);
    let mut running = Running::start(python, Output::KeepStdout)?;
    let ended = running.wait(FILE_LIMIT)?;
    Ok(ended.success() && running.text().trim() == "True")
}

/// All runs of one executable.
struct Campaign {
    executable: PathBuf,
    run_file: PathBuf,
    /// The results so far.
    results: PathBuf,
    /// Where the programs lie that tests start as python.
    wrappers: PathBuf,
}

impl Campaign {
    /// Copies the executable: what is built in the hours to come is not what these results are about.
    fn new(repository: &Repository, built: &Path) -> Result<Self> {
        let run_file = repository.root().join("tests/conformance/run_file.py");
        let mut bytes = fs::read(built).at("read", built)?;
        bytes.extend(fs::read(&run_file).at("read", &run_file)?);
        let hash = blake3::hash(&bytes).to_hex();
        let directory = environment::cache_directory()?
            .join("conformance")
            .join(&hash[..12]);
        let wrappers = directory.join("python");
        fs::create_dir_all(&wrappers).at("create", &wrappers)?;
        let executable = directory.join("pedl-run");
        if !executable.exists() {
            let copy = directory.join(format!("pedl-run.{}", std::process::id()));
            fs::copy(built, &copy).at("copy", built)?;
            fs::rename(&copy, &executable).at("replace", &executable)?;
        }
        println!("{}", directory.display());
        Ok(Self {
            executable,
            run_file,
            results: directory.join("results.jsonl"),
            wrappers,
        })
    }

    /// Runs files by one Python in all ways, and compares.
    fn files(
        &self,
        list: &List,
        interpreter: &Interpreter,
        files: &[&String],
        modes: &[&str],
    ) -> Result<Counts> {
        let mut counts = Counts::default();
        if interpreter.version.starts_with("3.7.") {
            println!(
                "  -I, -E and -S are refused on Python 3.7; where tests use them, python itself runs"
            );
        }
        for file in files {
            if !has_file(interpreter, file)? {
                println!("  {file:<36} skipped: this Python was installed without it");
                counts += Counts::SKIPPED;
                continue;
            }
            let expected = self.outcomes(interpreter, "python", file)?;
            for mode in modes {
                let found = self.outcomes(interpreter, mode, file)?;
                counts += self.compare(list, interpreter, &expected, &found)?;
            }
        }
        Ok(counts)
    }

    /// What became of the tests of a file: known already, or found out now.
    fn outcomes(&self, interpreter: &Interpreter, way: &str, file: &str) -> Result<Outcomes> {
        let text = fs::read_to_string(&self.results).unwrap_or_default();
        let known = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Outcomes>(line).ok())
            .find(|known| {
                known.python == interpreter.version && known.way == way && known.file == file
            });
        if let Some(known) = known {
            return Ok(known);
        }
        let found = self.run(interpreter, way, file, &[])?;
        let mut results = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.results)
            .at("open", &self.results)?;
        let line = serde_json::to_string(&found)
            .map_err(|error| Failure::new(format!("cannot write results: {error}")))?;
        writeln!(results, "{line}").at("write", &self.results)?;
        Ok(found)
    }

    /// Runs a file, or some tests of it.
    fn run(
        &self,
        interpreter: &Interpreter,
        way: &str,
        file: &str,
        tests: &[&str],
    ) -> Result<Outcomes> {
        let lines = self
            .results
            .with_file_name(format!("lines.{}", std::process::id()));
        let _ = fs::remove_file(&lines);
        let python = match way {
            "python" => interpreter.path.clone(),
            mode => self.wrapper(interpreter, mode)?,
        };
        let mut command = process::python(&python);
        command
            .arg(&self.run_file)
            .arg(&lines)
            .arg(&python)
            .arg(file)
            .args(tests);
        let mut running = Running::start(command, Output::Keep)?;
        let ended = running.wait(FILE_LIMIT)?;
        let seconds = running.elapsed().as_secs();
        let printed = running.text();
        let text = fs::read_to_string(&lines).unwrap_or_default();
        let _ = fs::remove_file(&lines);
        let mut outcomes = Outcomes {
            python: interpreter.version.clone(),
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

    /// A program that is python for the tests, and runs `pedl-run`.
    fn wrapper(&self, interpreter: &Interpreter, mode: &str) -> Result<PathBuf> {
        let directory = self
            .wrappers
            .join(format!("{}-{mode}", interpreter.version));
        fs::create_dir_all(&directory).at("create", &directory)?;
        let wrapper = directory.join("python");
        let isolated = if interpreter.version.starts_with("3.7.") {
            "'PYTHON'"
        } else {
            "'EXECUTABLE' --quiet --mode embed 'PYTHON'"
        };
        let text = WRAPPER
            .replace("ISOLATED", isolated)
            .replace("MODE", mode)
            .replace("EXECUTABLE", &self.executable.to_string_lossy())
            .replace("PYTHON", &interpreter.path.to_string_lossy());
        if fs::read_to_string(&wrapper).ok().as_ref() != Some(&text) {
            fs::write(&wrapper, text).at("write", &wrapper)?;
            let executable = Permissions::from_mode(0o755);
            fs::set_permissions(&wrapper, executable).at("make executable", &wrapper)?;
        }
        Ok(wrapper)
    }

    /// Compares, prints a line, and what differs below it. What differs without a known cause has failed.
    fn compare(
        &self,
        list: &List,
        interpreter: &Interpreter,
        expected: &Outcomes,
        found: &Outcomes,
    ) -> Result<Counts> {
        let mut differing = different(expected, found);
        let first = differing.len();
        if !differing.is_empty() {
            // Most tests that fail now and then wait for something; alone they have the time.
            let again = |way: &str| self.run(interpreter, way, &found.file, &differing);
            let (one, other) = (again("python")?, again(&found.way)?);
            let still = different(&one, &other);
            differing.retain(|test| still.contains(test));
        }
        let known = |test: &str| {
            let mut all = list.differences.iter();
            all.find(|one| one.holds(test, &found.python, &found.way))
        };
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

/// The tests that did not come out the same.
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

    use super::{Outcomes, different, read_list};
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
    fn a_known_difference_names_a_file_that_is_run() {
        let list = read_list(&Repository::find()).expect("the list is valid");
        for difference in &list.differences {
            let is_there = list
                .files
                .iter()
                .any(|file| difference.test.contains(&**file));
            assert!(is_there, "{}", difference.test);
            assert!(
                difference.holds(&difference.test, "3.7.16", "embed")
                    || !difference.pythons.is_empty()
                    || !difference.modes.is_empty()
            );
        }
    }
}
