//! Which trial a command means, and when it is started again.

use std::fs;

use rustix::process::Signal;

use crate::support::{Dir, Output, Running, TestCommand, python, run_in, script};

/// Prints the hash seed that the host has chosen, if it is that of [`trial_json`]: a script can
/// find it only by hashes.
const PRINT_SEEDS: &str = "import os, subprocess, sys\n\
    code = [sys.executable, '-c', 'print(hash(\"x\"))']\n\
    seeded = subprocess.check_output(code, env=dict(os.environ, PYTHONHASHSEED='4242'))\n\
    print(4242 if int(seeded) == hash('x') else 'another', os.path.isdir('.pedl/train'))\n";

/// The line that follows every one of these mistakes.
const NOT_STARTED: &str = "  nothing was changed, and the script was not started\n";

fn trial_json(schema: u32, command: &[&str]) -> String {
    serde_json::json!({
        "schema": schema,
        "trial_id": 1,
        "experiment_id": 1,
        "trial_seed": 7,
        "hash_seed": 4242,
        "threads": 2,
        "command": command,
        "python_options": [],
        "hyperparameters": {},
    })
    .to_string()
}

/// A directory with a script and a trial of it.
fn begun() -> Dir {
    let directory = Dir::new();
    directory.write("train.py", PRINT_SEEDS);
    directory.write(".pedl/train/trial.json", &trial_json(1, &["train.py"]));
    directory
}

#[test]
fn a_library_that_nobody_knows_cannot_be_left_alone() {
    let directory = Dir::new();
    run_in(&directory, &["--no-hooks", "kears", "-c", "print(1)"])
        .assert_code(64)
        .assert_stderr(
            "pedl: error: `--no-hooks kears`: no library of this name is intercepted\n  \
             known: keras, tensorflow, tensorflow.keras\n  the script was not started\n\
             hint: name one of these, or leave the option out\n",
        );
}

#[test]
fn the_same_command_continues_with_the_recorded_seeds() {
    let directory = begun();
    assert_eq!(
        run_in(&directory, &["-u", "train.py"])
            .assert_code(0)
            .stdout,
        "4242 True\n"
    );
}

#[test]
fn what_is_drawn_without_a_seed_repeats_in_the_same_trial() {
    let directory = begun();
    let draw = "print(random.random(), random.Random().random(), flush=True)\n";
    let child = format!("if os.fork() == 0:\n    {draw}    os._exit(0)\nos.wait()\n");
    directory.write(
        "train.py",
        &format!("import os, random\n{draw}random.seed()\n{draw}{child}{child}{draw}"),
    );
    let first = run_in(&directory, &["train.py"]).assert_code(0).stdout;
    assert_eq!(
        run_in(&directory, &["train.py"]).assert_code(0).stdout,
        first
    );
    let mut numbers: Vec<_> = first.split_whitespace().collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 10, "{first}");
}

#[test]
fn a_script_and_its_children_can_ask_for_hyperparameters() {
    let directory = Dir::new();
    let ask = "import pedl; print(pedl.get_hyperparameter('lr'), pedl.get_hyperparameter('name'))";
    directory.write(
        "train.py",
        &format!("{ask}\nimport subprocess, sys\nsubprocess.check_call([sys.executable, '-c', {ask:?}])\n"),
    );
    let output = run_in(
        &directory,
        &["--hp", "lr=0.5", "--hp", "name=adam", "-u", "train.py"],
    );
    assert_eq!(output.assert_code(0).stdout, "0.5 adam\n0.5 adam\n");
}

#[test]
fn another_command_on_the_same_directory_is_refused() {
    let directory = begun();
    let path = directory.join(".pedl/train");
    let path = path.display();
    let hint = "hint: run it as it was begun to go on with it; keep both with `--trial-dir DIR`, \
                or begin a new trial with `--fresh`\n";
    run_in(&directory, &["train.py", "--epochs", "3"])
        .assert_code(65)
        .assert_stderr(&format!(
            "pedl: error: `{path}` belongs to another command\n  \
         begun with: train.py\n  run with: train.py --epochs 3\n{NOT_STARTED}{hint}"
        ));
    run_in(&directory, &["--hp", "lr=0.1", "train.py"])
        .assert_code(65)
        .assert_stderr(&format!(
            "pedl: error: `{path}` belongs to another command\n  \
         begun with: train.py\n  run with: --hp lr=0.1 train.py\n{NOT_STARTED}{hint}"
        ));
}

#[test]
fn a_trial_of_another_schema_is_refused() {
    let directory = begun();
    directory.write(".pedl/train/trial.json", &trial_json(2, &["train.py"]));
    let path = directory.join(".pedl/train/trial.json");
    run_in(&directory, &["train.py"])
        .assert_code(65)
        .assert_stderr(&format!(
            "pedl: error: the schema of `{}` is `2`\n  \
         expected: 1; another version of pedl wrote it\n{NOT_STARTED}\
         hint: continue it with that version, or begin a new trial with `--fresh`\n",
            path.display()
        ));
}

/// `core` moves the old trial away when the new one begins.
#[test]
fn a_script_that_trains_nothing_moves_no_trial() {
    let over = "{\"event\": \"trial_ended\", \"exit_code\": 0}\n";
    for arguments in [
        &["--fresh", "train.py"][..],
        &["--fresh", "train.py", "other"],
        &["train.py"],
        &["train.py", "--help"],
        &["--hp", "lr=0.1", "train.py"],
    ] {
        let directory = begun();
        directory.write(".pedl/train/events.jsonl", over);
        let before = directory.read(".pedl/train/trial.json");
        let output = run_in(&directory, arguments).assert_code(0);
        assert!(!output.stdout.starts_with("4242 "), "{output}");
        assert_eq!(directory.read(".pedl/train/trial.json"), before);
        assert_eq!(directory.read(".pedl/train/events.jsonl"), over);
        assert!(!directory.join(".pedl/train.1").exists());
    }
}

#[test]
fn a_trial_is_over_when_it_has_ended_with_0() {
    let directory = begun();
    let events = ".pedl/train/events.jsonl";
    for (event, seed_is_kept) in [
        ("{\"event\": \"trial_ended\", \"exit_code\": 1}\n", true),
        (
            "{\"event\": \"trial_ended\", \"exit_code\": 0, \"signal\": \"SIGTERM\"}\n",
            true,
        ),
        ("{\"event\": \"trial_ended\", \"exit_code\": 0}\n", false),
    ] {
        directory.write(events, event);
        let output = run_in(&directory, &["train.py"]).assert_code(0);
        assert_eq!(output.stdout.starts_with("4242 "), seed_is_kept, "{output}");
    }
}

#[test]
fn a_trial_that_is_given_up_need_not_be_understood() {
    let directory = begun();
    directory.write(".pedl/train/trial.json", "torn");
    run_in(&directory, &["train.py"]).assert_code(65);
    run_in(&directory, &["--fresh", "train.py"]).assert_code(0);
}

#[test]
fn a_trial_in_use_is_neither_moved_aside_nor_started() {
    let directory = begun();
    let lock = directory.write(".pedl/train/lock", "");
    let file = fs::OpenOptions::new()
        .write(true)
        .open(lock)
        .expect("it is there");
    rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::LockExclusive).expect("free");
    for arguments in [&["--fresh", "train.py"][..], &["train.py"]] {
        let output = run_in(&directory, arguments)
            .assert_code(75)
            .assert_stderr(&format!(
                "pedl: error: `{}` is in use\n  process {} runs this trial\n{NOT_STARTED}\
             hint: wait for it, or name another directory with `--trial-dir DIR`\n",
                directory.join(".pedl/train").display(),
                std::process::id(),
            ));
        assert_eq!(output.stdout, "");
    }
}

/// Runs the script that kills itself, and returns how often it was started.
fn crash(progress: u32, signal: Signal) -> (Output, usize) {
    crash_with(&[], progress, signal)
}

fn crash_with(options: &[&str], progress: u32, signal: Signal) -> (Output, usize) {
    let directory = Dir::new();
    let output = TestCommand::pedl_run()
        .args(options)
        .args(["--trial-dir", "trial", "--python"])
        .arg(&python().path)
        .arg(script("crash_after_checkpoints.py"))
        .args(["trial", &progress.to_string(), &signal.as_raw().to_string()])
        .current_dir(directory.path())
        .output();
    let starts = directory.read("trial/starts").lines().count();
    (output, starts)
}

/// The message if nothing is started again.
fn continues(signal: &str, batch: u64) -> String {
    format!(
        "pedl: the trial process was killed by {signal}; the same command continues after batch {batch}\n"
    )
}

#[test]
fn a_crash_is_followed_by_a_restart_as_long_as_there_is_progress() {
    for (signal, name) in [(Signal::KILL, "SIGKILL"), (Signal::SEGV, "SIGSEGV")] {
        let (output, starts) = crash(2, signal);
        assert_eq!(starts, 3, "{output}");
        let line = |restart| {
            format!(
                "pedl: the trial process was killed by {name}; it is started again from the newest \
                 checkpoint (restart {restart})\n"
            )
        };
        output.assert_signal(signal).assert_stderr(&format!(
            "{}{}{}",
            line(1),
            line(2),
            continues(name, 2)
        ));
    }
}

#[test]
fn without_progress_a_crash_ends_the_run() {
    let (output, starts) = crash(0, Signal::KILL);
    assert_eq!(starts, 1);
    output.assert_signal(Signal::KILL).assert_stderr("");
}

#[test]
fn what_the_same_command_does_after_a_crash_is_told() {
    let directory = Dir::new();
    begun_command(&directory, &[], "import os\nos.kill(os.getpid(), 9)\n")
        .output()
        .assert_signal(Signal::KILL)
        .assert_stderr(
            "pedl: the trial process was killed by SIGKILL, and there is no checkpoint; the same command starts from the \
             beginning\n",
        );
}

#[test]
fn with_no_restarts_a_crash_ends_the_run_whatever_the_progress() {
    let (output, starts) = crash_with(&["--max-restarts", "0"], 2, Signal::KILL);
    assert_eq!(starts, 1);
    output
        .assert_signal(Signal::KILL)
        .assert_stderr(&continues("SIGKILL", 1));
}

#[test]
fn what_a_script_does_to_itself_is_no_crash() {
    for signal in [Signal::INT, Signal::PIPE] {
        // Python ignores SIGPIPE, so the script lives on and ends with 0. SIGINT becomes a
        // KeyboardInterrupt, which ends Python.
        let (output, starts) = crash(9, signal);
        assert_eq!(starts, 1, "{output}");
    }
}

/// The events of the journal, without the fields that differ from run to run.
pub(super) fn events(directory: &Dir) -> Vec<serde_json::Value> {
    let text = directory.read("trial/events.jsonl");
    let parse = |line| {
        let mut event: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let fields = event.as_object_mut().expect("an object");
        fields.remove("time").expect("each event has a time");
        fields.remove("schema").expect("each event has a schema");
        event
    };
    text.lines().map(parse).collect()
}

/// Runs code in a directory with a trial, after code that writes the first event of a start.
fn run_begun(directory: &Dir, code: &str) -> Running {
    begun_command(directory, &[], code).start()
}

/// The command of [`run_begun`], with options of `pedl-run`.
pub(super) fn begun_command(directory: &Dir, options: &[&str], code: &str) -> TestCommand {
    let begin = "open('trial/events.jsonl', 'a').write('{\"event\": \"trial_begun\", \
        \"time\": 0, \"schema\": 1}\\n')\n";
    directory.write("trial/trial.json", &trial_json(1, &["train.py"]));
    directory.write("train.py", &format!("{begin}{code}"));
    TestCommand::pedl_run()
        .args(options)
        .args(["--trial-dir", "trial", "--python"])
        .arg(&python().path)
        .arg("train.py")
        .current_dir(directory.path())
}

#[test]
fn the_journal_tells_restarts_and_the_end() {
    let directory = Dir::new();
    let code = "import os\n\
        os.makedirs('trial/checkpoints/batch-0000000001', exist_ok=True)\n\
        os.kill(os.getpid(), 9)\n";
    run_begun(&directory, code)
        .end()
        .assert_signal(Signal::KILL);
    let begun = serde_json::json!({"event": "trial_begun"});
    let expected = [
        begun.clone(),
        serde_json::json!({"event": "restart", "signal": "SIGKILL", "attempt": 1}),
        begun.clone(),
        serde_json::json!({"event": "trial_ended", "signal": "SIGKILL"}),
    ];
    assert_eq!(events(&directory), expected);

    // A directory that only looks like a checkpoint cannot be resumed.
    std::fs::remove_dir_all(directory.join("trial/checkpoints")).expect("it was there");
    run_begun(&directory, "raise SystemExit(3)")
        .end()
        .assert_code(3);
    let ended = serde_json::json!({"event": "trial_ended", "exit_code": 3});
    assert_eq!(events(&directory)[4..], [begun, ended]);
}

#[test]
fn a_script_that_ends_orderly_when_asked_to_is_continued() {
    let directory = Dir::new();
    let code = "import signal, sys\n\
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n\
        print('ready', flush=True)\n\
        input()\n";
    let mut run = run_begun(&directory, code);
    assert_eq!(run.line(), "ready");
    run.kill(Signal::TERM);
    run.wait().assert_code(0);
    let ended = serde_json::json!({"event": "trial_ended", "exit_code": 0, "signal": "SIGTERM"});
    assert_eq!(events(&directory).last(), Some(&ended));

    let output = run_begun(&directory, PRINT_SEEDS).end().assert_code(0);
    assert!(
        output.stdout.starts_with("4242 "),
        "it was not over: {output}"
    );
    let output = run_begun(&directory, PRINT_SEEDS).end().assert_code(0);
    assert!(!output.stdout.starts_with("4242 "), "it was over: {output}");
}

#[test]
fn without_a_journal_none_is_made() {
    let directory = Dir::new();
    directory.write("trial/trial.json", &trial_json(1, &["-c", "pass"]));
    run_in(&directory, &["--trial-dir", "trial", "-c", "pass"]).assert_code(0);
    assert_eq!(
        fs::read_dir(directory.join("trial"))
            .expect("listed")
            .count(),
        1
    );
}
