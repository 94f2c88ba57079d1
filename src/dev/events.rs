//! Follows the journal of a trial, `events.jsonl`, from outside.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// A trial as it is seen from outside while it runs.
pub(crate) struct Trial {
    directory: PathBuf,
}

/// The fields of an event that are used here.
#[derive(Deserialize)]
struct Event {
    event: String,
    batch: Option<u64>,
}

impl Trial {
    /// The trial of a directory that need not exist yet.
    pub(crate) fn at(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
        }
    }

    /// How many times an event was recorded.
    pub(crate) fn count(&self, kind: &str) -> usize {
        self.events()
            .iter()
            .filter(|event| event.event == kind)
            .count()
    }

    /// The number of batches that the last start did not have to compute again.
    pub(crate) fn resumed_after(&self) -> Option<u64> {
        let events = self.events();
        events
            .iter()
            .rev()
            .find(|event| event.event == "resumed")
            .and_then(|event| event.batch)
    }

    /// All events; a line that a kill has torn is none.
    fn events(&self) -> Vec<Event> {
        let text = fs::read_to_string(self.directory.join("events.jsonl")).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
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
        let text = "{\"event\":\"step\",\"batches\":[1,100]}\n{\"event\":\"st\n\
            {\"event\":\"resumed\",\"batch\":600}\n{\"event\":\"step\"";
        fs::write(journal, text).expect("there is room");
        symlink(
            "checkpoints/batch-0000000700",
            directory.path().join("trial/latest"),
        )
        .expect("it is new");
        assert_eq!((trial.count("step"), trial.checkpoint()), (1, Some(700)));
        assert_eq!(trial.resumed_after(), Some(600));
    }
}
