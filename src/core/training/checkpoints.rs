//! The checkpoints of a training: the one that it resumes from, and those that it takes.

use std::path::{Path, PathBuf};

use super::{Training, not_begun};
use crate::checkpoint::{Checkpoint, Snapshot, Tensor};
use crate::error::Result;
use crate::saver::{Commit, Ended};

impl Training {
    /// The checkpoint that this process resumes from.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.begun.as_ref()?.checkpoint.as_ref()
    }

    /// Takes the arrays of the checkpoint, once. Return their memory with [`Training::reuse`].
    pub fn take_tensors(&mut self) -> Vec<Tensor> {
        let checkpoint = self
            .begun
            .as_mut()
            .and_then(|begun| begun.checkpoint.as_mut());
        checkpoint
            .map(|checkpoint| std::mem::take(&mut checkpoint.tensors))
            .unwrap_or_default()
    }

    /// Keeps tensors so that the next checkpoint can use their memory.
    pub fn reuse(&mut self, tensors: Vec<Tensor>) {
        if let Some(begun) = &mut self.begun {
            begun.saver.reuse(tensors);
        }
    }

    /// Restores a file from the checkpoint. Returns whether the checkpoint has it.
    ///
    /// # Errors
    ///
    /// Storage.
    pub fn restore_file(&self, path: &Path) -> Result<bool> {
        match self.checkpoint() {
            Some(checkpoint) => checkpoint.restore_file(path),
            None => Ok(false),
        }
    }

    /// Tensors of an earlier checkpoint, whose memory can be used for the next.
    pub fn used_tensors(&mut self) -> Vec<Tensor> {
        self.begun
            .as_mut()
            .map(|begun| begun.saver.used_tensors())
            .unwrap_or_default()
    }

    /// Takes a checkpoint of the state after the last appended call.
    ///
    /// Args:
    ///     `epoch`: of the last batch, from 0; none in a training loop of the script.
    ///     `tensors`: the arrays, copied.
    ///     `state`: the rest, JSON.
    ///     `files`: files of the script that belong to it; those that do not exist are left out.
    ///
    /// # Errors
    ///
    /// Storage, of the log, or if too many checkpoints in a row could not be written, including the
    /// one before this; or something that cannot be stored at all.
    pub fn save(
        &mut self,
        epoch: Option<u64>,
        tensors: Vec<Tensor>,
        state: String,
        files: Vec<PathBuf>,
    ) -> Result<()> {
        let begun = self.begun.as_mut().ok_or_else(not_begun)?;
        let mark = self.calls.mark()?;
        let snapshot = Snapshot {
            batch: begun.sequencer.batches(),
            step: begun.sequencer.steps(),
            epoch,
            calls: mark.calls,
            log_offset: mark.offset,
            state,
            tensors,
            files,
            validations: begun.sequencer.validations().clone(),
            retention: self.launch.search.as_ref().map(|search| search.retention),
        };
        begun.saver.save(snapshot, self.calls.file()?)?;
        begun.sequencer.checkpoint_taken(begun.now_s);
        Ok(())
    }

    /// Whether a checkpoint is being written.
    pub fn is_saving(&self) -> bool {
        self.begun
            .as_ref()
            .is_some_and(|begun| begun.saver.is_saving())
    }

    /// The commit that writes a checkpoint, so that the caller can wait for it without holding the
    /// training.
    pub fn take_commit(&mut self) -> Option<Commit> {
        self.begun.as_mut()?.saver.take_commit()
    }

    /// Takes the result of [`Training::take_commit`]. Returns whether the checkpoint was written;
    /// if it was not, that was reported, and the training may continue.
    ///
    /// # Errors
    ///
    /// Why the training must not continue.
    pub fn end_commit(&mut self, ended: Ended) -> Result<bool> {
        self.begun.as_mut().ok_or_else(not_begun)?.saver.end(ended)
    }
}
