//! Manifests and packs of any bytes. See [`crate::fuzzing`].

use std::fs;

use super::content::HashingReader;
use super::fs::ReadFile;
use super::manifest::{Manifest, StoredTensor};
use super::{Depth, Store, tensors};
use crate::error::Result;
use crate::fuzzing::Scratch;

/// The bytes unchanged, and with their correct hash.
pub(crate) fn manifest(data: &[u8]) {
    let _ = Manifest::parse(data);
    let Ok(manifest) = Manifest::parse(&Manifest::with_hash(data)) else {
        return;
    };
    let text = manifest.to_text().expect("it is JSON");
    assert_eq!(Manifest::parse(text.as_bytes()), Ok(manifest.clone()));
    Scratch::with(|directory| {
        let name = format!("checkpoints/batch-{:010}", manifest.batch);
        let folder = directory.join(name);
        fs::create_dir_all(&folder).expect("there is room");
        fs::write(folder.join("manifest.json"), &text).expect("there is room");
        let store = Store::open(directory);
        for depth in [Depth::Sizes, Depth::Bytes] {
            let found = store.inspect(depth).expect("it is listed");
            let damage = found.iter().flat_map(|found| &found.damage);
            for what in damage {
                let is_active = |it: char| it.is_control() && it != '\n';
                assert!(!what.contains(is_active), "{what:?}");
            }
        }
        let _ = store.load(manifest.batch);
        fs::remove_dir_all(folder).expect("it is ours");
    });
}

/// The bytes as a pack, named by the hash of its header.
pub(crate) fn pack(data: &[u8]) {
    let mut length = [0; 8];
    let first = data.len().min(8);
    length[..first].copy_from_slice(&data[..first]);
    let length = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX);
    let end = length.saturating_add(8).min(data.len());
    let hash = blake3::hash(&data[..end]).to_string();
    let size = data.len() as u64;
    let reader = || HashingReader::of(Box::new(Bytes(data.to_vec(), 0)));
    let _ = tensors::prove(&mut reader(), size, &hash);
    let wanted = StoredTensor {
        name: "a".to_owned(),
        dtype: "uint8".to_owned(),
        shape: vec![data.len()],
        size,
        blake3: hash.clone(),
        pack: 0,
        key: "a".to_owned(),
    };
    let _ = tensors::read(&mut reader(), size, &hash, &[&wanted]);
    let _ = tensors::read(&mut reader(), size, &hash, &[]);
}

#[derive(Debug)]
struct Bytes(Vec<u8>, usize);

impl ReadFile for Bytes {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let rest = &self.0[self.1..];
        let read = rest.len().min(buffer.len());
        buffer[..read].copy_from_slice(&rest[..read]);
        self.1 += read;
        Ok(read)
    }
}
