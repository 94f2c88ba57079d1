//! The memory that is left: on the machine, and in the control groups of this process.
//!
//! If a process reserves more pages of shared memory than that, the reservation does not fail: the
//! kernel kills some process. So check before a large reservation.
//!
//! Source: `proc_meminfo(5)`, `cgroups(7)`; memory.txt and cgroup-v2.rst in the documentation of
//! the kernel.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes that may be reserved before the kernel must kill a process; `None` if that is unknown.
pub(crate) fn available_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| left_on_machine(&text));
    let groups = groups
        .lines()
        .filter_map(|line| left_in(line, Path::new("/sys/fs/cgroup")));
    machine.into_iter().chain(groups).min()
}

/// Free memory according to `/proc/meminfo`.
fn left_on_machine(text: &str) -> Option<u64> {
    let field = |name| number_after(text, name).map(|kilobytes| kilobytes * 1024);
    Some(field("MemAvailable:")? + field("SwapFree:").unwrap_or(0))
}

/// The memory that is left in a group, and in the groups that contain it.
///
/// Args:
///     `line`: of `/proc/self/cgroup`.
///     `root`: the mount point of groups.
fn left_in(line: &str, root: &Path) -> Option<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
    let (root, names) = if controllers.is_empty() {
        // Version 2; if version 1 exists too, it is mounted elsewhere, but does not control memory.
        (root.to_owned(), &V2)
    } else if controllers.split(',').any(|name| name == "memory") {
        (root.join("memory"), &V1)
    } else {
        return None;
    };
    // In a container the path may be that of the host, whose groups do not exist there; then the
    // root is the group of the container.
    let own = root.join(path);
    let own = if own.is_dir() { own } else { root.clone() };
    let mut groups: Vec<PathBuf> = own.ancestors().map(Path::to_owned).collect();
    groups.retain(|group| group.starts_with(&root));
    groups.iter().filter_map(|group| names.left(group)).min()
}

/// The names of the files of a group.
struct Names {
    limit: &'static str,
    usage: &'static str,
    /// In `memory.stat`: file contents in memory, which are read again when they are needed.
    cache: [&'static str; 2],
}

const V1: Names = Names {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cache: ["total_inactive_file", "total_active_file"],
};
const V2: Names = Names {
    limit: "memory.max",
    usage: "memory.current",
    cache: ["inactive_file", "active_file"],
};

impl Names {
    fn left(&self, group: &Path) -> Option<u64> {
        let number = |name| {
            fs::read_to_string(group.join(name))
                .ok()?
                .trim()
                .parse::<u64>()
                .ok()
        };
        let (limit, usage) = (number(self.limit)?, number(self.usage)?);
        let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let cache: u64 = self
            .cache
            .iter()
            .filter_map(|name| number_after(&stat, name))
            .sum();
        Some(limit.saturating_sub(usage.saturating_sub(cache)))
    }
}

/// The number after a name at the beginning of a line.
fn number_after(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    lines.find_map(|mut words| {
        (words.next()? == name)
            .then(|| words.next()?.parse().ok())
            .flatten()
    })
}

#[cfg(test)]
mod tests;
