//! Which trial and which checkpoint a command line means.

use std::fs;
use std::path::{Path, PathBuf};

use pedl_core::checkpoint::Manifest;
use pedl_core::inspect::{self, Depth, Entry};
use pedl_core::printable::printable;

use super::{Arguments, failure_of, shown};
use crate::failure::{Exit, Failure};
use crate::supervisor::TRIALS;

pub(super) fn trial_dir(arguments: &Arguments) -> Result<PathBuf, Failure> {
    if let Some(path) = &arguments.trial_dir {
        if path.join("trial.json").is_file() {
            return Ok(path.clone());
        }
        let what = format!("`{}` is no trial directory", shown(path));
        return Err(Failure::new(Exit::Usage, what)
            .detail("expected: a directory with `trial.json`")
            .hint("name the directory that `--trial-dir` named, or one below `.pedl`"));
    }
    let mut trials = trials_below(Path::new(TRIALS));
    match trials.len() {
        1 => Ok(trials.remove(0)),
        0 => Err(
            Failure::new(Exit::Usage, format!("there is no trial below `./{TRIALS}`"))
                .hint("name the trial directory: `pedl checkpoint ACTION TRIAL_DIR`"),
        ),
        number => {
            let names = trials.iter().map(|path| format!("`{}`", shown(path)));
            let names: Vec<_> = names.collect();
            let what = format!("there are {number} trials below `./{TRIALS}`");
            Err(Failure::new(Exit::Usage, what)
                .detail(format!("there is: {}", names.join(", ")))
                .hint("name one of them: `pedl checkpoint ACTION TRIAL_DIR`"))
        }
    }
}

fn trials_below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut trials: Vec<_> = paths
        .filter(|path| path.join("trial.json").is_file())
        .collect();
    trials.sort();
    trials
}

pub(super) fn entries(
    arguments: &Arguments,
    depth: Depth,
) -> Result<(PathBuf, Vec<Entry>), Failure> {
    let trial_dir = trial_dir(arguments)?;
    let entries = inspect::checkpoints(&trial_dir, depth).map_err(failure_of)?;
    Ok((trial_dir, entries))
}

/// The checkpoint of a name (`batch-0000000200`, or `200`); the newest without one.
pub(super) fn chosen<'entries>(
    trial_dir: &Path,
    entries: &'entries [Entry],
    name: Option<&str>,
) -> Result<(&'entries Entry, &'entries Manifest), Failure> {
    let is_it = |entry: &&Entry| match name {
        Some(name) => entry.name == name || entry.batch.to_string() == name,
        None => true,
    };
    let Some(entry) = entries.iter().find(is_it) else {
        let names: Vec<_> = entries.iter().map(|entry| &entry.name[..]).collect();
        let there = if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        };
        let what = match name {
            Some(name) => format!(
                "there is no checkpoint `{}` in `{}`",
                printable(name),
                shown(trial_dir)
            ),
            None => format!("there is no checkpoint in `{}`", shown(trial_dir)),
        };
        let failure = Failure::new(Exit::Configuration, what).detail(format!("there is: {there}"));
        return Err(if names.is_empty() {
            failure.hint(
                "run the training with `--checkpoint-seconds N` or `--checkpoint-batches N,N`, below its length: the end of a \
                 script takes none",
            )
        } else {
            failure
        });
    };
    if let Some(manifest) = &entry.manifest {
        return Ok((entry, manifest));
    }
    let what = format!("checkpoint `{}` cannot be read", entry.name);
    let failure = Failure::new(Exit::Configuration, what);
    let failure = entry.damage.iter().cloned().fold(failure, Failure::detail);
    Err(failure.hint("name an older one with `--checkpoint NAME`"))
}
