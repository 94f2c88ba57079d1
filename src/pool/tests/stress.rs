//! Two worker processes and a consumer, for `PEDL_STRESS_SECONDS` (2 by default): batches of all
//! sizes with checksums, held for a while, while workers are killed at any moment.
//!
//! Each batch is checked when it is taken, and again before it is released: so a write to a leased
//! slot is found. The last line shows the amount.

use std::collections::VecDeque;
use std::env;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::process::{Child, Command};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use pedl_pool::{Arena, Asked, Awaited, Consumer, Lease, Shape, Wanted, Watch, Worker};
use rustix::process::Pid;

const SHAPE: Shape = Shape {
    window: 7,
    leases: 4,
    workers: WORKERS,
};
const WORKERS: u32 = 2;

/// The largest batch, in words of 8 bytes.
const MAX_WORDS: u64 = 1 << 16;

/// One worker is killed per this many batches.
const BATCHES_PER_KILL: u64 = 500;

const SECONDS: &str = "PEDL_STRESS_SECONDS";
const MEMORY: &str = "PEDL_STRESS_MEMORY";
const NUMBER: &str = "PEDL_STRESS_NUMBER";

/// Random numbers of a seed: splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// The words of a batch: random ones, in a number that depends on the index, and their sum.
fn words(index: u64) -> impl Iterator<Item = u64> {
    let mut random = Random(index);
    // Mostly small ones, because with these, steps follow each other quickly.
    let most = if index.is_multiple_of(4) {
        MAX_WORDS
    } else {
        64
    };
    let count = random.below(most);
    let mut sum = index;
    (0..=count).map(move |place| {
        if place == count {
            return sum;
        }
        let word = random.next();
        sum = sum.rotate_left(7) ^ word;
        word
    })
}

fn length(index: u64) -> usize {
    words(index).count() * size_of::<u64>()
}

fn check(lease: &Lease, index: u64) {
    let bytes = lease.bytes();
    assert_eq!(bytes.len(), length(index), "the length of batch {index}");
    let sent = bytes.chunks_exact(8);
    let is_same = sent
        .zip(words(index))
        .all(|(sent, word)| sent == word.to_le_bytes());
    assert!(is_same, "batch {index} is not what was built");
}

/// Runs a worker as long as there are tasks. Runs in a separate process.
fn work(memory: &str, number: u32) {
    let file = File::options().read(true).write(true).open(memory);
    let arena = Arena::open(Arc::new(file.expect("the consumer lives")), SHAPE);
    let mut worker = Worker::new(Arc::new(arena.expect("there is room")), number);
    loop {
        let claim = match worker.claim() {
            Asked::Claim(claim) => claim,
            Asked::Closed => return,
            Asked::BySignal => continue,
        };
        let index = claim.wanted.index;
        let length = length(index);
        let write = |bytes: &mut [u8]| -> io::Result<()> {
            for (place, word) in bytes.chunks_exact_mut(8).zip(words(index)) {
                place.copy_from_slice(&word.to_le_bytes());
            }
            Ok(())
        };
        // Either like a batch that is built in a slot, or like one whose slot something has kept.
        let is_kept = index % 7 == 0;
        if index % 3 == 0 {
            worker.prepare(length).expect("there is room");
        }
        worker.write(length, write).expect("there is room");
        if is_kept {
            worker.set_aside(length).expect("there is room");
        }
        worker.finish(claim, length);
        if is_kept {
            worker.take_back();
        }
    }
}

fn start(memory: &str, number: u32) -> Child {
    Command::new(env::current_exe().expect("it runs"))
        .args(["--exact", "batches_survive_anything", "--nocapture"])
        .env(MEMORY, memory)
        .env(NUMBER, number.to_string())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("there is a process")
}

#[test]
fn batches_survive_anything() {
    if let (Ok(memory), Ok(number)) = (env::var(MEMORY), env::var(NUMBER)) {
        work(&memory, number.parse().expect("it is a number"));
        return;
    }
    let seconds = env::var(SECONDS).map_or(2, |text| text.parse().expect("whole seconds"));
    let end = Instant::now() + Duration::from_secs(seconds);
    let arena = Arc::new(Arena::create(SHAPE).expect("there is room"));
    let memory = format!(
        "/proc/{}/fd/{}",
        std::process::id(),
        arena.file().as_raw_fd()
    );
    let consumer = Consumer::new(Arc::clone(&arena));
    let watch = Watch::start(arena).expect("there is a thread");
    let mut run = Run {
        consumer,
        watch,
        memory,
        workers: Vec::new(),
        random: Random(1),
        kills: 0,
        redone: 0,
    };
    for number in 0..WORKERS {
        let worker = run.start(number);
        run.workers.push(worker);
    }
    let (batches, bytes) = run.consume(end);
    run.consumer.close();
    for worker in &mut run.workers {
        assert!(worker.wait().expect("it is a child").success());
    }
    let (kills, redone) = (run.kills, run.redone);
    writeln!(
        io::stdout(),
        "{batches} batches of {} MB in {seconds} s, {kills} workers killed, {redone} batches built again: none was damaged",
        bytes / 1_000_000,
    )
    .expect("somebody reads it");
    assert!(run.kills > 0, "no worker was killed");
}

struct Run {
    consumer: Consumer,
    watch: Watch,
    memory: String,
    workers: Vec<Child>,
    random: Random,
    kills: u64,
    redone: u64,
}

impl Run {
    fn start(&self, number: u32) -> Child {
        let child = start(&self.memory, number);
        let no_sentinel = || Err(io::Error::other("this kernel has no pidfds"));
        let pid = Pid::from_child(&child);
        self.watch.add(number, pid, no_sentinel).expect("it runs");
        child
    }

    /// Takes batches until `end`, and those in progress. Returns how many, and their bytes.
    fn consume(&mut self, end: Instant) -> (u64, u64) {
        let (mut published, mut taken, mut bytes) = (0, 0, 0);
        let mut held = VecDeque::new();
        loop {
            if Instant::now() < end {
                let wanted = |index| Wanted {
                    index,
                    ..Wanted::default()
                };
                let count = self.random.below(u64::from(SHAPE.window)) + 1;
                let tasks = (published..published + count).map(wanted);
                published += u64::from(self.consumer.publish(published, tasks));
            }
            if taken == published {
                break;
            }
            if self.random.below(BATCHES_PER_KILL) == 0 {
                self.kill();
            }
            self.wait(taken);
            let mut lease = self.consumer.take(taken).expect("there is room");
            check(&lease, taken);
            bytes += lease.bytes().len() as u64;
            if self.consumer.may_keep(&mut lease) {
                held.push_back((lease, taken));
            }
            taken += 1;
            while self.random.below(2) == 0 {
                let Some((lease, index)) = held.pop_front() else {
                    break;
                };
                check(&lease, index);
            }
        }
        for (lease, index) in held {
            check(&lease, index);
        }
        (taken, bytes)
    }

    fn kill(&mut self) {
        let number = self.random.below(u64::from(WORKERS));
        // At any moment of its next work.
        thread::sleep(Duration::from_micros(self.random.below(300)));
        self.workers[usize::try_from(number).expect("it is small")]
            .kill()
            .expect("it is a child");
        self.kills += 1;
    }

    fn wait(&mut self, task: u64) {
        loop {
            let heard = self.consumer.bell();
            for number in self.watch.ended() {
                let index = usize::try_from(number).expect("it is small");
                self.workers[index].wait().expect("it is a child");
                self.redone += u64::from(self.consumer.recover(number).is_some());
                self.workers[index] = self.start(number);
            }
            if let Awaited::Built(_) = self.consumer.wait(task, heard, None) {
                return;
            }
        }
    }
}
