//! `pedl verify SCRIPT`: shows that exact resume holds, on the user's own script and machine.
//!
//! 1. Two **undisturbed** runs, with the same seeds. Their differences (times, random names) are
//!    excluded from everything that follows, and listed. If their computations differ, the script
//!    is not reproducible, and nothing can be shown.
//! 2. **Disturbed** runs: killed, terminated, out of disk space, at random moments (`faults`), and
//!    each time the same command again, until the script has ended.
//! 3. Each is **compared** with the undisturbed ones (`compare`): every recorded call with what it
//!    returned, the state after the last batch, metrics, printed output, and files.
//! 4. If one differs, another undisturbed run is made, up to the batches around the resumes of that
//!    run: the tensor that differs first shows the probable **cause** (`cause`).
//!
//! Every run takes place in a copy of the current directory (`stage`, `copy`). While it runs,
//! `running` delivers the faults; what is known of it afterwards is a `run::FinishedRun`.
//!
//! Every run uses the ordinary executable. Nothing in a run knows that it is observed. Only
//! checkpoints after chosen batches are requested (`--checkpoint-batches`), so that states can be
//! compared after the same batch. The user's directory is only read.

mod cause;
mod compare;
mod copy;
mod failures;
mod faults;
mod observe;
mod process;
mod random;
mod report;
mod request;
mod run;
mod running;
mod stage;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cli::parse::Program;
use crate::cli::report as console;
use crate::failure::{Exit, Failure};
use crate::{interpreter, library};
use cause::{Cause, Resume};
use compare::{Compared, Reference};
use failures::{cannot_write, not_copied, too_large, unreadable};
use faults::Planned;
use observe::State;
use random::Random;
use report::{Report, Row, Verdict};
pub(crate) use request::OPTIONS;
use request::Request;
use run::{Checkpoints, FinishedRun, Length, NEVER_SECONDS, describe};
use stage::Stage;

/// The interval of checkpoints in the first run, which shows whether it takes any, and how long it
/// trains.
const FIRST_CHECKPOINT_SECONDS: f64 = 0.1;

/// The number of checkpoints that disturbed runs take in the time of an undisturbed training,
/// within these limits of the interval.
const CHECKPOINTS_OF_A_RUN: f64 = 25.0;
const CHECKPOINT_SECONDS: (f64, f64) = (0.05, 10.0);

/// The number of resumes before a difference whose states are examined.
const RESUMES_LOOKED_AT: usize = 2;

/// Runs `pedl verify`; returns the exit code, `None` if help is requested.
pub(crate) fn run(arguments: &[std::ffi::OsString]) -> Result<Option<i32>, Failure> {
    let Some(request) = Request::read(arguments)? else {
        return Ok(None);
    };
    let mut options = request.line.options.clone();
    options.quiet |= request.json;
    console::start_logging(&options);
    let bug = |error: io::Error| Failure::bug("a system call failed").detail(error.to_string());
    process::become_reaper().map_err(bug)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted)).map_err(bug)?;
    }
    let mut verification = Verification::prepare(request, interrupted)?;
    let outcome = verification.carry_out();
    if let Ok(report) = &outcome {
        let text = if verification.request.json {
            report.to_json()
        } else {
            report.to_text()
        };
        console::answer(&text);
    }
    outcome.map(|report| Some(report.verdict.exit_code()))
}

struct Verification {
    request: Request,
    stage: Stage,
    extent: copy::Extent,
    seed: u64,
}

impl Verification {
    fn prepare(request: Request, interrupted: Arc<AtomicBool>) -> Result<Self, Failure> {
        let library = library::locate()?;
        let (python, _) = interpreter::find(&request.line, &library.cache)?;
        let here = |error: io::Error| {
            Failure::new(Exit::CannotCreate, "the current directory cannot be read")
                .detail(error.to_string())
        };
        let origin = env::current_dir()
            .and_then(|it| it.canonicalize())
            .map_err(here)?;
        let extent = copy::measure(&origin, request.copy_limit_bytes).map_err(here)?;
        if extent.bytes > request.copy_limit_bytes {
            return Err(too_large(&origin, request.copy_limit_bytes));
        }
        let mut words = request.words.clone();
        if let Program::Script(script) = &request.line.program {
            // A script with an absolute path must be replaced by the one in the copy.
            let script = match request::below(script, &origin) {
                Some(below) if below.as_os_str().is_empty() => PathBuf::from("."),
                Some(below) => below,
                None if request.line.options.config.is_some() && Path::new(script).is_dir() => {
                    return Err(not_copied(script));
                }
                None => Path::new(script)
                    .canonicalize()
                    .unwrap_or_else(|_| script.into()),
            };
            words[request.program] = script.into();
        }
        let above = request.work_dir.clone().unwrap_or_else(env::temp_dir);
        let work = new_directory(&above)?;
        let mut seed = [0; 4];
        getrandom(&mut seed, GetRandomFlags::empty())
            .map_err(|error| Failure::bug("getrandom failed").detail(error.to_string()))?;
        let executable = env::current_exe().map_err(|error| {
            Failure::bug("this executable is not found").detail(error.to_string())
        })?;
        Ok(Self {
            seed: request
                .seed
                .unwrap_or_else(|| u32::from_le_bytes(seed).into()),
            stage: Stage {
                work,
                origin,
                executable,
                python: python.executable,
                words,
                identity: None,
                interrupted,
            },
            request,
            extent,
        })
    }

    fn carry_out(&mut self) -> Result<Report, Failure> {
        let mut random = Random::new(self.seed);
        let checkpoints = Checkpoints {
            seconds: FIRST_CHECKPOINT_SECONDS,
            batches: Vec::new(),
            after_resume: false,
        };
        let first = self.undisturbed("control-1", &checkpoints)?;
        let mut report = self.new_report(&first);
        let common = match last_checkpoint(&first) {
            Ok(common) => common,
            Err(reason) => {
                report.verdict = Verdict::Unproven(reason);
                self.clean_up(&mut report, &[&first]);
                return Ok(report);
            }
        };
        let record = first.trial.join("trial.json");
        self.stage.identity =
            Some(fs::read(&record).map_err(|error| cannot_write(&record, &error))?);
        let batches = compare::calls::compare(
            &first.trial.join(compare::LOG),
            &first.trial.join(compare::LOG),
            &compare::calls::Excluded::default(),
        )
        .map_err(unreadable)?
        .batches;
        let checkpoints = Checkpoints {
            seconds: NEVER_SECONDS,
            batches: vec![common, batches],
            after_resume: false,
        };
        let second = self.undisturbed("control-2", &checkpoints)?;
        let (reference, differing) =
            Reference::new(&first, &second, Some(common)).map_err(unreadable)?;
        report.batches = reference.batches;
        report.seconds.push(second.seconds);
        report.excluded = reference.excluded();
        (report.lines, report.files) = reference.extent();
        if !differing.is_identical() {
            report.between_controls = Some(between_controls(&differing));
            report.verdict = Verdict::NotRepeatable;
            self.clean_up(&mut report, &[&first, &second]);
            return Ok(report);
        }
        if !reference.has_state() {
            let reason = format!("no checkpoint was taken after the last batch, {batches}");
            report.verdict = Verdict::Unproven(reason);
            self.clean_up(&mut report, &[&first, &second]);
            return Ok(report);
        }
        self.disturb(
            &reference,
            (&first, &second),
            batches,
            &mut random,
            &mut report,
        )?;
        report.verdict = verdict(&report);
        self.clean_up(&mut report, &[&first, &second]);
        Ok(report)
    }

    fn new_report(&self, first: &FinishedRun) -> Report {
        let command = self.request.line.command();
        Report {
            verdict: Verdict::Identical,
            command,
            exact: self.request.line.options.exact,
            exactness: first.exactness().unwrap_or("nothing is trained").to_owned(),
            seed: self.seed,
            origin: self.stage.origin.clone(),
            extent: self.extent.clone(),
            batches: 0,
            lines: 0,
            files: 0,
            excluded: Vec::new(),
            outside: written_outside(first, &self.stage.work),
            between_controls: None,
            seconds: vec![first.seconds],
            rows: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// A run without a fault. If it fails, nothing can be shown, and the failure is returned.
    fn undisturbed(&self, name: &str, checkpoints: &Checkpoints) -> Result<FinishedRun, Failure> {
        let run = self.stage.run(
            name,
            checkpoints,
            &[],
            Length::default(),
            &mut Random::new(0),
        )?;
        if !run.status.success() {
            let what = format!(
                "the script ended with {} in an undisturbed run",
                describe(run.status)
            );
            let mut failure = Failure::new(Exit::NotShown, what);
            let lines = run.output.error.iter().flat_map(|error| error.lines());
            for line in lines.chain(run.output.script.iter().map(String::as_str)) {
                failure = failure.detail(line.trim_end());
            }
            return Err(failure
                .detail(format!("its directory is kept: {}", run.files.display()))
                .hint("run it by `pedl-run` first; it has to end with exit code 0"));
        }
        tracing::info!("verify: {name}: undisturbed, {:.1} s", run.seconds);
        Ok(run)
    }

    /// All disturbed runs, one after the other.
    fn disturb(
        &self,
        reference: &Reference<'_>,
        (first, second): (&FinishedRun, &FinishedRun),
        batches: u64,
        random: &mut Random,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let (least, most) = CHECKPOINT_SECONDS;
        let seconds_per_batch = first.seconds_per_batch.unwrap_or(0.0);
        #[expect(clippy::cast_precision_loss, reason = "it is a guess at best")]
        let training = seconds_per_batch * batches as f64;
        let checkpoints = Checkpoints {
            seconds: (training / CHECKPOINTS_OF_A_RUN).clamp(least, most),
            batches: vec![batches],
            after_resume: true,
        };
        let length = Length {
            seconds: second.seconds,
            batches,
        };
        let mut waiting = faults::plan(self.request.faults, random);
        let mut missed: Vec<Planned> = Vec::new();
        waiting.reverse();
        let mut is_extra = false;
        while let Some(faults) = waiting.pop() {
            let name = format!("fault-{}", report.rows.len() + 1);
            let run = self
                .stage
                .run(&name, &checkpoints, &faults, length, random)?;
            missed.extend(&run.missed);
            let compared = reference.compare(&run).map_err(unreadable)?;
            let is_identical = compared.is_identical();
            tracing::info!(
                "verify: {name}: {} faults, {:.1} s: {}",
                run.delivered.len(),
                run.seconds,
                if is_identical {
                    "identical"
                } else {
                    "DIFFERENT"
                }
            );
            let cause = if is_identical {
                None
            } else {
                Some(self.find_cause(reference, &run, &compared)?)
            };
            let kept = if is_identical && !self.request.keep {
                fs::remove_dir_all(&run.directory)
                    .map_err(|error| cannot_write(&run.directory, &error))?;
                None
            } else {
                Some(run.files.clone())
            };
            report.rows.push(Row {
                run,
                compared,
                cause,
                kept,
            });
            if waiting.is_empty() && !is_extra && !missed.is_empty() {
                // Faults that came too late for their run get separate runs, each with fewer faults
                // before it.
                is_extra = true;
                waiting = missed.drain(..).map(|fault| vec![fault]).rev().collect();
            }
        }
        Ok(())
    }

    fn find_cause(
        &self,
        reference: &Reference<'_>,
        run: &FinishedRun,
        compared: &Compared,
    ) -> Result<Cause, Failure> {
        let call = compared.calls.as_ref();
        let before = |batch: u64| call.is_none_or(|call| batch < call.batch);
        let near: Vec<_> = run
            .evidence
            .iter()
            .filter(|it| before(it.resumed))
            .collect();
        let near = &near[near.len().saturating_sub(RESUMES_LOOKED_AT)..];
        let mut batches: Vec<_> = near
            .iter()
            .flat_map(|it| [Some(it.resumed), it.after.as_ref().map(|state| state.batch)])
            .flatten()
            .collect();
        batches.sort_unstable();
        batches.dedup();
        let states = if batches.is_empty() {
            BTreeMap::default()
        } else {
            self.stage.states_at(&batches)?
        };
        let difference = |found: &Option<State>| {
            let found = found.as_ref()?;
            Some(reference.state_difference(states.get(&found.batch)?, found))
        };
        let resumes: Vec<_> = near
            .iter()
            .map(|it| Resume {
                batch: it.resumed,
                stored: difference(&it.stored),
                after: difference(&it.after),
            })
            .collect();
        let error = run
            .output
            .error
            .as_deref()
            .filter(|_| !run.status.success());
        Ok(cause::name(error, call, &resumes, compared.state.as_ref()))
    }

    /// Removes unneeded directories, and notes those that are kept.
    fn clean_up(&self, report: &mut Report, controls: &[&FinishedRun]) {
        report.kept = report
            .rows
            .iter()
            .filter_map(|row| row.kept.clone())
            .collect();
        let is_needed = self.request.keep || !matches!(report.verdict, Verdict::Identical);
        if is_needed {
            report
                .kept
                .extend(controls.iter().map(|run| run.files.clone()));
        } else if let Err(error) = fs::remove_dir_all(&self.stage.work) {
            tracing::warn!("`{}` cannot be removed: {error}", self.stage.work.display());
        }
    }
}

/// The batch of the last checkpoint of the first run; or why nothing can be shown.
fn last_checkpoint(first: &FinishedRun) -> Result<u64, String> {
    let Some(exactness) = first.exactness() else {
        return Err("the script trains nothing that is intercepted".to_owned());
    };
    match State::newest(&first.trial) {
        Some(state) => Ok(state.batch),
        None if exactness.starts_with("yes") => Err(format!(
            "it was over before a checkpoint was taken, which it is every {FIRST_CHECKPOINT_SECONDS} s"
        )),
        None => Err(format!("exact resume: {exactness}")),
    }
}

fn verdict(report: &Report) -> Verdict {
    if report.rows.iter().any(|row| !row.compared.is_identical()) {
        return Verdict::Different;
    }
    match report.counts() {
        (0, ..) => Verdict::Unproven("the script was over before any fault came".to_owned()),
        (delivered, 0, _) => {
            let what = format!("none of {delivered} faults fell after a checkpoint");
            Verdict::Unproven(format!("{what}: every run began anew"))
        }
        _ => Verdict::Identical,
    }
}

/// The first difference between two undisturbed runs.
fn between_controls(differing: &Compared) -> Cause {
    let mut cause = cause::name(
        None,
        differing.calls.as_ref(),
        &[],
        differing.state.as_ref(),
    );
    cause.text = match (&differing.calls, &differing.metrics) {
        (Some(call), _) => format!(
            "call {} of the run, {}: {} and {}; the script, or the framework without `--exact`, does not repeat itself",
            call.number, call.what, call.expected, call.found
        ),
        (None, Some(metrics)) => metrics.clone(),
        (None, None) => cause.text,
    };
    cause
}

/// Files that the script wrote outside of its copy, according to the ledger of its trial.
fn written_outside(run: &FinishedRun, work: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(run.trial.join("files.jsonl")).unwrap_or_default();
    let entries = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let paths = entries.filter_map(|entry| {
        let kinds = [
            "created",
            "appended",
            "overwritten",
            "made",
            "removed",
            "changed",
            "begun",
        ];
        let path = kinds.iter().find_map(|kind| entry[*kind].as_str())?;
        Some(PathBuf::from(path)).filter(|path| path.is_absolute() && !path.starts_with(work))
    });
    let mut paths: Vec<PathBuf> = paths.collect();
    paths.sort();
    paths.dedup();
    paths
}

fn new_directory(above: &Path) -> Result<PathBuf, Failure> {
    let mut number = 0_u32;
    loop {
        let directory = above.join(format!("pedl-verify-{}-{number}", std::process::id()));
        match fs::create_dir(&directory) {
            Ok(()) => {
                let found = directory.canonicalize();
                return found.map_err(|error| cannot_write(&directory, &error));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(cannot_write(&directory, &error)),
        }
    }
}
