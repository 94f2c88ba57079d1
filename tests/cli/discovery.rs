//! Which interpreter is run, and the message if none can be run.

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
             looked for VIRTUAL_ENV `/gone`: it is not there\n  \
             looked for `python3` and `python` on PATH: there is none\n\
             hint: name one with `--python PATH`\n",
        );
    TestCommand::pedl_run()
        .args(["--python", "/gone/python", "train.py"])
        .output()
        .assert_code(69)
        .assert_stderr(
            "pedl: error: no Python interpreter was found\n  \
             looked for --python `/gone/python`: it is not there\n\
             hint: name another with `--python PATH`, or leave it out: then the first `python3` on \
             PATH is taken\n",
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
            .contains("\nhint: name one that this user may write to: PEDL_CACHE_DIR=DIR"),
        "{output}"
    );
}

/// The outer command for a file system without code: it mounts a `noexec` one on `directory`.
fn without_code(directory: &Path) -> Option<Vec<String>> {
    let script = format!(
        "mount -t tmpfs -o noexec,mode=700 tmpfs '{}' && exec \"$@\"",
        directory.display()
    );
    // The second one is for users other than root; it needs user namespaces.
    let ways: [&[&str]; 2] = [&["--mount"], &["--user", "--map-root-user", "--mount"]];
    let found = ways.into_iter().find(|options| {
        std::process::Command::new("unshare")
            .args(*options)
            .args(["sh", "-c", &script, "sh", "true"])
            .stderr(std::process::Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    });
    if found.is_none() {
        eprintln!("skipped: a file system without code (unshare --mount is not permitted here)");
    }
    let words = ["sh", "-c", &script, "sh"];
    found.map(|options| {
        let words = ["unshare"].iter().chain(options).chain(&words);
        words.map(|word| (*word).to_owned()).collect()
    })
}

#[test]
fn a_cache_that_may_hold_no_code_serves_all_the_same() {
    let directory = Dir::new();
    let cache = directory.join("cache");
    fs::create_dir(&cache).expect("made");
    let Some(outer) = without_code(&cache) else {
        return;
    };
    let outer: Vec<_> = outer.iter().map(String::as_str).collect();
    // Children of all kinds import it as well, and so do those that a child starts.
    let script = directory.write(
        "script.py",
        "import multiprocessing, os, sys\n\
         import _pedl, pedl\n\
         def child(results):\n\
         \x20   import _pedl, pedl\n\
         \x20   results.put((_pedl.__file__, pedl.get_trial_id()))\n\
         if __name__ == '__main__':\n\
         \x20   print(os.path.islink(_pedl.__file__))\n\
         \x20   for method in ('fork', 'spawn', 'forkserver'):\n\
         \x20       context = multiprocessing.get_context(method)\n\
         \x20       results = context.Queue()\n\
         \x20       process = context.Process(target=child, args=(results,))\n\
         \x20       process.start()\n\
         \x20       print(method, results.get(timeout=60) == (_pedl.__file__, 1))\n\
         \x20       process.join()\n",
    );
    for host in hosts() {
        let output = host
            .pedl_run()
            .env("PEDL_CACHE_DIR", &cache)
            .arg(&script)
            .current_dir(directory.path())
            .below(&outer)
            .output()
            .assert_code(0);
        assert_eq!(
            output.stdout, "True\nfork True\nspawn True\nforkserver True\n",
            "{host}\n{output}"
        );
    }
}

/// A conda environment, as far as its files show: an executable with Python linked into it, and a
/// shared library of the same version that it does not use.
fn write_conda_environment(directory: &Dir) -> Option<std::path::PathBuf> {
    let skipped = |reason: &str| {
        eprintln!("skipped: an environment like those of conda ({reason})");
        None
    };
    let Some(host) = hosts().into_iter().find(|host| !host.python.is_linked) else {
        return skipped("no python with a static executable");
    };
    let (major, minor) = host.python.version;
    let answer = host
        .plain()
        .args(["-I", "-S", "-c"])
        .arg("import os; print(os.path.realpath(os.path.dirname(os.__file__)))")
        .output()
        .assert_code(0)
        .stdout;
    let standard_library = Path::new(answer.trim());
    let name = format!("libpython{major}.{minor}.so.1.0");
    let places = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let library = places
        .map(|place| Path::new(place).join(&name))
        .into_iter()
        .find(|path| path.is_file());
    let Some(library) = library else {
        return skipped(&format!("no {name}"));
    };
    let prefix = directory.join("conda");
    for part in ["bin", "lib", "conda-meta"] {
        fs::create_dir_all(prefix.join(part)).expect("made");
    }
    fs::copy(&host.python.path, prefix.join("bin/python")).expect("copied");
    fs::copy(&library, prefix.join("lib").join(&name)).expect("copied");
    let link = prefix.join(format!("lib/python{major}.{minor}"));
    std::os::unix::fs::symlink(standard_library, link).expect("linked");
    Some(prefix)
}

#[test]
fn the_static_python_of_conda_is_executed() {
    let directory = Dir::new();
    let Some(prefix) = write_conda_environment(&directory) else {
        return;
    };
    let code = "import sys, pedl; print(sys.prefix); \
        print('libpython' in open('/proc/self/maps').read())";
    let run = |options: &[&str]| {
        TestCommand::pedl_run()
            .env("CONDA_PREFIX", &prefix)
            .env("PATH", "/nowhere")
            .args(options)
            .args(["-c", code])
            .current_dir(directory.path())
            .output()
            .assert_code(0)
            .stdout
    };
    // The code in the executable is faster than the library beside it, which is used only on
    // request.
    assert_eq!(run(&[]), format!("{}\nFalse\n", prefix.display()));
    assert_eq!(
        run(&["--mode", "embed"]),
        format!("{}\nTrue\n", prefix.display())
    );
    let doctor = TestCommand::pedl_run()
        .env("CONDA_PREFIX", &prefix)
        .env("PATH", "/nowhere")
        .args(["--pedl", "doctor"])
        .current_dir(directory.path())
        .output()
        .assert_code(0);
    let python = format!("found by CONDA_PREFIX `{}`", prefix.display());
    assert!(doctor.stdout.contains(&python), "{doctor}");
    assert!(
        doctor.stdout.contains("\nmode             exec: "),
        "{doctor}"
    );
}

/// `uvx pedl-run` and `pipx run pedl-run` install it into an environment that has nothing of the
/// project, and put that environment on PATH.
#[test]
fn the_environment_of_a_tool_that_runs_us_is_not_that_of_the_script() {
    let python = |directory: &Dir, name: &str| {
        let path = directory.join(name).join("bin/python3");
        fs::create_dir_all(path.parent().expect("it has one")).expect("made");
        std::os::unix::fs::symlink(&crate::support::python().path, &path).expect("linked");
        std::os::unix::fs::symlink("python3", path.with_file_name("python")).expect("linked");
        fs::write(directory.join(name).join("pyvenv.cfg"), "").expect("written");
        path
    };
    for (tool, receipt) in [
        (".cache/uv/archive-v0/hash", None),
        ("share/uv/tools/pedl-run", Some("uv-receipt.toml")),
        ("share/pipx/venvs/pedl-run", None),
        ("tools/pedl-run", Some("pipx_metadata.json")),
        ("project/.venv", None),
    ] {
        let directory = Dir::new();
        let of_tool = python(&directory, tool);
        let ours = of_tool.with_file_name("pedl-run");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_pedl-run"), &ours).expect("linked");
        if let Some(name) = receipt {
            fs::write(directory.join(tool).join(name), "").expect("written");
        }
        let active = python(&directory, "active");
        let on_path = python(&directory, "other");
        let found = |variable: Option<&Path>, path: &[&Path]| {
            let folders = path.iter().filter_map(|path| path.parent());
            let path = std::env::join_paths(folders).expect("no colon");
            let mut command = TestCommand::new(&ours).env("PATH", path);
            if let Some(python) = variable {
                let prefix = python.parent().and_then(Path::parent).expect("it has one");
                command = command.env("VIRTUAL_ENV", prefix);
            }
            let found = command
                .args(["-c", "import sys; print(sys.executable)"])
                .output();
            Path::new(found.assert_code(0).stdout.trim()).to_owned()
        };
        let is_project = tool == "project/.venv";
        let expected = |path: &Path| {
            if is_project {
                of_tool.with_file_name("python")
            } else {
                path.to_owned()
            }
        };
        assert_eq!(
            found(Some(&active), &[&of_tool, &on_path]),
            expected(&active.with_file_name("python")),
            "{tool}"
        );
        assert_eq!(
            found(None, &[&of_tool, &on_path]),
            expected(&on_path),
            "{tool}"
        );
        // As `uvx` sets it.
        assert_eq!(
            found(Some(&of_tool), &[&of_tool, &on_path]),
            expected(&on_path),
            "{tool}"
        );
        // A script may need no package.
        assert_eq!(
            found(None, &[&of_tool]),
            of_tool.with_file_name("python"),
            "{tool}"
        );
    }
}
