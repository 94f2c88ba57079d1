//! Finds Python interpreters.
//!
//! The project needs none for its build. Its tests and its demonstration run on real ones. They are
//! searched for, and asked for their version, because a name promises nothing: the `python3.11` of
//! pyenv is a script that may know no such version.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::failure::{Failure, Result};
use crate::matrix::Stack;
use crate::process::{self, Output, Running};

/// What a candidate prints about itself. `sys.executable` is the real one behind pyenv's scripts.
const QUESTION: &str = "import json, sys; print(json.dumps(\
    {'version': '%d.%d.%d' % sys.version_info[:3], 'path': sys.executable}))";

/// Prints, on a line, the packages of Debian that it lacks: those of the modules in its arguments,
/// and that of the shared library that `pedl-run` loads.
const LACKING: &str = "import importlib.util, os, sys, sysconfig\n\
    lacking = ['python3-' + name for name in sys.argv[1:] if not importlib.util.find_spec(name)]\n\
    library = map(sysconfig.get_config_var, ('LIBDIR', 'INSTSONAME'))\n\
    if not os.path.exists(os.path.join(*library)):\n    \
        lacking.append('libpython%d.%d' % sys.version_info[:2])\n\
    print(' '.join(lacking))";

/// The Python of a distribution.
const OF_THE_SYSTEM: &str = "/usr/bin/python3";

/// A candidate that does not answer within this time is no interpreter.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// A CPython that answered.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Interpreter {
    /// `3.13.0`
    pub(crate) version: String,
    /// The real executable.
    pub(crate) path: PathBuf,
}

impl Interpreter {
    /// Asks one executable.
    pub(crate) fn at(path: &Path) -> Result<Self> {
        let no =
            |why: &str| Failure::new(format!("`{}` is no usable Python: {why}", path.display()));
        let mut command = process::python(path);
        command.args(["-I", "-S", "-c", QUESTION]);
        let mut asked = Running::start(command, Output::Keep)?;
        let ended = asked.wait(ANSWER_LIMIT)?;
        let answer = asked.text();
        if !ended.success() {
            return Err(no(&format!("{}, {}", ended.describe(), answer.trim())));
        }
        // Warnings may come first.
        let last = answer.lines().next_back().unwrap_or_default();
        serde_json::from_str(last).map_err(|_| no(&format!("it answered `{}`", answer.trim())))
    }

    /// The interpreter for a stack, or why there is none.
    pub(crate) fn of(stack: &Stack) -> std::result::Result<Self, String> {
        let versions = stack.python.join(", ");
        if stack.system.is_empty() {
            return Self::find(&stack.python).ok_or(format!("no Python {versions} was found"));
        }
        let Ok(found) = Self::at(Path::new(OF_THE_SYSTEM)) else {
            return Err(format!("there is no `{OF_THE_SYSTEM}`"));
        };
        if !stack.python.iter().any(|version| found.is(version)) {
            let what = format!("`{OF_THE_SYSTEM}` is Python {}", found.version);
            return Err(format!("{what}, and not {versions}"));
        }
        match found.lacking(&stack.system) {
            Ok(packages) if packages.is_empty() => Ok(found),
            Ok(packages) => Err(format!(
                "`{OF_THE_SYSTEM}` lacks what `apt-get install {packages}` installs"
            )),
            Err(failure) => Err(failure.to_string()),
        }
    }

    /// The first interpreter that answers, of the versions in this order. `None` is not an error.
    pub(crate) fn find(versions: &[String]) -> Option<Self> {
        versions.iter().find_map(|version| {
            candidates(version)
                .iter()
                .filter_map(|candidate| Self::at(candidate).ok())
                .find(|found| found.is(version))
        })
    }

    /// The newest interpreter of a version below pyenv.
    pub(crate) fn below_pyenv(version: &str) -> Option<Self> {
        pyenv_versions(version)
            .iter()
            .filter_map(|found| Self::at(&found.join("bin/python")).ok())
            .find(|found| found.is(version))
    }

    /// The interpreter of exactly this version, for example `3.11.7`. `None` is not an error.
    pub(crate) fn exactly(version: &str) -> Option<Self> {
        let (minor, _) = version.rsplit_once('.')?;
        candidates(minor)
            .iter()
            .filter_map(|candidate| Self::at(candidate).ok())
            .find(|found| found.version == version)
    }

    /// The packages of Debian with these modules, and with the shared library, that are missing; in
    /// one text.
    fn lacking(&self, modules: &[String]) -> Result<String> {
        let mut command = process::python(&self.path);
        command.args(["-I", "-c", LACKING]).args(modules);
        let mut asked = Running::start(command, Output::Keep)?;
        let ended = asked.wait(ANSWER_LIMIT)?;
        let answer = asked.text();
        if !ended.success() {
            let what = format!("`{}` did not say what it lacks", self.path.display());
            return Err(Failure::new(format!("{what}: {}", answer.trim())));
        }
        // Warnings may come first.
        Ok(answer.lines().next_back().unwrap_or_default().to_owned())
    }

    /// Whether it is linked against a libpython, so that `pedl-run` can embed it.
    pub(crate) fn is_linked(&self) -> Result<bool> {
        let mut command = process::python(&self.path);
        let question = "print('libpython' in open('/proc/self/maps').read())";
        command.args(["-I", "-S", "-c", question]);
        let mut asked = Running::start(command, Output::Keep)?;
        let ended = asked.wait(ANSWER_LIMIT)?;
        Ok(ended.success() && asked.text().trim() == "True")
    }

    /// Whether it is of this version, for example `3.11`.
    fn is(&self, version: &str) -> bool {
        self.version
            .strip_prefix(version)
            .is_some_and(|rest| rest.starts_with('.'))
    }
}

/// The executables that may be of a version, most likely first: `python3.11` and `python3` in the
/// directories of `PATH`, then the directories of pyenv, newest patch first.
fn candidates(version: &str) -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut found = Vec::new();
    for name in [format!("python{version}"), "python3".to_owned()] {
        found.extend(env::split_paths(&path).map(|directory| directory.join(&name)));
    }
    found.extend(
        pyenv_versions(version)
            .into_iter()
            .map(|version| version.join("bin/python")),
    );
    found.retain(|path| path.is_file());
    found
}

fn pyenv_versions(version: &str) -> Vec<PathBuf> {
    let root = env::var_os("PYENV_ROOT").map(PathBuf::from);
    let Some(root) = root.or_else(|| env::home_dir().map(|home| home.join(".pyenv"))) else {
        return Vec::new();
    };
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir(root.join("versions"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((patch(&entry.file_name(), version)?, entry.path())))
        .collect();
    found.sort_by(|one, other| other.cmp(one));
    found.into_iter().map(|(_, path)| path).collect()
}

/// `7` of `3.11.7`, if the version is `3.11`.
fn patch(name: &OsStr, version: &str) -> Option<u32> {
    name.to_str()?
        .strip_prefix(version)?
        .strip_prefix('.')?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::path::{Path, PathBuf};

    use super::{Interpreter, OF_THE_SYSTEM, patch};

    #[test]
    fn a_version_is_a_whole_number() {
        let python = |version: &str| Interpreter {
            version: version.to_owned(),
            path: PathBuf::new(),
        };
        assert!(python("3.1.4").is("3.1"));
        assert!(!python("3.11.4").is("3.1"));
        assert_eq!(patch(OsStr::new("3.11.7"), "3.11"), Some(7));
        assert_eq!(patch(OsStr::new("3.11.7"), "3.1"), None);
        assert_eq!(patch(OsStr::new("3.11-dev"), "3.11"), None);
    }

    #[test]
    fn what_the_system_lacks_is_named_by_its_packages() {
        let Ok(python) = Interpreter::at(Path::new(OF_THE_SYSTEM)) else {
            println!("skipped: there is no `{OF_THE_SYSTEM}`");
            return;
        };
        let modules = ["json", "none_such"].map(str::to_owned);
        let lacking = python.lacking(&modules).expect("it answers");
        assert_eq!(lacking.split(' ').next(), Some("python3-none_such"));
        assert!(!lacking.contains("json"));
    }
}
