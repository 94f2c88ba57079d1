//! The Python that runs the script: finds it, checks it, and loads it into the trial process.
//!
//! In the supervisor, which never loads a line of Python:
//!
//! 1. **find** (`discover`): the path of an interpreter, from the first source that has one;
//! 2. **read** (`elf`): whether that executable is linked against a shared libpython, and which
//!    one;
//! 3. **query** (`query`): only if the file does not say, the interpreter is queried, once;
//! 4. **check** (here): its version, and the mode that loses nothing with it.
//!
//! In the trial process:
//!
//! 5. **embed** (`libpython`, then one file per generation of the C API): the library is opened,
//!    the interpreter initialised, our boot called, and CPython's own main function runs the
//!    script;
//! 6. or **exec** (`trial_process`): the real executable replaces us and boots from `PYTHONPATH`.
//!
//! Why two modes: an interpreter that is linked against libpython is the same code either way, and
//! embedding it loses nothing. One with Python linked into its executable (Debian, conda,
//! python-build-standalone) runs bytecode 8 to 30 % faster than the library of the same version,
//! which may not even be installed; in that case the executable itself is run.
//!
//! Unsafe code is only in `libpython` and the `embed_*` files.

mod discover;
mod elf;
mod embed_v3_7;
mod embed_v3_8_on;
mod libpython;
mod query;

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cli::flags::Mode;
use crate::cli::parse::CommandLine;
use crate::failure::{Exit, Failure};
use elf::Linkage;
pub(crate) use libpython::forget_variable;

/// A minor version of Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Version(pub(crate) u32, pub(crate) u32);

/// The oldest version that pyo3's stable ABI supports, and the newest that was tested.
const SUPPORTED: (Version, Version) = (Version(3, 7), Version(3, 13));

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.0, self.1)
    }
}

/// The interpreter of a run, and how the trial process loads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Interpreter {
    /// The value of `sys.executable` in the script.
    pub(crate) executable: PathBuf,
    pub(crate) version: Version,
    /// The library to embed; `None`: exec mode.
    pub(crate) library: Option<PathBuf>,
    /// `sys.version` of the executable, if it was queried: the library must return the same.
    pub(crate) full_version: Option<String>,
}

impl Interpreter {
    /// Whether `sitecustomize` on `PYTHONPATH` does the boot.
    pub(crate) fn boots_from_path(&self) -> bool {
        self.library.is_none() || self.version == Version(3, 7)
    }

    /// The word for the mode in the launch message.
    pub(crate) fn mode(&self) -> &'static str {
        if self.library.is_some() {
            "embed"
        } else {
            "exec"
        }
    }
}

/// The known facts about an interpreter before a mode is chosen.
struct Found {
    executable: PathBuf,
    version: Version,
    full_version: Option<String>,
    /// The shared library that the executable itself uses.
    linked: Option<PathBuf>,
    /// Other places where a library of this version may be.
    candidates: Vec<PathBuf>,
}

/// Finds the interpreter for a command line. Answers of interpreters are kept in `cache`.
pub(crate) fn choose(line: &CommandLine, cache: &Path) -> Result<Interpreter, Failure> {
    let (interpreter, source) = find(line, cache)?;
    tracing::debug!(
        "python {} at {}, found by {source}; {}",
        interpreter.version,
        interpreter.executable.display(),
        match &interpreter.library {
            Some(library) => format!("embedded from {}", library.display()),
            None => "executed".to_owned(),
        }
    );
    Ok(interpreter)
}

/// The same, and the source that named it, in words.
pub(crate) fn find(line: &CommandLine, cache: &Path) -> Result<(Interpreter, String), Failure> {
    let (path, source) =
        discover::find(line.options.python.as_deref(), line.python_word.as_deref())?;
    let found = examine(&path, cache)
        .map_err(|failure| failure.detail(format!("it was named by {source}")))?;
    let library = choose_library(&found, line.options.mode, line.isolated)?;
    let interpreter = Interpreter {
        executable: found.executable,
        version: found.version,
        library,
        full_version: found.full_version,
    };
    Ok((interpreter, source.to_string()))
}

/// Embeds the interpreter into this process and runs the script; returns the exit code. `arguments`
/// are those of Python, beginning with the name of the executable.
pub(crate) fn embed(
    interpreter: &Interpreter,
    library: &Path,
    arguments: Vec<OsString>,
    our_library: &Path,
    launch: &str,
) -> Result<i32, Failure> {
    let python = libpython::LibPython::open(library)?;
    python.check_version(interpreter)?;
    if interpreter.version == Version(3, 7) {
        embed_v3_7::run(&python, arguments)
    } else {
        embed_v3_8_on::run(&python, arguments, our_library, launch)
    }
}

fn examine(path: &Path, cache: &Path) -> Result<Found, Failure> {
    let linkage =
        elf::linkage(path, env::var_os("LD_LIBRARY_PATH").as_deref()).map_err(|error| {
            let what = format!("cannot read the interpreter `{}`", path.display());
            Failure::new(Exit::Interpreter, what).detail(error.to_string())
        })?;
    if let Linkage::Shared {
        soname,
        path: library,
    } = &linkage
        && let Some((version, abiflags)) = parse_soname(soname)
    {
        check_supported(path, version, abiflags)?;
        return Ok(Found {
            executable: path.to_owned(),
            version,
            full_version: None,
            linked: Some(library.clone()),
            candidates: Vec::new(),
        });
    }
    let is_script = linkage == Linkage::NotElf;
    let answer = if is_script {
        query::ask_process(path)?
    } else {
        query::ask(path, cache)?
    };
    let version = Version(answer.major, answer.minor);
    if answer.implementation != "cpython" {
        let what = format!("`{}` is {}", path.display(), answer.implementation);
        return Err(unsupported(&what));
    }
    check_supported(path, version, &answer.abiflags)?;
    Ok(Found {
        // A script such as pyenv's starts another interpreter, which counts.
        executable: if is_script {
            answer.executable
        } else {
            path.to_owned()
        },
        version,
        full_version: Some(answer.version),
        linked: answer.loaded_library,
        candidates: answer.candidate_libraries,
    })
}

fn check_supported(path: &Path, version: Version, abiflags: &str) -> Result<(), Failure> {
    if version < SUPPORTED.0 || version > SUPPORTED.1 {
        return Err(unsupported(&format!(
            "`{}` is Python {version}",
            path.display()
        )));
    }
    if abiflags.contains('t') {
        let what = format!("`{}` is a free-threaded Python {version}", path.display());
        return Err(unsupported(&what)
            .detail("the stable ABI, by which one `_pedl` serves all versions, excludes these"));
    }
    Ok(())
}

fn unsupported(what: &str) -> Failure {
    Failure::new(
        Exit::Interpreter,
        format!("{what}, which pedl does not support"),
    )
    .detail(format!(
        "supported: CPython {} to {}",
        SUPPORTED.0, SUPPORTED.1
    ))
    .hint("choose another interpreter with `--python PATH`")
}

/// The library to embed, or `None` for exec mode.
fn choose_library(found: &Found, mode: Mode, isolated: bool) -> Result<Option<PathBuf>, Failure> {
    // Both of these boot from PYTHONPATH, which `-I`, `-E` and `-S` tell Python to ignore.
    let name = found.executable.display();
    if isolated && found.version == Version(3, 7) {
        return Err(Failure::new(
            Exit::Usage,
            "`-I`, `-E` and `-S` cannot be used with Python 3.7",
        )
        .detail(format!(
            "`{name}` is Python 3.7, where pedl starts from PYTHONPATH and `site`"
        ))
        .hint("drop the option, or choose Python 3.8 or later with `--python PATH`"));
    }
    let refuse_isolated = |reason: String| {
        Failure::new(Exit::Usage, "`-I`, `-E` and `-S` need `--mode embed`").detail(reason)
    };
    if mode == Mode::Exec && isolated {
        return Err(refuse_isolated(
            "executed, Python starts pedl from PYTHONPATH and `site`".into(),
        )
        .hint("drop `--mode exec`, or the option of Python"));
    }
    let linked = found.linked.clone();
    match mode {
        Mode::Exec => Ok(None),
        Mode::Auto if linked.is_some() || !isolated => Ok(linked),
        Mode::Auto | Mode::Embed => {
            let library =
                linked.or_else(|| found.candidates.iter().find(|path| path.is_file()).cloned());
            if library.is_some() {
                return Ok(library);
            }
            let failure = if mode == Mode::Auto {
                refuse_isolated(format!("no shared libpython was found for `{name}`"))
            } else {
                let what = format!("no shared libpython for `{name}`");
                Failure::new(Exit::Interpreter, what)
            };
            let looked: Vec<_> = found
                .candidates
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            Err(failure
                .detail(format!("looked for: {}", looked.join(", ")))
                .hint(format!(
                    "install its shared library (Debian: `apt install libpython{}`) or choose \
                     another interpreter with `--python PATH`",
                    found.version
                )))
        }
    }
}

/// `libpython3.7m.so.1.0` is version 3.7 with the flags `m`.
fn parse_soname(soname: &str) -> Option<(Version, &str)> {
    let (stem, _) = soname.strip_prefix("libpython")?.split_once(".so")?;
    let (major, rest) = stem.split_once('.')?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (minor, abiflags) = rest.split_at(digits);
    Some((Version(major.parse().ok()?, minor.parse().ok()?), abiflags))
}

#[cfg(test)]
mod tests;
