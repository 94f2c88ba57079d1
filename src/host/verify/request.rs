//! The command line of `pedl verify`: its own options, and a command line of `pedl-run` after them.
//!
//! Its own options may be mixed with those of `pedl-run`, before the script. Options that it sets
//! itself (the trial directory, the format of the log) are refused.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::cli::flags::{self, FLAGS};
use crate::cli::parse::{self, CommandLine, Program};
use crate::failure::{Exit, Failure};

/// The default number of faults: each kind, and three within one epoch.
const FAULTS: u64 = 6;

/// More would take weeks.
const FAULTS_MAX: u64 = 100_000;

/// The default limit of bytes that are copied for each run.
const COPY_LIMIT_BYTES: u64 = 1 << 30;

/// One option of `pedl verify`: its name, the name of its value, and a short help text.
pub(crate) struct OwnOption {
    pub(crate) name: &'static str,
    pub(crate) value: Option<&'static str>,
    pub(crate) help: &'static str,
}

impl OwnOption {
    /// The option as it is typed, with the name of its value.
    pub(crate) fn shown(&self) -> String {
        match self.value {
            Some(value) => format!("--{} {value}", self.name),
            None => format!("--{}", self.name),
        }
    }
}

/// All of them, in the order of the help.
pub(crate) static OPTIONS: &[OwnOption] = &[
    OwnOption {
        name: "kills",
        value: Some("N"),
        help: "number of faults, over all disturbed runs [6]",
    },
    OwnOption {
        name: "seed",
        value: Some("N"),
        help: "seed of moments and order of faults [random]",
    },
    OwnOption {
        name: "json",
        value: None,
        help: "print the result as JSON",
    },
    OwnOption {
        name: "keep",
        value: None,
        help: "keep the directories of all runs",
    },
    OwnOption {
        name: "copy-limit",
        value: Some("BYTES"),
        help: "largest directory to copy [1GiB]",
    },
    OwnOption {
        name: "work-dir",
        value: Some("DIR"),
        help: "directory of the copies [for temporary files]",
    },
];

/// Options of `pedl-run` that verifying sets itself.
const DECIDED_HERE: [&str; 9] = [
    "trial-dir",
    "fresh",
    "events-fd",
    "log-format",
    "checkpoint-batches",
    "checkpoint-seconds",
    "checkpoint-period",
    "verbose",
    "quiet",
];

/// What is to be verified, and how.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) faults: u64,
    pub(super) seed: Option<u64>,
    pub(super) json: bool,
    pub(super) keep: bool,
    pub(super) copy_limit_bytes: u64,
    pub(super) work_dir: Option<PathBuf>,
    /// The command as it was typed.
    pub(super) line: CommandLine,
    /// The arguments of `pedl-run` in each run: the interpreter is passed separately.
    pub(super) words: Vec<OsString>,
    /// The index in `words` at which the program begins.
    pub(super) program: usize,
}

impl Request {
    /// Reads the words after `pedl verify`; `None` if help is requested.
    pub(super) fn read(arguments: &[OsString]) -> Result<Option<Self>, Failure> {
        let mut request = Self {
            faults: FAULTS,
            seed: None,
            json: false,
            keep: false,
            copy_limit_bytes: COPY_LIMIT_BYTES,
            work_dir: None,
            line: parse::parse(["-".into()], |_| None)?,
            words: Vec::new(),
            program: 0,
        };
        let mut typed = Vec::new();
        let mut has_program = false;
        let mut rest = arguments.iter();
        while let Some(word) = rest.next() {
            let text = word.to_string_lossy();
            if text == "--help" {
                return Ok(None);
            }
            let name = text.split_once('=').map_or(&*text, |(name, _)| name);
            let own = OPTIONS
                .iter()
                .find(|own| name.strip_prefix("--") == Some(own.name));
            if let Some(own) = own {
                request.set(own, &text, &mut rest)?;
                continue;
            }
            typed.push(word.clone());
            if is_decided_here(name) {
                return Err(
                    usage(format!("`{name}` is decided by `pedl verify` itself"))
                        .detail("each run has a directory and a trial of its own"),
                );
            }
            if parse::is_python_word(word) {
                continue;
            }
            if !text.starts_with('-') || is_program_option(&text) {
                has_program = true;
                request.program = request.words.len();
                request.words.push(word.clone());
                let arguments: Vec<_> = rest.by_ref().cloned().collect();
                request.words.extend(arguments.iter().cloned());
                typed.extend(arguments);
                break;
            }
            let value = takes_next_word(&text).then(|| rest.next()).flatten();
            typed.extend(value.cloned());
            if name != "--python" {
                request.words.push(word.clone());
                request.words.extend(value.cloned());
            }
        }
        if !has_program {
            // Errors in the options are reported first.
            typed.push("-".into());
        }
        request.line = parse::parse(typed, |name| env::var_os(name))?;
        if !has_program || request.line.program == Program::None {
            return Err(usage("no script is given")
                .detail("expected: pedl verify [OPTIONS] SCRIPT [ARGUMENTS]"));
        }
        if request.line.program == Program::Stdin {
            return Err(
                usage("a script on standard input can be run only once").hint("put it into a file")
            );
        }
        Ok(Some(request))
    }

    fn set<'a>(
        &mut self,
        own: &OwnOption,
        text: &str,
        rest: &mut impl Iterator<Item = &'a OsString>,
    ) -> Result<(), Failure> {
        let name = own.name;
        let inline = text.split_once('=').map(|(_, value)| value.to_owned());
        let value = match (own.value, inline) {
            (None, None) => String::new(),
            (None, Some(value)) => {
                let what = format!("`--{name}` takes no value, and was given `{value}`");
                return Err(usage(what));
            }
            (Some(_), Some(value)) => value,
            (Some(expected), None) => {
                let next = rest.next().map(|word| word.to_string_lossy().into_owned());
                next.ok_or_else(|| {
                    usage(format!("`--{name}` has no value"))
                        .detail(format!("expected: --{name} {expected}"))
                })?
            }
        };
        let wrong = |expected: &str| {
            usage(format!("`--{name}` is `{value}`")).detail(format!("expected: {expected}"))
        };
        match name {
            "kills" => {
                let expected = format!("a number of faults, from 1 to {FAULTS_MAX}");
                let number = value.parse().ok();
                let number = number.filter(|number| (1..=FAULTS_MAX).contains(number));
                self.faults = number.ok_or_else(|| wrong(&expected))?;
            }
            "seed" => {
                let number = value.parse();
                self.seed = Some(number.map_err(|_| wrong("a whole number, 0 or more"))?);
            }
            "json" => self.json = true,
            "keep" => self.keep = true,
            "copy-limit" => {
                let expected = "a number of bytes, as in `1048576`, `512MiB` or `4GiB`";
                self.copy_limit_bytes = flags::bytes(&value).ok_or_else(|| wrong(expected))?;
            }
            _ => {
                let directory = Path::new(&value);
                if !directory.is_dir() {
                    return Err(wrong("a directory that is there"));
                }
                self.work_dir = Some(directory.to_owned());
            }
        }
        Ok(())
    }
}

pub(super) fn usage(what: impl Into<String>) -> Failure {
    Failure::new(Exit::Usage, what).hint("`pedl verify --help` lists the options")
}

fn is_decided_here(name: &str) -> bool {
    name.strip_prefix("--")
        .is_some_and(|name| DECIDED_HERE.contains(&name))
}

/// Whether a word is `-`, or ends in CPython's `-c` or `-m`, which the program follows.
fn is_program_option(word: &str) -> bool {
    let Some(letters) = word.strip_prefix('-') else {
        return false;
    };
    if letters.starts_with('-') {
        return false;
    }
    let first = letters.find(['c', 'm', 'W', 'X']);
    letters.is_empty() || first.is_some_and(|place| !letters[place..].starts_with(['W', 'X']))
}

/// Whether the word after an option is its value.
fn takes_next_word(word: &str) -> bool {
    let own = FLAGS
        .iter()
        .find(|flag| word.strip_prefix("--") == Some(flag.name));
    match own {
        Some(flag) => flag.value.is_some(),
        None => {
            word == "--check-hash-based-pycs"
                || (!word.starts_with("--") && word.ends_with(['W', 'X']))
        }
    }
}

/// The environment variables that runs must not see: those of the options that verifying sets
/// itself.
pub(super) fn variables_decided_here() -> impl Iterator<Item = String> {
    FLAGS
        .iter()
        .filter(|flag| DECIDED_HERE.contains(&flag.name))
        .filter_map(flags::Flag::variable)
}

/// The path relative to a directory, if a path, as typed, is below it.
pub(super) fn below(path: &OsStr, directory: &Path) -> Option<PathBuf> {
    let path = Path::new(path).canonicalize().ok()?;
    let directory = directory.canonicalize().ok()?;
    path.strip_prefix(directory).ok().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Option<Request>, Failure> {
        let words: Vec<_> = words.iter().map(OsString::from).collect();
        Request::read(&words)
    }

    #[test]
    fn its_own_options_stand_among_those_of_pedl_run() {
        let request = read(&[
            "--kills",
            "9",
            "--exact",
            "--hp",
            "lr=0.1",
            "--seed=4",
            "-Wignore",
            "-X",
            "dev",
            "--python",
            "/opt/python",
            "train.py",
            "--json",
        ])
        .expect("understood")
        .expect("no help");
        assert_eq!((request.faults, request.seed), (9, Some(4)));
        assert!(!request.json, "what follows the script belongs to it");
        assert!(request.line.options.exact);
        assert_eq!(request.line.options.python.as_deref(), Some("/opt/python"));
        let expected = [
            "--exact", "--hp", "lr=0.1", "-Wignore", "-X", "dev", "train.py", "--json",
        ];
        assert_eq!(request.words, expected.map(OsString::from));
        assert_eq!(request.program, 6);
    }

    #[test]
    fn a_module_and_an_interpreter_are_understood() {
        let request = read(&["python3", "-u", "-m", "train", "-m"]).expect("understood");
        let request = request.expect("no help");
        assert_eq!(
            request.words,
            ["-u", "-m", "train", "-m"].map(OsString::from)
        );
        assert_eq!(request.program, 1);
        assert_eq!(request.line.python_word, Some("python3".into()));
    }

    #[test]
    fn what_it_decides_itself_is_refused() {
        for words in [
            &["--trial-dir", "x", "train.py"][..],
            &["--fresh", "train.py"],
            &["--kills", "0", "train.py"],
            &["--kills"],
            &["--json=1", "train.py"],
            &["--copy-limit", "1GB", "train.py"],
            &["--exact"],
            &["-"],
        ] {
            let failure = read(words).expect_err("refused");
            assert_eq!(failure.exit, Exit::Usage, "{words:?}: {failure}");
        }
    }
}
