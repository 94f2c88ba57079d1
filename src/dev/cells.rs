//! `cargo dev matrix`, `cargo dev gallery`, `cargo dev campaign` and `cargo dev sessions`: kill
//! trainings on every stack that has a script for them. `cargo dev kills` uses [`run`] too.
//!
//! `tests/campaigns/matrix.py`, `tests/campaigns/gallery.py`, `tests/campaigns/campaign.py` and
//! `tests/campaigns/sessions.py` define the cells and what each has to show, and do the work with
//! the Python of each stack. Results are kept below the cache directory, in a file for each
//! executable and state of those programs, so an interrupted command continues where it was.
//! `cargo dev matrix --table write` writes the table of `docs/reference/exactness-matrix.md`
//! (`table`).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::Options;
use crate::environment::{self, Environment};
use crate::failure::{At as _, Failure, Result};
use crate::interpreter::Interpreter;
use crate::matrix::{Matrix, Stack};
use crate::process::{Ended, Output, Running};
use crate::repository::Repository;

/// Scripts, by the tag of the stacks they are for.
pub(crate) type Scripts = &'static [(&'static str, &'static str)];

/// The scripts that train with every source of batches of their Keras.
pub(crate) const EVERYTHING: Scripts = &[
    ("keras2", "everything_keras2.py"),
    ("generation", "everything_keras2.py"),
    ("tfkeras", "everything_tensorflow2.py"),
    ("keras3", "everything_keras3.py"),
    ("tf-data", "everything_keras3.py"),
];

/// Enough for all cells of one stack, on a slow machine.
const STACK_LIMIT: Duration = Duration::from_secs(12 * 60 * 60);

/// A program that runs cells with the Python of a stack.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) scripts: Scripts,
    /// Options of the command line that it takes too.
    pub(crate) options: &'static [&'static str],
    /// Files that it uses, besides itself and `tests/campaigns/everything.py`.
    pub(crate) files: &'static [&'static str],
    /// Whether each stack gets a part of the work (`--part`), and not all of it.
    pub(crate) is_shared: bool,
}

const CAMPAIGN: Program = Program {
    name: "campaign",
    scripts: EVERYTHING,
    options: &["source", "kills", "epochs"],
    files: &[],
    is_shared: false,
};

const MATRIX: Program = Program {
    name: "matrix",
    scripts: EVERYTHING,
    options: &["cell"],
    files: &[],
    is_shared: false,
};

const GALLERY: Program = Program {
    name: "gallery",
    scripts: &[
        ("keras2", "gallery.py"),
        ("generation", "gallery.py"),
        ("tfkeras", "gallery.py"),
        ("keras3", "gallery.py"),
    ],
    options: &["cell", "kind"],
    files: &["tests/scripts/gallery.py"],
    is_shared: false,
};

const SESSIONS: Program = Program {
    name: "sessions",
    scripts: &[("sessions", "session_loops.py")],
    options: &["kind", "kills"],
    files: &[
        "tests/scripts/session_loops.py",
        "tests/scripts/unordered.py",
    ],
    is_shared: false,
};

/// Runs loops over sessions; returns whether all of them are good.
pub(crate) fn sessions(arguments: Vec<OsString>) -> Result<bool> {
    let options = Options::parse(arguments, &["stack", "kind", "kills"])?.no_rest()?;
    Ok(run(&SESSIONS, &options)?.good)
}

/// Trains with each public name of each generation of Keras, and prints the outcomes by generation;
/// returns whether all of them are good.
pub(crate) fn gallery(arguments: Vec<OsString>) -> Result<bool> {
    let options = Options::parse(arguments, &["stack", "cell", "kind"])?.no_rest()?;
    let stacks = run(&GALLERY, &options)?;
    let repository = Repository::find();
    let matrix = Matrix::read(&repository)?;
    let order: Vec<&str> = matrix.stacks.iter().map(|stack| &*stack.name).collect();
    let results = fs::read_to_string(&stacks.results).at("read", &stacks.results)?;
    println!("\n{}", summary_of_names(&results, &order)?);
    Ok(stacks.good)
}

/// The number of names by outcome for each stack, and below that each name that is not exact.
fn summary_of_names(results: &str, order: &[&str]) -> Result<String> {
    const OUTCOMES: [&str; 4] = ["exact", "cause", "does not run", "FAILED"];
    let mut by_stack: BTreeMap<usize, BTreeMap<String, String>> = BTreeMap::new();
    for line in results.lines() {
        let line: Line = serde_json::from_str(line)
            .map_err(|error| Failure::new(format!("not a result: {error}\n{line}")))?;
        let (stack, name, _) = line.cell;
        let place = order.iter().position(|other| *other == stack);
        let names = by_stack.entry(place.unwrap_or(order.len())).or_default();
        names.insert(name, line.outcome);
    }
    let mut text =
        String::from("| stack | cells | exact | declined | not under python | failed |\n");
    text += "|---|---|---|---|---|---|\n";
    for (place, names) in &by_stack {
        let stack = order.get(*place).copied().unwrap_or("?");
        let counts = OUTCOMES.map(|outcome| {
            let is_it = |found: &&String| found.starts_with(outcome);
            names.values().filter(is_it).count().to_string()
        });
        let _ = writeln!(
            text,
            "| {stack} | {} | {} |",
            names.len(),
            counts.join(" | ")
        );
    }
    for (place, names) in &by_stack {
        let stack = order.get(*place).copied().unwrap_or("?");
        for (name, outcome) in names.iter().filter(|(_, outcome)| *outcome != "exact") {
            let _ = write!(text, "\n{stack} {name}: {outcome}");
        }
    }
    Ok(text)
}

/// Runs the cells of the campaign; returns whether all of them are good.
pub(crate) fn campaign(arguments: Vec<OsString>) -> Result<bool> {
    let options = Options::parse(arguments, &["stack", "source", "kills", "epochs"])?.no_rest()?;
    Ok(run(&CAMPAIGN, &options)?.good)
}

/// Runs the cells of the matrix, and prints their table; returns whether all of them are good.
pub(crate) fn matrix(arguments: Vec<OsString>) -> Result<bool> {
    let options = Options::parse(arguments, &["stack", "cell", "table"])?.no_rest()?;
    let writes = match options.all("table").last() {
        None => false,
        Some("write") => true,
        Some(other) => {
            let what = format!("`--table {other}`: only `write` is known");
            return Err(Failure::usage(what));
        }
    };
    let stacks = run(&MATRIX, &options)?;
    let repository = Repository::find();
    let matrix = Matrix::read(&repository)?;
    let order: Vec<&str> = matrix.stacks.iter().map(|stack| &*stack.name).collect();
    let results = fs::read_to_string(&stacks.results).at("read", &stacks.results)?;
    let table = table(&results, &order)?;
    println!("\n{table}");
    if writes {
        write_into_page(&repository, &table)?;
    }
    Ok(stacks.good)
}

/// The results of a program on all requested stacks.
pub(crate) struct StackResults {
    /// The file with the results.
    pub(crate) results: PathBuf,
    /// Whether all are good.
    pub(crate) good: bool,
    /// The stacks that were run, and the part of the work that each had, as `1/7`.
    pub(crate) parts: Vec<(String, String)>,
}

/// Runs a program on each requested stack.
pub(crate) fn run(program: &Program, options: &Options) -> Result<StackResults> {
    let repository = Repository::find();
    let matrix = Matrix::read(&repository)?;
    let chosen: Vec<&str> = options.all("stack").collect();
    for name in &chosen {
        script_of(program.scripts, matrix.stack(name)?).ok_or_else(|| {
            let tags: Vec<_> = program.scripts.iter().map(|(tag, _)| *tag).collect();
            let tags = tags.join(", ");
            Failure::usage(format!(
                "`{name}` trains nothing: it has none of the tags {tags}"
            ))
        })?;
    }
    let built = repository.build()?;
    let results = results_of(program, &repository, &built)?;
    let executable = results.with_extension("pedl-run");
    // A copy, because builds in the next hours must not change the executable of these results. The
    // same program may already run it for another stack, so a rename puts the copy in place.
    let copy = executable.with_extension(format!("pedl-run.{}", std::process::id()));
    fs::copy(&built, &copy).at("copy", &built)?;
    fs::rename(&copy, &executable).at("replace", &executable)?;
    println!("{}\n{}", executable.display(), results.display());

    let mut here = Vec::new();
    for stack in &matrix.stacks {
        let Some(script) = script_of(program.scripts, stack) else {
            continue;
        };
        if !chosen.is_empty() && !chosen.contains(&&*stack.name) {
            continue;
        }
        if let (Some(why), true) = (&stack.optional, chosen.is_empty()) {
            println!("{}: skipped: {why}", stack.name);
            continue;
        }
        let interpreter = match Interpreter::of(stack) {
            Ok(interpreter) => interpreter,
            Err(why) => {
                println!("{}: skipped: {why}", stack.name);
                continue;
            }
        };
        here.push((stack, script, interpreter));
    }

    let (mut good, mut parts) = (true, Vec::new());
    for (number, (stack, script, interpreter)) in here.iter().enumerate() {
        println!("\n{}", stack.name);
        let environment = Environment::of(stack, interpreter)?;
        let mut python = environment.command();
        python
            .args(["-u", "-m"])
            .arg(format!("campaigns.{}", program.name));
        python
            .args(["--stack", &stack.name, "--script", script])
            .arg("--results")
            .arg(&results);
        let part = format!("{}/{}", number + 1, here.len());
        if program.is_shared {
            python.arg(format!("--part={part}"));
        }
        parts.push((stack.name.clone(), part));
        for name in program.options {
            for value in options.all(name) {
                python.arg(format!("--{name}={value}"));
            }
        }
        python
            .current_dir(repository.root().join("tests"))
            .env("PEDL_STACK_TAGS", stack.tags.join(" "))
            .env("PEDL_RUN", &executable);
        let mut running = Running::start(python, Output::Copy)?;
        good &= matches!(running.wait(STACK_LIMIT)?, Ended::Exited(status) if status.success());
        running.text();
    }
    Ok(StackResults {
        results,
        good,
        parts,
    })
}

fn file_of(program: &Program, repository: &Repository) -> PathBuf {
    repository
        .root()
        .join(format!("tests/campaigns/{}.py", program.name))
}

/// The script that a stack runs; none if no tag of the stack has one.
fn script_of(scripts: Scripts, stack: &Stack) -> Option<&'static str> {
    let tagged = |tag: &str| stack.tags.iter().any(|other| other == tag);
    scripts
        .iter()
        .find(|(tag, _)| tagged(tag))
        .map(|(_, script)| *script)
}

/// The results file of an executable and of the program that runs it.
fn results_of(program: &Program, repository: &Repository, executable: &Path) -> Result<PathBuf> {
    let directory = environment::cache_directory()?.join(program.name);
    fs::create_dir_all(&directory).at("create", &directory)?;
    let mut hasher = blake3::Hasher::new();
    let mut files = vec![executable.to_owned(), file_of(program, repository)];
    for name in ["tests/campaigns/everything.py"]
        .iter()
        .chain(program.files)
    {
        files.push(repository.root().join(name));
    }
    for path in files {
        hasher.update(&fs::read(&path).at("read", &path)?);
    }
    let hash = hasher.finalize().to_hex();
    Ok(directory.join(format!("{}.jsonl", &hash[..12])))
}

/// The outcome of one cell, as `tests/campaigns/matrix.py` writes it.
#[derive(Debug, Deserialize)]
struct Line {
    /// Stack, source or feature, seed.
    cell: (String, String, Option<u64>),
    outcome: String,
}

/// The table of all cells: a line for each stack, a column for each source. The features, which few
/// stacks have tried, are in a separate table.
fn table(results: &str, order: &[&str]) -> Result<String> {
    let mut outcomes: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    let mut by_stack: BTreeMap<usize, (String, Vec<String>)> = BTreeMap::new();
    for line in results.lines() {
        let line: Line = serde_json::from_str(line)
            .map_err(|error| Failure::new(format!("not a result: {error}\n{line}")))?;
        let (stack, name, _) = line.cell;
        let place = order.iter().position(|other| *other == stack);
        let place = place.unwrap_or(order.len());
        let (_, names) = by_stack
            .entry(place)
            .or_insert_with(|| (stack.clone(), Vec::new()));
        if !names.contains(&name) {
            names.push(name.clone());
        }
        let cell = outcomes.entry((stack, name)).or_default();
        cell.insert(line.outcome);
    }
    let mut names: Vec<&String> = Vec::new();
    for name in by_stack.values().flat_map(|(_, names)| names) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let is_common = |name: &&&String| {
        let tried = by_stack.values().filter(|(_, names)| names.contains(name));
        tried.count() * FEW > by_stack.len()
    };
    let (common, rare): (Vec<&String>, Vec<&String>) = names.iter().partition(is_common);
    let (mut text, mut causes) = (String::new(), Vec::new());
    for columns in [common, rare] {
        if columns.is_empty() {
            continue;
        }
        let head: Vec<&str> = columns.iter().map(|name| name.as_str()).collect();
        let _ = writeln!(text, "| `--exact` | {} |", head.join(" | "));
        let _ = writeln!(text, "|---|{}", "---|".repeat(columns.len()));
        for (stack, tried) in by_stack.values() {
            if !columns.iter().any(|name| tried.contains(name)) {
                continue;
            }
            let cells = columns.iter().map(|name| {
                let found = outcomes.get(&(stack.clone(), (*name).clone()));
                found.map_or("–".to_owned(), |found| shown(found, &mut causes))
            });
            let cells: Vec<String> = cells.collect();
            let _ = writeln!(text, "| {stack} | {} |", cells.join(" | "));
        }
        text.push('\n');
    }
    for (number, cause) in causes.iter().enumerate() {
        let _ = writeln!(text, "{}: {cause}.", number + 1);
    }
    Ok(text.trim_end().to_owned() + "\n")
}

/// A name that at most one stack in this many has tried is not a column of the table of sources.
const FEW: usize = 3;

/// One cell: the outcomes of its two trainings, with a seed and without.
fn shown(outcomes: &BTreeSet<String>, causes: &mut Vec<String>) -> String {
    let words = outcomes.iter().map(|outcome| {
        let Some(cause) = outcome.strip_prefix("cause: ") else {
            let word = outcome.split(':').next().unwrap_or_default();
            return word.to_owned();
        };
        let place = causes.iter().position(|known| known == cause);
        let place = place.unwrap_or_else(|| {
            causes.push(cause.to_owned());
            causes.len() - 1
        });
        format!("no ({})", place + 1)
    });
    words.collect::<Vec<_>>().join(", ")
}

/// Where the table is.
const PAGE: &str = "docs/reference/exactness-matrix.md";

const BEGIN: &str = "<!-- cargo dev matrix -->\n";
const END: &str = "<!-- end -->";

fn write_into_page(repository: &Repository, table: &str) -> Result<()> {
    let path = repository.root().join(PAGE);
    let text = fs::read_to_string(&path).at("read", &path)?;
    let place = text.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    let (before, after) = place
        .ok_or_else(|| Failure::new(format!("`{}` has no place for the table", path.display())))?;
    let text = format!("{before}{BEGIN}{table}{END}{after}");
    fs::write(&path, text).at("write", &path)
}

#[cfg(test)]
mod tests {
    use super::{EVERYTHING, script_of, table};
    use crate::matrix::Matrix;
    use crate::repository::Repository;

    #[test]
    fn a_cell_is_what_both_of_its_trainings_have_come_to() {
        let lines = [
            r#"{"cell": ["tf", "arrays", 3], "outcome": "exact"}"#,
            r#"{"cell": ["tf", "arrays", null], "outcome": "FAILED: other hashes"}"#,
            r#"{"cell": ["tf", "tf-data", 3], "outcome": "cause: it keeps no order"}"#,
            r#"{"cell": ["jax", "arrays", 3], "outcome": "exact", "kills": 5}"#,
            r#"{"cell": ["jax", "arrays", null], "outcome": "exact"}"#,
            r#"{"cell": ["torch", "arrays", 3], "outcome": "exact"}"#,
            r#"{"cell": ["torch", "tf-data", 3], "outcome": "exact"}"#,
        ];
        let table = table(&lines.join("\n"), &["jax", "tf", "torch"]).expect("they are valid");
        let expected = "| `--exact` | arrays | tf-data |\n|---|---|---|\n| jax | exact | – |\n\
                        | tf | FAILED, exact | no (1) |\n| torch | exact | exact |\n\n1: it keeps no order.\n";
        assert_eq!(table, expected);
    }

    #[test]
    fn what_few_stacks_have_tried_has_a_table_of_its_own() {
        let cell = |stack: &str, name: &str| {
            format!("{{\"cell\": [\"{stack}\", \"{name}\", 3], \"outcome\": \"exact\"}}")
        };
        let lines = [
            cell("a", "arrays"),
            cell("a", "RMSprop"),
            cell("b", "arrays"),
            cell("c", "arrays"),
        ];
        let table = table(&lines.join("\n"), &["a", "b", "c"]).expect("they are valid");
        let expected = "| `--exact` | arrays |\n|---|---|\n| a | exact |\n| b | exact |\n| c | exact |\n\n\
                        | `--exact` | RMSprop |\n|---|---|\n| a | exact |\n";
        assert_eq!(table, expected);
    }

    #[test]
    fn every_stack_with_a_keras_has_a_script_that_is_there() {
        let repository = Repository::find();
        let matrix = Matrix::read(&repository).expect("the file is valid");
        for stack in &matrix.stacks {
            let has_keras = stack
                .tags
                .iter()
                .any(|tag| ["keras", "generation", "tfkeras", "tf-data"].contains(&&**tag));
            let script = script_of(EVERYTHING, stack);
            assert_eq!(script.is_some(), has_keras, "{}", stack.name);
            if let Some(script) = script {
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
