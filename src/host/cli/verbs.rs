//! The verbs of `pedl`: the same executable under its other name.
//!
//! One table; help and completions come from it. Verbs that report on Python start a separate
//! interpreter (`py_hooks/verbs/report.py`), so that they touch no script and no trial.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::Signal;

use super::flags::FLAGS;
use super::parse::{self, CommandLine};
use super::report;
use super::{checkpoint, man, package, reference};
use crate::failure::{Exit, Failure};
use crate::library::Library;
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
    ask(
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
    let code = ask(&python.executable, &library, "doctor", &[])?;
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

/// Runs `py_hooks/verbs/report.py` in an interpreter; its output is ours. If the reader of the
/// output has closed it, the interpreter ends by SIGPIPE, as we do, and nothing is printed.
pub(super) fn ask(
    python: &Path,
    library: &Library,
    verb: &str,
    words: &[OsString],
) -> Result<i32, Failure> {
    // The current directory may belong to somebody else in an export: no modules are imported from
    // it before `py_hooks/verbs/export.py` permits it.
    const REPORT: &str = "import sys; sys.argv[1] == 'export' and sys.path.remove(''); \
                          from py_hooks.verbs import report; sys.exit(report.main(sys.argv[1:]))";
    let mut path = env::var_os("PYTHONPATH")
        .filter(|path| !path.is_empty())
        .unwrap_or_default();
    if !path.is_empty() {
        path.push(":");
    }
    path.push(&library.directory);
    let status = Command::new(python)
        .args(["-c", REPORT, verb])
        .args(words)
        .env("PYTHONPATH", path)
        .env("TF_CPP_MIN_LOG_LEVEL", "3")
        .status()
        .map_err(|error| {
            Failure::new(
                Exit::Interpreter,
                format!("cannot run `{}`", python.display()),
            )
            .detail(error.to_string())
        })?;
    let of_the_user = [Signal::PIPE, Signal::INT].map(Signal::as_raw);
    if let Some(signal) = status.signal().filter(|it| of_the_user.contains(it)) {
        return Ok(128 + signal);
    }
    status.code().ok_or_else(|| {
        Failure::new(
            Exit::Interpreter,
            format!("`{}` {status}", python.display()),
        )
        .hint("import the frameworks in it by hand: one of them may be broken")
    })
}

fn completions(arguments: &[OsString]) -> Result<i32, Failure> {
    let [shell] = arguments else {
        return Err(usage("`pedl completions` needs the name of a shell")
            .detail("expected: bash, zsh or fish"));
    };
    let options: Vec<_> = FLAGS
        .iter()
        .map(|flag| format!("--{}", flag.name))
        .collect();
    let verbs: Vec<_> = VERBS.iter().map(|verb| verb.name).collect();
    let of_verify: Vec<_> = OPTIONS
        .iter()
        .map(|option| format!("--{}", option.name))
        .collect();
    let of_verify = of_verify.join(" ");
    let (options, verbs) = (options.join(" "), verbs.join(" "));
    let actions = checkpoint::ACTIONS.map(|(name, _, _)| name).join(" ");
    let text = match &*shell.to_string_lossy() {
        "bash" => format!(
            "_pedl_run() {{\n    local word=\"${{COMP_WORDS[COMP_CWORD]}}\"\n    if [[ $word == --* ]]; then\n        \
             COMPREPLY=($(compgen -W \"{options} $1\" -- \"$word\"))\n    else\n        \
             COMPREPLY=($(compgen -f -- \"$word\"))\n    fi\n}}\n\
             _pedl() {{\n    if ((COMP_CWORD == 1)); then\n        \
             COMPREPLY=($(compgen -W \"{verbs}\" -- \"${{COMP_WORDS[1]}}\"))\n    \
             elif [[ ${{COMP_WORDS[1]}} == verify ]]; then\n        _pedl_run \"{of_verify}\"\n    \
             elif [[ ${{COMP_WORDS[1]}} == checkpoint ]]; then\n        if ((COMP_CWORD == 2)); then\n            \
             COMPREPLY=($(compgen -W \"{actions}\" -- \"${{COMP_WORDS[2]}}\"))\n        else\n            \
             COMPREPLY=($(compgen -d -- \"${{COMP_WORDS[COMP_CWORD]}}\"))\n        fi\n    else\n        _pedl_run\n    fi\n}}\n\
             complete -o filenames -F _pedl_run pedl-run\ncomplete -o filenames -F _pedl pedl\n"
        ),
        "zsh" => format!(
            "autoload -U compinit && compinit\n\
             _pedl_run_options=({options})\n_pedl_verify_options=({of_verify})\n_pedl_verbs=({verbs})\n\
             _pedl_run() {{ if [[ $words[CURRENT] == --* ]]; then compadd -- $_pedl_run_options $*; else _files; fi }}\n\
             _pedl() {{ if ((CURRENT == 2)); then compadd -- $_pedl_verbs; \
             elif [[ $words[2] == verify ]]; then _pedl_run $_pedl_verify_options; \
             elif [[ $words[2] == checkpoint ]]; then \
             if ((CURRENT == 3)); then compadd -- {actions}; else _files -/; fi; else _pedl_run; fi }}\n\
             compdef _pedl_run pedl-run\ncompdef _pedl pedl\n"
        ),
        "fish" => {
            let mut text = String::new();
            for flag in FLAGS {
                let value = if flag.value.is_some() { " -r" } else { "" };
                let _ = writeln!(
                    text,
                    "complete -c pedl-run -l {}{value} -d '{}'",
                    flag.name,
                    flag.help.replace('\'', "\\'")
                );
            }
            for option in OPTIONS {
                let value = if option.value.is_some() { " -r" } else { "" };
                let _ = writeln!(
                    text,
                    "complete -c pedl -n \"__fish_seen_subcommand_from verify\" -l {}{value} -d '{}'",
                    option.name, option.help
                );
            }
            for verb in VERBS {
                let _ = writeln!(
                    text,
                    "complete -c pedl -n __fish_use_subcommand -f -a {} -d '{}'",
                    verb.name, verb.help
                );
            }
            for (action, _, help) in checkpoint::ACTIONS {
                let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
                let _ = writeln!(
                    text,
                    "complete -c pedl -n \"__fish_seen_subcommand_from checkpoint\" -f -a {action} -d '{help}'",
                );
            }
            text
        }
        other => {
            return Err(usage(format!(
                "`{other}` is no shell that completions are made for"
            ))
            .detail("expected: bash, zsh or fish"));
        }
    };
    Ok(report::answer(&text))
}
