//! Reads what a run shows and leaves: its journal, and the state in its checkpoints.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use pedl_core::checkpoint::{Checkpoint, Store, Tensor};
use pedl_core::events::FILE_NAME;
use serde_json::Value;

/// The journal of a trial, read as it grows.
#[derive(Debug, Default)]
pub(super) struct Journal {
    path: PathBuf,
    read_bytes: usize,
    /// All events so far.
    pub(super) events: Vec<Value>,
}

impl Journal {
    pub(super) fn new(trial_dir: &Path) -> Self {
        Self {
            path: trial_dir.join(FILE_NAME),
            ..Self::default()
        }
    }

    /// Reads new events. A line that a kill has torn is no event.
    pub(super) fn look(&mut self) {
        let Ok(metadata) = self.path.metadata() else {
            return;
        };
        if metadata.len() == self.read_bytes as u64 {
            return;
        }
        let Ok(text) = fs::read(&self.path) else {
            return;
        };
        let new = text.get(self.read_bytes..).unwrap_or_default();
        let whole = new
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |at| at + 1);
        let lines = new[..whole].split(|&byte| byte == b'\n');
        self.events
            .extend(lines.filter_map(|line| serde_json::from_slice(line).ok()));
        self.read_bytes += whole;
    }

    /// The number of events with a name.
    pub(super) fn count(&self, name: &str) -> usize {
        self.of(name).count()
    }

    /// The events with a name, with their places among all.
    pub(super) fn of(&self, name: &str) -> impl DoubleEndedIterator<Item = (usize, &Value)> {
        let events = self.events.iter().enumerate();
        events.filter(move |(_, event)| event["event"] == name)
    }

    /// The batch of the newest checkpoint; 0: none.
    pub(super) fn newest_checkpoint(&self) -> u64 {
        self.of("checkpoint")
            .next_back()
            .map_or(0, |(_, event)| batch_of(event))
    }

    /// The epoch in which a checkpoint was taken.
    pub(super) fn epoch_of(&self, batch: u64) -> Option<u64> {
        self.of("checkpoint")
            .find(|(_, event)| batch_of(event) == batch)
            .and_then(|(_, event)| event["epoch"].as_u64())
    }
}

/// The batch that an event is about.
pub(super) fn batch_of(event: &Value) -> u64 {
    event["batch"].as_u64().unwrap_or(0)
}

/// The state of a trial at one batch: the hash of each tensor, and everything else.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct State {
    pub(super) batch: u64,
    pub(super) tensors: BTreeMap<String, TensorFact>,
    pub(super) rest: Value,
}

/// One tensor of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TensorFact {
    pub(super) dtype: String,
    pub(super) shape: Vec<usize>,
    pub(super) hash: blake3::Hash,
    /// The value of a scalar, as text.
    pub(super) scalar: Option<String>,
}

impl TensorFact {
    fn of(tensor: &Tensor) -> Self {
        Self {
            dtype: tensor.dtype.clone(),
            shape: tensor.shape.clone(),
            hash: blake3::hash(&tensor.bytes),
            scalar: tensor.shape.is_empty().then(|| scalar(tensor)).flatten(),
        }
    }
}

fn scalar(Tensor { dtype, bytes, .. }: &Tensor) -> Option<String> {
    Some(match dtype.as_str() {
        "float32" => f32::from_le_bytes(bytes.as_slice().try_into().ok()?).to_string(),
        "float64" => f64::from_le_bytes(bytes.as_slice().try_into().ok()?).to_string(),
        "int32" => i32::from_le_bytes(bytes.as_slice().try_into().ok()?).to_string(),
        "int64" => i64::from_le_bytes(bytes.as_slice().try_into().ok()?).to_string(),
        "uint32" => u32::from_le_bytes(bytes.as_slice().try_into().ok()?).to_string(),
        _ => return None,
    })
}

impl State {
    fn of(checkpoint: &Checkpoint) -> Self {
        let tensors = checkpoint.tensors.iter();
        Self {
            batch: checkpoint.manifest.batch,
            tensors: tensors
                .map(|tensor| (tensor.name.clone(), TensorFact::of(tensor)))
                .collect(),
            rest: serde_json::from_str(&checkpoint.state).unwrap_or(Value::Null),
        }
    }

    /// The state in the newest complete checkpoint.
    pub(super) fn newest(trial_dir: &Path) -> Option<Self> {
        let newest = Store::open(trial_dir).newest().ok()?;
        newest.checkpoint.as_ref().map(Self::of)
    }

    /// The state after a batch, if there is a checkpoint of it.
    pub(super) fn of_batch(trial_dir: &Path, batch: u64) -> Option<Self> {
        let checkpoint = Store::open(trial_dir).load(batch).ok()?;
        Some(Self::of(&checkpoint))
    }

    /// The name of a tensor for people: the path of the variable, if the state contains it.
    pub(super) fn name_of(&self, tensor: &str) -> String {
        let (provider, key) = tensor.split_once('/').unwrap_or(("", tensor));
        if provider == "streams" {
            return match key {
                "numpy" => "the stream of `numpy.random`".to_owned(),
                "python" => "the stream of `random`".to_owned(),
                other => format!("the stream `{other}`"),
            };
        }
        let path = self.rest[provider]["paths"][key].as_str();
        // For a TensorFlow session, a number precedes the name.
        let of_session = key
            .split_once('/')
            .filter(|it| it.0.bytes().all(|b| b.is_ascii_digit()));
        let key = of_session.map_or(key, |(_, name)| name);
        path.unwrap_or(key).to_owned()
    }
}
