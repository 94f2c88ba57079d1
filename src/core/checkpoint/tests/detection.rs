//! Tests that damage is found, wherever it is.

use super::*;

/// Paths of all files of the checkpoint of a batch.
fn files_of(fs: &CrashFs, batch: u64) -> Vec<PathBuf> {
    let layout = Layout::new(Path::new(TRIAL));
    let folder = layout.committed(batch);
    let manifest = fs.content(&folder.join("manifest.json"));
    let manifest = Manifest::parse(&manifest).expect("it is whole");
    let own = ["manifest.json", "state.json"].map(|name| folder.join(name));
    let packs = manifest.packs.iter().map(|pack| layout.pack(&pack.blake3));
    let contents = manifest
        .kept
        .iter()
        .map(|kept| layout.content(&kept.blake3));
    own.into_iter().chain(packs).chain(contents).collect()
}

fn flipped(intact: &[u8], bit: usize) -> Vec<u8> {
    let mut flipped = intact.to_vec();
    flipped[bit / 8] ^= 1 << (bit % 8);
    flipped
}

/// Whether a bit of a pack is in a tensor that only an older checkpoint has, whose bytes are all
/// `salt`.
fn is_of_older_only(path: &Path, intact: &[u8], bit: usize, salt: u8) -> bool {
    path.starts_with("/trial/checkpoints/tensors") && bit / 8 >= 8 && intact[bit / 8] == salt
}

#[test]
#[expect(clippy::print_stdout, reason = "it is what is measured")]
fn every_flipped_bit_is_found_and_the_older_checkpoint_used() {
    let fs = disk();
    save(&fs, 100, 1).expect("nothing fails");
    let older: BTreeSet<_> = files_of(&fs, 100).into_iter().collect();
    save(&fs, 200, 2).expect("nothing fails");
    let files = files_of(&fs, 200);
    let shared: Vec<_> = files.iter().filter(|path| older.contains(*path)).collect();
    // The pack with the tensor that never changes, and the file that never does.
    assert_eq!((files.len(), shared.len()), (6, 2), "{files:?}");

    let (store, mut flips, mut not_needed) = (store(&fs), 0, 0);
    for path in &files {
        let intact = fs.content(path);
        let is_shared = older.contains(path);
        let when = path.display();
        let check = |damaged: &[u8], is_needed: bool| {
            fs.overwrite(path, damaged);
            let newest = store.newest().expect("damage is no error");
            let batch = newest
                .checkpoint
                .map(|checkpoint| checkpoint.manifest.batch);
            let expected = match (is_needed, is_shared) {
                (false, _) => (Some(200), 0),
                (true, false) => (Some(100), 1),
                (true, true) => (None, 2),
            };
            assert_eq!((batch, newest.damaged.len()), expected, "{when}");
            assert!(newest.damaged.iter().all(Error::is_corrupt), "{when}");
        };
        let look = |when: &str| {
            let found = store.inspect(Depth::Bytes).expect("damage is no error");
            assert!(found.iter().any(|found| !found.damage.is_empty()), "{when}");
        };
        for bit in 0..intact.len() * 8 {
            let is_needed = !is_shared || !is_of_older_only(path, &intact, bit, 1);
            not_needed += usize::from(!is_needed);
            flips += 1;
            check(&flipped(&intact, bit), is_needed);
            look("whoever needs it");
        }
        for length in (0..intact.len()).step_by(7) {
            check(&intact[..length], true);
        }
        check(&[&intact[..], b"\n"].concat(), true);
        check(&[&intact[..], b"\0"].concat(), true);
        fs.overwrite(path, &intact);
    }
    assert_eq!(not_needed, 24 * 8);
    assert!(flips > 20_000, "{flips} flips");
    let found = store.inspect(Depth::Bytes).expect("all is as it was");
    let found: Vec<_> = found.iter().map(|it| (it.batch, it.damage.len())).collect();
    assert_eq!(found, [(200, 0), (100, 0)]);
    println!("{flips} single bits flipped, in {} files", files.len());
    check_newest(&fs, &[Some((200, 2))], "all is as it was");
}

/// Flips random bits of a checkpoint of 4 MB, which shares one tensor with an older one.
#[expect(clippy::print_stdout, reason = "it is what is measured")]
fn check_random_flips(number: u64) {
    let fs = disk();
    let store = store(&fs);
    let large = |salt: u8| {
        let bytes = |seed: u8| (0..1_u32 << 20).map(move |at| at.to_le_bytes()[1] ^ seed);
        let bytes = |seed: u8| bytes(seed).collect::<Vec<_>>();
        let tensors = [("frozen", 0), ("changed", salt), ("also", salt | 0x80)];
        let tensors = tensors.map(|(name, seed)| tensor(name, "uint8", &[1 << 20], &bytes(seed)));
        Snapshot {
            tensors: tensors.to_vec(),
            state: "x".repeat(1 << 20),
            ..snapshot(u64::from(salt) * 100, salt)
        }
    };
    for salt in 1..=3 {
        store.save(&large(salt)).expect("nothing fails");
    }
    let files = files_of(&fs, 300);
    let intact: Vec<_> = files.iter().map(|path| fs.content(path)).collect();
    let bits: usize = intact.iter().map(|content| content.len() * 8).sum();
    for number in 0..number {
        let mut bit = usize::try_from(mix(7, number)).expect("64 bits") % bits;
        let mut place = 0;
        while bit >= intact[place].len() * 8 {
            bit -= intact[place].len() * 8;
            place += 1;
        }
        fs.overwrite(&files[place], &flipped(&intact[place], bit));
        let newest = store.newest().expect("damage is no error");
        let when = format!("bit {bit} of {}", files[place].display());
        assert!(
            newest.damaged.first().is_some_and(Error::is_corrupt),
            "{when}"
        );
        fs.overwrite(&files[place], &intact[place]);
    }
    let newest = store.newest().expect("all is as it was");
    assert_eq!(newest.checkpoint.expect("it is whole").manifest.batch, 300);
    assert!(newest.damaged.is_empty());
    println!("{number} random bits of {bits} flipped");
}

#[test]
fn random_flipped_bits_of_a_large_checkpoint_are_found() {
    check_random_flips(50);
}

#[test]
#[ignore = "takes minutes: cargo test --release -p pedl-core -- --ignored ten_thousand"]
fn ten_thousand_random_flipped_bits_of_a_large_checkpoint_are_found() {
    check_random_flips(10_000);
}
