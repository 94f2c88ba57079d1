//! Entry points of the fuzz targets in `tests/fuzz` for user input: any bytes are accepted or
//! refused, in short time.

#![allow(clippy::missing_panics_doc, reason = "for tests alone")]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process;

use crate::{cli, package};

/// A command line, whose words end with a zero byte. Words that begin with `PEDL_` are environment
/// variables.
pub fn command_line(data: &[u8]) {
    let words = data.split(|byte| *byte == 0);
    let words: Vec<OsString> = words
        .map(|word| OsStr::from_bytes(word).to_owned())
        .collect();
    let (variables, words): (Vec<_>, Vec<_>) = words
        .into_iter()
        .partition(|word| word.as_bytes().starts_with(b"PEDL_"));
    let environment = |name: &str| {
        let values = variables
            .iter()
            .filter_map(|it| it.as_bytes().strip_prefix(name.as_bytes()));
        let mut values = values.filter_map(|rest| rest.strip_prefix(b"="));
        values
            .next()
            .map(|value| OsStr::from_bytes(value).to_owned())
    };
    let _ = cli::parse::format_of_failures(&words, environment);
    if let Ok(line) = cli::parse::parse(words, environment) {
        let _ = (
            line.arguments_begin(),
            line.python_options(),
            line.our_option_behind_the_script(),
        );
        let _ = line.command();
    }
}

/// An ignore file; the first line of the data is a path to match against it.
pub fn ignore_file(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == b'\n');
    let (path, text) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    let thread = std::thread::current().id();
    let directory =
        std::env::temp_dir().join(format!("pedl-fuzz-ignore-{}-{thread:?}", process::id()));
    fs::create_dir_all(&directory).expect("there is room");
    fs::write(directory.join(".pedlignore"), text).expect("there is room");
    package::try_ignored(&directory, Path::new(OsStr::from_bytes(path)));
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// Each seed, each prefix of it, and each seed without one byte.
    fn try_corpus(name: &str, target: fn(&[u8])) {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
        for seed in fs::read_dir(corpus.join(name)).expect("it is in the repository") {
            let seed = fs::read(seed.expect("a name").path()).expect("it is there");
            for place in 0..seed.len() {
                target(&seed[..place]);
                target(&[&seed[..place], &seed[place + 1..]].concat());
            }
            target(&seed);
        }
    }

    #[test]
    fn corpus_of_command_lines() {
        try_corpus("command_line", super::command_line);
    }

    #[test]
    fn corpus_of_ignore_files() {
        try_corpus("ignore_file", super::ignore_file);
    }
}
