//! Signals and deaths: starting, stopping or killing `pedl-run` acts on the script.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use rustix::process::Signal;

use crate::support::{Dir, Host, TestCommand, hosts, python, script};

fn counting(host: &Host, directory: &Dir) -> TestCommand {
    host.pedl_run()
        .arg(script("count_signals.py"))
        .current_dir(directory.path())
}

#[test]
fn each_signal_reaches_the_script_once() {
    let directory = Dir::new();
    for host in hosts() {
        let mut run = counting(&host, &directory).start();
        assert_eq!(run.line(), "ready", "{host}");
        for (signal, name) in [
            (Signal::INT, "SIGINT"),
            (Signal::HUP, "SIGHUP"),
            (Signal::USR1, "SIGUSR1"),
            (Signal::USR2, "SIGUSR2"),
            (Signal::WINCH, "SIGWINCH"),
            (Signal::QUIT, "SIGQUIT"),
            (Signal::INT, "SIGINT"),
            (Signal::TERM, "SIGTERM"),
        ] {
            run.kill(signal);
            let line = run.line();
            assert!(line.starts_with(name), "{host}: {line:?}");
        }
        let output = run.wait().assert_code(5).assert_stderr("");
        assert_eq!(output.stdout, "", "{host}");
    }
}

#[test]
fn ctrl_c_reaches_the_script_once() {
    let directory = Dir::new();
    for host in hosts() {
        let output = counting(&host, &directory)
            .below(&[
                python().path.to_str().expect("UTF-8"),
                script("press_ctrl_c.py").to_str().expect("UTF-8"),
            ])
            .output()
            .assert_code(0);
        assert_eq!(
            output.stdout, "ready\nSIGINT 1\nSIGTERM 1\nexit 5\n",
            "{host}\n{output}"
        );
    }
}

/// Begins a session and becomes another program.
const SET_SESSION: &str = "import os, sys; os.setsid(); os.execv(sys.argv[1], sys.argv[1:])";

#[test]
fn a_script_that_signals_its_own_group_gets_that_once() {
    let directory = Dir::new();
    // `pedl-run` leads the session, as if a terminal or a service manager had started it.
    let code = "import os, signal, time\n\
        came = []\n\
        signals = [signal.SIGHUP, signal.SIGUSR1, signal.SIGTERM, signal.SIGHUP]\n\
        for number in signals:\n\
        \x20   signal.signal(number, lambda number, frame: came.append(int(number)))\n\
        for number in signals:\n\
        \x20   os.killpg(os.getpgrp(), number)\n\
        \x20   time.sleep(0.05)\n\
        print(came == [int(number) for number in signals], came)";
    for host in hosts() {
        let run = |command: TestCommand| {
            // Not the leader of its group, because a leader cannot begin a session.
            let outer = ["sh", "-c", "\"$@\" & wait $!", "sh"];
            let python = host.python.path.to_str().expect("UTF-8");
            let outer = [&outer[..], &[python, "-c", SET_SESSION]].concat();
            let command = command.args(["-c", code]).current_dir(directory.path());
            command.below(&outer).output().assert_code(0)
        };
        run(host.pedl_run()).assert_same(&run(host.plain()));
    }
}

#[test]
fn without_a_handler_the_run_dies_of_the_signal() {
    let directory = Dir::new();
    let code = "print('ready', flush=True); input()";
    for host in hosts() {
        for signal in [Signal::TERM, Signal::HUP, Signal::USR1, Signal::QUIT] {
            let mut run = host
                .pedl_run()
                .args(["-c", code])
                .current_dir(directory.path())
                .start();
            assert_eq!(run.line(), "ready", "{host}");
            run.kill(signal);
            run.wait().assert_signal(signal).assert_stderr("");
        }
    }
}

#[test]
fn a_death_by_a_real_time_signal_is_that_of_python() {
    let directory = Dir::new();
    let code = "import os, signal; os.kill(os.getpid(), signal.SIGRTMIN + 1)";
    for host in hosts() {
        let run = |command: TestCommand| {
            let command = command.args(["-c", code]);
            command.current_dir(directory.path()).output()
        };
        let plain = run(host.plain());
        assert!(plain.status.signal().is_some(), "{plain}");
        run(host.pedl_run()).assert_same(&plain);
    }
}

#[test]
fn a_keyboard_interrupt_ends_the_run_as_it_ends_python() {
    let directory = Dir::new();
    for host in hosts() {
        // The place of the interrupt differs from run to run, and so does the traceback.
        let interrupted = |command: TestCommand| {
            // A signal just before a blocking call would wait for its end; a short timeout prevents
            // that.
            let code = "import signal; print('ready', flush=True)\n\
                while True: signal.sigtimedwait([], 0.05)";
            let mut run = command
                .args(["-c", code])
                .current_dir(directory.path())
                .start();
            assert_eq!(run.line(), "ready", "{host}");
            run.kill(Signal::INT);
            let output = run.wait();
            assert!(output.stderr.ends_with("\nKeyboardInterrupt\n"), "{output}");
            output.status
        };
        assert_eq!(
            interrupted(host.pedl_run()),
            interrupted(host.plain()),
            "{host}"
        );
        let raising = |command: TestCommand| {
            command
                .args(["-c", "raise KeyboardInterrupt"])
                .current_dir(directory.path())
                .output()
        };
        raising(host.pedl_run()).assert_same(&raising(host.plain()));
    }
}

#[test]
fn ignored_signals_stay_ignored() {
    let directory = Dir::new();
    for host in hosts() {
        let outer = ["sh", "-c", "trap '' HUP USR1; exec \"$@\"", "sh"];
        let mut run = counting(&host, &directory).below(&outer).start();
        assert_eq!(run.line(), "SIGHUP is ignored", "{host}");
        assert_eq!(run.line(), "SIGUSR1 is ignored", "{host}");
        assert_eq!(run.line(), "ready", "{host}");
        run.kill(Signal::HUP);
        run.kill(Signal::USR1);
        run.kill(Signal::TERM);
        assert_eq!(run.line(), "SIGTERM 1", "{host}");
        run.wait().assert_code(5);
    }
}

#[test]
fn a_script_may_handle_what_its_starter_ignores() {
    let directory = Dir::new();
    // A handler that uses `print` may interrupt another.
    let code = "import os, signal, time\n\
        came = []\n\
        def handle(number, frame):\n\
        \x20   came.append(number)\n\
        \x20   os.write(1, b'%d\\n' % number)\n\
        for number in (signal.SIGHUP, signal.SIGQUIT):\n\
        \x20   assert signal.getsignal(number) == signal.SIG_IGN\n\
        \x20   signal.signal(number, handle)\n\
        os.write(1, b'ready\\n')\n\
        while len(came) < 2: time.sleep(0.01)";
    for host in hosts() {
        let outer = ["sh", "-c", "trap '' HUP QUIT; exec \"$@\"", "sh"];
        let command = host.pedl_run().args(["-c", code]);
        let command = command.current_dir(directory.path());
        let mut run = command.below(&outer).start();
        assert_eq!(run.line(), "ready", "{host}");
        for signal in [Signal::HUP, Signal::QUIT] {
            run.kill(signal);
            assert_eq!(run.line(), signal.as_raw().to_string(), "{host}");
        }
        run.wait().assert_code(0).assert_stderr("");
    }
}

#[test]
fn the_script_does_not_outlive_the_supervisor() {
    let directory = Dir::new();
    // The reader of the pipe finds its end once the last process that holds it is gone.
    let code = "import os, signal; print(os.getppid(), flush=True); signal.pause()";
    for host in hosts() {
        let mut run = host
            .pedl_run()
            .args(["-c", code])
            .current_dir(directory.path())
            .start();
        assert_eq!(run.line(), run.pid().as_raw_nonzero().to_string(), "{host}");
        run.kill(Signal::KILL);
        run.wait().assert_signal(Signal::KILL);
    }
}

#[test]
fn a_script_that_dies_with_its_reader_is_let_die() {
    let directory = Dir::new();
    let code = "import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n\
        while True: print('line', flush=True)";
    for host in hosts() {
        let mut run = host
            .pedl_run()
            .args(["-c", code])
            .current_dir(directory.path())
            .start();
        assert_eq!(run.line(), "line", "{host}");
        run.close_stdout();
        run.wait().assert_signal(Signal::PIPE);
    }
}

/// The outer command for a separate process namespace, in which `pedl-run` is process 1.
pub(super) fn as_process_1() -> Option<&'static [&'static str]> {
    const UNSHARE: &[&str] = &["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let possible = std::process::Command::new(UNSHARE[0])
        .args(&UNSHARE[1..])
        .arg("true")
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !possible {
        eprintln!("skipped: process 1 (unshare --pid is not permitted here)");
    }
    possible.then_some(UNSHARE)
}

#[test]
fn as_process_1_it_reaps_orphans_and_tells_deaths_as_shells_do() {
    let Some(outer) = as_process_1() else { return };
    let directory = Dir::new();
    // The grandchild is orphaned, ends, and is waited for in /proc: a zombie would stay there.
    let orphan = "import os\n\
        if os.fork() == 0:\n\
        \x20   if os.fork() == 0:\n\
        \x20       open('orphan', 'w').write(str(os.getpid()))\n\
        \x20   os._exit(0)\n\
        os.wait()\n\
        while not (os.path.exists('orphan') and open('orphan').read()): os.sched_yield()\n\
        while os.path.exists('/proc/' + open('orphan').read()): os.sched_yield()\n\
        print(os.getppid())\n";
    for host in hosts() {
        let command = host
            .pedl_run()
            .args(["-c", orphan])
            .current_dir(directory.path());
        let output = command.below(outer).output().assert_code(0);
        assert_eq!(output.stdout, "1\n", "{host}");
        std::fs::remove_file(directory.join("orphan")).expect("it was there");

        let kill = "import os; os.kill(os.getpid(), 9)";
        let command = host
            .pedl_run()
            .args(["-c", kill])
            .current_dir(directory.path());
        command.below(outer).output().assert_code(137);
    }
}
