//! `pedl reference`: pages of the documentation that are generated from tables in the code, as
//! Markdown.
//!
//! `docs/reference/` holds the output; a test compares the two (`tests/cli/reference.rs`). So an
//! option, an exit code, an event or a field of a configuration is documented only by its row in
//! the table.

use std::ffi::OsString;
use std::fmt::Write as _;

use pedl_core::event_kinds::KINDS;
use pedl_core::exit_codes;

use super::checkpoint::ACTIONS;
use super::flags::FLAGS;
use super::report::{self, USAGE};
use super::verbs;
use crate::failure::{Exit, Failure};
use crate::verify::OPTIONS;

/// One page.
struct Page {
    name: &'static str,
    title: &'static str,
    body: fn() -> String,
}

/// All of them, in the order of the list.
static PAGES: &[Page] = &[
    Page {
        name: "options",
        title: "Options of pedl-run",
        body: options,
    },
    Page {
        name: "commands",
        title: "Commands of pedl",
        body: commands,
    },
    Page {
        name: "exit-codes",
        title: "Exit codes",
        body: exit_codes,
    },
    Page {
        name: "events",
        title: "Events",
        body: events,
    },
    Page {
        name: "configuration",
        title: "Experiment configuration",
        body: pedl_experiment::reference,
    },
];

/// Prints the requested page, or the names of all pages.
pub(super) fn run(arguments: &[OsString]) -> Result<i32, Failure> {
    let Some((name, rest)) = arguments.split_first() else {
        let names = PAGES.iter().map(|page| format!("{}\n", page.name));
        return Ok(report::answer(&names.collect::<String>()));
    };
    let name = name.to_string_lossy();
    if let Some(word) = rest.first() {
        let word = word.to_string_lossy();
        return Err(verbs::usage(format!("unexpected argument `{word}`")));
    }
    let page = PAGES.iter().find(|page| page.name == name).ok_or_else(|| {
        let names: Vec<_> = PAGES
            .iter()
            .map(|page| format!("`{}`", page.name))
            .collect();
        Failure::new(Exit::Usage, format!("there is no page `{name}`"))
            .detail(format!("expected: {}", names.join(", ")))
            .hint("`pedl reference` lists the pages")
    })?;
    Ok(report::answer(&format!(
        "# {}\n\n<!-- Printed by `pedl reference {}`; a test compares the two. -->\n\n{}",
        page.title,
        page.name,
        (page.body)()
    )))
}

fn options() -> String {
    let mut text = String::from("```text\n");
    for usage in USAGE {
        let _ = writeln!(text, "pedl-run {usage}");
    }
    text.push_str(
        "```\n\n\
         Options of pedl-run come before the script and are long. Every other option before the script is an option of\n\
         Python (`-u`, `-O`, `-X`, `-W`, ...). Everything after the script belongs to the script. Square brackets\n\
         show the default.\n\n\
         Each option can be set by an environment variable. An option on the command line takes precedence. A switch is\n\
         set by `1` and unset by `0`. A variable of a repeatable option separates its values by `;`.\n\n\
         | option | environment variable | meaning |\n|---|---|---|\n",
    );
    for flag in FLAGS {
        let variable = flag
            .variable()
            .map_or("–".to_owned(), |name| format!("`{name}`"));
        let repeatable = if flag.repeatable { " (repeatable)" } else { "" };
        let _ = writeln!(
            text,
            "| `{}` | {variable} | {}{repeatable} |",
            flag.shown(),
            cell(flag.help)
        );
    }
    text.push_str("\n`PEDL_CACHE_DIR` is the directory of the library that pedl-run unpacks [`~/.cache/pedl-run`].\n");
    text
}

fn commands() -> String {
    let mut text = String::from(
        "`pedl` is pedl-run under another name. If only the one file is installed, write `pedl-run --pedl` in place of\n`pedl`.\n\n\
         | command | what it does |\n|---|---|\n",
    );
    for (call, help) in verbs::calls() {
        let _ = writeln!(text, "| `{}` | {} |", cell(&call), cell(help));
    }
    text.push_str(
        "\n## pedl verify\n\nTakes the options of pedl-run, except those that it sets itself, and these:\n\n\
         | option | meaning |\n|---|---|\n",
    );
    for option in OPTIONS {
        let _ = writeln!(text, "| `{}` | {} |", option.shown(), cell(option.help));
    }
    text.push_str(
        "\n## pedl checkpoint\n\nThese commands change nothing in a trial and take no lock: the trial may be in training.\n\n\
         | command | what it does |\n|---|---|\n",
    );
    for (name, arguments, help) in ACTIONS {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let arguments = words(arguments);
        let _ = writeln!(
            text,
            "| `pedl checkpoint {name} {}` | {} |",
            cell(&arguments),
            cell(&words(help))
        );
    }
    text
}

fn exit_codes() -> String {
    let mut text = String::from("| exit code | meaning | what to do |\n|---|---|---|\n");
    for row in exit_codes::TABLE {
        let _ = writeln!(text, "| {} | {} | {} |", row.code, row.meaning, row.remedy);
    }
    text.push_str(
        "\nAn error is printed to standard error in this form; with `--log-format json` it is one JSON object:\n\n\
         ```text\n\
         pedl: error: what failed, with the value that was received\n  \
         what was expected or found, and where; what pedl-run did\n\
         hint: the command that helps\n\
         ```\n",
    );
    text
}

fn events() -> String {
    let mut text = String::from(
        "`events.jsonl` in the trial directory holds one JSON object in each line. Each event has `schema` (1), `time`\n\
         (RFC 3339, UTC, milliseconds) and `event`, the name of its kind. A reader ignores kinds and members that it does\n\
         not know, and a last line without a newline.\n\n\
         Numbers that JSON does not have are the texts `nan`, `inf` and `-inf`. After a crash a step may have two events,\n\
         from before and after the crash: the later one counts, and the metrics in both are the same.\n",
    );
    for kind in KINDS {
        let _ = write!(
            text,
            "\n## `{}`\n\n{}\n\n| member | meaning |\n|---|---|\n",
            kind.name, kind.when
        );
        for (name, meaning) in kind.members {
            let _ = writeln!(text, "| `{name}` | {meaning} |");
        }
    }
    text
}

/// A text within a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
