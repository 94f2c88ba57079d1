//! What is wrong with a configuration, and where: one problem, the first of the file.

use std::fmt;

/// Names of fields whose values are never shown.
const SECRETS: [&str; 6] = [
    "access_key",
    "secret_key",
    "password",
    "token",
    "registry_auth",
    "environment_variables",
];

/// Why a configuration cannot be used: what was found, where, what was expected, and what would help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// One line: what is wrong, with what was received in backticks.
    pub what: String,
    /// The place with its line of the file, and what was expected.
    pub details: Vec<String>,
    /// One imperative, if there is something better than reading the lines above.
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
    /// How many characters it spans on that line, at least 1.
    pub(crate) width: usize,
}

/// The text of a configuration, for messages about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    /// What the file is called.
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
            let shown = without_secrets(line);
            details.push(format!("  {number} | {shown}"));
            let start = at.column - 1;
            let width = at.width.min(shown.chars().count().saturating_sub(start));
            let margin = " ".repeat(number.len());
            details.push(format!(
                "  {margin} | {}{}",
                " ".repeat(start),
                "^".repeat(width)
            ));
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

/// Whether what a field of that name holds is never shown.
pub(crate) fn is_secret(name: &str) -> bool {
    SECRETS.contains(&name)
}

/// A line of a configuration, up to the first value that is nobody's business.
fn without_secrets(line: &str) -> String {
    let value = SECRETS
        .iter()
        .filter_map(|name| {
            let after = line.find(name)? + name.len();
            Some(after + line[after..].find(':')? + 1)
        })
        .min();
    match value {
        Some(value) if !line[value..].trim().is_empty() => format!("{} ***", &line[..value]),
        _ => line.to_owned(),
    }
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
        assert!(problem.contains("access_key: ***"), "{problem}");
        assert!(!problem.contains("AKIA"), "{problem}");
    }
}
