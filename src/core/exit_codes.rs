//! THE table of exit codes: the codes of pedl-run, besides those of the script.
//!
//! The manual page, `pedl reference exit-codes` and the documentation are made from [`TABLE`]. The
//! codes from 64 to 77 are those of `sysexits.h`, which scripts rarely use.

/// The script file does not exist; the code is that of `python`.
pub const NO_SCRIPT: i32 = 2;
/// The command line is not valid.
pub const USAGE: i32 = 64;
/// A configuration, a trial directory or a checkpoint cannot be used.
pub const CONFIGURATION: i32 = 65;
/// No Python, or a version that is not supported.
pub const UNSUPPORTED: i32 = 69;
/// A bug of pedl-run.
pub const BUG: i32 = 70;
/// The trial directory or the cache cannot be made, read or written.
pub const CANNOT_CREATE: i32 = 73;
/// Another process uses the trial.
pub const IN_USE: i32 = 75;
/// A replay differs from the record.
pub const DIVERGED: i32 = 76;
/// `--exact` was given and exact resume is not possible.
pub const NOT_EXACT: i32 = 77;
/// Ctrl-C, as a shell shows it.
pub const INTERRUPTED: i32 = 130;
/// Storage failed during training.
pub const STORAGE_FAILED: i32 = 201;

/// A row of the table.
#[derive(Debug)]
pub struct ExitCode {
    /// The code, or a text for several codes.
    pub code: &'static str,
    /// Why a process ends with it.
    pub meaning: &'static str,
    /// What a user can do about it.
    pub remedy: &'static str,
}

const fn row(code: &'static str, meaning: &'static str, remedy: &'static str) -> ExitCode {
    ExitCode {
        code,
        meaning,
        remedy,
    }
}

/// All of them, in order.
#[rustfmt::skip]
pub static TABLE: &[ExitCode] = &[
    row("the script's", "The script ended by itself. Its exit code, and a death by a signal, pass through unchanged.", "–"),
    row("2", "The script file does not exist. `python` uses the same code.", "Check the path."),
    row("64", "The command line is not valid.", "Follow the hint, or see `pedl-run --help`."),
    row("65", "A configuration is not valid, the trial belongs to another command or configuration, no checkpoint is usable, or an option of the script does not accept a hyperparameter.", "The message names the file and the line. `--fresh` starts a new trial and keeps the old one."),
    row("69", "No Python was found, or the version of Python or of a framework is not supported.", "`pedl doctor` shows what was found. `--no-hooks LIBRARY` runs without resume."),
    row("70", "A bug of pedl-run.", "Report it with the lines above it."),
    row("73", "The trial directory cannot be created, read or written, or contains other files.", "Choose another one with `--trial-dir DIR`."),
    row("75", "Another process uses the trial, or another rank was lost.", "Wait for the other process; start all ranks again."),
    row("76", "The script does not repeat itself: a replay differs from the record. From `pedl verify`: a disturbed run differs.", "The message shows both sides. Undo the edit, or use `--fresh`. `pedl checkpoint export` still saves the weights."),
    row("77", "`--exact` was given and exact resume is not possible. From `pedl verify`: nothing could be shown.", "See [causes](causes.md); without `--exact` the script runs."),
    row("130", "Ctrl-C.", "The same command continues from the newest checkpoint."),
    row("143, 138", "SIGTERM or SIGUSR1 preempted the run. `--preempt-exit-code N` replaces the code if a checkpoint exists.", "The same command continues after the last batch."),
    row("201", "Storage failed during training: five checkpoints in a row failed, or the log of calls cannot be written.", "Free disk space, then run the same command again."),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_row() {
        for code in [
            NO_SCRIPT,
            USAGE,
            CONFIGURATION,
            UNSUPPORTED,
            BUG,
            CANNOT_CREATE,
            IN_USE,
            DIVERGED,
            NOT_EXACT,
            INTERRUPTED,
            STORAGE_FAILED,
        ] {
            let text = code.to_string();
            assert_eq!(TABLE.iter().filter(|row| row.code == text).count(), 1);
        }
    }
}
