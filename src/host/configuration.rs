//! `--config FILE`: applies an experiment configuration to a command line.
//!
//! ```text
//! --config FILE SCRIPT   the script as typed; `entrypoint.script` may be absent, or name the same
//! --config FILE DIR      `entrypoint.script`, below DIR, run in that directory as PEDL does; or
//!                        the trial class that `entrypoint` names, or that DIR exposes
//!                        (`definition.rs`)
//! ```
//!
//! Options take precedence over the environment, the environment over the configuration, and the
//! configuration over defaults. Arguments of the script in the configuration come before those that
//! were typed. If a configuration requests something that this program does not do, the run stops
//! with its name; nothing is accepted and ignored.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use pedl_core::retention::Retention;
use pedl_core::sequencer::CheckpointPolicy;
use pedl_core::trial::Search;
use pedl_experiment::{Entrypoint, Experiment, Problem, Trial};
use serde_json::Value;

use crate::cli::flags::Options;
use crate::cli::parse::{CommandLine, Program};
use crate::definition::{Definition, check_entrypoint};
use crate::failure::{Exit, Failure};

/// A script that PEDL runs before the model code; not run here.
const STARTUP_HOOK: &str = "startup-hook.sh";

/// A larger file is not a configuration, but was named by mistake.
const LARGEST_FILE_BYTES: u64 = 1 << 20;

/// The configuration that `--config` named, as far as it holds for every trial.
#[derive(Debug)]
pub(crate) struct Configuration {
    experiment: Experiment,
    /// The number of the trial that is run, from 1.
    trial: u64,
    /// The model definition, if the command names one: the script runs in it.
    pub(crate) directory: Option<PathBuf>,
    /// The definition, if it has a trial class.
    pub(crate) definition: Option<Definition>,
    /// The script in it, as the command would have named it: part of the identity of the trial.
    script: Option<PathBuf>,
    /// Messages that are printed once the trial begins.
    pub(crate) notes: Vec<String>,
}

/// Variables that only we may set.
const OURS: [&str; 2] = ["PEDL_", "PYTHONHASHSEED"];

impl Configuration {
    /// Reads the configuration that a command line names, and puts its script into the command
    /// line. `None` if the command line names none.
    pub(crate) fn read(line: &mut CommandLine) -> Result<Option<Self>, Failure> {
        let trial = line.options.trial;
        let Some(path) = line.options.config.clone() else {
            return match trial {
                None => Ok(None),
                Some(trial) => Err(Failure::new(
                    Exit::Usage,
                    format!("`--trial` is `{trial}`, and there is no configuration"),
                )
                .detail("expected: `--config FILE`, whose searcher has several trials")
                .hint("leave `--trial` out, or name the file with `--config FILE`")),
            };
        };
        let name = path.display().to_string();
        let text = text_of(&path)?;
        let experiment = Experiment::read(&name, &text).map_err(failure_of)?;
        let mut configuration = Self {
            experiment,
            trial: trial.unwrap_or(1),
            directory: None,
            definition: None,
            script: None,
            notes: Vec::new(),
        };
        configuration.check_search(&name)?;
        configuration.check_variables(&name)?;
        configuration.check_hyperparameters(&line.options)?;
        configuration.find_script(&name, line)?;
        let unused = configuration.experiment.unused.iter();
        let unused: Vec<_> = unused.map(|field| format!("`{field}`")).collect();
        if !unused.is_empty() {
            let note = format!(
                "{name}: without effect on one machine: {}",
                unused.join(", ")
            );
            configuration.notes.push(note);
        }
        Ok(Some(configuration))
    }

    /// Refuses searches whose trials depend on each other, and trials that do not exist.
    fn check_search(&self, name: &str) -> Result<(), Failure> {
        let Some(trials) = self.experiment.number_of_trials() else {
            let searcher = self.experiment.searcher.name();
            return Err(wrong(format!("`searcher.name` is `{searcher}` in {name}"))
                .detail("expected: `single`, `random` or `grid`; this one compares trials while they run")
                .detail("nothing was run")
                .hint("name one of these, and the trial with `--trial N`"));
        };
        if !(1..=trials).contains(&self.trial) {
            return Err(wrong(format!("`--trial` is `{}`", self.trial))
                .detail(format!("expected: 1 to {trials}, the trials of {name}")));
        }
        Ok(())
    }

    /// Refuses variables that would make a run differ from its options and its record.
    fn check_variables(&self, name: &str) -> Result<(), Failure> {
        let mut names = self.experiment.environment_variables.iter();
        let is_ours = |text: &&String| OURS.iter().any(|ours| text.starts_with(ours));
        let Some(text) = names.find(is_ours) else {
            return Ok(());
        };
        let variable = text.split('=').next().unwrap_or_default();
        Err(wrong(format!(
            "`environment.environment_variables` sets `{variable}` in {name}"
        ))
        .detail("expected: variables of the script; this one belongs to pedl-run")
        .hint("set it where you start pedl-run, or use the option that it stands for"))
    }

    /// Refuses hyperparameters on the command line that the configuration does not have: a misspelt
    /// one would change nothing.
    fn check_hyperparameters(&self, options: &Options) -> Result<(), Failure> {
        let known = &self.experiment.hyperparameters;
        let unknown = |name: &&String| !known.contains_key(*name);
        let Some(name) = options.hyperparameters.keys().find(unknown) else {
            return Ok(());
        };
        let names: Vec<_> = known.keys().map(|name| format!("`{name}`")).collect();
        let names = if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        };
        Err(wrong(format!(
            "`--hp {name}`: the configuration has no hyperparameter of this name"
        ))
        .detail(format!("it has: {names}"))
        .hint(format!(
            "correct the name, or add `{name}` to `hyperparameters`"
        )))
    }

    // -- the script ------------------------------------------------------------------------------

    fn find_script(&mut self, name: &str, line: &mut CommandLine) -> Result<(), Failure> {
        let directory = match &line.program {
            Program::Script(word) if Path::new(word).is_dir() => Some(PathBuf::from(word)),
            _ => None,
        };
        if self.find_definition(name, line)? {
            return Ok(());
        }
        let (script, arguments) = match (&self.experiment.entrypoint, &directory) {
            (Some(Entrypoint::Trial(class)), _) => {
                if let Program::Script(word) = &line.program
                    && !Path::new(word).exists()
                {
                    return Err(wrong(format!("there is no `{}`", word.display()))
                        .detail(format!(
                            "expected: the model definition that has the class `{class}` of {name}, a directory or a file"
                        )));
                }
                return Err(wrong(format!("`entrypoint` is `{class}` in {name}"))
                    .detail("expected behind `--config FILE`: the model definition that has the class, a directory or a file")
                    .hint("name it, as in `pedl-run --config FILE DIR`"));
            }
            (None, None) => return Ok(()),
            (None, Some(directory)) => {
                let directory = directory.display();
                return Err(wrong(format!("there is no `entrypoint` in {name}"))
                    .detail(format!("`{directory}` has no `__init__.py`, whose trial class could be taken"))
                    .detail("expected: an `entrypoint`, which says what in it is run")
                    .hint(format!(
                        "add `entrypoint: {{script: train.py}}` or `entrypoint: module:TrialClass`, or run `{directory}/train.py`"
                    )));
            }
            (Some(Entrypoint::Script { script, arguments }), _) => (script, arguments),
        };
        match directory {
            Some(directory) => {
                check_below(&directory, script, name)?;
                let directory = fs::canonicalize(&directory).map_err(|error| {
                    wrong(format!("cannot enter `{}`", directory.display()))
                        .detail(error.to_string())
                })?;
                let typed = match &line.program {
                    Program::Script(word) => Path::new(word).components(),
                    _ => Path::new("").components(),
                };
                let typed: PathBuf = typed.filter(|part| *part != Component::CurDir).collect();
                self.script = Some(typed.join(script));
                line.program = Program::Script(script.into());
                line.python_arguments[line.num_python_options] = script.into();
                self.directory = Some(directory);
            }
            None => check_same(&line.program, script, name)?,
        }
        let behind = line.arguments_begin();
        let arguments = arguments.iter().map(OsString::from);
        line.python_arguments.splice(behind..behind, arguments);
        Ok(())
    }

    /// Whether the command names a model definition with a trial class. If so, replaces it with our
    /// program.
    fn find_definition(&mut self, name: &str, line: &mut CommandLine) -> Result<bool, Failure> {
        let Program::Script(word) = &line.program else {
            return Ok(false);
        };
        let Some(definition) = Definition::at(Path::new(word)) else {
            return Ok(false);
        };
        match &self.experiment.entrypoint {
            Some(Entrypoint::Trial(class)) => check_entrypoint(class, name)?,
            None if definition.is_discovered()? => {}
            Some(Entrypoint::Script { .. }) | None => return Ok(false),
        }
        check_hook(&definition.directory)?;
        definition.put_into(line)?;
        self.directory = Some(definition.directory.clone());
        self.definition = Some(definition);
        Ok(true)
    }

    /// The program and its arguments that identify the trial: for a script of a model definition,
    /// including the definition.
    pub(crate) fn command(&self, line: &CommandLine) -> Vec<String> {
        if let Some(definition) = &self.definition {
            return definition.command();
        }
        let mut command = line.command();
        if let (Some(script), Some(word)) = (&self.script, command.first_mut()) {
            *word = script.to_string_lossy().into_owned();
        }
        command
    }

    // -- the trial -------------------------------------------------------------------------------

    /// The seed of the experiment, if the file names it.
    pub(crate) fn experiment_seed(&self) -> Option<u32> {
        self.experiment.experiment_seed
    }

    /// The number of the trial of the experiment that is run, from 1.
    pub(crate) fn trial_id(&self) -> u64 {
        self.trial
    }

    /// The suffix of the name of the trial directory, if there are several trials.
    pub(crate) fn directory_suffix(&self) -> String {
        match self.experiment.number_of_trials() {
            Some(1) => String::new(),
            _ => format!("-trial-{}", self.trial),
        }
    }

    /// The trial, drawn from a seed; hyperparameters of the command line replace those of the
    /// trial.
    pub(crate) fn trial(&self, experiment_seed: u32, options: &Options) -> Result<Trial, Failure> {
        let place = usize::try_from(self.trial - 1).unwrap_or(usize::MAX);
        let mut trial = self
            .experiment
            .trials(experiment_seed)
            .nth(place)
            .ok_or_else(|| Failure::bug("the search has fewer trials than it says"))?;
        trial
            .hyperparameters
            .extend(options.hyperparameters.clone());
        Ok(trial)
    }

    /// The whole configuration, for `pedl.get_experiment_config()`; with the hyperparameters as
    /// they are in the file, and without fields that may contain keys and logins and that a script
    /// does not need.
    pub(crate) fn value(&self) -> Value {
        let mut value = self.experiment.configuration.clone();
        if let Some(environment) = value["environment"].as_object_mut() {
            environment.remove("registry_auth");
        }
        if let Some(fields) = value.as_object_mut() {
            fields.retain(|name, _| {
                !["tensorboard_storage", "security", "internal"].contains(&&**name)
            });
        }
        value
    }

    /// The variables of the script's environment, in order. `$NAME` and `${NAME}` are replaced with
    /// a value that is already set.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let mut set: Vec<(String, String)> = Vec::new();
        for text in &self.experiment.environment_variables {
            let (name, value) = text.split_once('=').unwrap_or((text, ""));
            let lookup = |name: &str| {
                let ours = set.iter().rev().find(|(known, _)| known == name);
                ours.map(|(_, value)| value.clone())
                    .or_else(|| env::var(name).ok())
                    .unwrap_or_default()
            };
            let value = expanded(value, lookup);
            set.push((name.to_owned(), value));
        }
        set
    }

    // -- how it is trained -----------------------------------------------------------------------

    pub(crate) fn batches_per_step(&self) -> u64 {
        self.experiment.batches_per_step
    }

    /// Steps of the trial.
    pub(crate) fn steps(&self) -> Option<u64> {
        self.experiment.searcher.max_steps()
    }

    pub(crate) fn validation_period(&self) -> Option<u64> {
        self.experiment.min_validation_period
    }

    pub(crate) fn checkpoint_period(&self) -> Option<u64> {
        self.experiment.min_checkpoint_period
    }

    pub(crate) fn max_restarts(&self) -> u64 {
        self.experiment.max_restarts
    }

    /// How validations are used.
    pub(crate) fn search(&self) -> Search {
        use pedl_experiment::CheckpointPolicy as Policy;
        Search {
            metric: self.experiment.metric.clone(),
            smaller_is_better: self.experiment.smaller_is_better,
            checkpoint_policy: match self.experiment.checkpoint_policy {
                Policy::Best => CheckpointPolicy::Best,
                Policy::All => CheckpointPolicy::All,
                Policy::None => CheckpointPolicy::None,
            },
            retention: Retention {
                experiment_best: self.experiment.retention.experiment_best,
                trial_best: self.experiment.retention.trial_best,
                trial_latest: self.experiment.retention.trial_latest,
                smaller_is_better: self.experiment.smaller_is_better,
            },
        }
    }

    /// Checksums of the other fields that decide what is trained: a trial continues only with the
    /// same. They are checksums because `data` may contain private text.
    pub(crate) fn identity(&self) -> BTreeMap<String, String> {
        let experiment = &self.experiment;
        let data = experiment.configuration["data"].to_string();
        let variables = experiment.environment_variables.join("\n");
        let mut parts = BTreeMap::from([
            ("data".to_owned(), checksum(&data)),
            ("environment_variables".to_owned(), checksum(&variables)),
            ("trial".to_owned(), self.trial.to_string()),
        ]);
        let numbers = [
            ("experiment_seed", experiment.experiment_seed.map(u64::from)),
            ("min_validation_period", experiment.min_validation_period),
        ];
        for (field, number) in numbers {
            parts.extend(number.map(|number| (field.to_owned(), number.to_string())));
        }
        parts
    }
}

/// A checksum for [`Configuration::identity`].
fn checksum(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
}

/// The values that decide how long a trial trains, as text for `trial.json`: only if the script
/// does not decide.
pub(crate) fn length_identity(
    steps: Option<u64>,
    batches_per_step: u64,
) -> BTreeMap<String, String> {
    let Some(steps) = steps else {
        return BTreeMap::new();
    };
    [("steps", steps), ("batches_per_step", batches_per_step)]
        .into_iter()
        .map(|(field, number)| (field.to_owned(), number.to_string()))
        .collect()
}

fn text_of(path: &Path) -> Result<String, Failure> {
    let name = path.display();
    let cannot = |error: &io::Error| {
        wrong(format!("cannot read the configuration `{name}`"))
            .detail(error.to_string())
            .hint(match error.kind() {
                io::ErrorKind::PermissionDenied => "let this user read it",
                _ => "name the file with `--config FILE`",
            })
    };
    let size = fs::metadata(path).map_err(|error| cannot(&error))?.len();
    if size > LARGEST_FILE_BYTES {
        return Err(
            wrong(format!("the configuration `{name}` has {size} bytes"))
                .detail(format!(
                    "expected: YAML of at most {LARGEST_FILE_BYTES} bytes"
                ))
                .hint("name the file with `--config FILE`"),
        );
    }
    fs::read_to_string(path).map_err(|error| cannot(&error))
}

/// Refuses a script that is not in the model definition, and definitions that require more.
fn check_below(directory: &Path, script: &str, name: &str) -> Result<(), Failure> {
    let is_below = Path::new(script)
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !is_below || !directory.join(script).is_file() {
        let mut failure = wrong(format!("`entrypoint.script` is `{script}` in {name}"))
            .detail(format!("expected: a script in `{}`", directory.display()));
        let scripts = scripts_in(directory);
        if !scripts.is_empty() {
            failure = failure.detail(format!("there is: {}", scripts.join(", ")));
        }
        return Err(failure.hint("correct `entrypoint.script`"));
    }
    check_hook(directory)
}

/// Refuses a model definition that requires something to be run before it.
fn check_hook(directory: &Path) -> Result<(), Failure> {
    let hook = directory.join(STARTUP_HOOK);
    if hook.exists() {
        return Err(wrong(format!("`{}` is not run", hook.display()))
            .detail("expected: a model definition without it; the script was not started")
            .hint("run it yourself, and keep it out of the directory"));
    }
    Ok(())
}

/// Refuses a script that is not the one of the configuration.
fn check_same(program: &Program, script: &str, name: &str) -> Result<(), Failure> {
    let typed = match program {
        Program::Script(typed) => {
            let absolute = std::path::absolute(typed).unwrap_or_else(|_| PathBuf::from(typed));
            let wanted = Path::new(script).components();
            let wanted: PathBuf = wanted.filter(|part| *part != Component::CurDir).collect();
            if absolute.ends_with(wanted) {
                return Ok(());
            }
            typed.to_string_lossy().into_owned()
        }
        Program::Module(module) => format!("-m {}", module.to_string_lossy()),
        Program::Code(_) => "-c".to_owned(),
        Program::Stdin | Program::None => "-".to_owned(),
    };
    Err(
        wrong(format!("`entrypoint.script` is `{script}` in {name}"))
            .detail(format!("the command runs `{typed}`"))
            .hint("name the same script in both, or leave `entrypoint` out"),
    )
}

fn scripts_in(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<_> = names
        .filter(|name| Path::new(name).extension().is_some_and(|end| end == "py"))
        .map(|name| format!("`{name}`"))
        .collect();
    names.sort_unstable();
    names.truncate(10);
    names
}

/// Replaces the variables in a text with their values.
fn expanded(text: &str, value_of: impl Fn(&str) -> String) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        let braced = behind
            .strip_prefix('{')
            .and_then(|inner| inner.split_once('}'));
        let plain = behind.len() - behind.trim_start_matches(is_in_name).len();
        if let Some((name, after)) = braced {
            out.push_str(&value_of(name));
            rest = after;
        } else if plain > 0 && !behind.starts_with(|first: char| first.is_ascii_digit()) {
            out.push_str(&value_of(&behind[..plain]));
            rest = &behind[plain..];
        } else {
            out.push('$');
            rest = behind;
        }
    }
    out + rest
}

fn is_in_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

fn wrong(what: impl Into<String>) -> Failure {
    Failure::new(Exit::Configuration, what)
}

fn failure_of(problem: Problem) -> Failure {
    let Problem {
        what,
        details,
        hint,
    } = problem;
    Failure {
        exit: Exit::Configuration,
        what,
        details,
        hint,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_refer_to_what_is_set() {
        let value_of = |name: &str| match name {
            "A" => "1".to_owned(),
            "LONG_2" => "two".to_owned(),
            _ => String::new(),
        };
        for (text, expected) in [
            ("plain", "plain"),
            ("$A:$LONG_2/x", "1:two/x"),
            ("${A}B${NONE}", "1B"),
            ("cost: 5$", "cost: 5$"),
            ("$1 ${open", "$1 ${open"),
        ] {
            assert_eq!(expanded(text, value_of), expected, "{text}");
        }
    }
}
