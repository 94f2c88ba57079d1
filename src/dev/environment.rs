//! Virtual environments with the packages of a stack, made once and kept outside the tree.
//!
//! They are below `$PEDL_DEV_CACHE`, else `$XDG_CACHE_HOME/pedl-dev`, else `~/.cache/pedl-dev`, one
//! directory for each stack, interpreter and list of requirements:
//!
//! ```text
//! keras3-jax-python3.13.0-1f0c3a9be2d4/            the environment
//! keras3-jax-python3.13.0-1f0c3a9be2d4/complete    written last: without it, it is made anew
//! keras3-jax-python3.13.0-1f0c3a9be2d4.lock        held while it is looked at or made
//! ```
//!
//! Nothing is updated in place. A changed requirement gives another directory; old ones may be
//! deleted at any time.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::failure::{At as _, Failure, Result};
use crate::interpreter::Interpreter;
use crate::matrix::Stack;
use crate::process::{self, Ended, Output, Running};

/// Enough for downloading and unpacking TensorFlow on a slow line.
const INSTALL_LIMIT: Duration = Duration::from_secs(20 * 60);

/// Enough for making an empty environment, or for asking pip for its version.
const QUICK_LIMIT: Duration = Duration::from_secs(2 * 60);

/// The first version of pip that can install into another interpreter's environment (`--python`).
const PIP_WITH_PYTHON_OPTION: (u32, u32) = (22, 3);

/// The file that marks an environment as complete. It contains the requirements, for people.
const MARKER: &str = "complete";

/// An environment that is ready.
pub(crate) struct Environment {
    /// Its `bin/python`.
    pub(crate) python: PathBuf,
    /// Its directory.
    pub(crate) directory: PathBuf,
    /// How long it took to make; `None` if it existed already.
    pub(crate) made_in: Option<Duration>,
    /// The environment variables of the stack.
    pub(crate) variables: BTreeMap<String, String>,
}

impl Environment {
    /// Finds or makes the environment of a stack. If there is no Python for it, prints a line and
    /// returns `None`.
    pub(crate) fn of_measured(stack: &Stack) -> Result<Option<Self>> {
        match Interpreter::of(stack) {
            Ok(interpreter) => Self::of(stack, &interpreter).map(Some),
            Err(why) => {
                println!("\n{}: skipped, {why}", stack.name);
                Ok(None)
            }
        }
    }

    /// Finds or makes the environment of a stack for an interpreter.
    pub(crate) fn of(stack: &Stack, interpreter: &Interpreter) -> Result<Self> {
        let cache = cache_directory()?;
        let name = directory_name(stack, interpreter);
        let directory = cache.join(&name);
        fs::create_dir_all(&cache).at("create", &cache)?;
        let lock_path = cache.join(format!("{name}.lock"));
        let lock = File::create(&lock_path).at("create", &lock_path)?;
        flock(&lock, FlockOperation::LockExclusive).at("lock", &lock_path)?;

        let python = directory.join("bin/python");
        let marker = directory.join(MARKER);
        let variables = stack.environment.clone();
        if marker.exists() {
            return Ok(Self {
                python,
                directory,
                made_in: None,
                variables,
            });
        }
        let started = Instant::now();
        make(stack, interpreter, &directory, &python)?;
        fs::write(&marker, stack.requirements.join("\n") + "\n").at("write", &marker)?;
        Ok(Self {
            python,
            directory,
            made_in: Some(started.elapsed()),
            variables,
        })
    }

    /// Installs more packages into a separate folder, without their dependencies.
    pub(crate) fn install_beside(
        &self,
        stack: &Stack,
        requirements: &[String],
        folder: &Path,
    ) -> Result<()> {
        let interpreter = Interpreter::find(&stack.python)
            .ok_or_else(|| Failure::new(format!("the Python of `{}` is gone", stack.name)))?;
        let mut words = vec![
            "--no-deps".to_owned(),
            format!("--target={}", folder.display()),
        ];
        words.extend_from_slice(requirements);
        install(stack, &interpreter, &self.python, &words)
    }

    /// A command of its Python, with the environment variables of the stack.
    pub(crate) fn command(&self) -> Command {
        self.command_for(&self.python)
    }

    /// A command of another program that will run its Python, with the same variables.
    pub(crate) fn command_for(&self, program: &Path) -> Command {
        let mut command = process::python(program);
        command.envs(&self.variables);
        command
    }
}

/// The directory of everything that these commands make outside the tree.
pub(crate) fn cache_directory() -> Result<PathBuf> {
    let set = |name: &str| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let directory = set("PEDL_DEV_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("pedl-dev")))
        .or_else(|| env::home_dir().map(|home| home.join(".cache/pedl-dev")))
        .ok_or_else(|| {
            Failure::new("there is no home directory to keep environments in")
                .hint("set PEDL_DEV_CACHE to a directory")
        })?;
    std::path::absolute(&directory).at("resolve", &directory)
}

/// A name that depends on everything that the contents depend on.
fn directory_name(stack: &Stack, interpreter: &Interpreter) -> String {
    let mut hash = blake3::Hasher::new();
    let path = interpreter.path.to_string_lossy();
    for part in stack
        .requirements
        .iter()
        .chain(&stack.system)
        .map(String::as_str)
        .chain([&*path])
    {
        hash.update(part.as_bytes());
        hash.update(b"\n");
    }
    let hash = hash.finalize().to_hex();
    format!(
        "{}-python{}-{}",
        stack.name,
        interpreter.version,
        &hash[..12]
    )
}

fn make(stack: &Stack, interpreter: &Interpreter, directory: &Path, python: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory).at("remove", directory)?;
    }
    // Debian's Python has `venv`, but may lack `ensurepip`: an environment without pip always
    // works.
    let mut venv = process::python(&interpreter.path);
    venv.args(["-m", "venv", "--without-pip"]);
    if !stack.system.is_empty() {
        venv.arg("--system-site-packages");
    }
    venv.arg(directory);
    run(venv, QUICK_LIMIT, "cannot make a virtual environment")
        .map_err(|failure| failure.hint("on Debian and Ubuntu: `apt install python3-venv`"))?;

    install(stack, interpreter, python, &stack.requirements)
}

/// Runs `pip install` with packages or options, for the Python of the environment.
fn install(
    stack: &Stack,
    interpreter: &Interpreter,
    python: &Path,
    words: &[String],
) -> Result<()> {
    let mut pip = pip_for(interpreter, python)?;
    pip.args([
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
    ]);
    pip.args(words);
    run(
        pip,
        INSTALL_LIMIT,
        &format!("cannot install the packages of `{}`", stack.name),
    )
}

/// A pip that installs into the environment. It is that of the interpreter, from outside, if that
/// can do it (this saves a copy in each environment), else one that is put inside.
fn pip_for(interpreter: &Interpreter, python: &Path) -> Result<Command> {
    let mut outside = process::python(&interpreter.path);
    outside.args(["-m", "pip"]);
    let mut version = process::python(&interpreter.path);
    version.args(["-m", "pip", "--version"]);
    let mut asked = Running::start(version, Output::Keep)?;
    asked.wait(QUICK_LIMIT)?;
    if pip_version(&asked.text()).is_some_and(|version| version >= PIP_WITH_PYTHON_OPTION) {
        outside.arg("--python").arg(python);
        return Ok(outside);
    }
    let mut ensurepip = process::python(python);
    ensurepip.args(["-m", "ensurepip"]);
    run(
        ensurepip,
        QUICK_LIMIT,
        &format!("`{}` has no pip", interpreter.path.display()),
    )
    .map_err(|failure| {
        failure.hint("install it (Debian: `apt install python3-pip`), or choose another Python")
    })?;
    let mut inside = process::python(python);
    inside.args(["-m", "pip"]);
    Ok(inside)
}

/// (23, 0) of `pip 23.0.1 from /usr/lib/python3/dist-packages/pip (python 3.11)`.
fn pip_version(text: &str) -> Option<(u32, u32)> {
    let line = text.lines().find_map(|line| line.strip_prefix("pip "))?;
    let mut numbers = line.split_whitespace().next()?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Runs a program to a successful end, or shows its output.
fn run(command: Command, limit: Duration, otherwise: &str) -> Result<()> {
    let mut running = Running::start(command, Output::Keep)?;
    let ended: Ended = running.wait(limit)?;
    if ended.success() {
        return Ok(());
    }
    let text = running.text();
    Err(Failure::new(format!(
        "{otherwise}: {}\n{}",
        ended.describe(),
        text.trim_end()
    )))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{directory_name, pip_version};
    use crate::interpreter::Interpreter;
    use crate::matrix::Stack;

    fn name(requirements: &[&str], python: &str) -> String {
        let stack = Stack {
            name: "demo".to_owned(),
            python: vec!["3.13".to_owned()],
            tags: Vec::new(),
            requirements: requirements.iter().map(|&text| text.to_owned()).collect(),
            environment: [].into(),
            workers: None,
            only_trains: None,
            optional: None,
            system: Vec::new(),
        };
        let path = PathBuf::from(python);
        directory_name(
            &stack,
            &Interpreter {
                version: "3.13.0".to_owned(),
                path,
            },
        )
    }

    #[test]
    fn the_name_changes_with_the_requirements_and_the_interpreter() {
        let first = name(&["keras==3.15.1"], "/usr/bin/python3");
        assert!(first.starts_with("demo-python3.13.0-"), "{first}");
        assert_eq!(first, name(&["keras==3.15.1"], "/usr/bin/python3"));
        assert_ne!(first, name(&["keras==3.15.2"], "/usr/bin/python3"));
        assert_ne!(
            first,
            name(&["keras==3.15.1", "jax==0.10.2"], "/usr/bin/python3")
        );
        assert_ne!(first, name(&["keras==3.15.1"], "/opt/bin/python3"));
    }

    #[test]
    fn versions_of_pip() {
        let debian =
            "WARNING: old\npip 23.0.1 from /usr/lib/python3/dist-packages/pip (python 3.11)\n";
        assert_eq!(pip_version(debian), Some((23, 0)));
        assert_eq!(pip_version("pip 26.1.dev0 from x"), Some((26, 1)));
        assert_eq!(pip_version("No module named pip"), None);
    }
}
