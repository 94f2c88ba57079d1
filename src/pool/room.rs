//! How much memory there is left: for the machine, and for the control groups that this process is in.
//!
//! Pages of shared memory that are reserved beyond that do not fail: the kernel kills some process for them. So who
//! reserves much asks before.
//!
//! Source: `proc_meminfo(5)`, `cgroups(7)`; memory.txt and cgroup-v2.rst in the kernel's documentation.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes that may be reserved before the kernel has to kill somebody; nothing where that cannot be told.
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

/// What `/proc/meminfo` says.
fn left_on_machine(text: &str) -> Option<u64> {
    let field = |name| number_after(text, name).map(|kilobytes| kilobytes * 1024);
    Some(field("MemAvailable:")? + field("SwapFree:").unwrap_or(0))
}

/// What is left in a group, and in those that it is in.
///
/// Args:
///     `line`: of `/proc/self/cgroup`.
///     `root`: where groups are mounted.
fn left_in(line: &str, root: &Path) -> Option<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
    let (root, names) = if controllers.is_empty() {
        // Version 2; beside version 1 it is mounted elsewhere, but has no memory then.
        (root.to_owned(), &V2)
    } else if controllers.split(',').any(|name| name == "memory") {
        (root.join("memory"), &V1)
    } else {
        return None;
    };
    // In a container the path may be that of the host, whose groups are not there; its own is the root then.
    let own = root.join(path);
    let own = if own.is_dir() { own } else { root.clone() };
    let mut groups: Vec<PathBuf> = own.ancestors().map(Path::to_owned).collect();
    groups.retain(|group| group.starts_with(&root));
    groups.iter().filter_map(|group| names.left(group)).min()
}

/// How the files of a group are called.
struct Names {
    limit: &'static str,
    usage: &'static str,
    /// In `memory.stat`: what is in files that are read again when they are needed.
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

/// The number behind a name at the beginning of a line.
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
