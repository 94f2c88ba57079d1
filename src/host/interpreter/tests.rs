use super::*;

fn found(minor: u32, linked: Option<&str>, candidates: &[&str]) -> Found {
    Found {
        executable: "/opt/python".into(),
        version: Version(3, minor),
        full_version: None,
        linked: linked.map(PathBuf::from),
        candidates: candidates.iter().map(PathBuf::from).collect(),
    }
}

/// A file that exists, in the role of a library that is found beside a static executable.
const EXISTING: &str = "/proc/self/exe";

#[test]
fn a_linked_interpreter_is_embedded_and_a_static_one_executed() {
    let linked = found(11, Some("/lib/libpython"), &[]);
    let library = choose_library(&linked, Mode::Auto, false).expect("chosen");
    assert_eq!(library, Some("/lib/libpython".into()));

    let alone = found(11, None, &[EXISTING]);
    assert_eq!(
        choose_library(&alone, Mode::Auto, false).expect("chosen"),
        None
    );
    let library = choose_library(&alone, Mode::Embed, false).expect("chosen");
    assert_eq!(library, Some(EXISTING.into()));
}

#[test]
fn isolated_options_embed_or_are_refused() {
    let alone = found(11, None, &["/nowhere", EXISTING]);
    let library = choose_library(&alone, Mode::Auto, true).expect("chosen");
    assert_eq!(library, Some(EXISTING.into()));

    let nothing = found(11, None, &["/nowhere/libpython3.11.so.1.0"]);
    let failure = choose_library(&nothing, Mode::Auto, true).expect_err("no library");
    assert_eq!(failure.exit, Exit::Usage);
    let failure = choose_library(&nothing, Mode::Embed, false).expect_err("no library");
    assert_eq!(failure.exit, Exit::Interpreter);
    let failure = choose_library(&alone, Mode::Exec, true).expect_err("the boot would be lost");
    assert_eq!(failure.exit, Exit::Usage);
    let old = found(7, Some("/lib/libpython"), &[]);
    let failure = choose_library(&old, Mode::Auto, true).expect_err("the boot would be lost");
    assert_eq!(failure.exit, Exit::Usage);
}

#[test]
fn the_name_of_the_library_tells_the_version() {
    assert_eq!(
        parse_soname("libpython3.7m.so.1.0"),
        Some((Version(3, 7), "m"))
    );
    assert_eq!(
        parse_soname("libpython3.13.so.1.0"),
        Some((Version(3, 13), ""))
    );
    assert_eq!(
        parse_soname("libpython3.13t.so.1.0"),
        Some((Version(3, 13), "t"))
    );
    assert_eq!(parse_soname("libpython3.so"), None);
    assert_eq!(parse_soname("libc.so.6"), None);
}

#[test]
fn versions_outside_the_range_and_free_threaded_ones_are_refused() {
    let check = |minor, abiflags| check_supported(Path::new("/p"), Version(3, minor), abiflags);
    assert_eq!(check(7, "m"), Ok(()));
    assert_eq!(check(13, ""), Ok(()));
    for (minor, abiflags) in [(6, "m"), (14, ""), (13, "t")] {
        let failure = check(minor, abiflags).expect_err("unsupported");
        assert_eq!(failure.exit, Exit::Interpreter, "3.{minor}{abiflags}");
    }
}
