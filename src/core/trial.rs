//! A trial: its identity, and the message with which the host starts it.
//!
//! The host (`pedl-run`) and the extension module (`_pedl`) each have their own copy of this crate.
//! They share *data*, the JSON text of [`Launch`], and never memory or statics.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::event_stream::Target;
use crate::retention::Retention;
use crate::sequencer::{CheckpointBatch, CheckpointPolicy};

/// The version of the launch message.
pub const LAUNCH_SCHEMA: u32 = 1;

/// The environment variable that carries the launch message to a trial process.
pub const LAUNCH_VARIABLE: &str = "PEDL_LAUNCH";

/// The signal by which a forked child that `--exact` refuses ends the trial process, where that cannot handle it. A real-time
/// signal that nobody else sends.
pub const REFUSED_SIGNAL: i32 = 57;

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
    /// Where the script starts, absolute; `None` where that is gone.
    #[serde(default)]
    pub started_in: Option<PathBuf>,
    /// Hyperparameters by name.
    pub hyperparameters: serde_json::Map<String, serde_json::Value>,
    /// Checksums of the parts of the experiment configuration that decide what is trained, by field; with
    /// `command` the identity of the trial. Empty without one.
    #[serde(default)]
    pub configuration: BTreeMap<String, String>,
    /// What hyperparameters and seeds were drawn from.
    #[serde(default)]
    pub experiment_seed: Option<u32>,
    /// Batches in one step.
    pub batches_per_step: u64,
    /// Steps of the trial; `None`: as many as the script's own loop makes.
    #[serde(default)]
    pub steps: Option<u64>,
    /// Validate when the last validation is so many steps ago; `None`: only when the script does.
    #[serde(default)]
    pub validation_period: Option<u64>,
    /// By what validations are compared, and what follows from it; `None`: they are not looked at.
    #[serde(default)]
    pub search: Option<Search>,
    /// A checkpoint every so many steps; `None`: only by time.
    pub checkpoint_period: Option<u64>,
    /// A checkpoint is due after so many seconds.
    pub checkpoint_seconds: f64,
    /// The longest wait, in seconds, between a signal that asks for the end and the end.
    #[serde(default = "grace_seconds")]
    pub grace_seconds: f64,
    /// Seconds that a worker process may build an item of a data set; `None`: any.
    #[serde(default)]
    pub worker_timeout: Option<f64>,
    /// A checkpoint after exactly these batches, besides.
    #[serde(default)]
    pub checkpoint_batches: Vec<CheckpointBatch>,
    /// Whether what exact resume needs is imposed, and a run that cannot be exact refused.
    pub exact: bool,
    /// The size in bytes above which `calls.log` stops the run.
    pub log_limit_bytes: u64,
    /// Libraries that are left alone.
    pub no_hooks: Vec<String>,
    /// `text` or `json`.
    pub log_format: String,
    /// The open file that gets the events as well.
    #[serde(default)]
    pub events: Option<Target>,
    /// -1 quiet, 0 normal, 1 verbose.
    pub verbosity: i8,
    /// Size of the thread pools of mathematics libraries.
    pub threads: u32,
    /// What is said when the trial begins.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The trial that is over or given up, by its inode (`directory::inode`): it is moved aside when this
    /// one begins.
    #[serde(default)]
    pub replaces: Option<u64>,
    /// Whether the trial was begun before this process was started.
    pub resume: bool,
    /// The trial process for which this one starts workers; `None`: it is the trial process itself.
    #[serde(default)]
    pub serves: Option<i32>,
    /// How often this supervisor has restarted the trial.
    pub attempt: u32,
    /// The directory with `_pedl`, `pedl` and `py_hooks`.
    pub library: PathBuf,
    /// `embed` or `exec`.
    pub mode: String,
    /// How a script that replaces itself by another run of itself (`os.execv`) stays the trial process.
    #[serde(default)]
    pub again: Option<Again>,
}

/// What makes a process of this executable the trial process once more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Again {
    /// The process of the supervisor, whose executable it is.
    pub supervisor: i32,
    /// Name and value of the environment variable for the Rust side of a trial process.
    pub start: (String, String),
    /// What has to be first on `PYTHONPATH`, if anything has.
    pub boot_site: Option<PathBuf>,
}

/// The grace where nobody says how long it is: below the 30 s after which Kubernetes and Slurm send SIGKILL.
pub const GRACE_SECONDS: f64 = 25.0;

fn grace_seconds() -> f64 {
    GRACE_SECONDS
}

/// What is made of validations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Search {
    /// The metric by which they are compared.
    pub metric: String,
    /// Whether it is to be small.
    pub smaller_is_better: bool,
    /// Which of them are followed by a checkpoint.
    pub checkpoint_policy: CheckpointPolicy,
    /// Which checkpoints stay.
    #[serde(default)]
    pub retention: Retention,
}
