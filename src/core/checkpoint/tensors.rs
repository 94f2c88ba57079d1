//! `tensors.safetensors`: tensors to a file and back, each byte copied once.
//!
//! The header is the `safetensors` crate's own. Its functions that write a file are not used: one
//! wants all bytes in one buffer, the other goes past [`FileSystem`](super::FileSystem).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use super::Tensor;
use super::content::{HashingReader, HashingWriter};
use super::failure::Failure;
use crate::error::{Error, Result};

/// NumPy's (and `ml_dtypes`') names of the types that the format has.
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

/// The format takes this name for itself. A tensor with it, followed by any number of [`ESCAPE`]s,
/// gets one more of them in the file.
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

/// Refuses what could not be written.
pub(super) fn check(tensors: &[Tensor]) -> Result<()> {
    header(&in_file_order(tensors)?).map(|_| ())
}

pub(super) fn write(tensors: &[Tensor], writer: &mut HashingWriter) -> Result<()> {
    let tensors = in_file_order(tensors)?;
    let header = header(&tensors)?;
    writer.write(&(header.len() as u64).to_le_bytes())?;
    writer.write(&header)?;
    tensors
        .iter()
        .try_for_each(|(_, tensor)| writer.write(&tensor.bytes))
}

/// Types of the largest alignment first, so that each tensor is aligned in the file; then by name.
fn in_file_order(tensors: &[Tensor]) -> Result<Vec<(Dtype, &Tensor)>> {
    let mut typed = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        let dtype = DTYPES.iter().find(|(name, _)| *name == tensor.dtype);
        let &(_, dtype) = dtype.ok_or_else(|| Failure::Dtype {
            tensor: tensor.name.clone(),
            dtype: tensor.dtype.clone(),
        })?;
        typed.push((dtype, tensor));
    }
    typed.sort_by(|left, right| {
        right
            .0
            .cmp(&left.0)
            .then_with(|| left.1.name.cmp(&right.1.name))
    });
    Ok(typed)
}

fn header(tensors: &[(Dtype, &Tensor)]) -> Result<Vec<u8>> {
    let mut infos = Vec::with_capacity(tensors.len());
    let mut names = BTreeSet::new();
    let mut offset = 0;
    for &(dtype, tensor) in tensors {
        if !names.insert(&tensor.name) {
            return Err(Failure::SameName {
                tensor: tensor.name.clone(),
            }
            .into());
        }
        let elements = tensor
            .shape
            .iter()
            .try_fold(1_usize, |size, &axis| size.checked_mul(axis));
        let size = elements.and_then(|elements| elements.checked_mul(dtype.bitsize() / 8));
        if size != Some(tensor.bytes.len()) {
            return Err(Failure::Size {
                tensor: tensor.name.clone(),
                dtype: tensor.dtype.clone(),
                shape: tensor.shape.clone(),
                bytes: tensor.bytes.len(),
            }
            .into());
        }
        let data_offsets = (offset, offset + tensor.bytes.len());
        let info = TensorInfo {
            dtype,
            shape: tensor.shape.clone(),
            data_offsets,
        };
        infos.push((escaped(&tensor.name), info));
        offset = data_offsets.1;
    }
    let metadata = Metadata::new(None, infos).map_err(|error| error.to_string());
    let json = metadata.and_then(|it| serde_json::to_vec(&it).map_err(|error| error.to_string()));
    let mut json = json.map_err(Failure::Header)?;
    json.resize(json.len().next_multiple_of(8), b' ');
    if json.len() as u64 > HEADER_BYTES_MAX {
        return Err(Failure::Header(format!("{} bytes of names and shapes", json.len())).into());
    }
    Ok(json)
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
    /// The file does not hold what it should.
    Damaged(&'static str),
    Failed(Error),
}

impl From<Error> for Unreadable {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Reads the tensors of a file of `size` bytes, and returns them in the order of `names`.
///
/// What is returned is not proven before the caller has compared the hash. Until then the header is
/// believed only as far as the file is large.
pub(super) fn read(
    reader: &mut HashingReader,
    size: u64,
    names: &[String],
) -> std::result::Result<Vec<Tensor>, Unreadable> {
    let mut length = [0; 8];
    if reader.read(&mut length)? < length.len() {
        return Err(Unreadable::Damaged("is cut off"));
    }
    let (length, available) = (u64::from_le_bytes(length), size.saturating_sub(8));
    if length > HEADER_BYTES_MAX.min(available) {
        return Err(Unreadable::Damaged("has no header"));
    }
    let header = take(reader, length)?;
    let metadata: Metadata =
        serde_json::from_slice(&header).map_err(|_| Unreadable::Damaged("has no header"))?;
    if metadata.data_len() as u64 != available - length {
        return Err(Unreadable::Damaged("has another header"));
    }
    let mut tensors = BTreeMap::new();
    for key in metadata.offset_keys() {
        let info = metadata.info(&key).expect("the key is of this header");
        let dtype = DTYPES.iter().find(|(_, dtype)| *dtype == info.dtype);
        let (dtype, _) = dtype.ok_or(Unreadable::Damaged("has a tensor of another type"))?;
        let (start, end) = info.data_offsets;
        let name = unescaped(&key).to_owned();
        let (dtype, shape) = ((*dtype).to_owned(), info.shape.clone());
        let bytes = take(reader, (end - start) as u64)?;
        tensors.insert(
            name.clone(),
            Tensor {
                name,
                dtype,
                shape,
                bytes,
            },
        );
    }
    let ordered: Option<Vec<Tensor>> = names.iter().map(|name| tensors.remove(name)).collect();
    match ordered {
        Some(ordered) if tensors.is_empty() => Ok(ordered),
        _ => Err(Unreadable::Damaged("has tensors of other names")),
    }
}

fn take(reader: &mut HashingReader, size: u64) -> std::result::Result<Vec<u8>, Unreadable> {
    let size = usize::try_from(size).map_err(|_| Unreadable::Damaged("is too large"))?;
    let mut bytes = vec![0; size];
    if reader.read(&mut bytes)? < size {
        return Err(Unreadable::Damaged("is cut off"));
    }
    Ok(bytes)
}
