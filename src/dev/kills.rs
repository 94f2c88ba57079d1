//! `cargo dev kills`: a thousand kills over all stacks, half of them during a write.
//!
//! `tests/campaigns/kills.py` does the work with the Python of each stack, which gets a part of
//! the kills. Results are kept like those of a campaign (the module `cells`). They are added up
//! here.

use std::ffi::OsString;
use std::fmt;
use std::fs;

use serde::Deserialize;

use crate::Options;
use crate::cells::{self, Program};
use crate::failure::{At as _, Failure, Result};

const KILLS: Program = Program {
    name: "kills",
    scripts: cells::EVERYTHING,
    options: &["kills", "jobs"],
    files: &[
        "tests/campaigns/campaign.py",
        "tests/campaigns/kill_at_byte.py",
        "tests/support/kill_at_byte.c",
    ],
    is_shared: true,
};

/// The default number of kills, also that of `tests/campaigns/kills.py`.
const KILLS_WANTED: &str = "1000";

/// Kills trainings on all stacks together as many times as requested; returns whether none was
/// lost, and none differs.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<bool> {
    let options = Options::parse(arguments, &["stack", "kills", "jobs"])?.no_rest()?;
    let wanted = options.all("kills").last().unwrap_or(KILLS_WANTED);
    let wanted = wanted
        .parse()
        .map_err(|_| Failure::usage(format!("`--kills {wanted}` is not a number")))?;
    let stacks = cells::run(&KILLS, &options)?;
    let results = fs::read_to_string(&stacks.results).at("read", &stacks.results)?;
    let tally = Tally::of(&results, wanted, &stacks.parts)?;
    println!("\n{tally}");
    Ok(stacks.good && tally.is_good() && tally.kills() == wanted)
}

/// The outcome of one trial, as `tests/campaigns/kills.py` writes it.
#[derive(Debug, Deserialize)]
struct Trial {
    /// Stack, kills of all stacks together, part, number.
    cell: (String, u64, String, u64),
    at_bytes: u64,
    at_times: u64,
    trainings: u64,
    lost: u64,
    differing: u64,
}

/// The outcomes of all trials of one command.
#[derive(Debug, Default, PartialEq)]
struct Tally {
    at_bytes: u64,
    at_times: u64,
    trainings: u64,
    lost: u64,
    differing: u64,
}

impl Tally {
    /// Adds up the trials of this many kills, in these parts; the file may contain others.
    fn of(results: &str, kills: u64, parts: &[(String, String)]) -> Result<Self> {
        let mut tally = Self::default();
        for line in results.lines() {
            let trial: Trial = serde_json::from_str(line)
                .map_err(|error| Failure::new(format!("not a result: {error}\n{line}")))?;
            let (stack, of, part, _) = trial.cell;
            if of == kills && parts.contains(&(stack, part)) {
                tally.at_bytes += trial.at_bytes;
                tally.at_times += trial.at_times;
                tally.trainings += trial.trainings;
                tally.lost += trial.lost;
                tally.differing += trial.differing;
            }
        }
        Ok(tally)
    }

    fn kills(&self) -> u64 {
        self.at_bytes + self.at_times
    }

    fn is_good(&self) -> bool {
        self.lost == 0 && self.differing == 0
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at_bytes,
            at_times,
            trainings,
            lost,
            differing,
        } = self;
        write!(
            formatter,
            "{} kills ({at_bytes} at bytes, {at_times} at times): {lost} runs lost, {differing} hashes differ, \
             {} of {trainings} trainings made progress to their ends",
            self.kills(),
            trainings - lost.min(trainings)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Tally;

    #[test]
    fn only_trials_of_the_command_are_added_up() {
        let line = |cell: &str, lost: u64| {
            format!(
                r#"{{"cell": {cell}, "at_bytes": 10, "at_times": 9, "trainings": 2, "lost": {lost}, "differing": 1}}"#
            )
        };
        let lines = [
            line(r#"["jax", 76, "1/2", 1]"#, 0),
            line(r#"["jax", 76, "1/1", 1]"#, 5),
            line(r#"["tf", 76, "2/2", 1]"#, 1),
            line(r#"["tf", 30, "2/2", 1]"#, 7),
        ];
        let parts = [("jax", "1/2"), ("tf", "2/2")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        let tally = Tally::of(&lines.join("\n"), 76, &parts).expect("they are valid");
        assert_eq!(
            tally.to_string(),
            "38 kills (20 at bytes, 18 at times): 1 runs lost, 2 hashes differ, \
             3 of 4 trainings made progress to their ends"
        );
        assert!(!tally.is_good());
        assert!(Tally::default().is_good());
    }
}
