//! Signals by which a scheduler takes its machine back, as the supervisor sees them. What the trial
//! process does about them is tested with frameworks (`tests/resume/test_preemption.py`).

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::json;

use super::signals::as_process_1;
use super::trials::{begun_command, events};
use crate::support::{Dir, TestCommand, hosts, python};

/// Waits to be ended.
const WAIT: &str = "print('ready', flush=True); input()\n";

/// Makes a checkpoint, as far as the supervisor can see.
const CHECKPOINT: &str = "import os\n\
    os.makedirs('trial/checkpoints/batch-0000000007', exist_ok=True)\n";

/// Code for the event that the trial process writes before it lets a signal act.
fn preempted_by(signal: &str) -> String {
    format!(
        "open('trial/events.jsonl', 'a').write('{{\"event\": \"preempted\", \"signal\": \"{signal}\", \
         \"batch\": 7, \"checkpoint\": 7, \"is_new\": true, \"time\": 0, \"schema\": 1}}\\n')\n"
    )
}

/// The command of a script that begins a trial.
fn command(directory: &Dir, options: &[&str], code: &str) -> TestCommand {
    begun_command(directory, options, code)
}

#[test]
fn without_a_checkpoint_it_starts_from_the_beginning() {
    let directory = Dir::new();
    let mut run = command(&directory, &["--preempt-exit-code", "99"], WAIT).start();
    assert_eq!(run.line(), "ready");
    run.kill(Signal::TERM);
    run.wait().assert_signal(Signal::TERM).assert_stderr(
        "pedl: preempted by SIGTERM: no checkpoint was taken; the same command starts from the beginning\n",
    );
    let preempted = json!({
        "event": "preempted", "signal": "SIGTERM", "batch": null, "checkpoint": null, "is_new": false,
    });
    let ended = json!({"event": "trial_ended", "signal": "SIGTERM"});
    assert_eq!(events(&directory)[1..], [preempted, ended]);
}

#[test]
fn a_preemption_is_no_crash_whoever_sent_the_signal() {
    for (signal, name) in [(Signal::TERM, "SIGTERM"), (Signal::USR1, "SIGUSR1")] {
        let directory = Dir::new();
        let code = format!("{CHECKPOINT}os.kill(os.getpid(), {})\n", signal.as_raw());
        let output = command(&directory, &["--max-restarts", "3"], &code).output();
        output.assert_signal(signal).assert_stderr(&format!(
            "pedl: preempted by {name}: no new checkpoint; the same command continues after batch 7\n"
        ));
        assert_eq!(events(&directory).len(), 3);
    }
}

#[test]
fn the_checkpoint_of_the_trial_process_is_told() {
    for (signal, name) in [(Signal::TERM, "SIGTERM"), (Signal::USR1, "SIGUSR1")] {
        let line = format!(
            "pedl: preempted by {name}: checkpoint after batch 7; the same command continues\n"
        );
        let code = format!(
            "{CHECKPOINT}{}os.kill(os.getpid(), {})\n",
            preempted_by(name),
            signal.as_raw()
        );
        let directory = Dir::new();
        let output = command(&directory, &[], &code).output();
        output.assert_signal(signal).assert_stderr(&line);
        let ended = json!({"event": "trial_ended", "signal": name});
        assert_eq!(events(&directory)[2..], [ended]);

        let directory = Dir::new();
        let output = command(&directory, &["--preempt-exit-code", "99"], &code).output();
        output.assert_code(99).assert_stderr(&line);
    }
}

#[test]
fn a_script_that_answers_with_an_exit_is_not_over() {
    let code = format!(
        "{CHECKPOINT}{}raise SystemExit(CODE)\n",
        preempted_by("SIGTERM")
    );
    for (own, options, expected) in [
        (0, &[][..], 0),
        (0, &["--preempt-exit-code", "99"], 99),
        (3, &["--preempt-exit-code", "99", "--max-restarts", "2"], 3),
    ] {
        let directory = Dir::new();
        let output = command(&directory, options, &code.replace("CODE", &own.to_string())).output();
        output.assert_code(expected).assert_stderr(&format!(
            "pedl: preempted by SIGTERM: checkpoint after batch 7; the script handled that, and ended with \
             exit code {own}; the same command continues\n"
        ));
        let ended = json!({"event": "trial_ended", "exit_code": own, "signal": "SIGTERM"});
        assert_eq!(events(&directory).last(), Some(&ended));
    }
}

#[test]
fn a_trial_process_that_does_not_end_is_killed() {
    let directory = Dir::new();
    let code = format!(
        "{CHECKPOINT}import signal\nsignal.signal(signal.SIGTERM, lambda *_: None)\n{WAIT}"
    );
    let mut run = command(&directory, &["--grace", "0.5"], &code).start();
    assert_eq!(run.line(), "ready");
    run.kill(Signal::TERM);
    let sent = Instant::now();
    run.wait().assert_signal(Signal::TERM).assert_stderr(
        "pedl: the trial process did not end within 3 s of SIGTERM (`--grace`, and 3 s more); it is killed\n\
         pedl: preempted by SIGTERM: no new checkpoint; the same command continues after batch 7\n",
    );
    let seconds = sent.elapsed().as_secs_f64();
    assert!((3.4..12.0).contains(&seconds), "{seconds}");
}

#[test]
fn a_script_that_trains_nothing_or_trains_on_lives_on() {
    let handler = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: None)\n";
    let ignore = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n";
    let trained_on = "open('trial/events.jsonl', 'a').write('{\"event\": \"trained_on\", \
        \"time\": 0, \"schema\": 1}\\n')\n";
    let wait = "print('ready', flush=True)\nimport time\nlimit = time.monotonic() + 6\n\
        while time.monotonic() < limit: time.sleep(0.1)\nprint('lived')\n";
    let directory = Dir::new();
    let plain = TestCommand::pedl_run().args(["--grace", "0", "-c", &format!("{handler}{wait}")]);
    let others = [Dir::new(), Dir::new()];
    let runs = [
        plain.current_dir(directory.path()),
        command(&others[0], &["--grace", "0"], &format!("{ignore}{wait}")),
        command(
            &others[1],
            &["--grace", "0"],
            &format!("{handler}{trained_on}{wait}"),
        ),
    ];
    let mut runs = runs.map(TestCommand::start);
    for run in &mut runs {
        assert_eq!(run.line(), "ready");
        run.kill(Signal::TERM);
    }
    for run in runs {
        let output = run.wait().assert_code(0).assert_stderr("");
        assert_eq!(output.stdout, "lived\n");
    }
}

#[test]
fn a_script_that_comes_to_its_own_end_is_over() {
    let outlived = "open('trial/events.jsonl', 'a').write('{\"event\": \"outlived\", \
        \"time\": 0, \"schema\": 1}\\n')\n";
    for (told, code, expected) in [
        (outlived, 0, json!({"event": "trial_ended", "exit_code": 0})),
        (
            outlived,
            3,
            json!({"event": "trial_ended", "exit_code": 3, "signal": "SIGTERM"}),
        ),
        (
            "",
            0,
            json!({"event": "trial_ended", "exit_code": 0, "signal": "SIGTERM"}),
        ),
    ] {
        let directory = Dir::new();
        let code = format!(
            "import os, signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: os.write(1, b'came\\n'))\n\
             print('ready', flush=True)\nsys.stdin.read()\n{told}sys.exit({code})\n"
        );
        let mut run = command(&directory, &[], &code).start();
        assert_eq!(run.line(), "ready");
        run.kill(Signal::TERM);
        assert_eq!(run.line(), "came");
        run.end();
        assert_eq!(events(&directory).last(), Some(&expected));
    }
}

#[test]
fn as_process_1_it_ends_with_the_code_that_stands_for_the_signal() {
    let Some(outer) = as_process_1() else { return };
    let code = format!(
        "{CHECKPOINT}{}os.kill(os.getpid(), 15)\n",
        preempted_by("SIGTERM")
    );
    for (options, expected) in [(&[][..], 143), (&["--preempt-exit-code", "99"], 99)] {
        let directory = Dir::new();
        let output = command(&directory, options, &code).below(outer).output();
        output.assert_code(expected);
    }
}

/// The signal of Slurm before the time limit, and a scheduler that notes its arguments.
#[test]
fn the_batch_script_for_slurm_queues_a_preempted_job_again() {
    let directory = Dir::new();
    let code = format!(
        "{CHECKPOINT}print('ready', flush=True)\nimport sys\n\
         if len(open('trial/events.jsonl').readlines()) > 1: sys.exit(3)\n\
         import time\ntime.sleep(600)\n"
    );
    // This only makes the files; the batch script starts the command.
    drop(command(&directory, &[], &code));
    let tool = directory.write("scontrol", "#!/bin/sh\necho \"$@\" > requeued\n");
    std::fs::set_permissions(tool, Permissions::from_mode(0o755)).expect("it is ours");
    let executable = Path::new(env!("CARGO_BIN_EXE_pedl-run"));
    let folder = executable.parent().expect("it is in a folder");
    let path = format!(
        "{}:{}:/usr/bin:/bin",
        directory.path().display(),
        folder.display()
    );
    let batch = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/slurm.sh");
    let start = || {
        let job = TestCommand::new("bash")
            .arg(batch)
            .env("PATH", &path)
            .env("SLURM_JOB_ID", "17")
            .env("PEDL_TRIAL_DIR", "trial")
            .env("PEDL_PYTHON", &python().path)
            .current_dir(directory.path());
        let mut job = job.start();
        assert_eq!(job.line(), "ready");
        job
    };
    let job = start();
    job.kill(Signal::USR1);
    job.wait().assert_code(0).assert_stderr(
        "pedl: preempted by SIGUSR1: no new checkpoint; the same command continues after batch 7\n",
    );
    assert_eq!(directory.read("requeued"), "requeue 17\n");

    // An exit code of the script becomes that of the job.
    std::fs::remove_file(directory.join("requeued")).expect("it was there");
    // A directory that only looks like a checkpoint cannot be resumed.
    std::fs::remove_dir_all(directory.join("trial/checkpoints")).expect("it was there");
    start().wait().assert_code(3);
    assert!(!directory.join("requeued").exists());
}

#[test]
fn a_script_that_trains_nothing_dies_of_it_without_a_word() {
    let directory = Dir::new();
    for host in hosts() {
        let run = host
            .pedl_run()
            .args(["--preempt-exit-code", "99", "-c", WAIT]);
        let mut run = run.current_dir(directory.path()).start();
        assert_eq!(run.line(), "ready", "{host}");
        run.kill(Signal::TERM);
        run.wait().assert_signal(Signal::TERM).assert_stderr("");
    }
}
