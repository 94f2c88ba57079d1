//! Reads from an executable file which libpython it is linked against.
//!
//! This takes some 50 µs, without starting a process, and decides everything else: an interpreter
//! that is linked against a shared libpython can be embedded without any loss. The library is then
//! searched where the dynamic linker would search it.
//!
//! Only 64-bit little-endian files are supported, that is every platform with wheels of Keras or
//! TensorFlow. Anything else, for example a shell script, counts as `NotElf`.
//!
//! Source: the System V ABI, chapters 4 and 5 (file and dynamic section), and `ld.so(8)`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The linkage of an executable to libpython.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Linkage {
    /// Linked against the library of this name; the path is absolute if the search found it, and
    /// the bare name if only the linker's cache can.
    Shared { soname: String, path: PathBuf },
    /// An executable without a libpython: Python is linked into it.
    Static,
    /// Not an executable that can be read: a script, or of another architecture.
    NotElf,
}

const HEADER_SIZE: usize = 64;
const PROGRAM_HEADER_SIZE: usize = 56;
const DYNAMIC_ENTRY_SIZE: usize = 16;
/// More than any real file has; a larger number means that the file is damaged.
const MAX_TABLE_SIZE: usize = 1 << 20;

const MAGIC_64_BIT_LITTLE_ENDIAN: &[u8] = b"\x7fELF\x02\x01";

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;

const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

/// Reads the linkage of an executable. `library_path` is the value of `LD_LIBRARY_PATH`.
pub(super) fn linkage(executable: &Path, library_path: Option<&OsStr>) -> io::Result<Linkage> {
    // The linker replaces $ORIGIN by the directory of the file itself, not of a symlink to it.
    let resolved = executable.canonicalize()?;
    let Some(dynamic) = Dynamic::read(&File::open(&resolved)?)? else {
        return Ok(Linkage::NotElf);
    };
    let Some(soname) = dynamic
        .needed
        .iter()
        .find(|name| name.starts_with("libpython"))
    else {
        return Ok(Linkage::Static);
    };
    let origin = resolved.parent().unwrap_or(Path::new("/"));
    let path = dynamic
        .search_path(origin, library_path)
        .into_iter()
        .map(|directory| directory.join(soname))
        .find(|path| path.is_file());
    Ok(Linkage::Shared {
        soname: soname.clone(),
        path: path.unwrap_or_else(|| PathBuf::from(soname)),
    })
}

/// The needed parts of the dynamic section.
#[derive(Debug, Default)]
struct Dynamic {
    needed: Vec<String>,
    rpath: Option<OsString>,
    runpath: Option<OsString>,
}

impl Dynamic {
    /// `None`: not a file of the expected form.
    fn read(file: &File) -> io::Result<Option<Self>> {
        let Some(header) = read(file, 0, HEADER_SIZE)? else {
            return Ok(None);
        };
        if !header.starts_with(MAGIC_64_BIT_LITTLE_ENDIAN) {
            return Ok(None);
        }
        let num_segments = usize::from(u16_at(&header, 56));
        let table = read(
            file,
            u64_at(&header, 32),
            num_segments * PROGRAM_HEADER_SIZE,
        )?;
        let Some(table) = table else { return Ok(None) };
        let segments: Vec<_> = table
            .chunks_exact(PROGRAM_HEADER_SIZE)
            .map(Segment::from_bytes)
            .collect();
        let Some(dynamic) = segments.iter().find(|segment| segment.kind == PT_DYNAMIC) else {
            return Ok(Some(Self::default()));
        };
        let Some(entries) = read(file, dynamic.offset, as_size(dynamic.size))? else {
            return Ok(None);
        };
        let entries: Vec<_> = entries
            .chunks_exact(DYNAMIC_ENTRY_SIZE)
            .map(|entry| (u64_at(entry, 0), u64_at(entry, 8)))
            .collect();
        let value = |wanted| {
            entries
                .iter()
                .find(|(tag, _)| *tag == wanted)
                .map(|entry| entry.1)
        };
        let (Some(address), Some(size)) = (value(DT_STRTAB), value(DT_STRSZ)) else {
            return Ok(Some(Self::default()));
        };
        let Some(offset) = segments
            .iter()
            .find_map(|segment| segment.file_offset(address))
        else {
            return Ok(None);
        };
        let Some(strings) = read(file, offset, as_size(size))? else {
            return Ok(None);
        };
        let text = |position| string_at(&strings, position);
        Ok(Some(Self {
            needed: entries
                .iter()
                .filter(|(tag, _)| *tag == DT_NEEDED)
                .map(|(_, position)| text(*position).to_string_lossy().into_owned())
                .collect(),
            rpath: value(DT_RPATH).map(text),
            runpath: value(DT_RUNPATH).map(text),
        }))
    }

    /// The directories that the linker searches before its cache, in its order.
    fn search_path(&self, origin: &Path, library_path: Option<&OsStr>) -> Vec<PathBuf> {
        // RPATH counts only in files without a RUNPATH.
        let rpath = self.rpath.as_deref().filter(|_| self.runpath.is_none());
        [rpath, library_path, self.runpath.as_deref()]
            .into_iter()
            .flatten()
            .flat_map(|list| list.as_bytes().split(|byte| *byte == b':'))
            .filter(|directory| !directory.is_empty())
            .map(|directory| with_origin(directory, origin))
            .collect()
    }
}

struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

impl Segment {
    fn from_bytes(bytes: &[u8]) -> Self {
        Self {
            kind: u32_at(bytes, 0),
            offset: u64_at(bytes, 8),
            address: u64_at(bytes, 16),
            size: u64_at(bytes, 32),
        }
    }

    /// The offset in the file of the byte at that address, if this segment loads it.
    fn file_offset(&self, address: u64) -> Option<u64> {
        let within = address.checked_sub(self.address)?;
        (self.kind == PT_LOAD && within < self.size).then(|| self.offset.checked_add(within))?
    }
}

/// `None` if the file ends earlier, or the size is absurd.
fn read(file: &File, offset: u64, size: usize) -> io::Result<Option<Vec<u8>>> {
    if size > MAX_TABLE_SIZE {
        return Ok(None);
    }
    let mut bytes = vec![0; size];
    match file.read_exact_at(&mut bytes, offset) {
        Ok(()) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

fn with_origin(directory: &[u8], origin: &Path) -> PathBuf {
    for prefix in [&b"$ORIGIN"[..], b"${ORIGIN}"] {
        if let Some(rest) = directory.strip_prefix(prefix) {
            let joined = [origin.as_os_str().as_bytes(), rest].concat();
            return PathBuf::from(OsString::from_vec(joined));
        }
    }
    PathBuf::from(OsStr::from_bytes(directory))
}

fn string_at(strings: &[u8], position: u64) -> OsString {
    let tail = strings.get(as_size(position)..).unwrap_or_default();
    let end = tail
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(tail.len());
    OsString::from_vec(tail[..end].to_vec())
}

/// A size from a file; a number that does not fit is absurd and fails the bounds that follow.
fn as_size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, offset))
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, offset))
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, offset))
}

/// The offsets are constants inside structures whose size was read, so they are in bounds.
fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes[offset + index])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_is_an_executable_without_libpython() {
        let this = std::env::current_exe().expect("a running test has a path");
        assert_eq!(linkage(&this, None).expect("readable"), Linkage::Static);
    }

    #[test]
    fn a_script_is_not_elf() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for (name, text) in [
            ("script", "#!/bin/sh\n"),
            ("empty", ""),
            ("magic", "\x7fELF\x02\x01"),
        ] {
            let path = directory.path().join(name);
            std::fs::write(&path, text).expect("writable");
            assert_eq!(
                linkage(&path, None).expect("readable"),
                Linkage::NotElf,
                "{name}"
            );
        }
    }

    #[test]
    fn directories_are_searched_in_the_order_of_the_linker() {
        let origin = Path::new("/opt/python/bin");
        let both = Dynamic {
            needed: vec![],
            rpath: Some("/rpath".into()),
            runpath: Some("$ORIGIN/../lib:${ORIGIN}:/runpath".into()),
        };
        let expected = [
            "/env",
            "/opt/python/bin/../lib",
            "/opt/python/bin",
            "/runpath",
        ];
        assert_eq!(
            both.search_path(origin, Some(OsStr::new("/env:"))),
            expected.map(PathBuf::from)
        );
        let rpath_only = Dynamic {
            runpath: None,
            ..both
        };
        assert_eq!(
            rpath_only.search_path(origin, Some(OsStr::new("/env"))),
            ["/rpath", "/env"].map(PathBuf::from)
        );
    }
}
