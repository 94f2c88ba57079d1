//! `tests/conformance/list.toml`: the Pythons, the files and libraries whose tests are run, and the
//! known differences with their causes.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde::Deserialize;

use crate::environment;
use crate::failure::{At as _, Failure, Result};
use crate::matrix::{Matrix, Stack};
use crate::repository::{Repository, has_revision};

/// The list of what is run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    pub(super) pythons: Vec<String>,
    pub(super) files: Vec<String>,
    pub(super) gate_pythons: Vec<String>,
    pub(super) gate_files: Vec<String>,
    #[serde(rename = "library")]
    pub(super) libraries: Vec<Library>,
    #[serde(default, rename = "difference")]
    pub(super) differences: Vec<Difference>,
    #[serde(default, rename = "real_python")]
    pub(super) real_pythons: Vec<RealPython>,
}

/// A file whose tests find the real python in `sys.executable`, as every script does, and start
/// that.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RealPython {
    pub(super) file: String,
    /// Prefixes of the versions.
    pub(super) pythons: Vec<String>,
    pub(super) cause: String,
}

/// A library with tests for pytest. The fields are explained in the list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Library {
    pub(super) source: Option<String>,
    pub(super) repository: Option<String>,
    pub(super) revision: Option<String>,
    pub(super) files: Vec<String>,
    #[serde(rename = "stack")]
    pub(super) stacks: Vec<OnStack>,
}

/// What the tests of a library need on a stack of `tests/matrix.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OnStack {
    pub(super) name: String,
    pub(super) requirements: Vec<String>,
}

impl Library {
    /// The stack that its tests need: with more requirements, and with the library from its source
    /// distribution if that contains the tests.
    pub(super) fn stack(&self, on: &OnStack, matrix: &Matrix) -> Result<Stack> {
        let mut stack = matrix.stack(&on.name)?.clone();
        if on.requirements.is_empty() && self.source.is_none() {
            return Ok(stack);
        }
        stack.name += "-conformance";
        stack.requirements.extend(on.requirements.iter().cloned());
        let source = self.source.iter();
        stack
            .requirements
            .extend(source.map(|source| format!("--no-binary={source}")));
        Ok(stack)
    }

    /// The folder of its tests, if they are not in the library: the files at the revision of the
    /// list, extracted from a checkout. Or the reason why there are none.
    pub(super) fn tests(
        &self,
        checkouts: &[&str],
    ) -> Result<std::result::Result<Option<PathBuf>, String>> {
        let (Some(repository), Some(revision)) = (&self.repository, &self.revision) else {
            return Ok(Ok(None));
        };
        let git = |checkout: &str, arguments: &[&str]| {
            let mut git = Command::new("git");
            git.args(["-C", checkout]).args(arguments).output()
        };
        let has_it = |checkout: &&&str| has_revision(checkout, revision);
        let Some(checkout) = checkouts.iter().find(has_it) else {
            let what = format!("its tests are those of {repository} at {revision}");
            return Ok(Err(format!(
                "{what}; `--checkout DIR` names one that has it"
            )));
        };
        let directory = environment::cache_directory()?.join("conformance");
        let directory = directory.join(format!("tests-{revision}"));
        for file in &self.files {
            let path = directory.join(file);
            if path.exists() {
                continue;
            }
            let parent = path.parent().unwrap_or(&directory);
            fs::create_dir_all(parent).at("create", parent)?;
            let object = format!("{revision}:{file}");
            let shown = git(checkout, &["show", &object]).at("run git for", &path)?;
            if !shown.status.success() {
                return Err(Failure::new(format!("`{checkout}` has no {object}")));
            }
            let part = path.with_extension("part");
            fs::write(&part, shown.stdout).at("write", &part)?;
            fs::rename(&part, &path).at("create", &path)?;
        }
        Ok(Ok(Some(directory)))
    }
}

/// A known difference.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Difference {
    /// A part of the names of the tests.
    pub(super) test: String,
    /// Prefixes of the versions, or of the names of the stacks. Empty means all.
    #[serde(default)]
    pub(super) pythons: Vec<String>,
    /// Empty means both.
    #[serde(default)]
    pub(super) modes: Vec<String>,
    pub(super) cause: String,
}

impl Difference {
    pub(super) fn holds(&self, test: &str, python: &str, way: &str) -> bool {
        let is_of = |list: &[String], found: &str| {
            list.is_empty() || list.iter().any(|one| found.starts_with(&**one))
        };
        // Whole names: `test_process` is not a part of `test_process_name`.
        let is_part = test.match_indices(&self.test).any(|(at, part)| {
            let next = test[at + part.len()..].chars().next();
            !next.is_some_and(|next| next.is_alphanumeric() || next == '_')
        });
        is_part && is_of(&self.pythons, python) && is_of(&self.modes, way)
    }
}

pub(super) fn read_list(repository: &Repository) -> Result<List> {
    let path = repository.root().join("tests/conformance/list.toml");
    let text = fs::read_to_string(&path).at("read", &path)?;
    toml::from_str(&text)
        .map_err(|error| Failure::new(format!("`{}` is not valid:\n{error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::{Difference, read_list};
    use crate::matrix::Matrix;
    use crate::repository::Repository;

    #[test]
    fn a_known_difference_is_of_whole_names() {
        let known = Difference {
            test: "test_x.Class.test_process".to_owned(),
            pythons: vec!["3.7.".to_owned()],
            modes: vec!["embed".to_owned()],
            cause: String::new(),
        };
        let holds = |test| known.holds(test, "3.7.16", "embed");
        assert!(holds("test.test_x.Class.test_process"));
        assert!(holds("setUp (test.test_x.Class.test_process)"));
        assert!(!holds("test.test_x.Class.test_process_name"));
        assert!(!known.holds("test.test_x.Class.test_process", "3.13.0", "embed"));
        assert!(!known.holds("test.test_x.Class.test_process", "3.7.16", "exec"));
    }

    #[test]
    fn a_known_difference_names_a_file_that_is_run() {
        let list = read_list(&Repository::find()).expect("the list is valid");
        for difference in &list.differences {
            let of_libraries = list.libraries.iter().flat_map(|library| &library.files);
            let is_there = list
                .files
                .iter()
                .chain(of_libraries)
                .any(|file| difference.test.contains(&**file));
            assert!(is_there, "{}", difference.test);
            assert!(
                difference.holds(&difference.test, "3.7.16", "embed")
                    || !difference.pythons.is_empty()
                    || !difference.modes.is_empty()
            );
        }
    }

    #[test]
    fn the_libraries_are_on_stacks_and_what_they_need_is_pinned() {
        let repository = Repository::find();
        let list = read_list(&repository).expect("the list is valid");
        let matrix = Matrix::read(&repository).expect("the matrix is valid");
        for library in &list.libraries {
            // Its tests come with it, or from a revision of its repository.
            assert_ne!(library.source.is_some(), library.revision.is_some());
            assert_eq!(library.repository.is_some(), library.revision.is_some());
            for on in &library.stacks {
                let stack = library.stack(on, &matrix).expect("the stack is there");
                if let Some(source) = &library.source {
                    let named = format!("{source}==");
                    let mut requirements = stack.requirements.iter();
                    assert!(requirements.any(|one| one.starts_with(&named)), "{named}");
                }
                for requirement in &on.requirements {
                    assert_eq!(requirement.matches("==").count(), 1, "{requirement}");
                }
            }
        }
    }
}
