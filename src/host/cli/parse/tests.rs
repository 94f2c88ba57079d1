use super::*;
use crate::cli::flags::Mode;

fn parse_words(words: &[&str]) -> Result<CommandLine, Failure> {
    parse(words.iter().map(OsString::from), |_| None)
}

fn parsed(words: &[&str]) -> CommandLine {
    parse_words(words).unwrap_or_else(|failure| panic!("{words:?}: {failure}"))
}

#[test]
fn every_option_of_cpython_passes_through() {
    let cases: &[(&[&str], usize, Program)] = &[
        (
            &["t.py", "--fresh", "-c"],
            0,
            Program::Script("t.py".into()),
        ),
        (&["-Ou", "t.py"], 1, Program::Script("t.py".into())),
        (&["-W", "error", "t.py"], 2, Program::Script("t.py".into())),
        (&["-Werror", "t.py"], 1, Program::Script("t.py".into())),
        (
            &["-X", "dev", "-bb", "t.py"],
            3,
            Program::Script("t.py".into()),
        ),
        (&["-OX", "dev", "t.py"], 2, Program::Script("t.py".into())),
        (&["-c", "code", "-u"], 0, Program::Code("code".into())),
        (&["-ccode", "x"], 0, Program::Code("code".into())),
        (
            &["-m", "pkg.mod", "--help"],
            0,
            Program::Module("pkg.mod".into()),
        ),
        (&["-", "a"], 0, Program::Stdin),
        (
            &["--check-hash-based-pycs", "never", "t.py"],
            2,
            Program::Script("t.py".into()),
        ),
        (&["-i"], 1, Program::None),
        (&["-VV"], 1, Program::None),
        (&["-c"], 0, Program::Code("".into())),
    ];
    for (words, num_options, program) in cases {
        let line = parsed(words);
        assert_eq!(&line.python_arguments, words, "{words:?}");
        assert_eq!(line.num_python_options, *num_options, "{words:?}");
        assert_eq!(&line.program, program, "{words:?}");
    }
}

#[test]
fn switches_in_front_of_a_command_are_told_from_it() {
    let line = parsed(&["-uOc", "code", "x"]);
    assert_eq!(line.python_options(), ["-uO"]);
    assert_eq!(line.command(), ["-c", "code", "x"]);
    assert_eq!(line.python_arguments, ["-uOc", "code", "x"]);
    let line = parsed(&["-I", "-umpkg", "x"]);
    assert_eq!(line.python_options(), ["-I", "-u"]);
    assert_eq!(line.command(), ["-mpkg", "x"]);
}

#[test]
fn own_options_stand_anywhere_before_the_program() {
    let line = parsed(&[
        "--fresh",
        "-u",
        "--hp",
        "lr=0.1",
        "--mode=exec",
        "t.py",
        "--hp",
    ]);
    assert!(line.options.fresh);
    assert_eq!(line.options.mode, Mode::Exec);
    assert_eq!(line.options.hyperparameters["lr"], 0.1);
    assert_eq!(line.python_arguments, ["-u", "t.py", "--hp"]);
}

#[test]
fn the_word_python_is_dropped() {
    let line = parsed(&["python", "-u", "t.py", "python"]);
    assert_eq!(line.python_word, Some("python".into()));
    assert_eq!(line.python_arguments, ["-u", "t.py", "python"]);
    for word in ["python3", "python3.8", "/usr/bin/python3", "python3.11"] {
        assert!(is_python_word(OsStr::new(word)), "{word}");
    }
    for word in [
        "python.py",
        "python2",
        "pythonic",
        "python3.",
        "python3.x",
        "x/python/t.py",
    ] {
        assert!(!is_python_word(OsStr::new(word)), "{word}");
    }
}

#[test]
fn a_script_may_begin_with_a_dash_after_dashes() {
    assert_eq!(parsed(&["--", "t.py", "x"]).python_arguments, ["t.py", "x"]);
    assert_eq!(parsed(&["--", "-t.py"]).python_arguments, ["--", "-t.py"]);
}

#[test]
fn isolating_options_are_noticed() {
    for words in [&["-I", "t.py"][..], &["-uE", "t.py"], &["-S", "-c", "pass"]] {
        assert!(parsed(words).isolated, "{words:?}");
    }
    for words in [
        &["-s", "t.py"][..],
        &["-W", "I", "t.py"],
        &["-c", "-I"],
        &["t.py", "-I"],
    ] {
        assert!(!parsed(words).isolated, "{words:?}");
    }
}

#[test]
fn the_environment_stands_behind_the_command_line() {
    let environment = |name: &str| {
        let value = match name {
            "PEDL_HP" => "lr=0.5; depth=3",
            "PEDL_FRESH" => "yes",
            "PEDL_EXACT" => "0",
            "PEDL_BATCHES_PER_STEP" => "7",
            "PEDL_MODE" => "",
            _ => return None,
        };
        Some(value.into())
    };
    let words = ["--hp", "lr=0.1", "--batches-per-step", "9", "t.py"];
    let line = parse(words.map(OsString::from), environment).expect("understood");
    assert_eq!(line.options.hyperparameters["lr"], 0.1);
    assert_eq!(line.options.hyperparameters["depth"], 3);
    assert!(line.options.fresh);
    assert!(!line.options.exact);
    assert_eq!(line.options.batches_per_step, Some(9));
    assert_eq!(line.options.mode, Mode::Auto);
}

#[test]
fn behind_the_word_python_options_are_pythons() {
    for word in ["--help", "--version", "--unknown", "--help-env"] {
        let line = parsed(&["--exact", "python3", word]);
        assert!(line.options.exact);
        assert_eq!(line.options.action, Action::Run);
        assert_eq!(line.python_arguments, [word]);
    }
    let failure = parse_words(&["python3", "--fresh", "t.py"]).expect_err("it is ours");
    assert_eq!(
        failure.to_string(),
        "error: `--fresh` stands behind `python3`, where the options are Python's\n  \
         expected: pedl-run --fresh ... python3 SCRIPT\nhint: `pedl-run --help` lists the options"
    );
}

#[test]
fn a_slip_of_the_finger_is_answered_with_the_nearest_option() {
    let hint = |word| {
        parse_words(&[word, "t.py"])
            .expect_err("unknown")
            .hint
            .expect("a hint")
    };
    let rest = "? `pedl-run --help` lists the options";
    assert_eq!(
        hint("--trail-dir"),
        format!("did you mean `--trial-dir`{rest}")
    );
    assert_eq!(
        hint("--checkpoint"),
        format!(
            "did you mean `--checkpoint-period` or `--checkpoint-batches` or `--checkpoint-seconds`{rest}"
        )
    );
    assert_eq!(hint("--steps"), "`pedl-run --help` lists the options");
}
