//! The files that a script leaves, by the hash of their content.
//!
//! What differs between two undisturbed runs is not compared. Where names themselves hold a time or a random text, so that
//! only one of the two has them, the pattern of a name stands for it: `runs/20261123-0551/w.npz` is `runs/#-#/w.npz` in
//! both. If they have as many files of a pattern, these are compared in the order of their names, and else not at all. Of
//! zip archives (`.keras`, `.npz`) the members are compared, so that the time in one of them excludes no other. A text that
//! differs only in what a clock decides does not differ.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::text;

/// What is ours, or nobody's.
const LEFT_OUT: [&str; 2] = [".pedl", "__pycache__"];

/// A larger file is not looked into.
const LARGEST_TEXT_BYTES: u64 = 64 << 20;

/// One file: where it lies, and its hash, or those of the members of an archive by name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fact {
    path: String,
    hash: blake3::Hash,
    members: BTreeMap<String, u32>,
}

/// All files below a directory, by their path in it, or by the pattern that stands for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Files(BTreeMap<String, Fact>);

impl Files {
    /// Reads them. Symlinks are not followed.
    pub(crate) fn read(root: &Path) -> io::Result<Self> {
        let mut files = Self::default();
        files.add(root, "")?;
        Ok(files)
    }

    fn add(&mut self, directory: &Path, below: &str) -> io::Result<()> {
        for entry in directory.read_dir()? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if LEFT_OUT.contains(&name.as_str()) {
                continue;
            }
            let path = format!("{below}{name}");
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.add(&entry.path(), &format!("{path}/"))?;
            } else if kind.is_file() {
                let fact = Fact::of(&entry.path(), path.clone())?;
                self.0.insert(path, fact);
            }
        }
        Ok(())
    }

    /// The paths of this pattern, in order.
    fn of_pattern(&self, wanted: &str) -> Vec<&String> {
        let paths = self.0.keys();
        paths.filter(|path| pattern(path) == wanted).collect()
    }

    /// The same, with names that those of several runs have in common. Of a pattern with more files than undisturbed runs
    /// leave, the last ones count: a run that was killed before its first checkpoint began anew.
    fn named(mut self, patterns: &BTreeMap<String, usize>) -> Self {
        for (pattern, &count) in patterns {
            let paths: Vec<_> = self.of_pattern(pattern).into_iter().cloned().collect();
            let first = paths.len().saturating_sub(count);
            for (place, path) in paths.iter().enumerate() {
                let fact = self.0.remove(path);
                let name = match count {
                    1 => pattern.clone(),
                    _ => format!("{pattern} ({} of {count})", place + 1 - first.min(place)),
                };
                if let Some(fact) = fact.filter(|_| place >= first) {
                    self.0.insert(name, fact);
                }
            }
        }
        self
    }
}

impl Fact {
    fn of(path: &Path, name: String) -> io::Result<Self> {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(fs::File::open(path)?)?;
        let begins_as_archive = {
            let mut first = [0; 4];
            io::Read::read(&mut fs::File::open(path)?, &mut first)? == 4 && &first == b"PK\x03\x04"
        };
        Ok(Self {
            path: name,
            hash: hasher.finalize(),
            members: if begins_as_archive {
                members_of(&fs::read(path)?).unwrap_or_default()
            } else {
                BTreeMap::new()
            },
        })
    }
}

/// The CRC-32 of each member of a zip archive; `None` where it is none that is understood.
///
/// Source: PKWARE, APPNOTE.TXT 6.3.10, 4.3.12 and 4.3.16.
fn members_of(archive: &[u8]) -> Option<BTreeMap<String, u32>> {
    let u16_at = |at: usize| {
        Some(u16::from_le_bytes(
            archive.get(at..at + 2)?.try_into().ok()?,
        ))
    };
    let u32_at = |at: usize| {
        Some(u32::from_le_bytes(
            archive.get(at..at + 4)?.try_into().ok()?,
        ))
    };
    let first = archive.len().checked_sub(22)?;
    let end = (0..=first)
        .rev()
        .take(1 << 16)
        .find(|&at| archive[at..].starts_with(b"PK\x05\x06"))?;
    let mut at = usize::try_from(u32_at(end + 16)?).ok()?;
    let mut members = BTreeMap::new();
    for _ in 0..u16_at(end + 10)? {
        if !archive.get(at..)?.starts_with(b"PK\x01\x02") {
            return None;
        }
        let lengths = [28, 30, 32].map(|offset| u16_at(at + offset).map(usize::from));
        let [name, extra, comment] = lengths;
        let name_bytes = archive.get(at + 46..at + 46 + name?)?;
        members.insert(
            String::from_utf8_lossy(name_bytes).into_owned(),
            u32_at(at + 16)?,
        );
        at += 46 + name? + extra? + comment?;
    }
    Some(members)
}

/// What two undisturbed runs left.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reference {
    first: Files,
    /// Paths that differ: of an archive, with the members that do.
    differing: BTreeMap<String, BTreeSet<String>>,
    /// Patterns of paths that only one of the two has, and how many files of each both have.
    patterns: BTreeMap<String, usize>,
    /// Such patterns of which one has more files than the other.
    left_out: BTreeSet<String>,
}

/// In what a file of another run differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileDifference {
    pub(crate) path: String,
    pub(crate) what: String,
}

impl Reference {
    /// Of the files of two undisturbed runs.
    pub(crate) fn new(first: Files, second: Files) -> Self {
        let mut reference = Self::default();
        let of_one = |one: &Files, other: &Files| -> Vec<String> {
            let paths = one.0.keys();
            let paths = paths.filter(|path| !other.0.contains_key(*path));
            paths.map(|path| pattern(path)).collect()
        };
        for pattern in of_one(&first, &second)
            .into_iter()
            .chain(of_one(&second, &first))
        {
            let [count, other] = [&first, &second].map(|files| files.of_pattern(&pattern).len());
            if count == other {
                reference.patterns.insert(pattern, count);
            } else {
                reference.left_out.insert(pattern);
            }
        }
        let [first, second] = [first, second].map(|files| files.named(&reference.patterns));
        for (path, fact) in &first.0 {
            if let Some(other) = second.0.get(path)
                && (other.hash, &other.members) != (fact.hash, &fact.members)
            {
                let members = fact.members.iter();
                let differ = members.filter(|(name, crc)| other.members.get(*name) != Some(crc));
                let names = differ.map(|(name, _)| name.clone()).collect();
                reference.differing.insert(path.clone(), names);
            }
        }
        reference.first = first;
        reference
    }

    /// How many files are compared.
    pub(crate) fn num_files(&self) -> usize {
        let is_compared = |path: &&String| !self.is_left_out(path);
        self.first.0.keys().filter(is_compared).count()
    }

    /// What is not compared, for people.
    pub(crate) fn excluded(&self) -> Vec<String> {
        let differing = self.differing.iter().map(|(path, members)| {
            if members.is_empty() {
                path.clone()
            } else {
                let members: Vec<_> = members.iter().map(String::as_str).collect();
                format!("{path} ({})", members.join(", "))
            }
        });
        differing.chain(self.left_out.iter().cloned()).collect()
    }

    fn is_left_out(&self, path: &str) -> bool {
        self.left_out.contains(&pattern(path))
            || self.differing.get(path).is_some_and(BTreeSet::is_empty)
    }

    /// The files of another run that differ. The roots are where the files lie, for texts to be looked into.
    pub(crate) fn compare(&self, other: Files, roots: [&Path; 2]) -> Vec<FileDifference> {
        let other = other.named(&self.patterns);
        let mut found = Vec::new();
        let mut differs = |path: &str, what: String| {
            found.push(FileDifference {
                path: path.to_owned(),
                what,
            });
        };
        for (path, fact) in self
            .first
            .0
            .iter()
            .filter(|(path, _)| !self.is_left_out(path))
        {
            match other.0.get(path) {
                None => differs(path, "it is not there".to_owned()),
                Some(now) if now.hash == fact.hash => {}
                Some(now) if !fact.members.is_empty() => {
                    if let Some(member) = self.differing_member(path, fact, now) {
                        differs(path, format!("its member `{member}` differs"));
                    }
                }
                Some(now) => {
                    let places = [roots[0].join(&fact.path), roots[1].join(&now.path)];
                    if let Some(line) = differing_line(places) {
                        differs(path, line);
                    }
                }
            }
        }
        for path in other
            .0
            .keys()
            .filter(|path| !self.first.0.contains_key(*path))
        {
            if !self.is_left_out(path) {
                differs(path, "no undisturbed run leaves it".to_owned());
            }
        }
        found
    }

    fn differing_member(&self, path: &str, fact: &Fact, now: &Fact) -> Option<String> {
        let excluded = self.differing.get(path);
        let is_compared = |name: &&String| !excluded.is_some_and(|names| names.contains(*name));
        let names = fact.members.keys().chain(now.members.keys());
        names
            .filter(is_compared)
            .find(|name| fact.members.get(*name) != now.members.get(*name))
            .cloned()
    }
}

/// How a file differs in more than a clock.
fn differing_line(places: [PathBuf; 2]) -> Option<String> {
    let contents = places.map(|path| {
        let is_small = path.metadata().ok()?.len() <= LARGEST_TEXT_BYTES;
        let content = is_small.then(|| fs::read(&path).ok()).flatten()?;
        std::str::from_utf8(&content).is_ok().then_some(content)
    });
    let [Some(one), Some(other)] = contents else {
        return Some("its bytes differ".to_owned());
    };
    let (one, other) = (text::lines_of(&one), text::lines_of(&other));
    let place = (0..one.len().max(other.len())).find(|&line| one.get(line) != other.get(line))?;
    let shown = |lines: &[String]| {
        lines
            .get(place)
            .map_or("none".to_owned(), |line| format!("`{line}`"))
    };
    Some(format!(
        "line {}: {}, not {}",
        place + 1,
        shown(&other),
        shown(&one)
    ))
}

/// A path with what changes from run to run as `#`: each group of letters and digits with a digit in it, or that
/// may be a part of a random number in hexadecimal.
fn pattern(path: &str) -> String {
    let mut out = String::new();
    let mut rest = path;
    while !rest.is_empty() {
        let end = rest
            .find(|it: char| !it.is_alphanumeric())
            .unwrap_or(rest.len());
        let (group, behind) = rest.split_at(end);
        let is_hexadecimal =
            matches!(group.len(), 4 | 8 | 12) && group.bytes().all(|it| it.is_ascii_hexdigit());
        if is_hexadecimal || group.contains(|it: char| it.is_ascii_digit()) {
            out.push('#');
        } else {
            out.push_str(group);
        }
        let separator = behind.chars().next().map_or(0, char::len_utf8);
        out.push_str(&behind[..separator]);
        rest = &behind[separator..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &[u8])]) -> (tempfile::TempDir, Files) {
        let directory = tempfile::tempdir().expect("there is room");
        for (path, content) in files {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().expect("below")).expect("made");
            fs::write(path, content).expect("written");
        }
        let read = Files::read(directory.path()).expect("readable");
        (directory, read)
    }

    /// A zip archive of empty members with these checksums.
    fn archive(members: &[(&str, u32)]) -> Vec<u8> {
        let mut bytes = b"PK\x03\x04".to_vec();
        let start = u32::try_from(bytes.len()).expect("small");
        for (name, crc) in members {
            let mut head = vec![0; 46];
            head[..4].copy_from_slice(b"PK\x01\x02");
            head[16..20].copy_from_slice(&crc.to_le_bytes());
            head[28..30].copy_from_slice(&u16::try_from(name.len()).expect("short").to_le_bytes());
            bytes.extend(head);
            bytes.extend(name.as_bytes());
        }
        let mut end = vec![0; 22];
        end[..4].copy_from_slice(b"PK\x05\x06");
        end[10..12].copy_from_slice(&u16::try_from(members.len()).expect("few").to_le_bytes());
        end[16..20].copy_from_slice(&start.to_le_bytes());
        bytes.extend(end);
        bytes
    }

    #[test]
    fn files_are_compared_but_for_what_undisturbed_runs_differ_in() {
        let one = archive(&[("weights", 7), ("metadata.json", 1)]);
        let two = archive(&[("weights", 7), ("metadata.json", 2)]);
        let three = archive(&[("weights", 8), ("metadata.json", 3)]);
        let (first, a) = tree(&[
            ("log.csv", b"1,2"),
            ("m.keras", &one),
            ("run-17/x", b"a"),
            ("h5", b"t1"),
            ("took.txt", b"took 3 s"),
        ]);
        let (_second, b) = tree(&[
            ("log.csv", b"1,2"),
            ("m.keras", &two),
            ("run-18/x", b"a"),
            ("h5", b"t2"),
            ("took.txt", b"took 3 s"),
        ]);
        let reference = Reference::new(a, b);
        assert_eq!(reference.num_files(), 4);
        assert_eq!(reference.excluded(), ["h5", "m.keras (metadata.json)"]);

        let (third, c) = tree(&[
            ("log.csv", b"1,2"),
            ("m.keras", &two),
            ("run-19/x", b"a"),
            ("h5", b"t3"),
            ("took.txt", b"took 9 s"),
        ]);
        assert_eq!(reference.compare(c, [first.path(), third.path()]), []);

        let (fourth, d) = tree(&[
            ("log.csv", b"1,3"),
            ("m.keras", &three),
            ("new", b""),
            ("run-20/x", b"b"),
        ]);
        let found = reference.compare(d, [first.path(), fourth.path()]);
        let found: Vec<_> = found
            .iter()
            .map(|it| (it.path.as_str(), it.what.as_str()))
            .collect();
        let expected = [
            ("log.csv", "line 1: `1,3`, not `1,2`"),
            ("m.keras", "its member `weights` differs"),
            ("run-#/x", "line 1: `b`, not `a`"),
            ("took.txt", "it is not there"),
            ("new", "no undisturbed run leaves it"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn names_with_a_time_are_compared_in_their_order() {
        let (first, a) = tree(&[("1/w-10", b"a"), ("1/w-11", b"b"), ("log-7", b"")]);
        let (_second, b) = tree(&[("2/w-12", b"a"), ("2/w-13", b"b")]);
        let reference = Reference::new(a, b);
        assert_eq!(
            (reference.num_files(), reference.excluded()),
            (2, vec!["log-#".to_owned()])
        );
        // A start that died before its first checkpoint has left the first two.
        let (third, c) = tree(&[
            ("3/w-14", b"a"),
            ("3/w-15", b""),
            ("4/w-16", b"a"),
            ("4/w-17", b"c"),
        ]);
        let found = reference.compare(c, [first.path(), third.path()]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "#/w-# (2 of 2)");
        let (fourth, d) = tree(&[("5/w-18", b"a")]);
        let found = reference.compare(d, [first.path(), fourth.path()]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].what, "it is not there");
    }

    #[test]
    fn an_archive_that_is_torn_is_none() {
        let whole = archive(&[("weights", 7)]);
        assert!(members_of(&whole).is_some());
        for end in 0..whole.len() {
            let _ = members_of(&whole[..end]);
        }
    }
}
