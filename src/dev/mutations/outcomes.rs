//! Outcomes of mutations, kept in a file below the target directory for later runs.
//!
//! The key of an outcome is a hash of the mutation, of its file and of the file of the test.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::{Mutation, Verdict};
use crate::failure::{At as _, Failure, Result};

/// A line of the file of outcomes.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Outcome {
    key: String,
    pub(super) verdict: Verdict,
    pub(super) remark: String,
}

/// All outcomes that are known.
pub(super) struct Outcomes {
    /// The root of the repository.
    root: PathBuf,
    path: PathBuf,
    known: Mutex<BTreeMap<String, Outcome>>,
}

impl Outcomes {
    /// Reads the file with the outcomes, if there is one.
    pub(super) fn read(root: PathBuf, path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).unwrap_or_default();
        // A line that was cut off is an unknown outcome.
        let known = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Outcome>(line).ok())
            .map(|outcome| (outcome.key.clone(), outcome))
            .collect();
        Self {
            root,
            path,
            known: Mutex::new(known),
        }
    }

    /// The outcome of a mutation, if it is known.
    pub(super) fn get(&self, mutation: &Mutation) -> Result<Option<Outcome>> {
        let key = self.key_of(mutation)?;
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(known.get(&key).cloned())
    }

    /// Keeps an outcome for later runs.
    pub(super) fn keep(&self, mutation: &Mutation, verdict: Verdict, remark: &str) -> Result<()> {
        let outcome = Outcome {
            key: self.key_of(mutation)?,
            verdict,
            remark: remark.to_owned(),
        };
        let line = serde_json::to_string(&outcome)
            .map_err(|error| Failure::new(format!("an outcome cannot be written: {error}")))?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(&self.path)
            .at("open", &self.path)?;
        file.write_all(format!("{line}\n").as_bytes())
            .at("write", &self.path)?;
        known.insert(outcome.key.clone(), outcome);
        Ok(())
    }

    /// The key of an outcome.
    fn key_of(&self, mutation: &Mutation) -> Result<String> {
        let mut hash = blake3::Hasher::new();
        let text = serde_json::to_string(mutation)
            .map_err(|error| Failure::new(format!("a mutation cannot be written: {error}")))?;
        hash.update(text.as_bytes());
        for file in [&mutation.file, &mutation.of] {
            let path = self.root.join(file);
            hash.update(&fs::read(&path).at("read", &path)?);
        }
        Ok(hash.finalize().to_hex()[..16].to_owned())
    }
}
