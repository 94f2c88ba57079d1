//! Queries an interpreter in a separate process, and caches the answer.
//!
//! This is needed only if its file does not contain the answer (`elf`): an executable with Python
//! linked into it, or a script such as those of pyenv and asdf. The query costs 10 to 40 ms, so the
//! answer of an executable is kept in the cache directory under everything it can depend on. The
//! answer of a script depends on other files (`.python-version` and similar), so a script is
//! queried every time.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::failure::{Exit, Failure};

const QUESTION: &str = include_str!("query.py");

/// Environment variables on which the answer of an interpreter depends.
const VARIABLES: [&str; 4] = [
    "PYENV_VERSION",
    "PYENV_DIR",
    "LD_LIBRARY_PATH",
    "PYTHONHOME",
];

/// Characters of another program's output that a message quotes.
const LONGEST_QUOTE: usize = 200;

/// The answer of an interpreter about itself; the fields are those of `query.py`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) executable: PathBuf,
    pub(super) implementation: String,
    pub(super) version: String,
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) abiflags: String,
    pub(super) loaded_library: Option<PathBuf>,
    pub(super) candidate_libraries: Vec<PathBuf>,
}

/// One cached answer. It repeats the key, since its file name is only a hash.
#[derive(Serialize, Deserialize)]
struct Remembered {
    key: String,
    answer: Answer,
}

/// Queries the interpreter, or the cache below `cache` if it was queried before.
pub(super) fn ask(interpreter: &Path, cache: &Path) -> Result<Answer, Failure> {
    let key = key(interpreter);
    let memory = cache.join("interpreters").join(file_name(&key));
    if let Some(answer) = recall(&memory, &key) {
        return Ok(answer);
    }
    let answer = ask_process(interpreter)?;
    remember(
        &memory,
        &Remembered {
            key,
            answer: answer.clone(),
        },
    );
    Ok(answer)
}

/// Queries the interpreter.
pub(super) fn ask_process(interpreter: &Path) -> Result<Answer, Failure> {
    let failed = || {
        Failure::new(
            Exit::Interpreter,
            format!("cannot ask `{}` which Python it is", interpreter.display()),
        )
        .hint("choose another interpreter with `--python PATH`")
    };
    let output = Command::new(interpreter)
        .args(["-I", "-S", "-c", QUESTION])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            let failure = failed().detail(format!("it could not be started: {error}"));
            match first_line_of_script(interpreter) {
                Some(line) => failure.detail(format!("its first line: {line}")),
                None => failure,
            }
        })?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let mut failure = failed().detail(format!("it ended with {}", output.status));
        if let Some(line) = stderr.lines().rfind(|line| !line.trim().is_empty()) {
            failure = failure.detail(format!("its last line: {}", shortened(line.trim())));
        }
        return Err(failure);
    }
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let answer = String::from_utf8_lossy(&output.stdout);
        failed().detail(if answer.trim().is_empty() {
            "it ended well, and printed nothing".to_owned()
        } else {
            format!("it printed `{}`", shortened(answer.trim()))
        })
    })
}

/// A text of another program, cut to the length that fits into a message.
fn shortened(text: &str) -> String {
    if text.chars().count() <= LONGEST_QUOTE {
        return text.to_owned();
    }
    let head: String = text.chars().take(LONGEST_QUOTE).collect();
    format!("{head}...")
}

/// The program that a script names as its interpreter: if that is missing, the system only reports
/// that something does not exist.
fn first_line_of_script(path: &Path) -> Option<String> {
    let text = fs::read(path).ok()?;
    let line = text
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    Some(format!("#!{}", shortened(&String::from_utf8_lossy(line))))
}

/// Everything that the answer depends on.
fn key(interpreter: &Path) -> String {
    let mut key = format!("{}\n{}", env!("CARGO_PKG_VERSION"), interpreter.display());
    if let (Ok(resolved), Ok(metadata)) = (interpreter.canonicalize(), interpreter.metadata()) {
        let _ = write!(
            key,
            "\n{} {} {} {}.{:09}",
            resolved.display(),
            metadata.ino(),
            metadata.size(),
            metadata.mtime(),
            metadata.mtime_nsec()
        );
    }
    for name in VARIABLES {
        let value: OsString = std::env::var_os(name).unwrap_or_default();
        let _ = write!(key, "\n{name}={}", value.display());
    }
    key
}

fn file_name(key: &str) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(key.as_bytes());
    format!("{:016x}.json", hasher.finish())
}

fn recall(memory: &Path, key: &str) -> Option<Answer> {
    let remembered: Remembered = serde_json::from_slice(&fs::read(memory).ok()?).ok()?;
    (remembered.key == key).then_some(remembered.answer)
}

/// Caches an answer. If that is not possible, the next run queries again.
fn remember(memory: &Path, remembered: &Remembered) {
    let Some(directory) = memory.parent() else {
        return;
    };
    let staged = memory.with_extension(format!("{}.tmp", process::id()));
    let kept = serde_json::to_vec(remembered)
        .map_err(Into::into)
        .and_then(|text| {
            fs::create_dir_all(directory)?;
            fs::write(&staged, text)?;
            fs::rename(&staged, memory)
        });
    if let Err(error) = kept {
        tracing::debug!("the answer of the interpreter is not kept in {memory:?}: {error}");
    }
}
