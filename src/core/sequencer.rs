//! Which workload is next: a pure state machine over batches.
//!
//! Told that a batch ended, a checkpoint was taken, or training ended, it answers what comes next.
//! Time is an argument and never read, so every decision can be tested. The script's own loop decides
//! how many batches there are; steps only mark boundaries in it.
//!
//! ```text
//! batch      1 … 100 | 101 … 200 | 201 …          batches_per_step = 100
//! step          1    |     2     |   3
//!                    ^ RUN_STEP 1 is complete; with checkpoint_period = 1 CHECKPOINT_MODEL is next
//! ```
//!
//! In a replay batches are counted as ever, but no checkpoint comes due.

use crate::workload::{Step, Workload};

/// A due checkpoint that was not taken is asked for again after so many seconds. What prevents it (the
/// one before is still being written, or the run cannot be resumed exactly) lasts longer than a batch,
/// and asking at every batch would cost each one a round trip.
const REMINDER_SECONDS: f64 = 1.0;

/// The lengths that the sequencer goes by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Batches in a step; 0 counts as 1.
    pub batches_per_step: u64,
    /// A checkpoint every so many steps.
    pub checkpoint_period: Option<u64>,
    /// A checkpoint when the last one is so many seconds old. 0: at every batch.
    pub checkpoint_seconds: f64,
}

/// What a batch was the end of, and what comes after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// The step that ended with this batch.
    pub step_ended: Option<Step>,
    /// The next workload.
    pub next: Workload,
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
    /// A step boundary asked for a checkpoint.
    asked_by_period: bool,
    /// When a due checkpoint was last asked for.
    asked_s: Option<f64>,
}

impl Sequencer {
    /// A sequencer before the first batch. The first `replayed` batches are made by a replay.
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

    /// Whether the next batch is one that the recorded run had made before its checkpoint.
    pub fn is_replaying(&self) -> bool {
        self.batches < self.replayed
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

    /// A batch ended.
    ///
    /// Args:
    ///     `now_s`: a clock that never goes back, seconds.
    #[inline]
    pub fn batch_done(&mut self, now_s: f64) -> Boundary {
        self.batches += 1;
        let step = self.step_of(self.batches);
        let step_ended = (step.last_batch == self.batches).then_some(step);
        if self.batches == 1 || self.batches <= self.replayed {
            self.checkpoint_s = now_s;
        }
        let is_due = self.batches > self.replayed && self.is_checkpoint_due(step_ended, now_s);
        let next = if is_due {
            Workload::CheckpointModel {
                batch: self.batches,
            }
        } else {
            Workload::RunStep(self.step())
        };
        Boundary { step_ended, next }
    }

    /// A checkpoint of the last batch was taken.
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
    };

    fn checkpoint(batch: u64) -> Workload {
        Workload::CheckpointModel { batch }
    }

    fn step(number: u64) -> Step {
        Step {
            number,
            first_batch: 3 * number - 2,
            last_batch: 3 * number,
        }
    }

    /// One row: the time of a batch; the step it ends; what comes next.
    fn run(sequencer: &mut Sequencer, rows: &[(f64, Option<u64>, Workload)]) {
        for &(now_s, ended, next) in rows {
            let boundary = sequencer.batch_done(now_s);
            let expected = Boundary {
                step_ended: ended.map(step),
                next,
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
                (10.0, None, Workload::RunStep(step(1))),
                (11.0, None, Workload::RunStep(step(1))),
                (12.0, Some(1), Workload::RunStep(step(2))),
                (13.0, None, Workload::RunStep(step(2))),
                (14.0, None, Workload::RunStep(step(2))),
                (15.0, Some(2), checkpoint(6)),
            ],
        );
        sequencer.checkpoint_taken(15.5);
        run(
            &mut sequencer,
            &[
                (75.4, None, Workload::RunStep(step(3))),
                (75.5, None, checkpoint(8)),
            ],
        );
    }

    #[test]
    fn a_checkpoint_that_was_not_taken_is_asked_for_again() {
        let mut sequencer = Sequencer::new(PLAN, 0);
        run(
            &mut sequencer,
            &[
                (0.0, None, Workload::RunStep(step(1))),
                (60.0, None, checkpoint(2)),
                (60.9, Some(1), Workload::RunStep(step(2))),
                (61.0, None, checkpoint(4)),
            ],
        );
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
                (0.0, None, Workload::RunStep(step(1))),
                (0.0, None, Workload::RunStep(step(1))),
                (0.0, Some(1), Workload::RunStep(step(2))),
                (0.0, None, Workload::RunStep(step(2))),
                (0.0, None, checkpoint(5)),
                (0.0, Some(2), checkpoint(6)),
            ],
        );
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
            let (mut whole, mut resumed) = (Sequencer::new(plan, 0), Sequencer::new(plan, replayed));
            for batch in 1..=replayed + more {
                let boundary = whole.batch_done(0.0);
                if matches!(boundary.next, Workload::CheckpointModel { .. }) || batch == replayed {
                    whole.checkpoint_taken(0.0);
                }
                let again = resumed.batch_done(0.0);
                if matches!(again.next, Workload::CheckpointModel { .. }) {
                    resumed.checkpoint_taken(0.0);
                }
                prop_assert_eq!(boundary.step_ended, again.step_ended);
                if batch > replayed {
                    prop_assert_eq!(boundary.next, again.next);
                }
            }
        }

        #[test]
        fn no_checkpoint_is_later_than_asked_for(times in prop::collection::vec(0.0..40.0_f64, 1..200)) {
            let mut sequencer = Sequencer::new(Plan { checkpoint_period: None, ..PLAN }, 0);
            let (mut now_s, mut last) = (0.0, None);
            for elapsed in times {
                now_s += elapsed;
                let is_due = matches!(sequencer.batch_done(now_s).next, Workload::CheckpointModel { .. });
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
