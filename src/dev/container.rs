//! `cargo dev container`: the one file in systems that are not this one.
//!
//! No container engine is needed, only what engines are made of: namespaces, mounts, and the systems
//! that debootstrap unpacks, which are kept below the cache directory. So it needs root. The tests are
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

/// What these tests are marked with.
const STACK: &str = "container";

/// Unpacking two systems, and some trainings.
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
