//! Compares printed text, without differences that only come from a clock.
//!
//! If a line was overwritten (progress bars), its last state counts; lines of an incomplete bar are
//! ignored. Colours are removed. Times, dates and rates become `~`, and in a line that mentions
//! time every number does. What then still differs between two undisturbed runs is not compared
//! either.

use std::collections::BTreeMap;

/// Units after a number of a clock.
const UNITS: [&str; 19] = [
    "s", "ms", "us", "ns", "µs", "m", "min", "mins", "h", "sec", "secs", "second", "seconds",
    "minute", "minutes", "hour", "hours", "Hz", "fps",
];

/// Words that mark the numbers in their line as those of a clock.
const WORDS: [&str; 10] = [
    "time",
    "took",
    "elapsed",
    "duration",
    "seconds",
    "speed",
    "throughput",
    "pid",
    "date",
    "runtime",
];

/// The first difference between two texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextDifference {
    /// The lines of the undisturbed run and of the other; `None`: there is none.
    pub(crate) expected: Option<String>,
    pub(crate) found: Option<String>,
}

/// The lines of a text, in the form in which they are compared.
pub(crate) fn lines_of(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let mut lines: Vec<String> = Vec::new();
    for line in text.split('\n') {
        let line = without_escapes(line.trim_end_matches('\r'));
        let line = line.rsplit('\r').next().unwrap_or_default();
        let line: String = line.chars().filter(|&it| it != '\u{8}').collect();
        let line = line.trim_end();
        let progress = progress(line);
        if progress == Some(false) {
            continue;
        }
        let line = masked(line);
        if progress == Some(true) && lines.last() == Some(&line) {
            continue;
        }
        lines.push(line);
    }
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

/// Whether a line is of a progress bar (`12/40 ...`), and whether that is complete.
fn progress(line: &str) -> Option<bool> {
    let line = line.trim_start();
    let (done, rest) = line.split_once('/')?;
    let end = rest
        .find(|it: char| !it.is_ascii_digit())
        .unwrap_or(rest.len());
    let (done, all): (u64, u64) = (done.parse().ok()?, rest[..end].parse().ok()?);
    (rest[end..].is_empty() || rest[end..].starts_with(' ')).then_some(done >= all)
}

fn without_escapes(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line.chars();
    while let Some(character) = rest.next() {
        if character == '\u{1b}' {
            // ESC [ numbers letter
            rest.by_ref().find(char::is_ascii_alphabetic);
        } else {
            out.push(character);
        }
    }
    out
}

fn masked(line: &str) -> String {
    let lower = line.to_lowercase();
    let mut words = lower.split(|it: char| !it.is_alphabetic());
    let speaks_of_time = words.any(|word| WORDS.contains(&word));
    let mut out = String::new();
    let mut rest = line;
    while let Some(start) = rest.find(|it: char| it.is_ascii_digit()) {
        let (before, from) = rest.split_at(start);
        out.push_str(before);
        let is_in_word = before.ends_with(|it: char| it.is_alphabetic() || it == '_');
        let length = number_length(from);
        let (number, behind) = from.split_at(length);
        let unit = unit_length(behind);
        let is_clock = number.contains(':') || is_date(number) || unit > 0;
        rest = behind;
        if !is_in_word && (is_clock || speaks_of_time) {
            out.push('~');
            // It may be `900ms` now and `1s` later.
            rest = &behind[unit..];
        } else {
            out.push_str(number);
        }
    }
    out.push_str(rest);
    out
}

/// The length of a number, including what joins its parts: `0.25`, `1e-05`, `12:30:01`,
/// `2026-01-31`.
fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut end = 0;
    while end < bytes.len() {
        let next_is_digit = bytes.get(end + 1).is_some_and(u8::is_ascii_digit);
        let joins = match bytes[end] {
            b'.' | b':' | b'-' => next_is_digit,
            b'e' => next_is_digit || matches!(bytes.get(end + 1), Some(b'-' | b'+')),
            b'+' => bytes[end - 1] == b'e',
            byte => byte.is_ascii_digit(),
        };
        let after_e = bytes[end] == b'-' && end > 0 && bytes[end - 1] == b'e';
        if !joins && !after_e {
            break;
        }
        end += 1;
    }
    end
}

fn is_date(number: &str) -> bool {
    let mut parts = number.split('-');
    let year = parts.next().is_some_and(|year| year.len() == 4);
    year && parts.clone().count() == 2 && parts.all(|part| part.len() == 2)
}

/// The length of the unit of a clock after a number, including the space before it; 0: there is
/// none. What follows a slash is kept: `ms` of `23ms/step`.
fn unit_length(behind: &str) -> usize {
    let space = usize::from(behind.starts_with(' '));
    let word = &behind[space..];
    let end_of = |word: &str, stop: fn(char) -> bool| word.find(stop).unwrap_or(word.len());
    let whole = end_of(word, |it| !it.is_alphabetic() && it != '/');
    let unit = end_of(word, |it| !it.is_alphabetic());
    if UNITS.contains(&&word[..unit]) {
        space + unit
    } else if word[..whole].ends_with("/s") || word[..whole].ends_with("/sec") {
        space + whole
    } else {
        0
    }
}

/// The output of two undisturbed runs: the lines that both have, in order, and the rest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reference {
    stable: Vec<String>,
    /// The letters of lines that differ, which identify similar lines.
    unstable: Vec<String>,
    /// How many lines of the first run are not compared.
    pub(crate) excluded: usize,
}

impl Reference {
    /// The reference for the texts of two undisturbed runs.
    pub(crate) fn new(one: &[u8], other: &[u8]) -> Self {
        let (one, other) = (lines_of(one), lines_of(other));
        if one == other {
            return Self {
                stable: one,
                ..Self::default()
            };
        }
        let mut left: BTreeMap<&str, usize> = BTreeMap::new();
        for line in &other {
            *left.entry(line).or_default() += 1;
        }
        let mut reference = Self::default();
        for line in &one {
            match left.get_mut(line.as_str()).filter(|count| **count > 0) {
                Some(count) => {
                    *count -= 1;
                    reference.stable.push(line.clone());
                }
                None => reference.unstable.push(letters(line)),
            }
        }
        reference.excluded = reference.unstable.len();
        let only_other = left.iter().filter(|(_, count)| **count > 0);
        reference
            .unstable
            .extend(only_other.map(|(line, _)| letters(line)));
        reference
    }

    /// How many lines are compared.
    pub(crate) fn num_lines(&self) -> usize {
        self.stable.len()
    }

    /// The first line in which another run's text differs.
    pub(crate) fn compare(&self, text: &[u8]) -> Option<TextDifference> {
        let found = lines_of(text);
        let known: std::collections::BTreeSet<_> = self.stable.iter().collect();
        let mut found = found
            .into_iter()
            .filter(|line| known.contains(line) || !self.unstable.contains(&letters(line)));
        let mut expected = self.stable.iter();
        loop {
            match (expected.next(), found.next()) {
                (None, None) => return None,
                (Some(one), Some(other)) if *one == other => {}
                (one, other) => {
                    return Some(TextDifference {
                        expected: one.cloned(),
                        found: other,
                    });
                }
            }
        }
    }
}

fn letters(line: &str) -> String {
    line.chars().filter(|it| it.is_alphabetic()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_no_difference_and_a_number_is() {
        for (one, other) in [
            (
                "40/40 - 1s - 23ms/step - loss: 0.5",
                "40/40 - 2s - 9ms/step - loss: 0.5",
            ),
            ("done at 12:30:01", "done at 07:00:59"),
            ("2026-01-31 x", "2025-12-01 x"),
            ("training took 3", "training took 12.5"),
            (
                "1/40 a\r40/40 [==] - ETA: 0s - loss: 0.5",
                "40/40 [==] - ETA: 1:02 - loss: 0.5",
            ),
            (
                "\u{1b}[1m40/40\u{1b}[0m 3s 4ms/step - loss: 0.5",
                "40/40 1s 2ms/step - loss: 0.5",
            ),
            ("3/40 1s\n40/40 2s", "17/40 1s\n40/40 1s"),
            ("512 img/s", "98.5 img/s"),
        ] {
            assert_eq!(
                lines_of(one.as_bytes()),
                lines_of(other.as_bytes()),
                "{one:?}"
            );
        }
        for (one, other) in [
            ("loss: 0.5", "loss: 0.25"),
            ("lr 1e-05", "lr 1e-06"),
            ("epoch 3 of 5", "epoch 4 of 5"),
            ("40/40 - 1s - loss: 0.5", "40/40 - 1s - loss: 0.6"),
            ("conv2d_1", "conv2d_2"),
        ] {
            assert_ne!(
                lines_of(one.as_bytes()),
                lines_of(other.as_bytes()),
                "{one:?}"
            );
        }
    }

    #[test]
    fn what_differs_between_undisturbed_runs_is_left_out_and_nothing_else() {
        let reference = Reference::new(
            b"begin\nid a7f3\nloss 1\nend",
            b"begin\nid 99bc\nloss 1\nend",
        );
        assert_eq!((reference.num_lines(), reference.excluded), (3, 1));
        assert_eq!(reference.compare(b"begin\nid a123f\nloss 1\nend\n"), None);
        let difference = reference
            .compare(b"begin\nid a1f\nloss 2\nend")
            .expect("it differs");
        assert_eq!(difference.expected.as_deref(), Some("loss 1"));
        assert_eq!(difference.found.as_deref(), Some("loss 2"));
        let missing = reference.compare(b"begin\nloss 1").expect("it differs");
        assert_eq!(
            (missing.expected.as_deref(), missing.found),
            (Some("end"), None)
        );
        assert!(reference.compare(b"begin\nloss 1\nend\nmore").is_some());
    }
}
