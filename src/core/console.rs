//! The sentences about a training on standard error, and the line that shows its progress.

use std::fmt;

use crate::checkpoint::Manifest;
use crate::metrics;
use crate::workload::Step;

/// The speed of a step is not shown before this many seconds: that of the previous step is
/// steadier.
pub(crate) const LEAST_SECONDS: f64 = 2.0;

/// For a trial that was begun and has no checkpoint.
pub(crate) const FROM_THE_BEGINNING: &str =
    "no checkpoint was taken before: the script starts from the beginning";

/// For a trial with a checkpoint.
pub(crate) fn resuming(manifest: &Manifest) -> String {
    format!(
        "resuming after batch {} (step {}): {} calls are replayed",
        manifest.batch, manifest.step, manifest.calls
    )
}

/// A step has ended.
pub(crate) fn step(
    step: Step,
    epoch: Option<u64>,
    averages: &[(String, f64)],
    speed: Option<f64>,
    waiting: &str,
) -> String {
    format!(
        "step {} (batches {}-{}{}){}{waiting}",
        step.number,
        step.first_batch,
        step.last_batch,
        epoch.map_or(String::new(), |epoch| format!(", epoch {epoch}")),
        metrics::describe(averages, speed)
    )
}

/// The model was validated.
pub(crate) fn validation(batch: u64, metrics: &[(String, f64)]) -> String {
    let metrics = metrics::describe(metrics, None);
    format!("validation after batch {batch}{metrics}")
}

/// A handler of the script has handled a signal, and the script continues to train.
pub(crate) fn trained_on(signal: &str, newest: Option<u64>) -> String {
    let continues = match newest {
        Some(batch) => format!("continues after batch {batch}"),
        None => "starts from the beginning".to_owned(),
    };
    format!(
        "the script handled {signal} by itself, and trains on: no further checkpoints are taken, since what its \
         handler changed is not recorded; the same command {continues}"
    )
}

/// The progress of a training, for one line of a terminal.
#[derive(Debug)]
pub(crate) struct Progress<'a> {
    pub(crate) trial_id: u64,
    pub(crate) step: u64,
    pub(crate) batch: u64,
    /// The batch of the newest complete checkpoint; 0 if there is none.
    pub(crate) checkpoint: u64,
    pub(crate) is_replaying: bool,
    /// Batches per second.
    pub(crate) speed: Option<f64>,
    /// How long the last step waited for batches, and its metrics, as text.
    pub(crate) waiting: &'a str,
    pub(crate) metrics: &'a str,
}

impl fmt::Display for Progress<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            trial_id,
            step,
            batch,
            checkpoint,
            ..
        } = self;
        write!(formatter, "trial {trial_id}, step {step}, batch {batch}")?;
        if self.is_replaying {
            return write!(formatter, ": replaying, up to batch {checkpoint}");
        }
        if let Some(speed) = self.speed {
            write!(formatter, ", {}", metrics::rate(speed))?;
        }
        formatter.write_str(self.waiting)?;
        // The metrics come last: if a line is too long for the terminal, its end is cut off.
        match checkpoint {
            0 => formatter.write_str(", no checkpoint")?,
            batch => write!(formatter, ", checkpoint {batch}")?,
        }
        if !self.metrics.is_empty() {
            write!(formatter, ": {}", self.metrics)?;
        }
        Ok(())
    }
}
