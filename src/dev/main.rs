//! `cargo dev ...`: the commands that demonstrate, test and check this project.
//!
//! They need cargo and any Python with pip, nothing else. Environments with the frameworks are made
//! when they are needed ([`environment`]), and a build needs none. The output of a command is for
//! people, its exit code for machines: 0, or 1 if something failed, or 64 for a wrong command line.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this program talks to people"
)]

mod bench;
mod cells;
mod check;
mod checkpoints;
mod conformance;
mod container;
mod contract;
mod counters;
mod demo;
mod endurance;
mod environment;
mod events;
mod examples;
mod failure;
mod fuzz;
mod interpreter;
mod kills;
mod matrix;
mod mutations;
mod picture;
mod pool;
mod process;
mod quantiles;
mod repository;
mod soak;
mod startup;
mod summary;
mod supported;
mod test;
mod wheel;
mod workers;

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::process::ExitCode;

use failure::{Failure, Result};

/// One command.
struct Command {
    name: &'static str,
    arguments: &'static str,
    help: &'static str,
    /// Takes the arguments after the name; returns whether everything succeeded.
    run: fn(Vec<OsString>) -> Result<bool>,
}

/// All commands, in the order of the help.
static COMMANDS: &[Command] = &[
    Command {
        name: "demo",
        arguments: "[--python PATH] [--picture FILE]",
        help: "train the example twice, one run killed half-way, and compare the weights",
        run: demo::run,
    },
    Command {
        name: "test",
        arguments: "[--stack NAME]... [--all] [--check] [-- PYTEST ARGUMENTS]",
        help: "build, run all Rust tests, some of CPython's own, and the Python tests on each stack",
        run: test::run,
    },
    Command {
        name: "matrix",
        arguments: "[--stack NAME]... [--cell NAME]... [--table write]",
        help: "kill every kind of training five times, three of them in one epoch; the table in docs/",
        run: cells::matrix,
    },
    Command {
        name: "gallery",
        arguments: "[--stack NAME]... [--kind KIND]... [--cell KIND:NAME]...",
        help: "train with each public name of Keras, killed once in each; takes hours, goes on where it was",
        run: cells::gallery,
    },
    Command {
        name: "campaign",
        arguments: "[--stack NAME]... [--source NAME]... [--kills 10] [--epochs N]",
        help: "kill trainings at random moments, for every source of batches; takes hours",
        run: cells::campaign,
    },
    Command {
        name: "kills",
        arguments: "[--stack NAME]... [--kills 1000] [--jobs N]",
        help: "kill trainings over all stacks, half of the times in the midst of a write; takes hours",
        run: kills::run,
    },
    Command {
        name: "sessions",
        arguments: "[--stack NAME]... [--kind NAME]... [--kills 5]",
        help: "kill loops over TensorFlow sessions, and give them 60 % of their time at each start",
        run: cells::sessions,
    },
    Command {
        name: "soak",
        arguments: "[--python VERSION]... [--starts N]",
        help: "start a script that forks, threads and gets signals at random; goes on where it was",
        run: soak::run,
    },
    Command {
        name: "fuzz",
        arguments: "[--seconds 60] [--target NAME]...",
        help: "any bytes for the readers of what others may have made; goes on with what it has found",
        run: fuzz::run,
    },
    Command {
        name: "endurance",
        arguments: "[--batches N] [--way NAME]...",
        help: "a million batches, by python and by pedl-run: what they leave on disk and in memory",
        run: endurance::run,
    },
    Command {
        name: "conformance",
        arguments: "[--python V]... [--stack NAME]... [--mode M]... [--file F]... [--checkout D]",
        help: "tests of CPython, Keras and TensorFlow with pedl-run for python; hours, goes on where it was",
        run: conformance::run,
    },
    Command {
        name: "examples",
        arguments: "--checkout DIR [--name DEFINITION]...",
        help: "the public examples of PEDL, unchanged, one run of each killed; goes on where it was",
        run: examples::run,
    },
    Command {
        name: "wheel",
        arguments: "[--out DIR] [-- PYTEST ARGUMENTS]",
        help: "build what is given out, the wheel and the one file, and install it in every Python",
        run: wheel::run,
    },
    Command {
        name: "container",
        arguments: "[-- PYTEST ARGUMENTS]",
        help: "the one file in Debian 11 and in containers as hostile as real ones; needs root",
        run: container::run,
    },
    Command {
        name: "check",
        arguments: "",
        help: "formats, lints, types, counters, and whether Python files compile on the oldest Python",
        run: check::run,
    },
    Command {
        name: "counters",
        arguments: "[--list NAME]",
        help: "how far the source is from its rules: counts, limits and goals; the places of a count",
        run: counters::run,
    },
    Command {
        name: "supported",
        arguments: "",
        help: "which versions are intercepted, and with which each is tested; the table in docs/",
        run: supported::run,
    },
    Command {
        name: "contract",
        arguments: "[--mutate RULE|all]...",
        help: "the rules of model definitions, and the tests of each; whether they fail where it is broken",
        run: contract::run,
    },
    Command {
        name: "bench",
        arguments: "[--stack NAME]... [--loop NAME]... [--pairs N] [--batches N] [--replayed N]",
        help: "what interception and replay cost, in pairs with plain Python; fails on no number",
        run: bench::run,
    },
    Command {
        name: "pool",
        arguments: "[--stack NAME]... [--part batches|scripts|images]...",
        help: "what worker processes deliver, beside a bare ring in shared memory, Keras's own and torch's",
        run: pool::run,
    },
    Command {
        name: "workers",
        arguments: "[--stack NAME]... [--kills 1000] [--epochs 2000] [--minutes 10]",
        help: "worker processes that are killed, and that are left alone for many epochs; takes an hour",
        run: workers::run,
    },
    Command {
        name: "checkpoints",
        arguments: "[--stack NAME]...",
        help: "what a checkpoint of 300 MB costs, beside other ways to save and to read as much",
        run: checkpoints::run,
    },
    Command {
        name: "startup",
        arguments: "[--python VERSION]... [--pairs N]",
        help: "what pedl-run adds to the start of a script, in pairs with plain Python",
        run: startup::run,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    match process::watch_signals().and_then(|()| dispatch(arguments)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(failure.code())
        }
    }
}

fn dispatch(mut arguments: Vec<OsString>) -> Result<bool> {
    let wants_help = |argument: &OsString| argument == "--help" || argument == "-h";
    let ours = arguments.iter().take_while(|argument| *argument != "--");
    if arguments.is_empty() || ours.clone().any(wants_help) {
        print!("{}", help());
        return Ok(true);
    }
    let name = arguments.remove(0);
    let command = COMMANDS.iter().find(|command| name == command.name);
    let command = command.ok_or_else(|| {
        Failure::usage(format!("there is no command `{}`", name.to_string_lossy()))
    })?;
    (command.run)(arguments)
}

fn help() -> String {
    let mut text = String::from("The project's own commands.\n\n");
    for command in COMMANDS {
        let call = format!("cargo dev {} {}", command.name, command.arguments);
        let _ = writeln!(text, "  {}\n      {}", call.trim_end(), command.help);
    }
    text + "\nEnvironments are kept below $PEDL_DEV_CACHE, else $XDG_CACHE_HOME/pedl-dev, else \
            ~/.cache/pedl-dev.\n"
}

/// Options without a value.
const FLAGS: [&str; 2] = ["all", "check"];

/// The options of a command: `--NAME VALUE` or `--NAME=VALUE` each, [`FLAGS`], and the arguments
/// after `--`.
struct Options {
    values: Vec<(&'static str, String)>,
    rest: Vec<OsString>,
}

impl Options {
    /// Parses a command line; only the options of `known` are allowed.
    fn parse(arguments: Vec<OsString>, known: &[&'static str]) -> Result<Self> {
        let mut arguments = arguments.into_iter();
        let mut values = Vec::new();
        while let Some(argument) = arguments.next() {
            if argument == "--" {
                break;
            }
            let text = argument.to_string_lossy();
            let (name, value) = match text.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (&*text, None),
            };
            let name = known
                .iter()
                .find(|known| name.strip_prefix("--") == Some(known))
                .ok_or_else(|| Failure::usage(format!("there is no option `{text}` here")))?;
            if FLAGS.contains(name) {
                values.push((*name, String::new()));
                continue;
            }
            let value = value
                .or_else(|| {
                    arguments
                        .next()
                        .map(|value| value.to_string_lossy().into_owned())
                })
                .ok_or_else(|| Failure::usage(format!("`--{name}` needs a value")))?;
            values.push((*name, value));
        }
        Ok(Self {
            values,
            rest: arguments.collect(),
        })
    }

    /// All values of an option, in order.
    fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.values
            .iter()
            .filter(move |(known, _)| *known == name)
            .map(|(_, value)| &**value)
    }

    /// Whether an option is given.
    fn has(&self, name: &str) -> bool {
        self.all(name).next().is_some()
    }

    /// For commands that pass no arguments on.
    fn no_rest(self) -> Result<Self> {
        match self.rest.first() {
            None => Ok(self),
            Some(argument) => Err(Failure::usage(format!(
                "`{}` is an argument too many",
                argument.to_string_lossy()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{Options, help};

    fn parse(line: &str) -> Result<Options, String> {
        let arguments = line.split_whitespace().map(OsString::from).collect();
        Options::parse(arguments, &["stack", "python"]).map_err(|failure| failure.to_string())
    }

    #[test]
    fn options_have_values_and_the_rest_is_passed_on() {
        let options = parse("--stack plain --stack=keras3-jax -- -k fit --stack x");
        let options = options.expect("it is valid");
        assert_eq!(
            options.all("stack").collect::<Vec<_>>(),
            ["plain", "keras3-jax"]
        );
        assert_eq!(options.all("python").count(), 0);
        assert_eq!(options.rest, ["-k", "fit", "--stack", "x"]);
    }

    #[test]
    fn what_is_unknown_is_named() {
        let error = parse("--stacks plain").err().expect("it is refused");
        assert!(error.contains("`--stacks`"), "{error}");
        let error = parse("--stack").err().expect("it is refused");
        assert!(error.contains("`--stack` needs a value"), "{error}");
        assert!(parse("plain").is_err());
        assert!(
            parse("-- x")
                .and_then(|o| o.no_rest().map_err(|e| e.to_string()))
                .is_err()
        );
    }

    #[test]
    fn help_fits_a_terminal() {
        for line in help().lines() {
            assert!(line.len() <= 100, "{line}");
        }
    }
}
