//! One recorded call without its value, and its bytes in a frame of calls.

use super::tables::TextId;
use crate::varint;

/// Kinds of calls, as in records.
pub mod kind {
    /// The training function of a model was called: a batch.
    pub const TRAIN: u8 = 1;
    /// The test function of a model was called.
    pub const TEST: u8 = 2;
    /// The predict function of a model was called.
    pub const PREDICT: u8 = 3;
    /// Metrics were read from the variables that hold them.
    pub const METRICS: u8 = 4;
    /// A variable was read.
    pub const READ: u8 = 5;
    /// A variable was written.
    pub const WRITE: u8 = 6;
    /// A call that makes others: save, load.
    pub const COMPOSITE: u8 = 7;
    /// The script entered a framework: fit, evaluate.
    pub const ENTRY: u8 = 8;
    /// The script asked for random numbers, or for the time.
    pub const DRAW: u8 = 9;

    /// The name of a kind.
    pub(crate) fn name(kind: u8) -> &'static str {
        match kind {
            TRAIN => "train",
            TEST => "test",
            PREDICT => "predict",
            METRICS => "metrics",
            READ => "read",
            WRITE => "write",
            COMPOSITE => "composite",
            ENTRY => "entry",
            DRAW => "draw",
            _ => "unknown",
        }
    }
}

/// The lowest bit of a compute call's `arguments`: the call traced. The other bits are a checksum
/// of the batch, if the script itself passed one.
pub const TRACED: u64 = 1;

/// What a call is, except what it returned. A replayed call must be equal in all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// One of [`kind`].
    pub kind: u8,
    /// What is called.
    pub identity: TextId,
    /// Where the script is.
    pub site: TextId,
    /// Random numbers that the script drew so far.
    pub draws: u64,
    /// A checksum of the arguments; 0 if there is none.
    pub arguments: u64,
}

const SAME_KIND: u8 = 1;
const SAME_IDENTITY: u8 = 1 << 1;
const SAME_SITE: u8 = 1 << 2;
const SAME_DRAWS: u8 = 1 << 3;
const SAME_ARGUMENTS: u8 = 1 << 4;
const SAME_SKELETON: u8 = 1 << 5;
const HAS_LARGE: u8 = 1 << 6;
const ALL_FLAGS: u8 = (1 << 7) - 1;

/// The head of a record, with definitions by their number in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: u8,
    pub(super) identity: u64,
    pub(super) site: u64,
    pub(super) draws: u64,
    pub(super) arguments: u64,
    pub(super) skeleton: u64,
}

/// Appends a record. `previous` is the one before it in the frame.
pub(super) fn put(out: &mut Vec<u8>, head: &Head, previous: &Head, payload: &[u8], large: &[u64]) {
    let mut flags = 0;
    let place = out.len();
    out.push(0);
    if head.kind == previous.kind {
        flags |= SAME_KIND;
    } else {
        out.push(head.kind);
    }
    for (same, now, before) in [
        (SAME_IDENTITY, head.identity, previous.identity),
        (SAME_SITE, head.site, previous.site),
    ] {
        if now == before {
            flags |= same;
        } else {
            varint::put(out, now);
        }
    }
    if head.draws == previous.draws {
        flags |= SAME_DRAWS;
    } else {
        varint::put_signed(out, head.draws.wrapping_sub(previous.draws).cast_signed());
    }
    for (same, now, before) in [
        (SAME_ARGUMENTS, head.arguments, previous.arguments),
        (SAME_SKELETON, head.skeleton, previous.skeleton),
    ] {
        if now == before {
            flags |= same;
        } else {
            varint::put(out, now);
        }
    }
    varint::put_len(out, payload.len());
    out.extend(payload);
    if !large.is_empty() {
        flags |= HAS_LARGE;
        varint::put_len(out, large.len());
        for &blob in large {
            varint::put(out, blob);
        }
    }
    out[place] = flags;
}

/// Takes a record off the front of `input`: its head, its payload, and the blobs of its large
/// leaves. `None` if the bytes do not follow the format.
pub(super) fn take<'a>(
    input: &mut &'a [u8],
    previous: &Head,
    large: &mut Vec<u64>,
) -> Option<(Head, &'a [u8])> {
    let flags = varint::take_byte(input)?;
    if flags & !ALL_FLAGS != 0 {
        return None;
    }
    let mut head = *previous;
    if flags & SAME_KIND == 0 {
        head.kind = varint::take_byte(input)?;
    }
    if flags & SAME_IDENTITY == 0 {
        head.identity = varint::take(input)?;
    }
    if flags & SAME_SITE == 0 {
        head.site = varint::take(input)?;
    }
    if flags & SAME_DRAWS == 0 {
        let difference = varint::take_signed(input)?;
        head.draws = head.draws.wrapping_add(difference.cast_unsigned());
    }
    if flags & SAME_ARGUMENTS == 0 {
        head.arguments = varint::take(input)?;
    }
    if flags & SAME_SKELETON == 0 {
        head.skeleton = varint::take(input)?;
    }
    let len = varint::take_len(input)?;
    let payload = varint::take_bytes(input, len)?;
    large.clear();
    if flags & HAS_LARGE != 0 {
        for _ in 0..varint::take_len(input)? {
            large.push(varint::take(input)?);
        }
    }
    Some((head, payload))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn heads() -> impl Strategy<Value = Head> {
        let few = prop_oneof![0..3_u64, any::<u64>()];
        (
            0..3_u8,
            few.clone(),
            few.clone(),
            few.clone(),
            few.clone(),
            few,
        )
            .prop_map(|(kind, identity, site, draws, arguments, skeleton)| Head {
                kind,
                identity,
                site,
                draws,
                arguments,
                skeleton,
            })
    }

    proptest! {
        #[test]
        fn every_record_comes_back(
            records in prop::collection::vec((heads(), any::<Vec<u8>>(), any::<Vec<u64>>()), 0..8)
        ) {
            let mut bytes = Vec::new();
            let mut previous = Head::default();
            for (head, payload, large) in &records {
                put(&mut bytes, head, &previous, payload, large);
                previous = *head;
            }
            let mut input = bytes.as_slice();
            let mut previous = Head::default();
            let mut large = Vec::new();
            for (head, payload, recorded_large) in &records {
                let (taken, taken_payload) =
                    take(&mut input, &previous, &mut large).expect("it was put");
                prop_assert_eq!(&taken, head);
                prop_assert_eq!(taken_payload, payload.as_slice());
                prop_assert_eq!(&large, recorded_large);
                previous = taken;
            }
            prop_assert!(input.is_empty());
        }

        #[test]
        fn no_bytes_are_a_crash(bytes: Vec<u8>) {
            let mut input = bytes.as_slice();
            let (mut previous, mut large) = (Head::default(), Vec::new());
            while let Some((head, _)) = take(&mut input, &previous, &mut large) {
                previous = head;
            }
        }
    }

    #[test]
    fn the_usual_training_call_is_ten_bytes() {
        let head = Head {
            kind: 1,
            identity: 7,
            site: 9,
            draws: 40,
            arguments: 3,
            skeleton: 2,
        };
        let mut bytes = Vec::new();
        put(&mut bytes, &head, &head, &[0; 8], &[]);
        assert_eq!(bytes.len(), 10);
    }
}
