//! The targets of symlinks.
//!
//! A link is followed step by step, as the kernel would, and must stay inside all the way. A link
//! that leaves the directory and returns by its name would lead elsewhere once the package is
//! unpacked under another name.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// The number of links that Linux follows for one path (`MAXSYMLINKS`).
const MAX_LINKS: usize = 40;

/// Why a symlink cannot be packed; `None` if it can. Its target need not exist.
///
/// Args: `link` is relative to `root`, `target` is the content of the link.
pub(super) fn trouble(root: &Path, link: &Path, target: &Path) -> Option<&'static str> {
    const LEAVES: Option<&str> = Some("leads out of the directory");
    let mut place = link.parent().map(Path::to_owned).unwrap_or_default();
    let mut open = steps(target);
    let mut num_links = 0;
    while let Some(step) = open.pop() {
        match step.as_encoded_bytes() {
            b"." => {}
            b".." if place.pop() => {}
            b"/" | b".." => return LEAVES,
            _ => place.push(&step),
        }
        if let Some(next) = link_at(root, &place) {
            num_links += 1;
            if num_links > MAX_LINKS {
                return Some("leads in a circle");
            }
            place.pop();
            open.extend(steps(&next));
        }
    }
    None
}

/// The target of the link at a place; the directory itself may be reached by a link.
fn link_at(root: &Path, place: &Path) -> Option<PathBuf> {
    if place.as_os_str().is_empty() {
        return None;
    }
    fs::read_link(root.join(place)).ok()
}

/// The steps of a path, the first one last.
fn steps(path: &Path) -> Vec<OsString> {
    let steps = path.components().map(|step| step.as_os_str().to_owned());
    let mut steps: Vec<_> = steps.collect();
    steps.reverse();
    steps
}
