//! The executable under its other name, `pedl`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::support::{Dir, Output, TestCommand, python};

/// Runs `pedl` in an empty directory.
fn pedl(arguments: &[&str]) -> Output {
    let directory = Dir::new();
    let output = pedl_in(&directory, arguments);
    assert_eq!(directory.list(), ["pedl"], "nothing is left behind");
    output
}

fn pedl_in(directory: &Dir, arguments: &[&str]) -> Output {
    pedl_command(directory, arguments).output()
}

fn pedl_command(directory: &Dir, arguments: &[&str]) -> TestCommand {
    let name = directory.join("pedl");
    if !name.exists() {
        symlink(env!("CARGO_BIN_EXE_pedl-run"), &name).expect("a link can be made");
    }
    TestCommand::new(&name)
        .args(arguments)
        .env("PEDL_PYTHON", &python().path)
        .current_dir(directory.path())
}

#[test]
fn without_a_verb_the_verbs_are_listed() {
    for arguments in [&[][..], &["--help"], &["help"]] {
        let output = pedl(arguments).assert_code(0).assert_stderr("");
        for verb in [
            "run",
            "verify",
            "checkpoint",
            "hooks",
            "doctor",
            "package",
            "completions",
            "reference",
            "man",
        ] {
            assert!(output.stdout.contains(&format!("  pedl {verb}")), "{verb}");
        }
        assert!(output.stdout.lines().all(|line| line.len() <= 90));
    }
}

#[test]
fn a_verb_that_nobody_knows_is_refused() {
    pedl(&["frobnicate"]).assert_code(64).assert_stderr(
        "pedl: error: there is no verb `frobnicate`\n  \
         expected: `run`, `verify`, `checkpoint`, `hooks`, `doctor`, `package`, `completions`, `reference`, `man`\nhint: `pedl --help` lists the verbs\n",
    );
}

#[test]
fn each_verb_has_help_and_refuses_what_it_does_not_know() {
    for verb in ["hooks", "doctor"] {
        let text = pedl(&[verb, "--help"]).assert_code(0).stdout;
        assert!(text.starts_with("usage: pedl VERB"), "{text}");
    }
    pedl(&["doctor", "--python"]).assert_code(64).assert_stderr(
        "pedl: error: `--python` has no value\nhint: `pedl --help` lists the verbs\n",
    );
    pedl(&["hooks", "keras", "--version"])
        .assert_code(64)
        .assert_stderr(
            "pedl: error: `--version` is no option of this verb\n  \
         expected: --python PATH, --mode MODE or --check\nhint: `pedl --help` lists the verbs\n",
        );
    // The Python of these tests has no frameworks.
    pedl(&["hooks", "--check"]).assert_code(0);
    pedl(&["hooks", "--check", "keras"]).assert_code(69);
    pedl(&["hooks", "--check", "kears"])
        .assert_code(64)
        .assert_stderr(
            "pedl: error: no library `kears` is intercepted\n  known: keras, tensorflow, tensorflow.keras\n\
         hint: `pedl hooks` lists them\n",
        );
}

#[test]
fn the_verbs_are_reached_without_the_name() {
    let by_name = pedl(&["hooks", "keras"]).assert_code(0).stdout;
    let by_option = TestCommand::pedl_run()
        .args(["--pedl", "hooks", "keras"])
        .env("PEDL_PYTHON", &python().path)
        .output();
    assert_eq!(by_option.assert_code(0).stdout, by_name);
}

#[test]
fn the_script_of_the_wheel_starts_the_executable_beside_it() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("shims/wheel/scripts/pedl");
    let directory = Dir::new();
    for place in ["installed", "linked", "alone"] {
        fs::create_dir(directory.join(place)).expect("made");
    }
    let link = |target: &Path, name: &str| {
        symlink(target, directory.join(name)).expect("a link can be made");
    };
    fs::copy(&script, directory.join("installed/pedl")).expect("copied, mode and all");
    link(
        Path::new(env!("CARGO_BIN_EXE_pedl-run")),
        "installed/pedl-run",
    );
    // As pipx does it: both names in a directory on PATH, or only one.
    link(&directory.join("installed/pedl"), "linked/pedl");
    link(&directory.join("installed/pedl-run"), "linked/pedl-run");
    link(&directory.join("installed/pedl"), "alone/pedl");
    let code = "import sys; print(open('/proc/%d/cmdline' % __import__('os').getppid()).read())";
    for (place, found) in [
        ("installed", "installed"),
        ("linked", "linked"),
        ("alone", "installed"),
    ] {
        for program in [directory.join(place).join("pedl"), "pedl".into()] {
            let path = format!("{}:/usr/bin:/bin", directory.join(place).display());
            let output = TestCommand::new("/usr/bin/env")
                .arg(program)
                .args(["run", "-c", code])
                .env("PATH", path)
                .env("PEDL_PYTHON", &python().path)
                .current_dir(directory.path())
                .output()
                .assert_code(0);
            // The name that it was called by, because what it finds beside itself depends on that.
            let expected = directory.join(found).join("pedl-run");
            let name = output.stdout.split('\0').next().expect("a name");
            assert_eq!(Path::new(name), expected, "{output}");
        }
    }
}

#[test]
fn run_is_what_pedl_run_does() {
    let output = pedl(&[
        "run",
        "-c",
        "import sys; print(sys.argv); sys.exit(7)",
        "--x",
    ]);
    assert_eq!(output.assert_code(7).stdout, "['-c', '--x']\n");
}

#[test]
fn a_newcomer_finds_where_fit_generator_is_intercepted() {
    let output = pedl(&["hooks", "keras", "2.3.1", "fit_generator"]);
    let text = output.assert_code(0).assert_stderr("").stdout;
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[0],
        "keras 2.3.1 is generation 2.3.0 - 2.3.1   py_hooks/keras/generations/v2_3_0_to_v2_3_1.py"
    );
    assert_eq!(lines.len(), 2, "{text}");
    let words: Vec<_> = lines[1].split_whitespace().collect();
    assert_eq!(
        words[..2],
        ["keras.engine.training:Model.fit_generator", "row"]
    );
    assert_eq!(
        words[3..5],
        ["of", "keras/generations/entry_points_of_graph_mode.py"]
    );
    assert_eq!(words[7], "fit_generator");
    // The row and the line are those of the source.
    let row: usize = words[2].parse().expect("a number");
    let source = |path: &str| {
        let path = format!("{}/py_hooks/{path}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).expect("it is there")
    };
    assert!(
        source(words[4])
            .lines()
            .nth(row - 1)
            .is_some_and(|line| line.contains("fit_generator"))
    );
    let (file, line) = words[6].split_once(':').expect("a place");
    let line: usize = line.parse().expect("a number");
    assert!(
        source(file)
            .lines()
            .nth(line)
            .is_some_and(|line| line.contains("def fit_generator("))
    );
}

#[test]
fn all_rows_of_all_libraries_are_listed() {
    let text = pedl(&["hooks"]).assert_code(0).stdout;
    assert!(text.contains(
        "keras            2.3.0 - 2.3.1     py_hooks/keras/generations/v2_3_0_to_v2_3_1.py\n"
    ));
    for library in ["keras", "tensorflow", "tensorflow.keras"] {
        let text = pedl(&["hooks", library]).assert_code(0).stdout;
        assert!(text.lines().count() > 20, "{text}");
        assert!(!text.contains("row ?"), "{text}");
    }
}

#[test]
fn hooks_says_what_it_does_not_know() {
    pedl(&["hooks", "kears"]).assert_code(64).assert_stderr(
        "pedl: error: no library `kears` is intercepted\n  known: keras, tensorflow, tensorflow.keras\n\
         hint: `pedl hooks` lists them\n",
    );
    pedl(&["hooks", "keras", "2.5.0"])
        .assert_code(69)
        .assert_stderr(
            "pedl: error: keras `2.5.0` is not a version pedl-run can intercept\n  \
         known: 2.2.0 - 2.2.2, 2.2.3 - 2.2.4, 2.2.5, 2.3.0 - 2.3.1, 2.4.0 - 2.4.3, 2.6.0 - 2.7.0, 2.8.0, \
         2.9.0 - 2.10.0, 2.11.0, 2.12.0, 2.13.0 - 2.15.0, 3.13.0 and later\nhint: install a listed version\n",
        );
    pedl(&["hooks", "keras", "2.3.1", "fti"]).assert_code(64).assert_stderr(
        "pedl: error: nothing named `fti` is intercepted in keras\nhint: `pedl hooks keras` lists all\n",
    );
}

#[test]
fn doctor_says_what_a_run_would_use() {
    let text = pedl(&["doctor"]).assert_code(0).assert_stderr("").stdout;
    let path = python().path.display().to_string();
    assert!(text.contains(&path), "{text}");
    for heading in [
        "pedl-run",
        "python",
        "mode",
        "library",
        "trials",
        "keras",
        "tensorflow",
    ] {
        assert!(
            text.lines().any(|line| line.starts_with(heading)),
            "{heading}: {text}"
        );
    }
}

#[test]
fn where_the_reader_has_gone_nothing_is_said() {
    let directory = Dir::new();
    let outer = ["sh", "-c", "(sleep 0.3; \"$@\"; echo $? >&2) | true", "sh"];
    for arguments in [&["doctor"][..], &["man"], &["hooks", "keras"]] {
        let command = pedl_command(&directory, arguments).below(&outer);
        // It ends by SIGPIPE, like every program.
        command.output().assert_code(0).assert_stderr("141\n");
    }
}

#[test]
fn doctor_prints_the_schema_of_configurations() {
    let text = pedl(&["doctor", "--schema"]).assert_code(0).stdout;
    let schema: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(schema["properties"]["batches_per_step"]["default"], 100);
    assert_eq!(schema["required"], serde_json::json!(["searcher"]));
}

#[test]
fn verifying_says_what_it_takes_and_refuses_the_rest() {
    let help = pedl(&["verify", "--help"]).assert_code(0).stdout;
    for option in [
        "--kills N",
        "--seed N",
        "--json",
        "--keep",
        "--copy-limit BYTES",
        "--work-dir DIR",
    ] {
        assert!(help.contains(option), "{option}");
    }
    pedl(&["verify"]).assert_code(64).assert_stderr(
        "pedl: error: no script is given\n  expected: pedl verify [OPTIONS] SCRIPT [ARGUMENTS]\n\
         hint: `pedl verify --help` lists the options\n",
    );
    pedl(&["verify", "--fresh", "train.py"])
        .assert_code(64)
        .assert_stderr(
            "pedl: error: `--fresh` is decided by `pedl verify` itself\n  \
             each run has a directory and a trial of its own\n\
             hint: `pedl verify --help` lists the options\n",
        );
}

#[test]
fn a_script_that_trains_nothing_shows_nothing_and_its_directory_is_untouched() {
    let directory = Dir::new();
    fs::write(directory.join("write.py"), "open('made', 'w').write('x')").expect("written");
    fs::write(directory.join("data"), [0; 2000]).expect("written");
    let verify = |options: &[&str]| {
        let arguments = [&["verify"], options, &["write.py"]].concat();
        pedl_in(&directory, &arguments)
    };
    let output = verify(&[]).assert_code(77);
    assert!(
        output
            .stdout
            .contains("the script trains nothing that is intercepted"),
        "{output}"
    );
    let output = verify(&["--copy-limit", "1KiB"]).assert_code(65);
    assert!(
        output.stderr.contains("holds more than 1024 bytes"),
        "{output}"
    );
    assert_eq!(directory.list(), ["data", "pedl", "write.py"]);

    fs::write(directory.join("write.py"), "raise SystemExit(3)").expect("written");
    let output = verify(&[]).assert_code(77);
    assert!(
        output
            .stderr
            .contains("ended with exit code 3 in an undisturbed run"),
        "{output}"
    );
}

#[test]
fn completions_are_what_the_shell_understands() {
    let fish = pedl(&["completions", "fish"]).assert_code(0).stdout;
    for line in fish.lines() {
        let quotes = line.replace("\\'", "").matches('\'').count();
        assert_eq!(quotes, 2, "{line}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let text = pedl(&["completions", shell]).assert_code(0).stdout;
        assert!(
            text.contains("doctor") && text.contains("checkpoint-seconds"),
            "{shell}"
        );
    }
    let script = pedl(&["completions", "bash"]).stdout
        + "COMP_WORDS=(pedl-run --checkpoint-s); COMP_CWORD=1; _pedl_run; echo ${COMPREPLY[@]}\n";
    let output = TestCommand::new("bash").stdin(&script).output();
    assert_eq!(output.assert_code(0).stdout, "--checkpoint-seconds\n");
    let script = pedl(&["completions", "bash"]).stdout
        + "COMP_WORDS=(pedl checkpoint ver); COMP_CWORD=2; _pedl; echo ${COMPREPLY[@]}\n";
    let output = TestCommand::new("bash").stdin(&script).output();
    assert_eq!(output.assert_code(0).stdout, "verify\n");
    let script = pedl(&["completions", "bash"]).stdout
        + "COMP_WORDS=(pedl verify --k); COMP_CWORD=2; _pedl; echo ${COMPREPLY[@]}\n";
    let output = TestCommand::new("bash").stdin(&script).output();
    assert_eq!(output.assert_code(0).stdout, "--kills --keep\n");
    pedl(&["completions", "tcsh"]).assert_code(64).assert_stderr(
        "pedl: error: `tcsh` is no shell that completions are made for\n  expected: bash, zsh or fish\n\
         hint: `pedl --help` lists the verbs\n",
    );
}

#[test]
fn the_manual_page_has_every_option_and_no_error() {
    let page = pedl(&["man"]).assert_code(0).assert_stderr("").stdout;
    let help = TestCommand::pedl_run().arg("--help").output().stdout;
    let options: Vec<_> = help
        .lines()
        .filter_map(|line| line.strip_prefix("  --")?.split(' ').next())
        .collect();
    assert!(options.len() > 10, "{help}");
    for option in options {
        let heading = format!(".B \\-\\-{}", option.replace('-', "\\-"));
        assert!(page.contains(&heading), "{option}");
    }
    for code in [64, 65, 69, 70, 73, 75, 76, 77, 201] {
        assert!(page.contains(&format!(".TP\n.B {code}\n")), "{code}");
    }
    pedl(&["man", "pedl"]).assert_code(64);
    let formatter = std::process::Command::new("groff")
        .arg("--version")
        .output();
    if formatter.is_err() {
        eprintln!("skipped: the manual page formatted (there is no groff)");
        return;
    }
    let output = TestCommand::new("groff")
        .args(["-man", "-Tutf8", "-ww", "-P-cbou"])
        .stdin(&page)
        .output()
        .assert_code(0)
        .assert_stderr("");
    assert!(output.stdout.contains("--checkpoint-seconds"), "{output}");
}
