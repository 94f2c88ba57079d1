//! A trial: its identity, and the message with which the host starts it.
//!
//! The host (`pedl-run`) and the extension module (`_pedl`) each have their own copy of this crate.
//! They share *data*, the JSON text of [`Launch`], and never memory or statics.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The version of the launch message.
pub const LAUNCH_SCHEMA: u32 = 1;

/// The environment variable that carries the launch message to a trial process.
pub const LAUNCH_VARIABLE: &str = "PEDL_LAUNCH";

/// What the host tells a trial process, as one JSON object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// [`LAUNCH_SCHEMA`].
    pub schema: u32,
    /// The trial directory, absolute; it may not exist yet.
    pub trial_dir: PathBuf,
    /// The script and its arguments, as typed; with `hyperparameters` the identity of the command.
    pub command: Vec<String>,
    /// Options of Python in front of the script; recorded, not part of the identity.
    pub python_options: Vec<String>,
    /// Which trial of its experiment this is.
    pub trial_id: u64,
    /// The experiment it belongs to.
    pub experiment_id: u64,
    /// Seed of everything the script leaves unseeded, below 2³¹.
    pub trial_seed: u32,
    /// What `PYTHONHASHSEED` is for this trial.
    pub hash_seed: u32,
    /// Hyperparameters by name.
    pub hyperparameters: serde_json::Map<String, serde_json::Value>,
    /// Batches in one step.
    pub batches_per_step: u64,
    /// A checkpoint every so many steps; `None`: only by time.
    pub checkpoint_period: Option<u64>,
    /// A checkpoint is due after so many seconds.
    pub checkpoint_seconds: f64,
    /// Whether what exact resume needs is imposed, and a run that cannot be exact refused.
    pub exact: bool,
    /// The size in bytes above which `calls.log` stops the run.
    pub log_limit_bytes: u64,
    /// Libraries that are left alone.
    pub no_hooks: Vec<String>,
    /// `text` or `json`.
    pub log_format: String,
    /// -1 quiet, 0 normal, 1 verbose.
    pub verbosity: i8,
    /// Size of the thread pools of mathematics libraries.
    pub threads: u32,
    /// The trial that is over or given up, by its inode (`directory::inode`): it is moved aside when this
    /// one begins.
    #[serde(default)]
    pub replaces: Option<u64>,
    /// Whether the trial was begun before this process was started.
    pub resume: bool,
    /// How often this supervisor has restarted the trial.
    pub attempt: u32,
    /// The directory with `_pedl`, `pedl` and `py_hooks`.
    pub library: PathBuf,
    /// `embed` or `exec`.
    pub mode: String,
}
