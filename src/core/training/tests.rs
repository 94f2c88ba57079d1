//! Tests of the guarantees of a training over several starts, on real files.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::calls::value::ArrayClass;
use crate::checkpoint::Tensor;
use crate::live_copy::LiveCopy;

fn launch(trial_dir: &Path) -> Launch {
    Launch {
        schema: crate::trial::LAUNCH_SCHEMA,
        trial_dir: trial_dir.to_owned(),
        command: vec!["train.py".to_owned(), "--epochs".to_owned(), "3".to_owned()],
        python_options: vec!["-u".to_owned()],
        trial_id: 1,
        experiment_id: 1,
        trial_seed: 7,
        hash_seed: 9,
        started_in: None,
        hyperparameters: Map::new(),
        configuration: std::collections::BTreeMap::new(),
        experiment_seed: None,
        batches_per_step: 3,
        steps: None,
        validation_period: None,
        search: None,
        checkpoint_period: None,
        checkpoint_batches: Vec::new(),
        checkpoint_seconds: 60.0,
        grace_seconds: 25.0,
        exact: false,
        worker_timeout: None,
        log_limit_bytes: 1 << 30,
        no_hooks: Vec::new(),
        log_format: "text".to_owned(),
        events: None,
        verbosity: 0,
        threads: 2,
        notes: Vec::new(),
        replaces: None,
        serves: None,
        resume: false,
        attempt: 0,
        library: "/library".into(),
        mode: "embed".to_owned(),
        again: None,
    }
}

fn facts() -> Facts {
    Facts {
        python: "3.13.0".to_owned(),
        versions: [("numpy".to_owned(), "2.4.6".to_owned())].into(),
        cpu: "a processor".to_owned(),
    }
}

fn begin(trial_dir: &Path) -> Result<Training> {
    let mut training = Training::new(launch(trial_dir));
    training.begin(facts())?;
    Ok(training)
}

fn begun(trial_dir: &Path) -> Training {
    begin(trial_dir).unwrap_or_else(|error| panic!("{error}"))
}

fn stage() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("there is room");
    let trial_dir = directory.path().join("trial");
    (directory, trial_dir)
}

/// A stage with a trial of one batch and its checkpoint, which no process runs.
fn stage_after_a_batch() -> (tempfile::TempDir, PathBuf) {
    let (directory, trial_dir) = stage();
    let mut training = begun(&trial_dir);
    train(&mut training, 1);
    save(&mut training, 1);
    (directory, trial_dir)
}

/// The result of the `batch`th training call.
fn logs(batch: u64) -> Encoded {
    let mut encoded = Encoded::default();
    let mut encoder = encoded.encoder();
    encoder.dict(1);
    encoder.key().str(b"loss");
    encoder.array(ArrayClass::Scalar, "<u8", &[], &batch.to_le_bytes());
    encoded
}

fn call(training: &mut Training, batch: u64) -> Call {
    Call {
        kind: kind::TRAIN,
        identity: training.intern(b"train model 0"),
        site: training.intern(b"train.py:31"),
        draws: batch,
        arguments: 0,
    }
}

/// Makes the `batch`th training call as hooks do: answered, or computed and appended.
fn train(training: &mut Training, batch: u64) {
    let call = call(training, batch);
    if training.position() < training.resume_call() {
        let mut answer = Answer::default();
        training
            .check(&call, &logs(batch), &mut answer)
            .expect("it is the recorded one");
        training.batch_done(0.0).expect("it has begun");
    } else {
        training.append(&call, &logs(batch)).expect("there is room");
        if training
            .batch_done(0.0)
            .expect("it has begun")
            .step_ended
            .is_some()
        {
            training
                .end_step(Some(0), None, false)
                .expect("there is room");
        }
    }
}

fn tensors(batch: u64) -> Vec<Tensor> {
    vec![Tensor {
        name: "weights".to_owned(),
        dtype: "int64".to_owned(),
        shape: vec![1],
        bytes: batch.to_le_bytes().to_vec(),
    }]
}

fn save(training: &mut Training, batch: u64) {
    training
        .save(
            Some(0),
            tensors(batch),
            format!("{{\"batch\":{batch}}}"),
            Vec::new(),
        )
        .expect("there is room");
    wait(training);
}

fn wait(training: &mut Training) {
    if let Some(commit) = training.take_commit() {
        let is_committed = training.end_commit(commit.wait());
        assert!(is_committed.expect("there is room"));
    }
}

fn events(trial_dir: &Path, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(trial_dir.join(events::FILE_NAME)).expect("it is there");
    let events = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("it is JSON"));
    events.filter(|event| event["event"] == name).collect()
}

#[test]
fn nothing_is_touched_before_the_first_call() {
    let (_directory, trial_dir) = stage();
    let mut training = Training::new(launch(&trial_dir));
    training.intern(b"train.py:31");
    assert!(!training.has_checkpoint());
    assert_eq!((training.position(), training.resume_call()), (0, 0));
    training.end().expect("there is nothing recorded");
    drop(training);
    assert!(!trial_dir.exists());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// With any number of kills, and checkpoints at any batches, the recorded calls and the steps
    /// are those of an undisturbed run.
    #[test]
    fn kills_change_nothing(
        batches in 1..40_u64,
        kills in prop::collection::vec((1..40_u64, prop::collection::btree_set(1..40_u64, 0..4)), 0..4),
        torn in 0..50_usize,
    ) {
        let (_directory, trial_dir) = stage();
        for (last, saves) in kills {
            let mut training = begun(&trial_dir);
            for batch in 1..=last.min(batches) {
                train(&mut training, batch);
                let is_live = training.position() > training.resume_call();
                if saves.contains(&batch) && is_live {
                    save(&mut training, batch);
                }
            }
            // A kill leaves anything after the last checkpoint, or nothing.
            training.flush().expect("there is room");
            drop(training);
            let log = fs::read(trial_dir.join(LOG)).expect("it is there");
            let kept = Store::open(&trial_dir).newest().expect("it can be read");
            let mark = kept.checkpoint.map_or(0, |checkpoint| checkpoint.manifest.log_offset);
            let mark = usize::try_from(mark).expect("it is short");
            fs::write(trial_dir.join(LOG), &log[..log.len().min(mark + torn)]).expect("there is room");
        }
        let mut training = begun(&trial_dir);
        (1..=batches).for_each(|batch| train(&mut training, batch));
        prop_assert_eq!(training.position(), batches);
        save(&mut training, batches);

        let mut training = begun(&trial_dir);
        prop_assert_eq!(training.resume_call(), batches);
        prop_assert_eq!(training.take_tensors(), tensors(batches));
        (1..=batches).for_each(|batch| train(&mut training, batch));
        for step in events(&trial_dir, "step") {
            let number = step["step"].as_u64().expect("it is a number");
            prop_assert_eq!(&step["batches"], &json!([number * 3 - 2, number * 3]));
            #[expect(clippy::cast_precision_loss, reason = "it is small")]
            let middle = (number * 3 - 1) as f64;
            prop_assert_eq!(&step["metrics"], &json!({"loss": middle}));
        }
    }
}

#[test]
fn a_damaged_checkpoint_is_set_aside_and_the_older_one_used() {
    let (_directory, trial_dir) = stage();
    let mut training = begun(&trial_dir);
    for batch in 1..=4 {
        train(&mut training, batch);
        save(&mut training, batch);
    }
    drop(training);
    let state = trial_dir.join("checkpoints/batch-0000000004/state.json");
    fs::write(&state, "{}").expect("it is there");

    let mut training = begun(&trial_dir);
    assert_eq!(training.resume_call(), 3);
    let damaged = events(&trial_dir, "checkpoint_damaged");
    let message = damaged[0]["error"].as_str().expect("it is a text");
    assert!(message.contains("batch-0000000004"), "{message}");
    (1..=6).for_each(|batch| train(&mut training, batch));
    save(&mut training, 6);
    drop(training);
    assert_eq!(begun(&trial_dir).resume_call(), 6);
}

#[test]
fn without_a_whole_checkpoint_the_run_stops_and_nothing_is_changed() {
    let (_directory, trial_dir) = stage_after_a_batch();
    let log = fs::read(trial_dir.join(LOG)).expect("it is there");
    fs::write(trial_dir.join(LOG), &log[1..]).expect("there is room");

    let error = begin(&trial_dir).expect_err("nothing is whole");
    assert_eq!(
        (error.class(), error.exit_code()),
        (Class::CheckpointCorrupt, 65)
    );
    let message = error.to_string();
    assert!(message.starts_with("no checkpoint in `"), "{message}");
    assert!(
        message.ends_with(
            "nothing of the trial was changed, and the run was stopped before it trained"
        )
    );
    assert_eq!(
        fs::read(trial_dir.join(LOG)).expect("it is there"),
        &log[1..]
    );
    fs::write(trial_dir.join(LOG), &log).expect("there is room");
    assert_eq!(begun(&trial_dir).resume_call(), 1);
}

#[test]
fn another_command_is_refused() {
    let (_directory, trial_dir) = stage();
    drop(begun(&trial_dir));
    let mut other = launch(&trial_dir);
    other.command[2] = "4".to_owned();
    other.hyperparameters.insert("lr".to_owned(), json!(0.1));
    let error = Training::new(other)
        .begin(facts())
        .expect_err("it is another one");
    assert_eq!(
        (error.class(), error.exit_code()),
        (Class::WrongCommand, 65)
    );
    assert_eq!(
        error.to_string(),
        format!(
            "`{}` belongs to another command\n  begun with: train.py --epochs 3\n  \
             run with: --hp lr=0.1 train.py --epochs 4\n  \
             nothing of the trial was changed, and the run was stopped before it trained",
            trial_dir.display()
        )
    );
    let hint = "run it as it was begun to go on with it; keep both with `--trial-dir DIR`, \
                or begin a new trial with `--fresh`";
    assert_eq!(error.hint().as_deref(), Some(hint));
}

#[test]
fn credentials_of_a_command_stand_in_no_file_and_the_command_is_known_again() {
    let (_directory, trial_dir) = stage();
    let with = |token: &str, key: &str| {
        let mut launch = launch(&trial_dir);
        launch
            .command
            .extend(["--token".to_owned(), token.to_owned()]);
        launch
            .hyperparameters
            .insert("api_key".to_owned(), key.into());
        let mut training = Training::new(launch);
        training.begin(facts()).map(|()| training)
    };
    let mut training = with("hidden-one", "hidden-two").expect("it is new");
    train(&mut training, 1);
    save(&mut training, 1);
    drop(training);
    for name in ["trial.json", events::FILE_NAME] {
        let text = fs::read_to_string(trial_dir.join(name)).expect("it is there");
        assert!(!text.contains("hidden"), "{text}");
        assert_eq!(text.matches("[redacted]").count(), 2, "{text}");
    }
    assert_eq!(
        with("hidden-one", "hidden-two")
            .expect("it is the same")
            .resume_call(),
        1
    );
    for (token, key) in [("hidden-two", "hidden-two"), ("hidden-one", "hidden-one")] {
        let error = with(token, key).expect_err("it is another");
        assert_eq!(error.class(), Class::WrongCommand);
        assert!(!error.to_string().contains("hidden"), "{error}");
    }
    // In the form of an earlier version.
    let path = trial_dir.join("trial.json");
    let text = fs::read_to_string(&path).expect("it is there");
    let mut record: Value = serde_json::from_str(&text).expect("it is JSON");
    record["command"][4] = "hidden-one".into();
    record["hyperparameters"]["api_key"] = "hidden-two".into();
    record
        .as_object_mut()
        .expect("an object")
        .remove("command_hash");
    fs::write(&path, record.to_string()).expect("there is room");
    with("hidden-one", "hidden-two").expect("it is the same");
    let error = with("hidden-three", "hidden-two").expect_err("it is another");
    assert!(!error.to_string().contains("hidden"), "{error}");
}

#[test]
fn a_trial_that_another_process_began_meanwhile_is_refused() {
    let (_directory, trial_dir) = stage();
    drop(begun(&trial_dir));
    let other = Launch {
        trial_seed: 8,
        ..launch(&trial_dir)
    };
    let error = Training::new(other)
        .begin(facts())
        .expect_err("its seed was drawn anew");
    assert_eq!((error.class(), error.exit_code()), (Class::TrialInUse, 75));
}

#[test]
fn a_trial_that_is_replaced_is_moved_aside_when_the_next_begins_and_no_sooner() {
    let (_directory, trial_dir) = stage_after_a_batch();
    let next = Launch {
        replaces: crate::directory::inode(&trial_dir),
        command: vec!["other.py".to_owned()],
        trial_seed: 8,
        ..launch(&trial_dir)
    };
    let mut training = Training::new(next.clone());
    assert!(!training.has_checkpoint(), "of the trial before");
    assert!(trial_dir.join("latest").exists(), "nothing was moved yet");
    training.begin(facts()).expect("the other is moved aside");
    assert_eq!(training.resume_call(), 0);
    assert!(trial_dir.with_extension("1").join("latest").exists());
    train(&mut training, 1);
    save(&mut training, 1);
    drop(training);
    // The same launch message again, after a crash: now the trial belongs to it.
    let mut training = Training::new(next);
    assert!(training.has_checkpoint());
    training.begin(facts()).expect("it is continued");
    assert_eq!(training.resume_call(), 1);
    assert!(!trial_dir.with_extension("2").exists());
}

#[test]
fn checkpoints_without_trial_json_are_refused() {
    let (_directory, trial_dir) = stage_after_a_batch();
    fs::remove_file(trial_dir.join("trial.json")).expect("it is there");
    let error = begin(&trial_dir).expect_err("nobody knows whose they are");
    assert_eq!(error.class(), Class::TrialUnreadable);
    assert!(!trial_dir.join("trial.json").exists());

    // The advice of the hint works.
    let given_up = Launch {
        replaces: crate::directory::inode(&trial_dir),
        ..launch(&trial_dir)
    };
    Training::new(given_up)
        .begin(facts())
        .expect("a new trial begins");
    assert!(trial_dir.with_extension("1").join("latest").exists());
}

#[test]
fn a_directory_that_cannot_be_made_is_told() {
    let (directory, _) = stage();
    let file = directory.path().join("file");
    fs::write(&file, "").expect("there is room");
    let error = begin(&file.join("trial")).expect_err("it is below a file");
    assert_eq!(
        (error.class(), error.exit_code()),
        (Class::CannotCreate, 73)
    );
    assert_eq!(
        error.to_string(),
        format!(
            "cannot make the trial directory `{0}/trial`\n  cannot make directory `{0}/trial`: Not a \
             directory (os error 20)\n  the run was stopped before it trained",
            file.display()
        )
    );
}

#[test]
fn a_trial_does_not_begin_among_files_of_others() {
    let (_directory, trial_dir) = stage();
    fs::create_dir(&trial_dir).expect("there is room");
    drop(begun(&trial_dir));
    let (directory, _) = stage();
    fs::write(directory.path().join("train.py"), "").expect("there is room");
    fs::create_dir(directory.path().join("data")).expect("there is room");
    let error = begin(directory.path()).expect_err("it would be moved aside with the trial");
    assert_eq!(error.exit_code(), 73);
    let expected = "holds 2 files or directories, and no trial: `data` ...";
    assert!(error.to_string().contains(expected), "{error}");
    assert_eq!(fs::read_dir(directory.path()).expect("listed").count(), 2);
}

#[test]
fn what_fails_before_it_trains_is_no_failure_of_its_training() {
    let (_directory, trial_dir) = stage();
    drop(begun(&trial_dir));
    let journal = trial_dir.join(events::FILE_NAME);
    fs::remove_file(&journal).expect("it is there");
    fs::create_dir(&journal).expect("there is room");
    let error = begin(&trial_dir).expect_err("a directory cannot be written");
    assert_eq!(
        (error.class(), error.exit_code()),
        (Class::CannotCreate, 73)
    );
    let first = format!(
        "cannot begin the trial in `{}`\n  cannot open `",
        trial_dir.display()
    );
    assert!(error.to_string().starts_with(&first), "{error}");
}

/// Locks of one process do not exclude each other, so a second process is needed: this test,
/// started again as a child that begins the trial and waits.
#[test]
fn a_trial_that_runs_is_in_use() {
    const VARIABLE: &str = "PEDL_TEST_HOLDS_TRIAL";
    if let Ok(trial_dir) = std::env::var(VARIABLE) {
        let _training = begun(Path::new(&trial_dir));
        // The parent closes the pipe when it has seen enough.
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).expect("it can be read");
        return;
    }
    let (_directory, trial_dir) = stage();
    let mut child = Command::new(std::env::current_exe().expect("it runs"))
        .args(["--exact", "training::tests::a_trial_that_runs_is_in_use"])
        .env(VARIABLE, &trial_dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("it can be started");
    while !trial_dir.join(events::FILE_NAME).exists() {
        assert!(
            child.try_wait().expect("it is ours").is_none(),
            "the child ended"
        );
        std::thread::yield_now();
    }
    let error = begin(&trial_dir).expect_err("the child holds it");
    assert_eq!((error.class(), error.exit_code()), (Class::TrialInUse, 75));
    assert_eq!(
        error.to_string(),
        format!(
            "`{}` is in use\n  process {} runs this trial\n  the run was stopped before it trained",
            trial_dir.display(),
            child.id()
        )
    );
    drop(child.stdin.take());
    assert!(child.wait().expect("it is ours").success());
    drop(begun(&trial_dir));
}

#[test]
fn a_log_over_its_limit_is_told_and_goes_on() {
    let (_directory, trial_dir) = stage();
    let mut training = Training::new(Launch {
        log_limit_bytes: 200,
        ..launch(&trial_dir)
    });
    training.begin(facts()).expect("it can be made");
    assert!(!training.is_log_exceeded());
    (1..=40).for_each(|batch| train(&mut training, batch));
    assert!(training.is_log_exceeded());
    save(&mut training, 40);
    drop(training);
    assert_eq!(begun(&trial_dir).resume_call(), 40);
}

#[test]
fn an_end_before_the_recorded_calls_is_a_divergence() {
    let (_directory, trial_dir) = stage();
    let mut training = begun(&trial_dir);
    (1..=4).for_each(|batch| train(&mut training, batch));
    save(&mut training, 4);
    training.end().expect("it recorded, and replays nothing");
    drop(training);

    let mut training = Training::new(launch(&trial_dir));
    let error = training.end().expect_err("it made no call at all");
    assert_eq!((error.class(), error.exit_code()), (Class::Divergence, 76));
    drop(training);

    let mut training = begun(&trial_dir);
    (1..=3).for_each(|batch| train(&mut training, batch));
    let error = training.end().expect_err("it made three calls of four");
    assert_eq!((error.class(), error.exit_code()), (Class::Divergence, 76));
    let message = error.to_string();
    for part in ["call 4 of the run", "recorded: `", "now: no further call"] {
        assert!(message.contains(part), "{message}");
    }
    train(&mut training, 4);
    training.end().expect("it made them all");
}

#[test]
fn the_journal_tells_what_happened() {
    let (_directory, trial_dir) = stage();
    let mut training = begun(&trial_dir);
    (1..=4).for_each(|batch| train(&mut training, batch));
    save(&mut training, 4);
    drop(training);
    let changed = Facts {
        cpu: "another one".to_owned(),
        ..facts()
    };
    let mut training = Training::new(launch(&trial_dir));
    training
        .begin(changed)
        .expect("that is the caller's affair");
    assert_eq!(training.changes().len(), 1, "{:?}", training.changes());
    assert!(training.changes()[0].starts_with("the processor was "));
    (1..=6).for_each(|batch| train(&mut training, batch));
    training
        .event("exact", members(json!({"causes": ["a thread"]})))
        .expect("there is room");
    let text = fs::read_to_string(trial_dir.join(events::FILE_NAME)).expect("it is there");
    let names = text.lines().map(|line| {
        let event: Value = serde_json::from_str(line).expect("it is JSON");
        assert_eq!(event["schema"], 1);
        event["event"].as_str().expect("it has a name").to_owned()
    });
    let expected = [
        "trial_begun",
        "step",
        "checkpoint",
        "trial_begun",
        "resumed",
        "step",
        "exact",
    ];
    assert_eq!(names.collect::<Vec<_>>(), expected);
    assert_eq!(events(&trial_dir, "resumed")[0]["batch"], 4);
}

#[test]
fn a_checkpoint_that_storage_does_not_take_is_an_event_and_tried_again() {
    let (_directory, trial_dir) = stage_after_a_batch();
    let (packs, away) = (
        trial_dir.join("checkpoints/tensors"),
        trial_dir.join("away"),
    );
    let obstruct = || {
        fs::rename(&packs, &away).expect("it is there");
        fs::write(&packs, "in the way").expect("there is room");
    };
    let clear = || {
        fs::remove_file(&packs).expect("it is there");
        fs::rename(&away, &packs).expect("it is there");
    };
    let mut training = begun(&trial_dir);
    train(&mut training, 1);
    let attempt = |training: &mut Training, batch: u64| {
        train(training, batch);
        training.save(Some(0), tensors(batch), "{}".to_owned(), Vec::new())?;
        let commit = training.take_commit().expect("it is being written");
        training.end_commit(commit.wait())
    };
    obstruct();
    for batch in 2..=5 {
        assert!(!attempt(&mut training, batch).expect("the training goes on"));
    }
    let left = fs::read_dir(&away).expect("it is there").count();
    assert_eq!(left, 1, "packs of checkpoints that failed take no room");
    training
        .preempted(15, true)
        .expect("there is room for an event");
    clear();
    assert!(attempt(&mut training, 6).expect("there is room again"));
    training
        .preempted(15, true)
        .expect("there is room for an event");
    let told = events(&trial_dir, events::PREEMPTED);
    let told: Vec<_> = told
        .iter()
        .map(|event| (event["checkpoint"].as_u64(), event["is_new"] == true))
        .collect();
    assert_eq!(told, [(Some(1), false), (Some(6), true)]);
    obstruct();
    for batch in 7..=10 {
        assert!(!attempt(&mut training, batch).expect("it is counted from 0 again"));
    }
    let error = attempt(&mut training, 11).expect_err("it is one too many");
    assert_eq!(error.class(), Class::StorageFailed, "{error}");
    clear();
    drop(training);
    let failed = events(&trial_dir, "checkpoint_failed");
    let counts: Vec<_> = failed.iter().map(|event| &event["failures"]).collect();
    assert_eq!(counts, [1, 2, 3, 4, 1, 2, 3, 4, 5]);
    let message = failed[0]["error"].as_str().expect("it is a text");
    assert!(message.starts_with("cannot rename `"), "{message}");
    assert_eq!(failed[0]["batch"], 2);
    assert_eq!(begun(&trial_dir).resume_call(), 6);
}

#[test]
fn a_checkpoint_waits_for_the_one_before() {
    let (_directory, trial_dir) = stage();
    let mut training = begun(&trial_dir);
    for batch in 1..=4 {
        train(&mut training, batch);
        training
            .save(Some(0), tensors(batch), "{}".to_owned(), Vec::new())
            .expect("there is room");
        // The previous one is written, however long it took, and no two are in memory.
        let committed = training.begun.as_ref().map(|begun| begun.saver.committed());
        assert!(
            committed >= Some(batch - 1),
            "{committed:?} at batch {batch}"
        );
    }
    wait(&mut training);
    assert_eq!(events(&trial_dir, "checkpoint").len(), 4);
}

#[test]
fn a_failed_checkpoint_is_told_at_the_next() {
    let (_directory, trial_dir) = stage();
    let mut training = begun(&trial_dir);
    train(&mut training, 1);
    let text = vec![Tensor {
        dtype: "str32".to_owned(),
        ..tensors(1).remove(0)
    }];
    training
        .save(Some(0), text, "{}".to_owned(), Vec::new())
        .expect("it is written later");
    let error = training
        .save(Some(0), tensors(1), "{}".to_owned(), Vec::new())
        .expect_err("the one before failed");
    assert_eq!(error.class(), Class::NotStorable, "{error}");
    save(&mut training, 1);
    drop(training);
    assert_eq!(begun(&trial_dir).resume_call(), 1);
}

/// Copies while another thread trains, commits after each batch, and removes superfluous
/// checkpoints.
#[test]
fn a_live_copy_goes_on_whatever_is_committed_and_removed_meanwhile() {
    const COPIES: u64 = 20;
    let (directory, trial_dir) = stage_after_a_batch();
    let script_file = directory.path().join("history.csv");
    let is_over = AtomicBool::new(false);
    let trained = AtomicU64::new(1);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut training = begun(&trial_dir);
            for batch in 1.. {
                train(&mut training, batch);
                if training.position() <= training.resume_call() {
                    continue;
                }
                fs::write(&script_file, batch.to_string()).expect("there is room");
                let files = vec![script_file.clone()];
                let saved = training.save(Some(0), tensors(batch), format!("[{batch}]"), files);
                saved.expect("there is room");
                wait(&mut training);
                trained.store(batch, Ordering::Relaxed);
                // At least this many commits fall between two copies, or into one.
                if is_over.load(Ordering::Relaxed) && batch > 3 * COPIES {
                    break;
                }
            }
        });
        for number in 0..COPIES {
            while trained.load(Ordering::Relaxed) < 3 * number {
                thread::yield_now();
            }
            let copy = LiveCopy::take(&trial_dir).unwrap_or_else(|error| panic!("{error}"));
            let path = directory.path().join(format!("copy-{number}"));
            let totals = copy.put_at(&path, &|| false);
            let totals = totals.unwrap_or_else(|error| panic!("{error}"));
            assert!(totals.linked_bytes > 0, "{totals:?}");
            goes_on(&path, copy.batch);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let last = trained.load(Ordering::Relaxed);
    goes_on(&trial_dir, last);
    let left = fs::read_dir(directory.path()).expect("it is there");
    let left = left.filter(|entry| {
        let name = entry.as_ref().expect("a name").file_name();
        name.to_string_lossy().starts_with('.')
    });
    assert_eq!(left.count(), 0);
}

/// Checks that all of a trial is intact, and that it continues to train from that batch.
fn goes_on(trial_dir: &Path, batch: u64) {
    let found = crate::inspect::checkpoints(trial_dir, crate::inspect::Depth::Bytes);
    let found = found.expect("it can be read");
    // The log belongs to the newest one; it contains those of the others.
    assert!(
        found.iter().all(|entry| entry.damage.is_empty()),
        "{found:?}"
    );
    assert_eq!(
        fs::read_link(trial_dir.join("latest")).expect("it is a link"),
        Path::new("checkpoints").join(format!("batch-{batch:010}"))
    );
    let mut training = begun(trial_dir);
    assert_eq!(training.resume_call(), batch);
    assert_eq!(training.take_tensors(), tensors(batch));
    (1..=batch + 3).for_each(|batch| train(&mut training, batch));
    assert_eq!(training.position(), batch + 3);
    save(&mut training, batch + 3);
    let steps = events(trial_dir, "step");
    assert!(steps.len() as u64 >= (batch + 3) / 3, "{steps:?}");
}

#[test]
fn a_live_copy_is_whole_or_not_there() {
    let (directory, trial_dir) = stage();
    let mut training = begun(&trial_dir);
    train(&mut training, 1);
    let none = LiveCopy::take(&trial_dir).expect_err("there is no checkpoint");
    assert!(none.to_string().contains("there is: none"), "{none}");
    save(&mut training, 1);
    drop(training);
    // The rest of a start that was killed.
    let journal = trial_dir.join(events::FILE_NAME);
    let whole = fs::read_to_string(&journal).expect("it is there");
    fs::write(&journal, whole.clone() + "{\"torn\":").expect("there is room");
    fs::create_dir_all(trial_dir.join("work/logs")).expect("there is room");
    fs::write(trial_dir.join("work/logs/events"), "of the script").expect("there is room");
    symlink("logs/events", trial_dir.join("work/newest")).expect("the name is free");
    fs::write(trial_dir.join("secret"), "key").expect("there is room");
    let only_mine = fs::Permissions::from_mode(0o600);
    fs::set_permissions(trial_dir.join("secret"), only_mine).expect("it is ours");

    let take = || LiveCopy::take(&trial_dir).expect("it can be read");
    let path = directory.path().join("copy");
    let names_in = |path: &Path| fs::read_dir(path).expect("it is there").count();
    let before = names_in(directory.path());
    let stopped = take().put_at(&path, &|| true).expect_err("it was stopped");
    assert!(stopped.to_string().starts_with("copying was interrupted"));
    assert_eq!(names_in(directory.path()), before);

    take().put_at(&path, &|| false).expect("there is room");
    assert_eq!(
        fs::read_to_string(path.join(events::FILE_NAME)).expect("it is there"),
        whole
    );
    assert_eq!(
        fs::read_to_string(path.join("work/newest")).expect("it is there"),
        "of the script"
    );
    let mode = fs::metadata(path.join("secret"))
        .expect("it is there")
        .mode();
    assert_eq!(mode & 0o7777, 0o600);
    assert!(!path.join("lock").exists());
    let taken = take().put_at(&path, &|| false).expect_err("it is there");
    assert_eq!(taken.class(), Class::CannotCreate);

    // A log that does not match the checkpoint.
    fs::write(trial_dir.join(LOG), "").expect("there is room");
    let damaged = LiveCopy::take(&trial_dir).expect_err("its log is not there");
    assert!(damaged.is_corrupt(), "{damaged}");
}
