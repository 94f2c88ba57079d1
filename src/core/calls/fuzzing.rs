//! A log of calls of any bytes. See [`crate::fuzzing`].

use std::fs;

use crc32c::crc32c_append;

use super::frame::{HEAD_BYTES, HEADER_BYTES, header};
use super::{Answer, Log, Mark, Records, Tables};
use crate::fuzzing::Scratch;

/// The bytes unchanged, and with correct checksums in all that looks like frames.
pub(crate) fn log(data: &[u8]) {
    read(data);
    read(&with_checksums(data));
}

fn read(log: &[u8]) {
    Scratch::with(|directory| {
        let path = directory.join("calls.log");
        fs::write(&path, log).expect("there is room");
        let mut calls = 0;
        if let Ok(records) = Records::open(&path) {
            for record in records {
                let Ok(record) = record else { break };
                let shown = record.value.describe();
                assert!(shown.len() < 4096, "{} characters are shown", shown.len());
                calls += 1;
            }
        }
        let offset = log.len() as u64;
        let mut tables = Tables::default();
        for calls in [0, calls] {
            let _ = Log::check(&path, Mark { offset, calls });
        }
        let Ok(log) = Log::open(&path, Mark { offset, calls }, &mut tables) else {
            return;
        };
        let mut replay = log.replay().expect("it was proven");
        let mut answer = Answer::default();
        while let Some(call) = replay.peek(&tables).expect("it was proven") {
            replay
                .answer(&tables, &call, &mut answer)
                .expect("it is this call");
            let mut decoder = answer.decoder();
            while decoder.node().is_ok() {}
        }
    });
}

fn with_checksums(data: &[u8]) -> Vec<u8> {
    let (header, mut crc) = header();
    let mut log = header.to_vec();
    let mut rest = data.get(HEADER_BYTES..).unwrap_or_default();
    while let Some((head, after)) = rest.split_at_checked(HEAD_BYTES) {
        let length = u64::from_le_bytes(head[..8].try_into().expect("it was cut to size"));
        // A length that is too large is replaced by that of the rest.
        let room = after.len().saturating_sub(4);
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(room);
        let start = log.len();
        log.extend((length as u64).to_le_bytes());
        log.push(head[8]);
        log.extend(&after[..length]);
        crc = crc32c_append(crc, &log[start..]);
        log.extend(crc.to_le_bytes());
        rest = after.get(length + 4..).unwrap_or_default();
    }
    log
}
