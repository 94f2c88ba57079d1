//! `pedl package`: shows which files of a model definition would travel, and packs them.
//!
//! The rules for files, and the format of the package, are described in `package`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::units::bytes;
use super::{parse, report};
use crate::failure::{Exit, Failure};
use crate::package::{self, Definition, Entry, Kind, LIMIT_BYTES, count, shown};

/// The width of a size: `123.4 kB`.
const SIZE_WIDTH: usize = 8;

const HELP: &str = "usage: pedl package DIR [--output FILE] [--json]

Shows which files of a model definition would travel, with their sizes. All in DIR
do, but for what `.pedlignore` (then `.detignore`) at its top omits, in the syntax
of `.gitignore`, and for byte-compiled Python, which never does. At most 95 MiB.

  --output FILE  packs them into a tar archive; equal files make equal archives
  --json         prints the list as JSON
";

/// The parsed arguments.
#[derive(Debug, Default)]
struct Asked {
    directory: PathBuf,
    output: Option<PathBuf>,
    is_json: bool,
}

/// Runs a command line of the verb, and returns the exit code.
pub(super) fn run(arguments: &[OsString]) -> Result<i32, Failure> {
    if arguments.iter().any(|it| it == "--help" || it == "-h") {
        return Ok(report::answer(HELP));
    }
    let asked = parse(arguments)?;
    // The verb has no script, but a command line of `pedl-run` needs one.
    let line = parse::parse(vec!["-".into()], |name| env::var_os(name))?;
    report::start_logging(&line.options);
    if let Some(output) = &asked.output {
        package::check_free(output)?;
    }
    let definition = Definition::read(&asked.directory)?;
    for skipped in &definition.skipped {
        tracing::warn!("`{}` is skipped: {}", shown(&skipped.path), skipped.reason);
    }
    if let Some(output) = &asked.output {
        package::pack(&definition, output)?;
    }
    let text = if asked.is_json {
        format!("{:#}\n", as_json(&definition, asked.output.as_deref()))
    } else {
        as_text(&definition, asked.output.as_deref())
    };
    Ok(report::answer(&text))
}

fn usage(what: impl Into<String>) -> Failure {
    Failure::new(Exit::Usage, what).hint("`pedl package --help` says what can be asked for")
}

fn parse(words: &[OsString]) -> Result<Asked, Failure> {
    let mut asked = Asked::default();
    let mut directory = None;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        let output = match word.as_bytes().strip_prefix(b"--output") {
            Some([]) => words.next().map(OsString::as_os_str),
            Some([b'=', value @ ..]) => Some(OsStr::from_bytes(value)),
            _ if text == "--json" => {
                asked.is_json = true;
                continue;
            }
            _ if text.starts_with('-') => {
                return Err(usage(format!("`{text}` is no option of `pedl package`"))
                    .detail("expected: --output FILE or --json"));
            }
            _ if directory.is_none() => {
                directory = Some(PathBuf::from(word));
                continue;
            }
            _ => return Err(usage(format!("unexpected argument `{text}`"))),
        };
        let output = output.filter(|name| !name.is_empty());
        asked.output = Some(PathBuf::from(
            output.ok_or_else(|| usage("`--output` has no value"))?,
        ));
    }
    asked.directory = directory.ok_or_else(|| usage("no directory is given"))?;
    Ok(asked)
}

fn as_text(definition: &Definition, output: Option<&Path>) -> String {
    let mut text = String::new();
    for entry in &definition.entries {
        let (size, name) = match &entry.kind {
            Kind::File { bytes: size, .. } => (bytes(*size), shown(&entry.path)),
            Kind::Link(target) => {
                let name = format!("{} -> {}", shown(&entry.path), shown(target));
                ("link".to_owned(), name)
            }
            Kind::Empty => ("empty".to_owned(), format!("{}/", shown(&entry.path))),
        };
        let _ = writeln!(text, "{size:>SIZE_WIDTH$}  {name}");
    }
    let files = count(num_files(definition), "file");
    let size = bytes(definition.bytes());
    let _ = match output {
        Some(output) => writeln!(text, "{files}, {size}, in `{}`", output.display()),
        None => writeln!(text, "{files}, {size}"),
    };
    text
}

fn num_files(definition: &Definition) -> usize {
    let is_file = |entry: &&Entry| matches!(entry.kind, Kind::File { .. });
    definition.entries.iter().filter(is_file).count()
}

fn as_json(definition: &Definition, output: Option<&Path>) -> Value {
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let entries = definition.entries.iter().map(|entry| match &entry.kind {
        Kind::File {
            bytes,
            is_executable,
        } => json!({
            "path": path(&entry.path), "type": "file", "bytes": bytes, "executable": is_executable,
        }),
        Kind::Link(target) => {
            json!({"path": path(&entry.path), "type": "link", "target": path(target)})
        }
        Kind::Empty => json!({"path": path(&entry.path), "type": "empty directory"}),
    });
    let skipped = definition.skipped.iter();
    let skipped = skipped.map(|it| json!({"path": path(&it.path), "reason": it.reason}));
    json!({
        "directory": path(&definition.directory),
        "entries": entries.collect::<Vec<_>>(),
        "files": num_files(definition),
        "bytes": definition.bytes(),
        "limit_bytes": LIMIT_BYTES,
        "skipped": skipped.collect::<Vec<_>>(),
        "output": output.map(path),
    })
}
