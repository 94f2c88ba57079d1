//! The working tree: where it is, and how its executable is built.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use crate::failure::{Failure, Result};
use crate::process::{self, Output, Running};

/// A build from nothing, twice optimised, on a slow machine.
const BUILD_LIMIT: Duration = Duration::from_secs(30 * 60);

/// The working tree this program was built from.
pub(crate) struct Repository {
    root: PathBuf,
}

/// The part of cargo's messages that names an executable.
#[derive(Deserialize)]
struct Artifact {
    executable: Option<PathBuf>,
}

impl Repository {
    /// The tree of the source of this very file.
    pub(crate) fn find() -> Self {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest.ancestors().nth(2).unwrap_or(manifest);
        Self {
            root: root.to_owned(),
        }
    }

    /// Its top level.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Cargo, at the top level of the tree.
    pub(crate) fn cargo(&self) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = process::command(cargo);
        command.current_dir(&self.root);
        command
    }

    /// Builds `pedl-run`, optimised, and returns its path. What the compiler says is printed.
    pub(crate) fn build(&self) -> Result<PathBuf> {
        let mut cargo = self.cargo();
        cargo.args(["build", "--release", "--quiet", "--package", "pedl-run"]);
        cargo.args([
            "--bin",
            "pedl-run",
            "--message-format",
            "json-render-diagnostics",
        ]);
        let mut building = Running::start(cargo, Output::KeepStdout)?;
        let ended = building.wait(BUILD_LIMIT)?;
        let messages = building.text();
        if !ended.success() {
            let what = format!("the build of pedl-run failed: {}", ended.describe());
            return Err(Failure::new(what));
        }
        messages
            .lines()
            .filter_map(|line| serde_json::from_str::<Artifact>(line).ok()?.executable)
            .next_back()
            .ok_or_else(|| Failure::new("cargo built pedl-run and did not say where it is"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::Repository;

    #[test]
    fn pyproject_has_the_version_of_the_workspace() {
        let root = Repository::find().root().to_owned();
        let version = |file: &str, table: &[&str]| {
            let text = fs::read_to_string(root.join(file)).expect("the file is there");
            let mut value: toml::Value = toml::from_str(&text).expect("it is valid");
            for key in table {
                value = value.get(key).expect("the key is there").clone();
            }
            value
        };
        assert_eq!(
            version("pyproject.toml", &["project", "version"]),
            version("Cargo.toml", &["workspace", "package", "version"]),
        );
    }
}
