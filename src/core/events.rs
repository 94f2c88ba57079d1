//! `events.jsonl`: the journal of a trial, for people and tools. One JSON object in a line.
//!
//! Schema 1. Every event has `schema` (1), `time` (RFC 3339, UTC, milliseconds) and `event`:
//!
//! | `event` | further fields | when |
//! |---|---|---|
//! | `trial_begun` | `exact_resume` (bool), `causes` (strings) | first intercepted call of a start |
//! | `resumed` | `batch`, `calls`, `checkpoint` (name) | a replay reached its checkpoint |
//! | `step` | `step`, `batches` ([first, last], from 1), `epoch` (from 0), `metrics` (name → mean over the step's batches), `seconds` | a step ended |
//! | `checkpoint` | `batch`, `step`, `name`, `bytes`, `seconds` | a checkpoint was committed |
//! | `checkpoint_failed` | `batch`, `error` | a checkpoint could not be written |
//! | `not_exact` | `cause` | something was met that cannot be resumed exactly |
//! | `restart` | `signal`, `attempt` | the supervisor started the trial process again |
//! | `trial_ended` | `exit_code` or `signal` | the trial is over |
//!
//! Lines are appended whole; a crash can tear only the last one, which then has no newline. A reader
//! ignores a torn last line. The journal reaches the disk with each checkpoint.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::{Map, Value};

use crate::{Error, Result};

/// The version of the events.
pub const SCHEMA: u32 = 1;

/// The name of the journal in a trial directory.
pub const FILE_NAME: &str = "events.jsonl";

/// The time now, RFC 3339 in UTC with milliseconds.
pub fn now() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

/// The journal of one trial, open for appending.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Opens the journal of a trial directory, which must exist. A torn last line is closed first.
    pub fn open(trial_dir: &Path) -> Result<Self> {
        let path = trial_dir.join(FILE_NAME);
        let torn = std::fs::read(&path).is_ok_and(|text| text.last().is_some_and(|&b| b != b'\n'));
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(|error| Error::io("open", &path, &error))?;
        if torn {
            file.write_all(b"\n")
                .map_err(|error| Error::io("write", &path, &error))?;
        }
        Ok(Self { path, file })
    }

    /// Appends one event.
    pub fn append(&mut self, event: &str, mut fields: Map<String, Value>) -> Result<()> {
        fields.insert("schema".into(), SCHEMA.into());
        fields.insert("time".into(), now().into());
        fields.insert("event".into(), event.into());
        let line = format!("{}\n", Value::Object(fields));
        self.file
            .write_all(line.as_bytes())
            .map_err(|error| Error::io("write", &self.path, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_after_a_torn_line_is_a_line_of_its_own() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join(FILE_NAME), b"{\"event\":\"step\"").expect("written");
        let mut journal = Journal::open(dir.path()).expect("opened");
        journal.append("resumed", Map::new()).expect("appended");
        let text = std::fs::read_to_string(dir.path().join(FILE_NAME)).expect("read");
        let last: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
        assert_eq!(last["event"], "resumed");
        assert_eq!(last["schema"], 1);
    }
}
