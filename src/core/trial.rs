//! A trial: its identity, and the message with which the host starts it.
//!
//! The host (`pedl-run`) and the extension module (`_pedl`) have separate copies of this crate.
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

/// The signal with which a forked child that `--exact` refuses ends the trial process, if the
/// process cannot handle the refusal itself. It is a real-time signal that no other program sends.
pub const REFUSED_SIGNAL: i32 = 57;

/// The message of the host to a trial process, as one JSON object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// [`LAUNCH_SCHEMA`].
    pub schema: u32,
    /// The trial directory, absolute; it may not exist yet.
    pub trial_dir: PathBuf,
    /// The script and its arguments, as typed; together with `hyperparameters`, the identity of the
    /// command.
    pub command: Vec<String>,
    /// Options of Python in front of the script; recorded, not part of the identity.
    pub python_options: Vec<String>,
    /// Number of the trial in its experiment.
    pub trial_id: u64,
    /// The experiment it belongs to.
    pub experiment_id: u64,
    /// Seed of everything that the script does not seed, below 2³¹.
    pub trial_seed: u32,
    /// The value of `PYTHONHASHSEED` for this trial.
    pub hash_seed: u32,
    /// The directory in which the script starts, absolute; `None` if that is gone.
    #[serde(default)]
    pub started_in: Option<PathBuf>,
    /// Hyperparameters by name.
    pub hyperparameters: serde_json::Map<String, serde_json::Value>,
    /// Checksums of the parts of the experiment configuration that decide what is trained, by
    /// field; together with `command`, the identity of the trial. Empty without a configuration.
    #[serde(default)]
    pub configuration: BTreeMap<String, String>,
    /// The seed from which hyperparameters and seeds were drawn.
    #[serde(default)]
    pub experiment_seed: Option<u32>,
    /// Batches in one step.
    pub batches_per_step: u64,
    /// Steps of the trial; `None`: the training loop of the script decides.
    #[serde(default)]
    pub steps: Option<u64>,
    /// Validate this many steps after the last validation; `None`: only when the script does.
    #[serde(default)]
    pub validation_period: Option<u64>,
    /// How validations are compared, and what follows; `None`: they are not compared.
    #[serde(default)]
    pub search: Option<Search>,
    /// A checkpoint every this many steps; `None`: only by time.
    pub checkpoint_period: Option<u64>,
    /// A checkpoint is due after this many seconds.
    pub checkpoint_seconds: f64,
    /// The longest time, in seconds, from a signal that asks for the end to the end.
    #[serde(default = "grace_seconds")]
    pub grace_seconds: f64,
    /// Seconds that a worker process may take to build an item of a data set; `None`: no limit.
    #[serde(default)]
    pub worker_timeout: Option<f64>,
    /// Additional checkpoints after exactly these batches.
    #[serde(default)]
    pub checkpoint_batches: Vec<CheckpointBatch>,
    /// Whether the conditions of exact resume are enforced, and a run that cannot be exact is
    /// refused.
    pub exact: bool,
    /// The size in bytes above which `calls.log` stops the run.
    pub log_limit_bytes: u64,
    /// Libraries without hooks.
    pub no_hooks: Vec<String>,
    /// `text` or `json`.
    pub log_format: String,
    /// The open file that gets the events too.
    #[serde(default)]
    pub events: Option<Target>,
    /// -1 quiet, 0 normal, 1 verbose.
    pub verbosity: i8,
    /// Size of the thread pools of mathematics libraries.
    pub threads: u32,
    /// Messages for the start of the trial.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The trial that has ended or was given up, by its inode (`directory::inode`): it is moved
    /// aside when this one begins.
    #[serde(default)]
    pub replaces: Option<u64>,
    /// Whether the trial was begun before this process was started.
    pub resume: bool,
    /// The trial process for which this one starts workers; `None`: this is the trial process
    /// itself.
    #[serde(default)]
    pub serves: Option<i32>,
    /// The number of restarts by this supervisor.
    pub attempt: u32,
    /// The directory with `_pedl`, `pedl` and `py_hooks`.
    pub library: PathBuf,
    /// `embed` or `exec`.
    pub mode: String,
    /// How a script stays the trial process if it replaces itself by another run (`os.execv`).
    #[serde(default)]
    pub again: Option<Again>,
}

/// The data that make a process of this executable the trial process again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Again {
    /// The process of the supervisor, which runs this executable.
    pub supervisor: i32,
    /// Name and value of the environment variable for the Rust side of a trial process.
    pub start: (String, String),
    /// The directory that must be first on `PYTHONPATH`, if any.
    pub boot_site: Option<PathBuf>,
}

/// The default grace period: below the 30 s after which Kubernetes and Slurm send SIGKILL.
pub const GRACE_SECONDS: f64 = 25.0;

fn grace_seconds() -> f64 {
    GRACE_SECONDS
}

/// How validations are used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Search {
    /// The metric by which they are compared.
    pub metric: String,
    /// Whether a smaller value is better.
    pub smaller_is_better: bool,
    /// Which of them are followed by a checkpoint.
    pub checkpoint_policy: CheckpointPolicy,
    /// Which checkpoints are kept.
    #[serde(default)]
    pub retention: Retention,
}
