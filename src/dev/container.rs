//! `cargo dev container`: tests the one-file executable in other systems.
//!
//! It needs no container engine, only the parts of one: namespaces, mounts, and the systems that
//! debootstrap unpacks, which are kept below the cache directory. So it needs root. The tests are
//! in `tests/release`; they run the instructions of `examples/Dockerfile`.

use std::ffi::OsString;
use std::time::Duration;

use rustix::process::geteuid;

use crate::Options;
use crate::environment;
use crate::failure::{At as _, Failure, Result};
use crate::process::{Output, Running};
use crate::repository::Repository;
use crate::test::pytest;
use crate::wheel;

/// The mark of these tests.
const STACK: &str = "container";

/// Enough for unpacking two systems, and for some trainings.
const LIMIT: Duration = Duration::from_secs(60 * 60);

/// Builds the release, and runs the tests with it.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<bool> {
    let options = Options::parse(arguments, &[])?;
    if !geteuid().is_root() {
        let what = "only root may mount the parts of a container";
        return Err(Failure::new(what).hint("run it as root; `cargo dev test` needs no such thing"));
    }
    let repository = Repository::find();
    let environment = wheel::tools(&repository)?;
    let release = wheel::build(&repository, &environment, None)?;
    let systems = environment::cache_directory()?.join("systems");
    std::fs::create_dir_all(&systems).at("create", &systems)?;
    let mut pytest = pytest(&repository, &environment, STACK, &release.executable);
    pytest.args(&options.rest).env("PEDL_SYSTEMS", systems);
    let ended = Running::start(pytest, Output::Copy)?.wait(LIMIT)?;
    Ok(ended.success())
}
