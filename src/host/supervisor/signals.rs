//! Which signals are received, and which of them are meant for the trial process.
//!
//! A signal from the terminal (Ctrl-C) goes to the whole foreground process group, and the trial
//! process is in it: it already has its own copy. One sent with `kill` to our process number has
//! reached only us and is forwarded. The kernel reports which case it is (`si_code`). `kill` to the
//! whole group cannot be distinguished: the trial process gets that twice.
//!
//! SIGURG from the trial process is not forwarded: it requests a worker server.
//!
//! A signal that our parent ignores (`nohup`, background jobs of a shell without job control) is
//! received and forwarded too: the trial process begins by ignoring it, as Python would, and a
//! script may have a handler for it nevertheless.

#![allow(
    unsafe_code,
    reason = "only a function that runs between fork and exec can have a new process ignore a signal"
)]

use std::io;
use std::mem;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigHandler, signal};
use nix::unistd::alarm;
use rustix::process::{Pid, Signal, getpid, kill_process};
use signal_hook::consts::signal::{
    SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGURG, SIGUSR1, SIGUSR2, SIGWINCH,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

/// Signals for the trial process, with the value with which `kill` forwards each.
const FORWARDED: [(i32, Signal); 8] = [
    (SIGTERM, Signal::TERM),
    (SIGINT, Signal::INT),
    (SIGHUP, Signal::HUP),
    (SIGQUIT, Signal::QUIT),
    (SIGUSR1, Signal::USR1),
    (SIGUSR2, Signal::USR2),
    (SIGWINCH, Signal::WINCH),
    (SIGCONT, Signal::CONT),
];

/// Signals by which somebody wants the run to end, whatever the script does about them.
const REQUESTS_TO_END: [i32; 4] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT];

/// Signals that are for the supervisor itself: a child has ended, a time is over, and the request
/// of the trial process for a worker server. From any other sender the last is ignored, as it is by
/// default.
const OWN: [i32; 3] = [SIGCHLD, SIGALRM, SIGURG];

/// The signals of this process, and those received so far.
pub(super) struct Signals {
    info: SignalsInfo<WithOrigin>,
    received: Vec<i32>,
    /// The signals that our parent ignores, a bit for each.
    ignored: u64,
    /// Whether this is the first process of its session, the only one to which the kernel reports
    /// that the terminal is gone.
    leads_session: bool,
    /// How long the trial process may take to end after SIGTERM; and when that is over.
    patience: Duration,
    limit: Option<Instant>,
    /// Whether the trial process has asked for a worker server.
    server_wanted: bool,
}

impl Signals {
    /// Receives signals from now on. `patience` is how long the trial process may take to end after
    /// SIGTERM.
    pub(super) fn catch(patience: Duration) -> io::Result<Self> {
        let ignored = ignored("self");
        let wanted = FORWARDED.iter().map(|(number, _)| *number);
        Ok(Self {
            info: SignalsInfo::new(wanted.chain([SIGCHLD, SIGURG]))?,
            received: Vec::new(),
            ignored,
            leads_session: leads_session(),
            patience,
            limit: None,
            server_wanted: false,
        })
    }

    /// Makes a process that is about to be started ignore the signals that our parent ignores. It
    /// would not inherit that: we have handlers for them.
    pub(super) fn keep_ignored(&self, command: &mut Command) {
        let ignored: Vec<_> = FORWARDED
            .iter()
            .filter(|(number, _)| self.is_ignored(*number))
            .filter_map(|(number, _)| nix::sys::signal::Signal::try_from(*number).ok())
            .collect();
        if ignored.is_empty() {
            return;
        }
        let ignore = move || {
            for &number in &ignored {
                // SAFETY: To ignore a signal installs no handler, so none of ours can be unfit for
                // it.
                unsafe { signal(number, SigHandler::SigIgn) }?;
            }
            Ok(())
        };
        // SAFETY: Between fork and exec only async-signal-safe calls are allowed: the closure calls
        // `signal`, and neither allocates nor takes a lock.
        unsafe { command.pre_exec(ignore) };
    }

    fn is_ignored(&self, number: i32) -> bool {
        self.ignored & (1 << (number - 1)) != 0
    }

    /// Sleeps until a signal comes, and forwards all that came to `trial`.
    pub(super) fn wait_and_forward(&mut self, trial: Pid) {
        let origins: Vec<_> = self.info.wait().collect();
        for origin in origins {
            if OWN.contains(&origin.signal) {
                self.server_wanted |= origin.signal == SIGURG && reached(&origin, trial);
                continue;
            }
            self.note(origin.signal);
            if self.is_loss_of_terminal(&origin) || !reached(&origin, trial) {
                forward(origin.signal, trial);
            }
        }
    }

    /// Whether the trial process has used up its time since the first SIGTERM, to within a fraction
    /// of a second.
    pub(super) fn is_time_over(&mut self) -> bool {
        let is_over = self.limit.is_some_and(|limit| Instant::now() >= limit);
        if is_over {
            self.limit = None;
        }
        is_over
    }

    /// Whether the trial process has requested a worker server since the last call of this.
    pub(super) fn take_wish_for_server(&mut self) -> bool {
        mem::take(&mut self.server_wanted)
    }

    /// How long the trial process may take to end after SIGTERM.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    fn note(&mut self, signal: i32) {
        let is_first = signal == SIGTERM && !self.received.contains(&SIGTERM);
        self.received.push(signal);
        // If the alarm cannot be received, it would end us.
        if is_first && !self.is_ignored(SIGTERM) && self.info.add_signal(SIGALRM).is_ok() {
            self.limit = Instant::now().checked_add(self.patience);
            // Whole seconds, so that the alarm does not come before the limit.
            let seconds = self.patience.as_secs().saturating_add(1);
            alarm::set(u32::try_from(seconds).unwrap_or(u32::MAX));
        }
    }

    /// Whether the terminal is gone, which the kernel reports only to the first process of its
    /// session. A SIGHUP that the script sends to its group is another.
    fn is_loss_of_terminal(&self, origin: &Origin) -> bool {
        self.leads_session && origin.signal == SIGHUP && matches!(origin.cause, Cause::Kernel)
    }

    /// Forwards what came while there was no trial process.
    pub(super) fn forward_pending(&mut self, trial: Pid) {
        let origins: Vec<_> = self.info.pending().collect();
        for origin in origins {
            if !OWN.contains(&origin.signal) {
                self.note(origin.signal);
                forward(origin.signal, trial);
            }
        }
    }

    /// Whether a death by this signal, or any death by now, is what somebody requested of us.
    pub(super) fn ended_by(&mut self, signal: i32) -> bool {
        self.request_to_end().is_some() || self.received.contains(&signal)
    }

    /// The first signal that asked us to end the run.
    pub(super) fn request_to_end(&mut self) -> Option<i32> {
        self.received
            .extend(self.info.pending().map(|origin| origin.signal));
        let requests =
            |received: &i32| REQUESTS_TO_END.contains(received) && !self.is_ignored(*received);
        self.received.iter().copied().find(requests)
    }
}

/// Whether the trial process has its own copy of a signal: it came from the terminal, or from the
/// process itself.
fn reached(origin: &Origin, trial: Pid) -> bool {
    match origin.cause {
        Cause::Kernel => true,
        _ => origin
            .process
            .is_some_and(|sender| sender.pid == trial.as_raw_nonzero().get()),
    }
}

fn forward(number: i32, trial: Pid) {
    if let Some((_, signal)) = FORWARDED.iter().find(|(forwarded, _)| *forwarded == number) {
        // It fails only if the process has ended meanwhile, which SIGCHLD reports next.
        let _ = kill_process(trial, *signal);
    }
}

/// The set of signals that a process (its number, or `self`) ignores. There is no safe way to call
/// `sigaction`, and the kernel shows the set in `/proc` as well.
pub(super) fn ignored(process: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

/// Whether this is the first process of its session. `getsid` returns 0 for a session outside of
/// our process namespace, which rustix has no value for; so we read the kernel's line.
fn leads_session() -> bool {
    // The name of the program, in parentheses, may hold anything; then state, parent, group,
    // session.
    const SESSION: usize = 3;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let session = after_name
        .split(' ')
        .nth(SESSION)
        .and_then(|text| text.parse().ok());
    session == Some(getpid().as_raw_nonzero().get())
}
