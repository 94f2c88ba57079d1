//! Compares the outcomes of a file in one mode with those of python itself.
//!
//! A test that differs is run again, by itself if few do. One without a known cause that still
//! differs is a failure.

use super::campaign::Campaign;
use super::list::List;
use super::outcomes::{Outcomes, different};
use super::subject::Subject;
use crate::failure::Result;
use crate::summary::Counts;

/// How many times a test that differs is run again. On a busy machine some pass only by luck.
const REPETITIONS: usize = 3;

/// If more tests of a file differ, the whole file is run again: one test may have left something
/// that makes the others fail.
const MAX_ALONE: usize = 5;

impl Campaign {
    /// Compares, prints a line, and below it the differences. One without a known cause is a
    /// failure.
    pub(super) fn compare(
        &self,
        list: &List,
        subject: &Subject,
        expected: &Outcomes,
        found: &Outcomes,
    ) -> Result<Counts> {
        let known = |test: &str| {
            let mut all = list.differences.iter();
            all.find(|one| one.holds(test, &found.python, &found.way))
        };
        let mut differing = different(expected, found);
        let first = differing.len();
        for _ in 0..REPETITIONS {
            let unknown: Vec<_> = differing
                .iter()
                .copied()
                .filter(|test| known(test).is_none())
                .collect();
            if unknown.is_empty() {
                break;
            }
            // Most tests that sometimes fail wait for something; alone they have enough time.
            let again = |tests: &[&str]| -> Result<_> {
                let one = self.run(subject, "python", &found.file, tests)?;
                Ok((one, self.run(subject, &found.way, &found.file, tests)?))
            };
            let is_whole = unknown.len() > MAX_ALONE;
            let mut both = again(if is_whole { &[] } else { &unknown })?;
            let was_run =
                |test: &&str| both.0.tests.contains_key(*test) || both.1.tests.contains_key(*test);
            if !is_whole && !unknown.iter().all(was_run) {
                // The failure was not in a test but in the preparation of some tests.
                both = again(&[])?;
            }
            let still = different(&both.0, &both.1);
            differing.retain(|test| known(test).is_some() || still.contains(test));
        }
        let unknown = differing
            .iter()
            .filter(|test| known(test).is_none())
            .count();
        let verdict = match (first, differing.len(), unknown) {
            (0, ..) => "same".to_owned(),
            (_, 0, _) => format!("same, {first} when run again"),
            (_, all, 0) => format!("same but for {all} with a known cause"),
            (_, _, unknown) => format!("{unknown} DIFFERENT"),
        };
        let (file, way) = (&found.file, &found.way);
        let (tests, seconds) = (found.tests.len(), found.seconds);
        println!("  {file:<36} {way:<6} {tests:>5} tests {seconds:>4} s   {verdict}");
        for test in &differing {
            let outcome = |of: &Outcomes| {
                of.tests
                    .get(*test)
                    .map_or("not run", |one| &one.0)
                    .to_owned()
            };
            println!(
                "      {test}: {} by python, {} by pedl-run",
                outcome(expected),
                outcome(found)
            );
            if let Some(one) = known(test) {
                println!("        {}", one.cause);
                continue;
            }
            let text = found.tests.get(*test).map_or("", |one| &one.1);
            let lines: Vec<_> = text.trim_end().lines().collect();
            for line in &lines[lines.len().saturating_sub(12)..] {
                println!("        | {line}");
            }
        }
        let broke_off = expected
            .broke_off
            .is_none()
            .then_some(found.broke_off.as_ref())
            .flatten();
        if let Some(how) = broke_off {
            println!("      BROKE OFF: {how}");
        }
        Ok(Counts {
            failed: unknown as u64,
            passed: tests.saturating_sub(unknown) as u64,
            errors: u64::from(broke_off.is_some()),
            ..Counts::default()
        })
    }
}
