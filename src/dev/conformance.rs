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

mod campaign;
mod compare;
mod list;
mod outcomes;
mod subject;

use std::ffi::OsString;
use std::path::Path;

use crate::Options;
use crate::environment::Environment;
use crate::failure::Result;
use crate::interpreter::Interpreter;
use crate::matrix::Matrix;
use crate::repository::Repository;
use crate::summary::Counts;
use campaign::Campaign;
use list::read_list;
use subject::Subject;

/// The ways of running a test: python itself, and the modes of `pedl-run`.
const WAYS: [&str; 3] = ["python", "embed", "exec"];

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
