//! One line at the bottom of a terminal that shows the progress of the training.
//!
//! The script has priority on the terminal. It prints to the same lines, and Keras redraws a
//! progress bar repeatedly, from where the cursor is. So our line is shown only while the script
//! has not begun a line:
//!
//! - before anything is printed, by the script or by us, it is erased ([`make_way`]);
//! - it comes back with a later batch, if the last output ended with a newline;
//! - the cursor is left at its beginning, so that output of C code, which bypasses us, overwrites
//!   it.
//!
//! There is no line if standard error is no terminal, or one that cannot erase a line; with
//! `--quiet`; and with `--log-format json`, which is for programs. Without it, each step has a
//! line.

use std::env;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pedl_core::trial::Launch;
use rustix::termios::tcgetwinsize;

/// How often the line changes. A faster rate is not readable.
const INTERVAL_S: f64 = 0.5;

/// Erases the line of the cursor, and leaves the cursor at its beginning.
const ERASE: &str = "\r\x1b[K";

/// The width of a terminal that does not report it.
const USUAL_COLUMNS: usize = 80;

/// Whether there may be a line at all.
static IS_ON: AtomicBool = AtomicBool::new(false);

static LINE: Mutex<Line> = Mutex::new(Line {
    is_shown: false,
    is_others: false,
    drawn_s: f64::NEG_INFINITY,
});

struct Line {
    is_shown: bool,
    /// The cursor is in a line that somebody else has begun.
    is_others: bool,
    drawn_s: f64,
}

/// Shows a line from now on, if possible.
pub(crate) fn start(launch: &Launch) {
    let can_erase = env::var_os("TERM").is_some_and(|terminal| terminal != "dumb");
    let is_wanted = launch.verbosity >= 0 && launch.log_format == "text";
    IS_ON.store(
        is_wanted && can_erase && io::stderr().is_terminal(),
        Ordering::Relaxed,
    );
}

/// The script has ended.
pub(crate) fn stop() {
    if is_on() {
        make_way(true);
        IS_ON.store(false, Ordering::Relaxed);
    }
}

/// In a forked child: the line is the parent's.
pub(crate) fn forget() {
    IS_ON.store(false, Ordering::Relaxed);
}

pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Draws the line, if it is time to, and nobody has begun another. `now_s` is a monotonic clock.
pub(crate) fn draw(now_s: f64, text: impl FnOnce() -> Option<String>) {
    if !is_on() {
        return;
    }
    let mut line = lock();
    if line.is_others || now_s - line.drawn_s < INTERVAL_S {
        return;
    }
    line.drawn_s = now_s;
    if let Some(text) = text() {
        // One column is left free: some terminals wrap after the last one.
        let shown: String = format!("pedl: {text}")
            .chars()
            .take(columns() - 1)
            .collect();
        write(&format!("{ERASE}{shown}\r"));
        line.is_shown = true;
    }
}

/// Somebody prints, and ends the line or does not: ours is erased.
pub(crate) fn make_way(ends_line: bool) {
    if !is_on() {
        return;
    }
    let mut line = lock();
    if std::mem::take(&mut line.is_shown) {
        write("\x1b[K");
    }
    line.is_others = !ends_line;
}

/// We print whole lines: ours is erased, and one that somebody has begun is ended.
pub(crate) fn make_way_for_lines() {
    if is_on() {
        let is_begun = std::mem::take(&mut lock().is_others);
        make_way(true);
        if is_begun {
            write("\n");
        }
    }
}

fn lock() -> MutexGuard<'static, Line> {
    LINE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn columns() -> usize {
    let size = tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
    if size > 1 { size } else { USUAL_COLUMNS }
}

fn write(text: &str) {
    // If the terminal is gone, nobody reads the line.
    let _ = io::stderr().write_all(text.as_bytes());
}
