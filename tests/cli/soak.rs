//! A script that forks, spawns, starts threads and gets signals at random: some of the starts of
//! `cargo dev soak`.

use crate::support::{TestCommand, hosts, python, script};

/// Seeds of the script. Each is started under every interpreter, in both modes.
const SEEDS: usize = 8;

#[test]
fn no_start_leaves_more_than_python_does() {
    let mut pythons: Vec<_> = hosts()
        .iter()
        .filter(|host| host.mode == "embed")
        .map(|host| host.python)
        .collect();
    pythons.sort_by_key(|python| python.version);
    // The oldest and the newest.
    let (Some(oldest), Some(newest)) = (pythons.first(), pythons.last()) else {
        eprintln!("skipped: the soak (no Python that is linked against libpython)");
        return;
    };
    let driver = script("../campaigns/soak.py");
    let starts = (SEEDS * 4).to_string();
    let output = TestCommand::new(&python().path)
        .arg(driver)
        .args(["--pedl-run", env!("CARGO_BIN_EXE_pedl-run")])
        .args(["--starts", &starts])
        .arg("--python")
        .arg(&oldest.path)
        .arg("--python")
        .arg(&newest.path)
        .output();
    assert!(output.stdout.contains(" 0 wrong, "), "{output}");
    output.assert_code(0);
}
