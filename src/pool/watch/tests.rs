use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::Watch;
use crate::arena::{Arena, Wanted};
use crate::consumer::Consumer;
use crate::ring::{Awaited, Shape};
use crate::word::Woken;

const SHAPE: Shape = Shape {
    window: 1,
    leases: 1,
    workers: 0,
};

fn process() -> Child {
    Command::new("sleep")
        .arg("60")
        .stdout(Stdio::piped())
        .spawn()
        .expect("there is `sleep`")
}

/// A file descriptor that is readable once the process has ended.
fn end_of(process: &Child) -> impl FnOnce() -> io::Result<OwnedFd> {
    let end = process.stdout.as_ref().expect("it is piped").as_fd();
    move || end.try_clone_to_owned()
}

#[test]
fn a_consumer_that_waits_is_told_who_has_ended() {
    let arena = Arc::new(Arena::create(SHAPE).expect("there is room"));
    let consumer = Consumer::new(Arc::clone(&arena));
    let watch = Watch::start(arena).expect("there is a thread");
    assert_eq!(consumer.publish(0, [Wanted::default()]), 1);
    let mut workers = [process(), process()];
    for (number, worker) in (0..).zip(&workers) {
        let pid = Pid::from_child(worker);
        watch.add(number, pid, end_of(worker)).expect("it runs");
    }
    let heard = consumer.bell();
    assert!(watch.ended().is_empty());
    workers[1].kill().expect("it runs");
    let late = Some(Instant::now() + Duration::from_secs(30));
    assert_eq!(consumer.wait(0, heard, late), Awaited::Not(Woken::Perhaps));
    assert_eq!(watch.ended(), [1]);
    assert!(watch.ended().is_empty());
    workers[0].kill().expect("it runs");
    for worker in &mut workers {
        worker.wait().expect("it was killed");
    }
}

#[test]
fn a_watch_ends_while_those_it_watches_live_on() {
    let arena = Arc::new(Arena::create(SHAPE).expect("there is room"));
    let watch = Watch::start(arena).expect("there is a thread");
    let mut worker = process();
    watch
        .add(0, Pid::from_child(&worker), end_of(&worker))
        .expect("it runs");
    drop(watch);
    worker.kill().expect("it runs");
    worker.wait().expect("it was killed");
}
