//! Tests that a tensor that does not change is stored once.

use super::*;

/// Saves a checkpoint with these tensors: name, salt, bytes.
fn save_tensors(store: &Store<CrashFs>, batch: u64, tensors: &[(&str, u8, usize)]) {
    let tensors = tensors.iter().map(|&(name, salt, size)| {
        let bytes: Vec<_> = (0..size).map(|at| at.to_le_bytes()[0] ^ salt).collect();
        tensor(name, "uint8", &[size], &bytes)
    });
    let snapshot = Snapshot {
        tensors: tensors.collect(),
        files: Vec::new(),
        ..snapshot(batch, 1)
    };
    store.save(&snapshot).expect("nothing fails");
    let newest = store.newest().expect("it can be read");
    assert!(newest.damaged.is_empty(), "{:?}", newest.damaged);
    let loaded = newest.checkpoint.expect("it is there");
    assert_eq!(loaded.tensors, snapshot.tensors, "batch {batch}");
}

fn newest(store: &Store<CrashFs>) -> Manifest {
    let newest = store.newest().expect("it can be read").checkpoint;
    newest.expect("it is whole").manifest
}

fn packs(fs: &CrashFs) -> usize {
    names(fs, "checkpoints/tensors").len()
}

/// A header, whose size is that of its text.
fn size_on_disk(fs: &CrashFs) -> usize {
    let directory = Path::new(TRIAL).join("checkpoints/tensors");
    let names = names(fs, "checkpoints/tensors").into_iter();
    names
        .map(|name| fs.content(&directory.join(name)).len())
        .sum()
}

const BODY: usize = 200_000;
const HEAD: usize = 70_000;

#[test]
fn an_unchanged_tensor_is_stored_once_over_all_checkpoints() {
    let fs = disk();
    let store = store(&fs);
    for batch in 1..=6_u8 {
        save_tensors(
            &store,
            batch.into(),
            &[("body", 0, BODY), ("head", batch, HEAD)],
        );
        let written = if batch == 1 { BODY + HEAD } else { HEAD };
        assert_eq!(newest(&store).written, written as u64, "batch {batch}");
    }
    // The first pack, for the body, and the packs of the two heads that are kept.
    assert_eq!(packs(&fs), 3);
    assert!(
        size_on_disk(&fs) < BODY + 3 * HEAD + 3_000,
        "{}",
        size_on_disk(&fs)
    );
}

#[test]
fn a_checkpoint_in_which_nothing_changed_writes_no_tensor() {
    let fs = disk();
    let store = store(&fs);
    for batch in 1..=3 {
        save_tensors(
            &store,
            batch,
            &[("body", 0, BODY), ("zeros", 0, 8), ("more zeros", 0, 8)],
        );
    }
    assert_eq!((packs(&fs), newest(&store).written), (1, 0));
}

#[test]
fn what_settles_gets_a_pack_of_its_own_where_its_old_one_is_mostly_dead() {
    let fs = disk();
    let store = store(&fs);
    for batch in 1..=5_u8 {
        save_tensors(
            &store,
            batch.into(),
            &[("body", batch, BODY), ("head", 9, HEAD)],
        );
        let written = if batch <= 2 { BODY + HEAD } else { BODY };
        assert_eq!(newest(&store).written, written as u64, "batch {batch}");
    }
    assert_eq!(packs(&fs), 3);
    assert!(
        size_on_disk(&fs) < 2 * BODY + HEAD + 3_000,
        "{}",
        size_on_disk(&fs)
    );
}

#[test]
fn what_is_little_costs_no_file() {
    let fs = disk();
    let store = store(&fs);
    for batch in 1..=5_u8 {
        save_tensors(
            &store,
            batch.into(),
            &[("body", batch, BODY), ("rate", 9, 4)],
        );
        assert_eq!(
            (newest(&store).packs.len(), newest(&store).written),
            (1, (BODY + 4) as u64)
        );
    }
    assert_eq!(packs(&fs), 2);
}

const LAYERS: usize = 40;

/// With each batch, another tensor stops changing.
#[test]
fn packs_of_a_checkpoint_are_few_and_at_least_half_needed() {
    let fs = disk();
    let store = store(&fs);
    let layers: Vec<_> = (0..LAYERS).map(|layer| format!("layer {layer}")).collect();
    for batch in 1..=60_u8 {
        let of = |(at, name)| {
            let settled = u8::try_from(at).expect("they are few").min(batch);
            let salt = if usize::from(batch) > at {
                200 - settled
            } else {
                batch
            };
            (name, salt, 3_000 + at)
        };
        let tensors: Vec<_> = layers
            .iter()
            .map(String::as_str)
            .enumerate()
            .map(of)
            .collect();
        save_tensors(&store, batch.into(), &tensors);
        let manifest = newest(&store);
        let all: u64 = manifest.packs.iter().map(|pack| pack.tensors_size).sum();
        let needed: u64 = manifest.tensors.iter().map(|stored| stored.size).sum();
        assert!(
            all <= 2 * needed,
            "batch {batch}: {needed} of {all} bytes needed"
        );
        assert!(manifest.packs.len() <= 18, "{} packs", manifest.packs.len());
    }
}

#[test]
fn a_pack_that_is_gone_or_cut_off_is_not_named_again() {
    for damage in [None, Some(&b"cut off"[..])] {
        let fs = disk();
        let store = store(&fs);
        save_tensors(&store, 1, &[("body", 0, BODY)]);
        let name = names(&fs, "checkpoints/tensors").remove(0);
        let path = Path::new(TRIAL).join("checkpoints/tensors").join(name);
        match damage {
            None => assert!(fs.remove_file(&path).expect("it is there")),
            Some(bytes) => fs.overwrite(&path, bytes),
        }
        save_tensors(&store, 2, &[("body", 0, BODY)]);
        assert_eq!(newest(&store).written, BODY as u64);
    }
}

#[test]
fn a_crash_while_something_settles_leaves_the_old_checkpoint_or_the_new_one() {
    let prepared = disk();
    let tensors = |batch: u8| [("body", batch, BODY), ("head", 9, HEAD)];
    save_tensors(&store(&prepared), 1, &tensors(1));
    let prepared = prepared.after_power_cut(Kept::Everything);
    for dies_at in 0.. {
        let fs = prepared.after_power_cut(Kept::Everything);
        fs.fail(Fails::From(dies_at));
        let trained = Snapshot {
            tensors: tensors(2)
                .map(|(name, salt, size)| tensor(name, "uint8", &[size], &vec![salt; size]))
                .to_vec(),
            files: Vec::new(),
            ..snapshot(2, 1)
        };
        let outcome = store(&fs).save(&trained);
        let is_over = fs.operations() <= dies_at;
        for kept in [
            Kept::Everything,
            Kept::Nothing,
            Kept::Names,
            Kept::Contents,
            Kept::Any(1),
        ] {
            let after = fs.after_power_cut(kept);
            let found = store(&after).newest().expect("it can be read");
            assert!(
                found.damaged.is_empty(),
                "died at {dies_at}: {:?}",
                found.damaged
            );
            let batch = found.checkpoint.expect("it is there").manifest.batch;
            assert!(
                batch == 2 || outcome.is_err() && batch == 1,
                "died at {dies_at}: {batch}"
            );
            save_tensors(&store(&after), 3, &tensors(3));
            assert!(
                packs(&after) <= 4,
                "died at {dies_at}: {:?}",
                names(&after, "checkpoints/tensors")
            );
        }
        if is_over {
            break;
        }
    }
}

/// How many changing operations a commit takes, and how many of them wait for the disk. More than
/// this would be a loss: each can fail, and those that wait determine the time of a checkpoint on a
/// slow disk.
#[test]
#[expect(clippy::print_stdout, reason = "it is what is measured")]
fn a_commit_takes_few_operations() {
    let fs = disk();
    let store = store(&fs);
    let mut counts = Vec::new();
    for (batch, salts) in [(1, (1, 1)), (2, (1, 2)), (3, (1, 2)), (4, (1, 3))] {
        fs.fail(Fails::Never);
        save_tensors(
            &store,
            batch,
            &[("body", salts.0, BODY), ("head", salts.1, HEAD)],
        );
        counts.push((fs.operations(), fs.syncs()));
    }
    println!("operations, and of them syncs: {counts:?}");
    // Makes the directories; writes a pack; none, and removes an old checkpoint; a pack, and
    // removes both. Tensors of this size are not collected into one write, which would need their
    // memory once more.
    assert_eq!(counts, [(27, 10), (20, 7), (19, 6), (25, 8)]);
}
