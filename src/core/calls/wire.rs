//! Bytes of `calls.log`: frames and varints. The layout is drawn in the module above.

use crate::{Error, Kind, Result};

pub(super) const MAGIC: &[u8; 8] = b"PEDLCALL";
pub(super) const VERSION: u32 = 1;
pub(super) const HEADER_BYTES: u64 = 16;
pub(super) const FRAME_HEAD_BYTES: u64 = 9;
pub(super) const HASH_BYTES: usize = 32;

pub(super) const TEXT: u8 = 1;
pub(super) const SKELETON: u8 = 2;
pub(super) const BLOB: u8 = 3;
pub(super) const CALLS: u8 = 4;

/// The bytes with which every log begins.
pub(super) fn header() -> [u8; HEADER_BYTES as usize] {
    let mut header = [0; HEADER_BYTES as usize];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let crc = crc32c::crc32c(&header[..12]);
    header[12..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// Appends a frame to `out`.
pub(super) fn put_frame(out: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) -> Result<()> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let length = u32::try_from(length).map_err(|_| {
        Error::new(
            Kind::Unsupported,
            format!("a value of {length} bytes is too large for the log of calls (4 GiB)"),
        )
    })?;
    let crc = parts.iter().fold(crc32c::crc32c(&[kind]), |crc, part| {
        crc32c::crc32c_append(crc, part)
    });
    out.extend_from_slice(&length.to_le_bytes());
    out.push(kind);
    out.extend_from_slice(&crc.to_le_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
    Ok(())
}

/// The head of a frame.
pub(super) struct FrameHead {
    pub(super) length: u32,
    pub(super) kind: u8,
    crc: u32,
}

impl FrameHead {
    pub(super) fn parse(bytes: [u8; FRAME_HEAD_BYTES as usize]) -> Self {
        let [l0, l1, l2, l3, kind, c0, c1, c2, c3] = bytes;
        Self {
            length: u32::from_le_bytes([l0, l1, l2, l3]),
            kind,
            crc: u32::from_le_bytes([c0, c1, c2, c3]),
        }
    }

    pub(super) fn matches(&self, body: &[u8]) -> bool {
        crc32c::crc32c_append(crc32c::crc32c(&[self.kind]), body) == self.crc
    }
}

pub(super) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    loop {
        let low = u8::try_from(number & 0x7f).expect("seven bits");
        number >>= 7;
        if number == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

/// Maps differences of either sign to small numbers: 0, -1, 1, -2, …
pub(super) fn zigzag(now: u64, before: u64) -> u64 {
    let difference = now.wrapping_sub(before).cast_signed();
    ((difference << 1) ^ (difference >> 63)).cast_unsigned()
}

pub(super) fn unzigzag(number: u64, before: u64) -> u64 {
    let difference = (number >> 1).cast_signed() ^ -((number & 1).cast_signed());
    before.wrapping_add(difference.cast_unsigned())
}

/// Reads numbers and bytes from a body whose crc matched; running out is damage all the same.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(super) fn left(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (head, tail) = self
            .bytes
            .split_at_checked(length)
            .ok_or_else(|| damaged("a record ends too early"))?;
        self.bytes = tail;
        Ok(head)
    }

    pub(super) fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn varint(&mut self) -> Result<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(damaged("a number in a record is too long"))
    }

    pub(super) fn varint_u32(&mut self) -> Result<u32> {
        u32::try_from(self.varint()?).map_err(|_| damaged("a number in a record is too large"))
    }

    pub(super) fn length(&mut self) -> Result<usize> {
        usize::try_from(self.varint()?).map_err(|_| damaged("a length in a record is too large"))
    }
}

/// The log holds something that was never written there.
pub(super) fn damaged(what: &str) -> Error {
    Error::new(Kind::Corrupt, format!("the log of calls is damaged: {what}"))
        .with_hint("restore the trial directory from a backup, or begin a new trial with `--fresh`")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_come_back(numbers: Vec<u64>) {
            let mut bytes = Vec::new();
            let mut before = 0;
            for &number in &numbers {
                put_varint(&mut bytes, number);
                put_varint(&mut bytes, zigzag(number, before));
                before = number;
            }
            let mut cursor = Cursor::new(&bytes);
            let mut before = 0;
            for &number in &numbers {
                prop_assert_eq!(cursor.varint().expect("a number"), number);
                before = unzigzag(cursor.varint().expect("a number"), before);
                prop_assert_eq!(before, number);
            }
            prop_assert_eq!(cursor.left(), 0);
        }
    }
}
