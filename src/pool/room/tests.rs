use std::env;
use std::fs;
use std::path::PathBuf;

use super::*;

/// A directory with these files.
fn directory(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let root = env::temp_dir().join(format!("pedl-room-{}-{name}", std::process::id()));
    for (path, text) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("it has one")).expect("there is room");
        fs::write(path, text).expect("there is room");
    }
    root
}

#[test]
fn what_is_left_on_the_machine_counts_swap() {
    let text = "MemTotal: 100 kB\nMemFree:  5 kB\nMemAvailable:      40 kB\nSwapFree:     2 kB\n";
    assert_eq!(left_on_machine(text), Some(42 * 1024));
    assert_eq!(left_on_machine("MemTotal: 100 kB\n"), None);
    assert!(available_bytes().expect("this kernel tells") > 0);
}

#[test]
fn the_tightest_group_above_counts_in_version_2() {
    let root = directory(
        "v2",
        &[
            ("job/memory.max", "1000\n"),
            ("job/memory.current", "900\n"),
            (
                "job/memory.stat",
                "anon 700\ninactive_file 50\nactive_file 10\n",
            ),
            ("job/trial/memory.max", "max\n"),
            ("job/trial/memory.current", "800\n"),
        ],
    );
    assert_eq!(left_in("0::/job/trial", &root), Some(160));
    assert_eq!(
        left_in("0::/elsewhere", &root),
        None,
        "the root has no limit"
    );
    fs::remove_dir_all(root).expect("it is there");
}

#[test]
fn a_container_sees_its_own_group_at_the_root_in_version_1() {
    let root = directory(
        "v1",
        &[
            ("memory/memory.limit_in_bytes", "1000\n"),
            ("memory/memory.usage_in_bytes", "400\n"),
            ("memory/memory.stat", "cache 300\ntotal_inactive_file 100\n"),
        ],
    );
    assert_eq!(left_in("4:memory:/docker/0123", &root), Some(700));
    assert_eq!(left_in("5:cpu,cpuacct:/docker/0123", &root), None);
    fs::remove_dir_all(root).expect("it is there");
}
