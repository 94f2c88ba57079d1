//! The cost of a replay: a run is killed after a checkpoint and started again, and the time from
//! its first measured batch to the end of the replay is taken.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::Deserialize;

use super::{BATCHES_PER_STEP, Bench, RUN_LIMIT, TRIAL, WARM_UP_BATCHES, tail};
use crate::events::Trial;
use crate::failure::{At as _, Failure, Result};

/// How often to look for the checkpoint. Some hundred batches are left to compute then.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// A replay that was measured.
pub(super) struct Replay {
    pub(super) batches: u64,
    pub(super) seconds: f64,
    pub(super) log_bytes: u64,
    pub(super) log_calls: u64,
}

/// The fields of an event that are used here.
#[derive(Deserialize)]
struct Event {
    event: String,
    time: String,
}

impl Bench<'_> {
    /// Trains until the checkpoint after `batches` batches, kills the run, and starts it again.
    pub(super) fn replay(&mut self, name: &str, batches: u64) -> Result<Replay> {
        let directory = self.new_directory()?;
        let marks = directory.join("marks");
        fs::write(&marks, "").at("create", &marks)?;
        let calls = WARM_UP_BATCHES + batches;
        let step = BATCHES_PER_STEP.to_string();
        let period = (calls / BATCHES_PER_STEP).to_string();
        // A run that cannot be resumed exactly takes no checkpoint, as TensorFlow 1 with its
        // defaults.
        let options = [
            "--exact",
            "--batches-per-step",
            &step,
            "--checkpoint-period",
            &period,
        ];
        let (count, marks_text) = (batches.to_string(), marks.to_string_lossy());
        let arguments = ["replayed", &count, name, &marks_text];
        let trial = Trial::at(directory.join(TRIAL));

        let mut running = self.start(&directory, &options, &arguments)?;
        let reached = || Ok(trial.checkpoint() == Some(calls));
        if let Some(ended) = running.wait_until(RUN_LIMIT, LOOK_INTERVAL, reached)? {
            let what = format!("it was to be killed before its end ({})", ended.describe());
            return Err(Failure::new(format!("{what}:\n{}", tail(&running.text()))));
        }
        running.kill()?;
        let log = directory.join(TRIAL).join("calls.log");
        let log_bytes = fs::metadata(&log).at("look at", &log)?.len();

        let again = self.start(&directory, &options, &arguments)?;
        self.answer(again)?;
        Ok(Replay {
            batches,
            seconds: resumed_at(&directory.join(TRIAL))? - last_mark(&marks)?,
            log_bytes,
            log_calls: calls,
        })
    }
}

/// When the last replay of a trial ended, in seconds since 1970.
fn resumed_at(trial: &Path) -> Result<f64> {
    let journal = trial.join("events.jsonl");
    let text = fs::read_to_string(&journal).at("read", &journal)?;
    let events = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let mut times = events.filter(|event: &Event| event.event == "resumed");
    let time = times.next_back().and_then(|event| {
        let time = humantime::parse_rfc3339(&event.time).ok()?;
        time.duration_since(SystemTime::UNIX_EPOCH).ok()
    });
    time.map(|time| time.as_secs_f64())
        .ok_or_else(|| Failure::new(format!("`{}` tells of no resume", journal.display())))
}

/// When the last start of the script reached its loop, in seconds since 1970. It is the time of a
/// file, because the clock of the script repeats its earlier times in a replay.
fn last_mark(marks: &Path) -> Result<f64> {
    let time = fs::metadata(marks)
        .and_then(|found| found.modified())
        .at("look at", marks)?;
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since
        .map(|time| time.as_secs_f64())
        .map_err(|_| Failure::new(format!("`{}` is older than 1970", marks.display())))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::resumed_at;

    #[test]
    fn the_last_resume_of_a_journal_counts() {
        let directory = tempfile::tempdir().expect("there is room");
        let text = "{\"event\":\"resumed\",\"time\":\"1970-01-01T00:00:01.000Z\"}\n\
            {\"event\":\"resumed\",\"time\":\"1970-01-01T00:01:00.250Z\"}\n\
            {\"event\":\"step\",\"time\":\"1970-01-01T00:02:00.000Z\"}\n{\"event\":";
        fs::write(directory.path().join("events.jsonl"), text).expect("there is room");
        let time = resumed_at(directory.path()).expect("there is one");
        assert!((time - 60.25).abs() < 1e-9, "{time}");
    }
}
