//! One of several processes that train one model, as `torchrun`, or `TF_CONFIG`, describes it in
//! the environment.
//!
//! Each rank is a pedl-run with a separate trial directory: rank 0 has that of the trial, and rank
//! N the one beside it whose name ends in `-rank-N`. All ranks take checkpoints at the same moments
//! of training. After a kill one rank may have one checkpoint more than another, so each rank looks
//! into the directories of all and goes back to the newest moment of which every one has a
//! checkpoint. None of them begins before all have reached that moment.

use std::env;
use std::path::{Path, PathBuf};

use pedl_core::checkpoint::Store;
use serde_json::{Value, json};

use super::trial_dir::TrialDir;
use super::unexpected;
use crate::failure::{Exit, Failure};

/// The largest number of ranks that is accepted.
const MOST: u64 = 1 << 16;

/// The variable in which TensorFlow looks for the processes that train one model, and their kinds:
/// the first of all is the chief.
const TF_CONFIG: &str = "TF_CONFIG";
const TRAINERS: [&str; 2] = ["chief", "worker"];

/// What `TF_CONFIG` looks like.
const EXAMPLE: &str = r#"as `{"cluster": {"worker": ["HOST:PORT", "HOST:PORT"]}, "task": {"type": "worker", "index": 0}}`"#;

/// Other kinds of processes that would take part in a training.
const OTHERS: [&str; 2] = ["master", "ps"];

/// Which of the processes this one is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ranks {
    rank: u64,
    size: u64,
    told: Told,
}

/// The source of that information, and its details.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    /// `torchrun`: the number among the ranks of this machine.
    Torchrun { local: u64 },
    /// `TF_CONFIG`: the address of the first.
    TensorFlow { first: String },
}

impl Ranks {
    /// What the environment says; `None` if there is one process, or the environment says nothing.
    pub(super) fn of_environment() -> Result<Option<Self>, Failure> {
        Self::of(|name| env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, Failure> {
        if let Some(ranks) = Self::of_torchrun(&variable)? {
            return Ok(Some(ranks));
        }
        match variable(TF_CONFIG).filter(|text| !text.trim().is_empty()) {
            Some(text) => Self::of_cluster(&text),
            None => Ok(None),
        }
    }

    fn of_torchrun(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, Failure> {
        let number = |name: &str, below: u64| -> Result<u64, Failure> {
            let text = variable(name);
            let number = text.as_deref().and_then(|text| text.parse().ok());
            number.filter(|number| *number < below).ok_or_else(|| {
                let what = match &text {
                    Some(text) => format!("the environment variable `{name}` is `{text}`"),
                    None => format!("`WORLD_SIZE` is set, and the environment variable `{name}` is not"),
                };
                Failure::new(Exit::Configuration, what)
                    .detail(format!("expected: a whole number from 0 to {}", below - 1))
                    .detail("the model definition was not started")
                    .hint("start the ranks with `torchrun --no_python --nproc_per_node N pedl-run ...`, or unset `WORLD_SIZE`")
            })
        };
        if variable("WORLD_SIZE").is_none_or(|text| text.is_empty()) {
            return Ok(None);
        }
        let size = number("WORLD_SIZE", MOST)?;
        if size < 2 {
            return Ok(None);
        }
        Ok(Some(Self {
            rank: number("RANK", size)?,
            size,
            told: Told::Torchrun {
                local: number("LOCAL_RANK", size)?,
            },
        }))
    }

    /// The ranks in a JSON text, the value of `TF_CONFIG`.
    fn of_cluster(text: &str) -> Result<Option<Self>, Failure> {
        let wrong = |what: String, expected: &str| {
            Failure::new(Exit::Configuration, what)
                .detail(format!("expected: {expected}"))
                .detail("the model definition was not started")
                .hint("set `TF_CONFIG` right, or unset it to train in one process")
        };
        let known: Value = serde_json::from_str(text).map_err(|error| {
            let what = format!("the environment variable `TF_CONFIG` is no JSON: {error}");
            wrong(what, EXAMPLE)
        })?;
        let addresses = |kind: &str| -> Vec<&str> {
            let listed = known["cluster"][kind].as_array();
            listed.map_or_else(Vec::new, |listed| {
                listed.iter().filter_map(Value::as_str).collect()
            })
        };
        let all: Vec<&str> = TRAINERS.iter().flat_map(|kind| addresses(kind)).collect();
        let others = |kind: &&&str| !addresses(kind).is_empty();
        let count = all.len() + addresses("master").len();
        if count < 2 {
            return Ok(None);
        }
        if let Some(kind) = OTHERS.iter().find(others) {
            let what =
                format!("`TF_CONFIG` names {count} workers, and a process of the kind `{kind}`");
            return Err(wrong(
                what,
                "processes of the kinds `chief` and `worker`, which all train",
            ));
        }
        let task = &known["task"];
        let kind = task["type"].as_str().unwrap_or_default();
        let index = match &task["index"] {
            Value::String(text) => text.parse().ok(),
            other => other.as_u64(),
        };
        let before = if kind == "worker" {
            addresses("chief").len() as u64
        } else {
            0
        };
        let of_kind = if TRAINERS.contains(&kind) {
            addresses(kind).len() as u64
        } else {
            0
        };
        let Some(index) = index.filter(|index| *index < of_kind) else {
            let what = format!("`TF_CONFIG` names {count} workers, and its `task` is `{task}`");
            return Err(wrong(what, "the type and the index of one of them"));
        };
        Ok(Some(Self {
            rank: before + index,
            size: all.len() as u64,
            told: Told::TensorFlow {
                first: all[0].to_owned(),
            },
        }))
    }

    /// Whether this is the rank that reports for all.
    pub(super) fn is_first(&self) -> bool {
        self.rank == 0
    }

    /// For the identity of the trial.
    pub(super) fn text(&self) -> String {
        format!("{} of {}", self.rank, self.size)
    }

    /// The trial directory of this rank, if that of the trial is `base`.
    pub(super) fn directory(&self, base: &Path) -> PathBuf {
        directory(base, self.rank)
    }

    /// The description of the ranks for the program of a model definition.
    pub(super) fn value(&self, base: &Path) -> Value {
        let mut value = json!({
            "rank": self.rank,
            "size": self.size,
            "directory": base.display().to_string(),
        });
        match &self.told {
            Told::Torchrun { local } => {
                value["variable"] = json!("WORLD_SIZE");
                value["local_rank"] = json!(local);
            }
            Told::TensorFlow { first } => {
                value["variable"] = json!(TF_CONFIG);
                value["first"] = json!(first);
            }
        }
        value
    }

    /// Whether the trials of all ranks have ended. If only some have, these continue from their
    /// last checkpoint.
    pub(super) fn are_over(&self, base: &Path) -> bool {
        self.all(base)
            .all(|path| TrialDir::new(path, None).is_over())
    }

    /// Sets aside the checkpoints of this rank that another rank does not have.
    pub(super) fn go_back(&self, base: &Path) -> Result<(), Failure> {
        let mut common: Option<Vec<(u64, u64)>> = None;
        let (mut has_some, mut missing) = (false, None);
        for path in self.all(base) {
            let positions = Store::open(&path)
                .positions()
                .map_err(|error| unreadable(&path, &error.to_string()))?;
            has_some |= !positions.is_empty();
            if !path.join("trial.json").is_file() {
                missing = Some(path);
            }
            common = Some(match common {
                None => positions,
                Some(common) => common
                    .into_iter()
                    .filter(|position| positions.contains(position))
                    .collect(),
            });
        }
        if let Some(missing) = missing.filter(|_| has_some) {
            return Err(unreadable(&missing, "other ranks have checkpoints, and this one has no trial")
                .hint("keep the trial directories where all ranks reach them, or begin a new trial with `--fresh`"));
        }
        let common = common.and_then(|common| common.into_iter().max());
        Store::open(&self.directory(base))
            .go_back_to(common)
            .map_err(|error| {
                unexpected(
                    "setting checkpoints aside",
                    std::io::Error::other(error.to_string()),
                )
            })
    }

    fn all(&self, base: &Path) -> impl Iterator<Item = PathBuf> {
        (0..self.size).map(move |rank| directory(base, rank))
    }
}

fn directory(base: &Path, rank: u64) -> PathBuf {
    if rank == 0 {
        return base.to_owned();
    }
    let mut name = base.as_os_str().to_owned();
    name.push(format!("-rank-{rank}"));
    PathBuf::from(name)
}

fn unreadable(path: &Path, problem: &str) -> Failure {
    let what = format!(
        "the trial of one of the ranks, `{}`, cannot be continued",
        path.display()
    );
    Failure::new(Exit::Configuration, what)
        .detail(problem)
        .detail("the model definition was not started")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Option<Ranks>, Failure> {
        Ranks::of(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn ranks_are_what_the_environment_says() {
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&[("WORLD_SIZE", "1"), ("RANK", "0")]), Ok(None));
        let second = [("WORLD_SIZE", "2"), ("RANK", "1"), ("LOCAL_RANK", "1")];
        let second = of(&second)
            .expect("they are numbers")
            .expect("there are two");
        assert!(!second.is_first());
        assert_eq!(second.text(), "1 of 2");
        assert_eq!(
            second.directory(Path::new("/a/b")),
            Path::new("/a/b-rank-1")
        );
    }

    /// `TF_CONFIG` of two workers, with a task.
    fn of_cluster(cluster: &str, task: &str) -> Result<Option<Ranks>, Failure> {
        let text = format!(r#"{{"cluster": {{{cluster}}}, "task": {task}}}"#);
        of(&[("TF_CONFIG", text.as_str())])
    }

    #[test]
    fn workers_are_what_their_cluster_says() {
        let second = of_cluster(
            r#""chief": ["a:1"], "worker": ["b:2"], "evaluator": ["c:3"]"#,
            r#"{"type": "worker", "index": 0}"#,
        );
        let second = second.expect("it is one").expect("there are two");
        assert_eq!(
            (second.text().as_str(), second.is_first()),
            ("1 of 2", false)
        );
        assert_eq!(second.value(Path::new("/a"))["first"], "a:1");
        assert_eq!(of_cluster(r#""worker": ["a:1"]"#, "{}"), Ok(None));
        assert_eq!(of(&[("TF_CONFIG", "")]), Ok(None));
        let numbers = [("WORLD_SIZE", "1"), ("RANK", "0"), ("TF_CONFIG", "{}")];
        assert_eq!(of(&numbers), Ok(None));
    }

    #[test]
    fn what_is_no_worker_is_refused() {
        let two = r#""worker": ["a:1", "b:2"]"#;
        for task in [
            "{}",
            r#"{"type": "worker", "index": 2}"#,
            r#"{"type": "evaluator", "index": 0}"#,
            r#"{"type": "chief", "index": 0}"#,
        ] {
            let failure = of_cluster(two, task).expect_err("it is none of them");
            assert_eq!(failure.exit, Exit::Configuration);
        }
        let with_servers = format!(r#"{two}, "ps": ["c:3"]"#);
        of_cluster(&with_servers, r#"{"type": "worker", "index": 0}"#).expect_err("servers");
        of(&[("TF_CONFIG", "{")]).expect_err("it is no JSON");
    }

    #[test]
    fn what_is_no_rank_is_refused() {
        for wrong in [
            &[("WORLD_SIZE", "two")][..],
            &[("WORLD_SIZE", "2")],
            &[("WORLD_SIZE", "2"), ("RANK", "2"), ("LOCAL_RANK", "0")],
            &[("WORLD_SIZE", "2"), ("RANK", "0")],
        ] {
            let failure = of(wrong).expect_err("it is no rank");
            assert_eq!(failure.exit, Exit::Configuration);
        }
    }
}
