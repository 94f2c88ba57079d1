//! Which tensors of a checkpoint are written, and into which pack.
//!
//! What an earlier checkpoint holds already, byte for byte, is named in its pack. The rest goes into one
//! new pack, so that a checkpoint costs one file more however many tensors it has.
//!
//! A pack stays as long as any checkpoint names it, with all that is in it. So one of which less than
//! half is still needed, or one too many, is left behind: what is needed of it is written once more, into
//! a second new pack, for that did not change and will be named for long. Where this is little, it
//! goes along with what changed. So the packs of a checkpoint hold at most twice its tensors, and the
//! new bytes of a checkpoint are those of the tensors that changed, at most [`LITTLE_BYTES`] more, and once
//! those that turned out not to change.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::manifest::{Manifest, PackFile, StoredTensor};
use super::tensors::{Content, Hashed, Pack};
use crate::error::Result;

/// As many packs of earlier checkpoints are named at most; each costs a file to open and to look at.
const NAMED_MAX: usize = 16;

/// As many bytes of tensors are rather written with each checkpoint than into a file of their own.
const LITTLE_BYTES: u64 = 64 << 10;

/// Where the tensors of a checkpoint are, and the packs that have to be written for it.
#[derive(Debug)]
pub(super) struct Plan<'snapshot> {
    pub(super) new: Vec<Pack<'snapshot>>,
    pub(super) packs: Vec<PackFile>,
    pub(super) tensors: Vec<StoredTensor>,
}

/// A tensor in a pack that is there: the pack's name, and its own.
type Known<'manifests> = (&'manifests PackFile, &'manifests str);

/// Plans for tensors, with what the checkpoints that are there hold, newest first.
///
/// Args:
///     `is_there`: whether the file of a pack is, whole as far as its size tells.
pub(super) fn plan<'snapshot>(
    hashed: &[Hashed<'snapshot>],
    earlier: &[&Manifest],
    mut is_there: impl FnMut(&PackFile) -> Result<bool>,
) -> Result<Plan<'snapshot>> {
    let mut usable = HashMap::new();
    for pack in earlier.iter().flat_map(|manifest| &manifest.packs) {
        if !usable.contains_key(&pack.blake3[..]) {
            usable.insert(&pack.blake3[..], is_there(pack)?);
        }
    }
    let mut known: HashMap<_, Known<'_>> = HashMap::new();
    for manifest in earlier {
        for stored in &manifest.tensors {
            if let Some(pack) = manifest.packs.get(stored.pack)
                && usable[&pack.blake3[..]]
            {
                let content = (&stored.dtype[..], &stored.shape[..], &stored.blake3[..]);
                known.entry(content).or_insert((pack, &stored.key));
            }
        }
    }
    let texts = hashed.iter().map(|hashed| hashed.hash.to_string());
    let texts: Vec<_> = texts.collect();
    let found = |index: usize| {
        let tensor = hashed[index].tensor;
        let content = (&tensor.dtype[..], &tensor.shape[..], &texts[index][..]);
        known.get(&content).copied()
    };
    let unchanged = hashed.iter().enumerate();
    let unchanged = unchanged.filter_map(|(index, hashed)| Some((hashed, found(index)?)));
    let named = worth_naming(unchanged);

    let (mut changed, mut settled) = (Vec::new(), Vec::new());
    let mut written: HashSet<Content<'_>> = HashSet::new();
    for (index, hashed) in hashed.iter().enumerate() {
        let found = found(index);
        let is_named = found.is_some_and(|(pack, _)| named.contains(&pack.blake3[..]));
        if !is_named && written.insert(hashed.content()) {
            if found.is_some() {
                &mut settled
            } else {
                &mut changed
            }
            .push(*hashed);
        }
    }
    if bytes_of(&settled) < LITTLE_BYTES {
        changed.append(&mut settled);
    }
    let groups = [changed, settled]
        .into_iter()
        .filter(|group| !group.is_empty());
    let new = groups.map(Pack::new).collect::<Result<Vec<_>>>()?;
    Ok(listed(hashed, &texts, new, |index| {
        found(index).filter(|(pack, _)| named.contains(&pack.blake3[..]))
    }))
}

fn bytes_of(group: &[Hashed<'_>]) -> u64 {
    group
        .iter()
        .map(|hashed| hashed.tensor.bytes.len() as u64)
        .sum()
}

/// The packs, by name, of which enough is needed still.
fn worth_naming<'manifests: 'tensors, 'tensors>(
    unchanged: impl Iterator<Item = (&'tensors Hashed<'tensors>, Known<'manifests>)>,
) -> BTreeSet<&'manifests str> {
    let mut needed: BTreeMap<&str, (&PackFile, BTreeMap<&str, u64>)> = BTreeMap::new();
    for (hashed, (pack, key)) in unchanged {
        let (_, keys) = needed
            .entry(&pack.blake3)
            .or_insert((pack, BTreeMap::new()));
        keys.insert(key, hashed.tensor.bytes.len() as u64);
    }
    let mut worth: Vec<_> = needed
        .into_iter()
        .map(|(name, (pack, keys))| (name, pack.tensors_size, keys.values().sum::<u64>()))
        .filter(|(_, all, needed)| needed.saturating_mul(2) >= *all)
        .map(|(name, _, needed)| (name, needed))
        .collect();
    worth.sort_by(|left, right| right.1.cmp(&left.1).then_with(|| left.0.cmp(right.0)));
    worth.truncate(NAMED_MAX);
    worth.into_iter().map(|(name, _)| name).collect()
}

/// The lists of a manifest.
fn listed<'snapshot, 'manifests>(
    hashed: &[Hashed<'snapshot>],
    texts: &[String],
    new: Vec<Pack<'snapshot>>,
    named: impl Fn(usize) -> Option<Known<'manifests>>,
) -> Plan<'snapshot> {
    let mut packs: Vec<_> = new.iter().map(Pack::file).collect();
    let mut written: HashMap<Content<'_>, (usize, &str)> = HashMap::new();
    for (number, pack) in new.iter().enumerate() {
        for hashed in pack.tensors() {
            written.insert(hashed.content(), (number, &hashed.tensor.name));
        }
    }
    let mut tensors = Vec::with_capacity(hashed.len());
    for (index, hashed) in hashed.iter().enumerate() {
        let (pack, key) = match named(index) {
            Some((pack, key)) => {
                let place = packs.iter().position(|known| known.blake3 == pack.blake3);
                let place = place.unwrap_or_else(|| {
                    packs.push(pack.clone());
                    packs.len() - 1
                });
                (place, key)
            }
            None => written[&hashed.content()],
        };
        tensors.push(StoredTensor {
            name: hashed.tensor.name.clone(),
            dtype: hashed.tensor.dtype.clone(),
            shape: hashed.tensor.shape.clone(),
            size: hashed.tensor.bytes.len() as u64,
            blake3: texts[index].clone(),
            pack,
            key: key.to_owned(),
        });
    }
    Plan {
        new,
        packs,
        tensors,
    }
}
