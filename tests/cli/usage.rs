//! The command line: inputs and outputs, word for word.

use crate::support::{Dir, TestCommand, python};

#[track_caller]
fn assert_refused(arguments: &[&str], expected: &str) {
    let directory = Dir::new();
    let command = TestCommand::pedl_run()
        .args(arguments)
        .current_dir(directory.path());
    let output = command.output().assert_code(64).assert_stderr(expected);
    assert_eq!(output.stdout, "");
    assert!(directory.list().is_empty());
}

#[test]
fn an_unknown_option_is_named_with_its_neighbours() {
    assert_refused(
        &["--trail-dir", "x", "train.py"],
        "pedl: error: unknown option `--trail-dir`\n  \
         expected: options of pedl-run or of python, then the script; what follows the script \
         belongs to it\n\
         hint: did you mean `--trial-dir`? `pedl-run --help` lists the options\n",
    );
    assert_refused(
        &["--requeue=3", "train.py"],
        "pedl: error: unknown option `--requeue`\n  \
         expected: options of pedl-run or of python, then the script; what follows the script \
         belongs to it\n\
         hint: `pedl-run --help` lists the options\n",
    );
}

#[test]
fn a_wrong_value_is_shown_with_what_was_expected() {
    let cases = [
        (
            &["--batches-per-step", "0"][..],
            "a number of batches, at least 1",
        ),
        (
            &["--checkpoint-period", "often"],
            "a number of steps, at least 1",
        ),
        (
            &["--checkpoint-seconds", "-1"],
            "a number of seconds, 0 or more",
        ),
        (
            &["--checkpoint-seconds", "nan"],
            "a number of seconds, 0 or more",
        ),
        (&["--grace", "-1"], "a number of seconds, 0 or more"),
        (&["--preempt-exit-code", "256"], "an exit code, 0 to 255"),
        (
            &["--events-fd", "1"],
            "the number of an open file descriptor, 3 or more",
        ),
        (
            &["--log-limit", "1GB"],
            "a number of bytes, as in `1048576`, `512MiB` or `4GiB`",
        ),
        (&["--mode", "fast"], "`auto`, `embed` or `exec`"),
        (&["--log-format", "xml"], "`text` or `json`"),
        (&["--hp", "lr"], "NAME=VALUE, as in `lr=0.1`"),
    ];
    for (option, expected) in cases {
        let arguments = [option, &["train.py"]].concat();
        assert_refused(
            &arguments,
            &format!(
                "pedl: error: `{}` is `{}`\n  expected: {expected}\n\
                 hint: `pedl-run --help` lists the options\n",
                option[0], option[1]
            ),
        );
    }
}

#[test]
fn what_is_missing_or_too_much_is_said() {
    let hint = "hint: `pedl-run --help` lists the options\n";
    let no_script = "pedl: error: no script is given\n  \
        expected: a script, `-m MODULE`, `-c CODE`, `-` for standard input, or with `--config FILE` a model definition\n";
    assert_refused(&[], &format!("{no_script}{hint}"));
    assert_refused(&["--fresh"], &format!("{no_script}{hint}"));
    assert_refused(
        &["--trial-dir"],
        &format!("pedl: error: `--trial-dir` has no value\n  expected: --trial-dir DIR\n{hint}"),
    );
    assert_refused(
        &["--fresh=1", "train.py"],
        &format!("pedl: error: `--fresh` takes no value, and was given `1`\n{hint}"),
    );
    assert_refused(
        &["--mode", "exec", "--mode", "embed", "train.py"],
        &format!(
            "pedl: error: `--mode` is given twice\n  \
             each option may be given once, but for `--hp` and `--no-hooks`\n{hint}"
        ),
    );
    assert_refused(
        &["--verbose", "--quiet", "train.py"],
        &format!("pedl: error: `--verbose` and `--quiet` are both given\n{hint}"),
    );
}

#[test]
fn a_wrong_variable_is_named() {
    let run = |name, value| {
        TestCommand::pedl_run()
            .env(name, value)
            .arg("train.py")
            .output()
    };
    let hint = "hint: `pedl-run --help` lists the options\n";
    run("PEDL_BATCHES_PER_STEP", "x")
        .assert_code(64)
        .assert_stderr(&format!(
            "pedl: error: the environment variable `PEDL_BATCHES_PER_STEP` is `x`\n  \
         expected: a number of batches, at least 1\n{hint}"
        ));
    run("PEDL_FRESH", "maybe")
        .assert_code(64)
        .assert_stderr(&format!(
            "pedl: error: the environment variable `PEDL_FRESH` is `maybe`\n  \
         expected: `1` or `0`\n{hint}"
        ));
}

#[test]
fn help_fits_one_screen_and_lists_every_option() {
    let output = TestCommand::pedl_run()
        .arg("--help")
        .output()
        .assert_code(0)
        .assert_stderr("");
    let lines: Vec<_> = output.stdout.lines().collect();
    assert!(lines.len() <= 32, "{} lines", lines.len());
    for line in &lines {
        assert!(line.chars().count() <= 80, "{line:?}");
    }
    for name in [
        "hp",
        "trial-dir",
        "fresh",
        "exact",
        "python",
        "mode",
        "batches-per-step",
        "checkpoint-period",
        "checkpoint-seconds",
        "checkpoint-batches",
        "log-limit",
        "no-hooks",
        "log-format",
        "events-fd",
        "verbose",
        "quiet",
        "version",
        "help",
    ] {
        let option = format!("  --{name} ");
        assert_eq!(
            lines
                .iter()
                .filter(|line| line.starts_with(&option))
                .count(),
            1,
            "{name}"
        );
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    let output = TestCommand::pedl_run()
        .arg("--version")
        .output()
        .assert_code(0);
    assert_eq!(
        output.stdout,
        concat!("pedl-run ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

#[test]
fn what_is_wrong_is_said_in_the_format_that_was_asked_for() {
    let unknown = |arguments: &[&str], format: &str| {
        let command = TestCommand::pedl_run().args(arguments);
        command
            .env("PEDL_LOG_FORMAT", format)
            .output()
            .assert_code(64)
            .stderr
    };
    for arguments in [
        &["--log-format", "json", "--frsh", "train.py"][..],
        &["--frsh", "--log-format=json", "train.py"],
        &["--trial-dir", "d", "--log-format", "json"],
        &["--log-format", "json", "python", "--fresh", "train.py"],
    ] {
        let text = unknown(arguments, "");
        let line: serde_json::Value = serde_json::from_str(&text).expect("one JSON object");
        assert_eq!(line["level"], "error", "{text}");
        assert_eq!(line["exit_code"], 64, "{text}");
        assert!(line["hint"].is_string(), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    assert!(unknown(&["--frsh", "train.py"], "json").starts_with('{'));
    // An option after the script, or with another meaning, does not count.
    for (arguments, format) in [
        (&["--frsh", "train.py", "--log-format", "json"][..], ""),
        (&["--frsh", "--log-format", "text", "train.py"], "json"),
        (
            &["--frsh", "--trial-dir", "--log-format", "json", "train.py"],
            "",
        ),
    ] {
        let text = unknown(arguments, format);
        assert!(text.starts_with("pedl: error: unknown option"), "{text}");
    }
}

#[test]
fn events_go_to_a_file_that_is_open() {
    let run = |shell: &str| {
        let outer = ["sh", "-c", shell, "sh"];
        let command = TestCommand::pedl_run()
            .args(["--events-fd", "7", "--python"])
            .arg(&python().path);
        command.args(["-c", "print(1)"]).below(&outer).output()
    };
    run("exec \"$@\" 7>&-").assert_code(64).assert_stderr(
        "pedl: error: `--events-fd` is `7`, which cannot be written to\n  \
         No such file or directory (os error 2)\n  \
         expected: a file descriptor that pedl-run was started with\n\
         hint: `pedl-run --events-fd 3 SCRIPT 3> FILE` opens one\n",
    );
    for (shell, problem) in [
        ("exec \"$@\" 7</dev/null", "it is open for reading only"),
        (
            "exec \"$@\" 7>&1",
            "it is the pipe that standard output or standard error goes to",
        ),
    ] {
        let output = run(shell).assert_code(64);
        assert!(output.stderr.contains(problem), "{output}");
    }
    for shell in ["exec \"$@\" 7>/dev/null", "(exec \"$@\" 7>&1 >&2) | cat"] {
        run(shell).assert_code(0);
    }
}
