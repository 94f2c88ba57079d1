//! Decides which workload is next: a pure state machine over batches.
//!
//! The caller reports that a batch ended, that the model was validated, or that a checkpoint was
//! taken, and the sequencer answers what is due. Time is an argument and never read, so every
//! decision can be tested. Without a length, the training loop of the script decides the number of
//! batches, and steps only mark boundaries in it.
//!
//! ```text
//! batch      1 … 100 | 101 … 200 | 201 …          batches_per_step = 100
//! step          1    |     2     |   3
//!                    ^ RUN_STEP 1 is complete; with checkpoint_period = 1 CHECKPOINT_MODEL is next
//! ```
//!
//! In a replay, batches and validations are counted as usual, but no checkpoint is due.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::replay::Due;
use crate::workload::Step;

/// If a due checkpoint was not taken, it is requested again after this many seconds. The cause (the
/// previous one is still being written, or the run cannot be resumed exactly) lasts longer than a
/// batch, and a request at every batch would cost each a round trip.
const REMINDER_SECONDS: f64 = 1.0;

/// The lengths and periods that the sequencer applies.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Batches in a step; 0 counts as 1.
    pub batches_per_step: u64,
    /// A checkpoint every this many steps.
    pub checkpoint_period: Option<u64>,
    /// A checkpoint when the last one is this many seconds old. 0: at every batch.
    pub checkpoint_seconds: f64,
    /// Additional checkpoints after exactly these batches.
    pub checkpoint_batches: Vec<CheckpointBatch>,
    /// The number of steps of the trial; `None`: the training loop of the script decides.
    pub steps: Option<u64>,
    /// A validation after every this many steps, in addition to those of the script; `None`: only
    /// those of the script.
    pub validation_period: Option<u64>,
    /// Which validations are followed by a checkpoint; `None`: none of them.
    pub checkpoint_policy: Option<CheckpointPolicy>,
    /// Whether a smaller metric is better in a validation.
    pub smaller_is_better: bool,
}

/// A batch that is followed by a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointBatch {
    /// The batch of this number, from 1.
    Number(u64),
    /// The Nth batch, from 1, that this process trains after the checkpoint that it resumes.
    AfterResume(u64),
}

impl CheckpointBatch {
    fn is(self, batch: u64, replayed: u64) -> bool {
        match self {
            Self::Number(number) => batch == number,
            Self::AfterResume(number) => replayed > 0 && batch == replayed + number,
        }
    }
}

/// Which validations are followed by a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointPolicy {
    /// Those that are the best so far.
    Best,
    /// All.
    All,
    /// None.
    None,
}

/// Counts the batches of one trial.
#[derive(Clone, Debug)]
pub struct Sequencer {
    plan: Plan,
    batches: u64,
    /// Batches before the checkpoint that this process resumes from.
    replayed: u64,
    /// When the last checkpoint was taken, or counting began.
    checkpoint_s: f64,
    /// Whether a step boundary requested a checkpoint.
    asked_by_period: bool,
    /// When a due checkpoint was last requested.
    asked_s: Option<f64>,
    /// The best validation so far: its metric, and its batch.
    best: Option<(f64, u64)>,
    /// Metrics of validations, by batch; if there are two after one batch, the last.
    validations: BTreeMap<u64, f64>,
}

impl Sequencer {
    /// A sequencer before the first batch. A replay makes the first `replayed` batches.
    pub fn new(plan: Plan, replayed: u64) -> Self {
        let plan = Plan {
            batches_per_step: plan.batches_per_step.max(1),
            ..plan
        };
        Self {
            plan,
            batches: 0,
            replayed,
            checkpoint_s: 0.0,
            asked_by_period: false,
            asked_s: None,
            best: None,
            validations: BTreeMap::new(),
        }
    }

    /// Completed batches.
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// Completed steps.
    pub fn steps(&self) -> u64 {
        self.batches / self.plan.batches_per_step
    }

    /// The step that the next batch belongs to.
    pub fn step(&self) -> Step {
        self.step_of(self.batches + 1)
    }

    /// The step of a batch.
    pub fn step_of(&self, batch: u64) -> Step {
        let size = self.plan.batches_per_step;
        let before = (batch - 1) / size * size;
        Step {
            number: before / size + 1,
            first_batch: before + 1,
            last_batch: before + size,
        }
    }

    /// Counts a completed batch.
    ///
    /// Args:
    ///     `now_s`: a monotonic clock, seconds.
    #[inline]
    pub fn batch_done(&mut self, now_s: f64) -> Due {
        self.batches += 1;
        let step = self.step_of(self.batches);
        let step_ended = (step.last_batch == self.batches).then_some(step);
        if self.batches == 1 || self.batches <= self.replayed {
            self.checkpoint_s = now_s;
        }
        let is_live = self.batches > self.replayed;
        let mut named = self.plan.checkpoint_batches.iter();
        let checkpoint_wanted = is_live && named.any(|it| it.is(self.batches, self.replayed));
        let checkpoint =
            is_live && (self.is_checkpoint_due(step_ended, now_s) || checkpoint_wanted);
        let validation = match (step_ended, self.plan.validation_period) {
            (Some(step), Some(period)) => step.number.is_multiple_of(period.max(1)),
            _ => false,
        };
        Due {
            step_ended,
            validation,
            checkpoint,
            checkpoint_wanted,
            is_last: self.plan.steps.is_some() && self.batches_left() == Some(0),
            is_repeated: !is_live,
        }
    }

    /// Batches that the trial still has to train; `None` if the training loop of the script
    /// decides.
    #[must_use]
    pub fn batches_left(&self) -> Option<u64> {
        let length = self.plan.steps?.saturating_mul(self.plan.batches_per_step);
        Some(length.saturating_sub(self.batches))
    }

    /// Notes that the model was validated after the last batch. Returns whether a checkpoint of it
    /// is due.
    ///
    /// Args:
    ///     `metric`: the value that is compared; one that is not a number is never the best.
    pub fn validated(&mut self, metric: f64) -> bool {
        if !metric.is_nan() {
            self.validations.insert(self.batches, metric);
        }
        let is_best = !metric.is_nan()
            && self.best.is_none_or(|(best, _)| {
                if self.plan.smaller_is_better {
                    metric < best
                } else {
                    metric > best
                }
            });
        if is_best {
            self.best = Some((metric, self.batches));
        }
        match self.plan.checkpoint_policy {
            Some(CheckpointPolicy::All) => true,
            Some(CheckpointPolicy::Best) => is_best,
            Some(CheckpointPolicy::None) | None => false,
        }
    }

    /// The batch of the best validation.
    #[must_use]
    pub fn best_batch(&self) -> Option<u64> {
        self.best.map(|(_, batch)| batch)
    }

    /// The metrics of the validations so far, by batch; without those that are not numbers.
    #[must_use]
    pub fn validations(&self) -> &BTreeMap<u64, f64> {
        &self.validations
    }

    /// Notes that a checkpoint of the last batch was taken.
    pub fn checkpoint_taken(&mut self, now_s: f64) {
        self.checkpoint_s = now_s;
        self.asked_by_period = false;
        self.asked_s = None;
    }

    fn is_checkpoint_due(&mut self, step_ended: Option<Step>, now_s: f64) -> bool {
        if let (Some(step), Some(period)) = (step_ended, self.plan.checkpoint_period) {
            self.asked_by_period |= step.number.is_multiple_of(period.max(1));
        }
        let is_due =
            self.asked_by_period || now_s - self.checkpoint_s >= self.plan.checkpoint_seconds;
        let reminder = REMINDER_SECONDS.min(self.plan.checkpoint_seconds);
        let is_asked = is_due
            && self
                .asked_s
                .is_none_or(|asked_s| now_s - asked_s >= reminder);
        if is_asked {
            self.asked_s = Some(now_s);
        }
        is_asked
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLAN: Plan = Plan {
        batches_per_step: 3,
        checkpoint_period: Some(2),
        checkpoint_seconds: 60.0,
        checkpoint_batches: Vec::new(),
        steps: None,
        validation_period: None,
        checkpoint_policy: None,
        smaller_is_better: true,
    };

    fn step(number: u64) -> Step {
        Step {
            number,
            first_batch: 3 * number - 2,
            last_batch: 3 * number,
        }
    }

    /// One row: the time of a batch; the step it ends; whether a checkpoint is due.
    fn run(sequencer: &mut Sequencer, rows: &[(f64, Option<u64>, bool)]) {
        for &(now_s, ended, checkpoint_due) in rows {
            let boundary = sequencer.batch_done(now_s);
            let expected = Due {
                step_ended: ended.map(step),
                checkpoint: checkpoint_due,
                is_repeated: sequencer.batches() <= sequencer.replayed,
                ..Due::default()
            };
            assert_eq!(
                boundary,
                expected,
                "batch {} at {now_s} s",
                sequencer.batches()
            );
        }
    }

    #[test]
    fn a_checkpoint_comes_by_period_and_by_time() {
        let mut sequencer = Sequencer::new(PLAN, 0);
        run(
            &mut sequencer,
            &[
                (10.0, None, false),
                (11.0, None, false),
                (12.0, Some(1), false),
                (13.0, None, false),
                (14.0, None, false),
                (15.0, Some(2), true),
            ],
        );
        sequencer.checkpoint_taken(15.5);
        run(&mut sequencer, &[(75.4, None, false), (75.5, None, true)]);
    }

    #[test]
    fn a_checkpoint_that_was_not_taken_is_asked_for_again() {
        let mut sequencer = Sequencer::new(PLAN, 0);
        run(
            &mut sequencer,
            &[
                (0.0, None, false),
                (60.0, None, true),
                (60.9, Some(1), false),
                (61.0, None, true),
            ],
        );
    }

    #[test]
    fn one_of_a_named_batch_is_wanted_unless_a_replay_repeats_it() {
        let plan = Plan {
            checkpoint_batches: vec![
                CheckpointBatch::Number(2),
                CheckpointBatch::Number(5),
                CheckpointBatch::AfterResume(1),
            ],
            ..PLAN
        };
        let mut sequencer = Sequencer::new(plan, 3);
        let found = [0.0; 5].map(|now_s| {
            let boundary = sequencer.batch_done(now_s);
            (boundary.checkpoint, boundary.checkpoint_wanted)
        });
        let none = (false, false);
        assert_eq!(found, [none, none, none, (true, true), (true, true)]);
    }

    #[test]
    fn none_comes_in_a_replay() {
        let mut sequencer = Sequencer::new(
            Plan {
                checkpoint_seconds: 0.0,
                ..PLAN
            },
            4,
        );
        run(
            &mut sequencer,
            &[
                (0.0, None, false),
                (0.0, None, false),
                (0.0, Some(1), false),
                (0.0, None, false),
                (0.0, None, true),
                (0.0, Some(2), true),
            ],
        );
    }

    #[test]
    fn a_validation_at_the_end_of_an_epoch_does_not_shift_those_of_the_period() {
        let due_batches = |batches_per_step, epoch: Option<u64>, last| {
            let plan = Plan {
                batches_per_step,
                validation_period: Some(2),
                ..PLAN
            };
            let mut sequencer = Sequencer::new(plan, 0);
            let mut due = Vec::new();
            for batch in 1..=last {
                if sequencer.batch_done(0.0).validation {
                    due.push(batch);
                    sequencer.validated(0.0);
                }
                if epoch.is_some_and(|epoch| batch % epoch == 0) {
                    // A validation of the script; if the period requests one too, this one counts
                    // for both.
                    sequencer.validated(0.0);
                }
            }
            due
        };
        for epoch in [None, Some(5), Some(6), Some(7), Some(12)] {
            assert_eq!(due_batches(3, epoch, 30), [6, 12, 18, 24, 30], "{epoch:?}");
        }
        let hundreds: Vec<_> = (1..=8).map(|number| 100 * number).collect();
        assert_eq!(due_batches(50, Some(657), 800), hundreds);
    }

    #[test]
    fn the_last_batch_is_that_of_the_last_step() {
        let plan = Plan {
            steps: Some(4),
            ..PLAN
        };
        let mut sequencer = Sequencer::new(plan, 0);
        assert_eq!(sequencer.batches_left(), Some(12));
        let last: Vec<_> = (1..=14)
            .filter(|_| sequencer.batch_done(0.0).is_last)
            .collect();
        assert_eq!(last, [12, 13, 14]);
        assert_eq!(sequencer.batches_left(), Some(0));
    }

    #[test]
    fn a_checkpoint_follows_validations_by_the_policy() {
        let metrics = [0.5, f64::NAN, 0.4, 0.4, 0.6];
        let follows = |policy, smaller_is_better| {
            let plan = Plan {
                checkpoint_policy: policy,
                smaller_is_better,
                ..PLAN
            };
            let mut sequencer = Sequencer::new(plan, 0);
            metrics.map(|metric| {
                sequencer.batch_done(0.0);
                sequencer.validated(metric)
            })
        };
        let best = Some(CheckpointPolicy::Best);
        assert_eq!(follows(best, true), [true, false, true, false, false]);
        assert_eq!(follows(best, false), [true, false, false, false, true]);
        assert_eq!(follows(Some(CheckpointPolicy::All), true), [true; 5]);
        assert_eq!(follows(Some(CheckpointPolicy::None), true), [false; 5]);
        assert_eq!(follows(None, true), [false; 5]);
    }

    proptest! {
        #[test]
        fn steps_cover_all_batches_without_a_gap(size in 0..50_u64, batches in 1..500_u64) {
            let plan = Plan { batches_per_step: size, ..PLAN };
            let mut sequencer = Sequencer::new(plan, 0);
            let mut next_first = 1;
            for batch in 1..=batches {
                let before = sequencer.step();
                prop_assert!((before.first_batch..=before.last_batch).contains(&batch));
                if let Some(step) = sequencer.batch_done(0.0).step_ended {
                    prop_assert_eq!(step, before);
                    prop_assert_eq!((step.first_batch, step.last_batch), (next_first, batch));
                    prop_assert_eq!(step.number, sequencer.steps());
                    next_first = batch + 1;
                }
            }
            prop_assert_eq!(sequencer.batches(), batches);
            prop_assert_eq!(sequencer.steps(), batches / size.max(1));
        }

        #[test]
        fn a_resume_goes_on_as_if_nothing_had_happened(
            replayed in 0..100_u64,
            period in prop::option::of(0..5_u64),
            more in 1..100_u64,
        ) {
            let plan = Plan { checkpoint_period: period, ..PLAN };
            let (mut whole, mut resumed) = (Sequencer::new(plan.clone(), 0), Sequencer::new(plan, replayed));
            for batch in 1..=replayed + more {
                let boundary = whole.batch_done(0.0);
                if boundary.checkpoint || batch == replayed {
                    whole.checkpoint_taken(0.0);
                }
                let again = resumed.batch_done(0.0);
                if again.checkpoint {
                    resumed.checkpoint_taken(0.0);
                }
                prop_assert_eq!(boundary.step_ended, again.step_ended);
                if batch > replayed {
                    prop_assert_eq!(boundary, again);
                }
            }
        }

        #[test]
        fn no_checkpoint_is_later_than_asked_for(times in prop::collection::vec(0.0..40.0_f64, 1..200)) {
            let mut sequencer = Sequencer::new(Plan { checkpoint_period: None, ..PLAN }, 0);
            let (mut now_s, mut last) = (0.0, None);
            for elapsed in times {
                now_s += elapsed;
                let is_due = sequencer.batch_done(now_s).checkpoint;
                let begun: f64 = *last.get_or_insert(now_s);
                prop_assert_eq!(is_due, now_s - begun >= PLAN.checkpoint_seconds);
                if is_due {
                    sequencer.checkpoint_taken(now_s);
                    last = Some(now_s);
                }
            }
        }
    }
}
