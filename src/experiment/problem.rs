//! What is wrong with a configuration, and where: one problem, the first of the file.

use std::fmt;

/// Parts of the names of fields whose values are never shown, including misspelt names.
const SECRETS: [&str; 7] = [
    "key",
    "secret",
    "passw",
    "token",
    "auth",
    "credential",
    "environment_variables",
];

/// Why a configuration cannot be used: what was found, where, what was expected, and what would
/// help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// One line: what is wrong, with the received value in backticks.
    pub what: String,
    /// The place with its line of the file, and what was expected.
    pub details: Vec<String>,
    /// One imperative, if there is better advice than to read the lines above.
    pub hint: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.what)?;
        for detail in &self.details {
            write!(formatter, "\n  {detail}")?;
        }
        match &self.hint {
            Some(hint) => write!(formatter, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Problem {}

/// A place in a file. Lines and columns count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
    /// The number of characters on that line, at least 1.
    pub(crate) width: usize,
}

/// The text of a configuration, for messages about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    /// The name of the file.
    pub(crate) name: &'a str,
    pub(crate) text: &'a str,
}

impl Source<'_> {
    /// A problem at a place of the file.
    pub(crate) fn problem(self, at: Position, what: impl Into<String>) -> Problem {
        let mut details = vec![format!(
            "in {}, line {}, column {}:",
            self.name, at.line, at.column
        )];
        if let Some(line) = self.text.lines().nth(at.line - 1) {
            let number = at.line.to_string();
            let margin = " ".repeat(number.len());
            if is_in_secret(self.text, at.line - 1) {
                details.push(format!("  {number} | {}", key_alone(line)));
            } else {
                let start = at.column - 1;
                let width = at.width.min(line.chars().count().saturating_sub(start));
                details.push(format!("  {number} | {line}"));
                details.push(format!(
                    "  {margin} | {}{}",
                    " ".repeat(start),
                    "^".repeat(width)
                ));
            }
        }
        Problem {
            what: what.into(),
            details,
            hint: None,
        }
    }
}

impl Problem {
    /// Adds what was expected.
    pub(crate) fn expected(mut self, expected: impl fmt::Display) -> Self {
        self.details.push(format!("expected: {expected}"));
        self
    }

    /// Adds the advice.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Whether the value of a field with that name is never shown.
pub(crate) fn is_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    SECRETS.iter().any(|part| name.contains(part))
}

/// Whether a line names a field that is never shown, or lies in the value of one: it is indented
/// further, or an item of its list. This uses only the text, because a file that is not valid YAML
/// has secrets too.
fn is_in_secret(text: &str, line: usize) -> bool {
    let lines: Vec<_> = text.lines().take(line + 1).collect();
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let Some((this, above)) = lines.split_last() else {
        return false;
    };
    let mut left_of = indentation(this) + usize::from(this.trim_start().starts_with('-'));
    if is_secret(this) {
        return true;
    }
    for line in above.iter().rev().filter(|line| !line.trim().is_empty()) {
        if indentation(line) < left_of {
            if is_secret(line) {
                return true;
            }
            left_of = indentation(line) + usize::from(line.trim_start().starts_with('-'));
        }
    }
    false
}

/// A line up to its value.
fn key_alone(line: &str) -> String {
    let end = line.find(':').map_or_else(
        || line.len() - line.trim_start_matches([' ', '-']).len(),
        |colon| colon + 1,
    );
    format!("{} ***", &line[..end])
}

#[cfg(test)]
mod tests {
    use super::{Position, Source};

    #[test]
    fn the_line_is_shown_and_the_place_is_marked() {
        let source = Source {
            name: "const.yaml",
            text: "searcher:\n  max_step: 1\n",
        };
        let at = Position {
            line: 2,
            column: 3,
            width: 8,
        };
        let problem = source.problem(at, "`max_step` is unknown").hint("see");
        let expected = "`max_step` is unknown\n  in const.yaml, line 2, column 3:\n    2 |   max_step: 1\n      \
                        |   ^^^^^^^^\nhint: see";
        assert_eq!(problem.to_string(), expected);
    }

    #[test]
    fn a_secret_is_not_shown() {
        let text = "storage: {type: s3, access_key: AKIA, bucket: [1]}";
        let at = Position {
            line: 1,
            column: 42,
            width: 3,
        };
        let problem = Source { name: "a", text }.problem(at, "no").to_string();
        assert!(problem.ends_with("1 | storage: ***"), "{problem}");
        assert!(!problem.contains("AKIA"), "{problem}");
    }
}
