//! Functions for the fuzz targets of `tests/fuzz`, for the readers of this crate: any bytes give a
//! value or an error, soon and without much memory. Checksums and hashes are corrected first,
//! because no fuzzer finds them.

#![allow(missing_docs, clippy::missing_panics_doc, reason = "for tests alone")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::thread;

use crate::{calls, checkpoint, events, inspect, printable};

/// A directory of this thread, in memory, that is removed with it.
pub struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        let path = folder.join(format!(
            "pedl-fuzz-{}-{:?}",
            process::id(),
            thread::current().id()
        ));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("there is room");
        Self(path)
    }

    pub fn with<T>(act: impl FnOnce(&Path) -> T) -> T {
        thread_local!(static OF_THREAD: RefCell<Option<Scratch>> = const { RefCell::new(None) });
        OF_THREAD.with(|scratch| {
            let mut scratch = scratch.borrow_mut();
            act(&scratch.get_or_insert_with(Self::new).0)
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A log of calls: verified, read from beginning to end, and replayed.
pub fn calls_log(data: &[u8]) {
    calls::fuzzing::log(data);
}

/// A manifest, and a checkpoint with it.
pub fn manifest(data: &[u8]) {
    checkpoint::fuzzing::manifest(data);
}

/// A pack of tensors.
pub fn pack(data: &[u8]) {
    checkpoint::fuzzing::pack(data);
}

/// Lines of the journal, and what is shown of them.
pub fn events(data: &[u8]) {
    let mut validations = BTreeMap::new();
    for line in data.split(|byte| *byte == b'\n') {
        inspect::note_validation(line, &mut validations);
    }
    for (name, value) in validations.values().flatten() {
        let shown = format!("{name} {value}");
        let shown = printable::printable(&shown);
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
    }
    Scratch::with(|directory| {
        fs::write(directory.join(events::FILE_NAME), data).expect("there is room");
        let _ = inspect::checkpoints(directory, inspect::Depth::Sizes);
    });
}

/// Runs a target on each seed of its corpus, and on changes of each, which are the same every time.
#[cfg(test)]
pub fn try_corpus(name: &str, target: impl Fn(&[u8]), changes: u32) {
    const ODD: [u8; 8] = [0, 1, 0x7f, 0x80, 0xff, b'\n', b'"', b'.'];
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus");
    let seeds = fs::read_dir(corpus.join(name)).expect("it is in the repository");
    let mut seeds: Vec<_> = seeds.map(|seed| seed.expect("a name").path()).collect();
    seeds.sort();
    assert!(!seeds.is_empty());
    let mut state = 1_u64;
    // Knuth's linear congruential generator, whose high bits are good.
    let mut draw = move |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).expect("31 bits") % below.max(1)
    };
    for seed in seeds {
        let seed = fs::read(&seed).expect("it is there");
        target(&seed);
        for _ in 0..changes {
            let mut changed = seed.clone();
            for _ in 0..=draw(4) {
                let (place, length) = (draw(changed.len() + 1), draw(16));
                let end = changed.len().min(place + length);
                match draw(5) {
                    0 if place < changed.len() => changed[place] ^= 1 << draw(8),
                    1 if place < changed.len() => changed[place] = ODD[draw(ODD.len())],
                    2 => drop(changed.drain(place..end)),
                    3 => {
                        let part = changed[place..end].to_vec();
                        let place = draw(changed.len() + 1);
                        changed.splice(place..place, part);
                    }
                    _ => changed.insert(place, ODD[draw(ODD.len())]),
                }
            }
            target(&changed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corpus_of_logs() {
        try_corpus("calls_log", calls_log, 500);
    }

    #[test]
    fn corpus_of_manifests() {
        try_corpus("manifest", manifest, 200);
    }

    #[test]
    fn corpus_of_packs() {
        try_corpus("pack", pack, 500);
    }

    #[test]
    fn corpus_of_events() {
        try_corpus("events", events, 500);
    }
}
