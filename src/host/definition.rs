//! A standard model definition: a trial class, in a directory that is a Python package, or in one
//! file.
//!
//! ```text
//! --config FILE DIR            `entrypoint: module:Trial`, `entrypoints.trial_class`, or the one
//!                              class that `__init__.py` exposes
//! --config FILE model_def.py   the same in the folder of the file; without an entrypoint the one
//!                              class in the file
//! ```
//!
//! One of our programs (`py_hooks/trial_classes/program.py`) runs it in its directory, and imports
//! it (`definition.py` beside it) like a script: everything that holds for scripts holds for it.

use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::cli::parse::{CommandLine, Program};
use crate::failure::{Exit, Failure};

/// What Python runs for a model definition.
const DRIVER: &str = "from py_hooks.boot import process; process.run_trial_class()";

/// A Python file larger than this is not searched for a class.
const LARGEST_FILE_BYTES: u64 = 4 << 20;

/// The place of the model code, and the identity of the trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Definition {
    /// The working directory, without symbolic links.
    pub(crate) directory: PathBuf,
    /// The name of the module, if the command named a file.
    pub(crate) module: Option<String>,
    /// The name that the trial directory gets.
    pub(crate) name: String,
    /// The path as it was typed.
    typed: String,
}

impl Definition {
    /// The definition at a path, if it may be a model definition: a directory, or a Python file.
    pub(crate) fn at(typed: &Path) -> Option<Self> {
        let path = fs::canonicalize(typed).ok()?;
        let (directory, module) = if path.is_dir() {
            (path.clone(), None)
        } else if path.extension()? == "py" {
            let module = path.file_stem()?.to_str()?.to_owned();
            (path.parent()?.to_owned(), Some(module))
        } else {
            return None;
        };
        let name = path.file_stem().unwrap_or_default();
        let name = if module.is_none() {
            path.file_name().unwrap_or_default()
        } else {
            name
        };
        Some(Self {
            name: name.to_string_lossy().into_owned(),
            typed: typed.to_string_lossy().into_owned(),
            directory,
            module,
        })
    }

    /// Whether it exposes a trial class without an entrypoint: a package does so by its
    /// `__init__.py`, a file by a class with such a base, if it is not a script as well.
    ///
    /// # Errors
    ///
    /// A file is both, and nothing says which one is meant.
    pub(crate) fn is_discovered(&self) -> Result<bool, Failure> {
        let Some(module) = &self.module else {
            return Ok(self.directory.join("__init__.py").is_file());
        };
        let file = self.directory.join(format!("{module}.py"));
        let is_small = file
            .metadata()
            .is_ok_and(|found| found.len() <= LARGEST_FILE_BYTES);
        let text = fs::read_to_string(file).unwrap_or_default();
        if !is_small || !defines_trial(&text) {
            return Ok(false);
        }
        if is_script(&text) {
            let what = format!(
                "`{}` has a trial class, and is a script as well",
                self.typed
            );
            return Err(Failure::new(Exit::Configuration, what)
                .detail("expected: an `entrypoint` in the configuration, which says what is run")
                .hint(format!(
                    "add `entrypoint: {module}:CLASS`, or `entrypoint: {{script: {module}.py}}`"
                )));
        }
        Ok(true)
    }

    /// Replaces the directory or file that was typed with our program.
    pub(crate) fn put_into(&self, line: &mut CommandLine) -> Result<(), Failure> {
        let behind = &line.python_arguments[line.arguments_begin()..];
        if let Some(word) = behind.first() {
            let word = word.to_string_lossy();
            let what = format!(
                "`{word}` stands behind the model definition `{}`",
                self.typed
            );
            return Err(Failure::new(Exit::Usage, what)
                .detail("expected: nothing; a trial class has no command line")
                .hint("give values by `--hp NAME=VALUE`, or in the section `data` of the configuration"));
        }
        line.python_arguments.truncate(line.num_python_options);
        let words = ["-c", DRIVER].map(OsString::from);
        line.python_arguments.extend(words);
        line.program = Program::Code(DRIVER.into());
        Ok(())
    }

    /// The command that identifies the trial.
    pub(crate) fn command(&self) -> Vec<String> {
        // `model/` and `./model` are the same as `model`.
        let parts = Path::new(&self.typed).components();
        let path: PathBuf = parts.filter(|part| *part != Component::CurDir).collect();
        let is_here = path.as_os_str().is_empty();
        let path = if is_here { Path::new(".") } else { &path };
        vec![path.to_string_lossy().into_owned()]
    }
}

/// Refuses an entrypoint that is not `module:object`, according to the rules M11 to M13.
pub(crate) fn check_entrypoint(entrypoint: &str, name: &str) -> Result<(), Failure> {
    let is_word = |word: &str| {
        !word.is_empty()
            && word
                .chars()
                .all(|letter| letter.is_alphanumeric() || letter == '_')
            && !word.starts_with(|first: char| first.is_ascii_digit())
    };
    let parts: Vec<_> = entrypoint.split(':').map(str::trim).collect();
    if let [module, object] = parts[..]
        && (module.is_empty() || module.split('.').all(is_word))
        && object.split('.').all(is_word)
    {
        return Ok(());
    }
    let what = format!("`entrypoint` is `{entrypoint}` in {name}");
    Err(Failure::new(Exit::Configuration, what)
        .detail("expected: `<module>:<class>`, as in `model_def:MNistTrial` or `:MNistTrial`, or a script")
        .hint("correct it, or name a script as `entrypoint: {script: train.py}`"))
}

/// Whether a file has a class, at its top level, with a base whose name ends in `Trial`.
fn defines_trial(text: &str) -> bool {
    let classes = text
        .match_indices("class ")
        .filter(|(at, _)| *at == 0 || text.as_bytes()[at - 1] == b'\n');
    classes.into_iter().any(|(at, _)| {
        let head = text[at..].split_once(':').map_or("", |(head, _)| head);
        let bases = head
            .split_once('(')
            .and_then(|(_, rest)| rest.rsplit_once(')'));
        bases.is_some_and(|(bases, _)| bases.split(',').any(|base| base.trim().ends_with("Trial")))
    })
}

/// Whether a file contains code that runs as a script.
fn is_script(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("if __name__"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m11_an_entrypoint_is_a_module_and_an_object() {
        for right in [":A", "model_def:A", "a.b:C.D", " model_def : A ", "déf:Ä"] {
            check_entrypoint(right, "c.yaml").unwrap_or_else(|error| panic!("{right}: {error}"));
        }
        for wrong in [
            "",
            "A",
            "a:",
            ":",
            "a:b:c",
            "a b:C",
            "a..b:C",
            ".a:C",
            "a:1",
            "my-model:A",
            "a:B.",
        ] {
            check_entrypoint(wrong, "c.yaml").expect_err(wrong);
        }
    }

    #[test]
    fn m9_a_file_with_a_trial_class_is_a_definition() {
        for text in [
            "class A(KerasTrial):",
            "x = 1\nclass A(base.PyTorchTrial, B):\n    pass\n",
        ] {
            assert!(defines_trial(text), "{text}");
        }
        for text in [
            "class A(Trials):",
            "class Trial:",
            "    class A(KerasTrial):",
            "print(1)",
        ] {
            assert!(!defines_trial(text), "{text}");
        }
    }
}
