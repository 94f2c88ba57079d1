//! Which tensors of a checkpoint are written, and into which pack.
//!
//! If an earlier checkpoint already holds a tensor, byte for byte, the manifest names its pack. The
//! rest goes into one new pack, so that a checkpoint costs one more file, however many tensors it
//! has.
//!
//! A pack stays, with all tensors in it, as long as any checkpoint names it. So a pack is given up
//! if less than half of it is still needed, or if there are too many packs: the needed tensors are
//! written once more, into a second new pack, because they did not change and will be named for
//! long. If they are few bytes, they are written together with the changed tensors. So the packs of
//! a checkpoint hold at most twice its tensors. The new bytes of a checkpoint are those of the
//! tensors that changed, at most [`LITTLE_BYTES`] more, and once those of tensors that turned out
//! not to change.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::manifest::{Manifest, PackFile, StoredTensor};
use super::tensors::{Content, Hashed, Pack};
use crate::error::Result;

/// A checkpoint names at most this many packs of earlier checkpoints; each is a file to open and
/// check.
const NAMED_MAX: usize = 16;

/// Fewer bytes of tensors than this are written again with each checkpoint, rather than into a
/// separate file.
const LITTLE_BYTES: u64 = 64 << 10;

/// The places of the tensors of a checkpoint, and the packs that must be written for it.
#[derive(Debug)]
pub(super) struct Plan<'snapshot> {
    pub(super) new: Vec<Pack<'snapshot>>,
    pub(super) packs: Vec<PackFile>,
    pub(super) tensors: Vec<StoredTensor>,
}

/// A tensor in an existing pack: the pack, and the name of the tensor in it.
type Known<'manifests> = (&'manifests PackFile, &'manifests str);

/// Plans where tensors go. `earlier` are the manifests of existing checkpoints, newest first.
///
/// Args:
///     `is_there`: whether the file of a pack exists, complete as far as its size shows.
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

/// The names of the packs that are still needed to a sufficient part.
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
