//! Child processes with a time limit and a cleaned environment, ended as a whole group.
//!
//! Every child leads a new process group, so that a run that hangs, or has to stop, ends with
//! everything that it started. A new group does not get the terminal's Ctrl-C, so signals are
//! passed on: see [`watch_signals`].

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, PipeReader, pipe};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open, test_kill_process_group,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::failure::{Failure, Result};

/// How long a group may take to end after it was asked to, before it is killed.
const GRACE: Duration = Duration::from_secs(10);

/// How long to wait for the last output of a group that is gone. Only a process that left the
/// group can still hold the pipe; its output is not worth more.
const LAST_OUTPUT: Duration = Duration::from_secs(2);

/// How often a wait checks for a signal to this program, if the signal itself did not wake it.
const TICK: Duration = Duration::from_secs(1);

/// The signal that asked this program to stop, or 0.
static STOP: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// From now on SIGINT, SIGTERM and SIGHUP end the child first, and then this program.
pub(crate) fn watch_signals() -> Result<()> {
    let stop = STOP.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let number = usize::try_from(signal).unwrap_or_default();
        signal_hook::flag::register_usize(signal, Arc::clone(stop), number)
            .map_err(|error| Failure::new(format!("cannot watch signal {signal}: {error}")))?;
    }
    Ok(())
}

fn stop_signal() -> Option<i32> {
    match STOP.get()?.load(Ordering::SeqCst) {
        0 => None,
        signal => i32::try_from(signal).ok(),
    }
}

/// A command without the variables that `cargo run` has added. They would name the wrong package
/// and let foreign programs load libraries of the toolchain.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let of_our_package = ["CARGO", "CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH"];
        if of_our_package.contains(&&*text) || text.starts_with("CARGO_PKG_") {
            command.env_remove(&name);
        }
    }
    if let Some(paths) = env::var_os("LD_LIBRARY_PATH") {
        let kept: Vec<_> = env::split_paths(&paths)
            .filter(|path| !added_by_cargo(path))
            .collect();
        match env::join_paths(kept) {
            Ok(kept) if !kept.is_empty() => command.env("LD_LIBRARY_PATH", kept),
            _ => command.env_remove("LD_LIBRARY_PATH"),
        };
    }
    command.stdin(Stdio::null());
    command
}

/// A command that runs Python, also without the variables of the caller's shell about *its* Python.
pub(crate) fn python(program: impl AsRef<OsStr>) -> Command {
    let mut command = command(program);
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let about_python = text.starts_with("PYTHON") || text.starts_with("PEDL_");
        if about_python || ["VIRTUAL_ENV", "CONDA_PREFIX"].contains(&&*text) {
            command.env_remove(&name);
        }
    }
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Whether cargo put this entry into `LD_LIBRARY_PATH`: the directory of this program, or the
/// toolchain's.
fn added_by_cargo(path: &Path) -> bool {
    let ours = env::current_exe().ok();
    let ours = ours.as_deref().and_then(Path::parent);
    ours.is_some_and(|ours| path.starts_with(ours))
        || path.components().any(|part| part.as_os_str() == "rustlib")
}

/// Where the output of a child goes.
#[derive(Clone, Copy)]
pub(crate) enum Output {
    /// Standard output is printed as it comes, and kept; standard error is inherited.
    Copy,
    /// Both streams are kept, and printed as they come, each line after this prefix.
    Prefix(&'static str),
    /// Both streams are kept.
    Keep,
    /// Standard output is kept; standard error is what the command says, inherited by default.
    KeepStdout,
}

impl Output {
    fn takes_errors(self) -> bool {
        matches!(self, Self::Prefix(_) | Self::Keep)
    }
}

/// How a child ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ended {
    /// By itself.
    Exited(ExitStatus),
    /// It was killed because its time was up.
    TimedOut,
}

impl Ended {
    /// Whether it ended by itself, with success.
    pub(crate) fn success(self) -> bool {
        matches!(self, Self::Exited(status) if status.success())
    }

    /// In words: `exit code 3`, `killed by signal 9`, `no end within the time limit`.
    pub(crate) fn describe(self) -> String {
        match self {
            Self::TimedOut => "no end within the time limit".to_owned(),
            Self::Exited(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("exit code {code}"),
                (None, Some(signal)) => format!("killed by signal {signal}"),
                (None, None) => status.to_string(),
            },
        }
    }
}

/// A running child.
pub(crate) struct Running {
    child: std::process::Child,
    pidfd: OwnedFd,
    group: Pid,
    lines: mpsc::Receiver<String>,
    text: String,
    started: Instant,
}

impl Running {
    /// Starts a command as the leader of a new process group.
    pub(crate) fn start(mut command: Command, output: Output) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let cannot = |error: std::io::Error| Failure::new(format!("cannot run `{name}`: {error}"));
        let (reader, writer) = pipe().map_err(cannot)?;
        if output.takes_errors() {
            command.stderr(writer.try_clone().map_err(cannot)?);
        }
        command.stdout(writer);
        let started = Instant::now();
        let child = command.process_group(0).spawn().map_err(cannot)?;
        drop(command); // and with it our end of the pipe, or the reader would never see its end
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let group = group.ok_or_else(|| Failure::new(format!("`{name}` has no process id")))?;
        let pidfd = pidfd_open(group, PidfdFlags::empty()).map_err(|error| cannot(error.into()))?;
        let lines = read(reader, output);
        Ok(Self {
            child,
            pidfd,
            group,
            lines,
            text: String::new(),
            started,
        })
    }

    /// How long it has been running.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Waits for the end; after `limit`, or on a signal to this program, ends the whole group.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<Ended> {
        loop {
            if let Some(ended) = self.wait_tick(limit, TICK)? {
                return Ok(ended);
            }
        }
    }

    /// Waits until it has ended or `reached` returns true, which is checked every `interval`.
    ///
    /// `None` means that the condition holds; the child still runs, or did a moment ago.
    pub(crate) fn wait_until(
        &mut self,
        limit: Duration,
        interval: Duration,
        mut reached: impl FnMut() -> Result<bool>,
    ) -> Result<Option<Ended>> {
        loop {
            if reached()? {
                return Ok(None);
            }
            if let Some(ended) = self.wait_tick(limit, interval)? {
                return Ok(Some(ended));
            }
        }
    }

    fn wait_tick(&mut self, limit: Duration, tick: Duration) -> Result<Option<Ended>> {
        if let Some(signal) = stop_signal() {
            self.end_group()?;
            return Err(Failure::interrupted(signal));
        }
        let Some(left) = limit.checked_sub(self.elapsed()) else {
            self.end_group()?;
            return Ok(Some(Ended::TimedOut));
        };
        if !poll_for_end(&self.pidfd, left.min(tick))? {
            return Ok(None);
        }
        // The leader is still a zombie, so its id cannot have been given to another group.
        let _ = kill_process_group(self.group, Signal::KILL);
        self.reap().map(|status| Some(Ended::Exited(status)))
    }

    /// Asks the group to end, and kills the processes that do not.
    fn end_group(&mut self) -> Result<()> {
        let _ = kill_process_group(self.group, Signal::TERM);
        let asked = Instant::now();
        while asked.elapsed() < GRACE && !poll_for_end(&self.pidfd, GRACE / 10)? {}
        let _ = kill_process_group(self.group, Signal::KILL);
        self.reap().map(drop)
    }

    /// Kills the group and all descendants of its leader, at once, with SIGKILL, and waits until
    /// all of them are gone, and with them the locks they held. Returns how many there were.
    pub(crate) fn kill(&mut self) -> Result<usize> {
        let victims: Vec<(Pid, Option<OwnedFd>)> = descendants(self.group)
            .into_iter()
            .map(|pid| (pid, pidfd_open(pid, PidfdFlags::empty()).ok()))
            .collect();
        let _ = kill_process_group(self.group, Signal::KILL);
        for (pid, _) in &victims {
            let _ = kill_process(*pid, Signal::KILL);
        }
        self.reap()?;
        for pidfd in victims.iter().filter_map(|(_, pidfd)| pidfd.as_ref()) {
            while !poll_for_end(pidfd, TICK)? {}
        }
        Ok(victims.len() + 1)
    }

    fn reap(&mut self) -> Result<ExitStatus> {
        self.child
            .wait()
            .map_err(|error| Failure::new(format!("cannot wait for a child: {error}")))
    }

    /// The whole lines it has written so far, if they are kept.
    #[cfg(test)]
    fn text_so_far(&mut self) -> &str {
        self.text.extend(self.lines.try_iter());
        &self.text
    }

    /// Its output, if it is kept. Call it after the end.
    pub(crate) fn text(mut self) -> String {
        while let Ok(line) = self.lines.recv_timeout(LAST_OUTPUT) {
            self.text.push_str(&line);
        }
        std::mem::take(&mut self.text)
    }
}

impl Drop for Running {
    /// No child outlives this program, not even if the program fails in the middle.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) && test_kill_process_group(self.group).is_ok()
        {
            let _ = kill_process_group(self.group, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Waits for the end of a process; a signal to this program ends the wait early.
fn poll_for_end(pidfd: &OwnedFd, timeout: Duration) -> Result<bool> {
    let timeout = Timespec::try_from(timeout)
        .map_err(|error| Failure::new(format!("a time limit is too long: {error}")))?;
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    match poll(&mut fds, Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(Failure::new(format!("cannot wait for a child: {error}"))),
    }
}

/// Reads to the end of a pipe in a separate thread, line by line, and prints as `output` says.
fn read(pipe: PipeReader, output: Output) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while let Ok(1..) = pipe.read_until(b'\n', &mut line) {
            let text = String::from_utf8_lossy(&line).into_owned();
            match output {
                Output::Copy => print!("{text}"),
                Output::Prefix(prefix) => println!("{prefix}{}", text.trim_end_matches('\n')),
                Output::Keep | Output::KeepStdout => {}
            }
            if sender.send(text).is_err() {
                return;
            }
            line.clear();
        }
    });
    receiver
}

/// All processes below one, from `/proc`. A process that starts meanwhile can be missed. It is then
/// in the group, or has to handle the death of its parent by itself.
fn descendants(ancestor: Pid) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut parents = Vec::new();
    for entry in entries.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<i32>().ok())
        else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // The second field is the name in parentheses, which may itself hold spaces and
        // parentheses.
        let parent = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1));
        if let (Some(pid), Some(parent)) = (
            Pid::from_raw(pid),
            parent.and_then(|parent| parent.parse::<i32>().ok()),
        ) {
            parents.push((pid, parent));
        }
    }
    let mut found = Vec::new();
    let mut front = vec![ancestor];
    while let Some(next) = front.pop() {
        for (pid, parent) in &parents {
            if *parent == next.as_raw_nonzero().get() {
                found.push(*pid);
                front.push(*pid);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Ended, Output, Running, command};

    fn shell(script: &str) -> Running {
        let mut shell = command("sh");
        shell.args(["-c", script]);
        Running::start(shell, Output::Keep).expect("there is a shell")
    }

    #[test]
    fn both_streams_are_kept_in_order() {
        let mut child = shell("echo one; echo two >&2; printf three");
        assert!(
            child
                .wait(Duration::from_secs(60))
                .expect("it ends")
                .success()
        );
        assert_eq!(child.text(), "one\ntwo\nthree");
    }

    #[test]
    fn an_end_is_described() {
        let mut child = shell("exit 3");
        let ended = child.wait(Duration::from_secs(60)).expect("it ends");
        assert_eq!(ended.describe(), "exit code 3");
        let mut child = shell("kill -9 $$");
        let ended = child.wait(Duration::from_secs(60)).expect("it ends");
        assert_eq!(ended.describe(), "killed by signal 9");
    }

    #[test]
    fn a_time_limit_ends_the_whole_group() {
        // The grandchild holds the pipe: `text` returns only because it is gone as well.
        let mut child = shell("sleep 1000 & echo started; wait");
        let ended = child.wait(Duration::from_millis(300)).expect("it is ended");
        assert!(matches!(ended, Ended::TimedOut), "{ended:?}");
        assert_eq!(child.text(), "started\n");
    }

    #[test]
    fn kill_finds_processes_that_left_the_group() {
        let mut child = shell("setsid sh -c 'echo away; sleep 1000' & wait");
        while child.text_so_far() != "away\n" {
            assert!(
                child
                    .wait_tick(Duration::from_secs(60), Duration::from_millis(5))
                    .expect("it runs")
                    .is_none()
            );
        }
        assert!(child.kill().expect("it is killed") >= 2);
        assert_eq!(child.text(), "away\n");
    }
}
