//! `pedl reference`: it prints the pages in `docs/reference`.
//!
//! `RENEW_DOCS=1 cargo test reference` writes them, to be read before they are committed.

use std::env;
use std::fs;
use std::path::Path;

use crate::support::TestCommand;

#[test]
fn the_documentation_holds_what_is_printed() {
    let names = TestCommand::pedl_run()
        .args(["--pedl", "reference"])
        .output()
        .assert_code(0)
        .stdout;
    assert!(names.lines().count() >= 5, "{names}");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference");
    for name in names.lines() {
        let page = TestCommand::pedl_run()
            .args(["--pedl", "reference", name])
            .output()
            .assert_code(0)
            .stdout;
        let path = folder.join(format!("{name}.md"));
        if env::var_os("RENEW_DOCS").is_some() {
            fs::write(&path, &page).expect("it can be written");
        }
        let held = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            held == page,
            "{} is not what `pedl reference {name}` prints; `RENEW_DOCS=1 cargo test reference` writes it",
            path.display()
        );
    }
}

#[test]
fn a_page_that_is_not_there_is_refused() {
    TestCommand::pedl_run()
        .args(["--pedl", "reference", "opitons"])
        .output()
        .assert_code(64)
        .assert_stderr(
            "pedl: error: there is no page `opitons`\n  \
             expected: `options`, `commands`, `exit-codes`, `events`, `configuration`\n\
             hint: `pedl reference` lists the pages\n",
        );
}
