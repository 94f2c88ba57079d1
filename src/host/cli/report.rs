//! Our own output: errors, help, the version, and the messages of `tracing`. The executable prints
//! nothing anywhere else.
//!
//! Standard output belongs to the script, so everything except the answer to a question goes to
//! standard error, and each message begins with `pedl: `.

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use pedl_core::printable::printable_lines;
use pedl_core::secrets::redact_text;
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::flags::{FLAGS, LogFormat, Options};
use crate::failure::Failure;

/// What the program does, in a sentence.
pub(super) const ABOUT: &str =
    "Runs an unmodified Python script; killed at any moment, it continues exactly";

/// The usage, after the name of the program.
pub(super) const USAGE: [&str; 2] = [
    "[OPTIONS] [PYTHON OPTIONS] SCRIPT [ARGUMENTS]",
    "[OPTIONS] [PYTHON OPTIONS] -m MODULE | -c CODE | - [ARGUMENTS]",
];

/// Whether errors are printed as JSON. Failures are reported at the very end of `main`, which no
/// longer has the options.
static JSON: AtomicBool = AtomicBool::new(false);

/// Prints a failure and returns its exit code.
pub(crate) fn failure(failure: &Failure) -> i32 {
    let redacted = |text: &String| printable_lines(&redact_text(text)).into_owned();
    let failure = &Failure {
        exit: failure.exit,
        what: redacted(&failure.what),
        details: failure.details.iter().map(redacted).collect(),
        hint: failure.hint.as_ref().map(redacted),
    };
    let exit_code = failure.exit as i32;
    if JSON.load(Ordering::Relaxed) {
        let line = json!({
            "level": "error",
            "message": failure.what,
            "details": failure.details,
            "hint": failure.hint,
            "exit_code": exit_code,
        });
        to_stderr(&format!("{line}\n"));
    } else {
        to_stderr(&format!("pedl: {failure}\n"));
    }
    exit_code
}

/// From now on failures are printed in this format.
pub(super) fn use_format(format: LogFormat) {
    JSON.store(format == LogFormat::Json, Ordering::Relaxed);
}

/// Sends `tracing` to standard error, as the options say.
pub(crate) fn start_logging(options: &Options) {
    let json = options.log_format == LogFormat::Json;
    use_format(options.log_format);
    let level = match (options.quiet, options.verbose) {
        (true, _) => LevelFilter::ERROR,
        (_, true) => LevelFilter::DEBUG,
        _ => LevelFilter::INFO,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .event_format(Lines { json })
        .init();
}

/// Prints the answer to `--help` or `--version`.
pub(crate) fn answer(text: &str) -> i32 {
    // A reader that closed the pipe (`pedl-run --help | head -1`) is no failure.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    0
}

/// The text of `--help`: one screen.
pub(crate) fn help() -> String {
    let mut text = format!(
        "{ABOUT}.\nusage: pedl-run {}\n       pedl-run {}\n\n",
        USAGE[0], USAGE[1]
    );
    for flag in FLAGS {
        let _ = writeln!(text, "  {:<26}{}", flag.shown(), flag.help);
    }
    text.push_str(
        "\nPEDL_TRIAL_DIR=DIR in the environment is --trial-dir DIR, and so on; PEDL_HP and\n\
         PEDL_NO_HOOKS separate values by `;`. -h is Python's. --pedl VERB is `pedl VERB`\n",
    );
    text
}

/// The trial process was killed. If standard error is a terminal, the process may have left a line
/// about its progress there, with the cursor at its beginning. A line of the script ends at the
/// cursor.
pub(crate) fn erase_rest_of_line(options: &Options) {
    if !options.quiet && options.log_format == LogFormat::Text && io::stderr().is_terminal() {
        to_stderr("\x1b[K");
    }
}

fn to_stderr(text: &str) {
    // If standard error is closed, nobody can receive the text.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// The format of a `tracing` event: `pedl: <message>`, or one JSON object.
struct Lines {
    json: bool,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut message = Message::default();
        event.record(&mut message);
        let message = Message(printable_lines(&redact_text(&message.0)).into_owned());
        if self.json {
            let level = event.metadata().level().as_str().to_lowercase();
            writeln!(writer, "{}", json!({"level": level, "message": message.0}))
        } else {
            writeln!(writer, "pedl: {}", message.0)
        }
    }
}

/// Collects the message of an event. Our events have no other field.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
