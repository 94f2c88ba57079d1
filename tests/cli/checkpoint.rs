//! `pedl checkpoint`, on trials whose checkpoints are made here.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pedl_core::checkpoint::{Snapshot, Store, Tensor};
use serde_json::{Value, json};

use crate::support::{Dir, Output, TestCommand};

fn checkpoint(directory: &Dir, arguments: &[&str]) -> Output {
    TestCommand::pedl_run()
        .args(["--pedl", "checkpoint"])
        .args(arguments)
        .current_dir(directory.path())
        .output()
}

/// A trial with checkpoints after 100 and 200 batches, of which the newer has a validation. `body`
/// is the same in both.
fn trial(directory: &Dir, name: &str) -> PathBuf {
    let trial = directory.join(".pedl").join(name);
    fs::create_dir_all(&trial).expect("made");
    fs::write(trial.join("trial.json"), "{}").expect("written");
    let event = json!({"event": "validation", "batch": 200, "metrics": {"val_loss": 0.25}});
    fs::write(trial.join("events.jsonl"), format!("{event}\n")).expect("written");
    let store = Store::open(&trial);
    for batch in [100, 200_u8] {
        let tensor = |name: &str, salt: u8, size: usize| Tensor {
            name: name.to_owned(),
            dtype: "uint8".to_owned(),
            shape: vec![size],
            bytes: vec![salt; size],
        };
        let snapshot = Snapshot {
            batch: batch.into(),
            step: u64::from(batch) / 100,
            epoch: Some(1),
            state: "{}".to_owned(),
            log_offset: LOG_HEAD.len() as u64,
            tensors: vec![tensor("body", 0, 4_000), tensor("head", batch, 1_500)],
            validations: BTreeMap::new(),
            ..Snapshot::default()
        };
        store.save(&snapshot).expect("there is room");
    }
    trial
}

fn json_of(output: &Output) -> Value {
    serde_json::from_str(&output.stdout).expect("it is JSON")
}

fn flip(path: &Path) {
    let mut content = fs::read(path).expect("it is there");
    let middle = content.len() / 2;
    content[middle] ^= 1;
    fs::write(path, content).expect("written");
}

fn packs(trial: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(trial.join("checkpoints/tensors")).expect("it is there");
    let mut packs: Vec<_> = names.map(|name| name.expect("a name").path()).collect();
    packs.sort_by_key(|path| fs::metadata(path).expect("it is there").len());
    packs
}

#[test]
fn the_list_says_what_each_holds() {
    let directory = Dir::new();
    trial(&directory, "train");
    let output = checkpoint(&directory, &["list"])
        .assert_code(0)
        .assert_stderr("");
    let lines: Vec<_> = output.stdout.lines().collect();
    assert!(
        lines[0].starts_with("checkpoint        batch  step  epoch    size     new  age"),
        "{output}"
    );
    assert!(
        lines[1].starts_with("batch-0000000200    200     2      1  5.5 kB  1.5 kB  "),
        "{output}"
    );
    assert!(lines[1].ends_with("whole  val_loss 0.25"), "{output}");
    assert!(
        lines[2].starts_with("batch-0000000100    100     1      1  5.5 kB  5.5 kB  "),
        "{output}"
    );
    let listed = json_of(&checkpoint(&directory, &["list", "--json", ".pedl/train"]));
    assert_eq!(
        (&listed[0]["batch"], &listed[0]["new_bytes"]),
        (&json!(200), &json!(1_502))
    );
    assert_eq!(
        (&listed[0]["metrics"]["val_loss"], &listed[1]["whole"]),
        (&json!(0.25), &json!(true))
    );
}

#[test]
fn one_is_shown_with_its_tensors() {
    let directory = Dir::new();
    trial(&directory, "train");
    let text = checkpoint(&directory, &["show"]).assert_code(0).stdout;
    for part in [
        "batch-0000000200 (",
        "batch 200, step 2, epoch 1",
        "5.5 kB, of which 1.5 kB were new",
        "body    uint8  [4000]  4.0 kB",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let shown = checkpoint(&directory, &["show", "--json", "--checkpoint", "100"]);
    let shown = json_of(&shown.assert_code(0));
    assert_eq!(shown["manifest"]["tensors"][1]["name"], "head");
    checkpoint(&directory, &["show", "--checkpoint=300"])
        .assert_code(65)
        .assert_stderr(
            "pedl: error: there is no checkpoint `300` in `.pedl/train`\n  \
         there is: batch-0000000200, batch-0000000100\n",
        );
}

#[test]
fn every_byte_is_verified() {
    let directory = Dir::new();
    let trial = trial(&directory, "train");
    // The trial was made without a log, and the log is verified too.
    let verified = checkpoint(&directory, &["verify"]).assert_code(65);
    assert_eq!(
        verified.stdout.matches("calls.log").count(),
        2,
        "{verified}"
    );

    let packs = packs(&trial);
    assert_eq!(packs.len(), 2);
    let whole = |index: usize| {
        let json = json_of(&checkpoint(&directory, &["verify", "--json"]));
        let damage = json["checkpoints"][index]["damage"]
            .as_array()
            .map(Vec::len);
        // All damage except that of the log.
        damage.map(|number| number - 1)
    };
    assert_eq!((whole(0), whole(1)), (Some(0), Some(0)));
    flip(&packs[0]);
    assert_eq!((whole(0), whole(1)), (Some(1), Some(0)));
    flip(&packs[0]);
    flip(&packs[1]);
    assert_eq!((whole(0), whole(1)), (Some(1), Some(1)));
    let text = checkpoint(&directory, &["verify"]).stdout;
    assert!(
        text.contains("does not match the hash of its tensor `body`"),
        "{text}"
    );
    // All sizes are right, so the list does not see the damage.
    let list = checkpoint(&directory, &["list"]).stdout;
    assert_eq!(list.matches("whole").count(), 2, "{list}");
    fs::remove_file(&packs[1]).expect("it is there");
    let list = checkpoint(&directory, &["list"]).stdout;
    assert_eq!(list.matches("is missing").count(), 2, "{list}");
}

#[test]
fn without_a_name_there_has_to_be_one_trial() {
    let directory = Dir::new();
    checkpoint(&directory, &["list"])
        .assert_code(64)
        .assert_stderr(
            "pedl: error: there is no trial below `./.pedl`\n\
         hint: name the trial directory: `pedl checkpoint ACTION TRIAL_DIR`\n",
        );
    trial(&directory, "one");
    trial(&directory, "two");
    checkpoint(&directory, &["list"]).assert_code(64).assert_stderr(
        "pedl: error: there are 2 trials below `./.pedl`\n  there is: `.pedl/one`, `.pedl/two`\n\
         hint: name one of them: `pedl checkpoint ACTION TRIAL_DIR`\n",
    );
    checkpoint(&directory, &["list", ".pedl/two"]).assert_code(0);
    checkpoint(&directory, &["list", "."])
        .assert_code(64)
        .assert_stderr(
            "pedl: error: `.` is no trial directory\n  expected: a directory with `trial.json`\n\
         hint: name the directory that `--trial-dir` named, or one below `.pedl`\n",
        );
}

#[test]
fn what_is_not_known_is_refused() {
    let directory = Dir::new();
    let hint = "hint: `pedl checkpoint --help` lists what can be asked for\n";
    for (arguments, what) in [
        (&["frob"][..], "`pedl checkpoint` does not know `frob`"),
        (&["list", "a", "b"], "unexpected argument `b`"),
        (
            &["list", "--checkpoint", "1"],
            "`--checkpoint` is no option of `pedl checkpoint list`",
        ),
        (&["show", "--checkpoint"], "`--checkpoint` has no value"),
    ] {
        let output = checkpoint(&directory, arguments).assert_code(64);
        assert!(
            output.stderr.starts_with(&format!("pedl: error: {what}\n")),
            "{output}"
        );
        assert!(output.stderr.ends_with(hint), "{output}");
    }
    let help = checkpoint(&directory, &["--help"]).assert_code(0).stdout;
    assert!(help.starts_with("usage: pedl checkpoint ACTION"), "{help}");
    assert!(help.lines().all(|line| line.len() <= 90), "{help}");
}

/// Magic, version and checksum of a log.
const LOG_HEAD: &[u8; 16] = b"pedlcall\x02\x00\x00\x00U\x1f\xc4<";

/// A trial with a log without calls: only its head, which is as long as the checkpoints say.
fn trial_with_log(directory: &Dir) -> PathBuf {
    let trial = trial(directory, "train");
    fs::write(trial.join("calls.log"), LOG_HEAD).expect("written");
    trial
}

#[test]
fn a_snapshot_is_the_trial_again() {
    let directory = Dir::new();
    let trial = trial_with_log(&directory);
    let expected = checkpoint(&directory, &["list", "--json"]).assert_code(0);
    let names = |output: &Output| -> Vec<_> {
        let listed = json_of(output);
        let listed = listed.as_array().expect("a list").clone();
        let uuid = |it: &Value| (it["uuid"].clone(), it["metrics"].clone());
        listed.iter().map(uuid).collect()
    };
    let made = checkpoint(&directory, &["snapshot", ".pedl/train", "copy"]).assert_code(0);
    assert!(
        made.stdout
            .starts_with("copy: batch-0000000200, batch-0000000100, "),
        "{made}"
    );
    let listed = checkpoint(&directory, &["list", "--json", "copy"]).assert_code(0);
    assert_eq!(names(&listed), names(&expected));
    checkpoint(&directory, &["verify", "copy"]).assert_code(0);
    let pack = |trial: &Path| {
        let packs = packs(trial);
        fs::metadata(&packs[0]).expect("it is there").ino()
    };
    assert_eq!(pack(&directory.join("copy")), pack(&trial));

    let archive = Command::new(env!("CARGO_BIN_EXE_pedl-run"))
        .args(["--pedl", "checkpoint", "snapshot", ".pedl/train", "-"])
        .current_dir(directory.path())
        .output()
        .expect("it can be started")
        .stdout;
    fs::create_dir(directory.join("elsewhere")).expect("made");
    tar::Archive::new(&archive[..])
        .unpack(directory.join("elsewhere"))
        .expect("it is an archive");
    let listed = checkpoint(&directory, &["list", "--json", "elsewhere/train"]).assert_code(0);
    assert_eq!(names(&listed), names(&expected));
    checkpoint(&directory, &["verify", "elsewhere/train"]).assert_code(0);
    let latest = fs::read_link(directory.join("elsewhere/train/latest")).expect("it is a link");
    assert_eq!(latest, Path::new("checkpoints/batch-0000000200"));
}

#[test]
fn a_snapshot_that_cannot_be_made_is_none() {
    let directory = Dir::new();
    let trial = trial_with_log(&directory);
    fs::create_dir(directory.join("taken")).expect("made");
    for (arguments, code, what) in [
        (
            &["snapshot", ".pedl/train"][..],
            64,
            "`pedl checkpoint snapshot` needs a trial and a destination",
        ),
        (
            &["snapshot", ".pedl/train", "taken"],
            73,
            "`taken` is there already",
        ),
        (
            &["snapshot", ".pedl/train", ".pedl/train/copy"],
            64,
            "`.pedl/train/copy` is in the trial itself",
        ),
        (
            &["snapshot", ".pedl/train", "missing/copy"],
            73,
            "cannot make directory `missing/.copy.pedl-",
        ),
    ] {
        let output = checkpoint(&directory, arguments).assert_code(code);
        let start = format!("pedl: error: {what}");
        assert!(output.stderr.starts_with(&start), "{output}");
    }
    for pack in packs(&trial) {
        fs::remove_file(pack).expect("it is there");
    }
    let output = checkpoint(&directory, &["snapshot", ".pedl/train", "copy"]).assert_code(65);
    let start = "pedl: error: there is no checkpoint in `.pedl/train` that is whole\n";
    assert!(output.stderr.starts_with(start), "{output}");
    assert!(!directory.join("copy").exists());
}

#[test]
fn names_that_somebody_has_made_up_do_nothing_to_a_terminal() {
    const EVIL: &str = "\u{1b}]0;title\u{7}\u{9b}2J\nhint: do it\r\u{202e}";
    let directory = Dir::new();
    let trial = trial(&directory, "train");
    let kept = directory.join(format!("kept{EVIL}"));
    fs::write(&kept, "of the script").expect("written");
    let event =
        json!({"event": "validation", "batch": 300, "metrics": {EVIL: EVIL, "large": 1e300}});
    let torn =
        "{\"event\": \"validation\", \"batch\": 300, \"metrics\": {\"x\": 1e999, \"y\": NaN}}";
    let journal = format!("{event}\n{torn}\n{}\n", "[".repeat(100_000));
    fs::write(trial.join("events.jsonl"), journal).expect("written");
    let tensor = Tensor {
        name: EVIL.to_owned(),
        dtype: "uint8".to_owned(),
        shape: vec![1],
        bytes: vec![0],
    };
    let snapshot = Snapshot {
        batch: 300,
        state: "{}".to_owned(),
        log_offset: LOG_HEAD.len() as u64,
        tensors: vec![tensor],
        files: vec![kept],
        ..Snapshot::default()
    };
    Store::open(&trial).save(&snapshot).expect("there is room");
    let check = |arguments: &[&str], code: i32| {
        let output = checkpoint(&directory, arguments).assert_code(code);
        let texts = [&output.stdout, &output.stderr];
        let mut characters = texts.into_iter().flat_map(|text| text.chars());
        let active = characters.find(|&it| it != '\n' && (it.is_control() || it == '\u{202e}'));
        assert_eq!(active, None, "{output}");
        let texts = [&output.stdout, &output.stderr];
        let mut lines = texts.into_iter().flat_map(|text| text.lines());
        assert!(
            !lines.any(|line| line.starts_with("hint: do it")),
            "{output}"
        );
        output.stdout.clone() + &output.stderr
    };
    assert!(check(&["list"], 0).contains(r"\u{1b}]0;title\u{7}\u{9b}2J\u{a}hint: do it"));
    assert!(check(&["show"], 0).contains(r"kept\u{1b}]0;title"));
    // The tensor and the kept file are damaged.
    for folder in ["tensors", "files"] {
        for entry in fs::read_dir(trial.join("checkpoints").join(folder)).expect("it is there") {
            flip(&entry.expect("a name").path());
        }
    }
    assert!(check(&["verify"], 65).contains(r"kept\u{1b}]0;title"));
    check(&["show", "--checkpoint", EVIL], 65);
    check(&[EVIL], 64);
}
