//! Which interpreter is run, and what is said where none can be.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::{Dir, TestCommand, hosts, python};

const PRINT_EXECUTABLE: &str = "import sys; print(sys.executable)";

/// Writes a shell script that can be executed.
fn write_program(directory: &Dir, name: &str, text: &str) -> std::path::PathBuf {
    let path = directory.write(name, &format!("#!/bin/sh\n{text}\n"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("permissions can be set");
    path
}

#[test]
fn the_first_python_on_the_path_is_run() {
    let directory = Dir::new();
    fs::create_dir(directory.join("bin")).expect("made");
    std::os::unix::fs::symlink(&python().path, directory.join("bin/python3")).expect("linked");
    let output = TestCommand::pedl_run()
        .env("PATH", directory.join("bin"))
        .args(["-c", PRINT_EXECUTABLE])
        .output()
        .assert_code(0);
    assert_eq!(
        Path::new(output.stdout.trim()),
        directory.join("bin/python3")
    );
}

#[test]
fn the_word_python_may_stand_before_the_script() {
    let directory = Dir::new();
    fs::create_dir(directory.join("bin")).expect("made");
    let (major, minor) = python().version;
    let name = format!("python{major}.{minor}");
    for name in ["python", &name] {
        std::os::unix::fs::symlink(&python().path, directory.join("bin").join(name))
            .expect("linked");
    }
    for word in ["python", &name, &python().path.to_string_lossy()] {
        TestCommand::pedl_run()
            .env("PATH", directory.join("bin"))
            .args([word, "-u", "-c", "pass"])
            .output()
            .assert_code(0);
    }
}

#[test]
fn a_script_that_stands_for_an_interpreter_is_asked_which() {
    let directory = Dir::new();
    let real = &python().path;
    let shim = write_program(
        &directory,
        "python",
        &format!("exec {} \"$@\"", real.display()),
    );
    let run = |mode| {
        let command = TestCommand::pedl_run()
            .arg("--python")
            .arg(&shim)
            .args(["--mode", mode]);
        command
            .args(["-c", PRINT_EXECUTABLE])
            .output()
            .assert_code(0)
            .stdout
    };
    for mode in ["auto", "exec"] {
        assert_eq!(Path::new(run(mode).trim()), real, "{mode}");
    }
}

#[test]
fn without_an_interpreter_each_place_is_named() {
    let directory = Dir::new();
    TestCommand::pedl_run()
        .env("PATH", directory.path())
        .env("VIRTUAL_ENV", "/gone")
        .arg("train.py")
        .output()
        .assert_code(69)
        .assert_stderr(
            "pedl: error: no Python interpreter was found\n  \
             looked for an executable file in: VIRTUAL_ENV `/gone`, `python3` and `python` on PATH\n\
             hint: name one with `--python PATH`\n",
        );
    TestCommand::pedl_run()
        .args(["--python", "/gone/python", "train.py"])
        .output()
        .assert_code(69)
        .assert_stderr(
            "pedl: error: no Python interpreter was found\n  \
             looked for an executable file in: --python `/gone/python`\n\
             hint: name one with `--python PATH`\n",
        );
}

#[test]
fn unsupported_interpreters_are_refused() {
    let directory = Dir::new();
    let answer = |implementation: &str, minor: u32, abiflags: &str| {
        format!(
            "echo '{{\"executable\": \"/x/python\", \"implementation\": \"{implementation}\", \
             \"version\": \"3.{minor}.0\", \"major\": 3, \"minor\": {minor}, \
             \"abiflags\": \"{abiflags}\", \"loaded_library\": null, \
             \"candidate_libraries\": []}}'"
        )
    };
    let cases = [
        (answer("cpython", 6, "m"), "is Python 3.6, which"),
        (answer("cpython", 14, ""), "is Python 3.14, which"),
        (
            answer("cpython", 13, "t"),
            "is a free-threaded Python 3.13, which",
        ),
        (answer("pypy", 10, ""), "is pypy, which"),
    ];
    for (text, reason) in cases {
        let path = write_program(&directory, "python", &text);
        let output = TestCommand::pedl_run()
            .arg("--python")
            .arg(&path)
            .arg("train.py")
            .output();
        let output = output.assert_code(69);
        let first = format!(
            "pedl: error: `{}` {reason} pedl does not support\n",
            path.display()
        );
        assert!(output.stderr.starts_with(&first), "{output}");
        assert!(
            output
                .stderr
                .contains("\n  supported: CPython 3.7 to 3.13\n"),
            "{output}"
        );
    }
}

#[test]
fn an_interpreter_that_fails_is_quoted() {
    let directory = Dir::new();
    let path = write_program(&directory, "python", "echo 'no such version' >&2; exit 127");
    let path = path.display();
    TestCommand::pedl_run()
        .args(["--python", &path.to_string(), "train.py"])
        .output()
        .assert_code(69)
        .assert_stderr(&format!(
            "pedl: error: cannot ask `{path}` which Python it is\n  \
             it ended with exit status: 127\n  \
             its last line: no such version\n  \
             it was named by --python `{path}`\n\
             hint: choose another interpreter with `--python PATH`\n"
        ));
}

#[test]
fn isolation_is_refused_where_it_would_lose_the_boot() {
    for host in hosts().iter().filter(|host| !host.can_isolate()) {
        for option in ["-I", "-E", "-S"] {
            let output = host
                .pedl_run()
                .args([option, "-c", "print('ran')"])
                .output();
            let output = output.assert_code(64);
            assert_eq!(output.stdout, "", "{host}");
            assert!(
                output
                    .stderr
                    .starts_with("pedl: error: `-I`, `-E` and `-S` "),
                "{output}"
            );
        }
    }
}

#[test]
fn the_library_is_laid_out_once() {
    let directory = Dir::new();
    let run = || {
        TestCommand::pedl_run()
            .env("PEDL_CACHE_DIR", directory.join("cache"))
            .arg("--python")
            .arg(&python().path)
            .args(["-c", "import _pedl; print(_pedl.__file__)"])
            .output()
            .assert_code(0)
            .stdout
    };
    let module = run();
    let written = |module: &str| fs::metadata(module.trim()).and_then(|file| file.modified());
    let first = written(&module).expect("the module is there");
    assert_eq!(run(), module);
    assert_eq!(written(&module).expect("the module is there"), first);
}

#[test]
fn a_cache_that_cannot_be_used_is_said() {
    let directory = Dir::new();
    let file = directory.write("cache", "");
    let output = TestCommand::pedl_run()
        .env("PEDL_CACHE_DIR", &file)
        .arg("train.py")
        .output()
        .assert_code(73);
    let expected = format!(
        "pedl: error: there is no directory for the library of pedl\n  `{}`: ",
        file.display()
    );
    assert!(output.stderr.starts_with(&expected), "{output}");
    assert!(
        output
            .stderr
            .ends_with("\nhint: name one with `PEDL_CACHE_DIR`\n"),
        "{output}"
    );
}
