//! Each pair of a state and an event, and what becomes of each kind of call in each state: proven
//! on canned logs, in milliseconds.

use std::collections::BTreeSet;

use super::canned::{Canned, CannedCall, Start, read, train, write};
use super::*;
use crate::calls::{TRACED, VERSION};
use crate::error::{Class, Result};

/// The table of transitions, as the documentation of the module draws it. What is not in it cannot
/// happen.
#[rustfmt::skip]
const TRANSITIONS: &[(State, Event, State)] = &[
    (State::Untouched, Event::Begin { is_recorded: false }, State::Live),
    (State::Untouched, Event::Begin { is_recorded: true },  State::Replaying),
    (State::Untouched, Event::End { is_recorded: false },   State::Untouched),
    (State::Untouched, Event::Close,                        State::Untouched),
    (State::Untouched, Event::StandAside,                   State::Inert),
    (State::Replaying, Event::Answer { is_last: false },    State::Replaying),
    (State::Replaying, Event::Answer { is_last: true },     State::Live),
    (State::Replaying, Event::Close,                        State::Replaying),
    (State::Replaying, Event::StandAside,                   State::Inert),
    (State::Live,      Event::Record,                       State::Live),
    (State::Live,      Event::End { is_recorded: false },   State::Live),
    (State::Live,      Event::End { is_recorded: true },    State::Live),
    (State::Live,      Event::Close,                        State::Closed),
    (State::Live,      Event::StandAside,                   State::Inert),
    (State::Closed,    Event::End { is_recorded: false },   State::Closed),
    (State::Closed,    Event::End { is_recorded: true },    State::Closed),
    (State::Closed,    Event::Close,                        State::Closed),
    (State::Closed,    Event::StandAside,                   State::Inert),
    (State::Inert,     Event::Begin { is_recorded: false }, State::Inert),
    (State::Inert,     Event::Begin { is_recorded: true },  State::Inert),
    (State::Inert,     Event::Answer { is_last: false },    State::Inert),
    (State::Inert,     Event::Answer { is_last: true },     State::Inert),
    (State::Inert,     Event::Record,                       State::Inert),
    (State::Inert,     Event::End { is_recorded: false },   State::Inert),
    (State::Inert,     Event::End { is_recorded: true },    State::Inert),
    (State::Inert,     Event::Close,                        State::Inert),
    (State::Inert,     Event::StandAside,                   State::Inert),
];

fn in_table(state: State, event: Event) -> Option<State> {
    let row = TRANSITIONS
        .iter()
        .find(|row| (row.0, row.1) == (state, event));
    row.map(|row| row.2)
}

#[test]
fn every_pair_of_a_state_and_an_event_is_as_in_the_table() {
    for state in State::ALL {
        for event in Event::ALL {
            assert_eq!(
                state.after(event),
                in_table(state, event),
                "{state:?} {event:?}"
            );
        }
    }
    let pairs: BTreeSet<_> = TRANSITIONS
        .iter()
        .map(|row| format!("{:?} {:?}", row.0, row.1))
        .collect();
    assert_eq!(pairs.len(), TRANSITIONS.len(), "a pair is there twice");
}

/// The calls of the record that the tests below replay.
fn recorded() -> Canned {
    Canned::of(&[train(10), read(20), train(11)], &[train(12)])
}

/// Does to a start what the event says, by the way that a process takes. `None` if no process can.
fn cause(start: &mut Start, log: &Canned, event: Event) -> Option<Result<()>> {
    let position = start.session.position();
    Some(match event {
        Event::Begin { .. } => start.begin(log),
        Event::Answer { is_last } if is_last == (position == 2) => {
            let next = [train(10), read(20), train(11)].into_iter();
            let position = usize::try_from(position).expect("it is small");
            start.answer(next.cycle().nth(position)?).map(|_| ())
        }
        Event::Answer { .. } | Event::StandAside => return None,
        Event::Record => start.make(train(99)),
        Event::End { is_recorded } => start.session.end(is_recorded),
        Event::Close => {
            start.session.close();
            Ok(())
        }
    })
}

/// Starts in each state that a process reaches by calls, with the log that belongs to it.
fn in_each_state() -> Vec<(Start, Canned)> {
    let (nothing, some) = (Canned::of(&[], &[]), recorded());
    let mut closed = nothing.start();
    closed.session.close();
    let mut last = some.start();
    last.answer(train(10)).expect("it is recorded");
    last.answer(read(20)).expect("it is recorded");
    vec![
        (Canned::untouched(), Canned::of(&[], &[])),
        (Canned::untouched(), recorded()),
        (nothing.start(), nothing),
        (some.start(), recorded()),
        (last, some),
        (closed, Canned::of(&[], &[])),
    ]
}

#[test]
#[expect(clippy::print_stdout, reason = "the coverage is printed")]
fn the_session_takes_each_transition_of_the_table() {
    let mut taken = BTreeSet::new();
    for event in Event::ALL {
        for (mut start, log) in in_each_state() {
            let before = start.session.state();
            let is_logged = log.start().session.state() == State::Replaying;
            if matches!(event, Event::Begin { is_recorded } if is_recorded != is_logged) {
                continue;
            }
            let Some(done) = cause(&mut start, &log, event) else {
                continue;
            };
            let expected = in_table(before, event);
            assert_eq!(
                done.is_ok(),
                expected.is_some(),
                "{before:?} {event:?}: {done:?}"
            );
            assert_eq!(
                start.session.state(),
                expected.unwrap_or(before),
                "{before:?} {event:?}"
            );
            if expected.is_some() {
                taken.insert(format!("{before:?} {event:?}"));
            }
        }
    }
    // A process finds out by itself, without its locks, that it has no part in the trial.
    let of_a_session = TRANSITIONS
        .iter()
        .filter(|row| row.0 != State::Inert && row.1 != Event::StandAside)
        .count();
    println!(
        "transitions taken by canned logs: {} of {of_a_session}, {} %",
        taken.len(),
        100 * taken.len() / of_a_session
    );
    assert_eq!(taken.len(), of_a_session, "{taken:#?}");
}

#[test]
fn what_becomes_of_a_call_follows_the_state_and_its_record() {
    let log = Canned::of(
        &[
            train(1).with_arguments(TRACED),
            train(2),
            read(3).with_arguments(TRACED),
        ],
        &[],
    );
    let mut start = log.start();
    assert_eq!(start.session.next(true).ok(), Some(Next::Remake));
    start
        .check(train(1).with_arguments(TRACED))
        .expect("it is equal");
    assert_eq!(start.session.next(true).ok(), Some(Next::Answer));
    assert_eq!(start.answer(train(2)).ok(), Some(2));
    // What cannot be made again is answered, whatever its arguments are.
    assert_eq!(start.session.next(false).ok(), Some(Next::Answer));
    assert_eq!(start.answer(read(3).with_arguments(TRACED)).ok(), Some(3));
    for may_trace in [false, true] {
        assert_eq!(start.session.next(may_trace).ok(), Some(Next::Compute));
    }
    start.session.close();
    assert_eq!(start.session.next(true).ok(), Some(Next::Pass));
    let error = Canned::untouched().session.next(true);
    assert_eq!(error.err().map(|error| error.class()), Some(Class::Bug));
}

#[test]
fn a_record_is_answered_up_to_the_checkpoint_and_what_was_after_it_is_made_again() {
    let log = recorded();
    for _ in 0..3 {
        let mut start = log.start();
        assert_eq!(start.session.resume_call(), 3);
        for (number, call) in [train(10), read(20), train(11)].into_iter().enumerate() {
            assert_eq!(start.session.state(), State::Replaying);
            assert_eq!(start.session.position(), number as u64);
            assert_eq!(start.answer(call.with_value(0)).ok(), Some(call.value));
        }
        assert_eq!(start.session.state(), State::Live);
        assert_eq!(start.session.position(), 3);
        start.make(train(12)).expect("there is room");
        assert_eq!(start.session.position(), 4);
        start.session.flush().expect("there is room");
    }
}

#[test]
fn a_call_that_differs_from_its_record_is_a_divergence_and_stays_the_next() {
    let log = Canned::of(&[write(7), train(1)], &[]);
    let mut start = log.start();
    for other in [write(8), train(1), read(1)] {
        let error = start.check(other).expect_err("it differs");
        assert_eq!(error.class(), Class::Divergence, "{error}");
        assert_eq!(start.session.position(), 0);
    }
    start.check(write(7)).expect("it is equal");
    let error = start.check(train(2)).expect_err("its value differs");
    assert_eq!(error.class(), Class::Divergence, "{error}");
}

#[test]
fn a_script_that_ends_within_its_replay_has_diverged() {
    let log = recorded();
    let mut start = log.start();
    start.answer(train(10)).expect("it is recorded");
    let error = start.session.end(true).expect_err("two calls are left");
    assert_eq!(error.class(), Class::Divergence, "{error}");
    let error = Canned::untouched().session.end(true);
    let error = error.expect_err("it has made no call");
    assert_eq!(error.class(), Class::Divergence, "{error}");
}

/// The calls of the golden logs.
const GOLDEN_CALLS: [CannedCall; 4] = [train(10), read(-1), write(7), train(11)];

/// A log of each version that trials of releases have. A new version adds a line, and keeps these.
const GOLDEN: &[(u32, &[u8])] = &[(2, include_bytes!("golden/calls_v2.log"))];

#[test]
fn logs_of_older_releases_are_replayed() {
    for (version, bytes) in GOLDEN {
        let mut start = Canned::of_bytes(bytes, 4).start();
        for call in GOLDEN_CALLS {
            assert_eq!(
                start.answer(call.with_value(0)).ok(),
                Some(call.value),
                "version {version}"
            );
        }
        assert_eq!(start.session.state(), State::Live);
    }
}

#[test]
fn a_log_is_written_as_its_version_says() {
    let written = Canned::of(&GOLDEN_CALLS, &[]).bytes();
    if std::env::var_os("RENEW_GOLDEN").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/replay/golden/calls_new.log");
        std::fs::write(path, &written).expect("there is room");
    }
    let (version, golden) = GOLDEN.last().expect("there is one");
    // Other bytes need another version, and a golden log of it: run this with RENEW_GOLDEN=1.
    assert_eq!((VERSION, written.as_slice()), (*version, *golden));
}
