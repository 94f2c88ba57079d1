//! The checkpoint that this process resumes from, and those that it takes.

use std::path::PathBuf;

use pyo3::prelude::*;

use super::{Trial, array_of, tensor_of};
use crate::error::IntoPython;

#[pymethods]
impl Trial {
    /// Whether there is a checkpoint to resume from. May be called before the trial begins, and
    /// makes nothing.
    fn has_checkpoint(&self) -> bool {
        !self.is_inert() && self.training().has_checkpoint()
    }

    /// The state that was saved with the checkpoint; None if there is no checkpoint. Before the
    /// trial begins it is that of the newest one.
    fn checkpoint_state(&self) -> Option<String> {
        if self.is_inert() {
            return None;
        }
        self.training().checkpoint_state()
    }

    /// The arrays of the checkpoint by name. They are returned once.
    fn checkpoint_tensors<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
        if self.is_inert() {
            return Ok(Vec::new());
        }
        let tensors = self.training().take_tensors();
        let arrays = tensors
            .iter()
            .map(|tensor| Ok((tensor.name.clone(), array_of(py, tensor)?)));
        let arrays = arrays.collect::<PyResult<_>>()?;
        self.training().reuse(tensors);
        Ok(arrays)
    }

    /// Takes a checkpoint of the state after the last appended call. Copies the arrays and the
    /// files; a thread writes them.
    fn save(
        &self,
        py: Python<'_>,
        epoch: Option<u64>,
        tensors: Vec<(String, Bound<'_, PyAny>)>,
        state: String,
        files: Vec<PathBuf>,
    ) -> PyResult<()> {
        if self.is_inert() {
            return Ok(());
        }
        self.wait_saved(py)?;
        let mut memory = self.training().used_tensors().into_iter();
        let tensors = tensors.into_iter().map(|(name, array)| {
            let bytes = memory.next().map(|tensor| tensor.bytes).unwrap_or_default();
            tensor_of(name, &array, bytes)
        });
        let tensors = tensors.collect::<PyResult<Vec<_>>>()?;
        py.detach(|| self.locked(|training| training.save(epoch, tensors, state, files)))
            .into_python(py)
    }

    /// Whether a checkpoint is being written.
    fn saving(&self) -> bool {
        !self.is_inert() && self.training().is_saving()
    }

    /// Waits until no checkpoint is being written. False if that checkpoint could not be written,
    /// and the training may continue nevertheless; raises if it may not.
    fn wait_saved(&self, py: Python<'_>) -> PyResult<bool> {
        if self.is_inert() {
            return Ok(true);
        }
        let Some(commit) = self.training().take_commit() else {
            return Ok(true);
        };
        let ended = py.detach(|| commit.wait());
        self.with(py, |training| training.end_commit(ended))
    }

    /// Puts the checkpoint's version of a file back. False if it has none.
    #[expect(clippy::needless_pass_by_value, reason = "it is made for this call")]
    fn restore_file(&self, py: Python<'_>, path: PathBuf) -> PyResult<bool> {
        if self.is_inert() {
            return Ok(false);
        }
        py.detach(|| self.locked(|training| training.restore_file(&path)))
            .into_python(py)
    }
}
