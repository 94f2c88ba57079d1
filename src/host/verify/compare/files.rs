//! Compares the files that a script leaves, by the hash of their content.
//!
//! What differs between two undisturbed runs is not compared. If a name itself contains a time or a
//! random text, so that only one of the two runs has it, the pattern of the name replaces it:
//! `runs/20261123-0551/w.npz` is `runs/#-#/w.npz` in both. If a run leaves several files of a
//! pattern, those count that both have with the same content. Of zip archives (`.keras`, `.npz`)
//! the members are compared, so that a time in one member excludes no other. A text that differs
//! only in output of a clock counts as equal.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::text;

/// Our own files, or files that do not matter.
const LEFT_OUT: [&str; 2] = [".pedl", "__pycache__"];

/// The content of a larger file is not examined.
const LARGEST_TEXT_BYTES: u64 = 64 << 20;

/// One file: its path, and its hash, or those of the members of an archive by name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fact {
    path: String,
    hash: blake3::Hash,
    members: BTreeMap<String, u32>,
}

/// All files below a directory, by their path in it, or by the pattern that replaces it.
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

    /// How many files of each of these patterns there are.
    fn count(&self, patterns: &BTreeSet<String>) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for pattern in self.0.keys().map(|path| pattern(path)) {
            if patterns.contains(&pattern) {
                *counts.entry(pattern).or_default() += 1;
            }
        }
        counts
    }

    /// The same files, with names that several runs have in common: the pattern, if a run has one
    /// file of it, and the pattern and the hash of the content, if it has several. If there should
    /// be one file of a pattern and there are more, the one of `like` counts, or the last: a run
    /// that was killed before its first checkpoint began anew.
    fn named(self, patterns: &BTreeMap<String, Count>, like: Option<&Self>) -> Self {
        let mut named = Self::default();
        for (path, fact) in self.0 {
            let pattern = pattern(&path);
            match patterns.get(&pattern) {
                None => {
                    named.0.insert(path, fact);
                }
                Some(Count::One) => {
                    let wanted = like.and_then(|like| like.0.get(&pattern));
                    let is_found =
                        |fact: &Fact| wanted.is_some_and(|wanted| wanted.hash == fact.hash);
                    if !named.0.get(&pattern).is_some_and(is_found) {
                        named.0.insert(pattern, fact);
                    }
                }
                Some(Count::Several) => {
                    named.0.insert(format!("{pattern} ({})", fact.hash), fact);
                }
            }
        }
        named
    }
}

/// How many files of a pattern undisturbed runs leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Count {
    One,
    Several,
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

/// The CRC-32 of each member of a zip archive; `None` if it is not one that is understood.
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

/// The files of two undisturbed runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reference {
    first: Files,
    /// Paths that differ; for an archive, with its members that differ.
    differing: BTreeMap<String, BTreeSet<String>>,
    /// Patterns of paths that only one of the two runs has, and that are compared.
    patterns: BTreeMap<String, Count>,
    /// Such patterns that are not compared: of files that differ, or of which one run has more.
    left_out: BTreeSet<String>,
}

/// How a file of another run differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileDifference {
    pub(crate) path: String,
    pub(crate) what: String,
}

impl Reference {
    /// The reference for the files of two undisturbed runs.
    pub(crate) fn new(first: Files, second: Files) -> Self {
        let mut reference = Self::default();
        let of_one = |one: &Files, other: &Files| -> Vec<String> {
            let paths = one.0.keys();
            let paths = paths.filter(|path| !other.0.contains_key(*path));
            paths.map(|path| pattern(path)).collect()
        };
        let patterns: BTreeSet<_> = of_one(&first, &second)
            .into_iter()
            .chain(of_one(&second, &first))
            .collect();
        let (counts, others) = (first.count(&patterns), second.count(&patterns));
        for pattern in patterns {
            match (counts.get(&pattern), others.get(&pattern)) {
                (Some(1), Some(1)) => reference.patterns.insert(pattern, Count::One).is_none(),
                (Some(count), Some(other)) if count == other => {
                    reference.patterns.insert(pattern, Count::Several).is_none()
                }
                _ => reference.left_out.insert(pattern),
            };
        }
        let [mut first, second] =
            [first, second].map(|files| files.named(&reference.patterns, None));
        first.0.retain(|name, fact| {
            let pattern = pattern(&fact.path);
            let is_kept = reference.patterns.get(&pattern) != Some(&Count::Several)
                || second.0.contains_key(name);
            if !is_kept {
                reference.left_out.insert(pattern);
            }
            is_kept
        });
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

    /// The files that are not compared, for people.
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

    /// The files of another run that differ. `roots` are the directories of the files, for
    /// comparing texts.
    pub(crate) fn compare(&self, other: Files, roots: [&Path; 2]) -> Vec<FileDifference> {
        let other = other.named(&self.patterns, Some(&self.first));
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
        for (path, fact) in &other.0 {
            let is_of_several = self.patterns.get(&pattern(&fact.path)) == Some(&Count::Several);
            if !self.first.0.contains_key(path) && !is_of_several && !self.is_left_out(path) {
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

/// How a file differs in more than times of a clock.
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

/// A path with `#` for what changes from run to run: each group of letters and digits that contains
/// a digit, or that may be a part of a random hexadecimal number.
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
    fn files_whose_names_hold_a_time_are_compared_by_the_pattern_of_their_names() {
        let (first, a) = tree(&[
            ("1/w-10", b"a"),
            ("1/w-11", b"b"),
            ("1/x-1", b"t1"),
            ("1/x-2", b""),
            ("log-7", b""),
        ]);
        let (_second, b) = tree(&[
            ("2/w-12", b"b"),
            ("2/w-13", b"a"),
            ("2/x-1", b"t2"),
            ("2/x-2", b""),
        ]);
        let reference = Reference::new(a, b);
        assert_eq!(reference.num_files(), 3);
        assert_eq!(reference.excluded(), ["#/x-#", "log-#"]);
        // A start that died before its first checkpoint has left the first two.
        let files: [(&str, &[u8]); 6] = [
            ("3/w-14", b"a"),
            ("3/w-15", b""),
            ("4/w-16", b"a"),
            ("4/w-17", b"b"),
            ("4/x-1", b"t3"),
            ("4/x-2", b""),
        ];
        let (third, c) = tree(&files);
        assert_eq!(reference.compare(c, [first.path(), third.path()]), []);
        let (fourth, d) = tree(&files[..3]);
        let found = reference.compare(d, [first.path(), fourth.path()]);
        assert!(found.iter().all(|it| it.what == "it is not there"));
        assert_eq!(found.len(), 2);
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
