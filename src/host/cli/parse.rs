//! Parses arguments and environment into a description of what to run.
//!
//! The command line has two languages: our options (long only) and options of CPython, in any
//! order, up to the program; everything after the program belongs to the program. After the word
//! `python` (`pedl-run --exact python -u train.py`) there are only options of CPython. They are
//! recognised only as far as is needed to find the program, and passed on as they were typed:
//! CPython itself reports errors in them.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::flags::{Action, FLAGS, Flag, LogFormat, Options};
use crate::failure::{Exit, Failure};

/// What is to be run, and how.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CommandLine {
    pub(crate) options: Options,
    /// The interpreter, if the command names one: `pedl-run python3.8 train.py`.
    pub(crate) python_word: Option<OsString>,
    /// All arguments of CPython, as typed: its options, the program, the program's arguments.
    pub(crate) python_arguments: Vec<OsString>,
    /// How many of `python_arguments` come before the one with which the program begins.
    pub(crate) num_python_options: usize,
    /// How many bytes of that one are options nevertheless: 3 in `-uOc`.
    pub(crate) num_switch_bytes: usize,
    pub(crate) program: Program,
    /// Whether Python was asked to ignore `PYTHONPATH` or `site` (`-I`, `-E`, `-S`).
    pub(crate) isolated: bool,
}

/// What Python runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Script(OsString),
    /// `-m`
    Module(OsString),
    /// `-c`
    Code(OsString),
    /// `-`
    Stdin,
    /// Only options of CPython: CPython knows what they mean without a program.
    None,
}

impl CommandLine {
    /// The index in `python_arguments` at which the arguments of the program begin.
    pub(crate) fn arguments_begin(&self) -> usize {
        let place = self.num_python_options;
        let num_words = match self.program {
            Program::None => 0,
            Program::Script(_) | Program::Stdin => 1,
            // `-m MODULE` or `-mMODULE`, either possibly after switches.
            Program::Module(_) | Program::Code(_) => {
                let option_bytes = self.num_switch_bytes.max(1) + 1;
                let is_alone = |word: &OsString| word.len() == option_bytes;
                1 + usize::from(self.python_arguments.get(place).is_some_and(is_alone))
            }
        };
        (place + num_words).min(self.python_arguments.len())
    }

    /// The options of Python, as recorded.
    pub(crate) fn python_options(&self) -> Vec<String> {
        let (options, program) = self.python_arguments.split_at(self.num_python_options);
        let mut options: Vec<_> = options.iter().map(to_text).collect();
        if self.num_switch_bytes > 0
            && let Some(word) = program.first()
        {
            options.push(to_text(OsStr::from_bytes(
                &word.as_bytes()[..self.num_switch_bytes],
            )));
        }
        options
    }

    /// The first option among the arguments of the script that has the name of one of our options;
    /// `None` also if there is no script.
    pub(crate) fn our_option_behind_the_script(&self) -> Option<String> {
        if let Program::Script(script) = &self.program
            && !Path::new(script).exists()
        {
            return None;
        }
        let arguments = self.python_arguments[self.arguments_begin()..]
            .iter()
            .map(to_text);
        let mut names = arguments.map(|word| word.split('=').next().unwrap_or_default().to_owned());
        names.find(|name| {
            let ours = name.strip_prefix("--");
            ours.is_some_and(|name| FLAGS.iter().any(|flag| flag.name == name))
        })
    }

    /// The program and its arguments: together with the hyperparameters, the identity of the
    /// command.
    pub(crate) fn command(&self) -> Vec<String> {
        let program = &self.python_arguments[self.num_python_options..];
        let mut command: Vec<_> = program.iter().map(to_text).collect();
        if self.num_switch_bytes > 0
            && let (Some(word), Some(given)) = (command.first_mut(), program.first())
        {
            // Bytes, not letters: unknown options of CPython count as switches too.
            let given = given.as_bytes();
            let rest = given.get(self.num_switch_bytes..).unwrap_or_default();
            *word = to_text(OsStr::from_bytes(&[&given[..1], rest].concat()));
        }
        command
    }
}

/// Bytes that are not UTF-8 are replaced; two commands that differ only in such bytes are one.
fn to_text(word: impl AsRef<OsStr>) -> String {
    word.as_ref().to_string_lossy().into_owned()
}

/// How CPython reads a short option.
enum ShortOption {
    /// It has no value, and others may follow in the same word.
    Switch,
    /// The rest of the word is its value, or else the next word.
    Value,
    /// As `Value`, and what follows belongs to the program.
    Program,
}

impl ShortOption {
    /// Source: `SHORT_OPTS` in CPython's `Python/getopt.c`, 3.7 to 3.13. Other letters count as
    /// switches: CPython refuses them.
    fn of(letter: u8) -> Self {
        match letter {
            b'c' | b'm' => Self::Program,
            b'W' | b'X' => Self::Value,
            _ => Self::Switch,
        }
    }
}

/// CPython's long options, and whether each takes a value (`longopts` in `Python/getopt.c`).
const PYTHON_LONG_OPTIONS: [(&str, bool); 4] = [
    ("--check-hash-based-pycs", true),
    ("--help-all", false),
    ("--help-env", false),
    ("--help-xoptions", false),
];

/// Reads the command line (without the program's own name) and the environment.
pub(crate) fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<CommandLine, Failure> {
    let mut options = Options::default();
    read_environment(&mut options, environment)?;
    let parser = Parser {
        rest: arguments.into_iter().collect::<Vec<_>>().into_iter(),
        given: Vec::new(),
        hyperparameters: Vec::new(),
        line: CommandLine {
            options,
            python_word: None,
            python_arguments: Vec::new(),
            num_python_options: 0,
            num_switch_bytes: 0,
            program: Program::None,
            isolated: false,
        },
    };
    parser.run()
}

/// The format of errors about a command line that is not understood: as the command line itself
/// requests, as far as it can be parsed, or else as the environment does.
pub(crate) fn format_of_failures(
    arguments: &[OsString],
    environment: impl Fn(&str) -> Option<OsString>,
) -> LogFormat {
    const OPTION: &str = "log-format";
    let of_environment = FLAGS
        .iter()
        .find(|flag| flag.name == OPTION)
        .and_then(Flag::variable)
        .and_then(|name| LogFormat::of(environment(&name)?.to_str()?));
    let mut format = of_environment.unwrap_or(LogFormat::Text);
    let mut rest = arguments.iter().map(|word| word.to_string_lossy());
    while let Some(word) = rest.next() {
        let (name, inline) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (&*word, None),
        };
        if !name.starts_with('-') && !is_python_word(OsStr::new(name)) {
            // The script: what follows belongs to it.
            break;
        }
        if ["-X", "-W"].contains(&name) {
            rest.next();
        }
        let flag = FLAGS
            .iter()
            .find(|flag| name.strip_prefix("--") == Some(flag.name));
        let Some(flag) = flag.filter(|flag| flag.value.is_some()) else {
            continue;
        };
        let value = inline.or_else(|| rest.next().map(Cow::into_owned));
        if flag.name == OPTION
            && let Some(found) = value.and_then(|value| LogFormat::of(&value))
        {
            format = found;
        }
    }
    format
}

struct Parser {
    rest: std::vec::IntoIter<OsString>,
    /// Names of the options that were given on the command line.
    given: Vec<&'static str>,
    /// Names of the hyperparameters that were given there, with their texts.
    hyperparameters: Vec<(String, String)>,
    line: CommandLine,
}

impl Parser {
    fn run(mut self) -> Result<CommandLine, Failure> {
        while let Some(word) = self.rest.next() {
            let bytes = word.as_bytes();
            if bytes.starts_with(b"--") && bytes.len() > 2 {
                self.long(word)?;
            } else if bytes == b"--" {
                self.after_dashes();
            } else if bytes == b"-" {
                self.program(Program::Stdin, word);
            } else if bytes.starts_with(b"-") {
                check_dashes(&word)?;
                self.short(word);
            } else if self.line.python_word.is_none() && is_python_word(&word) {
                self.line.python_word = Some(word);
            } else {
                self.program(Program::Script(word.clone()), word);
            }
        }
        self.finish()
    }

    /// One of our options, or a long one of CPython.
    fn long(&mut self, word: OsString) -> Result<(), Failure> {
        let text = word.to_string_lossy().into_owned();
        let (name, inline) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text.as_str(), None),
        };
        if let Some((_, takes_value)) = PYTHON_LONG_OPTIONS.iter().find(|(long, _)| *long == name) {
            self.line.python_arguments.push(word);
            if *takes_value {
                self.line.python_arguments.extend(self.rest.next());
            }
            return Ok(());
        }
        let flag = FLAGS.iter().find(|flag| &name[2..] == flag.name);
        if let Some(python) = &self.line.python_word {
            // What follows belongs to Python: its help, its version, and options that it does not
            // know.
            return match flag.filter(|flag| flag.variable().is_some()) {
                None => {
                    self.line.python_arguments.push(word);
                    Ok(())
                }
                Some(_) => Err(misplaced_option(name, python)),
            };
        }
        let flag = flag.ok_or_else(|| unknown_option(name))?;
        if self.given.contains(&flag.name) && !flag.repeatable {
            return Err(usage(format!("`{name}` is given twice"))
                .detail("each option may be given once, but for `--hp` and `--no-hooks`"));
        }
        self.given.push(flag.name);
        let next;
        let is_option = |word: &OsString| is_own_option(&word.to_string_lossy());
        let value = match (flag.value, inline) {
            (None, None) => "",
            (None, Some(value)) => {
                return Err(usage(format!(
                    "`{name}` takes no value, and was given `{value}`"
                )));
            }
            (Some(_), Some(value)) => value,
            (Some(expected), None) => {
                let without_value = || {
                    usage(format!("`{name}` has no value"))
                        .detail(format!("expected: {name} {expected}"))
                };
                if let Some(following) = self.rest.as_slice().first().filter(|word| is_option(word))
                {
                    let following = following.to_string_lossy();
                    return Err(without_value()
                        .detail(format!("the next word is the option `{following}`"))
                        .hint(format!("if that is the value, write `{name}={following}`")));
                }
                next = self.rest.next().ok_or_else(without_value)?;
                next.to_str().ok_or_else(|| {
                    usage(format!("`{name}` is `{}`", next.to_string_lossy()))
                        .detail("expected: text in UTF-8")
                })?
            }
        };
        if flag.name == "hp" {
            self.check_not_given_before(value)?;
        }
        (flag.set)(&mut self.line.options, value).map_err(|expected| {
            usage(format!("`{name}` is `{value}`")).detail(format!("expected: {expected}"))
        })
    }

    /// Refuses a hyperparameter that this command line already contains: one of the two values
    /// would be lost silently. The command line takes precedence over the environment.
    fn check_not_given_before(&mut self, text: &str) -> Result<(), Failure> {
        let Some((name, _)) = text.split_once('=') else {
            return Ok(());
        };
        if let Some(before) = self.hyperparameters.iter().find(|(known, _)| known == name) {
            return Err(usage(format!("the hyperparameter `{name}` is given twice"))
                .detail(format!("received: --hp {} and --hp {text}", before.1))
                .hint("leave one of them out"));
        }
        self.hyperparameters
            .push((name.to_owned(), text.to_owned()));
        Ok(())
    }

    /// One word of CPython's short options, such as `-u`, `-Ou`, `-Wignore` or `-uc`.
    fn short(&mut self, word: OsString) {
        let letters = word.as_bytes()[1..].to_vec();
        for (position, letter) in letters.iter().enumerate() {
            self.line.isolated |= matches!(letter, b'I' | b'E' | b'S');
            let value = &letters[position + 1..];
            match ShortOption::of(*letter) {
                ShortOption::Switch => {}
                ShortOption::Value => {
                    self.line.python_arguments.push(word);
                    if value.is_empty() {
                        self.line.python_arguments.extend(self.rest.next());
                    }
                    return;
                }
                ShortOption::Program => {
                    return self.program_option(word, *letter, position, value);
                }
            }
        }
        self.line.python_arguments.push(word);
    }

    /// `-c CODE` or `-m MODULE`, possibly at the end of a word with switches before it.
    fn program_option(&mut self, word: OsString, letter: u8, position: usize, value: &[u8]) {
        // The dash and the letters before this one.
        self.line.num_switch_bytes = if position > 0 { position + 1 } else { 0 };
        let num_options = self.line.python_arguments.len();
        self.line.python_arguments.push(word);
        let text = if value.is_empty() {
            // If the value is missing, CPython says so.
            let text = self.rest.next();
            self.line.python_arguments.extend(text.clone());
            text.unwrap_or_default()
        } else {
            OsStr::from_bytes(value).to_owned()
        };
        self.line.program = if letter == b'c' {
            Program::Code(text)
        } else {
            Program::Module(text)
        };
        self.take_arguments(num_options);
    }

    /// `--` ends the options; CPython receives it only if it needs it.
    fn after_dashes(&mut self) {
        let Some(word) = self.rest.next() else { return };
        if word.as_bytes().starts_with(b"-") {
            self.line.python_arguments.push("--".into());
        }
        self.program(Program::Script(word.clone()), word);
    }

    fn program(&mut self, program: Program, word: OsString) {
        self.line.program = program;
        let num_options = self.line.python_arguments.len();
        self.line.python_arguments.push(word);
        self.take_arguments(num_options);
    }

    /// All the rest belongs to the program.
    fn take_arguments(&mut self, num_options: usize) {
        self.line.num_python_options = num_options;
        self.line.python_arguments.extend(self.rest.by_ref());
    }

    fn finish(mut self) -> Result<CommandLine, Failure> {
        let options = &self.line.options;
        if options.action != Action::Run {
            return Ok(self.line);
        }
        if options.verbose && options.quiet {
            return Err(usage("`--verbose` and `--quiet` are both given"));
        }
        if self.line.program == Program::None {
            self.line.num_python_options = self.line.python_arguments.len();
            // CPython would read standard input, and does so after the word `python`. But if
            // somebody types the bare command to see what it does, usage is the better answer.
            if self.line.python_arguments.is_empty() && self.line.python_word.is_none() {
                return Err(usage("no script is given").detail(
                    "expected: a script, `-m MODULE`, `-c CODE`, `-` for standard input, or with `--config FILE` a model definition",
                ));
            }
        }
        Ok(self.line)
    }
}

/// Sets the options that have an environment variable. A repeatable one separates its values by
/// `;`, a switch has a word for yes or no. An empty variable counts as unset.
fn read_environment(
    options: &mut Options,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<(), Failure> {
    for flag in FLAGS {
        let Some(name) = flag.variable() else {
            continue;
        };
        let Some(value) = environment(&name).filter(|value| !value.is_empty()) else {
            continue;
        };
        let text = value.to_string_lossy();
        let wrong = |expected: &str| {
            usage(format!("the environment variable `{name}` is `{text}`"))
                .detail(format!("expected: {expected}"))
        };
        if value.to_str().is_none() {
            return Err(wrong("text in UTF-8"));
        }
        for value in mirrored_values(flag, &text).map_err(wrong)? {
            (flag.set)(options, value).map_err(wrong)?;
        }
    }
    Ok(())
}

/// The values that the text of a variable sets for a flag.
fn mirrored_values<'a>(flag: &Flag, text: &'a str) -> Result<Vec<&'a str>, &'static str> {
    if flag.value.is_none() {
        return match text {
            "1" | "true" | "yes" | "on" => Ok(vec![""]),
            "0" | "false" | "no" | "off" => Ok(vec![]),
            _ => Err("`1` or `0`"),
        };
    }
    if flag.repeatable {
        return Ok(text
            .split(';')
            .map(str::trim)
            .filter(|value| !value.is_empty())
            .collect());
    }
    Ok(vec![text])
}

/// Whether a word names an interpreter, as in `pedl-run python train.py`, and is not a script.
pub(crate) fn is_python_word(word: &OsStr) -> bool {
    let Some(name) = Path::new(word).file_name().and_then(OsStr::to_str) else {
        return false;
    };
    let Some(version) = name.strip_prefix("python") else {
        return false;
    };
    let mut parts = version.split('.');
    matches!(parts.next(), Some("" | "3"))
        && parts.all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

fn usage(what: impl Into<String>) -> Failure {
    Failure::new(Exit::Usage, what).hint("`pedl-run --help` lists the options")
}

/// Whether a word is one of our options, with its value or without.
fn is_own_option(word: &str) -> bool {
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    name.strip_prefix("--")
        .is_some_and(|name| FLAGS.iter().any(|flag| flag.name == name))
}

/// Refuses one of our options with one dash: Python would read it as several short options.
fn check_dashes(word: &OsStr) -> Result<(), Failure> {
    let text = word.to_string_lossy();
    // `-mode` runs the module `ode`.
    if !is_own_option(&format!("-{text}")) || text.starts_with("-m") {
        return Ok(());
    }
    Err(usage(format!("`{text}` begins with one dash"))
        .detail(
            "expected: two dashes before an option of pedl-run; one is for Python's own letters",
        )
        .hint(format!("write `-{text}`")))
}

fn misplaced_option(name: &str, python: &OsStr) -> Failure {
    let python = python.to_string_lossy();
    let what = format!("`{name}` stands behind `{python}`, where the options are Python's");
    usage(what).detail(format!("expected: pedl-run {name} ... {python} SCRIPT"))
}

fn unknown_option(name: &str) -> Failure {
    let failure = usage(format!("unknown option `{name}`"))
        .detail("expected: options of pedl-run or of python, then the script; what follows the script belongs to it");
    let wanted = &name[2..];
    let mut close: Vec<_> = FLAGS
        .iter()
        .map(|flag| (strsim::levenshtein(wanted, flag.name), flag.name))
        .filter(|(edits, known)| {
            // Two typing errors, or a word that was not typed completely.
            *edits <= 2 && *edits < known.len() || (wanted.len() > 2 && known.starts_with(wanted))
        })
        .collect();
    close.sort_unstable();
    let close: Vec<_> = close
        .iter()
        .map(|(_, known)| format!("`--{known}`"))
        .collect();
    if close.is_empty() {
        failure
    } else {
        failure.hint(format!(
            "did you mean {}? `pedl-run --help` lists the options",
            close.join(" or ")
        ))
    }
}

#[cfg(test)]
mod tests;
