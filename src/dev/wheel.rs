//! `cargo dev wheel`: builds the release, a wheel and one executable file, for every Linux of ten
//! years.
//!
//! Both contain the same bytes: maturin builds the executable and packs it, as `pip install .` does
//! from the source (`pyproject.toml`), but Zig links it against the symbols of glibc 2.17, that of
//! manylinux2014. The nested build of `_pedl` (`build.rs`) inherits the linker. The results are
//! read again, the executable and the `_pedl` that it lays out: neither may need a newer glibc, or
//! a library that not every Linux has, above all libpython. maturin audits only the outer one.
//!
//! Then the wheel is installed into each Python of this machine, by pip, uv and pipx, and tried
//! there (`tests/release`). All these tools come from `PyPI` (`[wheel]` of `tests/matrix.toml`).

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use goblin::elf::Elf;

use crate::Options;
use crate::environment::{self, Environment};
use crate::failure::{At as _, Failure, Result};
use crate::interpreter::Interpreter;
use crate::matrix::Matrix;
use crate::process::{self, Output, Running};
use crate::repository::Repository;
use crate::test::pytest;

/// The mark of the tests of the wheel (`tests/release`).
const STACK: &str = "wheel";

/// The platform of the wheel, in the words of maturin and of rustc.
const COMPATIBILITY: &str = "manylinux2014";
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The newest glibc of that platform.
const NEWEST_GLIBC: Glibc = Glibc(2, 17);

/// The libraries that may be needed: those that glibc and the compiler consist of.
const LIBRARIES: [&str; 7] = [
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
];

/// The time of all files in the wheel, so that the same source makes the same bytes: 1980, the
/// first that a zip file can contain.
const TIME: &str = "315532800";

/// Enough for two optimised builds from scratch, and the parts of glibc that Zig compiles.
const BUILD_LIMIT: Duration = Duration::from_secs(60 * 60);

/// Enough for an environment for each Python and installer.
const TEST_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Enough for laying out the library.
const RUN_LIMIT: Duration = Duration::from_secs(60);

/// The released files.
pub(crate) struct Release {
    /// `pedl-<version>-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl`
    pub(crate) wheel: PathBuf,
    /// `pedl-run`, by itself.
    pub(crate) executable: PathBuf,
}

/// A version of glibc.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Glibc(u32, u32);

/// Builds both, checks them, and runs the tests of the wheel.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<bool> {
    let options = Options::parse(arguments, &["out"])?;
    let repository = Repository::find();
    let environment = tools(&repository)?;
    let out = options.all("out").last().map(PathBuf::from);
    let release = build(&repository, &environment, out.as_deref())?;
    let mut pytest = pytest(&repository, &environment, STACK, &release.executable);
    pytest.args(&options.rest).env("PEDL_WHEEL", release.wheel);
    let ended = Running::start(pytest, Output::Copy)?.wait(TEST_LIMIT)?;
    Ok(ended.success())
}

/// The environment with maturin, Zig and pytest.
pub(crate) fn tools(repository: &Repository) -> Result<Environment> {
    let stack = Matrix::read(repository)?.wheel;
    let interpreter = Interpreter::find(&stack.python).ok_or_else(|| {
        Failure::new(format!("found no Python of {}", stack.python.join(", ")))
            .hint("install one: maturin and Zig come as packages for it")
    })?;
    Environment::of(&stack, &interpreter)
}

/// Builds, checks, and prints the results. The default folder is `dist` in cargo's target
/// directory.
pub(crate) fn build(
    repository: &Repository,
    environment: &Environment,
    out: Option<&Path>,
) -> Result<Release> {
    let target = repository.target_directory()?;
    let out = out.map_or_else(|| target.join("dist"), Path::to_owned);
    let out = std::path::absolute(&out).at("resolve", &out)?;
    // A separate directory, because cargo cannot tell a build against another glibc from this one.
    let built = target.join("wheel");
    remove(&built.join("wheels"))?;
    let mut maturin = maturin(repository, environment)?;
    maturin
        .args(["--zig", "--compatibility", COMPATIBILITY])
        .args(["--target", TARGET])
        .arg("--target-dir")
        .arg(&built)
        .arg("--out")
        .arg(built.join("wheels"));
    let mut building = Running::start(maturin, Output::Prefix("    "))?;
    let ended = building.wait(BUILD_LIMIT)?;
    building.text();
    if !ended.success() {
        let what = format!("the wheel was not built: {}", ended.describe());
        return Err(Failure::new(what));
    }

    fs::create_dir_all(&out).at("create", &out)?;
    let wheel = only_file(&built.join("wheels"))?;
    let executable = built.join(TARGET).join("release/pedl-run");
    let given_out = |file: &Path| -> Result<PathBuf> {
        let copy = out.join(file.file_name().unwrap_or_default());
        // Not written over the old file, which may be running.
        let staged = out.join(format!(".copy-{}", std::process::id()));
        fs::copy(file, &staged).at("copy", file)?;
        fs::rename(&staged, &copy).at("replace", &copy)?;
        Ok(copy)
    };
    let release = Release {
        wheel: given_out(&wheel)?,
        executable: given_out(&executable)?,
    };
    describe("wheel", &release.wheel)?;
    describe("one file", &release.executable)?;
    check("its parts", &release.executable)?;
    check(
        "_pedl",
        &laid_out_module(&release.executable, environment, &built.join("library"))?,
    )?;
    Ok(release)
}

/// `maturin build`, with all tools of the environment on its `PATH`.
fn maturin(repository: &Repository, environment: &Environment) -> Result<Command> {
    let cache = environment::cache_directory()?;
    let mut path = vec![environment.directory.join("bin")];
    path.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let path = env::join_paths(path)
        .map_err(|error| Failure::new(format!("PATH cannot be extended: {error}")))?;
    let mut maturin = environment.command();
    maturin
        .args(["-m", "maturin", "build", "--release", "--locked"])
        .current_dir(repository.root())
        .env("PATH", path)
        .env("SOURCE_DATE_EPOCH", TIME)
        .env("ZIG_GLOBAL_CACHE_DIR", cache.join("zig"))
        .env("CARGO_ZIGBUILD_CACHE_DIR", cache.join("zigbuild"));
    Ok(maturin)
}

/// The `_pedl` that the executable contains.
fn laid_out_module(executable: &Path, environment: &Environment, cache: &Path) -> Result<PathBuf> {
    remove(cache)?;
    let mut command = process::python(executable);
    command
        .arg("--python")
        .arg(&environment.python)
        .args(["-c", "import _pedl; print(_pedl.__file__)"])
        .env("PEDL_CACHE_DIR", cache);
    let mut running = Running::start(command, Output::KeepStdout)?;
    let ended = running.wait(RUN_LIMIT)?;
    let text = running.text();
    if !ended.success() {
        let what = format!("`{}`: {}", executable.display(), ended.describe());
        return Err(Failure::new(what));
    }
    Ok(PathBuf::from(text.trim()))
}

fn describe(name: &str, path: &Path) -> Result<()> {
    let bytes = path.metadata().at("read", path)?.len();
    let (mib, tenths) = (bytes >> 20, ((bytes & 0xF_FFFF) * 10) >> 20);
    println!("{name:<12} {}, {mib}.{tenths} MiB", path.display());
    Ok(())
}

/// Prints what a file needs of the system, and fails if that is too much.
fn check(name: &str, path: &Path) -> Result<()> {
    let bytes = fs::read(path).at("read", path)?;
    let not_elf = |error| Failure::new(format!("cannot read `{}`: {error}", path.display()));
    let elf = Elf::parse(&bytes).map_err(not_elf)?;
    let newest = newest_glibc(&elf);
    println!(
        "{name:<12} newest symbol GLIBC_{}.{}, needs {}",
        newest.0,
        newest.1,
        elf.libraries.join(" ")
    );
    if newest > NEWEST_GLIBC {
        let what = format!(
            "`{}` needs glibc {}.{}: at most {}.{} was expected",
            path.display(),
            newest.0,
            newest.1,
            NEWEST_GLIBC.0,
            NEWEST_GLIBC.1
        );
        return Err(Failure::new(what));
    }
    let foreign = elf.libraries.iter().find(|name| !LIBRARIES.contains(name));
    match foreign {
        None => Ok(()),
        Some(foreign) => {
            let what = format!("`{}` needs `{foreign}`", path.display());
            Err(Failure::new(what).hint(format!(
                "only these may be asked for: {}",
                LIBRARIES.join(", ")
            )))
        }
    }
}

/// The newest `GLIBC_` version among the symbols that a file needs from others.
fn newest_glibc(elf: &Elf<'_>) -> Glibc {
    let versions = elf
        .verneed
        .iter()
        .flat_map(goblin::elf::VerneedSection::iter)
        .flat_map(|library| library.iter().collect::<Vec<_>>())
        .filter_map(|version| elf.dynstrtab.get_at(version.vna_name));
    versions.filter_map(glibc_version).max().unwrap_or_default()
}

/// (2, 17) of `GLIBC_2.17`, and of `GLIBC_2.2.5` the first two numbers.
fn glibc_version(symbol: &str) -> Option<Glibc> {
    let mut numbers = symbol.strip_prefix("GLIBC_")?.split('.');
    Some(Glibc(
        numbers.next()?.parse().ok()?,
        numbers.next()?.parse().ok()?,
    ))
}

fn only_file(directory: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(directory).at("list", directory)?;
    let files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    match &files[..] {
        [file] => Ok(file.clone()),
        _ => Err(Failure::new(format!(
            "expected one wheel in `{}`, found {}",
            directory.display(),
            files.len()
        ))),
    }
}

fn remove(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory).at("remove", directory)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Glibc, NEWEST_GLIBC, glibc_version, newest_glibc};
    use goblin::elf::Elf;

    #[test]
    fn versions_of_glibc_are_numbers() {
        assert_eq!(glibc_version("GLIBC_2.2.5"), Some(Glibc(2, 2)));
        assert!(glibc_version("GLIBC_2.34") > Some(NEWEST_GLIBC));
        assert!(glibc_version("GLIBC_2.4") < Some(NEWEST_GLIBC));
        assert_eq!(glibc_version("GLIBC_PRIVATE"), None);
        assert_eq!(glibc_version("GCC_3.0"), None);
    }

    #[test]
    fn this_test_needs_some_glibc() {
        let this = std::env::current_exe().expect("a running test has a path");
        let bytes = std::fs::read(this).expect("it can be read");
        let elf = Elf::parse(&bytes).expect("it is an executable");
        assert!(newest_glibc(&elf) >= Glibc(2, 2));
        assert!(elf.libraries.contains(&"libc.so.6"));
    }
}
