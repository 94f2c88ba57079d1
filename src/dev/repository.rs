//! The working tree: where it is, and how its executable is built.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use crate::failure::{Failure, Result};
use crate::process::{self, Output, Running};

/// Enough for a build from scratch, twice optimised, on a slow machine.
const BUILD_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Whether a clone of another repository has a commit.
pub(crate) fn has_revision(checkout: &str, revision: &str) -> bool {
    let mut git = Command::new("git");
    git.args(["-C", checkout, "cat-file", "-e"]);
    git.arg(format!("{revision}^{{commit}}"));
    git.output().is_ok_and(|it| it.status.success())
}

/// The working tree this program was built from.
pub(crate) struct Repository {
    root: PathBuf,
}

/// The part of cargo's messages that names an executable.
#[derive(Deserialize)]
struct Artifact {
    executable: Option<PathBuf>,
}

/// The part of `cargo metadata` that says where cargo builds.
#[derive(Deserialize)]
struct Metadata {
    target_directory: PathBuf,
}

impl Repository {
    /// The tree that contains this source file.
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

    /// Where cargo builds.
    pub(crate) fn target_directory(&self) -> Result<PathBuf> {
        let mut cargo = self.cargo();
        cargo.args(["metadata", "--no-deps", "--format-version", "1"]);
        let mut asked = Running::start(cargo, Output::KeepStdout)?;
        let ended = asked.wait(BUILD_LIMIT)?;
        serde_json::from_str(&asked.text())
            .map(|metadata: Metadata| metadata.target_directory)
            .map_err(|error| {
                let ended = ended.describe();
                Failure::new(format!(
                    "cargo does not say where it builds: {ended}, {error}"
                ))
            })
    }

    /// Builds `pedl-run`, optimised, and returns its path. The messages of the compiler are
    /// printed.
    pub(crate) fn build(&self) -> Result<PathBuf> {
        self.build_executable("pedl-run", &["--release", "--package", "pedl-run"])
    }

    /// Builds another executable of these commands, in the same way as them, and returns its path.
    pub(crate) fn build_own(&self, executable: &str) -> Result<PathBuf> {
        self.build_executable(executable, &["--package", "pedl-dev"])
    }

    fn build_executable(&self, executable: &str, arguments: &[&str]) -> Result<PathBuf> {
        let mut cargo = self.cargo();
        cargo.args(["build", "--quiet", "--bin", executable]);
        cargo.args(arguments);
        cargo.args(["--message-format", "json-render-diagnostics"]);
        let mut building = Running::start(cargo, Output::KeepStdout)?;
        let ended = building.wait(BUILD_LIMIT)?;
        let messages = building.text();
        if !ended.success() {
            let what = format!("the build of {executable} failed: {}", ended.describe());
            return Err(Failure::new(what));
        }
        messages
            .lines()
            .filter_map(|line| serde_json::from_str::<Artifact>(line).ok()?.executable)
            .next_back()
            .ok_or_else(|| {
                Failure::new(format!(
                    "cargo built {executable} and did not say where it is"
                ))
            })
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
