//! Tests of the guarantees of the log, on real files.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::frame::HEADER_BYTES;
use super::value::tests::{Tree, decode, encode, trees};
use super::value::{ArrayClass, Encoded};
use super::*;
use crate::error::Result;

struct Stage {
    directory: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().expect("there is room"),
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("calls.log")
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.path()).expect("it is there")
    }

    fn write(&self, bytes: &[u8]) {
        fs::write(self.path(), bytes).expect("there is room");
    }
}

fn encoded(tree: &Tree) -> Encoded {
    let mut encoded = Encoded::default();
    encode(tree, &mut encoded.encoder());
    encoded
}

/// Records one training call for each value, from one of two lines.
fn record(path: &Path, values: &[Tree]) -> Mark {
    let mut tables = Tables::default();
    let mut log = Log::create(path, &mut tables).expect("it can be made");
    append(&mut log, &mut tables, 0, values);
    log.mark().expect("there is room")
}

fn append(log: &mut Log, tables: &mut Tables, first: usize, values: &[Tree]) {
    for (number, value) in (first..).zip(values) {
        let call = call(tables, number);
        log.append(tables, &call, &encoded(value))
            .expect("there is room");
    }
}

fn call(tables: &mut Tables, number: usize) -> Call {
    Call {
        kind: kind::TRAIN,
        identity: tables.intern(b"train model 0"),
        site: tables.intern(if number % 5 == 4 {
            b"train.py:40"
        } else {
            b"train.py:31"
        }),
        draws: number as u64 / 3,
        arguments: number as u64 * 7,
    }
}

/// Opens the log and answers all of it.
fn replay(path: &Path, mark: Mark) -> Result<Vec<Tree>> {
    let mut tables = Tables::default();
    // A process may see texts in another order, and before the log is open.
    tables.intern(b"train.py:40");
    let log = Log::open(path, mark, &mut tables)?;
    log.cut_back()?;
    let mut replay = log.replay()?;
    let mut answer = Answer::default();
    let mut values = Vec::new();
    for number in 0..usize::try_from(mark.calls).expect("there are few") {
        let call = call(&mut tables, number);
        assert_eq!(replay.peek(&tables)?, Some(call));
        replay.answer(&tables, &call, &mut answer)?;
        values.push(value(&answer)?);
    }
    assert_eq!(replay.peek(&tables)?, None);
    Ok(values)
}

#[test]
fn a_log_is_read_without_a_checkpoint_up_to_where_it_is_torn() {
    let stage = Stage::new();
    let values = usual_values(40);
    record(&stage.path(), &values);
    let records: Vec<_> = Records::open(&stage.path())
        .expect("it is one")
        .collect::<Result<_>>()
        .expect("it is whole");
    assert_eq!(records.len(), 40);
    let last = &records[39];
    assert_eq!(
        (last.number, last.batch, &*last.identity, &*last.site),
        (40, 40, "train model 0", "train.py:40")
    );
    assert_eq!(records[0].value, records[0].value.clone());
    assert_ne!(records[0].value, records[1].value);
    assert_eq!(records[1].value.describe(), "{\"loss\": 1, \"acc\": 0}");

    let bytes = stage.bytes();
    stage.write(&bytes[..bytes.len() - 1]);
    let torn: Vec<_> = Records::open(&stage.path()).expect("it is one").collect();
    assert!(torn.last().expect("there is one").is_err());
    assert!(torn.len() < 42);
}

fn value(answer: &Answer) -> Result<Tree> {
    let mut large = Vec::new();
    while let Some(size) = answer.large_size(large.len()) {
        let mut bytes = vec![0; size];
        answer.read_large(large.len(), &mut bytes)?;
        large.push(bytes);
    }
    Ok(decode(&mut answer.decoder(), false, &large).expect("it was encoded"))
}

/// Typical results of training calls, and occasional reads.
fn usual_values(num_calls: usize) -> Vec<Tree> {
    let float = |value: usize| {
        #[expect(clippy::cast_precision_loss, reason = "any number will do")]
        let bytes = (value as f32).to_le_bytes().to_vec();
        Tree::Array(ArrayClass::Scalar, "<f4".into(), vec![], bytes)
    };
    let name = |name: &str| Tree::Str(name.as_bytes().to_vec());
    let values = (0..num_calls).map(|number| match number % 7 {
        6 => {
            let fill = u8::try_from(number % 3).expect("it is small");
            Tree::Array(ArrayClass::Tensor, "|u1".into(), vec![300], vec![fill; 300])
        }
        _ => Tree::Dict(vec![
            (name("loss"), float(number)),
            (name("acc"), float(number / 2)),
        ]),
    });
    values.collect()
}

proptest! {
    #[test]
    fn every_value_is_answered_as_it_was_recorded(
        values in prop::collection::vec(trees(), 0..12)
    ) {
        let stage = Stage::new();
        let mark = record(&stage.path(), &values);
        prop_assert_eq!(replay(&stage.path(), mark).expect("it is whole"), values);
    }

    #[test]
    fn what_stands_after_the_mark_does_not_matter(rest: Vec<u8>) {
        let stage = Stage::new();
        let values = usual_values(9);
        let mark = record(&stage.path(), &values);
        stage.write(&[stage.bytes(), rest].concat());
        prop_assert_eq!(replay(&stage.path(), mark).expect("it is whole"), values);
        prop_assert_eq!(stage.bytes().len() as u64, mark.offset);
    }
}

#[test]
fn every_flipped_bit_before_the_mark_is_found() {
    let stage = Stage::new();
    let mark = record(&stage.path(), &usual_values(15));
    let whole = stage.bytes();
    for place in 0..whole.len() {
        for bit in 0..8 {
            let mut flipped = whole.clone();
            flipped[place] ^= 1 << bit;
            stage.write(&flipped);
            let error = replay(&stage.path(), mark).expect_err("a bit was flipped");
            assert!(error.is_corrupt(), "bit {bit} of byte {place}: {error}");
            assert_eq!(stage.bytes(), flipped, "a damaged log was changed");
        }
    }
}

#[test]
fn a_log_that_ends_before_the_mark_is_damaged() {
    let stage = Stage::new();
    let mark = record(&stage.path(), &usual_values(15));
    let whole = stage.bytes();
    for len in 0..whole.len() {
        stage.write(&whole[..len]);
        let error = replay(&stage.path(), mark).expect_err("it was cut");
        assert!(error.is_corrupt(), "{len} bytes: {error}");
    }
    fs::remove_file(stage.path()).expect("it was there");
    let error = replay(&stage.path(), mark).expect_err("it is gone");
    assert!(error.is_corrupt(), "{error}");
}

#[test]
fn the_log_of_another_run_is_found() {
    let (stage, other) = (Stage::new(), Stage::new());
    let mark = record(&stage.path(), &usual_values(15));
    // Of the same length, and intact, but with other calls in it.
    for values in [usual_values(14), usual_values(16)] {
        record(&other.path(), &values);
        let mut bytes = other.bytes();
        bytes.resize(stage.bytes().len(), 0);
        stage.write(&bytes);
        let error = replay(&stage.path(), mark).expect_err("it is of another run");
        assert!(error.is_corrupt(), "{error}");
    }
    let fewer = Mark {
        calls: mark.calls - 1,
        ..mark
    };
    record(&stage.path(), &usual_values(15));
    let error = replay(&stage.path(), fewer).expect_err("there is one more");
    assert!(error.is_corrupt(), "{error}");
}

#[test]
fn a_log_goes_on_where_it_was_cut_back() {
    let stage = Stage::new();
    let values = usual_values(40);
    let (first, second) = values.split_at(17);
    let mark = record(&stage.path(), first);
    stage.write(&[stage.bytes(), b"what was never committed".to_vec()].concat());

    let mut tables = Tables::default();
    let mut log = Log::open(&stage.path(), mark, &mut tables).expect("it is whole");
    log.cut_back().expect("it can be cut");
    append(&mut log, &mut tables, 17, second);
    let resumed = log.mark().expect("there is room");
    assert_eq!(replay(&stage.path(), resumed).expect("it is whole"), values);

    let undisturbed = Stage::new();
    record(&undisturbed.path(), &values);
    let definitions_twice = stage.bytes().len() > undisturbed.bytes().len() + 100;
    assert!(!definitions_twice, "what the log defines is defined once");
}

#[test]
fn a_large_leaf_is_stored_once() {
    let stage = Stage::new();
    let leaf = |fill| {
        Tree::Array(
            ArrayClass::Ndarray,
            "|u1".into(),
            vec![100_000],
            vec![fill; 100_000],
        )
    };
    let values: Vec<_> = (0..30)
        .map(|number| Tree::List(vec![leaf(number % 2), leaf(2)]))
        .collect();
    let mark = record(&stage.path(), &values);
    assert!(mark.offset < 301_000, "{} bytes", mark.offset);
    assert_eq!(replay(&stage.path(), mark).expect("it is whole"), values);
}

#[test]
fn the_usual_training_call_takes_ten_bytes() {
    let stage = Stage::new();
    let mut tables = Tables::default();
    let mut log = Log::create(&stage.path(), &mut tables).expect("it can be made");
    let value = encoded(&usual_values(1)[0]);
    let call = call(&mut tables, 0);
    for _ in 0..100_000 {
        log.append(&mut tables, &call, &value)
            .expect("there is room");
    }
    let mark = log.mark().expect("there is room");
    assert!(mark.offset < 1_001_000, "{} bytes", mark.offset);
    assert_eq!(mark.offset, log.size());
}

#[test]
fn an_empty_log_is_whole() {
    let stage = Stage::new();
    let mark = record(&stage.path(), &[]);
    assert_eq!(
        mark,
        Mark {
            offset: HEADER_BYTES as u64,
            calls: 0
        }
    );
    assert_eq!(replay(&stage.path(), mark).expect("it is whole"), []);
}

/// The message of the first call of a replay that is made differently.
fn divergence(change: impl FnOnce(&mut Tables, &mut Call)) -> String {
    let stage = Stage::new();
    let mark = record(&stage.path(), &usual_values(2));
    let mut tables = Tables::default();
    let log = Log::open(&stage.path(), mark, &mut tables).expect("it is whole");
    let mut replay = log.replay().expect("it is whole");
    let mut answer = Answer::default();
    let call_0 = call(&mut tables, 0);
    replay
        .answer(&tables, &call_0, &mut answer)
        .expect("it is the recorded one");
    let mut now = call(&mut tables, 1);
    change(&mut tables, &mut now);
    let error = replay
        .answer(&tables, &now, &mut answer)
        .expect_err("it is another one");
    assert_eq!(error.exit_code(), 76);
    error.to_string()
}

#[test]
fn a_call_that_differs_is_told_with_both_sides() {
    let message = divergence(|tables, now| {
        now.kind = kind::TEST;
        now.identity = tables.intern(b"test model 0");
    });
    assert_eq!(
        message,
        "the replay differs from the record: `test model 0` is called instead of `train model 0`\n  \
         call 2 of the run\n  \
         recorded: `train model 0` (train) at train.py:31, random draws 0, arguments 0x7\n  \
         now: `test model 0` (test) at train.py:31, random draws 0, arguments 0x7\n  \
         the run was stopped; the checkpoint and the log are kept"
    );
    let first_line = |message: String| message.lines().next().unwrap_or_default().to_owned();
    let site = divergence(|tables, now| now.site = tables.intern(b"train.py:40"));
    assert_eq!(
        first_line(site),
        "the replay differs from the record: `train model 0` is called from another line"
    );
    assert_eq!(
        first_line(divergence(|_, now| now.draws = 9)),
        "the replay differs from the record: `train model 0` is called after another number of \
         random draws"
    );
    assert_eq!(
        first_line(divergence(|_, now| now.arguments = 9)),
        "the replay differs from the record: `train model 0` is given something else"
    );
}

#[test]
fn a_value_that_differs_is_told_with_both_sides() {
    let stage = Stage::new();
    let values = usual_values(7);
    let mark = record(&stage.path(), &values);
    let mut tables = Tables::default();
    let log = Log::open(&stage.path(), mark, &mut tables).expect("it is whole");
    let mut replay = log.replay().expect("it is whole");
    let mut answer = Answer::default();
    for (number, value) in values.iter().enumerate().take(6) {
        let call = call(&mut tables, number);
        replay
            .check(&tables, &call, &encoded(value), &mut answer)
            .expect("it is the recorded one");
    }
    let call = call(&mut tables, 6);
    let error = replay
        .check(&tables, &call, &encoded(&values[5]), &mut answer)
        .expect_err("it is another value");
    assert_eq!(
        error.to_string(),
        "the replay differs from the record: `train model 0` returns something else\n  \
         call 7 of the run\n  \
         recorded: `train model 0` (train) at train.py:31, random draws 2, arguments 0x2a, returned \
         array(300,) |u1 <300 bytes, hash c4741d9e>\n  \
         now: `train model 0` (train) at train.py:31, random draws 2, arguments 0x2a, returned \
         {\"loss\": 5, \"acc\": 2}\n  \
         the run was stopped; the checkpoint and the log are kept"
    );
    assert_eq!(
        error.hint().as_deref(),
        Some(
            "look for the clock, os.urandom, the order of a set, the environment, or a script or \
             data file that was changed; `--fresh` begins a new trial"
        )
    );
}

#[test]
fn a_call_after_the_last_record_is_told() {
    let stage = Stage::new();
    let mark = record(&stage.path(), &[]);
    let mut tables = Tables::default();
    let log = Log::open(&stage.path(), mark, &mut tables).expect("it is whole");
    let call = call(&mut tables, 0);
    let error = log
        .replay()
        .and_then(|mut replay| replay.answer(&tables, &call, &mut Answer::default()))
        .expect_err("there is no record");
    assert_eq!(
        error.to_string(),
        "the replay differs from the record: `train model 0` is called after the last recorded \
         call\n  \
         call 1 of the run\n  \
         recorded: nothing, the checkpoint was taken before\n  \
         now: `train model 0` (train) at train.py:31, random draws 0\n  \
         the run was stopped; the checkpoint and the log are kept"
    );
}
