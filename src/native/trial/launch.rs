//! What the launch message says, as the hooks see it.

use std::borrow::Cow;
use std::process;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::Trial;

#[pymethods]
impl Trial {
    /// The launch message, JSON.
    #[getter]
    fn launch(&self, py: Python<'_>) -> Py<PyString> {
        self.launch_text.clone_ref(py)
    }

    /// The trial directory, absolute.
    #[getter]
    fn directory(&self) -> Cow<'_, str> {
        self.launch.trial_dir.to_string_lossy()
    }

    /// The hyperparameters by name, JSON; `{}` if there are none.
    #[getter]
    fn hyperparameters(&self) -> PyResult<String> {
        serde_json::to_string(&self.launch.hyperparameters)
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Seed of everything that the script leaves unseeded, below 2**31.
    #[getter]
    fn seed(&self) -> u32 {
        self.launch.trial_seed
    }

    /// Size of the thread pools of mathematics libraries.
    #[getter]
    fn threads(&self) -> u32 {
        self.launch.threads
    }

    /// Seconds that a worker process may take to build an item of a data set; None for no limit.
    #[getter]
    fn worker_timeout(&self) -> Option<f64> {
        self.launch.worker_timeout
    }

    /// Whether a run that cannot be exact is refused.
    #[getter]
    fn exact(&self) -> bool {
        self.launch.exact
    }

    /// Libraries that are left alone.
    #[getter]
    fn no_hooks(&self) -> Vec<String> {
        self.launch.no_hooks.clone()
    }

    /// Whether the configuration or `--steps` decides how long the trial trains, or when it is
    /// validated.
    #[getter]
    fn has_plan(&self) -> bool {
        self.launch.steps.is_some() || self.launch.search.is_some()
    }

    /// Whether validations are compared: there is a configuration.
    #[getter]
    fn has_search(&self) -> bool {
        self.launch.search.is_some()
    }

    /// Whether the trial had begun before this process was started.
    #[getter]
    fn resume(&self) -> bool {
        self.launch.resume
    }

    /// How this process differs from the one that began the trial that it resumes, short texts.
    #[getter]
    fn changes(&self) -> Vec<String> {
        if self.is_inert() {
            return Vec::new();
        }
        self.training().changes().to_vec()
    }

    /// The trial process for which this process starts workers; None: it is the trial process.
    #[getter]
    fn serves(&self) -> Option<i32> {
        self.launch.serves
    }

    /// Whether this process was forked from the one that this was made in.
    #[getter]
    pub(super) fn is_child(&self) -> bool {
        self.process != process::id()
    }
}
