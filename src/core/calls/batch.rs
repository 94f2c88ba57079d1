//! A short checksum of the batch that a call receives.

use crc32c::crc32c_append;

/// Only the first, the middle and the last part of larger arrays are read.
const WHOLE_BYTES: usize = 3 * PART_BYTES;
const PART_BYTES: usize = 1 << 10;

/// Distinguishes a batch from another one. It is computed before every call on a batch, so it must
/// be fast: of each array it covers the shape, and all bytes up to 3 KiB; of larger arrays, 1 KiB
/// each of the beginning, the middle and the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchChecksum(u32);

impl BatchChecksum {
    /// Adds an absent value.
    pub fn none(&mut self) {
        self.0 = crc32c_append(self.0, b"None");
    }

    /// Adds a boolean argument, such as `return_dict`.
    pub fn flag(&mut self, value: bool) {
        self.0 = crc32c_append(self.0, if value { b"True" } else { b"False" });
    }

    /// Adds an array: its shape, and its elements in C order.
    pub fn array(&mut self, shape: impl Iterator<Item = usize>, bytes: &[u8]) {
        for size in shape {
            self.0 = crc32c_append(self.0, &(size as u64).to_le_bytes());
        }
        if bytes.len() <= WHOLE_BYTES {
            self.0 = crc32c_append(self.0, bytes);
            return;
        }
        let middle = (bytes.len() - PART_BYTES) / 2;
        for begin in [0, middle, bytes.len() - PART_BYTES] {
            self.0 = crc32c_append(self.0, &bytes[begin..begin + PART_BYTES]);
        }
    }

    /// The checksum of all that was added.
    #[must_use]
    pub fn value(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::{BatchChecksum, PART_BYTES};

    fn of(shape: &[usize], bytes: &[u8]) -> u32 {
        let mut checksum = BatchChecksum::default();
        checksum.array(shape.iter().copied(), bytes);
        checksum.value()
    }

    #[test]
    fn every_byte_of_a_small_batch_and_its_shape_count() {
        let batch = [7; 3 * PART_BYTES];
        let before = of(&[3, 1024], &batch);
        assert_ne!(of(&[1024, 3], &batch), before);
        for place in 0..batch.len() {
            let mut other = batch;
            other[place] ^= 1;
            assert_ne!(of(&[3, 1024], &other), before, "at byte {place}");
        }
    }

    #[test]
    fn of_a_large_batch_the_beginning_the_middle_and_the_end_count() {
        let batch = vec![7; 10_001];
        let before = of(&[10_001], &batch);
        for place in [0, PART_BYTES - 1, 5_000, 10_000 - PART_BYTES + 1, 10_000] {
            let mut other = batch.clone();
            other[place] ^= 1;
            assert_ne!(of(&[10_001], &other), before, "at byte {place}");
        }
    }

    #[test]
    fn what_is_no_array_counts() {
        let [mut none, mut yes, mut no] = [BatchChecksum::default(); 3];
        none.none();
        yes.flag(true);
        no.flag(false);
        let mut values = [0, none.value(), yes.value(), no.value()];
        values.sort_unstable();
        assert!(
            values.windows(2).all(|pair| pair[0] != pair[1]),
            "{values:?}"
        );
    }
}
