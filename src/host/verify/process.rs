//! One start of `pedl-run`: its processes, its output, and how it is ended.
//!
//! This process is the reaper of all processes that it starts, at any depth, so that "all
//! processes" can be found and waited for: nothing of one run is left when the next begins.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, WaitOptions, getpid, kill_process, prlimit};
use serde_json::Value;

use crate::supervisor::SERVE;

/// The interval between two checks of the processes.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A started `pedl-run`.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    output: Arc<Mutex<Output>>,
}

/// The output on standard error.
#[derive(Clone, Debug, Default)]
pub(super) struct Output {
    /// Messages of `pedl-run`, in order.
    pub(super) messages: Vec<String>,
    /// The last error of `pedl-run`: its message and details.
    pub(super) error: Option<String>,
    /// The last lines of the script.
    pub(super) script: Vec<String>,
}

/// The number of lines of the script that are kept.
const SCRIPT_LINES: usize = 20;

impl Output {
    fn take(&mut self, line: String) {
        let message = serde_json::from_str::<Value>(&line)
            .ok()
            .filter(|value| value["level"].is_string());
        let Some(value) = message else {
            self.script.push(line);
            if self.script.len() > SCRIPT_LINES {
                self.script.remove(0);
            }
            return;
        };
        let text = value["message"].as_str().unwrap_or_default().to_owned();
        if value["level"] == "error" {
            let details = value["details"].as_array().into_iter().flatten();
            let lines = details.filter_map(Value::as_str).map(str::to_owned);
            let all: Vec<_> = std::iter::once(text.clone()).chain(lines).collect();
            self.error = Some(all.join("\n"));
        }
        self.messages.push(text);
    }
}

impl Process {
    /// Starts a command, whose messages are JSON. The output of the script is in its trial
    /// directory.
    pub(super) fn start(command: &mut Command) -> io::Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let output = Arc::new(Mutex::new(Output::default()));
        if let Some(stderr) = child.stderr.take() {
            let output = Arc::clone(&output);
            // It ends with the last process that has the pipe open.
            thread::spawn(move || {
                for line in BufReader::new(stderr).split(b'\n') {
                    let Ok(line) = line else { break };
                    let line = String::from_utf8_lossy(&line).into_owned();
                    output
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .take(line);
                }
            });
        }
        Ok(Self { child, output })
    }

    pub(super) fn output(&self) -> Output {
        self.output
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Its exit status, if it has ended.
    pub(super) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// The process that trains; `None` while there is none.
    pub(super) fn trial(&self) -> Option<Pid> {
        let children = children_of(self.child.id()).into_iter();
        children
            .filter(|&child| !is_server(child))
            .min()
            .and_then(pid)
    }

    /// SIGKILL to the process that trains.
    pub(super) fn kill_trial(&self) {
        if let Some(trial) = self.trial() {
            send(trial, Signal::KILL);
        }
    }

    /// The worker processes of data sets, below the process that trains, or a worker server.
    pub(super) fn workers(&self) -> Vec<Pid> {
        let below = descendants_of(self.child.id());
        let workers = below.into_iter().filter(|&process| is_worker(process));
        workers.filter_map(pid).collect()
    }

    /// SIGKILL to a worker process.
    pub(super) fn kill_worker(worker: Pid) {
        send(worker, Signal::KILL);
    }

    /// SIGTERM to the process that was started, as `kill PID` does.
    pub(super) fn terminate(&self) {
        if let Some(pid) = pid(self.child.id()) {
            send(pid, Signal::TERM);
        }
    }

    /// SIGKILL to all its processes, as in a power failure. Returns when none of them is left.
    pub(super) fn kill_everything(&mut self) -> io::Result<ExitStatus> {
        let status = self.kill_supervisor_first()?;
        reap_orphans();
        Ok(status)
    }

    fn kill_supervisor_first(&mut self) -> io::Result<ExitStatus> {
        let below = descendants_of(self.child.id());
        // First the process that would start the others again.
        self.child.kill()?;
        for process in below.into_iter().filter_map(pid) {
            send(process, Signal::KILL);
        }
        self.child.wait()
    }
}

/// Ends the processes that an ended start has left: by now they are children of this process.
pub(super) fn reap_orphans() {
    loop {
        let left = children_of(std::process::id());
        if left.is_empty() {
            return;
        }
        for process in left.into_iter().filter_map(pid) {
            send(process, Signal::KILL);
            // If it is no longer our child, it does not concern us.
            let _ = rustix::process::waitpid(Some(process), WaitOptions::empty());
        }
    }
}

/// The name of a thread that each worker process has (src/native/pool).
const WORKER_THREAD: &[u8] = b"pedl-trainer";

/// From now on orphans below this process become its children.
pub(super) fn become_reaper() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(getpid()))?)
}

/// Limits the size of the files that a process can write, as if the disk were full; `None` removes
/// the limit.
///
/// The failing writes end in EFBIG; Python ignores the signal that comes with it.
pub(super) fn limit_file_size(process: Pid, bytes: Option<u64>) -> io::Result<()> {
    let before = rustix::process::getrlimit(Resource::Fsize);
    let limit = Rlimit {
        current: bytes.or(before.maximum),
        maximum: before.maximum,
    };
    prlimit(Some(process), Resource::Fsize, limit)?;
    Ok(())
}

fn send(process: Pid, signal: Signal) {
    // It may have ended meanwhile.
    let _ = kill_process(process, signal);
}

fn pid(number: u32) -> Option<Pid> {
    Pid::from_raw(number.cast_signed())
}

/// `(process, parent)` of all running processes.
fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let numbers = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let found = numbers.filter_map(|number| {
        let text = fs::read(format!("/proc/{number}/stat")).ok()?;
        let text = String::from_utf8_lossy(&text).into_owned();
        // The second field is the program's name in parentheses, which may contain anything.
        let mut fields = text.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        (!matches!(state, "Z" | "X")).then_some((number, parent))
    });
    found.collect()
}

/// Whether a process is a worker server, or was started by one: those have its command line.
fn is_server(process: u32) -> bool {
    let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    line.split(|&byte| byte == 0)
        .any(|word| word == SERVE[1].as_bytes())
}

/// Whether a process is a worker of a data set: one of its threads watches the process that started
/// it.
fn is_worker(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
        return false;
    };
    threads.flatten().any(|thread| {
        let name = fs::read(thread.path().join("comm"));
        name.is_ok_and(|name| name.trim_ascii_end() == WORKER_THREAD)
    })
}

fn children_of(process: u32) -> Vec<u32> {
    let parents = parents();
    let children = parents.iter().filter(|(_, parent)| *parent == process);
    children.map(|(child, _)| *child).collect()
}

fn descendants_of(process: u32) -> Vec<u32> {
    let parents = parents();
    let mut found = vec![process];
    let mut place = 0;
    while let Some(&parent) = found.get(place) {
        found.extend(parents.iter().filter(|it| it.1 == parent).map(|it| it.0));
        place += 1;
    }
    found.split_off(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_from_what_the_script_says() {
        let mut output = Output::default();
        for line in [
            r#"{"level":"info","message":"exact resume: yes"}"#,
            "Traceback",
            r#"{"level":"error","message":"it differs","details":["recorded: 1"],"hint":null}"#,
            r#"{"loss": 0.5}"#,
        ] {
            output.take(line.to_owned());
        }
        assert_eq!(output.messages, ["exact resume: yes", "it differs"]);
        assert_eq!(output.error.as_deref(), Some("it differs\nrecorded: 1"));
        assert_eq!(output.script, ["Traceback", r#"{"loss": 0.5}"#]);
    }

    #[test]
    fn all_processes_of_a_start_are_ended() {
        let mut command = Command::new("sh");
        let script = "sh -c 'sleep 1000 & sleep 1000' & sleep 1000";
        let mut process = Process::start(command.args(["-c", script])).expect("started");
        while descendants_of(process.child.id()).len() < 4 {
            thread::sleep(POLL_INTERVAL);
        }
        let below = descendants_of(process.child.id());
        // Its remaining processes would be reaped together with the children of other tests.
        process.kill_supervisor_first().expect("ended");
        let is_running = |it: &u32| parents().iter().any(|(process, _)| process == it);
        while below.iter().any(is_running) {
            thread::sleep(POLL_INTERVAL);
        }
    }
}
