//! The legacy generator of numpy, `numpy.random.RandomState`: MT19937, and the draws based on it.

const WORDS: usize = 624;
/// The distance to the word with which each word is mixed.
const SHIFT: usize = 397;
const MATRIX: u32 = 0x9908_b0df;
const UPPER: u32 = 0x8000_0000;

/// A generator of the numbers of `numpy.random.RandomState(seed)`.
///
/// Source: Matsumoto and Nishimura, "Mersenne Twister", 1998; numpy 1.18, `_legacy_seeding`,
/// `random_interval` and `legacy_double`.
#[derive(Clone)]
pub struct RandomState {
    words: [u32; WORDS],
    position: usize,
}

impl RandomState {
    /// The generator of a seed.
    #[must_use]
    pub fn new(seed: u32) -> Self {
        let mut words = [0; WORDS];
        let mut word = seed;
        for (position, place) in (1..).zip(&mut words) {
            *place = word;
            word = (word ^ (word >> 30))
                .wrapping_mul(1_812_433_253)
                .wrapping_add(position);
        }
        Self {
            words,
            position: WORDS,
        }
    }

    /// 32 random bits.
    pub fn bits(&mut self) -> u32 {
        if self.position == WORDS {
            self.refill();
        }
        let mut word = self.words[self.position];
        self.position += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    fn refill(&mut self) {
        for place in 0..WORDS {
            let next = self.words[(place + 1) % WORDS];
            let mixed = (self.words[place] & UPPER) | (next & !UPPER);
            let odd = if mixed & 1 == 1 { MATRIX } else { 0 };
            self.words[place] = self.words[(place + SHIFT) % WORDS] ^ (mixed >> 1) ^ odd;
        }
        self.position = 0;
    }

    /// An integer from 0 to `last`, both included: bits above those of `last` are masked, and a
    /// number that is still too large is drawn again.
    pub fn up_to(&mut self, last: u64) -> u64 {
        let Some(mask) = u64::MAX.checked_shr(last.leading_zeros()) else {
            return 0;
        };
        loop {
            let bits = if u32::try_from(last).is_ok() {
                u64::from(self.bits())
            } else {
                (u64::from(self.bits()) << 32) | u64::from(self.bits())
            };
            if bits & mask <= last {
                return bits & mask;
            }
        }
    }

    /// A number from `low` (included) to `high` (not included), of 53 random bits.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        let upper = f64::from(self.bits() >> 5);
        let lower = f64::from(self.bits() >> 6);
        let unit = (upper * 67_108_864.0 + lower) / 9_007_199_254_740_992.0;
        low + (high - low) * unit
    }

    /// 16 random bytes, as four words, little-endian.
    pub fn bytes(&mut self) -> [u8; 16] {
        let mut bytes = [0; 16];
        for word in bytes.chunks_exact_mut(4) {
            word.copy_from_slice(&self.bits().to_le_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::RandomState;

    /// `numpy.random.RandomState(seed).bytes(16)` reads the same words (numpy 1.18.5).
    #[test]
    fn the_words_are_those_of_numpy() {
        let mut random = RandomState::new(42);
        let words = [random.bits(), random.bits(), random.bits()];
        assert_eq!(words, [1_608_637_542, 3_421_126_067, 4_083_286_876]);
        let mut random = RandomState::new(0);
        let last = (0..1_000).map(|_| random.bits()).last();
        assert_eq!(last, Some(3_043_451_800));
    }

    #[test]
    fn a_range_of_one_number_draws_nothing() {
        let mut random = RandomState::new(1);
        assert_eq!(random.up_to(0), 0);
        assert_eq!(random.bits(), RandomState::new(1).bits());
    }

    #[test]
    fn all_numbers_of_a_range_come_and_no_other() {
        let mut random = RandomState::new(7);
        let mut seen = [0; 6];
        for _ in 0..600 {
            seen[usize::try_from(random.up_to(5)).expect("at most 5")] += 1;
        }
        assert!(
            seen.iter().all(|count| (60..140).contains(count)),
            "{seen:?}"
        );
    }
}
