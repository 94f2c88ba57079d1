//! `pedl package`: the files of a model definition that travel, and the archive of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, FileTimes};
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::support::{Dir, Output, TestCommand};

/// The largest size that travels, in bytes.
const LIMIT: u64 = 99_614_720;

/// The directory of the definitions, below the directory of a test.
pub(super) const DEFINITION: &str = "definition";

pub(super) fn package(directory: &Dir, arguments: &[&str]) -> Output {
    command(directory, arguments).output()
}

fn command(directory: &Dir, arguments: &[&str]) -> TestCommand {
    TestCommand::pedl_run()
        .args(["--pedl", "package"])
        .args(arguments)
        .current_dir(directory.path())
}

/// A directory with a definition in it, each file with its path as its content.
pub(super) fn definition(files: &[&str]) -> Dir {
    let directory = Dir::new();
    for file in files {
        directory.write(&format!("{DEFINITION}/{file}"), file);
    }
    directory
}

fn json_of(output: &Output) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output}"))
}

/// What travels, as `--json` lists it.
fn listed(directory: &Dir) -> Vec<Value> {
    let output = package(directory, &[DEFINITION, "--json"]).assert_code(0);
    let entries = json_of(&output)["entries"].as_array().cloned();
    entries.expect("a list")
}

/// The paths of the files that travel.
pub(super) fn files(directory: &Dir) -> Vec<String> {
    let is_file = |entry: &&Value| entry["type"] == "file";
    let path = |entry: &Value| entry["path"].as_str().expect("a path").to_owned();
    listed(directory).iter().filter(is_file).map(path).collect()
}

// -- what travels --------------------------------------------------------------------------------

/// A definition with all kinds of things in it.
fn everything() -> Dir {
    let directory = definition(&[
        "__init__.py",
        "model_def.py",
        ".hidden",
        "data/train.csv",
        "data/cache/big.bin",
        "run.sh",
        "a b\u{e9}.txt",
        &format!("deep/{}/{}.py", "d".repeat(90), "f".repeat(90)),
    ]);
    let at = |name: &str| directory.join(DEFINITION).join(name);
    directory.write(&format!("{DEFINITION}/.pedlignore"), "data/cache/*\n");
    fs::write(at("zeros"), vec![0; 100_000]).expect("written");
    fs::write(at("none"), "").expect("written");
    fs::create_dir_all(at("empty/inner")).expect("made");
    let mode = fs::Permissions::from_mode(0o700);
    fs::set_permissions(at("run.sh"), mode).expect("it is ours");
    symlink("data/train.csv", at("latest")).expect("made");
    symlink("../model_def.py", at("data/model.py")).expect("made");
    directory
}

/// What is in an archive, by path: type, mode, link, content; the header is checked.
fn entries(archive: &Path) -> BTreeMap<String, (String, u32, String, Vec<u8>)> {
    let mut archive = tar::Archive::new(File::open(archive).expect("it is there"));
    let mut entries = BTreeMap::new();
    for entry in archive.entries().expect("an archive") {
        let mut entry = entry.expect("whole");
        let header = entry.header();
        assert_eq!(
            (header.uid().ok(), header.gid().ok(), header.mtime().ok()),
            (Some(0), Some(0), Some(0))
        );
        let kind = format!("{:?}", header.entry_type());
        let mode = header.mode().expect("a mode");
        let link = entry.link_name().expect("a link or none");
        let link = link.map(|it| it.to_string_lossy().into_owned());
        let path = entry.path().expect("a path").to_string_lossy().into_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).expect("whole");
        entries.insert(path, (kind, mode, link.unwrap_or_default(), content));
    }
    entries
}

#[test]
fn m18_data_files_travel_and_the_archive_holds_what_is_listed() {
    let directory = everything();
    let listed = listed(&directory);
    let paths: Vec<_> = listed
        .iter()
        .map(|it| it["path"].as_str().expect("a path"))
        .collect();
    let long = format!("deep/{}/{}.py", "d".repeat(90), "f".repeat(90));
    assert_eq!(
        paths,
        [
            ".hidden",
            "__init__.py",
            "a b\u{e9}.txt",
            "data/cache",
            "data/model.py",
            "data/train.csv",
            &long,
            "empty/inner",
            "latest",
            "model_def.py",
            "none",
            "run.sh",
            "zeros",
        ]
    );
    package(&directory, &[DEFINITION, "--output", "definition.tar"]).assert_code(0);
    assert_eq!(directory.list(), [DEFINITION, "definition.tar"]);
    let packed = entries(&directory.join("definition.tar"));
    assert_eq!(packed.len(), listed.len());
    for entry in &listed {
        let path = entry["path"].as_str().expect("a path");
        let full = directory.join(DEFINITION).join(path);
        let empty = |kind: &str, mode, link: &str| (kind.to_owned(), mode, link.to_owned(), vec![]);
        let (name, expected) = match entry["type"].as_str() {
            Some("file") => {
                let content = fs::read(full).expect("it is there");
                assert_eq!(entry["bytes"], json!(content.len()), "{path}");
                let mode = if path == "run.sh" { 0o755 } else { 0o644 };
                (
                    path.to_owned(),
                    ("Regular".to_owned(), mode, String::new(), content),
                )
            }
            Some("link") => {
                let target = entry["target"].as_str().expect("a target");
                (path.to_owned(), empty("Symlink", 0o644, target))
            }
            _ => (format!("{path}/"), empty("Directory", 0o755, "")),
        };
        assert_eq!(packed.get(&name), Some(&expected), "{name}");
    }
}

#[test]
fn m18_tar_unpacks_what_was_packed() {
    let directory = everything();
    package(&directory, &[DEFINITION, "--output=definition.tar"]).assert_code(0);
    fs::create_dir(directory.join("unpacked")).expect("made");
    TestCommand::new("/usr/bin/env")
        .args([
            "tar",
            "--extract",
            "--file",
            "definition.tar",
            "--directory",
            "unpacked",
        ])
        .current_dir(directory.path())
        .output()
        .assert_code(0)
        .assert_stderr("");
    for entry in listed(&directory) {
        let path = entry["path"].as_str().expect("a path");
        let there = directory.join("unpacked").join(path);
        if entry["type"] == "file" {
            let original = directory.join(DEFINITION).join(path);
            assert_eq!(fs::read(there).ok(), fs::read(original).ok(), "{path}");
        } else {
            assert!(there.exists(), "{path}");
        }
    }
    // A second archive, made from the unpacked one, is equal: nothing was left out that it would
    // have taken.
    package(&directory, &["unpacked", "--output", "again.tar"]).assert_code(0);
    let read = |name: &str| fs::read(directory.join(name)).expect("it is there");
    assert_eq!(read("definition.tar"), read("again.tar"));
}

#[test]
fn m18_equal_definitions_make_equal_archives() {
    let (one, other) = (everything(), everything());
    let at = |name: &str| other.join(DEFINITION).join(name);
    // Other times, other names of users, and other modes that do not travel make no difference.
    let file = File::open(at("model_def.py")).expect("it is there");
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let times = FileTimes::new()
        .set_modified(long_ago)
        .set_accessed(long_ago);
    file.set_times(times).expect("it is ours");
    let mode = fs::Permissions::from_mode(0o640);
    fs::set_permissions(at("zeros"), mode).expect("it is ours");
    let packed = |directory: &Dir| {
        package(directory, &[DEFINITION, "--output", "definition.tar"]).assert_code(0);
        fs::read(directory.join("definition.tar")).expect("it is there")
    };
    let first = packed(&one);
    assert!(first == packed(&other), "the archives differ");
    fs::write(at("none"), "x").expect("written");
    fs::remove_file(other.join("definition.tar")).expect("it is there");
    assert!(first != packed(&other), "a byte more is no difference");
}

#[test]
fn m18_what_cannot_travel_is_told() {
    let directory = definition(&["a.py", "sub/b.py"]);
    let at = |name: &str| directory.join(DEFINITION).join(name);
    let links = [
        ("absolute", "/etc/hostname"),
        ("circle", "circle"),
        ("here", "sub/../a.py"),
        ("missing", "sub/later.txt"),
        ("out", "../elsewhere"),
        ("round", "../definition/a.py"),
        ("sub/deep", "up/sub/../../elsewhere"),
        ("sub/up", ".."),
    ];
    for (name, target) in links {
        symlink(target, at(name)).expect("made");
    }
    TestCommand::new("/usr/bin/env")
        .arg("mkfifo")
        .arg(at("pipe"))
        .output()
        .assert_code(0);
    let output = package(&directory, &[DEFINITION, "--json"]).assert_code(0);
    let mut lines: Vec<_> = output.stderr.lines().collect();
    lines.sort_unstable();
    let leaves = |name: &str| {
        format!("pedl: `{name}` is skipped: it is a symlink that leads out of the directory")
    };
    assert_eq!(
        lines,
        [
            leaves("absolute"),
            "pedl: `circle` is skipped: it is a symlink that leads in a circle".to_owned(),
            leaves("out"),
            "pedl: `pipe` is skipped: it is neither a file nor a directory".to_owned(),
            leaves("round"),
            leaves("sub/deep"),
        ]
    );
    let shown = json_of(&output);
    assert_eq!(shown["skipped"].as_array().map(Vec::len), Some(6));
    let entries = shown["entries"].as_array().expect("a list").iter();
    let links: Vec<_> = entries
        .filter(|it| it["type"] == "link")
        .map(|it| &it["path"])
        .collect();
    assert_eq!(links, ["here", "missing", "sub/up"]);
}

#[test]
fn m18_what_cannot_be_read_is_told() {
    let directory = definition(&["a.py", "secret.py", "closed/b.py"]);
    for name in ["secret.py", "closed"] {
        let path = directory.join(DEFINITION).join(name);
        fs::set_permissions(path, fs::Permissions::from_mode(0o000)).expect("it is ours");
    }
    // Root loses the right to read every file.
    let outer = [
        "setpriv",
        "--inh-caps=-all",
        "--bounding-set=-dac_override,-dac_read_search",
    ];
    let is_root = rustix::process::geteuid().is_root();
    let command = command(&directory, &[DEFINITION]);
    let output = if is_root {
        command.below(&outer)
    } else {
        command
    }
    .output();
    fs::set_permissions(
        directory.join(DEFINITION).join("closed"),
        fs::Permissions::from_mode(0o700),
    )
    .expect("it is ours");
    if is_root && output.stderr.starts_with("setpriv:") {
        eprintln!("skipped: root reads all files here: {}", output.stderr);
        return;
    }
    let output = output.assert_code(0);
    let mut lines: Vec<_> = output.stderr.lines().collect();
    lines.sort_unstable();
    let denied = |name: &str| {
        format!("pedl: `{name}` is skipped: it cannot be read: Permission denied (os error 13)")
    };
    assert_eq!(lines, [denied("closed"), denied("secret.py")]);
    assert_eq!(output.stdout, "     4 B  a.py\n1 file, 4 B\n");
}

// -- the limit ------------------------------------------------------------------------------------

#[test]
fn m6_more_than_95_mib_do_not_travel() {
    let directory = definition(&["model_def.py"]);
    let sized = |name: &str, bytes: u64| {
        let path = directory.write(&format!("{DEFINITION}/{name}"), "");
        let file = File::options().write(true).open(path).expect("it is there");
        file.set_len(bytes).expect("there is room for a hole");
    };
    // The module takes 12 bytes.
    sized("data.npz", LIMIT - 12);
    let output = package(&directory, &[DEFINITION]).assert_code(0);
    assert!(output.stdout.ends_with("2 files, 99.6 MB\n"), "{output}");
    for number in 0..11 {
        sized(&format!("part-{number:02}"), 1_000 + number);
    }
    let mut expected = format!(
        "pedl: error: `definition` is too large: {} bytes would travel\n  \
         expected: at most 99614720 bytes (95 MiB)\n  the largest of 13 files are, in bytes:\n      99614708  data.npz\n",
        LIMIT + 11 * 1_000 + 55
    );
    for number in (2..11).rev() {
        let _ = writeln!(expected, "  {:>12}  part-{number:02}", 1_000 + number);
    }
    expected.push_str(
        "hint: name what can stay behind in `.pedlignore`, in the syntax of `.gitignore`\n",
    );
    for arguments in [&[DEFINITION][..], &[DEFINITION, "--output", "x.tar"]] {
        package(&directory, arguments)
            .assert_code(65)
            .assert_stderr(&expected);
    }
    assert_eq!(directory.list(), [DEFINITION], "nothing is packed");
    directory.write(&format!("{DEFINITION}/.pedlignore"), "*.npz\n");
    assert_eq!(files(&directory).len(), 12);
}

// -- the command ----------------------------------------------------------------------------------

#[test]
fn what_travels_is_shown_with_its_sizes() {
    let directory = everything();
    let text = package(&directory, &[DEFINITION]).assert_code(0).stdout;
    for line in [
        "    11 B  __init__.py",
        "   empty  data/cache/",
        "    link  latest -> data/train.csv",
        "100.0 kB  zeros",
    ] {
        assert!(text.lines().any(|it| it == line), "{line}: {text}");
    }
    assert!(text.ends_with("\n9 files, 100.2 kB\n"), "{text}");
    let text = package(&directory, &[DEFINITION, "--output", "x.tar"])
        .assert_code(0)
        .stdout;
    assert!(
        text.ends_with("\n9 files, 100.2 kB, in `x.tar`\n"),
        "{text}"
    );
    directory.write("odd/a\nb", "");
    let text = package(&directory, &["odd"]).assert_code(0).stdout;
    assert_eq!(text, "     0 B  a\\nb\n1 file, 0 B\n");
}

#[test]
fn a_file_that_is_there_is_never_replaced() {
    let directory = definition(&["a.py"]);
    directory.write("taken.tar", "mine");
    symlink("nowhere", directory.join("link.tar")).expect("made");
    for name in ["taken.tar", "link.tar"] {
        package(&directory, &[DEFINITION, "--output", name])
            .assert_code(64)
            .assert_stderr(&format!(
                "pedl: error: `{name}` is there already\nhint: name another file with `--output FILE`\n"
            ));
    }
    assert_eq!(directory.read("taken.tar"), "mine");
    package(&directory, &[DEFINITION, "--output", "no/such.tar"])
        .assert_code(73)
        .assert_stderr(
            "pedl: error: cannot write `no/such.tar`\n  No such file or directory (os error 2)\n\
             hint: name a file elsewhere with `--output FILE`\n",
        );
    assert_eq!(directory.list(), [DEFINITION, "link.tar", "taken.tar"]);
}

#[test]
fn what_is_no_directory_is_refused() {
    let directory = definition(&["a.py"]);
    let hint = "hint: name the directory of a model definition: `pedl package DIR`\n";
    for (name, problem) in [
        ("nowhere", "No such file or directory (os error 2)"),
        ("definition/a.py", "there is something else of that name"),
    ] {
        package(&directory, &[name])
            .assert_code(64)
            .assert_stderr(&format!(
                "pedl: error: `{name}` is no directory\n  {problem}\n{hint}"
            ));
    }
}

#[test]
fn words_that_are_not_known_are_refused() {
    let directory = definition(&["a.py"]);
    for (arguments, what) in [
        (&[][..], "no directory is given"),
        (&["--json"], "no directory is given"),
        (&["a", "b"], "unexpected argument `b`"),
        (&["a", "--output"], "`--output` has no value"),
        (&["a", "--output="], "`--output` has no value"),
        (
            &["a", "--outputs", "x"],
            "`--outputs` is no option of `pedl package`",
        ),
    ] {
        let output = package(&directory, arguments).assert_code(64);
        let first = output.stderr.lines().next();
        assert_eq!(first, Some(&*format!("pedl: error: {what}")), "{output}");
    }
    let help = package(&directory, &["--help"]).assert_code(0).stdout;
    assert!(help.starts_with("usage: pedl package DIR"), "{help}");
    assert!(help.lines().all(|line| line.len() <= 90), "{help}");
}
