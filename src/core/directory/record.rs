//! `trial.json`: the identity of a trial, and the environment in which it began.
//!
//! It is written once, when a trial begins, and read by every later start. It is written under
//! another name, synced, and renamed, so that it is never incomplete. It contains no credentials: a
//! command that has some is recognized by a salted hash.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::RECORD;
use super::refusal::{InUse, Problem, Unreadable, WrongCommand, WrongConfiguration};
use crate::error::Result;
use crate::events;
use crate::file::{self, seen_from};
use crate::secrets::{redact_values, redact_words};
use crate::trial::Launch;

/// The version of `trial.json`.
pub const SCHEMA: u32 = 1;

/// `trial.json`: the identity of a trial, and the environment in which it began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Number of the trial in its experiment.
    pub trial_id: u64,
    /// The experiment it belongs to.
    pub experiment_id: u64,
    /// Seed of everything that the script does not seed.
    pub trial_seed: u32,
    /// The value of `PYTHONHASHSEED`.
    pub hash_seed: u32,
    /// Size of the thread pools of mathematics libraries.
    pub threads: u32,
    /// The script and its arguments, without credentials.
    pub command: Vec<String>,
    /// Identifies the command again, if credentials were left out of it or of its hyperparameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_hash: Option<CommandHash>,
    /// Options of Python in front of the script.
    pub python_options: Vec<String>,
    /// Hyperparameters by name, without credentials.
    #[serde(default)]
    pub hyperparameters: Map<String, Value>,
    /// Checksums of the parts of its experiment configuration, by field; empty without one.
    #[serde(default)]
    pub configuration: BTreeMap<String, String>,
    /// The seed from which hyperparameters and seeds were drawn.
    #[serde(default)]
    pub experiment_seed: Option<u32>,
    /// The directory in which the script was started ([`seen_from`]); `None` if it was gone.
    #[serde(default)]
    pub started_in: Option<PathBuf>,
    /// The environment in which the trial began.
    #[serde(flatten)]
    pub facts: Facts,
    /// When it began, RFC 3339 in UTC.
    pub created: String,
    /// The version of this program that began it.
    pub pedl_version: String,
}

/// A command and its hyperparameters, recognizable but not readable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandHash {
    /// Drawn for the trial, so that nobody can see that the commands of two trials are equal.
    pub salt: String,
    /// Hash of the salt and the command.
    pub blake3: String,
}

impl CommandHash {
    /// That of a command; `None` if the command contains nothing to hide.
    fn of(command: &[String], hyperparameters: &Map<String, Value>) -> Result<Option<Self>> {
        if redact_words(command) == command && redact_values(hyperparameters) == *hyperparameters {
            return Ok(None);
        }
        let mut salt = [0; 16];
        file::check(
            "draw a salt for",
            Path::new(RECORD),
            getrandom(&mut salt, GetRandomFlags::empty()).map_err(io::Error::from),
        )?;
        let salt = hexadecimal(&salt);
        let blake3 = Self::hash(&salt, command, hyperparameters);
        Ok(Some(Self { salt, blake3 }))
    }

    fn hash(salt: &str, command: &[String], hyperparameters: &Map<String, Value>) -> String {
        let text = serde_json::to_string(&(salt, command, hyperparameters));
        let text = text.expect("it has string keys alone");
        blake3::hash(text.as_bytes()).to_string()
    }

    /// Whether the hash is of this command.
    #[must_use]
    pub fn is_of(&self, command: &[String], hyperparameters: &Map<String, Value>) -> bool {
        Self::hash(&self.salt, command, hyperparameters) == self.blake3
    }
}

/// Bytes in hexadecimal digits.
fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Roughly a command as one would type it, without credentials.
pub fn describe_command(command: &[String], hyperparameters: &Map<String, Value>) -> String {
    let hyperparameters = redact_values(hyperparameters);
    let options = hyperparameters
        .iter()
        .map(|(name, value)| format!("--hp {name}={value}"));
    options
        .chain(redact_words(command))
        .collect::<Vec<_>>()
        .join(" ")
}

/// The environment of a process, as the hooks report it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Version of Python.
    #[serde(default)]
    pub python: String,
    /// Versions of distributions by name.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
    /// The model of the processor.
    #[serde(default)]
    pub cpu: String,
}

impl Facts {
    /// The differences from the environment in which a trial began, as short texts.
    pub(super) fn changes_since(&self, begun: &Self) -> Vec<String> {
        let version = |name: &str, facts: &Self| match name {
            "python" => Some(facts.python.clone()).filter(|version| !version.is_empty()),
            "the processor" => Some(facts.cpu.clone()).filter(|model| !model.is_empty()),
            name => facts.versions.get(name).cloned(),
        };
        let names = begun.versions.keys().map(String::as_str);
        names
            .chain(["python", "the processor"])
            .filter_map(|name| Some((name, version(name, begun)?, version(name, self)?)))
            .filter(|(_, then, now)| then != now)
            .map(|(name, then, now)| format!("{name} was {then} and is {now}"))
            .collect()
    }
}

pub(super) fn read(directory: &Path) -> Result<Option<TrialRecord>> {
    let path = directory.join(RECORD);
    let Some(text) = file::read_text(&path)? else {
        return Ok(None);
    };
    let record: TrialRecord = serde_json::from_str(&text).map_err(|source| Unreadable {
        path: path.clone(),
        problem: Problem::Malformed(source),
    })?;
    if record.schema != SCHEMA {
        let (found, known) = (record.schema, SCHEMA);
        let problem = Problem::Schema { found, known };
        return Err(Unreadable { path, problem }.into());
    }
    Ok(Some(record))
}

pub(super) fn new(launch: &Launch, facts: Facts) -> Result<TrialRecord> {
    Ok(TrialRecord {
        schema: SCHEMA,
        trial_id: launch.trial_id,
        experiment_id: launch.experiment_id,
        trial_seed: launch.trial_seed,
        hash_seed: launch.hash_seed,
        threads: launch.threads,
        command: redact_words(&launch.command),
        command_hash: CommandHash::of(&launch.command, &launch.hyperparameters)?,
        python_options: launch.python_options.clone(),
        hyperparameters: redact_values(&launch.hyperparameters),
        configuration: launch.configuration.clone(),
        experiment_seed: launch.experiment_seed,
        started_in: launch
            .started_in
            .as_deref()
            .map(|started_in| seen_from(&launch.trial_dir, started_in)),
        facts,
        created: events::now(),
        pedl_version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

pub(super) fn write(directory: &Path, record: &TrialRecord) -> Result<()> {
    let text = serde_json::to_string_pretty(record).expect("it has string keys alone");
    file::write_whole(&directory.join(RECORD), &(text + "\n"))?;
    // The directory itself must be durable as well, and `.pedl` above it, which may be just as new.
    directory
        .ancestors()
        .skip(1)
        .take(2)
        .try_for_each(file::sync_directory)
}

/// Refuses a trial that does not belong to this launch.
pub(super) fn check_command(record: &TrialRecord, launch: &Launch) -> Result<()> {
    let path = launch.trial_dir.clone();
    let is_same = match &record.command_hash {
        Some(hash) => hash.is_of(&launch.command, &launch.hyperparameters),
        // A record of an earlier version has no hash, and the full command.
        None => {
            record.command == launch.command && record.hyperparameters == launch.hyperparameters
        }
    };
    if !is_same {
        return Err(WrongCommand {
            path,
            begun: describe_command(&record.command, &record.hyperparameters),
            now: describe_command(&launch.command, &launch.hyperparameters),
        }
        .into());
    }
    if record.configuration != launch.configuration {
        let fields = differing_fields(&record.configuration, &launch.configuration);
        return Err(WrongConfiguration { path, fields }.into());
    }
    // The launch message takes these from `trial.json`, unless that was created in the meantime.
    let drawn = (launch.trial_seed, launch.hash_seed, launch.threads);
    if (record.trial_seed, record.hash_seed, record.threads) != drawn {
        return Err(InUse {
            path,
            process: None,
        }
        .into());
    }
    Ok(())
}

/// The fields in which two configurations differ, as a list for a sentence.
pub fn differing_fields(
    begun: &BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
) -> String {
    let names: BTreeSet<_> = begun.keys().chain(now.keys()).collect();
    let differing = names
        .into_iter()
        .filter(|name| begun.get(*name) != now.get(*name))
        .map(|name| format!("`{name}`"));
    differing.collect::<Vec<_>>().join(", ")
}
