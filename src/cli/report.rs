//! What we print ourselves: errors, help, the version, and what `tracing` carries. Nothing of ours
//! is printed anywhere else in the executable.
//!
//! Standard output belongs to the script, so everything but the answer to a question goes to
//! standard error, each message beginning with `pedl: `.

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::flags::{FLAGS, LogFormat, Options};
use crate::failure::Failure;

/// Whether errors are printed as JSON. Failures are reported at the very end of `main`, where the
/// options are gone.
static JSON: AtomicBool = AtomicBool::new(false);

/// Prints a failure and returns its exit code.
pub(crate) fn failure(failure: &Failure) -> i32 {
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

/// Sends `tracing` to standard error, as the options say.
pub(crate) fn start_logging(options: &Options) {
    let json = options.log_format == LogFormat::Json;
    JSON.store(json, Ordering::Relaxed);
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
    // A reader that went away (`pedl-run --help | head -1`) is no failure.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    0
}

/// The text of `--help`: one screen.
pub(crate) fn help() -> String {
    let mut text = String::from(
        "Runs an unmodified Python script; killed at any moment, it continues exactly.\n\n\
         usage: pedl-run [OPTIONS] [PYTHON OPTIONS] SCRIPT [ARGUMENTS]\n       \
         pedl-run [OPTIONS] [PYTHON OPTIONS] -m MODULE | -c CODE | - [ARGUMENTS]\n\n",
    );
    for flag in FLAGS {
        let option = match flag.value {
            Some(value) => format!("--{} {value}", flag.name),
            None => format!("--{}", flag.name),
        };
        let _ = writeln!(text, "  {option:<26}{}", flag.help);
    }
    text.push_str(
        "\nIn the environment: PEDL_TRIAL_DIR=DIR is --trial-dir DIR; PEDL_HP and\n\
         PEDL_NO_HOOKS, which may be repeated as options, separate values by `;`.\n\
         Short options belong to Python: pedl-run -h prints its help.\n",
    );
    text
}

fn to_stderr(text: &str) {
    // With standard error closed there is nobody to tell.
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
