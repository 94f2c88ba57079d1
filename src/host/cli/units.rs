//! Sizes and times in one unit, as people read them.

use std::time::Duration;

/// A size in the largest unit of which it has at least one.
pub(super) fn bytes(size: u64) -> String {
    const UNITS: [(u64, &str); 4] = [
        (1_000_000_000_000, "TB"),
        (1_000_000_000, "GB"),
        (1_000_000, "MB"),
        (1_000, "kB"),
    ];
    for (unit, name) in UNITS {
        if size >= unit {
            let tenths = u128::from(size) * 10 / u128::from(unit);
            return format!("{}.{} {name}", tenths / 10, tenths % 10);
        }
    }
    format!("{size} B")
}

/// A time in its largest unit.
pub(super) fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    let (number, unit) = match seconds {
        0..120 => (seconds, "s"),
        120..7_200 => (seconds / 60, "min"),
        7_200..172_800 => (seconds / 3_600, "h"),
        _ => (seconds / 86_400, "days"),
    };
    format!("{number} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ages_are_told_in_one_unit() {
        let sizes = [0, 999, 1_000, 12_345_678, u64::MAX].map(bytes);
        assert_eq!(
            sizes,
            ["0 B", "999 B", "1.0 kB", "12.3 MB", "18446744.0 TB"]
        );
        let ages = [0, 119, 120, 7_200, 200_000].map(|seconds| age(Duration::from_secs(seconds)));
        assert_eq!(ages, ["0 s", "119 s", "2 min", "2 h", "2 days"]);
    }
}
