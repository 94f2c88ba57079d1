//! `list`, `show` and `verify`: what checkpoints hold, and whether they are whole.

use std::fmt::Write as _;

use pedl_core::checkpoint::Manifest;
use pedl_core::inspect::{Depth, Entry};
use pedl_core::printable::{printable, printable_lines};
use serde_json::{Value, json};

use super::chosen::{chosen, entries};
use super::{Arguments, print_json, shown};
use crate::cli::report;
use crate::cli::table::table;
use crate::cli::units::{age, bytes};
use crate::failure::{Exit, Failure};

pub(super) fn list(arguments: &Arguments) -> Result<i32, Failure> {
    let (_, entries) = entries(arguments, Depth::Sizes)?;
    if arguments.is_json {
        return Ok(print_json(&entries.iter().map(summary).collect()));
    }
    let mut rows = vec![
        [
            "checkpoint",
            "batch",
            "step",
            "epoch",
            "size",
            "new",
            "age",
            "state",
            "metrics",
        ]
        .map(str::to_owned),
    ];
    rows.extend(entries.iter().map(row));
    Ok(report::answer(&table(&rows)))
}

fn row(entry: &Entry) -> [String; 9] {
    let of = |value: fn(&Manifest) -> String| entry.manifest.as_ref().map_or("-".to_owned(), value);
    let metrics = entry.metrics.iter();
    let metrics: Vec<_> = metrics
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    [
        entry.name.clone(),
        entry.batch.to_string(),
        of(|manifest| manifest.step.to_string()),
        of(|manifest| {
            manifest
                .epoch
                .map_or("-".to_owned(), |epoch| epoch.to_string())
        }),
        bytes(entry.bytes()),
        bytes(entry.new_bytes()),
        entry.age().map_or("-".to_owned(), age),
        match &entry.damage[..] {
            [] => "whole".to_owned(),
            [what, ..] => format!("damaged: {what}"),
        },
        metrics.join(", "),
    ]
}

fn summary(entry: &Entry) -> Value {
    let manifest = entry.manifest.as_ref();
    json!({
        "name": entry.name,
        "path": entry.folder,
        "batch": entry.batch,
        "step": manifest.map(|it| it.step),
        "epoch": manifest.and_then(|it| it.epoch),
        "uuid": manifest.map(|it| &it.uuid),
        "created": manifest.map(|it| &it.created),
        "age_seconds": entry.age().map(|age| age.as_secs_f64()),
        "bytes": entry.bytes(),
        "new_bytes": entry.new_bytes(),
        "metrics": entry.metrics,
        "whole": entry.damage.is_empty(),
        "damage": entry.damage,
    })
}

pub(super) fn show(arguments: &Arguments) -> Result<i32, Failure> {
    let (trial_dir, entries) = entries(arguments, Depth::Sizes)?;
    let (entry, manifest) = chosen(&trial_dir, &entries, arguments.checkpoint.as_deref())?;
    if arguments.is_json {
        let mut shown = summary(entry);
        shown["manifest"] = json!(manifest);
        return Ok(print_json(&shown));
    }
    let mut text = String::new();
    let epoch = manifest
        .epoch
        .map_or(String::new(), |epoch| format!(", epoch {epoch}"));
    let lines = [
        ("checkpoint", format!("{} ({})", entry.name, manifest.uuid)),
        (
            "after",
            format!("batch {}, step {}{epoch}", manifest.batch, manifest.step),
        ),
        (
            "written",
            format!("{} by pedl-run {}", manifest.created, manifest.pedl_version),
        ),
        (
            "log",
            format!("{} calls, {}", manifest.calls, bytes(manifest.log_offset)),
        ),
        (
            "size",
            format!(
                "{}, of which {} were new",
                bytes(entry.bytes()),
                bytes(entry.new_bytes())
            ),
        ),
        (
            "state",
            if entry.damage.is_empty() {
                "whole".to_owned()
            } else {
                format!("damaged: {}", entry.damage.join("; "))
            },
        ),
    ];
    for (name, value) in lines {
        let _ = writeln!(text, "{name:<12}{}", printable(&value));
    }
    let mut rows = vec![["tensor", "type", "shape", "size", "pack"].map(str::to_owned)];
    rows.extend(manifest.tensors.iter().map(|tensor| {
        let pack = manifest.packs.get(tensor.pack);
        [
            tensor.name.clone(),
            tensor.dtype.clone(),
            format!("{:?}", tensor.shape),
            bytes(tensor.size),
            pack.map_or("-".to_owned(), |pack| {
                pack.blake3.chars().take(12).collect()
            }),
        ]
    }));
    let _ = write!(text, "\n{}", table(&rows));
    if !manifest.kept.is_empty() {
        let mut rows = vec![["file of the script", "size", "content"].map(str::to_owned)];
        rows.extend(manifest.kept.iter().map(|kept| {
            let hash = kept.blake3.chars().take(12).collect();
            [kept.path.display().to_string(), bytes(kept.size), hash]
        }));
        let _ = write!(text, "\n{}", table(&rows));
    }
    Ok(report::answer(&text))
}

pub(super) fn verify(arguments: &Arguments) -> Result<i32, Failure> {
    let (trial_dir, entries) = entries(arguments, Depth::Bytes)?;
    let damaged = entries
        .iter()
        .filter(|entry| !entry.damage.is_empty())
        .count();
    let code = if damaged == 0 {
        0
    } else {
        Exit::Configuration as i32
    };
    if arguments.is_json {
        let checkpoints: Vec<_> = entries.iter().map(summary).collect();
        print_json(&json!({"whole": damaged == 0, "checkpoints": checkpoints}));
        return Ok(code);
    }
    let mut text = String::new();
    for entry in &entries {
        if entry.damage.is_empty() {
            let _ = writeln!(text, "{}: whole, {}", entry.name, bytes(entry.bytes()));
        } else {
            let _ = writeln!(text, "{}: damaged", entry.name);
        }
        for what in &entry.damage {
            let what = printable_lines(what).replace('\n', "\n  ");
            let _ = writeln!(text, "  {what}");
        }
    }
    if entries.is_empty() {
        let _ = writeln!(text, "there is no checkpoint in `{}`", shown(&trial_dir));
    }
    report::answer(&text);
    Ok(code)
}
