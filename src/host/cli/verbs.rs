//! The verbs of `pedl`: the same executable under its other name.
//!
//! One table; help and completions come from it. Verbs that report on Python start a separate
//! interpreter (`py_hooks/verbs/report.py`), so that they touch no script and no trial.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{FlockOperation, fcntl_lock};

use super::parse::{self, CommandLine};
use super::{ask_python, checkpoint, completions, man, package, reference, report};
use crate::failure::{Exit, Failure};
use crate::verify::OPTIONS;
use crate::{interpreter, library};

/// The name by which the verbs are reached.
const NAME: &str = "pedl";

/// Bytes that `pedl doctor` writes into the directory of trials.
const PROBE_BYTES: usize = 64 << 10;

/// One verb.
struct Verb {
    name: &'static str,
    arguments: &'static str,
    help: &'static str,
    /// Receives what follows the name; returns the exit code.
    run: fn(&[OsString]) -> Result<i32, Failure>,
}

/// All of them, in the order of the help.
static VERBS: &[Verb] = &[
    Verb {
        name: "run",
        arguments: "[OPTIONS] [PYTHON OPTIONS] SCRIPT [ARGS]...",
        help: "what `pedl-run` does; `pedl-run --help` lists its options",
        run: |arguments| super::run_script(arguments.to_vec()),
    },
    Verb {
        name: "verify",
        arguments: "[--kills N] [OPTIONS] SCRIPT [ARGS]...",
        help: "shows on copies of this directory that a script continues exactly",
        run: verify,
    },
    Verb {
        name: "checkpoint",
        arguments: "list|show|verify|export|snapshot [TRIAL_DIR] [OPTIONS]...",
        help: "what checkpoints of a trial hold, whether they are whole; exports them, copies it",
        run: checkpoint::run,
    },
    Verb {
        name: "hooks",
        arguments: "[--python PATH] [--check] [LIBRARY [VERSION [NAME]]]",
        help: "where a library is intercepted, by which code, and why",
        run: hooks,
    },
    Verb {
        name: "doctor",
        arguments: "[--python PATH] [--mode MODE] [--schema]",
        help: "what a run would use here, and what it could not do; or the schema of configurations",
        run: doctor,
    },
    Verb {
        name: "package",
        arguments: "DIR [--output FILE] [--json]",
        help: "what of a model definition would travel; packs it",
        run: package::run,
    },
    Verb {
        name: "completions",
        arguments: "bash|zsh|fish",
        help: "completions of pedl and pedl-run for a shell, to be sourced",
        run: completions,
    },
    Verb {
        name: "reference",
        arguments: "[PAGE]",
        help: "a page of the reference documentation, as Markdown; without PAGE their names",
        run: reference::run,
    },
    Verb {
        name: "man",
        arguments: "",
        help: "the manual page of pedl-run, for `man -l -`",
        run: |arguments| match arguments.first() {
            None => Ok(report::answer(&man::page())),
            Some(word) => {
                let word = word.to_string_lossy();
                Err(usage(format!("unexpected argument `{word}`")))
            }
        },
    },
];

/// Whether this process was started under the name of the verbs.
pub(super) fn is_asked_for() -> bool {
    let name = env::args_os().next().unwrap_or_default();
    Path::new(&name).file_name() == Some(OsStr::new(NAME))
}

/// Runs a command line of `pedl`, and returns the exit code.
pub(super) fn run(arguments: &[OsString]) -> Result<i32, Failure> {
    let Some((first, rest)) = arguments.split_first() else {
        return Ok(report::answer(&help()));
    };
    let first = first.to_string_lossy();
    match &*first {
        "--help" | "help" => return Ok(report::answer(&help())),
        "--version" => return Ok(report::answer(super::VERSION)),
        _ => {}
    }
    let verb = VERBS
        .iter()
        .find(|verb| verb.name == first)
        .ok_or_else(|| {
            let names: Vec<_> = VERBS
                .iter()
                .map(|verb| format!("`{}`", verb.name))
                .collect();
            let failure = usage(format!("there is no verb `{first}`"))
                .detail(format!("expected: {}", names.join(", ")));
            match meant(&first) {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        })?;
    (verb.run)(rest)
}

fn help() -> String {
    let mut text = String::from("usage: pedl VERB [ARGUMENTS]...\n\n");
    for (call, help) in calls() {
        let _ = writeln!(text, "  {call}\n      {help}");
    }
    text
}

/// Each verb as it is typed, with its help.
pub(super) fn calls() -> impl Iterator<Item = (String, &'static str)> {
    VERBS.iter().map(|verb| {
        let call = format!("pedl {} {}", verb.name, verb.arguments);
        (call.trim_end().to_owned(), verb.help)
    })
}

pub(super) fn usage(what: impl Into<String>) -> Failure {
    Failure::new(Exit::Usage, what).hint("`pedl --help` lists the verbs")
}

/// A suggestion for a word that is no verb.
fn meant(word: &str) -> Option<String> {
    if Path::new(word).is_file() {
        return Some(format!("`pedl run {word}` runs a script"));
    }
    let close = VERBS
        .iter()
        .find(|verb| strsim::levenshtein(word, verb.name) <= 2)?;
    Some(format!(
        "did you mean `pedl {}`? `pedl --help` lists the verbs",
        close.name
    ))
}

/// The arguments of a verb: options of `pedl-run`, other words, and whether its switch is set.
struct Given {
    line: CommandLine,
    words: Vec<OsString>,
    switch: bool,
}

/// Takes the arguments of a verb apart; `None` if its help is requested.
fn take_apart(arguments: &[OsString], switch: &str) -> Result<Option<Given>, Failure> {
    let (mut options, mut words) = (Vec::new(), Vec::new());
    let mut is_given = false;
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        match &*word.to_string_lossy() {
            text if text == switch => is_given = true,
            "--help" | "-h" => return Ok(None),
            "--python" | "--mode" => {
                options.push(word.clone());
                let value = rest
                    .next()
                    .ok_or_else(|| usage(format!("`{}` has no value", word.to_string_lossy())))?;
                options.push(value.clone());
            }
            text if text.starts_with("--python=") || text.starts_with("--mode=") => {
                options.push(word.clone());
            }
            text if text.starts_with('-') => {
                return Err(usage(format!("`{text}` is no option of this verb"))
                    .detail(format!("expected: --python PATH, --mode MODE or {switch}")));
            }
            _ => words.push(word.clone()),
        }
    }
    // A verb needs no script, but a command line of `pedl-run` does.
    options.push("-".into());
    let line = parse::parse(options, |name| env::var_os(name))?;
    Ok(Some(Given {
        line,
        words,
        switch: is_given,
    }))
}

fn verify(arguments: &[OsString]) -> Result<i32, Failure> {
    let code = crate::verify::run(arguments)?;
    Ok(code.unwrap_or_else(|| report::answer(&help_of_verify())))
}

/// The text of `pedl verify --help`.
fn help_of_verify() -> String {
    let mut text = String::from(
        "Runs a script twice undisturbed, then killed, terminated and out of disk space at random\n\
         moments, each in a copy of the current directory, and compares what they computed.\n\
         usage: pedl verify [OPTIONS] [OPTIONS OF pedl-run] SCRIPT [ARGUMENTS]\n\n",
    );
    for option in OPTIONS {
        let _ = writeln!(text, "  {:<26}{}", option.shown(), option.help);
    }
    text.push_str(
        "\nExit codes: 0 all identical, 76 a disturbed run differs, 77 nothing could be shown\n\
         (undisturbed runs differ, or no fault fell after a checkpoint)\n",
    );
    text
}

fn hooks(arguments: &[OsString]) -> Result<i32, Failure> {
    let Some(given) = take_apart(arguments, "--check")? else {
        return Ok(report::answer(&help()));
    };
    let (words, is_check) = (given.words, given.switch);
    let most = if is_check { 1 } else { 3 };
    if words.len() > most {
        let what = format!("unexpected argument `{}`", words[most].to_string_lossy());
        return Err(usage(what)
            .detail("expected: pedl hooks [LIBRARY [VERSION [NAME]]], or --check [LIBRARY]"));
    }
    let library = library::locate()?;
    let (python, _) = interpreter::find(&given.line, &library.cache)?;
    ask_python::ask(
        &python.executable,
        &library,
        if is_check { "check" } else { "hooks" },
        &words,
    )
}

fn doctor(arguments: &[OsString]) -> Result<i32, Failure> {
    let Some(given) = take_apart(arguments, "--schema")? else {
        return Ok(report::answer(&help()));
    };
    if let Some(word) = given.words.first() {
        return Err(
            usage(format!("unexpected argument `{}`", word.to_string_lossy()))
                .detail("expected: pedl doctor [--python PATH] [--mode MODE] [--schema]"),
        );
    }
    if given.switch {
        let schema = serde_json::to_string_pretty(&pedl_experiment::schema()).map_err(|error| {
            Failure::bug("the schema cannot be written").detail(error.to_string())
        })?;
        return Ok(report::answer(&format!("{schema}\n")));
    }
    let library = library::locate()?;
    let (python, source) = interpreter::find(&given.line, &library.cache)?;
    let mut text = format!(
        "{:<16} {}",
        "pedl-run",
        super::VERSION.trim_start_matches("pedl-run ")
    );
    let executable = python.executable.display();
    let _ = writeln!(
        text,
        "{:<16} {} at {executable}, found by {source}",
        "python", python.version
    );
    let _ = match &python.library {
        Some(path) => writeln!(text, "{:<16} embed: {} is loaded", "mode", path.display()),
        None => writeln!(
            text,
            "{:<16} exec: Python is in the executable, which is run",
            "mode"
        ),
    };
    let _ = writeln!(text, "{:<16} {}", "library", library.directory.display());
    let directory = crate::supervisor::TRIALS;
    let outcome = probe(Path::new(directory));
    let _ = match &outcome {
        Ok(milliseconds) => writeln!(
            text,
            "{:<16} ./{directory}: can be written, synced, renamed and locked ({milliseconds:.1} ms for {} KiB)",
            "trials",
            PROBE_BYTES >> 10,
        ),
        Err(error) => writeln!(
            text,
            "{:<16} ./{directory}: NOT usable: {error}; name another with --trial-dir",
            "trials"
        ),
    };
    report::answer(&text);
    let code = ask_python::ask(&python.executable, &library, "doctor", &[])?;
    Ok(if outcome.is_err() {
        Exit::CannotCreate as i32
    } else {
        code
    })
}

/// Does once what a checkpoint does, in a directory that is removed again. Returns milliseconds.
fn probe(trials: &Path) -> io::Result<f64> {
    // The nearest directory that exists: `doctor` leaves nothing behind.
    let parent: PathBuf = if trials.is_dir() {
        trials.into()
    } else {
        ".".into()
    };
    let directory = parent.join(format!(".pedl-doctor-{}", std::process::id()));
    fs::create_dir(&directory)?;
    let started = Instant::now();
    let outcome = (|| {
        let staged = directory.join("staged");
        let mut file = File::create(&staged)?;
        file.write_all(&vec![0; PROBE_BYTES])?;
        file.sync_all()?;
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(&staged, directory.join("committed"))?;
        File::open(&directory)?.sync_all()
    })();
    let took = started.elapsed();
    fs::remove_dir_all(&directory)?;
    outcome.map(|()| took.as_secs_f64() * 1e3)
}

fn completions(arguments: &[OsString]) -> Result<i32, Failure> {
    let expected = "expected: bash, zsh or fish";
    let [shell] = arguments else {
        let failure = usage("`pedl completions` needs the name of a shell");
        return Err(failure.detail(expected));
    };
    let shell = shell.to_string_lossy();
    let verbs: Vec<_> = VERBS.iter().map(|verb| (verb.name, verb.help)).collect();
    let script = completions::script(&shell, &verbs).ok_or_else(|| {
        usage(format!(
            "`{shell}` is no shell that completions are made for"
        ))
        .detail(expected)
    })?;
    Ok(report::answer(&script))
}
