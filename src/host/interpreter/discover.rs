//! The sources of interpreters, and their order.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, access, accessat};
use rustix::io::Errno;

use crate::failure::{Exit, Failure};

/// The interpreter of an environment, best first.
const ENVIRONMENT_NAMES: [&str; 2] = ["bin/python", "bin/python3"];

/// A place that names or holds an interpreter. The order is the order of preference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// `--python PATH`, or `PEDL_PYTHON`
    Option(String),
    /// `pedl-run python3.8 train.py`
    CommandWord(OsString),
    /// The environment that `pedl-run` itself was installed into. The path is taken as it was
    /// typed: a symlink into the private environment of pipx must not make that the environment of
    /// the run. An environment that `uvx`, `pipx run` and similar tools have made only for pedl-run
    /// comes last.
    BesideUs(PathBuf),
    /// `VIRTUAL_ENV`
    VirtualEnvironment(PathBuf),
    /// `CONDA_PREFIX`
    CondaEnvironment(PathBuf),
    /// `python3` or `python` on `PATH`, except those of an environment that was made only for
    /// pedl-run: `uvx` puts it there.
    SearchPath(Option<PathBuf>),
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option(value) => write!(formatter, "--python `{value}`"),
            Self::CommandWord(word) => write!(formatter, "the word `{}`", word.display()),
            Self::BesideUs(prefix) => {
                write!(
                    formatter,
                    "the environment of pedl-run `{}`",
                    prefix.display()
                )
            }
            Self::VirtualEnvironment(prefix) => {
                write!(formatter, "VIRTUAL_ENV `{}`", prefix.display())
            }
            Self::CondaEnvironment(prefix) => {
                write!(formatter, "CONDA_PREFIX `{}`", prefix.display())
            }
            Self::SearchPath(_) => formatter.write_str("`python3` and `python` on PATH"),
        }
    }
}

impl Source {
    /// The interpreter of this source, if it has one.
    fn interpreter(&self) -> Option<PathBuf> {
        match self {
            Self::Option(value) => named(OsStr::new(value)),
            Self::CommandWord(word) => named(word),
            Self::BesideUs(prefix)
            | Self::VirtualEnvironment(prefix)
            | Self::CondaEnvironment(prefix) => in_environment(prefix),
            Self::SearchPath(but) => ["python3", "python"]
                .iter()
                .find_map(|name| on_path_but(name.as_ref(), but.as_deref())),
        }
    }

    /// Why this source has no interpreter, in words.
    fn problem(&self) -> String {
        let of_name = |name: &OsStr| {
            let path = Path::new(name);
            if path.is_dir() {
                problem_of_environment(path)
            } else if name.as_encoded_bytes().contains(&b'/') {
                problem_of_file(path)
            } else if path.is_file() {
                "no program of this name is on PATH; a file here would be named with a `/`"
                    .to_owned()
            } else {
                "no program of this name is on PATH".to_owned()
            }
        };
        match self {
            Self::Option(value) => of_name(OsStr::new(value)),
            Self::CommandWord(word) => of_name(word),
            Self::BesideUs(prefix)
            | Self::VirtualEnvironment(prefix)
            | Self::CondaEnvironment(prefix) => problem_of_environment(prefix),
            Self::SearchPath(_) => "there is none".to_owned(),
        }
    }

    /// Whether a run continues with the next source if this one has no interpreter.
    fn is_optional(&self) -> bool {
        !matches!(self, Self::Option(_) | Self::CommandWord(_))
    }
}

/// Finds the interpreter: an absolute path, with the symlinks of a virtual environment kept.
pub(super) fn find(
    option: Option<&str>,
    word: Option<&OsStr>,
) -> Result<(PathBuf, Source), Failure> {
    let mut looked = Vec::new();
    for source in sources(option, word) {
        if let Some(path) = source.interpreter() {
            let path = std::path::absolute(&path).unwrap_or(path);
            return Ok((path, source));
        }
        let last = !source.is_optional();
        looked.push(source);
        if last {
            break;
        }
    }
    let failure = Failure::new(Exit::Interpreter, "no Python interpreter was found");
    let failure = looked.iter().fold(failure, |failure, source| {
        failure.detail(format!("looked for {source}: {}", source.problem()))
    });
    let hint = match looked.last() {
        Some(Source::Option(value)) if value.starts_with("3.") => {
            format!("a version alone is no name: `--python python{value}`")
        }
        Some(Source::Option(_) | Source::CommandWord(_)) => {
            "name another with `--python PATH`, or leave it \
             out: then the first `python3` on PATH is taken"
                .to_owned()
        }
        _ => "name one with `--python PATH`".to_owned(),
    };
    Err(failure.hint(hint))
}

fn sources(option: Option<&str>, word: Option<&OsStr>) -> Vec<Source> {
    let mut sources = Vec::new();
    if let Some(option) = option {
        sources.push(Source::Option(option.to_owned()));
    }
    // The bare words `python` and `python3` name no particular interpreter.
    if let Some(word) = word.filter(|word| !["python", "python3"].map(OsStr::new).contains(word)) {
        sources.push(Source::CommandWord(word.to_owned()));
    }
    let ours = our_environment();
    let (tool, environment) = match ours {
        Some(prefix) if is_of_tool(&prefix) => (Some(prefix), None),
        other => (None, other),
    };
    sources.extend(environment.map(Source::BesideUs));
    let is_active = |prefix: &PathBuf| !tool.as_deref().is_some_and(|tool| is_same(tool, prefix));
    let active = directory_variable("VIRTUAL_ENV").filter(is_active);
    sources.extend(active.map(Source::VirtualEnvironment));
    if let Some(prefix) = directory_variable("CONDA_PREFIX") {
        sources.push(Source::CondaEnvironment(prefix));
    }
    sources.push(Source::SearchPath(tool.clone()));
    // Better than none: a script may need no package.
    sources.extend(tool.map(Source::BesideUs));
    sources
}

/// Whether a tool that runs programs made an environment only for pedl-run: it does not contain the
/// packages of the project. Source: uv 0.9, `crates/uv-tool`, `crates/uv-cache` (`archive-v0`,
/// `environments-v2`); pipx 1.8, `src/pipx/constants.py`, `pipx_metadata_file.py`.
fn is_of_tool(prefix: &Path) -> bool {
    let receipts = ["uv-receipt.toml", "pipx_metadata.json"];
    if receipts.iter().any(|name| prefix.join(name).is_file()) {
        return true;
    }
    let resolved = prefix.canonicalize();
    let paths = [Some(prefix), resolved.as_deref().ok()];
    paths.into_iter().flatten().any(|path| {
        let parents = path.ancestors().skip(1).filter_map(Path::file_name);
        let mut parents = parents.map(OsStr::to_string_lossy);
        parents.any(|name| {
            ["archive-", "environments-"]
                .iter()
                .any(|of_uv| name.strip_prefix(of_uv).is_some_and(is_version))
                || name == "pipx"
        })
    })
}

/// `v0`, as uv numbers the folders of its cache.
fn is_version(name: &str) -> bool {
    let number = name.strip_prefix('v');
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

fn is_same(one: &Path, other: &Path) -> bool {
    one == other || one.canonicalize().ok() == other.canonicalize().ok()
}

/// The virtual or conda environment in whose `bin` we were started, without resolving the symlink
/// to us.
fn our_environment() -> Option<PathBuf> {
    let typed = env::args_os().next()?;
    let path = if typed.as_encoded_bytes().contains(&b'/') {
        std::path::absolute(typed).ok()?
    } else {
        on_path(&typed)?
    };
    let prefix = path.parent()?.parent()?;
    let is_environment = prefix.join("pyvenv.cfg").is_file() || prefix.join("conda-meta").is_dir();
    is_environment.then(|| prefix.to_owned())
}

fn directory_variable(name: &str) -> Option<PathBuf> {
    env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// An interpreter that the user names: a path, an environment's directory, or a word on `PATH`.
fn named(name: &OsStr) -> Option<PathBuf> {
    let path = Path::new(name);
    if path.is_dir() {
        return in_environment(path);
    }
    if name.as_encoded_bytes().contains(&b'/') {
        return is_executable(path).then(|| path.to_owned());
    }
    on_path(name)
}

fn in_environment(prefix: &Path) -> Option<PathBuf> {
    ENVIRONMENT_NAMES
        .iter()
        .map(|name| prefix.join(name))
        .find(|path| is_executable(path))
}

fn problem_of_environment(prefix: &Path) -> String {
    if !prefix.is_dir() {
        return problem_of_file(prefix);
    }
    let there = ENVIRONMENT_NAMES
        .iter()
        .find(|name| prefix.join(name).symlink_metadata().is_ok());
    match there {
        Some(name) => format!("its `{name}`: {}", problem_of_file(&prefix.join(name))),
        None => format!("it has no `{}`", ENVIRONMENT_NAMES[0]),
    }
}

/// Why a path is no program, in words.
fn problem_of_file(path: &Path) -> String {
    match (path.symlink_metadata(), path.metadata()) {
        (Err(error), _) if error.kind() == io::ErrorKind::NotFound => "it is not there".to_owned(),
        (Err(error), _) => error.to_string(),
        (Ok(_), Err(_)) => match path.read_link() {
            Ok(target) => format!(
                "it is a symlink to `{}`, which is not there",
                target.display()
            ),
            Err(error) => error.to_string(),
        },
        (Ok(_), Ok(metadata)) if metadata.is_file() => "it may not be executed".to_owned(),
        (Ok(_), Ok(_)) => "it is no file".to_owned(),
    }
}

fn on_path(name: &OsStr) -> Option<PathBuf> {
    on_path_but(name, None)
}

/// A program on `PATH`, but not in the excluded environment.
fn on_path_but(name: &OsStr, left_out: Option<&Path>) -> Option<PathBuf> {
    let list = env::var_os("PATH")?;
    let left_out = left_out.map(|prefix| prefix.join("bin"));
    // An empty entry means the current directory, to the shell and here.
    env::split_paths(&list)
        .filter(|directory| {
            !left_out
                .as_deref()
                .is_some_and(|bin| is_same(bin, directory))
        })
        .map(|directory| directory.join(name))
        .find(|path| is_executable(path))
}

/// As the kernel will decide: plain `access` checks for the real user, and ignores capabilities. It
/// is used if the other call is forbidden: older containers do not know that one, and return
/// `EPERM`.
fn is_executable(path: &Path) -> bool {
    let allowed =
        accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).or_else(|error| match error {
            Errno::PERM | Errno::NOSYS => access(path, Access::EXEC_OK),
            other => Err(other),
        });
    path.is_file() && allowed.is_ok()
}
