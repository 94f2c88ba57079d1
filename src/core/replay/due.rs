//! What is due after a call.

use crate::workload::Step;

/// What ended with a batch, and what is due after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is due or not, whatever the others are"
)]
pub struct Due {
    /// The step that ended with this batch.
    pub step_ended: Option<Step>,
    /// A validation of the model is due.
    pub validation: bool,
    /// A checkpoint is due.
    pub checkpoint: bool,
    /// It must be of this very batch, so the caller waits for what prevents it.
    pub checkpoint_wanted: bool,
    /// It was the last batch of the trial, or a later one.
    pub is_last: bool,
    /// The batch was trained before the checkpoint that this process resumes from.
    pub is_repeated: bool,
}
