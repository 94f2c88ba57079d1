//! A Python whose tests are run, or whose environment runs the tests of a library.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::list::OnStack;
use crate::environment::Environment;
use crate::interpreter::Interpreter;

/// A Python whose tests are run, or whose environment runs the tests of a library.
pub(super) struct Subject {
    /// The version, or the name of the stack.
    pub(super) name: String,
    pub(super) python: PathBuf,
    /// Environment variables of the stack.
    pub(super) variables: BTreeMap<String, String>,
    pub(super) runner: Runner,
    /// The folder of the test files, if no package contains them.
    pub(super) tests: Option<PathBuf>,
}

/// What runs a file of tests.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Runner {
    /// `run_file.py`, for files of CPython's tests.
    Unittest,
    /// `python -m pytest`, for modules of a library.
    Pytest,
}

impl Subject {
    pub(super) fn python(interpreter: &Interpreter) -> Self {
        Self {
            name: interpreter.version.clone(),
            python: interpreter.path.clone(),
            variables: BTreeMap::new(),
            runner: Runner::Unittest,
            tests: None,
        }
    }

    pub(super) fn stack(on: &OnStack, environment: Environment, tests: Option<PathBuf>) -> Self {
        Self {
            name: on.name.clone(),
            python: environment.python,
            variables: environment.variables,
            runner: Runner::Pytest,
            tests,
        }
    }
}
