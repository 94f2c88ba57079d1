//! Checkpoints of a trial for people and tools: what `pedl checkpoint` shows. Reads only, and takes
//! no lock.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};

use crate::calls::{Log, Mark};
pub use crate::checkpoint::Depth;
use crate::checkpoint::{Found, Manifest, Store};
use crate::error::Result;
use crate::events;
use crate::file;

/// No event is longer. A longer line is read in parts, each of which counts as a line that is no
/// event.
const LINE_BYTES_MAX: u64 = 4 << 20;

/// One checkpoint of a trial.
#[derive(Debug)]
pub struct Entry {
    /// The name of its folder.
    pub name: String,
    /// Batches trained before it.
    pub batch: u64,
    /// Its folder.
    pub folder: PathBuf,
    /// The table of contents, if it can be read.
    pub manifest: Option<Manifest>,
    /// The damage; empty if the checkpoint is intact.
    pub damage: Vec<String>,
    /// Metrics of the last validation after its batch, by name.
    pub metrics: Map<String, Value>,
}

impl Entry {
    /// Bytes of tensors, state and files of the script: the size of a copy of this checkpoint
    /// alone.
    pub fn bytes(&self) -> u64 {
        let Some(manifest) = &self.manifest else {
            return 0;
        };
        let tensors = manifest.tensors.iter().map(|tensor| tensor.size);
        let own = manifest.files.iter().map(|file| file.size);
        let kept = manifest.kept.iter().map(|file| file.size);
        total(tensors.chain(own).chain(kept))
    }

    /// Bytes that were written for it and that no earlier checkpoint had, without files of the
    /// script.
    pub fn new_bytes(&self) -> u64 {
        let Some(manifest) = &self.manifest else {
            return 0;
        };
        let own = manifest.files.iter().map(|file| file.size);
        total(own.chain([manifest.written]))
    }

    /// Time since it was written; `None` if it is unknown.
    pub fn age(&self) -> Option<Duration> {
        let created = &self.manifest.as_ref()?.created;
        let created = humantime::parse_rfc3339(created).ok()?;
        SystemTime::now().duration_since(created).ok()
    }
}

/// Saturates, because the sizes in a manifest are not trusted.
fn total(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

/// The checkpoints of a trial, newest first, with all damage of each. At [`Depth::Bytes`], this
/// includes the log of calls up to it.
///
/// # Errors
///
/// The trial directory cannot be read.
pub fn checkpoints(trial_dir: &Path, depth: Depth) -> Result<Vec<Entry>> {
    let mut validations = validations(trial_dir)?;
    let found = Store::open(trial_dir).inspect(depth)?;
    let entries = found.into_iter().map(|found| {
        let mut entry = entry_of(found);
        entry.metrics = validations.remove(&entry.batch).unwrap_or_default();
        if depth == Depth::Bytes {
            let damage = entry
                .manifest
                .as_ref()
                .map(|manifest| check_log(trial_dir, manifest));
            entry
                .damage
                .extend(damage.and_then(Result::err).map(|error| error.to_string()));
        }
        entry
    });
    Ok(entries.collect())
}

/// Writes state and tensors of a checkpoint, with every byte verified, to two files in a directory:
/// `state.json` and `tensors.safetensors`, with each tensor under its name.
///
/// # Errors
///
/// It does not exist, or is damaged; storage.
pub fn unpack(trial_dir: &Path, batch: u64, directory: &Path) -> Result<()> {
    let checkpoint = Store::open(trial_dir).load(batch)?;
    checkpoint.unpack(directory)
}

fn entry_of(found: Found) -> Entry {
    let name = found.folder.file_name().unwrap_or_default();
    Entry {
        name: name.to_string_lossy().into_owned(),
        batch: found.batch,
        folder: found.folder,
        manifest: found.manifest,
        damage: found.damage,
        metrics: Map::new(),
    }
}

fn check_log(trial_dir: &Path, manifest: &Manifest) -> Result<()> {
    let mark = Mark {
        offset: manifest.log_offset,
        calls: manifest.calls,
    };
    Log::check(&trial_dir.join(crate::training::LOG), mark)
}

/// Metrics by the batch after which the model was validated, from the journal.
fn validations(trial_dir: &Path) -> Result<BTreeMap<u64, Map<String, Value>>> {
    let path = trial_dir.join(events::FILE_NAME);
    let mut journal = match file::open_plain(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        opened => BufReader::new(file::check("open", &path, opened)?),
    };
    let mut validations = BTreeMap::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = journal
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line);
        if file::check("read", &path, read)? == 0 {
            break;
        }
        note_validation(&line, &mut validations);
    }
    Ok(validations)
}

/// Notes the metrics in a line, if it is a validation event.
pub(crate) fn note_validation(line: &[u8], validations: &mut BTreeMap<u64, Map<String, Value>>) {
    const NAME: &[u8] = b"\"validation\"";
    if line.windows(NAME.len()).any(|part| part == NAME)
        && let Ok(event) = serde_json::from_slice::<Value>(line)
        && let (Some("validation"), Some(batch), Some(metrics)) = (
            event["event"].as_str(),
            event["batch"].as_u64(),
            event["metrics"].as_object(),
        )
    {
        validations.insert(batch, metrics.clone());
    }
}
