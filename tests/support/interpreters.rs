//! The interpreters that the tests use.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::TestCommand;

/// Minor versions that are looked for: both generations of the C API, the oldest and the newest of
/// the second, and the one between.
const VERSIONS: [&str; 4] = ["3.7", "3.8", "3.11", "3.13"];

/// An interpreter with Python linked into its executable, like Debian's.
const STATIC_EXECUTABLE: &str = "/usr/bin/python3";

/// An interpreter.
#[derive(Clone, Debug)]
pub(crate) struct Python {
    pub(crate) path: PathBuf,
    pub(crate) version: (u32, u32),
    /// Whether it is linked against a libpython.
    pub(crate) is_linked: bool,
}

impl fmt::Display for Python {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.path.display())
    }
}

/// An interpreter under `pedl-run`, in one of its modes.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) python: &'static Python,
    pub(crate) mode: &'static str,
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} --mode {}", self.python, self.mode)
    }
}

impl Host {
    /// `pedl-run` with this interpreter and mode.
    pub(crate) fn pedl_run(&self) -> TestCommand {
        TestCommand::pedl_run()
            .arg("--python")
            .arg(&self.python.path)
            .args(["--mode", self.mode])
    }

    /// The interpreter itself.
    pub(crate) fn plain(&self) -> TestCommand {
        TestCommand::new(&self.python.path)
    }

    /// Whether `-I`, `-E` and `-S` are possible.
    pub(crate) fn can_isolate(&self) -> bool {
        self.mode == "embed" && self.python.version != (3, 7)
    }
}

/// Every interpreter in every mode that it has on this machine.
pub(crate) fn hosts() -> Vec<Host> {
    let hosts: Vec<_> = interpreters()
        .iter()
        .flat_map(|python| {
            let modes: &[_] = if python.is_linked {
                &["embed", "exec"]
            } else {
                &["exec"]
            };
            modes.iter().map(move |mode| Host { python, mode })
        })
        .collect();
    assert!(
        !hosts.is_empty(),
        "these tests need a Python from 3.7 to 3.13"
    );
    hosts
}

/// The newest interpreter, for tests that do not depend on the version.
pub(crate) fn python() -> &'static Python {
    interpreters()
        .iter()
        .max_by_key(|python| python.version)
        .expect("these tests need a Python from 3.7 to 3.13")
}

fn interpreters() -> &'static [Python] {
    static FOUND: OnceLock<Vec<Python>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let mut found: Vec<_> = VERSIONS
            .iter()
            .filter_map(|version| {
                let python = find(version);
                if python.is_none() {
                    eprintln!("skipped: python {version} (neither below pyenv nor on PATH)");
                }
                python
            })
            .collect();
        let executable = Path::new(STATIC_EXECUTABLE);
        match examine(executable) {
            Some(python) if found.iter().all(|other| other.path != python.path) => {
                found.push(python);
            }
            _ => eprintln!("skipped: {STATIC_EXECUTABLE} (missing, or of an unsupported version)"),
        }
        found
    })
}

/// An interpreter of a minor version, below pyenv or else on `PATH`.
fn find(version: &str) -> Option<Python> {
    let root = std::env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    let below_pyenv = root.and_then(|root| {
        let installed = root.join("versions").read_dir().ok()?.flatten();
        installed
            .filter(|entry| {
                entry
                    .file_name()
                    .to_string_lossy()
                    .starts_with(&format!("{version}."))
            })
            .map(|entry| entry.path().join("bin/python"))
            .find(|path| path.is_file())
    });
    let path = below_pyenv.unwrap_or_else(|| PathBuf::from(format!("python{version}")));
    examine(&path).filter(|python| format!("{}.{}", python.version.0, python.version.1) == version)
}

/// Asks an executable, if it is an interpreter, for what the tests need to know of it.
fn examine(path: &Path) -> Option<Python> {
    const QUESTION: &str = "import sys; print(sys.executable, *sys.version_info[:2]); \
        print('libpython' in open('/proc/self/maps').read())";
    let output = Command::new(path)
        .args(["-I", "-S", "-c", QUESTION])
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let words: Vec<_> = text.split_whitespace().collect();
    let [executable, major, minor, is_linked] = words[..] else {
        return None;
    };
    let version = (major.parse().ok()?, minor.parse().ok()?);
    let supported = ((3, 7)..=(3, 13)).contains(&version);
    supported.then(|| Python {
        path: PathBuf::from(executable),
        version,
        is_linked: is_linked == "True",
    })
}
