//! The faults that disturb a run, and their moments.
//!
//! | fault | action | what continues the run |
//! |---|---|---|
//! | `KillAll` | SIGKILL to all processes at once | the same command |
//! | `KillTrial` | SIGKILL to the process that trains | the supervisor, or the same command |
//! | `Terminate` | SIGTERM to `pedl-run` | the same command |
//! | `DiskFull` | the process that trains may write no file beyond some bytes | the same command |
//!
//! Before each of them a worker process of a data set is killed, if there is one: another takes its
//! place, and the run continues.
//!
//! A full disk needs a separate file system, and that needs root. `RLIMIT_FSIZE`, set from outside
//! by prlimit(2), makes writes fail at the same places (EFBIG instead of ENOSPC) and harms nobody's
//! disk.
//!
//! Moments are drawn from the seed, and are relative to the progress of the run: nearly all come
//! after a checkpoint that the running start has taken itself, so that each resume begins somewhere
//! else. Those of the first disturbed run follow each other closely, so that they fall within one
//! epoch.

use std::fmt;

use super::random::Random;

/// The number of faults in one run.
pub(super) const FAULTS_OF_A_RUN: usize = 3;

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    KillAll,
    KillTrial,
    Terminate,
    DiskFull,
}

impl Kind {
    /// Its word in the result for programs.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::KillAll => "kill_all",
            Self::KillTrial => "kill_trial",
            Self::Terminate => "terminate",
            Self::DiskFull => "disk_full",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::KillAll => "SIGKILL to all",
            Self::KillTrial => "SIGKILL to the trial",
            Self::Terminate => "SIGTERM",
            Self::DiskFull => "disk full",
        })
    }
}

/// The moment of a fault, in a start of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Moment {
    /// At a checkpoint that is this share of the remaining batches after the first one of the
    /// start.
    AfterCheckpoint(f64),
    /// This many checkpoint intervals after the first one of the start: soon.
    SoonAfterCheckpoint(f64),
    /// This share of an undisturbed run after the start began: it may be before any checkpoint.
    Anywhere(f64),
}

/// A planned fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Planned {
    pub(super) kind: Kind,
    pub(super) moment: Moment,
}

/// The faults of each run.
pub(super) fn plan(faults: u64, random: &mut Random) -> Vec<Vec<Planned>> {
    let mut kinds = Vec::new();
    while (kinds.len() as u64) < faults {
        let mut more = match kinds.len() {
            // The kinds that most often reveal errors come in every run, however short.
            0 => vec![Kind::KillAll, Kind::KillAll, Kind::KillTrial],
            _ => vec![Kind::Terminate, Kind::DiskFull, Kind::KillAll],
        };
        if kinds.len() > FAULTS_OF_A_RUN && kinds.len() % 2 == 0 {
            more[2] = Kind::KillTrial;
        }
        random.shuffle(&mut more);
        kinds.append(&mut more);
    }
    kinds.truncate(usize::try_from(faults).unwrap_or(usize::MAX));
    let mut runs: Vec<Vec<Planned>> = Vec::new();
    for (run, kinds) in kinds.chunks(FAULTS_OF_A_RUN).enumerate() {
        let planned = kinds.iter().enumerate().map(|(place, &kind)| Planned {
            kind,
            moment: moment(run, place, kind, random),
        });
        runs.push(planned.collect());
    }
    runs
}

fn moment(run: usize, place: usize, kind: Kind, random: &mut Random) -> Moment {
    match (run, place) {
        (0, 0) => Moment::AfterCheckpoint(random.seconds(0.3)),
        (0, _) => Moment::SoonAfterCheckpoint(random.seconds(2.0)),
        // A full disk has no effect before anything is written.
        (_, 0) if kind != Kind::DiskFull => Moment::Anywhere(random.seconds(0.4)),
        _ => Moment::AfterCheckpoint(random.seconds(0.25)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_faults_are_of_each_kind_and_three_follow_closely() {
        for seed in 0..50 {
            let runs = plan(6, &mut Random::new(seed));
            assert_eq!(runs.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3]);
            let kinds: Vec<_> = runs.iter().flatten().map(|planned| planned.kind).collect();
            for kind in [
                Kind::KillAll,
                Kind::KillTrial,
                Kind::Terminate,
                Kind::DiskFull,
            ] {
                assert!(kinds.contains(&kind), "seed {seed}: {kind}");
            }
            let soon = |it: &&Planned| matches!(it.moment, Moment::SoonAfterCheckpoint(_));
            assert_eq!(runs[0].iter().filter(soon).count(), 2);
            assert_eq!(
                plan(6, &mut Random::new(seed)),
                runs,
                "a seed repeats the moments"
            );
        }
        assert_eq!(plan(1, &mut Random::new(3)).len(), 1);
        assert_eq!(plan(100, &mut Random::new(3)).len(), 34);
        assert_ne!(plan(6, &mut Random::new(1)), plan(6, &mut Random::new(2)));
    }
}
