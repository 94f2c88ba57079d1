//! The result of `pedl verify`: a table for people, or JSON for programs.

use std::fmt::Write as _;
use std::path::PathBuf;

use pedl_core::exit_codes;
use serde_json::{Value, json};

use super::cause::{self, Cause};
use super::compare::Compared;
use super::copy::Extent;
use super::run::{Delivered, FinishedRun};

/// The version of the JSON.
const SCHEMA: u32 = 1;

/// The head of the column of faults.
const FAULTS: &str = "faults (and the batch it went on after)";

/// The outcome of the verification, which decides the exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Every disturbed run equals the undisturbed ones.
    Identical,
    /// A disturbed run differs.
    Different,
    /// Two undisturbed runs differ.
    NotRepeatable,
    /// Nothing was shown, for this reason.
    Unproven(String),
}

impl Verdict {
    pub(super) fn exit_code(&self) -> i32 {
        match self {
            Self::Identical => 0,
            Self::Different => exit_codes::DIVERGED,
            Self::NotRepeatable | Self::Unproven(_) => exit_codes::NOT_EXACT,
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Identical => "identical",
            Self::Different => "different",
            Self::NotRepeatable => "not_repeatable",
            Self::Unproven(_) => "unproven",
        }
    }
}

/// One run in the result.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) run: FinishedRun,
    pub(super) compared: Compared,
    pub(super) cause: Option<Cause>,
    /// The directory that was kept; `None`: it was removed.
    pub(super) kept: Option<PathBuf>,
}

/// All results that are reported.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) verdict: Verdict,
    pub(super) command: Vec<String>,
    pub(super) exact: bool,
    pub(super) exactness: String,
    pub(super) seed: u64,
    pub(super) origin: PathBuf,
    pub(super) extent: Extent,
    pub(super) batches: u64,
    pub(super) lines: usize,
    pub(super) files: usize,
    pub(super) excluded: Vec<String>,
    /// Files that the script writes outside of its copy: runs share them.
    pub(super) outside: Vec<PathBuf>,
    /// The differences between the two undisturbed runs, if no clock explains them.
    pub(super) between_controls: Option<Cause>,
    pub(super) seconds: Vec<f64>,
    pub(super) rows: Vec<Row>,
    pub(super) kept: Vec<PathBuf>,
}

impl Report {
    fn delivered(&self) -> impl Iterator<Item = &Delivered> {
        self.rows.iter().flat_map(|row| &row.run.delivered)
    }

    /// The number of faults that came; of those after which the run resumed from a checkpoint; and
    /// the largest number of these within one epoch of one run.
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        let resumed = self.delivered().filter(|it| it.resumed.is_some()).count();
        let in_one_epoch = self.rows.iter().map(|row| {
            let epoch = |it: &Delivered| row.run.journal.epoch_of(it.resumed?);
            let epochs: Vec<_> = row.run.delivered.iter().filter_map(epoch).collect();
            let same = |one: &u64| epochs.iter().filter(|other| *other == one).count();
            epochs.iter().map(same).max().unwrap_or(0)
        });
        (
            self.delivered().count(),
            resumed,
            in_one_epoch.max().unwrap_or(0),
        )
    }

    fn workers_killed(&self) -> usize {
        self.rows.iter().map(|row| row.run.workers_killed).sum()
    }

    /// The result for programs.
    pub(super) fn to_json(&self) -> String {
        let (delivered, resumed, in_one_epoch) = self.counts();
        let rows = self.rows.iter().map(row_json);
        let reason = match &self.verdict {
            Verdict::Unproven(reason) => Some(reason),
            _ => None,
        };
        let value = json!({
            "schema": SCHEMA,
            "verdict": self.verdict.word(),
            "reason": reason,
            "exit_code": self.verdict.exit_code(),
            "command": self.command,
            "exact": self.exact,
            "exact_resume": self.exactness,
            "seed": self.seed,
            "copied": {"directory": self.origin, "files": self.extent.files, "bytes": self.extent.bytes, "linked": self.extent.linked},
            "undisturbed": {
                "batches": self.batches,
                "seconds": self.seconds,
                "differ_in": self.between_controls.as_ref().map(cause_json),
            },
            "compared": {"lines": self.lines, "files": self.files},
            "excluded": self.excluded,
            "not_isolated": self.outside,
            "faults": {"delivered": delivered, "resumed": resumed, "in_one_epoch": in_one_epoch, "workers_killed": self.workers_killed()},
            "runs": rows.collect::<Vec<_>>(),
            "kept": self.kept,
        });
        format!("{value:#}\n")
    }

    /// The result for people.
    pub(super) fn to_text(&self) -> String {
        let mut out = String::new();
        let exact = if self.exact { "on" } else { "off" };
        let _ = writeln!(
            out,
            "\npedl verify {}     --exact is {exact}, exact resume: {}; --seed {}\n",
            self.command.join(" "),
            self.exactness,
            self.seed
        );
        let mut line = |name: &str, text: String| {
            let _ = writeln!(out, "  {name:<13}{text}");
        };
        line(
            "copied",
            format!(
                "{} files, {}, of {}; nothing was written there",
                self.extent.files,
                size(self.extent.bytes),
                self.origin.display()
            ),
        );
        if !self.extent.linked.is_empty() {
            let linked: Vec<_> = self
                .extent
                .linked
                .iter()
                .map(|it| it.display().to_string())
                .collect();
            line("linked", format!("{}: runs share them", linked.join(", ")));
        }
        let seconds: Vec<_> = self.seconds.iter().map(|it| format!("{it:.1} s")).collect();
        line(
            "undisturbed",
            format!("{} batches, {}", self.batches, seconds.join(" and ")),
        );
        line(
            "compared",
            format!(
                "each call and tensor, metrics, {} lines, {} files",
                self.lines, self.files
            ),
        );
        for (place, excluded) in self.excluded.iter().enumerate() {
            let name = if place == 0 { "not compared" } else { "" };
            line(name, format!("{excluded} (undisturbed runs differ in it)"));
        }
        for (place, path) in self.outside.iter().enumerate() {
            let name = if place == 0 { "not apart" } else { "" };
            line(name, format!("{} was written by every run", path.display()));
        }
        let faults = self.rows.iter().map(|row| faults_of(row).chars().count());
        let width = faults.chain([FAULTS.len()]).max().unwrap_or(0);
        if !self.rows.is_empty() {
            let _ = writeln!(
                out,
                "\n  {:<9}{:<width$}  {:<7}{:<7}{:<9}{:<9}files",
                "run", FAULTS, "calls", "state", "metrics", "printed"
            );
        }
        for row in &self.rows {
            write_row(&mut out, row, width);
        }
        out.push('\n');
        self.write_end(&mut out);
        out
    }

    fn write_end(&self, out: &mut String) {
        let (delivered, resumed, in_one_epoch) = self.counts();
        if let (Verdict::NotRepeatable, Some(cause)) = (&self.verdict, &self.between_controls) {
            let _ = writeln!(
                out,
                "  NOT REPEATABLE: two undisturbed runs with the same seeds differ"
            );
            write_cause(out, cause);
        }
        for row in self.rows.iter().filter(|row| !row.compared.is_identical()) {
            let _ = writeln!(out, "  {}: DIFFERENT", row.run.name);
            if let Some(cause) = &row.cause {
                write_cause(out, cause);
            }
            for (what, text) in differences(&row.compared) {
                let _ = writeln!(out, "    {what:<9}{text}");
            }
        }
        let workers = match self.workers_killed() {
            0 => String::new(),
            1 => ", and a worker process was killed besides".to_owned(),
            some => format!(", and {some} worker processes were killed besides"),
        };
        let _ = match &self.verdict {
            Verdict::Identical => writeln!(
                out,
                "  IDENTICAL: {delivered} faults, {resumed} of them after a checkpoint, {in_one_epoch} within one epoch{workers}; \
                 every run ended as the undisturbed ones"
            ),
            Verdict::Different => {
                let different = self.rows.iter().filter(|row| !row.compared.is_identical());
                let all = self.rows.len();
                writeln!(
                    out,
                    "  DIFFERENT: {} of {all} disturbed runs; {resumed} of {delivered} faults fell after a checkpoint",
                    different.count()
                )
            }
            Verdict::NotRepeatable => writeln!(out, "  nothing is shown about its resume"),
            Verdict::Unproven(reason) => writeln!(out, "  NOTHING SHOWN: {reason}"),
        };
        for path in &self.kept {
            let _ = writeln!(out, "  kept: {}", path.display());
        }
    }
}

fn write_cause(out: &mut String, cause: &Cause) {
    if let Some(batch) = cause.batch {
        let tensor = cause
            .tensors
            .first()
            .map(|name| format!(", tensor `{name}`"));
        let _ = writeln!(
            out,
            "    first    batch {batch}{}",
            tensor.unwrap_or_default()
        );
    }
    let _ = writeln!(out, "    cause    probably: {}", cause.text);
}

/// The faults of a run, and the batch after which each continued.
fn faults_of(row: &Row) -> String {
    let faults = row.run.delivered.iter().map(|it| match it.resumed {
        Some(batch) => format!("{} ({batch})", it.kind),
        None => format!("{} (anew)", it.kind),
    });
    let mut text = faults.collect::<Vec<_>>().join(", ");
    if !row.run.missed.is_empty() {
        let missed: Vec<_> = row
            .run
            .missed
            .iter()
            .map(|it| it.kind.to_string())
            .collect();
        let separator = if text.is_empty() { "" } else { "; " };
        text = format!("{text}{separator}not come: {}", missed.join(", "));
    }
    text
}

fn write_row(out: &mut String, row: &Row, width: usize) {
    let mark = |is_equal: bool| if is_equal { "=" } else { "DIFF" };
    let compared = &row.compared;
    let state = if compared.state_missing {
        "?"
    } else {
        mark(compared.state.is_none())
    };
    let _ = writeln!(
        out,
        "  {:<9}{:<width$}  {:<7}{:<7}{:<9}{:<9}{}",
        row.run.name,
        faults_of(row),
        mark(compared.calls.is_none() && compared.ending.is_none()),
        state,
        mark(compared.metrics.is_none()),
        mark(compared.printed.is_none()),
        mark(compared.files.is_empty())
    );
}

/// The differences, by the kind of result.
fn differences(compared: &Compared) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    found.extend(compared.ending.clone().map(|text| ("end", text)));
    found.extend(compared.calls.as_ref().map(|it| {
        let text = format!(
            "call {}, batch {}, {}: {}, not {}",
            it.number, it.batch, it.what, it.found, it.expected
        );
        ("calls", text)
    }));
    found.extend(compared.state.as_ref().map(|it| {
        let members = if it.rest.is_empty() {
            String::new()
        } else {
            format!("; {}", it.rest.join(", "))
        };
        let text = format!(
            "after batch {}, {} of {} tensors: {}{members}",
            it.batch,
            it.tensors.len(),
            it.compared,
            cause::shown(&it.tensors)
        );
        ("state", text)
    }));
    if compared.state_missing {
        found.push((
            "state",
            "no checkpoint of the last batch was there to be compared".to_owned(),
        ));
    }
    found.extend(compared.metrics.clone().map(|text| ("metrics", text)));
    found.extend(compared.printed.clone().map(|text| ("printed", text)));
    found.extend(compared.files.iter().map(|text| ("file", text.clone())));
    found
}

fn row_json(row: &Row) -> Value {
    let faults = row.run.delivered.iter().map(|it| {
        json!({
            "fault": it.kind.word(),
            "checkpoint": it.checkpoint,
            "ended_with": it.ending,
            "resumed": it.resumed,
            "epoch": it.resumed.and_then(|batch| row.run.journal.epoch_of(batch)),
        })
    });
    let differences = differences(&row.compared).into_iter();
    json!({
        "name": row.run.name,
        "identical": row.compared.is_identical(),
        "seconds": row.run.seconds,
        "faults": faults.collect::<Vec<_>>(),
        "not_come": row.run.missed.iter().map(|it| it.kind.word()).collect::<Vec<_>>(),
        "differences": differences.map(|(what, text)| json!({"of": what, "text": text})).collect::<Vec<_>>(),
        "cause": row.cause.as_ref().map(cause_json),
        "kept": row.kept,
    })
}

fn cause_json(cause: &Cause) -> Value {
    json!({"batch": cause.batch, "tensors": cause.tensors, "text": cause.text})
}

#[expect(clippy::cast_precision_loss, reason = "a size for people")]
fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["bytes", "KiB", "MiB", "GiB"];
    let mut number = bytes as f64;
    let mut unit = 0;
    while number >= 1024.0 && unit + 1 < UNITS.len() {
        number /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{bytes} bytes")
    } else {
        format!("{number:.1} {}", UNITS[unit])
    }
}
