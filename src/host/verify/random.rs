//! Reproducible random numbers: the moments of the faults come from `--seed`.
//!
//! Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators" (2014),
//! `SplitMix64`.

/// A generator; the same seed gives the same numbers.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 up to `end`, which is not included and not 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A number of seconds from 0 to `most`.
    #[expect(clippy::cast_precision_loss, reason = "any number between will do")]
    pub(super) fn seconds(&mut self, most: f64) -> f64 {
        most * ((self.next() >> 11) as f64 / (1_u64 << 53) as f64)
    }

    /// Shuffles the items.
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            let other = usize::try_from(self.below(end as u64 + 1)).unwrap_or(0);
            items.swap(end, other);
        }
    }
}
