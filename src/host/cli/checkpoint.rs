//! `pedl checkpoint`: looks at the checkpoints of a trial, exports them, and copies the trial. It
//! takes no lock, and changes nothing: the trial may train meanwhile.
//!
//! The framework itself makes an export, in a separate interpreter (`py_hooks/verbs/export.py`),
//! which receives the tensors in a directory that is removed afterwards.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as FmtWrite;
use std::fs;
use std::io::{self, BufWriter, IsTerminal as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pedl_core::checkpoint::Manifest;
use pedl_core::inspect::{self, Depth, Entry};
use pedl_core::live_copy::{Content, LiveCopy};
use pedl_core::printable::{printable, printable_lines};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tar::{Builder, EntryType, Header};

use super::{parse, report, verbs};
use crate::failure::{Exit, Failure};
use crate::supervisor::TRIALS;
use crate::{interpreter, library};

/// The actions, in the order of the help: name, arguments, help.
pub(super) const ACTIONS: [(&str, &str, &str); 5] = [
    (
        "list",
        "[TRIAL_DIR] [--json]",
        "the checkpoints, newest first; whether all is there, in its size",
    ),
    (
        "show",
        "[TRIAL_DIR] [--checkpoint NAME] [--json]",
        "what is in one, the newest by default: tensors, files of the script",
    ),
    (
        "verify",
        "[TRIAL_DIR] [--json]",
        "reads every byte of all of them; exit code 65 where one is damaged",
    ),
    (
        "export",
        "[TRIAL_DIR] --output FILE [--checkpoint NAME] [--model N]\n          [--weights] [--trust] [--python PATH]",
        "the model as its framework reads it, by the ending of FILE: .keras, .h5,\n      \
         .weights.h5, .npz, .safetensors, of PyTorch .pt; a SavedModel where it has none.\n      \
         Only with `--trust` is code run that the checkpoint holds or names",
    ),
    (
        "snapshot",
        "TRIAL_DIR DEST [--json]",
        "copies a trial, also one that is trained now, into the directory DEST, which\n      \
         is not there yet: a trial that continues from the newest checkpoint. Checkpoints\n      \
         are hard links, if DEST is on the same file system. `-` is a tar on stdout",
    ),
];

/// The parsed arguments.
#[derive(Debug, Default)]
struct Asked {
    trial_dir: Option<PathBuf>,
    /// The destination of a copy.
    destination: Option<PathBuf>,
    checkpoint: Option<String>,
    is_json: bool,
    output: Option<OsString>,
    model: String,
    weights_only: bool,
    /// Code that the checkpoint holds or names may be run.
    is_trusted: bool,
    /// `--python PATH`, to be parsed as that of `pedl-run`.
    python: Vec<OsString>,
}

/// Runs a command line of the verb, and returns the exit code.
pub(super) fn run(arguments: &[OsString]) -> Result<i32, Failure> {
    let Some((action, rest)) = arguments.split_first() else {
        return Ok(report::answer(&help()));
    };
    let action = action.to_string_lossy();
    if matches!(&*action, "--help" | "-h") || rest.iter().any(|word| word == "--help") {
        return Ok(report::answer(&help()));
    }
    let run = match &*action {
        "list" => list,
        "show" => show,
        "verify" => verify,
        "export" => export,
        "snapshot" => snapshot,
        _ => {
            let names = ACTIONS.map(|(name, _, _)| format!("`{name}`")).join(", ");
            return Err(usage(format!("`pedl checkpoint` does not know `{action}`"))
                .detail(format!("expected: {names}")));
        }
    };
    run(&parse(&action, rest)?)
}

fn help() -> String {
    let mut text = String::from("usage: pedl checkpoint ACTION [TRIAL_DIR] [OPTIONS]...\n\n");
    for (name, arguments, about) in ACTIONS {
        let _ = writeln!(text, "  pedl checkpoint {name} {arguments}\n      {about}");
    }
    let _ = writeln!(
        text,
        "\nTRIAL_DIR is the only one below {TRIALS} where it is left out."
    );
    text
}

fn usage(what: impl Into<String>) -> Failure {
    let what = what.into();
    Failure::new(Exit::Usage, printable(&what))
        .hint("`pedl checkpoint --help` lists what can be asked for")
}

fn parse(action: &str, words: &[OsString]) -> Result<Asked, Failure> {
    let mut asked = Asked::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        let bytes = word.as_bytes();
        let end = bytes.iter().position(|byte| *byte == b'=');
        // A file may have any name.
        let (name, value) = match end.filter(|_| text.starts_with("--")) {
            Some(end) => (&bytes[..end], Some(OsStr::from_bytes(&bytes[end + 1..]))),
            None => (bytes, None),
        };
        let name = &*String::from_utf8_lossy(name);
        let is_export = action == "export";
        let mut value_of = |name: &str| {
            let value = value.or_else(|| words.next().map(OsString::as_os_str));
            value.ok_or_else(|| usage(format!("`{name}` has no value")))
        };
        let in_words = |value: &OsStr| value.to_string_lossy().into_owned();
        match name {
            "--json" if value.is_none() && !is_export => asked.is_json = true,
            "--weights" if value.is_none() && is_export => asked.weights_only = true,
            "--trust" if value.is_none() && is_export => asked.is_trusted = true,
            "--checkpoint" if is_export || action == "show" => {
                asked.checkpoint = Some(in_words(value_of(name)?));
            }
            "--output" if is_export => asked.output = Some(value_of(name)?.to_owned()),
            "--model" if is_export => asked.model = in_words(value_of(name)?),
            "--python" if is_export => {
                asked.python = vec!["--python".into(), value_of(name)?.into()];
            }
            "-" if action == "snapshot"
                && asked.trial_dir.is_some()
                && asked.destination.is_none() =>
            {
                asked.destination = Some(word.into());
            }
            _ if text.starts_with('-') => {
                return Err(usage(format!(
                    "`{text}` is no option of `pedl checkpoint {action}`"
                )));
            }
            _ if asked.trial_dir.is_none() => asked.trial_dir = Some(word.into()),
            _ if action == "snapshot" && asked.destination.is_none() => {
                asked.destination = Some(word.into());
            }
            _ => return Err(usage(format!("unexpected argument `{text}`"))),
        }
    }
    Ok(asked)
}

// -- which trial, which checkpoint ---------------------------------------------------------------

fn trial_dir(asked: &Asked) -> Result<PathBuf, Failure> {
    if let Some(path) = &asked.trial_dir {
        if path.join("trial.json").is_file() {
            return Ok(path.clone());
        }
        let what = format!("`{}` is no trial directory", shown(path));
        return Err(Failure::new(Exit::Usage, what)
            .detail("expected: a directory with `trial.json`")
            .hint("name the directory that `--trial-dir` named, or one below `.pedl`"));
    }
    let mut trials = trials_below(Path::new(TRIALS));
    match trials.len() {
        1 => Ok(trials.remove(0)),
        0 => Err(
            Failure::new(Exit::Usage, format!("there is no trial below `./{TRIALS}`"))
                .hint("name the trial directory: `pedl checkpoint ACTION TRIAL_DIR`"),
        ),
        number => {
            let names = trials.iter().map(|path| format!("`{}`", shown(path)));
            let names: Vec<_> = names.collect();
            let what = format!("there are {number} trials below `./{TRIALS}`");
            Err(Failure::new(Exit::Usage, what)
                .detail(format!("there is: {}", names.join(", ")))
                .hint("name one of them: `pedl checkpoint ACTION TRIAL_DIR`"))
        }
    }
}

fn trials_below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut trials: Vec<_> = paths
        .filter(|path| path.join("trial.json").is_file())
        .collect();
    trials.sort();
    trials
}

fn entries(asked: &Asked, depth: Depth) -> Result<(PathBuf, Vec<Entry>), Failure> {
    let trial_dir = trial_dir(asked)?;
    let entries = inspect::checkpoints(&trial_dir, depth).map_err(failure_of)?;
    Ok((trial_dir, entries))
}

#[expect(clippy::needless_pass_by_value, reason = "it is the end of the error")]
pub(super) fn failure_of(error: pedl_core::Error) -> Failure {
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim);
    let mut failure = Failure::new(
        Exit::Configuration,
        lines.next().unwrap_or_default().to_owned(),
    );
    failure.details.extend(lines.map(str::to_owned));
    failure.hint = error.hint();
    failure
}

/// The checkpoint of a name (`batch-0000000200`, or `200`); the newest without one.
fn chosen<'entries>(
    trial_dir: &Path,
    entries: &'entries [Entry],
    name: Option<&str>,
) -> Result<(&'entries Entry, &'entries Manifest), Failure> {
    let is_it = |entry: &&Entry| match name {
        Some(name) => entry.name == name || entry.batch.to_string() == name,
        None => true,
    };
    let Some(entry) = entries.iter().find(is_it) else {
        let names: Vec<_> = entries.iter().map(|entry| &entry.name[..]).collect();
        let there = if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        };
        let what = match name {
            Some(name) => format!(
                "there is no checkpoint `{}` in `{}`",
                printable(name),
                shown(trial_dir)
            ),
            None => format!("there is no checkpoint in `{}`", shown(trial_dir)),
        };
        let failure = Failure::new(Exit::Configuration, what).detail(format!("there is: {there}"));
        return Err(if names.is_empty() {
            failure.hint(
                "run the training with `--checkpoint-seconds N` or `--checkpoint-batches N,N`, below its length: the end of a \
                 script takes none",
            )
        } else {
            failure
        });
    };
    if let Some(manifest) = &entry.manifest {
        return Ok((entry, manifest));
    }
    let what = format!("checkpoint `{}` cannot be read", entry.name);
    let failure = Failure::new(Exit::Configuration, what);
    let failure = entry.damage.iter().cloned().fold(failure, Failure::detail);
    Err(failure.hint("name an older one with `--checkpoint NAME`"))
}

// -- list --------------------------------------------------------------------------------------

fn list(asked: &Asked) -> Result<i32, Failure> {
    let (_, entries) = entries(asked, Depth::Sizes)?;
    if asked.is_json {
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

// -- show --------------------------------------------------------------------------------------

fn show(asked: &Asked) -> Result<i32, Failure> {
    let (trial_dir, entries) = entries(asked, Depth::Sizes)?;
    let (entry, manifest) = chosen(&trial_dir, &entries, asked.checkpoint.as_deref())?;
    if asked.is_json {
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

// -- verify ------------------------------------------------------------------------------------

fn verify(asked: &Asked) -> Result<i32, Failure> {
    let (trial_dir, entries) = entries(asked, Depth::Bytes)?;
    let damaged = entries
        .iter()
        .filter(|entry| !entry.damage.is_empty())
        .count();
    let code = if damaged == 0 {
        0
    } else {
        Exit::Configuration as i32
    };
    if asked.is_json {
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

// -- export ------------------------------------------------------------------------------------

fn export(asked: &Asked) -> Result<i32, Failure> {
    let output = asked.output.as_deref().filter(|name| !name.is_empty());
    let output = output.ok_or_else(|| usage("`pedl checkpoint export` needs `--output FILE`"))?;
    if fs::symlink_metadata(output).is_ok() {
        let what = format!("`{}` is there already", output.display());
        let failure = Failure::new(Exit::Usage, what);
        return Err(failure.hint("name another file with `--output FILE`"));
    }
    let (trial_dir, entries) = entries(asked, Depth::Sizes)?;
    let (entry, _) = chosen(&trial_dir, &entries, asked.checkpoint.as_deref())?;
    let mut options = asked.python.clone();
    options.push("-".into());
    let line = parse::parse(options, |name| env::var_os(name))?;
    let library = library::locate()?;
    let (python, _) = interpreter::find(&line, &library.cache)?;

    let folder = Unpacked::new()?;
    inspect::unpack(&trial_dir, entry.batch, &folder.0).map_err(failure_of)?;
    let batch = entry.batch.to_string();
    let flag = |is_set| OsStr::new(if is_set { "1" } else { "0" });
    let words = [
        folder.0.as_os_str(),
        output,
        OsStr::new(&asked.model),
        flag(asked.weights_only),
        OsStr::new(&batch),
        flag(asked.is_trusted),
    ];
    let words = words.map(OsStr::to_owned);
    // Ctrl-C also reaches the interpreter and ends it; then the unpacked directory is removed.
    let interrupted = Arc::new(AtomicBool::new(false));
    if let Err(error) = signal_hook::flag::register(SIGINT, interrupted) {
        tracing::debug!("Ctrl-C may leave `{}`: {error}", folder.0.display());
    }
    verbs::ask(&python.executable, &library, "export", &words)
}

/// A directory that is removed when it is dropped.
struct Unpacked(PathBuf);

impl Unpacked {
    fn new() -> Result<Self, Failure> {
        let mut names = (1_u32..).map(|number| format!("pedl-export-{}-{number}", process::id()));
        loop {
            let name = names.next().unwrap_or_default();
            let path = env::temp_dir().join(name);
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                // It belongs to a process that was killed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let what = format!("cannot make directory `{}`", path.display());
                    return Err(Failure::new(Exit::CannotCreate, what)
                        .detail(error.to_string())
                        .hint("name a directory with room in `TMPDIR`"));
                }
            }
        }
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::debug!("`{}` is left: {error}", self.0.display());
        }
    }
}

// -- snapshot ----------------------------------------------------------------------------------

fn snapshot(asked: &Asked) -> Result<i32, Failure> {
    let (Some(_), Some(destination)) = (&asked.trial_dir, &asked.destination) else {
        return Err(
            usage("`pedl checkpoint snapshot` needs a trial and a destination")
                .detail("expected: pedl checkpoint snapshot TRIAL_DIR DEST, or `-` for DEST"),
        );
    };
    let is_stream = destination == Path::new("-");
    if is_stream && io::stdout().is_terminal() {
        let what = "a tar archive is not written to a terminal";
        return Err(usage(what).detail("expected: standard output is a pipe or a file"));
    }
    let trial_dir = trial_dir(asked)?;
    if !is_stream {
        check_outside(destination, &trial_dir)?;
    }
    allow_many_files();
    let copy = LiveCopy::take(&trial_dir).map_err(failure_of)?;
    if is_stream {
        write_archive(&copy, &trial_dir)?;
        return Ok(0);
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))
            .map_err(|error| Failure::bug("a system call failed").detail(error.to_string()))?;
    }
    let is_stopped = || interrupted.load(Ordering::Relaxed);
    let totals = copy.put_at(destination, &is_stopped).map_err(|error| {
        let mut failure = failure_of(error);
        failure.exit = if is_stopped() {
            Exit::Interrupted
        } else {
            Exit::CannotCreate
        };
        failure
    })?;
    if asked.is_json {
        return Ok(print_json(&json!({
            "path": destination,
            "batch": copy.batch,
            "checkpoints": copy.checkpoints,
            "bytes": totals.bytes,
            "linked_bytes": totals.linked_bytes,
        })));
    }
    let text = format!(
        "{}: {}, {}, of which {} are hard links\n",
        destination.display(),
        copy.checkpoints.join(", "),
        bytes(totals.bytes),
        bytes(totals.linked_bytes)
    );
    Ok(report::answer(&text))
}

/// Refuses a destination in the trial itself.
fn check_outside(destination: &Path, trial_dir: &Path) -> Result<(), Failure> {
    let parent = destination
        .parent()
        .filter(|parent| *parent != Path::new(""));
    let parent = parent.unwrap_or(Path::new(".")).canonicalize();
    let trial = trial_dir.canonicalize();
    if let (Ok(parent), Ok(trial)) = (parent, trial)
        && parent.starts_with(trial)
    {
        let what = format!("`{}` is in the trial itself", destination.display());
        return Err(Failure::new(Exit::Usage, what).hint("name a directory elsewhere"));
    }
    Ok(())
}

/// All files of a trial are open at once.
fn allow_many_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!("the limit of open files stays: {error}");
    }
}

fn write_archive(copy: &LiveCopy, trial_dir: &Path) -> Result<(), Failure> {
    let cannot = |error: io::Error| {
        Failure::new(Exit::CannotCreate, "cannot write the archive")
            .detail(error.to_string())
            .detail("what was written of it is no trial")
    };
    let absolute = trial_dir.canonicalize().map_err(cannot)?;
    let top = Path::new(absolute.file_name().unwrap_or(OsStr::new("trial")));
    let mut archive = Builder::new(BufWriter::new(io::stdout().lock()));
    let header = |kind: EntryType, mode: u32, size: u64| {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size);
        header.set_mtime(0);
        header
    };
    let mut directory = header(EntryType::Directory, 0o755, 0);
    let appended = archive.append_data(&mut directory, top.join(""), io::empty());
    appended.map_err(cannot)?;
    for part in copy.parts() {
        let path = top.join(&part.name);
        match &part.content {
            Content::Directory => {
                let mut header = header(EntryType::Directory, 0o755, 0);
                archive.append_data(&mut header, path.join(""), io::empty())
            }
            Content::Link(target) => {
                archive.append_link(&mut header(EntryType::Symlink, 0o777, 0), path, target)
            }
            Content::File {
                file, bytes, mode, ..
            } => {
                let mut reader = part.reader(file, *bytes);
                let mut header = header(EntryType::Regular, *mode, *bytes);
                let appended = archive.append_data(&mut header, path, &mut reader);
                reader.check_is_at_end().map_err(failure_of)?;
                appended
            }
        }
        .map_err(cannot)?;
    }
    let mut output = archive.into_inner().map_err(cannot)?;
    output.flush().map_err(cannot)
}

// -- text --------------------------------------------------------------------------------------

fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

fn print_json(value: &Value) -> i32 {
    report::answer(&format!("{value:#}\n"))
}

/// Rows with columns as wide as their cells; numbers right-aligned. The names may come from a trial
/// of somebody else.
fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let rows = rows.iter();
    let rows = rows.map(|row| row.each_ref().map(|cell| printable(cell)));
    let rows: Vec<_> = rows.collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<_> = (0..COLUMNS)
        .map(|column| width(column).unwrap_or(0))
        .collect();
    let is_number = |column: usize| {
        let cells = rows.iter().skip(1).map(|row| &row[column]);
        let mut cells = cells.filter(|cell| *cell != "-").peekable();
        cells.peek().is_some()
            && cells.all(|cell| cell.starts_with(|first: char| first.is_ascii_digit()))
    };
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let _ = if is_number(column) {
                write!(line, "{cell:>width$}  ")
            } else {
                write!(line, "{cell:<width$}  ")
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// A size in the largest unit of which it has at least one.
pub(super) fn bytes(size: u64) -> String {
    const UNITS: [(u64, &str); 4] = [
        (1_000_000_000_000, "TB"),
        (1_000_000_000, "GB"),
        (1_000_000, "MB"),
        (1_000, "kB"),
    ];
    for (unit, name) in UNITS {
        if size >= unit {
            let tenths = u128::from(size) * 10 / u128::from(unit);
            return format!("{}.{} {name}", tenths / 10, tenths % 10);
        }
    }
    format!("{size} B")
}

/// A time in its largest unit.
fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    let (number, unit) = match seconds {
        0..120 => (seconds, "s"),
        120..7_200 => (seconds / 60, "min"),
        7_200..172_800 => (seconds / 3_600, "h"),
        _ => (seconds / 86_400, "days"),
    };
    format!("{number} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ages_are_told_in_one_unit() {
        let sizes = [0, 999, 1_000, 12_345_678, u64::MAX].map(bytes);
        assert_eq!(
            sizes,
            ["0 B", "999 B", "1.0 kB", "12.3 MB", "18446744.0 TB"]
        );
        let ages = [0, 119, 120, 7_200, 200_000].map(|seconds| age(Duration::from_secs(seconds)));
        assert_eq!(ages, ["0 s", "119 s", "2 min", "2 h", "2 days"]);
    }

    #[test]
    fn columns_are_as_wide_as_need_be() {
        let rows = [["name", "size"], ["a", "10 B"], ["long name", "-"]];
        let rows = rows.map(|row| row.map(str::to_owned));
        assert_eq!(
            table(&rows),
            "name       size\na          10 B\nlong name     -\n"
        );
    }
}
