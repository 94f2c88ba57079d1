//! `pedl checkpoint`: looks at the checkpoints of a trial, exports them, and copies the trial. It
//! takes no lock, and changes nothing: the trial may train meanwhile.
//!
//! | module | contents |
//! |---|---|
//! | [`chosen`] | which trial and which checkpoint the command line means |
//! | [`inspect`] | `list`, `show` and `verify` |
//! | [`export`] | `export` |
//! | [`snapshot`] | `snapshot` |

mod chosen;
mod export;
mod inspect;
mod snapshot;

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use pedl_core::printable::printable;
use serde_json::Value;

use super::report;
use crate::failure::{Exit, Failure};
use crate::supervisor::TRIALS;

/// The actions, in the order of the help: name, arguments, help.
pub(super) const ACTIONS: [(&str, &str, &str); 5] = [
    (
        "list",
        "[TRIAL_DIR] [--json]",
        "the checkpoints, newest first; whether all is there, in its size",
    ),
    (
        "show",
        "[TRIAL_DIR] [--checkpoint NAME] [--json]",
        "what is in one, the newest by default: tensors, files of the script",
    ),
    (
        "verify",
        "[TRIAL_DIR] [--json]",
        "reads every byte of all of them; exit code 65 where one is damaged",
    ),
    (
        "export",
        "[TRIAL_DIR] --output FILE [--checkpoint NAME] [--model N]\n          [--weights] [--trust] [--python PATH]",
        "the model as its framework reads it, by the ending of FILE: .keras, .h5,\n      \
         .weights.h5, .npz, .safetensors, of PyTorch .pt; a SavedModel where it has none.\n      \
         Only with `--trust` is code run that the checkpoint holds or names",
    ),
    (
        "snapshot",
        "TRIAL_DIR DEST [--json]",
        "copies a trial, also one that is trained now, into the directory DEST, which\n      \
         is not there yet: a trial that continues from the newest checkpoint. Checkpoints\n      \
         are hard links, if DEST is on the same file system. `-` is a tar on stdout",
    ),
];

/// The parsed arguments.
#[derive(Debug, Default)]
struct Arguments {
    trial_dir: Option<PathBuf>,
    /// The destination of a copy.
    destination: Option<PathBuf>,
    checkpoint: Option<String>,
    is_json: bool,
    output: Option<OsString>,
    model: String,
    weights_only: bool,
    /// Code that the checkpoint holds or names may be run.
    is_trusted: bool,
    /// `--python PATH`, to be parsed as that of `pedl-run`.
    python: Vec<OsString>,
}

/// Runs a command line of the verb, and returns the exit code.
pub(super) fn run(arguments: &[OsString]) -> Result<i32, Failure> {
    let Some((action, rest)) = arguments.split_first() else {
        return Ok(report::answer(&help()));
    };
    let action = action.to_string_lossy();
    if matches!(&*action, "--help" | "-h") || rest.iter().any(|word| word == "--help") {
        return Ok(report::answer(&help()));
    }
    let run = match &*action {
        "list" => inspect::list,
        "show" => inspect::show,
        "verify" => inspect::verify,
        "export" => export::export,
        "snapshot" => snapshot::snapshot,
        _ => {
            let names = ACTIONS.map(|(name, _, _)| format!("`{name}`")).join(", ");
            return Err(usage(format!("`pedl checkpoint` does not know `{action}`"))
                .detail(format!("expected: {names}")));
        }
    };
    run(&parse(&action, rest)?)
}

fn help() -> String {
    let mut text = String::from("usage: pedl checkpoint ACTION [TRIAL_DIR] [OPTIONS]...\n\n");
    for (name, arguments, about) in ACTIONS {
        let _ = writeln!(text, "  pedl checkpoint {name} {arguments}\n      {about}");
    }
    let _ = writeln!(
        text,
        "\nTRIAL_DIR is the only one below {TRIALS} where it is left out."
    );
    text
}

fn usage(what: impl Into<String>) -> Failure {
    let what = what.into();
    Failure::new(Exit::Usage, printable(&what))
        .hint("`pedl checkpoint --help` lists what can be asked for")
}

fn parse(action: &str, words: &[OsString]) -> Result<Arguments, Failure> {
    let mut parsed = Arguments::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        let bytes = word.as_bytes();
        let end = bytes.iter().position(|byte| *byte == b'=');
        // A file may have any name.
        let (name, value) = match end.filter(|_| text.starts_with("--")) {
            Some(end) => (&bytes[..end], Some(OsStr::from_bytes(&bytes[end + 1..]))),
            None => (bytes, None),
        };
        let name = &*String::from_utf8_lossy(name);
        let is_export = action == "export";
        let mut value_of = |name: &str| {
            let value = value.or_else(|| words.next().map(OsString::as_os_str));
            value.ok_or_else(|| usage(format!("`{name}` has no value")))
        };
        let in_words = |value: &OsStr| value.to_string_lossy().into_owned();
        match name {
            "--json" if value.is_none() && !is_export => parsed.is_json = true,
            "--weights" if value.is_none() && is_export => parsed.weights_only = true,
            "--trust" if value.is_none() && is_export => parsed.is_trusted = true,
            "--checkpoint" if is_export || action == "show" => {
                parsed.checkpoint = Some(in_words(value_of(name)?));
            }
            "--output" if is_export => parsed.output = Some(value_of(name)?.to_owned()),
            "--model" if is_export => parsed.model = in_words(value_of(name)?),
            "--python" if is_export => {
                parsed.python = vec!["--python".into(), value_of(name)?.into()];
            }
            "-" if action == "snapshot"
                && parsed.trial_dir.is_some()
                && parsed.destination.is_none() =>
            {
                parsed.destination = Some(word.into());
            }
            _ if text.starts_with('-') => {
                return Err(usage(format!(
                    "`{text}` is no option of `pedl checkpoint {action}`"
                )));
            }
            _ if parsed.trial_dir.is_none() => parsed.trial_dir = Some(word.into()),
            _ if action == "snapshot" && parsed.destination.is_none() => {
                parsed.destination = Some(word.into());
            }
            _ => return Err(usage(format!("unexpected argument `{text}`"))),
        }
    }
    Ok(parsed)
}

#[expect(clippy::needless_pass_by_value, reason = "it is the end of the error")]
fn failure_of(error: pedl_core::Error) -> Failure {
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim);
    let mut failure = Failure::new(
        Exit::Configuration,
        lines.next().unwrap_or_default().to_owned(),
    );
    failure.details.extend(lines.map(str::to_owned));
    failure.hint = error.hint();
    failure
}

fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

fn print_json(value: &Value) -> i32 {
    report::answer(&format!("{value:#}\n"))
}
