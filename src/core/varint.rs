//! Variable-length integers: seven bits per byte, low bits first, the high bit set on all bytes
//! except the last (LEB128). Signed numbers are zigzagged, so that small ones of either sign are
//! short.

/// The longest encoding of a `u64`.
pub(crate) const MAX_BYTES: usize = 10;

pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(low_byte(value) | 0x80);
        value >>= 7;
    }
    out.push(low_byte(value));
}

pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

pub(crate) fn put_len(out: &mut Vec<u8>, len: usize) {
    put(out, len as u64);
}

/// Takes an integer off the front of `input`; `None` if it is cut off or longer than 64 bits.
pub(crate) fn take(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for (place, &byte) in input.iter().enumerate().take(MAX_BYTES) {
        let bits = u64::from(byte & 0x7f);
        if place == MAX_BYTES - 1 && bits > 1 {
            return None;
        }
        value |= bits << (7 * place);
        if byte & 0x80 == 0 {
            *input = &input[place + 1..];
            return Some(value);
        }
    }
    None
}

pub(crate) fn take_signed(input: &mut &[u8]) -> Option<i64> {
    let value = take(input)?;
    Some((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
}

pub(crate) fn take_len(input: &mut &[u8]) -> Option<usize> {
    usize::try_from(take(input)?).ok()
}

/// Takes `len` bytes off the front of `input`.
pub(crate) fn take_bytes<'a>(input: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = input.split_at_checked(len)?;
    *input = rest;
    Some(taken)
}

pub(crate) fn take_byte(input: &mut &[u8]) -> Option<u8> {
    let (&byte, rest) = input.split_first()?;
    *input = rest;
    Some(byte)
}

fn low_byte(value: u64) -> u8 {
    value.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_integer_comes_back(unsigned: u64, signed: i64, rest: Vec<u8>) {
            let mut bytes = Vec::new();
            super::put(&mut bytes, unsigned);
            super::put_signed(&mut bytes, signed);
            bytes.extend(&rest);
            let mut input = bytes.as_slice();
            prop_assert_eq!(super::take(&mut input), Some(unsigned));
            prop_assert_eq!(super::take_signed(&mut input), Some(signed));
            prop_assert_eq!(input, rest.as_slice());
        }

        #[test]
        fn no_bytes_are_a_crash(bytes: Vec<u8>) {
            let mut input = bytes.as_slice();
            while super::take(&mut input).is_some() {}
        }
    }
}
