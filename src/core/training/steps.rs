//! The batches and steps of a training: what is due after them, their metrics, and what is said of
//! them.

use serde_json::{Map, json};

use super::{Begun, Training, lock, not_begun, plan};
use crate::calls::TextId;
use crate::console::{self, Progress};
use crate::error::Result;
use crate::events;
pub use crate::metrics::OfCall;
use crate::metrics::{self, Metric};
use crate::replay::{Due, State};
use crate::saver::members;
use crate::sequencer::Sequencer;
use crate::workload::Workload;

/// How long a step waited for batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DataWait {
    /// Seconds in which training waited for a batch, or built it itself.
    pub seconds: f64,
    /// Threads or processes that build batches; 0 if the training thread builds them.
    pub workers: u32,
}

/// Parts of the line about the last step.
#[derive(Debug, Default)]
pub(super) struct LastStep {
    metrics: String,
    speed: Option<f64>,
    waiting: String,
}

impl Training {
    /// Notes that a training call was made or answered.
    ///
    /// # Errors
    ///
    /// A bug, before the trial has begun.
    #[inline]
    pub fn batch_done(&mut self, now_s: f64) -> Result<Due> {
        let begun = self.begun.as_mut().ok_or_else(not_begun)?;
        let due = begun.sequencer.batch_done(now_s);
        begun.now_s = now_s;
        if due.is_repeated {
            if due.step_ended.is_some() {
                self.metrics.clear();
            }
        } else if begun.running_since.is_none() {
            begun.running_since = Some((now_s, begun.sequencer.batches()));
        }
        Ok(due)
    }

    /// Whether this process has trained a batch: the clock of its first step starts with that
    /// batch.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.begun
            .as_ref()
            .is_some_and(|begun| begun.running_since.is_some())
    }

    /// Batches that the trial still has to train; `None` if the training loop of the script
    /// decides.
    pub fn batches_left(&self) -> Option<u64> {
        match &self.begun {
            Some(begun) => begun.sequencer.batches_left(),
            None => Sequencer::new(plan(&self.launch), 0).batches_left(),
        }
    }

    /// Notes that the model was validated after the last batch: writes it into the journal, unless
    /// a replay repeats it. Returns whether a checkpoint of the model is due.
    ///
    /// Args:
    ///     `metrics`: names as in the framework, and values.
    ///
    /// # Errors
    ///
    /// The metric of the search is not among them; storage.
    pub fn validated(&mut self, epoch: Option<u64>, metrics: &[(String, f64)]) -> Result<bool> {
        let begun = self.begun.as_mut().ok_or_else(not_begun)?;
        let metric = match &self.launch.search {
            Some(search) => metrics::validation_metric(metrics, &search.metric)?,
            None => f64::NAN,
        };
        let is_due = begun.sequencer.validated(metric);
        if self.calls.state() == State::Replaying {
            return Ok(false);
        }
        let (batch, step) = (begun.sequencer.batches(), begun.sequencer.steps());
        tracing::info!("{}", console::validation(batch, metrics));
        let members_of = |(name, value): &(String, f64)| (name.clone(), events::number(*value));
        let values: Map<_, _> = metrics.iter().map(members_of).collect();
        lock(&begun.journal).append(
            "validation",
            members(json!({
                "workload": Workload::ComputeValidationMetrics { step }.to_string(),
                "batch": batch,
                "step": step,
                "epoch": epoch,
                "metrics": values,
                "best_batch": begun.sequencer.best_batch(),
            })),
        )?;
        Ok(is_due)
    }

    /// Sets the names of the items in the list that a call returns.
    pub fn set_metric_names(&mut self, identity: TextId, names: Vec<String>) {
        self.metrics.set_names(identity, names);
    }

    /// The values that the last training calls of the current step returned, for each model:
    /// identity of the call, name, value.
    pub fn last_values(&self) -> Vec<(TextId, String, f64)> {
        self.metrics.last_values()
    }

    /// Sets the value of a metric of the current step, if that is not the mean over its calls.
    /// `is_at_end`: it is the value at the end of the step, not a mean.
    pub fn tell_step_metric(&mut self, identity: TextId, name: &str, value: f64, is_at_end: bool) {
        self.metrics.tell(identity, name, value, is_at_end);
    }

    /// Keeps the metrics of each training call until they are taken.
    pub fn keep_call_metrics(&mut self) {
        self.metrics.keep_calls();
    }

    /// The metrics of each training call since the last call of this method, including answered
    /// calls.
    pub fn take_call_metrics(&mut self) -> Vec<OfCall> {
        self.metrics.take_calls()
    }

    /// Ends the step that ended with the last batch, after its calls are appended: writes it into
    /// the journal, and logs it, unless a line on the terminal shows it already (`is_live`).
    /// `epoch` is that of the last batch, from 0; none in a training loop of the script. `wait` is
    /// none if the batches do not come from a data set.
    ///
    /// # Errors
    ///
    /// Storage.
    pub fn end_step(
        &mut self,
        epoch: Option<u64>,
        wait: Option<DataWait>,
        is_live: bool,
    ) -> Result<()> {
        let taken = self.metrics.take(self.calls.tables());
        let is_at_end = |metric: &&Metric| metric.is_at_end;
        let name = |metric: &Metric| metric.name.clone();
        let at_end: Vec<_> = taken.iter().filter(is_at_end).map(name).collect();
        let named = |metric: &Metric| (metric.name.clone(), metric.value);
        let averages: Vec<_> = taken.iter().map(named).collect();
        let begun = self.begun.as_mut().ok_or_else(not_begun)?;
        let batches = begun.sequencer.batches();
        let step = begun.sequencer.step_of(batches.max(1));
        let speed = begun.speed(0.0);
        let seconds = begun
            .running_since
            .map(|(since_s, _)| begun.now_s - since_s);
        let waiting = match (wait, seconds) {
            (Some(wait), Some(seconds)) => metrics::waiting(wait, seconds),
            _ => String::new(),
        };
        begun.running_since = Some((begun.now_s, batches));
        begun.last_step = LastStep {
            metrics: metrics::list(&averages),
            speed,
            waiting: waiting.clone(),
        };
        let line = console::step(step, epoch, &averages, speed, &waiting);
        if is_live {
            tracing::debug!("{line}");
        } else {
            tracing::info!("{line}");
        }
        let members_of = |(name, mean): &(String, f64)| (name.clone(), events::number(*mean));
        let averages: Map<_, _> = averages.iter().map(members_of).collect();
        let mut event = members(json!({
            "workload": Workload::RunStep(step).to_string(),
            "step": step.number,
            "batches": [step.first_batch, step.last_batch],
            "epoch": epoch,
            "metrics": averages,
            "batches_per_second": speed,
            "seconds": seconds,
            "data_wait_seconds": wait.map(|wait| wait.seconds),
        }));
        if !at_end.is_empty() {
            event.insert("at_end".to_owned(), at_end.into());
        }
        lock(&begun.journal).append("step", event)
    }

    /// The progress of the training in one line; `None` before it has begun.
    pub fn progress(&self) -> Option<String> {
        let begun = self.begun.as_ref()?;
        let batches = begun.sequencer.batches();
        let progress = Progress {
            trial_id: self.launch.trial_id,
            step: begun.sequencer.step_of(batches.max(1)).number,
            batch: batches,
            checkpoint: begun.saver.committed(),
            is_replaying: self.calls.state() == State::Replaying,
            speed: begun
                .speed(console::LEAST_SECONDS)
                .or(begun.last_step.speed),
            waiting: &begun.last_step.waiting,
            metrics: &begun.last_step.metrics,
        };
        Some(progress.to_string())
    }
}

impl Begun {
    /// Batches per second since the current step began, if that is at least this many seconds ago.
    fn speed(&self, least_seconds: f64) -> Option<f64> {
        let (since_s, first) = self.running_since?;
        let seconds = self.now_s - since_s;
        #[expect(clippy::cast_precision_loss, reason = "a rate is rounded anyhow")]
        let rate = (self.sequencer.batches() - first) as f64 / seconds;
        (seconds >= least_seconds && rate.is_finite()).then_some(rate)
    }
}
