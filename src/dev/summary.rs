//! Adds up the summaries of cargo and pytest, and prints the sum in pytest's words.

use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

/// The width of the closing line, the same as pytest's on an unknown terminal.
const WIDTH: usize = 80;

/// The number of tests by outcome.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Counts {
    pub(crate) failed: u64,
    pub(crate) passed: u64,
    pub(crate) skipped: u64,
    pub(crate) xfailed: u64,
    pub(crate) errors: u64,
}

impl Counts {
    /// One part of the run that could not be run or did not reach its summary.
    pub(crate) const ERROR: Self = Self {
        failed: 0,
        passed: 0,
        skipped: 0,
        xfailed: 0,
        errors: 1,
    };

    /// One part of the run that was left out.
    pub(crate) const SKIPPED: Self = Self {
        failed: 0,
        passed: 0,
        skipped: 1,
        xfailed: 0,
        errors: 0,
    };

    /// Whether nothing failed.
    pub(crate) fn good(&self) -> bool {
        self.failed == 0 && self.errors == 0
    }

    /// All `test result:` lines of `cargo test`, one for each binary; `None` if there is none.
    pub(crate) fn of_cargo(output: &str) -> Option<Self> {
        let mut sum = None;
        for line in output
            .lines()
            .filter_map(|line| line.strip_prefix("test result: "))
        {
            let counts = sum.get_or_insert_with(Self::default);
            let (_, parts) = line.split_once(". ")?;
            for part in parts.split("; ") {
                let Some((number, word)) = part.split_once(' ') else {
                    continue;
                };
                let Ok(number) = number.parse::<u64>() else {
                    continue;
                };
                match word {
                    "passed" => counts.passed += number,
                    "failed" => counts.failed += number,
                    "ignored" => counts.skipped += number,
                    _ => {}
                }
            }
        }
        sum
    }

    /// The closing line of pytest, the last one of the output that is framed in `=`.
    pub(crate) fn of_pytest(output: &str) -> Option<Self> {
        let framed = |line: &str| line.starts_with('=') && line.ends_with('=');
        let line = output
            .lines()
            .rev()
            .map(str::trim_end)
            .find(|line| framed(line))?;
        let (parts, _) = line.trim_matches('=').trim().rsplit_once(" in ")?;
        let mut counts = Self::default();
        for part in parts.split(", ") {
            let Some((number, word)) = part.split_once(' ') else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            match word {
                // A test that passes although it is marked to fail is a failure here
                // (xfail_strict).
                "passed" => counts.passed += number,
                "failed" | "xpassed" => counts.failed += number,
                "skipped" => counts.skipped += number,
                "xfailed" => counts.xfailed += number,
                "error" | "errors" => counts.errors += number,
                _ => {}
            }
        }
        Some(counts)
    }

    /// The closing line, framed as pytest frames it.
    pub(crate) fn closing_line(&self, took: Duration) -> String {
        format!("{:=^WIDTH$}", format!(" {self} in {} ", seconds(took)))
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.failed += other.failed;
        self.passed += other.passed;
        self.skipped += other.skipped;
        self.xfailed += other.xfailed;
        self.errors += other.errors;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = if self.errors == 1 { "error" } else { "errors" };
        let parts = [
            (self.failed, "failed"),
            (self.passed, "passed"),
            (self.skipped, "skipped"),
            (self.xfailed, "xfailed"),
            (self.errors, error),
        ];
        let said: Vec<_> = parts
            .iter()
            .filter(|(number, _)| *number > 0)
            .map(|(number, word)| format!("{number} {word}"))
            .collect();
        f.write_str(if said.is_empty() { "no tests ran" } else { "" })?;
        f.write_str(&said.join(", "))
    }
}

/// `12.34s`, and from a minute on also as a clock shows it: `567.80s (0:09:27)`.
fn seconds(took: Duration) -> String {
    let whole = took.as_secs();
    let clock = format!(
        " ({}:{:02}:{:02})",
        whole / 3600,
        whole / 60 % 60,
        whole % 60
    );
    format!(
        "{:.2}s{}",
        took.as_secs_f64(),
        if whole < 60 { "" } else { &clock }
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Counts;

    #[test]
    fn all_binaries_of_cargo_test_are_added_up() {
        let output = "\nrunning 3 tests\n...\n\
            test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
            \nrunning 5 tests\n\
            test result: FAILED. 4 passed; 1 failed; 0 ignored; 0 measured; 9 filtered out; finished in 1.20s\n";
        let expected = Counts {
            passed: 6,
            failed: 1,
            skipped: 1,
            ..Counts::default()
        };
        assert_eq!(Counts::of_cargo(output), Some(expected));
        assert_eq!(Counts::of_cargo("error: could not compile"), None);
    }

    #[test]
    fn the_closing_line_of_pytest_is_read() {
        let output = "===== test session starts =====\ncollected 9 items\n\
            ===== short test summary info =====\nFAILED tests/test_a.py::b - assert 1 in 2\n\
            = 1 failed, 5 passed, 1 skipped, 2 xfailed, 1 warning, 1 error in 61.02s (0:01:01) =\n";
        let expected = Counts {
            failed: 1,
            passed: 5,
            skipped: 1,
            xfailed: 2,
            errors: 1,
        };
        assert_eq!(Counts::of_pytest(output), Some(expected));
        let output = "===== 3 deselected in 0.01s =====\n";
        assert_eq!(Counts::of_pytest(output), Some(Counts::default()));
        let output = "==== 4 passed, 2 xpassed in 1.00s ====\n";
        let expected = Counts {
            passed: 4,
            failed: 2,
            ..Counts::default()
        };
        assert_eq!(Counts::of_pytest(output), Some(expected));
        assert_eq!(Counts::of_pytest("INTERNALERROR> out of memory\n"), None);
    }

    #[test]
    fn the_sum_is_said_as_pytest_says_it() {
        let mut sum = Counts {
            passed: 100,
            ..Counts::default()
        };
        sum += Counts {
            passed: 23,
            skipped: 3,
            ..Counts::default()
        };
        sum += Counts::SKIPPED;
        let line = sum.closing_line(Duration::from_millis(567_800));
        assert_eq!(line.len(), 80);
        assert_eq!(
            line.trim_matches('='),
            " 123 passed, 4 skipped in 567.80s (0:09:27) "
        );
        assert!(sum.good());
        // The line can be parsed again.
        assert_eq!(Counts::of_pytest(&line), Some(sum));
        sum += Counts::ERROR;
        assert!(!sum.good());
        assert_eq!(sum.to_string(), "123 passed, 4 skipped, 1 error");
        assert_eq!(Counts::default().to_string(), "no tests ran");
    }
}
