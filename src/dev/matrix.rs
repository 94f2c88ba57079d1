//! `tests/matrix.toml`: the stacks that the tests run on.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::failure::{At as _, Failure, Result};
use crate::repository::Repository;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Matrix {
    /// In the order in which they are tested.
    #[serde(rename = "stack")]
    pub(crate) stacks: Vec<Stack>,
    /// What `cargo dev check` uses.
    pub(crate) lint: Stack,
    /// What `cargo dev wheel` uses.
    pub(crate) wheel: Stack,
    /// What `cargo dev checkpoints` compares with, by the name of the stack.
    peers: BTreeMap<String, Vec<String>>,
}

/// One combination of Python and frameworks. The fields are explained in the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stack {
    pub(crate) name: String,
    pub(crate) python: Vec<String>,
    #[serde(default)]
    pub(crate) tags: Vec<String>,
    pub(crate) requirements: Vec<String>,
    #[serde(default)]
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) workers: Option<u32>,
    pub(crate) only_trains: Option<String>,
    pub(crate) optional: Option<String>,
    #[serde(default)]
    pub(crate) system: Vec<String>,
}

/// The distributions of the frameworks.
const FRAMEWORKS: [&str; 5] = ["keras", "tensorflow", "tensorflow-cpu", "jax", "torch"];

impl Stack {
    /// All of its packages, in words.
    pub(crate) fn contents(&self) -> String {
        let requirements = self.requirements.iter().cloned();
        let all: Vec<_> = self.of_system().chain(requirements).collect();
        all.join(" ")
    }

    fn of_system(&self) -> impl Iterator<Item = String> {
        self.system.iter().map(|it| format!("{it} of the system"))
    }

    /// The frameworks and their versions, in words.
    pub(crate) fn summary(&self) -> String {
        let is_framework = |text: &&String| {
            let name = text.split("==").next().unwrap_or_default();
            FRAMEWORKS.contains(&name)
        };
        let found = self.requirements.iter().filter(is_framework);
        let found = found.map(|text| text.replace("==", " "));
        let found: Vec<_> = found.chain(self.of_system()).collect();
        found.join(", ")
    }
}

impl Matrix {
    /// Reads the file.
    pub(crate) fn read(repository: &Repository) -> Result<Self> {
        let path = repository.root().join("tests/matrix.toml");
        let text = std::fs::read_to_string(&path).at("read", &path)?;
        toml::from_str(&text)
            .map_err(|error| Failure::new(format!("`{}` is not valid:\n{error}", path.display())))
    }

    /// A stack with the packages that `cargo dev checkpoints` compares with: another environment
    /// than that of the tests.
    pub(crate) fn with_peers(&self, stack: &Stack) -> Stack {
        let mut stack = stack.clone();
        if let Some(peers) = self.peers.get(&stack.name) {
            stack.requirements.extend_from_slice(peers);
        }
        stack
    }

    /// The stacks of these names. Without names, the stacks with a tag that are not optional.
    pub(crate) fn chosen(&self, names: &[&str], tag: &str) -> Result<Vec<&Stack>> {
        for name in names {
            self.stack(name)?;
        }
        let is_wanted = |stack: &&Stack| match names {
            [] => stack.optional.is_none() && stack.tags.iter().any(|other| other == tag),
            names => names.contains(&&*stack.name),
        };
        Ok(self.stacks.iter().filter(is_wanted).collect())
    }

    /// The stack of this name.
    pub(crate) fn stack(&self, name: &str) -> Result<&Stack> {
        self.stacks
            .iter()
            .find(|stack| stack.name == name)
            .ok_or_else(|| {
                let names: Vec<_> = self
                    .stacks
                    .iter()
                    .map(|stack| stack.name.as_str())
                    .collect();
                Failure::usage(format!(
                    "there is no stack `{name}`, only {}",
                    names.join(", ")
                ))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::Matrix;
    use crate::repository::Repository;

    #[test]
    fn every_requirement_is_pinned_and_every_name_is_there_once() {
        let matrix = Matrix::read(&Repository::find()).expect("the file is valid");
        let mut names: Vec<_> = matrix.stacks.iter().map(|stack| &stack.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), matrix.stacks.len());
        assert!(matrix.peers.keys().all(|name| matrix.stack(name).is_ok()));
        let stacks: Vec<_> = matrix
            .stacks
            .iter()
            .map(|it| matrix.with_peers(it))
            .collect();
        for stack in stacks.iter().chain([&matrix.lint, &matrix.wheel]) {
            for requirement in &stack.requirements {
                assert_eq!(
                    requirement.matches("==").count(),
                    1,
                    "{}: {requirement}",
                    stack.name
                );
            }
        }
    }
}
