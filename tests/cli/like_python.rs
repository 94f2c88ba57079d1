//! A script cannot tell the difference: it sees, prints and leaves the same as under Python.

use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use rustix::process::Signal;

use crate::support::{Dir, Host, TestCommand, hosts, python, script};

/// Runs a command line under Python and under `pedl-run`, in each mode, and compares everything.
#[track_caller]
fn assert_like_python(directory: &Dir, arguments: &[&str], stdin: &str) {
    for host in hosts() {
        assert_host_like_python(&host, directory, arguments, stdin);
    }
}

#[track_caller]
fn assert_host_like_python(host: &Host, directory: &Dir, arguments: &[&str], stdin: &str) {
    let run = |command: TestCommand| {
        command
            .args(arguments)
            .current_dir(directory.path())
            // A random seed would show in `sys.flags` and elsewhere.
            .env("PYTHONHASHSEED", "1")
            .stdin(stdin)
            .output()
    };
    run(host.pedl_run()).assert_same(&run(host.plain()));
}

/// A directory with the script, as a file, a module in a package, a directory and its text.
fn program_directory() -> (Dir, String) {
    let directory = Dir::new();
    let text = std::fs::read_to_string(script("describe_process.py")).expect("readable");
    for name in [
        "describe.py",
        "package/__init__.py",
        "package/module.py",
        "tree/__main__.py",
    ] {
        directory.write(name, &text);
    }
    directory.write("package/__init__.py", "");
    (directory, text)
}

#[test]
fn a_script_sees_the_process_of_python() {
    let (directory, text) = program_directory();
    let absolute = directory.join("describe.py");
    let absolute = absolute.to_str().expect("UTF-8");
    for arguments in [
        &["describe.py", "a", "--fresh", "-c"][..],
        &["./package/../describe.py"],
        &[absolute],
        &["tree", "x"],
        &["-m", "package.module", "x y"],
        &["-c", &text, "-x"],
        &["-uc", &text],
    ] {
        assert_like_python(&directory, arguments, "standard\ninput\n");
    }
    assert_like_python(
        &directory,
        &["-", "a", "b"],
        &text.replace("sys.stdin.read()", "None"),
    );
}

#[test]
fn the_options_of_python_have_their_effect() {
    let (directory, _) = program_directory();
    for options in [
        &["-O", "-u"][..],
        &["-OO", "-W", "ignore::DeprecationWarning", "-Wdefault"],
        &["-bb", "-s", "-q", "-d"],
        &["-X", "dev", "-Xfaulthandler"],
        &["-X", "utf8=0", "-B"],
    ] {
        let arguments = [options, &["describe.py", "x"]].concat();
        assert_like_python(&directory, &arguments, "");
    }
}

#[test]
fn isolated_scripts_are_embedded() {
    let (directory, _) = program_directory();
    for host in hosts().iter().filter(|host| host.can_isolate()) {
        for option in ["-I", "-E", "-S", "-IS"] {
            assert_host_like_python(host, &directory, &[option, "describe.py"], "");
        }
    }
}

#[test]
fn exit_codes_are_the_scripts_own() {
    let directory = Dir::new();
    let cases = [
        ("import sys; sys.exit(7)", 7),
        ("raise SystemExit('the reason')", 1),
        ("raise SystemExit", 0),
        ("raise SystemExit([1])", 1),
        ("import os; os._exit(64)", 64),
        ("1 / 0", 1),
        ("this is not python", 1),
        ("import atexit, os; atexit.register(os._exit, 9)", 9),
    ];
    for (code, expected) in cases {
        for host in hosts() {
            let run = |command: TestCommand| {
                command
                    .args(["-c", code])
                    .current_dir(directory.path())
                    .output()
            };
            let ours = run(host.pedl_run());
            ours.assert_same(&run(host.plain()));
            ours.assert_code(expected);
        }
    }
    assert_like_python(&directory, &["missing.py"], "");
    assert_like_python(&directory, &["-m", "missing"], "");
    assert_like_python(&directory, &["-c"], "");
    assert_like_python(&directory, &["-Z", "x.py"], "");
    assert_like_python(&directory, &["-V"], "");
    assert_like_python(&directory, &["-u"], "import sys; sys.exit(3)");
}

#[test]
fn a_traceback_has_no_line_of_ours() {
    let directory = Dir::new();
    let text = std::fs::read_to_string(script("fail_in_function.py")).expect("readable");
    directory.write("fail.py", &text);
    directory.write("wrong_syntax.py", "def f(:\n    pass\n");
    assert_like_python(&directory, &["fail.py"], "");
    assert_like_python(&directory, &["-m", "fail"], "");
    assert_like_python(&directory, &["wrong_syntax.py"], "");
}

#[test]
fn the_session_can_be_interactive() {
    let directory = Dir::new();
    directory.write("names.py", "x = 20\n");
    assert_like_python(&directory, &["-i", "names.py"], "print(x + 1)\nexit(3)\n");
}

#[test]
fn a_segmentation_fault_ends_the_run_as_it_ends_python() {
    let directory = Dir::new();
    let kill = "import os; os.kill(os.getpid(), 11)";
    let fault = "import ctypes; ctypes.string_at(0)";
    assert_like_python(&directory, &["-c", kill], "");
    assert_like_python(&directory, &["-c", fault], "");
    assert_like_python(&directory, &["-c", "import os; os.abort()"], "");
    for host in hosts() {
        let output = host
            .pedl_run()
            .args(["-X", "faulthandler", "-c", kill])
            .current_dir(directory.path());
        let output = output.output().assert_signal(Signal::SEGV);
        assert!(
            output
                .stderr
                .contains("Fatal Python error: Segmentation fault"),
            "{output}"
        );
    }
}

#[test]
fn closed_standard_streams_stay_closed() {
    let directory = Dir::new();
    let code = "import os, sys\n\
        def is_open(number):\n\
        \x20   try:\n\
        \x20       os.fstat(number)\n\
        \x20   except OSError:\n\
        \x20       return False\n\
        \x20   return True\n\
        streams = [sys.stdin, sys.stdout, sys.stderr]\n\
        facts = [[is_open(number) for number in range(3)], [stream is None for stream in streams]]\n\
        open(sys.argv[1], 'w').write(repr(facts))\n";
    for host in hosts() {
        for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
            let run = |command: TestCommand, name: &str| {
                let outer = ["sh", "-c", &format!("exec \"$@\" {closed}"), "sh"];
                let command = command
                    .args(["-c", code, name])
                    .current_dir(directory.path());
                command.below(&outer).output().assert_code(0);
                directory.read(name)
            };
            let ours = run(host.pedl_run(), "ours");
            assert_eq!(ours, run(host.plain(), "plain"), "{host} {closed}");
        }
    }
}

#[test]
fn the_current_directory_may_be_gone() {
    let directory = Dir::new();
    let outer = "mkdir gone && cd gone && rmdir ../gone && exec \"$@\"";
    for host in hosts() {
        let run = |command: TestCommand| {
            command
                .args(["-c", "print('ran')"])
                .current_dir(directory.path())
                .below(&["sh", "-c", outer, "sh"])
                .output()
        };
        let ours = run(host.pedl_run()).assert_code(0);
        ours.assert_same(&run(host.plain()));
        assert_eq!(directory.list(), [""; 0], "{host}");
    }
}

#[test]
fn children_can_import_what_the_script_can() {
    let directory = Dir::new();
    directory.write("modules/user_module.py", "");
    for host in hosts() {
        let output = host
            .pedl_run()
            .arg(script("start_children.py"))
            .current_dir(directory.path())
            .env("PYTHONPATH", directory.join("modules"))
            .output()
            .assert_code(0);
        let squares = "[(0, True), (1, True), (4, True), (9, True)]";
        let expected = format!("fork {squares}\nspawn {squares}\nforkserver {squares}\nFalse\n");
        assert_eq!(output.stdout, expected, "{host}\n{output}");
    }
}

#[test]
fn the_users_own_paths_and_customisations_come_first() {
    let directory = Dir::new();
    directory.write(
        "first/sitecustomize.py",
        "import sys; sys.customised = __file__\n",
    );
    let paths = [directory.join("first"), "".into(), directory.join("third")];
    let python_path = std::env::join_paths(&paths).expect("no colon");
    let code = "import os, sys\n\
        print(sys.customised)\n\
        print(sys.path[1:4])\n\
        print(os.environ['PYTHONPATH'].split(os.pathsep)[:3])\n\
        print(sys.modules['sitecustomize'].__file__)\n";
    for host in hosts() {
        let run = |command: TestCommand| {
            command
                .args(["-c", code])
                .current_dir(directory.path())
                .env("PYTHONPATH", &python_path)
                .output()
        };
        run(host.pedl_run()).assert_same(&run(host.plain()));
    }
}

#[test]
fn an_error_in_the_users_sitecustomize_is_reported_by_python() {
    let directory = Dir::new();
    directory.write("site/sitecustomize.py", "import missing_module\n");
    for host in hosts() {
        let run = |command: TestCommand| {
            let command = command
                .args(["-c", "print('ran')"])
                .current_dir(directory.path());
            command.env("PYTHONPATH", directory.join("site")).output()
        };
        run(host.pedl_run()).assert_same(&run(host.plain()));
    }
}

#[test]
fn a_script_that_trains_nothing_leaves_no_trace() {
    let directory = Dir::new();
    directory.write("script.py", "import sys, json\nprint('done')\n");
    for host in hosts() {
        let output = host
            .pedl_run()
            .arg("script.py")
            .current_dir(directory.path())
            .output();
        let output = output.assert_code(0).assert_stderr("");
        assert_eq!(output.stdout, "done\n", "{output}");
        assert_eq!(directory.list(), ["script.py"], "{host}");
    }
}

#[test]
fn no_module_but_ours_is_imported_before_the_script() {
    let directory = Dir::new();
    let code = "import sys; print('\\n'.join(sorted(sys.modules)))";
    for host in hosts() {
        let modules = |command: TestCommand| {
            let command = command.args(["-c", code]).current_dir(directory.path());
            command.output().assert_code(0).stdout
        };
        let plain = modules(host.plain());
        if plain.lines().any(|name| name == "random") {
            eprintln!("skipped: modules of {host} (its `site` imports `random`, which is seeded)");
            continue;
        }
        let ours = modules(host.pedl_run());
        let added: Vec<_> = ours
            .lines()
            .filter(|name| !plain.lines().any(|known| known == *name))
            .filter(|name| *name != "_pedl" && name.split('.').next() != Some("py_hooks"))
            .collect();
        assert!(added.is_empty(), "{host}: {added:?}");
    }
}

#[test]
fn arguments_may_be_any_bytes() {
    let directory = Dir::new();
    let argument = std::ffi::OsStr::from_bytes(b"caf\xe9");
    let code = "import os, sys; print(os.fsencode(sys.argv[1]))";
    for host in hosts() {
        let run = |command: TestCommand| {
            command
                .args(["-c", code])
                .arg(argument)
                .current_dir(directory.path())
                .output()
        };
        run(host.pedl_run()).assert_same(&run(host.plain()));
    }
}

/// Python gives each child a new state of `random`, and names temporary files by it.
#[test]
fn forked_children_draw_other_numbers() {
    let code = "
import os, random, sys
for number in range(3):
    sys.stdout.flush()
    if os.fork() == 0:
        print(random.random(), random.Random().random())
        if number == 1:
            sys.stdout.flush()
            if os.fork() == 0:
                print(random.random(), random.Random().random())
            else:
                os.wait()
        sys.stdout.flush()
        os._exit(0)
    os.wait()
print(random.random(), random.Random().random())
";
    for host in hosts() {
        let directory = Dir::new();
        let command = host.pedl_run().args(["-c", code]);
        let output = command
            .current_dir(directory.path())
            .output()
            .assert_code(0);
        let mut numbers: Vec<_> = output.stdout.split_whitespace().collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 10, "{host}: {}", output.stdout);
    }
}

/// In a locale without UTF-8 the environment, which carries all settings to the trial process, is
/// decoded to surrogates.
#[test]
fn arguments_and_hyperparameters_survive_a_locale_without_utf8() {
    for host in hosts() {
        let directory = Dir::new();
        let print =
            "import sys, pedl; print(ascii(sys.argv[1:]), ascii(pedl.get_hyperparameter('name')))";
        let command = host
            .pedl_run()
            .args(["--hp", "name=h\u{e9}\u{20ac}\u{1f600}"]);
        let output = command
            .args(["-X", "utf8=0", "-c", print, "h\u{e9}"])
            .env("LC_ALL", "C")
            .env("PYTHONCOERCECLOCALE", "0")
            .current_dir(directory.path())
            .output();
        let expected = "['h\\udcc3\\udca9'] 'h\\xe9\\u20ac\\U0001f600'\n";
        assert_eq!(output.assert_code(0).stdout, expected, "{host}");
    }
}

#[test]
fn the_hash_seed_is_drawn_anew_for_a_fresh_run() {
    let directory = Dir::new();
    let seed = || {
        let code = "print(hash('x'))";
        let command = TestCommand::pedl_run().arg("--python").arg(&python().path);
        let output = command
            .args(["-c", code])
            .current_dir(directory.path())
            .output();
        output
            .assert_code(0)
            .stdout
            .trim()
            .parse::<i64>()
            .expect("a number")
    };
    assert_ne!(seed(), seed());
}

/// The trial has a separate hash seed. The script and its children find the variable as the user
/// has set it.
#[test]
fn the_variable_of_the_hash_seed_is_that_of_the_user() {
    let directory = Dir::new();
    directory.write(
        "train.py",
        "import multiprocessing, os, subprocess, sys\n\
         def seen():\n\
         \x20   return os.environ.get('PYTHONHASHSEED'), [name for name in sorted(os.environ) if 'HASH' in name]\n\
         def tell(queue):\n\
         \x20   queue.put(seen())\n\
         if __name__ == '__main__':\n\
         \x20   print(seen(), sys.flags.hash_randomization)\n\
         \x20   print(subprocess.check_output('echo ${PYTHONHASHSEED-unset}', shell=True))\n\
         \x20   for method in sys.argv[1:]:\n\
         \x20       context = multiprocessing.get_context(method)\n\
         \x20       queue = context.Queue()\n\
         \x20       child = context.Process(target=tell, args=(queue,))\n\
         \x20       child.start()\n\
         \x20       print(method, queue.get())\n\
         \x20       child.join()\n",
    );
    for host in hosts() {
        for value in [None, Some("random"), Some("5"), Some("0"), Some("")] {
            let run = |command: TestCommand| {
                let command = command.arg("train.py").current_dir(directory.path());
                let command = match value {
                    Some(value) => command.env("PYTHONHASHSEED", value),
                    // Each start method of a child once.
                    None => command.args(["fork", "spawn", "forkserver"]),
                };
                command.output().assert_code(0).stdout
            };
            assert_eq!(run(host.pedl_run()), run(host.plain()), "{host}: {value:?}");
        }
    }
}

#[test]
fn an_option_of_ours_behind_the_script_is_the_scripts() {
    let directory = Dir::new();
    directory.write(
        "train.py",
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr')\n\
         parser.add_argument('--steps')\nparser.parse_args()\n",
    );
    let run = |arguments: &[&str]| {
        let command = TestCommand::pedl_run().arg("--python").arg(&python().path);
        command
            .arg("train.py")
            .args(arguments)
            .current_dir(directory.path())
            .output()
    };
    let hint = "pedl: `--exact` stood behind the script, and was the script's; if it is meant for pedl-run: \
                `pedl-run --exact SCRIPT`\n";
    let unknown = run(&["--lr", "1", "--exact"]).assert_code(2);
    assert!(unknown.stderr.ends_with(hint), "{unknown}");
    run(&["--lr", "1", "--steps", "3"])
        .assert_code(0)
        .assert_stderr("");
    let other = run(&["--lr"]).assert_code(2);
    assert!(!other.stderr.contains("pedl: "), "{other}");
}

/// `pedl` on the package index is another program.
#[test]
fn another_program_that_is_installed_as_pedl_does_not_take_the_place_of_ours() {
    let directory = Dir::new();
    let code = "import pedl, pedl.callback, importlib, sys\n\
                print(pedl.get_hyperparameter('x'), importlib.import_module('pedl.errors').__name__)\n";
    directory.write("train.py", code);
    directory.write("lib/site-packages/pedl/__init__.py", "print('the other')\n");
    directory.write(
        "lib/site-packages/pedl-1.2.dist-info/METADATA",
        "Metadata-Version: 2.1\nName: pedl\nVersion: 1.2\n",
    );
    directory.write("own/train.py", "import pedl\nprint(pedl.NAME)\n");
    directory.write("own/pedl.py", "NAME = 'of the script'\n");
    let installed = directory.join("lib/site-packages");
    for host in hosts() {
        let run = |script: &str| {
            let command = host.pedl_run().args(["--hp", "x=3", script]);
            let command = command.env("PYTHONPATH", &installed);
            command
                .current_dir(directory.path())
                .output()
                .assert_code(0)
        };
        let ours = run("train.py");
        assert_eq!(ours.stdout, "3 pedl.errors\n", "{host}: {ours}");
        assert_eq!(
            ours.stderr,
            format!(
                "pedl: `pedl` in `{}` is another program of this name; the script imports that of pedl-run\n",
                installed.display()
            ),
            "{host}"
        );
        let own = run("own/train.py");
        assert_eq!(
            (&own.stdout[..], &own.stderr[..]),
            ("of the script\n", ""),
            "{host}"
        );
    }
}

#[test]
fn the_host_reads_nothing_of_standard_input() {
    let directory = Dir::new();
    let all = "import sys; sys.stdout.write(sys.stdin.read())";
    assert_like_python(&directory, &["-c", all], "all\nof\nit");
}

#[test]
fn process_lists_show_the_script() {
    let directory = Dir::new();
    let code = "print(open('/proc/self/cmdline').read().split('\\0')[1:])";
    assert_like_python(&directory, &["-c", code, "x"], "");
}

#[test]
fn virtual_environments_are_those_of_python() {
    let directory = Dir::new();
    let text = std::fs::read_to_string(script("describe_process.py")).expect("readable");
    directory.write("describe.py", &text);
    for host in hosts() {
        let venv = Dir::new();
        let made = Command::new(&host.python.path)
            .args(["-m", "venv", "--without-pip"])
            .arg(venv.path())
            .status()
            .expect("the interpreter starts");
        if !made.success() {
            eprintln!("skipped: a virtual environment of {host} (its venv module fails)");
            continue;
        }
        let run = |command: TestCommand| {
            let command = command.arg("describe.py").current_dir(directory.path());
            command.env("PYTHONHASHSEED", "1").output()
        };
        let plain = run(TestCommand::new(venv.join("bin/python")));
        let python = venv.join("bin/python");
        let mode = ["--mode", host.mode];
        run(TestCommand::pedl_run()
            .args(mode)
            .arg("--python")
            .arg(&python))
        .assert_same(&plain);
        run(TestCommand::pedl_run()
            .args(mode)
            .arg("--python")
            .arg(venv.path()))
        .assert_same(&plain);
        run(TestCommand::pedl_run()
            .args(mode)
            .env("VIRTUAL_ENV", venv.path()))
        .assert_same(&plain);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_pedl-run"), venv.join("bin/pedl-run"))
            .expect("a symlink can be made");
        run(TestCommand::new(venv.join("bin/pedl-run")).args(mode)).assert_same(&plain);
    }
}
