//! The manual page of `pedl-run`, in the macros of man(7). Its options come from the table of
//! options.

use std::fmt::Write as _;

use pedl_core::exit_codes;

use super::checkpoint::ACTIONS;
use super::flags::FLAGS;
use super::report::{ABOUT, USAGE};
use crate::verify::OPTIONS;

/// The files that a run leaves in the trial directory.
const FILES: [(&str, &str); 5] = [
    ("trial.json", "What the trial is: command, seeds, versions."),
    (
        "events.jsonl",
        "What happened, one JSON object a line: steps with their metrics, checkpoints, restarts.",
    ),
    ("calls.log", "The recorded calls."),
    (
        "checkpoints/, latest",
        "The checkpoints, and a link to the newest. `pedl checkpoint list` lists them.",
    ),
    ("stdout.log, stderr.log", "What the script has printed."),
];

/// The page.
pub(super) fn page() -> String {
    let mut text = format!(
        ".TH PEDL\\-RUN 1 \"\" \"pedl\\-run {}\"\n.SH NAME\n\
         pedl\\-run \\- run a Python script so that it continues where it was killed\n.SH SYNOPSIS\n",
        env!("CARGO_PKG_VERSION")
    );
    for usage in USAGE {
        let _ = writeln!(text, ".B pedl\\-run\n{}\n.br", roff(usage));
    }
    let _ = write!(
        text,
        ".SH DESCRIPTION\n{}.\nThe same command, given again, continues a run that was killed; \
         a run that has ended is moved aside and begun anew.\n\
         Options of pedl\\-run stand before the script and are long; short ones are Python's.\n\
         .SH OPTIONS\n",
        roff(ABOUT)
    );
    for flag in FLAGS {
        let _ = writeln!(
            text,
            ".TP\n.B {}\n{}.",
            roff(&flag.shown()),
            roff(&sentence(flag.help))
        );
        if let Some(variable) = flag.variable() {
            let _ = writeln!(text, "In the environment: {}.", roff(&variable));
        }
    }
    text.push_str(
        ".SH ENVIRONMENT\nAn option on the command line wins over its variable. \
         A switch is set by 1, and not by 0; where an option may be repeated, its variable separates values by\n\
         .BR ; .\n.TP\n.B PEDL_CACHE_DIR\n\
         Where pedl\\-run lays out what it brings along [~/.cache/pedl\\-run].\n",
    );
    text.push_str(
        ".SH VERIFYING\n.B pedl verify\n[OPTIONS] SCRIPT [ARGUMENTS]\n.br\n\
         runs the script twice undisturbed, then killed, terminated and out of disk space at random moments, each \
         time in a copy of the current directory, and compares every recorded call, the state, metrics, what was \
         printed, and the files. It ends with 0 where all is identical, with 76 where a disturbed run differs, and \
         with 77 where nothing could be shown. Options of pedl\\-run may stand before the script, and besides:\n",
    );
    for option in OPTIONS {
        let _ = writeln!(
            text,
            ".TP\n.B {}\n{}.",
            roff(&option.shown()),
            roff(&sentence(option.help))
        );
    }
    text.push_str(".SH CHECKPOINTS\nThese change nothing, and take no lock: the trial may be trained meanwhile.\n");
    for (name, arguments, about) in ACTIONS {
        let about = about.split_whitespace().collect::<Vec<_>>().join(" ");
        let arguments = arguments.split_whitespace().collect::<Vec<_>>().join(" ");
        let _ = writeln!(
            text,
            ".TP\n.B pedl checkpoint {}\n{}.",
            roff(&format!("{name} {arguments}")),
            roff(&sentence(&about))
        );
    }
    text.push_str(".SH EXIT STATUS\n");
    for row in exit_codes::TABLE {
        list_item(&mut text, row.code, row.meaning);
    }
    text.push_str(".SH FILES\n");
    for (name, about) in FILES {
        list_item(&mut text, name, about);
    }
    text
}

fn list_item(text: &mut String, name: &str, about: &str) {
    let _ = writeln!(text, ".TP\n.B {}\n{}", roff(name), roff(about));
}

/// The short text of `--help` with a capital letter.
fn sentence(help: &str) -> String {
    let mut letters = help.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

/// Text that contains no requests and no escapes. A bare hyphen would be typeset as one that cannot
/// be copied into a shell.
fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) {
        format!("\\&{text}")
    } else {
        text
    }
}
