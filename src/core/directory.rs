//! The trial directory: its lock, and the identity of the trial.
//!
//! `trial.json` is written once, when a trial begins, and read by every later start. It is written
//! under another name, synced, and renamed, so that it is never incomplete.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::checkpoint::{CHECKPOINTS, Store};
use crate::error::{Bug, Class, Error, Kind, Result};
use crate::events;
use crate::file::{self, Attempt, Lock};
use crate::secrets::{redact_values, redact_words};
use crate::trial::Launch;

/// The version of `trial.json`.
pub const SCHEMA: u32 = 1;

pub(crate) const RECORD: &str = "trial.json";
pub(crate) const LOCK: &str = "lock";

/// The names that identify a trial directory: the first one that is made in it, and those that a
/// trial cannot be without.
const OURS: [&str; 3] = [LOCK, RECORD, CHECKPOINTS];

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
    fn changes_since(&self, begun: &Self) -> Vec<String> {
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

/// A trial directory that this process holds.
#[derive(Debug)]
pub(crate) struct Directory {
    /// The identity of the trial.
    pub(crate) record: TrialRecord,
    /// The differences between this process and the one that began the trial.
    pub(crate) changes: Vec<String>,
    _lock: Lock,
}

impl Directory {
    /// Takes the trial directory for this process, and makes it if it does not exist. `held` is its
    /// lock, if this process has it already.
    ///
    /// # Errors
    ///
    /// It is in use; it belongs to another command; it cannot be made.
    pub(crate) fn open(launch: &Launch, facts: Facts, held: Option<Lock>) -> Result<Self> {
        let path = &launch.trial_dir;
        let cannot_create = |source| CannotCreate::new(path, source);
        if is_replaced(launch) {
            let aside = move_aside(path)?;
            tracing::info!("the trial before is kept in `{}`", aside.display());
        }
        check_place(path)?;
        file::create_directory(path).map_err(cannot_create)?;
        let lock = held.map_or_else(|| hold(path), Ok)?;
        if let Some(record) = read_record(path)? {
            check_command(&record, launch)?;
            let changes = facts.changes_since(&record.facts);
            return Ok(Self {
                record,
                changes,
                _lock: lock,
            });
        }
        if Store::has_checkpoint(path) {
            let path = path.join(RECORD);
            let problem = "it is gone, and there are checkpoints of its trial".to_owned();
            return Err(Unreadable { path, problem }.into());
        }
        let record = new_record(launch, facts).map_err(cannot_create)?;
        write_record(path, &record).map_err(cannot_create)?;
        Ok(Self {
            record,
            changes: Vec::new(),
            _lock: lock,
        })
    }
}

/// Whether a process has ever taken the trial directory.
pub(crate) fn has_lock(path: &Path) -> bool {
    path.join(LOCK).exists()
}

/// Takes the lock of an existing trial directory.
///
/// # Errors
///
/// It is in use; the file of the lock cannot be made.
pub(crate) fn hold(path: &Path) -> Result<Lock> {
    let attempt = file::lock(&path.join(LOCK)).map_err(|source| CannotCreate::new(path, source))?;
    match attempt {
        Attempt::Held(lock) => Ok(lock),
        Attempt::HeldBy(process) => {
            let path = path.to_owned();
            Err(InUse { path, process }.into())
        }
    }
}

/// Distinguishes a trial in a directory from the next one: the inode of `trial.json`, or, if that
/// is gone, of the remaining checkpoints. `None` if the directory has no trial.
pub fn inode(trial_dir: &Path) -> Option<u64> {
    let metadata = trial_dir
        .join(RECORD)
        .metadata()
        .or_else(|_| trial_dir.join(CHECKPOINTS).metadata());
    Some(metadata.ok()?.ino())
}

/// The directory in which a script was started, relative to a trial directory below it (`../..`),
/// so that both can be moved together; unchanged if the trial lies elsewhere. The files of the
/// script are named in the same way.
pub fn seen_from(trial_dir: &Path, started_in: &Path) -> PathBuf {
    match trial_dir.strip_prefix(started_in) {
        Ok(down) => down.components().map(|_| "..").collect(),
        Err(_) => started_in.to_owned(),
    }
}

/// Whether the trial in the directory is the one that this launch moves aside.
pub(crate) fn is_replaced(launch: &Launch) -> bool {
    launch.replaces.is_some() && launch.replaces == inode(&launch.trial_dir)
}

/// Renames the directory of a trial that no process runs to the first free name of `<dir>.1`,
/// `<dir>.2`, and so on; returns that name.
fn move_aside(path: &Path) -> Result<PathBuf> {
    let cannot_move = |source| CannotCreate::with("move aside the trial in", path, source);
    // Held until the directory has its new name.
    let _held = hold(path)?;
    let mut names = (1_u32..).map(|number| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    });
    let aside = names
        .find(|aside| aside.symlink_metadata().is_err())
        .ok_or_else(|| Bug(format!("there is no free name beside `{}`", path.display())))?;
    file::rename(path, &aside).map_err(cannot_move)?;
    Ok(aside)
}

/// Refuses a place where a trial must not begin: one that is no directory, and a directory with
/// other files, among which those of the trial would lie, and which would be moved aside with the
/// trial.
fn check_place(path: &Path) -> Result<()> {
    let refuse = |problem| {
        let path = path.to_owned();
        Err(NoPlace { path, problem }.into())
    };
    if path.symlink_metadata().is_err() {
        // It does not exist, or the next step reports why it cannot be examined.
        return Ok(());
    }
    if let (Err(_), Ok(target)) = (path.metadata(), path.read_link()) {
        let target = target.display();
        return refuse(format!("it is a symlink to `{target}`, which is not there"));
    }
    if !path.is_dir() {
        return refuse("it is there, and is no directory".to_owned());
    }
    let Ok(entries) = path.read_dir() else {
        // A directory that cannot be listed cannot be written to: the next step reports it.
        return Ok(());
    };
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    if names.is_empty()
        || OURS
            .iter()
            .any(|ours| names.iter().any(|name| name == ours))
    {
        return Ok(());
    }
    let first = names[0].display();
    refuse(format!(
        "it holds {} files or directories, and no trial: `{first}` ...",
        names.len()
    ))
}

fn read_record(directory: &Path) -> Result<Option<TrialRecord>> {
    let path = directory.join(RECORD);
    let Some(text) = file::read_text(&path)? else {
        return Ok(None);
    };
    let record: TrialRecord = serde_json::from_str(&text).map_err(|source| Unreadable {
        path: path.clone(),
        problem: source.to_string(),
    })?;
    if record.schema != SCHEMA {
        let problem = format!("its schema is `{}`, expected `{SCHEMA}`", record.schema);
        return Err(Unreadable { path, problem }.into());
    }
    Ok(Some(record))
}

fn new_record(launch: &Launch, facts: Facts) -> Result<TrialRecord> {
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

fn write_record(directory: &Path, record: &TrialRecord) -> Result<()> {
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
fn check_command(record: &TrialRecord, launch: &Launch) -> Result<()> {
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

/// The trial directory cannot be made, or, if a trial is in it, cannot be written to.
#[derive(Debug)]
struct CannotCreate {
    path: PathBuf,
    /// What was attempted, for example `continue the trial in`.
    what: &'static str,
    /// Its owner, if that is not this user.
    owner: Option<u32>,
    source: Error,
}

impl CannotCreate {
    fn new(path: &Path, source: Error) -> Self {
        let what = if path.join(RECORD).exists() {
            "continue the trial in"
        } else {
            "make the trial directory"
        };
        Self::with(what, path, source)
    }

    fn with(what: &'static str, path: &Path, source: Error) -> Self {
        let user = geteuid().as_raw();
        let owner = path.metadata().ok().map(|metadata| metadata.uid());
        Self {
            path: path.to_owned(),
            what,
            owner: owner.filter(|owner| is_denied(&source) && *owner != user),
            source,
        }
    }
}

impl Kind for CannotCreate {
    fn class(&self) -> Class {
        Class::CannotCreate
    }

    fn hint(&self) -> Option<String> {
        Some(hint_for(&self.source).to_owned())
    }

    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl fmt::Display for CannotCreate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = self.source.to_string().replace("\n  ", ": ");
        let (what, path) = (self.what, self.path.display());
        write!(formatter, "cannot {what} `{path}`\n  {reason}")?;
        if let Some(owner) = self.owner {
            let user = geteuid().as_raw();
            write!(
                formatter,
                "\n  it belongs to the user with the number {owner}; this is {user}"
            )?;
        }
        formatter.write_str("\n  the run was stopped before it trained")
    }
}

/// What would help if a failure of the file system prevents a trial.
pub(crate) fn hint_for(error: &Error) -> &'static str {
    match kind_of(error) {
        Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
            "make room there and run the same command again, or name another directory with `--trial-dir DIR`"
        }
        Some(io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => {
            "let this user read and write there, or name another directory with `--trial-dir DIR`"
        }
        _ => "name another directory with `--trial-dir DIR`",
    }
}

/// The kind of error of the system, if an error is of the file system.
fn kind_of(error: &Error) -> Option<io::ErrorKind> {
    let system = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    system.map(io::Error::kind)
}

fn is_denied(error: &Error) -> bool {
    kind_of(error) == Some(io::ErrorKind::PermissionDenied)
}

/// A trial cannot be kept in this place.
#[derive(Debug)]
struct NoPlace {
    path: PathBuf,
    problem: String,
}

impl Kind for NoPlace {
    fn class(&self) -> Class {
        Class::CannotCreate
    }

    fn hint(&self) -> Option<String> {
        Some("name a directory that is empty, or not there yet, with `--trial-dir DIR`".to_owned())
    }
}

impl fmt::Display for NoPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "`{}` cannot be a trial directory\n  {}\n  nothing in it was changed, and the run was stopped before \
             it trained",
            self.path.display(),
            self.problem
        )
    }
}

/// Another process runs the trial.
#[derive(Debug)]
struct InUse {
    path: PathBuf,
    process: Option<i32>,
}

impl Kind for InUse {
    fn class(&self) -> Class {
        Class::TrialInUse
    }

    fn hint(&self) -> Option<String> {
        Some("wait for it, or name another directory with `--trial-dir DIR`".to_owned())
    }
}

impl fmt::Display for InUse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{}` is in use\n  ", self.path.display())?;
        match self.process {
            Some(process) => write!(formatter, "process {process} runs this trial")?,
            None => formatter.write_str("another process began this trial a moment ago")?,
        }
        formatter.write_str("\n  the run was stopped before it trained")
    }
}

/// The directory belongs to another command.
#[derive(Debug)]
struct WrongCommand {
    path: PathBuf,
    begun: String,
    now: String,
}

impl Kind for WrongCommand {
    fn class(&self) -> Class {
        Class::WrongCommand
    }

    fn hint(&self) -> Option<String> {
        let hint = "run it as it was begun to go on with it; keep both with `--trial-dir DIR`, or begin a new trial \
                    with `--fresh`";
        Some(hint.to_owned())
    }
}

impl fmt::Display for WrongCommand {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, begun, now } = self;
        write!(
            formatter,
            "`{}` belongs to another command\n  begun with: {begun}\n  run with: {now}\n  \
             nothing of the trial was changed, and the run was stopped before it trained",
            path.display()
        )
    }
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

/// The directory belongs to another experiment configuration.
#[derive(Debug)]
struct WrongConfiguration {
    path: PathBuf,
    fields: String,
}

impl Kind for WrongConfiguration {
    fn class(&self) -> Class {
        Class::WrongCommand
    }

    fn hint(&self) -> Option<String> {
        let hint = "begin a new trial with `--fresh`, or keep both with `--trial-dir DIR`";
        Some(hint.to_owned())
    }
}

impl fmt::Display for WrongConfiguration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, fields } = self;
        let path = path.display();
        write!(
            formatter,
            "`{path}` belongs to another configuration\n  it differs in: {fields}"
        )
    }
}

/// `trial.json` cannot be understood.
#[derive(Debug)]
struct Unreadable {
    path: PathBuf,
    problem: String,
}

impl Kind for Unreadable {
    fn class(&self) -> Class {
        Class::WrongCommand
    }

    fn hint(&self) -> Option<String> {
        Some("restore it from a backup, or begin a new trial with `--fresh`".to_owned())
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "cannot read `{}`\n  {}\n  nothing of the trial was changed, and the run was stopped before it trained",
            self.path.display(),
            self.problem
        )
    }
}
