//! Packs: tensors in files of the format safetensors, which many tools can read.
//!
//! A pack is named by the hash of its header, and the header lists the hash of each tensor in it
//! (`__metadata__`, member `blake3`: 64 hexadecimal digits for each, in the order of the file). So
//! with the name, any tensor of it can be verified alone, and no byte is hashed twice.
//!
//! The `safetensors` crate makes the header. Its functions that write a file are not used: one
//! needs all bytes in one buffer, the other bypasses [`FileSystem`](super::FileSystem).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use blake3::Hash;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use super::Tensor;
use super::content::{HashingReader, Writer};
use super::failure::Failure;
use super::manifest::{PackFile, StoredTensor};
use crate::error::{Error, Result};
use crate::printable::printable;

/// Names of the types that the format has, as in NumPy and `ml_dtypes`.
///
/// `float8_e4m3` (with infinities), `complex128` and the types below one byte are not in it.
///
/// Source: safetensors 0.8.0, `src/tensor.rs`, `Dtype`; `ml_dtypes` 0.5, `README.md`.
const DTYPES: [(&str, Dtype); 19] = [
    ("bool", Dtype::BOOL),
    ("int8", Dtype::I8),
    ("int16", Dtype::I16),
    ("int32", Dtype::I32),
    ("int64", Dtype::I64),
    ("uint8", Dtype::U8),
    ("uint16", Dtype::U16),
    ("uint32", Dtype::U32),
    ("uint64", Dtype::U64),
    ("float16", Dtype::F16),
    ("bfloat16", Dtype::BF16),
    ("float32", Dtype::F32),
    ("float64", Dtype::F64),
    ("complex64", Dtype::C64),
    ("float8_e4m3fn", Dtype::F8_E4M3),
    ("float8_e4m3fnuz", Dtype::F8_E4M3FNUZ),
    ("float8_e5m2", Dtype::F8_E5M2),
    ("float8_e5m2fnuz", Dtype::F8_E5M2FNUZ),
    ("float8_e8m0fnu", Dtype::F8_E8M0),
];

/// The format reserves this name. If a tensor has it, followed by any number of [`ESCAPE`]s, its
/// name in the file gets one more of them.
const RESERVED: &str = "__metadata__";
const ESCAPE: char = '\'';

/// The longest header that readers of the format accept (safetensors 0.8.0, `MAX_HEADER_SIZE`).
const HEADER_BYTES_MAX: u64 = 100_000_000;

pub(super) fn list_dtypes(formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (index, (name, _)) in DTYPES.iter().enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        write!(formatter, "{separator}{name}")?;
    }
    Ok(())
}

/// Size of a read of bytes that only their hash needs.
const PIECE_BYTES: usize = 64 << 10;

/// The member of `__metadata__` with the hashes.
const HASHES: &str = "blake3";

/// A tensor that can be stored, and the hash of its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hashed<'snapshot> {
    pub(super) tensor: &'snapshot Tensor,
    pub(super) hash: Hash,
    dtype: Dtype,
}

/// What makes two tensors equal for a pack: type, shape and hash of the bytes.
pub(super) type Content<'name> = (&'name str, &'name [usize], Hash);

impl<'snapshot> Hashed<'snapshot> {
    pub(super) fn content(&self) -> Content<'snapshot> {
        (&self.tensor.dtype, &self.tensor.shape, self.hash)
    }
}

/// Refuses tensors that cannot be stored.
pub(super) fn check(tensors: &[Tensor]) -> Result<()> {
    let mut names = BTreeSet::new();
    for tensor in tensors {
        dtype_of(tensor)?;
        if !names.insert(&tensor.name) {
            let tensor = tensor.name.clone();
            return Err(Failure::SameName { tensor }.into());
        }
    }
    Ok(())
}

/// Hashes tensors, in their order.
pub(super) fn hash(tensors: &[Tensor]) -> Result<Vec<Hashed<'_>>> {
    let hashed = |tensor| {
        Ok(Hashed {
            tensor,
            dtype: dtype_of(tensor)?,
            hash: blake3::hash(&tensor.bytes),
        })
    };
    tensors.iter().map(hashed).collect()
}

/// The type of a tensor in the format. Fails if the number of its bytes does not match type and
/// shape.
fn dtype_of(tensor: &Tensor) -> Result<Dtype> {
    let dtype = DTYPES.iter().find(|(name, _)| *name == tensor.dtype);
    let &(_, dtype) = dtype.ok_or_else(|| Failure::Dtype {
        tensor: tensor.name.clone(),
        dtype: tensor.dtype.clone(),
    })?;
    if size_of(&tensor.dtype, &tensor.shape) == Some(tensor.bytes.len()) {
        return Ok(dtype);
    }
    Err(Failure::Size {
        tensor: tensor.name.clone(),
        dtype: tensor.dtype.clone(),
        shape: tensor.shape.clone(),
        bytes: tensor.bytes.len(),
    }
    .into())
}

/// The number of bytes of a tensor of this type and shape; `None` if no memory can hold it, or if
/// the format does not have the type.
pub(super) fn size_of(dtype: &str, shape: &[usize]) -> Option<usize> {
    let (_, dtype) = DTYPES.iter().find(|(name, _)| *name == dtype)?;
    let elements = shape
        .iter()
        .try_fold(1_usize, |size, &axis| size.checked_mul(axis))?;
    elements.checked_mul(dtype.bitsize() / 8)
}

/// A pack to be written.
#[derive(Debug)]
pub(super) struct Pack<'snapshot> {
    /// Its name: the hash of `header`.
    hash: Hash,
    tensors_size: u64,
    /// The first bytes of the file: the length of the JSON text, and that text.
    header: Vec<u8>,
    /// In the order of the file.
    tensors: Vec<Hashed<'snapshot>>,
}

impl<'snapshot> Pack<'snapshot> {
    /// A pack of tensors. No two of them may have the same name.
    pub(super) fn new(mut tensors: Vec<Hashed<'snapshot>>) -> Result<Self> {
        // Types with the largest alignment come first, so that each tensor is aligned in the file;
        // then by name.
        tensors.sort_by(|left, right| {
            let by_dtype = right.dtype.cmp(&left.dtype);
            by_dtype.then_with(|| left.tensor.name.cmp(&right.tensor.name))
        });
        let (json, end) = header(&tensors)?;
        let header = [&(json.len() as u64).to_le_bytes(), &json[..]].concat();
        Ok(Self {
            hash: blake3::hash(&header),
            tensors_size: end,
            header,
            tensors,
        })
    }

    /// The entry for a manifest.
    pub(super) fn file(&self) -> PackFile {
        PackFile {
            blake3: self.hash.to_string(),
            size: self.header.len() as u64 + self.tensors_size,
            tensors_size: self.tensors_size,
        }
    }

    /// Its tensors, in the order of the file.
    pub(super) fn tensors(&self) -> &[Hashed<'snapshot>] {
        &self.tensors
    }

    pub(super) fn write(&self, writer: &mut Writer) -> Result<()> {
        writer.write(&self.header)?;
        self.tensors
            .iter()
            .try_for_each(|hashed| writer.write(&hashed.tensor.bytes))
    }
}

/// The JSON text, and the number of bytes of the tensors in it.
fn header(tensors: &[Hashed<'_>]) -> Result<(Vec<u8>, u64)> {
    let mut infos = Vec::with_capacity(tensors.len());
    let mut offset = 0;
    for Hashed { tensor, dtype, .. } in tensors {
        let data_offsets = (offset, offset + tensor.bytes.len());
        let info = TensorInfo {
            dtype: *dtype,
            shape: tensor.shape.clone(),
            data_offsets,
        };
        infos.push((escaped(&tensor.name), info));
        offset = data_offsets.1;
    }
    let hashes: String = tensors
        .iter()
        .map(|hashed| hashed.hash.to_string())
        .collect();
    let metadata = HashMap::from([(HASHES.to_owned(), hashes)]);
    let metadata = Metadata::new(Some(metadata), infos).map_err(|error| error.to_string());
    let json = metadata.and_then(|it| serde_json::to_vec(&it).map_err(|error| error.to_string()));
    let mut json = json.map_err(Failure::Header)?;
    json.resize(json.len().next_multiple_of(8), b' ');
    if json.len() as u64 > HEADER_BYTES_MAX {
        return Err(Failure::Header(format!("{} bytes of names and shapes", json.len())).into());
    }
    Ok((json, offset as u64))
}

fn escaped(name: &str) -> String {
    if is_reserved(name) {
        format!("{name}{ESCAPE}")
    } else {
        name.to_owned()
    }
}

fn unescaped(name: &str) -> &str {
    if is_reserved(name) {
        name.strip_suffix(ESCAPE).unwrap_or(name)
    } else {
        name
    }
}

fn is_reserved(name: &str) -> bool {
    name.trim_end_matches(ESCAPE) == RESERVED
}

/// Why tensors were not read.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// The file does not hold what it should hold.
    Damaged(String),
    Failed(Error),
}

impl From<Error> for Unreadable {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

fn damaged(what: &str) -> Unreadable {
    Unreadable::Damaged(what.to_owned())
}

/// Reads the bytes of the `wanted` tensors from a pack of `size` bytes, which is named by `hash`,
/// and verifies them.
///
/// Returns them by their names in the pack. It skips the other tensors.
pub(super) fn read(
    reader: &mut HashingReader,
    size: u64,
    hash: &str,
    wanted: &[&StoredTensor],
) -> std::result::Result<BTreeMap<String, Vec<u8>>, Unreadable> {
    let mut by_key: BTreeMap<&str, &StoredTensor> = BTreeMap::new();
    for stored in wanted {
        let first = by_key.entry(&stored.key).or_insert(stored);
        if (&first.blake3, first.size) != (&stored.blake3, stored.size) {
            let name = printable(&stored.key);
            return Err(Unreadable::Damaged(format!(
                "is said to hold two different tensors `{name}`"
            )));
        }
    }
    let wanted = by_key;
    let metadata = read_header(reader, size, hash)?;
    let (mut found, mut piece) = (BTreeMap::new(), vec![0; PIECE_BYTES]);
    for key in metadata.offset_keys() {
        let info = metadata.info(&key).expect("the key is of this header");
        let (start, end) = info.data_offsets;
        let name = unescaped(&key);
        let Some(stored) = wanted.get(name) else {
            pass_over(reader, end - start, &mut piece)?;
            reader.take_hash();
            continue;
        };
        if stored.size != (end - start) as u64 {
            return Err(other_than_its_hash(name));
        }
        let bytes = take(reader, stored.size)?;
        if reader.take_hash().to_string() != stored.blake3 {
            return Err(other_than_its_hash(name));
        }
        found.insert(name.to_owned(), bytes);
    }
    match wanted.keys().find(|name| !found.contains_key(**name)) {
        Some(name) => Err(Unreadable::Damaged(format!(
            "has no tensor `{}`",
            printable(name)
        ))),
        None => Ok(found),
    }
}

/// Reads and verifies every tensor of a pack, whether it is needed or not.
pub(super) fn prove(
    reader: &mut HashingReader,
    size: u64,
    hash: &str,
) -> std::result::Result<(), Unreadable> {
    let metadata = read_header(reader, size, hash)?;
    let hashes = metadata.metadata().as_ref().and_then(|it| it.get(HASHES));
    let mut hashes = hashes.map_or("", String::as_str);
    let mut buffer = vec![0; PIECE_BYTES];
    for key in metadata.offset_keys() {
        let info = metadata.info(&key).expect("the key is of this header");
        let (start, end) = info.data_offsets;
        pass_over(reader, end - start, &mut buffer)?;
        let (expected, rest) = hashes.split_at_checked(64).unwrap_or_default();
        hashes = rest;
        if reader.take_hash().to_string() != expected {
            return Err(other_than_its_hash(unescaped(&key)));
        }
    }
    Ok(())
}

fn other_than_its_hash(name: &str) -> Unreadable {
    let name = printable(name);
    Unreadable::Damaged(format!("does not match the hash of its tensor `{name}`"))
}

/// Reads bytes only for their hash.
fn pass_over(
    reader: &mut HashingReader,
    mut left: usize,
    buffer: &mut [u8],
) -> std::result::Result<(), Unreadable> {
    while left > 0 {
        let most = left.min(buffer.len());
        if reader.read(&mut buffer[..most])? < most {
            return Err(damaged("is cut off"));
        }
        left -= most;
    }
    Ok(())
}

/// The header, verified by the name of its pack.
fn read_header(
    reader: &mut HashingReader,
    size: u64,
    hash: &str,
) -> std::result::Result<Metadata, Unreadable> {
    let mut length = [0; 8];
    if reader.read(&mut length)? < length.len() {
        return Err(damaged("is cut off"));
    }
    // Not verified yet, so it may be at most as large as the file.
    let (length, available) = (u64::from_le_bytes(length), size.saturating_sub(8));
    if length > HEADER_BYTES_MAX.min(available) {
        return Err(damaged("has no header"));
    }
    let header = take(reader, length)?;
    if reader.take_hash().to_string() != hash {
        return Err(damaged("does not match its name"));
    }
    let metadata: Metadata =
        serde_json::from_slice(&header).map_err(|_| damaged("has no header"))?;
    if metadata.data_len() as u64 != available - length {
        return Err(damaged("has another header"));
    }
    Ok(metadata)
}

fn take(reader: &mut HashingReader, size: u64) -> std::result::Result<Vec<u8>, Unreadable> {
    let size = usize::try_from(size).map_err(|_| damaged("is too large"))?;
    let mut bytes = vec![0; size];
    if reader.read(&mut bytes)? < size {
        return Err(damaged("is cut off"));
    }
    Ok(bytes)
}
