//! THE table of options: to add an option, add an entry.
//!
//! Help, man page, completions, the environment variables and the suggestions for a misspelt option
//! all come from it. The order is that of `--help`. Our options are long only, so that every option
//! of CPython can pass through.

use std::path::PathBuf;

use pedl_core::sequencer::CheckpointBatch;
use pedl_core::trial::GRACE_SECONDS;
use serde_json::{Map, Value};

/// How the script is run, as the environment and the command line say.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "one for each switch of the table"
)]
pub(crate) struct Options {
    pub(crate) action: Action,
    pub(crate) config: Option<PathBuf>,
    pub(crate) trial: Option<u64>,
    pub(crate) hyperparameters: Map<String, Value>,
    pub(crate) trial_dir: Option<PathBuf>,
    pub(crate) fresh: bool,
    pub(crate) exact: bool,
    pub(crate) python: Option<String>,
    pub(crate) mode: Mode,
    pub(crate) steps: Option<u64>,
    pub(crate) batches_per_step: Option<u64>,
    pub(crate) checkpoint_period: Option<u64>,
    pub(crate) checkpoint_seconds: f64,
    pub(crate) checkpoint_batches: Vec<CheckpointBatch>,
    pub(crate) max_restarts: Option<u64>,
    pub(crate) grace_seconds: f64,
    pub(crate) preempt_exit_code: Option<u8>,
    pub(crate) worker_timeout: Option<f64>,
    pub(crate) log_limit_bytes: u64,
    pub(crate) no_hooks: Vec<String>,
    pub(crate) log_format: LogFormat,
    pub(crate) events_fd: Option<u32>,
    pub(crate) verbose: bool,
    pub(crate) quiet: bool,
}

/// What this program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Run a script.
    Run,
    /// `--help`
    Help,
    /// `--version`
    Version,
}

/// How Python is loaded into the trial process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The mode that loses nothing with the interpreter that was found.
    Auto,
    /// Its shared library is loaded into our process.
    Embed,
    /// Its executable is run, and loads our code through `PYTHONPATH`.
    Exec,
}

/// How our own lines are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

impl LogFormat {
    /// The format that a word denotes.
    pub(crate) fn of(word: &str) -> Option<Self> {
        [Self::Text, Self::Json]
            .into_iter()
            .find(|format| format.as_str() == word)
    }

    /// The word for it, in options and in the launch message.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            action: Action::Run,
            config: None,
            trial: None,
            hyperparameters: Map::new(),
            trial_dir: None,
            fresh: false,
            exact: false,
            python: None,
            mode: Mode::Auto,
            steps: None,
            batches_per_step: None,
            checkpoint_period: None,
            checkpoint_seconds: 60.0,
            checkpoint_batches: Vec::new(),
            max_restarts: None,
            grace_seconds: GRACE_SECONDS,
            preempt_exit_code: None,
            worker_timeout: None,
            log_limit_bytes: 1 << 30,
            no_hooks: Vec::new(),
            log_format: LogFormat::Text,
            events_fd: None,
            verbose: false,
            quiet: false,
        }
    }
}

/// One option.
pub(crate) struct Flag {
    /// Without the dashes.
    pub(crate) name: &'static str,
    /// The name of its value in help; `None`: a switch.
    pub(crate) value: Option<&'static str>,
    /// A short text for `--help`, including the default.
    pub(crate) help: &'static str,
    /// Whether it may be given more than once, each adding to the previous ones.
    pub(crate) repeatable: bool,
    /// Sets the value (of a switch: `""`) or returns what it expected instead.
    pub(crate) set: fn(&mut Options, &str) -> Result<(), &'static str>,
}

impl Flag {
    /// The option as it is typed, with the name of its value.
    pub(crate) fn shown(&self) -> String {
        match self.value {
            Some(value) => format!("--{} {value}", self.name),
            None => format!("--{}", self.name),
        }
    }

    /// The environment variable of this option; `None` for options that are no setting.
    pub(crate) fn variable(&self) -> Option<String> {
        match self.name {
            "help" | "version" => None,
            name => Some(format!("PEDL_{}", name.to_uppercase().replace('-', "_"))),
        }
    }
}

/// All of our options.
pub(crate) static FLAGS: &[Flag] = &[
    Flag {
        name: "config",
        value: Some("FILE"),
        help: "experiment configuration; SCRIPT may be a directory",
        repeatable: false,
        set: |options, text| {
            options.config = Some(non_empty(text, "a YAML file")?.into());
            Ok(())
        },
    },
    Flag {
        name: "trial",
        value: Some("N"),
        help: "number of the trial in a search [1]",
        repeatable: false,
        set: |options, text| {
            options.trial = Some(positive(text, "the number of a trial, from 1")?);
            Ok(())
        },
    },
    Flag {
        name: "hp",
        value: Some("NAME=VALUE"),
        help: "set a hyperparameter, as JSON or text",
        repeatable: true,
        set: |options, text| {
            let (name, value) = text
                .split_once('=')
                .filter(|(name, _)| !name.is_empty())
                .ok_or("NAME=VALUE, as in `lr=0.1`")?;
            options
                .hyperparameters
                .insert(name.to_owned(), hyperparameter(value));
            Ok(())
        },
    },
    Flag {
        name: "trial-dir",
        value: Some("DIR"),
        help: "directory of the trial [.pedl/<script name>]",
        repeatable: false,
        set: |options, text| {
            options.trial_dir =
                Some(non_empty(text, "a directory, which may not exist yet")?.into());
            Ok(())
        },
    },
    Flag {
        name: "fresh",
        value: None,
        help: "start a new trial; the old one is moved aside",
        repeatable: false,
        set: |options, _| {
            options.fresh = true;
            Ok(())
        },
    },
    Flag {
        name: "exact",
        value: None,
        help: "impose exact resume; refuse if impossible",
        repeatable: false,
        set: |options, _| {
            options.exact = true;
            Ok(())
        },
    },
    Flag {
        name: "python",
        value: Some("PATH"),
        help: "interpreter or environment [venv, conda, PATH]",
        repeatable: false,
        set: |options, text| {
            options.python =
                Some(non_empty(text, "an interpreter, as in `python3.11`")?.to_owned());
            Ok(())
        },
    },
    Flag {
        name: "mode",
        value: Some("MODE"),
        help: "how Python is loaded: auto, embed, exec [auto]",
        repeatable: false,
        set: |options, text| {
            options.mode = match text {
                "auto" => Mode::Auto,
                "embed" => Mode::Embed,
                "exec" => Mode::Exec,
                _ => return Err("`auto`, `embed` or `exec`"),
            };
            Ok(())
        },
    },
    Flag {
        name: "steps",
        value: Some("N"),
        help: "train this many steps [as the script says]",
        repeatable: false,
        set: |options, text| {
            options.steps = Some(positive(text, "a number of steps, at least 1")?);
            Ok(())
        },
    },
    Flag {
        name: "batches-per-step",
        value: Some("N"),
        help: "training batches per step [100]",
        repeatable: false,
        set: |options, text| {
            options.batches_per_step = Some(positive(text, "a number of batches, at least 1")?);
            Ok(())
        },
    },
    Flag {
        name: "checkpoint-period",
        value: Some("STEPS"),
        help: "checkpoint after this many steps [by time only]",
        repeatable: false,
        set: |options, text| {
            options.checkpoint_period = Some(positive(text, "a number of steps, at least 1")?);
            Ok(())
        },
    },
    Flag {
        name: "checkpoint-seconds",
        value: Some("S"),
        help: "checkpoint after this many seconds [60]",
        repeatable: false,
        set: |options, text| {
            options.checkpoint_seconds = seconds(text)?;
            Ok(())
        },
    },
    Flag {
        name: "checkpoint-batches",
        value: Some("N,N..."),
        help: "also after these batches; +N: after a resume",
        repeatable: false,
        set: |options, text| {
            let expected = "numbers of batches, from 1, as in `100,250`, or `+1` after a resume";
            let of = |text: &str| match text.trim().strip_prefix('+') {
                Some(number) => positive(number, expected).map(CheckpointBatch::AfterResume),
                None => positive(text.trim(), expected).map(CheckpointBatch::Number),
            };
            options.checkpoint_batches = text.split(',').map(of).collect::<Result<_, _>>()?;
            Ok(())
        },
    },
    Flag {
        name: "max-restarts",
        value: Some("N"),
        help: "restarts after errors [0; 5 with --config]",
        repeatable: false,
        set: |options, text| {
            let number = text
                .parse()
                .map_err(|_| "a number of restarts, 0 or more")?;
            options.max_restarts = Some(number);
            Ok(())
        },
    },
    Flag {
        name: "grace",
        value: Some("SECONDS"),
        help: "longest wait for a checkpoint on SIGTERM [25]",
        repeatable: false,
        set: |options, text| {
            options.grace_seconds = seconds(text)?;
            Ok(())
        },
    },
    Flag {
        name: "preempt-exit-code",
        value: Some("N"),
        help: "exit code if preempted [death by the signal]",
        repeatable: false,
        set: |options, text| {
            let number = text.parse().map_err(|_| "an exit code, 0 to 255")?;
            options.preempt_exit_code = Some(number);
            Ok(())
        },
    },
    Flag {
        name: "worker-timeout",
        value: Some("SECONDS"),
        help: "longest time to build an item [no limit]",
        repeatable: false,
        set: |options, text| {
            options.worker_timeout = Some(
                seconds(text)
                    .ok()
                    .filter(|&limit| limit > 0.0)
                    .ok_or("a number of seconds above 0")?,
            );
            Ok(())
        },
    },
    Flag {
        name: "log-limit",
        value: Some("BYTES"),
        help: "largest log of calls; KiB, MiB, GiB [1GiB]",
        repeatable: false,
        set: |options, text| {
            options.log_limit_bytes =
                bytes(text).ok_or("a number of bytes, as in `1048576`, `512MiB` or `4GiB`")?;
            Ok(())
        },
    },
    Flag {
        name: "no-hooks",
        value: Some("LIBRARY"),
        help: "do not intercept a library; no resume",
        repeatable: true,
        set: |options, text| {
            let library = non_empty(text, "the name of a library, as in `keras`")?.to_owned();
            if !options.no_hooks.contains(&library) {
                options.no_hooks.push(library);
            }
            Ok(())
        },
    },
    Flag {
        name: "log-format",
        value: Some("FORMAT"),
        help: "format of messages on stderr: text, json [text]",
        repeatable: false,
        set: |options, text| {
            options.log_format = LogFormat::of(text).ok_or("`text` or `json`")?;
            Ok(())
        },
    },
    Flag {
        name: "events-fd",
        value: Some("N"),
        help: "also write events to this open file descriptor",
        repeatable: false,
        set: |options, text| {
            let expected = "the number of an open file descriptor, 3 or more";
            let number = text.parse().ok().filter(|number: &u32| *number > 2);
            options.events_fd = Some(number.ok_or(expected)?);
            Ok(())
        },
    },
    Flag {
        name: "verbose",
        value: None,
        help: "print more on stderr",
        repeatable: false,
        set: |options, _| {
            options.verbose = true;
            Ok(())
        },
    },
    Flag {
        name: "quiet",
        value: None,
        help: "print only errors on stderr",
        repeatable: false,
        set: |options, _| {
            options.quiet = true;
            Ok(())
        },
    },
    Flag {
        name: "version",
        value: None,
        help: "print the version of pedl-run",
        repeatable: false,
        set: |options, _| {
            options.action = Action::Version;
            Ok(())
        },
    },
    Flag {
        name: "help",
        value: None,
        help: "print this",
        repeatable: false,
        set: |options, _| {
            options.action = Action::Help;
            Ok(())
        },
    },
];

/// A value as typed: a JSON scalar or list if it is one, and text otherwise.
fn hyperparameter(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(Value::Object(_)) | Err(_) => Value::String(text.to_owned()),
        Ok(value) => value,
    }
}

fn non_empty<'a>(text: &'a str, expected: &'static str) -> Result<&'a str, &'static str> {
    if text.is_empty() {
        Err(expected)
    } else {
        Ok(text)
    }
}

fn seconds(text: &str) -> Result<f64, &'static str> {
    text.parse()
        .ok()
        .filter(|seconds: &f64| seconds.is_finite() && *seconds >= 0.0)
        .ok_or("a number of seconds, 0 or more")
}

fn positive(text: &str, expected: &'static str) -> Result<u64, &'static str> {
    text.parse()
        .ok()
        .filter(|number| *number > 0)
        .ok_or(expected)
}

/// A number of bytes, with one of the suffixes KiB, MiB, GiB or none.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let suffixes = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("", 0)];
    let (number, shift) = suffixes
        .iter()
        .find_map(|(suffix, shift)| Some((text.strip_suffix(suffix)?, shift)))?;
    let number: u64 = number.trim_end().parse().ok()?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hyperparameter_is_json_or_else_text() {
        let list = serde_json::json!([1, 2]);
        let cases = [
            ("0.1", serde_json::json!(0.1)),
            ("32", serde_json::json!(32)),
            ("true", Value::Bool(true)),
            ("[1, 2]", list),
            ("adam", Value::from("adam")),
            ("\"32\"", Value::from("32")),
            ("{\"a\": 1}", Value::from("{\"a\": 1}")),
            ("", Value::from("")),
        ];
        for (text, expected) in cases {
            assert_eq!(hyperparameter(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_size_has_a_binary_suffix_or_none() {
        assert_eq!(bytes("1048576"), Some(1 << 20));
        assert_eq!(bytes("512MiB"), Some(512 << 20));
        assert_eq!(bytes("4 GiB"), Some(4 << 30));
        for wrong in ["", "0", "-1", "1GB", "1.5GiB", "99999999999GiB"] {
            assert_eq!(bytes(wrong), None, "{wrong:?}");
        }
    }
}
