//! Follows the journal of a trial, `events.jsonl`, from outside.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// What there is to see of a trial while it runs.
pub(crate) struct Trial {
    directory: PathBuf,
}

/// The part of an event that every kind of it has.
#[derive(Deserialize)]
struct Event {
    event: String,
}

impl Trial {
    /// The trial of a directory that need not exist yet.
    pub(crate) fn at(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
        }
    }

    /// How often an event was recorded. A torn last line is none yet.
    pub(crate) fn count(&self, kind: &str) -> usize {
        let text = fs::read_to_string(self.directory.join("events.jsonl")).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole
            .lines()
            .filter_map(|line| serde_json::from_str::<Event>(line).ok())
            .filter(|event| event.event == kind)
            .count()
    }

    /// The batch after which the newest checkpoint was taken, if there is one.
    pub(crate) fn checkpoint(&self) -> Option<u64> {
        let target = fs::read_link(self.directory.join("latest")).ok()?;
        batch_of_checkpoint(&target)
    }
}

/// 700 of `checkpoints/batch-0000000700`.
fn batch_of_checkpoint(path: &Path) -> Option<u64> {
    path.file_name()?
        .to_str()?
        .strip_prefix("batch-")?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::Trial;

    #[test]
    fn a_trial_is_followed_from_nothing_on() {
        let directory = tempfile::tempdir().expect("there is room");
        let trial = Trial::at(directory.path().join("trial"));
        assert_eq!((trial.count("step"), trial.checkpoint()), (0, None));

        fs::create_dir(directory.path().join("trial")).expect("it is new");
        let journal = directory.path().join("trial/events.jsonl");
        let text =
            "{\"event\":\"step\",\"step\":1}\n{\"event\":\"checkpoint\"}\n{\"event\":\"step\"";
        fs::write(journal, text).expect("there is room");
        symlink(
            "checkpoints/batch-0000000700",
            directory.path().join("trial/latest"),
        )
        .expect("it is new");
        assert_eq!((trial.count("step"), trial.checkpoint()), (1, Some(700)));
    }
}
