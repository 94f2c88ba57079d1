//! What `cargo dev bench` prints of what it has measured.

use super::replay::Replay;
use super::{Answer, part};
use crate::quantiles::{error_of_median, median, quantile};

const MICROSECONDS: f64 = 1e6;

/// Prints for each loop the time of Python, and how much longer the turns of `pedl-run` took than
/// the neighbouring ones. Half of the differences are between the quartiles. The error is that of
/// their median: 19 in 20 medians are within it.
pub(super) fn print_pairs(pairs: &[(Answer, Answer)], loops: &[&str]) {
    println!(
        "  {:<16}{:>8}   {:>37}   {:>7}",
        "", "python", "pedl-run minus python", "ratio"
    );
    println!(
        "  {:<16}{:>8}   {:>10}{:>9} ± {:<6}{:>9}   {:>7}",
        "", "median", "quartile", "median", "", "quartile", "median"
    );
    for name in loops {
        let (mut python, mut more, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for (theirs, ours) in pairs {
            for (theirs, ours) in part(theirs, name).into_iter().zip(part(ours, name)) {
                python.push(theirs * MICROSECONDS);
                more.push((ours - theirs) * MICROSECONDS);
                ratios.push(ours / theirs);
            }
        }
        let error = error_of_median(&more);
        println!(
            "  {name:<16}{:>8.1}   {:>10.1}{:>9.1} ± {error:<6.1}{:>9.1}   {:>7.3}",
            median(&python),
            quantile(&more, 1, 4),
            median(&more),
            quantile(&more, 3, 4),
            median(&ratios),
        );
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
pub(super) fn print_replay(name: &str, replay: &Replay, empty: &[f64]) {
    let ghost = replay.seconds / replay.batches as f64;
    println!(
        "  replay, {name:<16}{} a batch ({} batches in {:.2} s, so {:.1} s for 100000)",
        micros(ghost),
        replay.batches,
        replay.seconds,
        ghost * 1e5,
    );
    let alone = if empty.is_empty() {
        String::new()
    } else {
        format!(
            "the framework's loop alone {} a batch; ",
            micros(median(empty))
        )
    };
    println!(
        "  {:<24}{alone}log {:.1} bytes a call",
        "",
        replay.log_bytes as f64 / replay.log_calls as f64,
    );
}

/// A time as it is printed.
pub(super) fn micros(seconds: f64) -> String {
    format!("{:.1} µs", seconds * MICROSECONDS)
}
