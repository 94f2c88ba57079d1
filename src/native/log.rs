//! Messages on standard error: all go through `tracing`, and are written here.
//!
//! A line of text is `pedl: <message>`; with `--log-format json` it is an object with `level` and
//! `message`. Errors begin with `error: `, and have their hint on a separate line, as those of the
//! host do.

use std::fmt;
use std::io::{self, Write as _};
use std::sync::Once;

use pedl_core::trial::Launch;
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::live;

static STARTED: Once = Once::new();

/// Sends `tracing` of this module to standard error, as the launch message says. A second call does
/// nothing.
pub(crate) fn start(launch: &Launch) {
    let level = match launch.verbosity {
        ..0 => LevelFilter::ERROR,
        0 => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    };
    let lines = Lines {
        level,
        json: launch.log_format == "json",
    };
    STARTED.call_once(|| {
        // It fails if a subscriber is already set, which cannot be: only we use this copy of
        // tracing.
        let _ = tracing::subscriber::set_global_default(lines);
    });
}

/// Writes each event as a line. Spans are not used.
struct Lines {
    level: LevelFilter,
    json: bool,
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message::default();
        event.record(&mut message);
        let line = message.line(*event.metadata().level(), self.json);
        live::make_way_for_lines();
        // If standard error is closed, nobody can receive the line.
        let _ = io::stderr().write_all(line.as_bytes());
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// The text of an event.
#[derive(Default)]
struct Message {
    message: String,
    hint: Option<String>,
}

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let value = format!("{value:?}");
        match field.name() {
            "message" => self.message = value,
            "hint" => self.hint = Some(value),
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

impl Message {
    fn line(&self, level: Level, json: bool) -> String {
        let Self { message, hint } = self;
        if json {
            let mut line = json!({"level": level.as_str().to_lowercase(), "message": message});
            if let Some(hint) = hint {
                line["hint"] = json!(hint);
            }
            return format!("{line}\n");
        }
        let prefix = match level {
            Level::ERROR => "error: ",
            Level::WARN => "warning: ",
            _ => "",
        };
        let hint = hint
            .as_ref()
            .map_or(String::new(), |hint| format!("\nhint: {hint}"));
        format!("pedl: {prefix}{message}{hint}\n")
    }
}
