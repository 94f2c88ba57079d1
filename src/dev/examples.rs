//! `cargo dev examples`: the public model definitions of `determined-ai/pedl-examples`, unchanged,
//! on doubles of their data.
//!
//! `tests/campaigns/public_examples.toml` lists them. `tests/campaigns/public_examples.py` finds
//! out the outcome of each, with the Python of its stack. They are not part of this project, so
//! they come from a checkout (`--checkout DIR`) that has the revision of the list.
//!
//! Everything is kept below the target directory in `examples/`: the data, real packages that
//! definitions import, the files of failed runs, and the results, in a file for each executable and
//! state of that program, so an interrupted command continues where it was.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Options;
use crate::environment::Environment;
use crate::failure::{At as _, Failure, Result};
use crate::matrix::{Matrix, Stack};
use crate::process::{Ended, Output, Running};
use crate::repository::{Repository, has_revision};

/// Enough for two runs of a definition, each with the imports of its framework, on a slow machine.
const LIMIT: Duration = Duration::from_secs(60 * 60);

/// The list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    repository: String,
    revision: String,
    length: Length,
    #[serde(rename = "definition")]
    definitions: Vec<Definition>,
}

/// How long a definition trains.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Length {
    steps: u32,
    batches_per_step: u32,
}

/// One definition. The fields are explained in the list.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Definition {
    name: String,
    stack: String,
    configuration: String,
    #[serde(default)]
    without: Vec<String>,
    #[serde(default)]
    data: Vec<String>,
    #[serde(default)]
    double: String,
    #[serde(default)]
    packages: Vec<String>,
    #[serde(default)]
    leaves: Vec<String>,
    steps: Option<u32>,
    batches_per_step: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    says: Option<String>,
}

impl List {
    fn read(repository: &Repository) -> Result<Self> {
        let path = repository
            .root()
            .join("tests/campaigns/public_examples.toml");
        let text = fs::read_to_string(&path).at("read", &path)?;
        let mut list: Self = toml::from_str(&text).map_err(|error| {
            Failure::new(format!("`{}` is not valid:\n{error}", path.display()))
        })?;
        for definition in &mut list.definitions {
            definition.steps.get_or_insert(list.length.steps);
            definition
                .batches_per_step
                .get_or_insert(list.length.batches_per_step);
        }
        Ok(list)
    }

    /// The definitions of these names; all if there are no names.
    fn chosen(&self, names: &[&str]) -> Result<Vec<&Definition>> {
        let there = |name: &&&str| self.definitions.iter().any(|one| one.name == **name);
        if let Some(name) = names.iter().find(|name| !there(name)) {
            let mut known: Vec<_> = self.definitions.iter().map(|one| &*one.name).collect();
            known.dedup();
            return Err(Failure::usage(format!(
                "there is no definition `{name}`, only {}",
                known.join(", ")
            )));
        }
        let is_chosen = |one: &&Definition| names.is_empty() || names.contains(&&*one.name);
        Ok(self.definitions.iter().filter(is_chosen).collect())
    }
}

/// Runs definitions, and prints a line for each; returns whether each has the outcome in the list.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<bool> {
    let options = Options::parse(arguments, &["checkout", "name"])?.no_rest()?;
    let repository = Repository::find();
    let list = List::read(&repository)?;
    let names: Vec<&str> = options.all("name").collect();
    let chosen = list.chosen(&names)?;
    let mut checkouts = options.all("checkout");
    let checkout = checkouts.find(|checkout| has_revision(checkout, &list.revision));
    let checkout = checkout.ok_or_else(|| {
        let (name, revision) = (&list.repository, &list.revision);
        Failure::usage(format!(
            "the definitions are those of {name} at {revision}, and no checkout has that"
        ))
        .hint("clone it, and name the clone with `--checkout DIR`")
    })?;
    let checkout = std::path::absolute(checkout).at("resolve", Path::new(checkout))?;
    let matrix = Matrix::read(&repository)?;
    let executable = repository.build()?;
    let directory = repository.target_directory()?.join("examples");
    let results = results_of(&repository, &executable, &directory)?;
    println!("{}", results.display());
    let (mut is_good, mut ran) = (true, 0);
    for definition in chosen {
        let stack = matrix.stack(&definition.stack)?;
        let Some(environment) = Environment::of_measured(stack)? else {
            continue;
        };
        let place = directory.join(&stack.name);
        let mut command = environment.command();
        command
            .args(["-u", "-m", "campaigns.public_examples"])
            .current_dir(repository.root().join("tests"))
            .arg("--definition")
            .arg(serde_json::to_string(definition).expect("a definition is texts and numbers"))
            .arg("--checkout")
            .arg(&checkout)
            .args(["--revision", &list.revision])
            .arg("--directory")
            .arg(place.join(definition.name.replace('/', "-")))
            .arg("--data")
            .arg(place.join("data"))
            .arg("--results")
            .arg(&results)
            .env("PEDL_RUN", &executable);
        if !definition.packages.is_empty() {
            command.arg("--packages");
            command.arg(packages(&environment, stack, &definition.packages, &place)?);
        }
        let mut running = Running::start(command, Output::Copy)?;
        let ended = running.wait(LIMIT)?;
        running.text();
        is_good &= matches!(ended, Ended::Exited(status) if status.success());
        ran += 1;
    }
    if ran == 0 {
        return Err(Failure::new("no definition was run".to_owned()));
    }
    Ok(is_good)
}

/// The folder with real packages that a definition imports, beside the environment of the tests.
fn packages(
    environment: &Environment,
    stack: &Stack,
    requirements: &[String],
    place: &Path,
) -> Result<PathBuf> {
    let wanted = requirements.join("\n");
    let hash = blake3::hash(wanted.as_bytes()).to_hex();
    let folder = place.join(format!("packages-{}", &hash[..12]));
    let marker = folder.join("complete");
    if marker.exists() {
        return Ok(folder);
    }
    if folder.exists() {
        fs::remove_dir_all(&folder).at("remove", &folder)?;
    }
    environment.install_beside(stack, requirements, &folder)?;
    fs::write(&marker, wanted).at("write", &marker)?;
    Ok(folder)
}

/// The results file of an executable and of what runs the definitions.
fn results_of(repository: &Repository, executable: &Path, directory: &Path) -> Result<PathBuf> {
    fs::create_dir_all(directory).at("create", directory)?;
    let doubles = repository.root().join("tests/campaigns/public_examples");
    let found = fs::read_dir(&doubles).at("read", &doubles)?;
    let mut files: Vec<PathBuf> = found
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()
        .at("read", &doubles)?;
    files.retain(|path| path.extension().is_some_and(|ending| ending == "py"));
    files.sort();
    files.push(repository.root().join("tests/campaigns/public_examples.py"));
    files.push(executable.to_owned());
    let mut hasher = blake3::Hasher::new();
    for path in files {
        hasher.update(&fs::read(&path).at("read", &path)?);
    }
    let hash = hasher.finalize().to_hex();
    Ok(directory.join(format!("{}.jsonl", &hash[..12])))
}

#[cfg(test)]
mod tests {
    use super::List;
    use crate::matrix::Matrix;
    use crate::repository::Repository;

    #[test]
    fn each_definition_has_a_stack_that_is_there_and_can_be_killed_half_way() {
        let repository = Repository::find();
        let list = List::read(&repository).expect("the file is valid");
        let matrix = Matrix::read(&repository).expect("the file is valid");
        assert_eq!(list.revision.len(), 40);
        for one in &list.definitions {
            matrix.stack(&one.stack).expect("the stack is there");
            assert!(one.steps >= Some(2), "{}", one.name);
            assert_eq!(one.reason.is_some(), one.says.is_some(), "{}", one.name);
            assert!(
                one.reason.is_some() || !one.double.is_empty(),
                "{}",
                one.name
            );
            assert_eq!(one.data.is_empty(), one.double.is_empty(), "{}", one.name);
            // The tests remove these folders.
            assert!(one.leaves.iter().all(|folder| folder.starts_with("/tmp/")));
        }
        let mut names: Vec<_> = list
            .definitions
            .iter()
            .map(|one| (&one.name, &one.configuration))
            .collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), list.definitions.len());
        let packages = list.definitions.iter().flat_map(|one| &one.packages);
        assert!(packages.clone().count() > 0);
        for requirement in packages {
            assert_eq!(requirement.matches("==").count(), 1, "{requirement}");
        }
    }

    #[test]
    fn a_name_that_is_not_there_is_told() {
        let list = List::read(&Repository::find()).expect("the file is valid");
        let error = list
            .chosen(&["mnist_keras", "mnist"])
            .expect_err("it is refused");
        let error = error.to_string();
        assert!(error.contains("no definition `mnist`, only"), "{error}");
        assert_eq!(list.chosen(&["iris_tf_keras"]).map_or(0, |it| it.len()), 1);
    }
}
