//! Tests of the guarantees of checkpoints.

use std::collections::BTreeSet;
use std::fs as real;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::crash_fs::{CrashFs, Fails, Kept, mix};
use super::failure::Failure;
use super::*;
use crate::error::{Bug, Class, Error};

mod detection;
mod packs;

const TRIAL: &str = "/trial";
const HISTORY: &str = "/history.csv";
const NOTES: &str = "/notes.txt";

/// Bytes of a tensor that never changes.
const FROZEN: [u8; 32] = *b"a tensor that training leaves be";

/// The content of a checkpoint. All of it depends on `salt`, except the parts that never change.
fn snapshot(batch: u64, salt: u8) -> Snapshot {
    Snapshot {
        batch,
        step: batch / 100,
        epoch: Some(3),
        calls: batch + u64::from(salt),
        log_offset: batch * 24,
        state: format!("{{\"salt\":{salt}}}"),
        tensors: vec![
            tensor("dense/kernel:0", "float32", &[2, 2], &[salt; 16]),
            tensor("iterations", "int64", &[], &[salt; 8]),
            tensor("frozen/kernel:0", "float32", &[8], &FROZEN),
        ],
        files: vec![HISTORY.into(), NOTES.into()],
        validations: BTreeMap::new(),
        retention: None,
    }
}

fn tensor(name: &str, dtype: &str, shape: &[usize], bytes: &[u8]) -> Tensor {
    let (name, dtype) = (name.to_owned(), dtype.to_owned());
    Tensor {
        name,
        dtype,
        shape: shape.to_vec(),
        bytes: bytes.to_vec(),
    }
}

fn history(salt: u8) -> Vec<u8> {
    format!("epoch,loss\n{salt}").into_bytes()
}

fn disk() -> CrashFs {
    let fs = CrashFs::new();
    fs.make_directory(Path::new(TRIAL)).expect("it is new");
    fs.sync_directory(Path::new("/")).expect("it is there");
    fs.overwrite(Path::new(NOTES), b"always the same");
    fs
}

fn store(fs: &CrashFs) -> Store<CrashFs> {
    Store::new(fs.clone(), Path::new(TRIAL))
}

/// Trains up to a batch and takes a checkpoint, with files of the script overwritten in place.
fn save(fs: &CrashFs, batch: u64, salt: u8) -> Result<PathBuf> {
    fs.overwrite(Path::new(HISTORY), &history(salt));
    store(fs).save(&snapshot(batch, salt))
}

/// Checks that the newest checkpoint is exactly one of these, and nothing is damaged. Returns
/// which.
fn check_newest(fs: &CrashFs, expected: &[Option<Saved>], when: &str) -> Option<Saved> {
    let newest = store(fs)
        .newest()
        .unwrap_or_else(|error| panic!("{when}: {error}"));
    assert!(newest.damaged.is_empty(), "{when}: {:?}", newest.damaged);
    let Some(checkpoint) = newest.checkpoint else {
        assert!(
            expected.contains(&None),
            "{when}: expected {expected:?}, got no checkpoint"
        );
        return None;
    };
    let salt = checkpoint.tensors[0].bytes[0];
    let found = (checkpoint.manifest.batch, salt);
    assert!(
        expected.contains(&Some(found)),
        "{when}: expected {expected:?}, got {found:?}"
    );
    check_is(fs, &checkpoint, &snapshot(found.0, salt), salt, when);
    Some(found)
}

fn check_is(
    fs: &CrashFs,
    checkpoint: &Checkpoint<CrashFs>,
    snapshot: &Snapshot,
    salt: u8,
    when: &str,
) {
    let Manifest {
        batch,
        step,
        epoch,
        calls,
        log_offset,
        ..
    } = checkpoint.manifest;
    let expected = (
        snapshot.batch,
        snapshot.step,
        snapshot.epoch,
        snapshot.calls,
        snapshot.log_offset,
    );
    assert_eq!((batch, step, epoch, calls, log_offset), expected, "{when}");
    assert_eq!(checkpoint.state, snapshot.state, "{when}");
    assert_eq!(checkpoint.tensors, snapshot.tensors, "{when}");
    let fs = fs.after_power_cut(Kept::Everything);
    let store = store(&fs);
    let newest = store
        .newest()
        .expect("it was read before")
        .checkpoint
        .expect("it was there");
    for path in [HISTORY, NOTES].map(Path::new) {
        fs.overwrite(path, b"scribbled over, in place");
        assert!(newest.restore_file(path).expect("it is whole"), "{when}");
    }
    assert_eq!(fs.content(Path::new(HISTORY)), history(salt), "{when}");
    assert_eq!(fs.content(Path::new(NOTES)), b"always the same", "{when}");
}

fn names(fs: &CrashFs, directory: &str) -> Vec<String> {
    let names = fs
        .list(&Path::new(TRIAL).join(directory))
        .expect("it can be listed");
    names
        .into_iter()
        .map(|name| name.into_string().expect("it is text"))
        .collect()
}

/// How often the packs contain some bytes.
fn times_stored(fs: &CrashFs, bytes: &[u8]) -> usize {
    let packs = names(fs, "checkpoints/tensors").into_iter();
    let packs =
        packs.map(|name| fs.content(&Path::new(TRIAL).join("checkpoints/tensors").join(name)));
    packs
        .map(|pack| {
            pack.windows(bytes.len())
                .filter(|window| *window == bytes)
                .count()
        })
        .sum()
}

const POWER_CUTS: [Kept; 12] = [
    Kept::Everything,
    Kept::Nothing,
    Kept::Names,
    Kept::Contents,
    Kept::Any(1),
    Kept::Any(2),
    Kept::Any(3),
    Kept::Any(4),
    Kept::Any(5),
    Kept::Any(6),
    Kept::Any(7),
    Kept::Any(8),
];

/// Batch and salt.
type Saved = (u64, u8);

/// What was saved before, and what is being saved when the process dies.
const SCENARIOS: [(&[Saved], Saved); 5] = [
    (&[], (100, 1)),
    (&[(100, 1)], (200, 2)),
    (&[(100, 1), (200, 2)], (300, 3)),
    (&[(100, 1)], (100, 2)),
    (&[(100, 1), (200, 2), (200, 3)], (200, 4)),
];

#[test]
#[expect(clippy::print_stdout, reason = "it is what is measured")]
fn a_crash_leaves_the_old_checkpoint_or_the_new_one() {
    let mut stops = 0;
    for (before, (batch, salt)) in SCENARIOS {
        let prepared = disk();
        for &(batch, salt) in before {
            save(&prepared, batch, salt).expect("nothing fails yet");
        }
        let (old, new) = (before.last().copied(), Some((batch, salt)));
        let mut both_seen = BTreeSet::new();
        for dies_at in 0.. {
            let fs = prepared.after_power_cut(Kept::Nothing);
            fs.fail(Fails::From(dies_at));
            let outcome = save(&fs, batch, salt);
            let is_over = fs.operations() <= dies_at;
            assert!(outcome.is_ok() || !is_over, "{outcome:?}");
            for kept in POWER_CUTS {
                let when = format!("{before:?}, then {new:?}; died at {dies_at}, kept {kept:?}");
                let after = fs.after_power_cut(kept);
                let possible: &[_] = if outcome.is_ok() { &[new] } else { &[old, new] };
                both_seen.insert(check_newest(&after, possible, &when));
                check_that_all_are_whole(&after, &when);
                check_latest(&after, before, is_over, &when);
                check_that_it_goes_on(&after, batch, &when);
            }
            if is_over {
                break;
            }
            stops += 1;
        }
        assert_eq!(both_seen, BTreeSet::from([old, new]), "{before:?}");
    }
    let cuts = stops * POWER_CUTS.len();
    println!("stopped at {stops} operations, and opened again after {cuts} power cuts");
    assert!(stops > 100, "{stops} operations");
}

/// Checks not only the newest one: every folder with the name of a checkpoint is one.
fn check_that_all_are_whole(fs: &CrashFs, when: &str) {
    let all = store(fs).checkpoints().expect("it can be listed").len();
    let mut whole = 0;
    let refused = store(fs).newest_where(|_| {
        whole += 1;
        let path = PathBuf::from("/calls.log");
        Err(Failure::Content {
            path: path.clone(),
            content: path,
        }
        .into())
    });
    let refused = refused.unwrap_or_else(|error| panic!("{when}: {error}"));
    assert_eq!(whole, all, "{when}: {:?}", refused.damaged);
}

/// Checks that `latest` leads to a checkpoint, except while one is being replaced by another of its
/// batch.
fn check_latest(fs: &CrashFs, before: &[Saved], is_done: bool, when: &str) {
    let link = fs.link(&Path::new(TRIAL).join("latest"));
    assert_eq!(
        link.is_some(),
        link.is_some() || is_done || !before.is_empty(),
        "{when}"
    );
    let Some(target) = link else { return };
    let is_there = fs
        .stat(&Path::new(TRIAL).join(&target))
        .expect("it can be read")
        .is_some();
    let is_replacing = names(fs, "checkpoints")
        .iter()
        .any(|name| name.starts_with(".replaced-"));
    assert!(
        is_there || is_replacing && !is_done,
        "{when}: {}",
        target.display()
    );
}

/// What a copy of a trial, or another program, has made of `latest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Latest {
    Missing,
    File,
    /// As `cp -rL` makes it from the link.
    Copy,
    /// A checkpoint of another trial, or any other folder.
    NoCopy,
    /// A copy at both names, `latest` and that of the next link: a copy was taken at that moment.
    Copies,
}

impl Latest {
    fn put(self, fs: &CrashFs) {
        let trial = Path::new(TRIAL);
        let (latest, newest) = (trial.join("latest"), fs.link(&trial.join("latest")));
        let newest = newest.expect("a checkpoint was taken");
        fs.remove_file(&latest).expect("it is a link");
        let folder = |path: &Path| {
            fs.make_directory(path).expect("the name is free");
            for name in fs.list(&trial.join(&newest)).expect("it is there") {
                fs.overwrite(
                    &path.join(&name),
                    &fs.content(&trial.join(&newest).join(&name)),
                );
            }
        };
        match self {
            Self::Missing => {}
            Self::File => fs.overwrite(&latest, b"batch-0000000100"),
            Self::Copy => folder(&latest),
            Self::NoCopy => {
                folder(&latest);
                fs.overwrite(&latest.join("state.json"), b"the only one there is");
            }
            Self::Copies => {
                folder(&latest);
                folder(&trial.join(".latest-new"));
            }
        }
        fs.sync_directory(trial).expect("it is there");
    }
}

/// `cp -rL`, zip and object stores do not keep links.
#[test]
fn latest_may_be_a_folder_a_file_or_missing() {
    let cuts = [
        Kept::Everything,
        Kept::Nothing,
        Kept::Any(1),
        Kept::Any(2),
        Kept::Any(3),
    ];
    for (latest, exchanges) in [
        (Latest::Missing, true),
        (Latest::File, true),
        (Latest::Copy, true),
        (Latest::Copy, false),
        (Latest::NoCopy, true),
        (Latest::NoCopy, false),
        (Latest::Copies, true),
        (Latest::Copies, false),
    ] {
        let prepared = disk();
        save(&prepared, 100, 1).expect("nothing fails yet");
        save(&prepared, 200, 2).expect("nothing fails yet");
        latest.put(&prepared);
        if !exchanges {
            prepared.cannot_exchange();
        }
        for dies_at in 0.. {
            let fs = prepared.after_power_cut(Kept::Nothing);
            fs.fail(Fails::From(dies_at));
            let outcome = save(&fs, 300, 3);
            let is_over = fs.operations() <= dies_at;
            assert!(outcome.is_ok() || !is_over, "{latest:?}: {outcome:?}");
            for kept in cuts {
                let when = format!("{latest:?}, exchange {exchanges}; died at {dies_at}, {kept:?}");
                let after = fs.after_power_cut(kept);
                let possible: &[_] = if outcome.is_ok() {
                    &[Some((300, 3))]
                } else {
                    &[Some((200, 2)), Some((300, 3))]
                };
                check_newest(&after, possible, &when);
                check_that_it_goes_on(&after, 300, &when);
                let mut expected = vec!["checkpoints", "latest"];
                if latest == Latest::NoCopy {
                    expected.push("latest.1");
                    let kept = Path::new(TRIAL).join("latest.1/state.json");
                    assert_eq!(after.content(&kept), b"the only one there is", "{when}");
                }
                assert_eq!(names(&after, ""), expected, "{when}");
                let target = after.link(&Path::new(TRIAL).join("latest"));
                let newest = Path::new("checkpoints/batch-0000000360");
                assert_eq!(target.as_deref(), Some(newest), "{when}");
            }
            if is_over {
                break;
            }
        }
    }
}

/// On the real file system, and with `set_aside`.
#[test]
fn a_copy_without_links_takes_checkpoints_as_its_original_does() {
    let directory = tempfile::tempdir().expect("there is room");
    let trial = directory.path();
    let take = |batch: u64| {
        let snapshot = Snapshot {
            files: Vec::new(),
            ..snapshot(batch, 1)
        };
        Store::open(trial).save(&snapshot).expect("nothing fails");
    };
    let latest = trial.join("latest");
    let make_folder = |batch: u64| {
        let original = trial.join(format!("checkpoints/batch-{batch:010}"));
        real::remove_file(&latest).expect("it is a link");
        real::create_dir(&latest).expect("the name is free");
        for name in ["manifest.json", "state.json"] {
            real::copy(original.join(name), latest.join(name)).expect("there is room");
        }
    };
    take(100);
    make_folder(100);
    (200..=700).step_by(100).for_each(take);
    let found = Store::open(trial).checkpoints().expect("it can be listed");
    let batches: Vec<_> = found.iter().map(|(batch, _)| *batch).collect();
    assert_eq!(batches, [700, 600]);
    make_folder(700);
    let store = Store::open(trial);
    let position = store.positions().expect("it can be listed")[1];
    store.go_back_to(Some(position)).expect("nothing fails");
    let target = real::read_link(&latest).expect("it is a link");
    assert_eq!(target, Path::new("checkpoints/batch-0000000600"));
    make_folder(600);
    store.go_back_to(None).expect("nothing fails");
    assert!(real::symlink_metadata(&latest).is_err());
    assert_eq!(Store::newest_batch(trial), None);
}

/// Checks that the next commits succeed, and leave nothing superfluous behind.
fn check_that_it_goes_on(fs: &CrashFs, batch: u64, when: &str) {
    for (batch, salt) in [(batch, 11), (batch, 12), (batch + 50, 13), (batch + 60, 14)] {
        save(fs, batch, salt).unwrap_or_else(|error| panic!("{when}: {error}"));
        check_newest(fs, &[Some((batch, salt))], when);
    }
    let expected = [
        format!("batch-{:010}", batch + 50),
        format!("batch-{:010}", batch + 60),
        "files".to_owned(),
        "tensors".to_owned(),
    ];
    assert_eq!(names(fs, "checkpoints"), expected, "{when}");
    assert_eq!(names(fs, "checkpoints/files").len(), 3, "{when}");
    assert_eq!(times_stored(fs, &FROZEN), 1, "{when}");
    assert!(names(fs, "checkpoints/tensors").len() <= 3, "{when}");
}

#[test]
fn a_failing_operation_costs_one_checkpoint_at_most() {
    for fails_at in 0.. {
        let fs = disk();
        save(&fs, 100, 1).expect("nothing fails yet");
        fs.fail(Fails::Once(fails_at));
        let outcome = save(&fs, 200, 2);
        let when = format!("failed at {fails_at}: {outcome:?}");
        let possible: &[_] = if outcome.is_ok() {
            &[Some((200, 2))]
        } else {
            &[Some((100, 1)), Some((200, 2))]
        };
        check_newest(&fs, possible, &when);
        let is_over = fs.operations() <= fails_at;
        fs.fail(Fails::Never);
        check_that_it_goes_on(&fs, 200, &when);
        if is_over {
            break;
        }
    }
}

#[test]
fn damage_is_told_with_what_is_done_about_it() {
    let fs = disk();
    save(&fs, 100, 1).expect("nothing fails");
    save(&fs, 200, 2).expect("nothing fails");
    let folder = Path::new(TRIAL).join("checkpoints/batch-0000000200");
    fs.overwrite(&folder.join("state.json"), b"{}");
    fs.overwrite(
        &Path::new(TRIAL).join("checkpoints/batch-0000000100/manifest.json"),
        b"{}",
    );
    let newest = store(&fs).newest().expect("damage is no error");
    let manifest = Manifest::parse(&fs.content(&folder.join("manifest.json")));
    let created = manifest.expect("it is intact").created;
    assert!(newest.checkpoint.is_none());
    let texts: Vec<_> = newest.damaged.iter().map(ToString::to_string).collect();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        texts,
        [
            format!(
                "checkpoint `batch-0000000200` is damaged: `state.json` is 2 of 10 bytes\n  \
                 in /trial/checkpoints/batch-0000000200, committed {created} by pedl-run {version}; \
                 the manifest is intact\n  no older checkpoint is left"
            ),
            "checkpoint `batch-0000000100` is damaged: `manifest.json` has no hash of itself\n  \
             in /trial/checkpoints/batch-0000000100\n  no older checkpoint is left"
                .to_owned(),
        ]
    );
    assert_eq!(
        newest.damaged[0].hint().as_deref(),
        Some("restore the folder from a backup, or begin a new trial with `--fresh`")
    );
}

#[test]
fn a_checkpoint_whose_log_is_damaged_is_not_used() {
    let fs = disk();
    save(&fs, 100, 1).expect("nothing fails");
    save(&fs, 200, 2).expect("nothing fails");
    let store = store(&fs);
    let lost = || Failure::Content {
        path: "/calls.log".into(),
        content: "/calls.log".into(),
    };
    let found = store.newest_where(|manifest| match manifest.log_offset {
        2400 => Ok(()),
        _ => Err(lost().into()),
    });
    let found = found.expect("an older one is left");
    assert_eq!(found.damaged.len(), 1);
    assert_eq!(found.checkpoint.expect("it is left").manifest.batch, 100);

    let failed = |_: &Manifest| Err(Bug("nothing to do with damage".to_owned()).into());
    assert_eq!(
        store.newest_where(failed).expect_err("it failed").class(),
        Class::Bug
    );
}

#[test]
fn what_was_set_aside_does_not_come_back() {
    let fs = disk();
    save(&fs, 100, 1).expect("nothing fails");
    save(&fs, 200, 2).expect("nothing fails");
    let state = Path::new(TRIAL).join("checkpoints/batch-0000000200/state.json");
    let intact = fs.content(&state);
    fs.overwrite(&state, b"unreadable");
    let store = store(&fs);
    let newest = store.newest().expect("an older one is left");
    store.set_aside(&newest).expect("nothing fails");
    let aside = Path::new(TRIAL).join("checkpoints/damaged-batch-0000000200/state.json");
    fs.overwrite(&aside, &intact);
    check_newest(&fs, &[Some((100, 1))], "set aside");
    let target = fs.link(&Path::new(TRIAL).join("latest"));
    assert_eq!(
        target.as_deref(),
        Some(Path::new("checkpoints/batch-0000000100"))
    );
    save(&fs, 150, 3).expect("nothing fails");
    let left = ["batch-0000000100", "batch-0000000150", "files", "tensors"];
    assert_eq!(names(&fs, "checkpoints"), left);
}

#[test]
fn a_checkpoint_of_another_version_is_left_alone() {
    for schema in [1, 3] {
        let fs = disk();
        save(&fs, 100, 1).expect("nothing fails");
        save(&fs, 200, 2).expect("nothing fails");
        let path = Path::new(TRIAL).join("checkpoints/batch-0000000200/manifest.json");
        let manifest = Manifest::parse(&fs.content(&path)).expect("it is whole");
        let other = Manifest {
            schema,
            pedl_version: "9.0.0".to_owned(),
            ..manifest
        };
        fs.overwrite(&path, other.to_text().expect("it is JSON").as_bytes());
        let error = store(&fs)
            .newest()
            .expect_err("another program must not go on");
        assert_eq!(
            error.to_string(),
            format!(
                "checkpoint `/trial/checkpoints/batch-0000000200` was written by pedl-run 9.0.0\n  \
                 schema of its `manifest.json`: {schema}; known here: 2\n  nothing was changed"
            )
        );
    }
}

#[test]
fn contents_are_stored_once_and_go_with_the_last_checkpoint_that_names_them() {
    let fs = disk();
    for (batch, contents) in [(100, 2), (200, 3), (300, 3), (400, 3)] {
        save(&fs, batch, u8::try_from(batch / 100).expect("it is small")).expect("nothing fails");
        // One that never changes, and one for each of the two checkpoints that are kept.
        assert_eq!(
            names(&fs, "checkpoints/files").len(),
            contents,
            "after batch {batch}"
        );
    }
    let left = ["batch-0000000300", "batch-0000000400", "files", "tensors"];
    assert_eq!(names(&fs, "checkpoints"), left);
}

#[test]
fn a_loaded_checkpoint_can_restore_after_newer_ones_were_committed() {
    let fs = disk();
    save(&fs, 100, 1).expect("nothing fails");
    let store = store(&fs);
    let loaded = store
        .newest()
        .expect("it is whole")
        .checkpoint
        .expect("it is there");
    for batch in [200, 300, 400] {
        let salt = u8::try_from(batch / 100).expect("it is small");
        fs.overwrite(Path::new(HISTORY), &history(salt));
        store.save(&snapshot(batch, salt)).expect("nothing fails");
    }
    assert!(
        loaded
            .restore_file(Path::new(HISTORY))
            .expect("the content stayed")
    );
    assert_eq!(fs.content(Path::new(HISTORY)), history(1));
    drop(loaded);
    store.save(&snapshot(500, 5)).expect("nothing fails");
    let hash = blake3::hash(&history(1)).to_string();
    assert_eq!(
        names(&fs, "checkpoints/files").len(),
        3,
        "{hash} is kept by nobody"
    );
}

#[test]
fn a_store_and_what_it_gives_can_go_to_another_thread() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Store>();
    check::<Captured>();
    check::<Newest>();
}

#[test]
fn what_was_captured_is_what_is_committed() {
    let fs = disk();
    fs.overwrite(Path::new(HISTORY), &history(1));
    let store = store(&fs);
    let captured = store
        .capture(&snapshot(100, 1).files)
        .expect("nothing fails");
    fs.overwrite(Path::new(HISTORY), b"training went on");
    store
        .commit(&snapshot(100, 1), captured)
        .expect("nothing fails");
    check_newest(&fs, &[Some((100, 1))], "committed later");

    let dropped = store
        .capture(&[PathBuf::from(HISTORY)])
        .expect("nothing fails");
    drop(dropped);
    let left = ["batch-0000000100", "files", "tensors"];
    assert_eq!(names(&fs, "checkpoints"), left);
}

#[test]
fn a_damaged_content_is_not_used_again() {
    let fs = disk();
    save(&fs, 100, 1).expect("nothing fails");
    let stored = format!("checkpoints/files/{}", blake3::hash(b"always the same"));
    fs.overwrite(&Path::new(TRIAL).join(stored), b"always the sane");
    save(&fs, 200, 2).expect("nothing fails");
    check_newest(&fs, &[Some((200, 2))], "the content was stored anew");
}

#[test]
fn a_file_that_is_gone_is_left_out() {
    let fs = disk();
    let files = vec!["/never.h5".into(), NOTES.into(), NOTES.into()];
    let store = store(&fs);
    store
        .save(&Snapshot {
            files,
            ..snapshot(100, 1)
        })
        .expect("nothing fails");
    let checkpoint = store
        .newest()
        .expect("it is whole")
        .checkpoint
        .expect("it is there");
    assert!(checkpoint.manifest.kept(Path::new(NOTES)).is_some());
    assert!(
        !checkpoint
            .restore_file(Path::new("/never.h5"))
            .expect("nothing is done")
    );
    assert_eq!(checkpoint.manifest.kept.len(), 1);
}

#[test]
fn what_the_union_table_keeps_stays_besides_the_newest_two() {
    let fs = disk();
    let store = store(&fs);
    let mut validations = BTreeMap::new();
    let mut committed = |batch: u64, metric: Option<f64>, trial_best: u64, trial_latest: u64| {
        validations.extend(metric.map(|metric| (batch, metric)));
        let retention = Retention {
            trial_best,
            trial_latest,
            ..Retention::default()
        };
        let snapshot = Snapshot {
            validations: validations.clone(),
            retention: Some(retention),
            ..snapshot(batch, 1)
        };
        store.save(&snapshot).expect("nothing fails");
        let names = names(&fs, "checkpoints").into_iter();
        let numbers = names.filter_map(|name| name.strip_prefix("batch-")?.parse().ok());
        numbers.collect::<Vec<u64>>()
    };
    assert_eq!(committed(100, Some(0.5), 1, 1), [100]);
    assert_eq!(committed(200, Some(0.6), 1, 1), [100, 200]);
    assert_eq!(committed(300, None, 1, 1), [100, 200, 300]);
    assert_eq!(committed(400, None, 1, 1), [100, 300, 400]);
    assert_eq!(committed(500, Some(0.4), 2, 1), [100, 400, 500]);
    assert_eq!(committed(600, Some(0.5), 2, 3), [100, 400, 500, 600]);
    assert_eq!(committed(700, None, 0, 0), [600, 700]);
}

#[test]
fn what_cannot_be_stored_is_named() {
    let fs = disk();
    let refuse = |tensors: Vec<Tensor>| {
        let refused = store(&fs).save(&Snapshot {
            tensors,
            files: Vec::new(),
            ..snapshot(1, 1)
        });
        let error = refused.expect_err("it cannot be stored");
        assert_eq!(names(&fs, "checkpoints"), ["files", "tensors"]);
        (error.class(), error.to_string())
    };
    assert_eq!(
        refuse(vec![tensor("phase", "complex128", &[1], &[0; 16])]),
        (
            Class::NotStorable,
            "tensor `phase` of type `complex128` cannot be stored\n  known: bool, int8, int16, \
             int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64, \
             complex64, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, \
             float8_e8m0fnu\n  no checkpoint was written"
                .to_owned()
        )
    );
    let (class, text) = refuse(vec![tensor("w", "float32", &[3], &[0; 11])]);
    assert_eq!(class, Class::Bug);
    assert!(text.starts_with("tensor `w` of type float32 and shape [3] came with 11 bytes"));
    let (class, text) = refuse(vec![
        tensor("w", "int8", &[], &[0]),
        tensor("w", "bool", &[], &[0]),
    ]);
    assert_eq!(class, Class::Bug);
    assert!(text.starts_with("two tensors are named `w`"), "{text}");
}

const ELEMENT_BYTES: [(&str, usize); 19] = [
    ("bool", 1),
    ("int8", 1),
    ("int16", 2),
    ("int32", 4),
    ("int64", 8),
    ("uint8", 1),
    ("uint16", 2),
    ("uint32", 4),
    ("uint64", 8),
    ("float16", 2),
    ("bfloat16", 2),
    ("float32", 4),
    ("float64", 8),
    ("complex64", 8),
    ("float8_e4m3fn", 1),
    ("float8_e4m3fnuz", 1),
    ("float8_e5m2", 1),
    ("float8_e5m2fnuz", 1),
    ("float8_e8m0fnu", 1),
];

fn round_trip(tensors: Vec<Tensor>) {
    let store = store(&disk());
    let saved = Snapshot {
        tensors,
        files: Vec::new(),
        ..snapshot(7, 1)
    };
    store.save(&saved).expect("nothing fails");
    let newest = store.newest().expect("it is whole");
    assert!(newest.damaged.is_empty(), "{:?}", newest.damaged);
    assert_eq!(
        newest.checkpoint.expect("it is there").tensors,
        saved.tensors
    );
}

#[test]
fn names_that_mean_something_elsewhere_are_only_names() {
    let names = [
        "",
        "__metadata__",
        "__metadata__'",
        "__metadata__''",
        "a\0b",
        "\u{feff}",
        "a/../b",
    ];
    round_trip(
        names
            .iter()
            .map(|name| tensor(name, "bool", &[], &[1]))
            .collect(),
    );
    round_trip(Vec::new());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn tensors_come_back_as_they_were(
        specifications in prop::collection::btree_map(
            any::<String>(),
            (0..ELEMENT_BYTES.len(), prop::collection::vec(0_usize..4, 0..4), any::<u8>()),
            0..12,
        ).prop_map(|map| map.into_iter().collect::<Vec<_>>()).prop_shuffle()
    ) {
        round_trip(specifications.iter().map(|(name, (dtype, shape, first))| {
            let (dtype, element_bytes) = ELEMENT_BYTES[*dtype];
            let size = shape.iter().product::<usize>() * element_bytes;
            let bytes = (0_u8..=255).cycle().skip(usize::from(*first)).take(size);
            tensor(name, dtype, shape, &bytes.collect::<Vec<_>>())
        }).collect());
    }
}

#[test]
fn on_a_real_disk_files_come_back_with_their_bits_although_overwritten_in_place() {
    let directory = tempfile::tempdir().expect("there is room");
    let trial = directory.path().join("trial");
    assert!(!Store::has_checkpoint(&trial));
    assert!(!trial.exists());

    let (model, link) = (
        directory.path().join("best.h5"),
        directory.path().join("link.h5"),
    );
    real::write(&model, vec![7; 3 << 20]).expect("there is room");
    real::set_permissions(&model, real::Permissions::from_mode(0o600)).expect("it is ours");
    symlink("best.h5", &link).expect("the name is free");
    real::create_dir(&trial).expect("the name is free");
    let store = Store::open(&trial);
    let large = tensor("large", "uint8", &[(3 << 20) + 5], &vec![9; (3 << 20) + 5]);
    let tensors = [snapshot(100, 1).tensors, vec![large]].concat();
    let files = vec![model.clone(), link.clone()];
    let snapshot = Snapshot {
        tensors,
        files,
        ..snapshot(100, 1)
    };
    let folder = store.save(&snapshot).expect("nothing fails");
    assert!(Store::has_checkpoint(&trial));
    let latest = real::read_link(trial.join("latest")).expect("it is a link");
    assert_eq!(latest, Path::new("checkpoints/batch-0000000100"));

    let manifest = real::read(folder.join("manifest.json")).expect("it is there");
    let manifest = Manifest::parse(&manifest).expect("it is whole");
    let pack = format!(
        "checkpoints/tensors/{}.safetensors",
        manifest.packs[0].blake3
    );
    let bytes = real::read(trial.join(pack)).expect("it is there");
    let read_by_others = safetensors::SafeTensors::deserialize(&bytes).expect("it is the format");
    assert_eq!(
        read_by_others
            .tensor("iterations")
            .expect("it is there")
            .data(),
        [1; 8]
    );

    real::write(&model, b"overwritten in place").expect("there is room");
    real::set_permissions(&model, real::Permissions::from_mode(0o666)).expect("it is ours");
    let newest = Store::open(&trial).newest().expect("it is whole");
    let checkpoint = newest.checkpoint.expect("it is there");
    assert_eq!(checkpoint.tensors, snapshot.tensors);
    assert!(checkpoint.restore_file(&link).expect("nothing fails"));
    assert_eq!(
        real::read_link(&link).expect("it is a link still"),
        Path::new("best.h5")
    );
    assert_eq!(real::read(&model).expect("it is there"), vec![7; 3 << 20]);
    let mode = real::metadata(&model)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o600);

    real::remove_file(&model).expect("it is there");
    assert!(checkpoint.restore_file(&model).expect("nothing fails"));
    assert_eq!(real::read(&model).expect("it is there"), vec![7; 3 << 20]);
    let directory = store.capture(&[directory.path().to_owned()]);
    assert_eq!(
        directory.expect_err("it is no file").class(),
        Class::NotStorable
    );
}

/// A trial on a real disk with one checkpoint, and the paths of its files.
fn real_trial() -> (tempfile::TempDir, Vec<PathBuf>) {
    let directory = tempfile::tempdir().expect("there is room");
    let (trial, kept) = (
        directory.path().join("trial"),
        directory.path().join("kept"),
    );
    real::create_dir(&trial).expect("made");
    real::write(&kept, "of the script").expect("written");
    let snapshot = Snapshot {
        files: vec![kept],
        ..snapshot(100, 1)
    };
    let folder = Store::open(&trial).save(&snapshot).expect("there is room");
    let mut files = vec![folder.join("manifest.json"), folder.join("state.json")];
    for shared in ["files", "tensors"] {
        let entries = real::read_dir(trial.join("checkpoints").join(shared)).expect("it is there");
        files.extend(entries.map(|entry| entry.expect("a name").path()));
    }
    assert_eq!(files.len(), 4);
    (directory, files)
}

#[test]
fn a_link_in_place_of_a_file_is_not_followed() {
    let (directory, files) = real_trial();
    let trial = directory.path().join("trial");
    for path in files {
        let aside = directory.path().join("aside");
        real::rename(&path, &aside).expect("renamed");
        symlink(&aside, &path).expect("linked");
        for depth in [Depth::Sizes, Depth::Bytes] {
            let found = Store::open(&trial).inspect(depth).expect("it is listed");
            assert!(found[0].damage[0].contains("it is a link"), "{found:?}");
        }
        // It is no damage: then the checkpoint would be set aside, and training begin again.
        let error = Store::open(&trial).newest().expect_err("it is a link");
        assert!(error.to_string().contains("it is a link"), "{error}");
        assert!(error.hint().expect("advice").contains("cp -rL"), "{error}");
        real::remove_file(&path).expect("removed");
        real::rename(&aside, &path).expect("renamed");
    }
    assert!(
        Store::open(&trial)
            .newest()
            .expect("it is whole")
            .checkpoint
            .is_some()
    );
}

#[test]
fn nobody_waits_for_a_pipe_in_place_of_a_file() {
    let (directory, files) = real_trial();
    let trial = directory.path().join("trial");
    for path in files {
        let aside = directory.path().join("aside");
        real::rename(&path, &aside).expect("renamed");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            0o400.into(),
            0,
        )
        .expect("made");
        let found = Store::open(&trial)
            .inspect(Depth::Bytes)
            .expect("it is listed");
        assert!(!found[0].damage.is_empty(), "{found:?}");
        Store::open(&trial).newest().expect_err("it is a pipe");
        real::remove_file(&path).expect("removed");
        real::rename(&aside, &path).expect("renamed");
    }
}

/// Changes the manifest of the only checkpoint, and gives it the right hash.
fn change_manifest(trial: &Path, change: impl FnOnce(&mut Manifest)) {
    let path = trial.join("checkpoints/batch-0000000100/manifest.json");
    let mut manifest = Manifest::parse(&real::read(&path).expect("read")).expect("it is whole");
    change(&mut manifest);
    real::write(path, manifest.to_text().expect("it is JSON")).expect("written");
}

/// The messages of inspecting and of loading a checkpoint that was made by hand.
fn said_of(trial: &Path) -> (String, String) {
    let found = Store::open(trial)
        .inspect(Depth::Bytes)
        .expect("it is listed");
    let loaded = Store::open(trial).load(100).expect_err("it is refused");
    (found[0].damage.join("; "), loaded.to_string())
}

#[test]
fn a_thousand_tensors_that_are_one_do_not_fill_the_memory() {
    let (directory, _) = real_trial();
    let trial = directory.path().join("trial");
    // A sparse file of a terabyte: each of the tensors would be a copy of it.
    let size = 1_u64 << 40;
    change_manifest(&trial, |manifest| {
        let mut tensor = manifest.tensors[0].clone();
        tensor.dtype = "uint8".to_owned();
        tensor.shape = vec![1 << 40];
        tensor.size = size;
        for number in 0..1000 {
            tensor.name = number.to_string();
            manifest.tensors.push(tensor.clone());
        }
    });
    let error = Store::open(&trial).load(100).expect_err("it is refused");
    assert!(error.to_string().contains("bytes of memory"), "{error}");
}

#[test]
fn a_pack_is_read_by_what_it_is_and_not_by_what_is_said_of_it() {
    let (directory, _) = real_trial();
    let trial = directory.path().join("trial");
    change_manifest(&trial, |manifest| {
        manifest.tensors[0].shape = vec![1 << 20];
        manifest.tensors[0].size = 4 << 20;
    });
    let loaded = said_of_loading(&trial);
    assert!(loaded.contains("does not match the hash"), "{loaded}");
    change_manifest(&trial, |manifest| {
        manifest.tensors[0].shape = vec![2, 2];
        manifest.tensors[0].size = 16;
        let mut second = manifest.tensors[0].clone();
        second.name = "second\u{1b}[31m".to_owned();
        second.blake3 = "0".repeat(64);
        manifest.tensors.insert(0, second);
    });
    let loaded = said_of_loading(&trial);
    assert!(loaded.contains("two different tensors"), "{loaded}");
}

fn said_of_loading(trial: &Path) -> String {
    let error = Store::open(trial).load(100).expect_err("it is refused");
    error.to_string()
}

#[test]
fn a_manifest_that_is_all_holes_is_not_read() {
    let (directory, files) = real_trial();
    let manifest = real::OpenOptions::new()
        .write(true)
        .open(&files[0])
        .expect("opened");
    manifest
        .set_len(1 << 42)
        .expect("the file system has holes");
    let (seen, loaded) = said_of(&directory.path().join("trial"));
    for said in [seen, loaded] {
        assert!(
            said.contains("`manifest.json` has 4398046511104 bytes"),
            "{said}"
        );
    }
}
