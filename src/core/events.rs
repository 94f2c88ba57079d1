//! `events.jsonl`: the journal of a trial, for people and tools. One JSON object per line.
//!
//! [`KINDS`](crate::event_kinds::KINDS) lists the events with their members;
//! `pedl reference events` prints it. Every event has `schema` (1), `time` (RFC 3339, UTC,
//! milliseconds) and `event`.
//!
//! Lines are appended whole. A crash can tear only the last one, which then has no newline.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::sys::signal::Signal;
use serde_json::{Map, Value, json};

use crate::error::Result;
use crate::event_stream::Stream;
use crate::file;

/// The version of the events.
pub const SCHEMA: u32 = 1;

/// The name of the journal in a trial directory.
pub const FILE_NAME: &str = "events.jsonl";

/// The event of a run that ends because of a signal.
pub const PREEMPTED: &str = "preempted";

/// The event of a script that ended by itself before such a signal took effect.
pub const OUTLIVED: &str = "outlived";

/// The event of a script that handles such a signal, and continues to train.
pub const TRAINED_ON: &str = "trained_on";

/// The time now, RFC 3339 in UTC with milliseconds.
pub fn now() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

/// The journal of one trial, open for appending.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: fs::File,
    /// Receives the same events.
    stream: Option<Stream>,
}

impl Journal {
    /// Opens the journal of a trial directory, which must exist. A torn last line is closed first.
    pub fn open(trial_dir: &Path) -> Result<Self> {
        let path = trial_dir.join(FILE_NAME);
        let torn = fs::read(&path).is_ok_and(|text| text.last().is_some_and(|&b| b != b'\n'));
        let opened = OpenOptions::new().create(true).append(true).open(&path);
        let mut file = file::check("open", &path, opened)?;
        if torn {
            file::check("write", &path, file.write_all(b"\n"))?;
        }
        Ok(Self {
            path,
            file,
            stream: None,
        })
    }

    /// Sends each event to a stream too.
    pub fn stream_to(&mut self, stream: Option<Stream>) {
        self.stream = stream;
    }

    /// Returns the stream.
    pub fn into_stream(self) -> Option<Stream> {
        self.stream
    }

    /// Appends one event.
    pub fn append(&mut self, event: &str, mut fields: Map<String, Value>) -> Result<()> {
        fields.insert("schema".into(), SCHEMA.into());
        fields.insert("time".into(), now().into());
        fields.insert("event".into(), event.into());
        let line = format!("{}\n", Value::Object(fields));
        let written = self.file.write_all(line.as_bytes());
        if let Some(stream) = &mut self.stream {
            stream.send(&line);
        }
        file::check("write", &self.path, written)
    }

    /// Makes the journal durable.
    pub fn sync(&self) -> Result<()> {
        file::check("sync", &self.path, self.file.sync_data())
    }
}

/// The name of a signal in the journal and in every message: `SIGTERM`, or `signal 40` if it has no
/// name.
pub fn signal_name(signal: i32) -> String {
    Signal::try_from(signal).map_or_else(|_| format!("signal {signal}"), |known| known.to_string())
}

/// A number in the form of the journal.
pub(crate) fn number(value: f64) -> Value {
    if value.is_finite() {
        json!(value)
    } else if value.is_nan() {
        json!("nan")
    } else {
        json!(if value > 0.0 { "inf" } else { "-inf" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_json_does_not_have_are_text() {
        let numbers = [0.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(number);
        assert_eq!(json!(numbers), json!([0.5, "nan", "inf", "-inf"]));
    }

    #[test]
    fn signals_are_named_as_people_write_them() {
        assert_eq!(
            [15, 10, 40].map(signal_name),
            ["SIGTERM", "SIGUSR1", "signal 40"]
        );
    }

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
