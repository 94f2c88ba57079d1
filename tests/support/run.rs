//! Starts processes, and checks their results.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The cache directory of all tests: the library is laid out in it once.
const CACHE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/cache");

/// A script of `tests/scripts`.
pub(crate) fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/scripts")
        .join(name)
}

/// A directory for one test, removed after it.
pub(crate) struct Dir(TempDir);

impl Dir {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().expect("a temporary directory can be made"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// Writes a file, with the directories above it.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.join(name);
        let parent = path.parent().expect("a file lies in a directory");
        fs::create_dir_all(parent).expect("directories can be made");
        fs::write(&path, text).expect("a file can be written");
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        let path = self.join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The names of its entries, sorted.
    pub(crate) fn list(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path())
            .expect("the directory can be listed")
            .flatten();
        let mut names: Vec<_> = entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

/// A command with an environment that does not depend on who runs the tests.
pub(crate) struct TestCommand {
    command: Command,
    stdin: Vec<u8>,
}

impl TestCommand {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let foreign = ["PEDL_", "PYTHON", "VIRTUAL_ENV", "CONDA_PREFIX"];
            if foreign.iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        command
            .env("PEDL_CACHE_DIR", CACHE)
            .env("PYTHONDONTWRITEBYTECODE", "1");

        Self {
            command,
            stdin: Vec::new(),
        }
    }

    pub(crate) fn pedl_run() -> Self {
        Self::new(env!("CARGO_BIN_EXE_pedl-run"))
    }

    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    pub(crate) fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(arguments);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn current_dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// What the process reads from standard input.
    pub(crate) fn stdin(mut self, text: &str) -> Self {
        self.stdin = text.as_bytes().to_vec();
        self
    }

    /// The same command as the arguments of another: `sh -c '...' sh COMMAND...`.
    pub(crate) fn below(self, outer: &[&str]) -> Self {
        let (program, rest) = outer.split_first().expect("a program");
        let mut command = Command::new(program);
        command
            .args(rest)
            .arg(self.command.get_program())
            .args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(directory) = self.command.get_current_dir() {
            command.current_dir(directory);
        }
        Self {
            command,
            stdin: self.stdin,
        }
    }

    /// Runs to the end.
    pub(crate) fn output(self) -> Output {
        let stdin = self.stdin.clone();
        let mut running = self.start();
        if let Some(pipe) = &mut running.stdin
            && !stdin.is_empty()
        {
            pipe.write_all(&stdin)
                .expect("the process reads its standard input");
        }
        running.end()
    }

    /// Starts, with pipes to all three standard streams.
    pub(crate) fn start(mut self) -> Running {
        self.command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = self
            .command
            .spawn()
            .unwrap_or_else(|error| panic!("{:?} cannot be started: {error}", self.command));
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().map(BufReader::new);
        Running {
            child,
            stdin,
            stdout,
            shown: format!("{:?}", self.command),
        }
    }
}

/// Runs `pedl-run` with the Python of the tests in a directory, to the end.
pub(crate) fn run_in(directory: &Dir, arguments: &[&str]) -> Output {
    TestCommand::pedl_run()
        .arg("--python")
        .arg(&super::python().path)
        .args(arguments)
        .current_dir(directory.path())
        .output()
}

/// A running process.
pub(crate) struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
    shown: String,
}

impl Running {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed()).expect("a process has a number")
    }

    /// Waits for the next line on standard output.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        let pipe = self.stdout.as_mut().expect("standard output is open");
        pipe.read_line(&mut line)
            .expect("standard output can be read");
        line.trim_end().to_owned()
    }

    pub(crate) fn kill(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("the process is there");
    }

    /// Closes the reading end of standard output.
    pub(crate) fn close_stdout(&mut self) {
        self.stdout = None;
    }

    /// Closes standard input and waits for the end.
    pub(crate) fn end(mut self) -> Output {
        self.stdin = None;
        self.wait()
    }

    /// Waits for the end, with standard input open until then.
    pub(crate) fn wait(mut self) -> Output {
        let mut stderr_pipe = self.child.stderr.take().expect("piped");
        // A thread, so that neither pipe fills up while the other is read.
        let stderr = std::thread::spawn(move || {
            let mut text = Vec::new();
            stderr_pipe
                .read_to_end(&mut text)
                .expect("standard error can be read");
            text
        });
        let mut stdout = Vec::new();
        if let Some(pipe) = &mut self.stdout {
            pipe.read_to_end(&mut stdout)
                .expect("standard output can be read");
        }
        let stderr = stderr.join().expect("the thread does not panic");
        let status = self.child.wait().expect("the process can be waited for");
        Output {
            status,
            stdout: String::from_utf8_lossy(&stdout).into_owned(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
            shown: self.shown,
        }
    }
}

/// The status and the output of a process.
pub(crate) struct Output {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    shown: String,
}

impl fmt::Display for Output {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            status,
            stdout,
            stderr,
            shown,
        } = self;
        write!(
            formatter,
            "{shown}\n{status}\n--- stdout\n{stdout}\n--- stderr\n{stderr}\n---"
        )
    }
}

impl Output {
    #[track_caller]
    pub(crate) fn assert_code(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{self}");
        self
    }

    #[track_caller]
    pub(crate) fn assert_signal(self, signal: Signal) -> Self {
        assert_eq!(self.status.signal(), Some(signal.as_raw()), "{self}");
        self
    }

    #[track_caller]
    pub(crate) fn assert_stderr(self, expected: &str) -> Self {
        assert_eq!(self.stderr, expected, "{self}");
        self
    }

    /// Compares with the output of plain Python. Core dumps are not compared: only one of the two
    /// is meant to leave one.
    #[track_caller]
    pub(crate) fn assert_same(&self, plain: &Self) {
        let ends = |output: &Self| (output.status.code(), output.status.signal());
        assert_eq!(ends(self), ends(plain), "\n{self}\n{plain}");
        assert_eq!(self.stdout, plain.stdout, "\n{self}\n{plain}");
        assert_eq!(self.stderr, plain.stderr, "\n{self}\n{plain}");
    }
}
