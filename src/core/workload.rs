//! Workloads: the units of work of a trial.

use std::fmt;

/// A fixed number of batches, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Number of the step in the trial, from 1.
    pub number: u64,
    /// Its first batch, from 1.
    pub first_batch: u64,
    /// Its last batch.
    pub last_batch: u64,
}

/// What the sequencer requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Train the batches of a step, or the rest of them.
    RunStep(Step),
    /// Evaluate the model after this many steps.
    ComputeValidationMetrics {
        /// Completed steps.
        step: u64,
    },
    /// Save the model at a batch, which may lie inside a step.
    CheckpointModel {
        /// Completed batches.
        batch: u64,
    },
    /// Stop training.
    Terminate,
}

impl fmt::Display for Workload {
    /// The name in journals.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::RunStep(_) => "RUN_STEP",
            Self::ComputeValidationMetrics { .. } => "COMPUTE_VALIDATION_METRICS",
            Self::CheckpointModel { .. } => "CHECKPOINT_MODEL",
            Self::Terminate => "TERMINATE",
        })
    }
}
