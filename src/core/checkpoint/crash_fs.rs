//! A file system in memory that fails at a chosen operation, and shows what is left then.
//!
//! Every directory and file remembers each state since its last sync. A power cut picks one of them
//! for each: the last (kept), the first (lost), or any, independently of the others; and possibly
//! only a part of the last write to a file. So all outcomes are possible that the assumptions at
//! the head of [`super`] do not exclude.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use super::failure::Failure;
use super::fs::{FileSystem, ReadFile, Stat, WriteFile};
use crate::error::Result;

/// Which operations fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fails {
    Never,
    /// The operation of this number, once; the process continues.
    Once(usize),
    /// The operation of this number and all after it: the process is dead.
    From(usize),
}

/// What a power cut leaves of unsynced data.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kept {
    /// All of it: only the process was killed.
    Everything,
    Nothing,
    /// New names, for files without their content.
    Names,
    /// Contents, for files that may have no name.
    Contents,
    /// Any of the states of anything, by a seed.
    Any(u64),
}

#[derive(Clone, Debug)]
enum Node {
    /// Contents since the last sync; the synced one is first.
    File {
        history: Vec<Vec<u8>>,
        mode: u32,
        changes: i64,
    },
    /// Names since the last sync; the synced ones are first.
    Directory {
        history: Vec<Names>,
    },
    Link {
        target: PathBuf,
    },
}

type Names = BTreeMap<OsString, usize>;

#[derive(Clone, Debug)]
struct Disk {
    nodes: Vec<Node>,
    operations: usize,
    syncs: usize,
    fails: Fails,
    random: u8,
    exchanges: bool,
}

#[derive(Clone, Debug)]
pub(super) struct CrashFs {
    disk: Arc<Mutex<Disk>>,
}

impl CrashFs {
    pub(super) fn new() -> Self {
        let root = Node::Directory {
            history: vec![Names::new()],
        };
        let disk = Disk {
            nodes: vec![root],
            operations: 0,
            syncs: 0,
            fails: Fails::Never,
            random: 0,
            exchanges: true,
        };
        Self {
            disk: Arc::new(Mutex::new(disk)),
        }
    }

    /// From here on, no operation can exchange two names.
    pub(super) fn cannot_exchange(&self) {
        self.disk().exchanges = false;
    }

    /// Counts operations from 0 again, and makes some of them fail.
    pub(super) fn fail(&self, fails: Fails) {
        let mut disk = self.disk();
        (disk.operations, disk.syncs) = (0, 0);
        disk.fails = fails;
    }

    /// The number of operations that wait for the disk.
    pub(super) fn syncs(&self) -> usize {
        self.disk().syncs
    }

    /// Changing operations since the last [`fail`](Self::fail).
    pub(super) fn operations(&self) -> usize {
        self.disk().operations
    }

    /// The state after the power came back.
    pub(super) fn after_power_cut(&self, kept: Kept) -> Self {
        let mut disk = self.disk().clone();
        (disk.operations, disk.fails) = (0, Fails::Never);
        for (index, node) in disk.nodes.iter_mut().enumerate() {
            match node {
                Node::File { history, .. } => {
                    let content = match kept {
                        Kept::Everything | Kept::Contents => last(history).clone(),
                        Kept::Nothing | Kept::Names => history[0].clone(),
                        Kept::Any(seed) => {
                            let number = mix(seed, index as u64);
                            let mut content = pick(history, number).clone();
                            if number.is_multiple_of(4) && history.len() > 1 {
                                // The size was written, the blocks were not.
                                content
                                    .iter_mut()
                                    .skip(history[0].len())
                                    .for_each(|byte| *byte = 0);
                            }
                            content
                        }
                    };
                    *history = vec![content];
                }
                Node::Directory { history } => {
                    let names = match kept {
                        Kept::Everything | Kept::Names => last(history).clone(),
                        Kept::Nothing | Kept::Contents => history[0].clone(),
                        Kept::Any(seed) => pick(history, mix(seed, index as u64)).clone(),
                    };
                    *history = vec![names];
                }
                Node::Link { .. } => {}
            }
        }
        Self {
            disk: Arc::new(Mutex::new(disk)),
        }
    }

    /// The content of a file.
    pub(super) fn content(&self, path: &Path) -> Vec<u8> {
        let disk = self.disk();
        let index = disk
            .find(path)
            .unwrap_or_else(|| panic!("{} is there", path.display()));
        match &disk.nodes[index] {
            Node::File { history, .. } => last(history).clone(),
            other => panic!("{} is {other:?}", path.display()),
        }
    }

    /// Overwrites a file in place, or makes it; durable at once.
    pub(super) fn overwrite(&self, path: &Path, content: &[u8]) {
        let mut disk = self.disk();
        if let Some(index) = disk.find(path) {
            let Node::File {
                history, changes, ..
            } = &mut disk.nodes[index]
            else {
                panic!("{} is a file", path.display());
            };
            *history = vec![content.to_vec()];
            *changes += 1;
            return;
        }
        let file = Node::File {
            history: vec![content.to_vec()],
            mode: 0o640,
            changes: 0,
        };
        disk.nodes.push(file);
        let (index, (parent, name)) = (
            disk.nodes.len() - 1,
            disk.parent(path).expect("a directory"),
        );
        let Node::Directory { history } = &mut disk.nodes[parent] else {
            panic!("{} has a directory", path.display());
        };
        let mut names = last(history).clone();
        names.insert(name, index);
        *history = vec![names];
    }

    /// The target of a link.
    pub(super) fn link(&self, path: &Path) -> Option<PathBuf> {
        let disk = self.disk();
        let (parent, name) = disk.parent(path).ok()?;
        match &disk.nodes[*disk.names(parent).get(&name)?] {
            Node::Link { target } => Some(target.clone()),
            Node::File { .. } | Node::Directory { .. } => None,
        }
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk
            .lock()
            .expect("no test panics inside an operation")
    }

    /// Runs a changing operation, unless it must fail.
    fn change<T>(&self, path: &Path, change: impl FnOnce(&mut Disk) -> io::Result<T>) -> Result<T> {
        let mut disk = self.disk();
        let outcome = if disk.next_fails() {
            Err(io::Error::other("the power is off"))
        } else {
            change(&mut disk)
        };
        at(path, outcome)
    }

    fn look<T>(&self, path: &Path, look: impl FnOnce(&Disk) -> io::Result<T>) -> Result<T> {
        let disk = self.disk();
        let is_dead = matches!(disk.fails, Fails::From(first) if disk.operations > first);
        at(
            path,
            if is_dead {
                Err(io::Error::other("the power is off"))
            } else {
                look(&disk)
            },
        )
    }
}

impl Disk {
    fn next_fails(&mut self) -> bool {
        let number = self.operations;
        self.operations += 1;
        match self.fails {
            Fails::Never => false,
            Fails::Once(fatal) => number == fatal,
            Fails::From(first) => number >= first,
        }
    }

    fn names(&self, index: usize) -> &Names {
        match &self.nodes[index] {
            Node::Directory { history } => last(history),
            other => panic!("no directory: {other:?}"),
        }
    }

    fn find(&self, path: &Path) -> Option<usize> {
        let mut directories = Vec::new();
        let mut index = 0;
        for component in path.components() {
            let Component::Normal(name) = component else {
                continue;
            };
            let Node::Directory { history } = &self.nodes[index] else {
                return None;
            };
            let next = *last(history).get(name)?;
            if let Node::Link { target } = &self.nodes[next] {
                let directory: PathBuf =
                    Path::new("/").join(directories.iter().collect::<PathBuf>());
                index = self.find(&directory.join(target))?;
            } else {
                index = next;
            }
            directories.push(name.to_owned());
        }
        Some(index)
    }

    fn parent(&self, path: &Path) -> io::Result<(usize, OsString)> {
        let parent = path.parent().and_then(|parent| self.find(parent));
        let parent = parent.ok_or(io::ErrorKind::NotFound)?;
        Ok((
            parent,
            path.file_name()
                .map(OsStr::to_owned)
                .ok_or(io::ErrorKind::InvalidInput)?,
        ))
    }

    fn change_names(
        &mut self,
        index: usize,
        change: impl FnOnce(&mut Names) -> Option<usize>,
    ) -> io::Result<()> {
        let Node::Directory { history } = &mut self.nodes[index] else {
            return Err(io::ErrorKind::NotADirectory.into());
        };
        let mut names = last(history).clone();
        change(&mut names);
        history.push(names);
        Ok(())
    }

    fn add(&mut self, path: &Path, node: Node) -> io::Result<usize> {
        let (parent, name) = self.parent(path)?;
        if self.names(parent).contains_key(&name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let index = self.nodes.len();
        self.nodes.push(node);
        self.change_names(parent, |names| names.insert(name, index))?;
        Ok(index)
    }

    fn sync(&mut self, index: usize) {
        self.syncs += 1;
        match &mut self.nodes[index] {
            Node::File { history, .. } => drop(history.drain(..history.len() - 1)),
            Node::Directory { history } => drop(history.drain(..history.len() - 1)),
            Node::Link { .. } => {}
        }
    }

    fn existing(&self, path: &Path) -> io::Result<usize> {
        self.find(path)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl FileSystem for CrashFs {
    fn make_directory(&self, path: &Path) -> Result<bool> {
        self.change(path, |disk| {
            match disk.add(
                path,
                Node::Directory {
                    history: vec![Names::new()],
                },
            ) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
                outcome => outcome.map(|_| true),
            }
        })
    }

    fn create(&self, path: &Path, mode: u32) -> Result<Box<dyn WriteFile>> {
        let file = Node::File {
            history: vec![Vec::new()],
            mode,
            changes: 0,
        };
        let node = self.change(path, |disk| disk.add(path, file))?;
        Ok(Box::new(Open {
            fs: self.clone(),
            path: path.to_owned(),
            node,
            offset: 0,
        }))
    }

    fn set_mode(&self, path: &Path, new: u32) -> Result<()> {
        self.change(path, |disk| {
            let index = disk.existing(path)?;
            if let Node::File { mode, .. } = &mut disk.nodes[index] {
                *mode = new;
            }
            Ok(())
        })
    }

    fn open(&self, path: &Path) -> Result<Box<dyn ReadFile>> {
        let node = self.look(path, |disk| disk.existing(path))?;
        Ok(Box::new(Open {
            fs: self.clone(),
            path: path.to_owned(),
            node,
            offset: 0,
        }))
    }

    fn sync_file(&self, path: &Path) -> Result<()> {
        self.change(path, |disk| {
            disk.existing(path).map(|index| disk.sync(index))
        })
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        self.sync_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.change(from, |disk| {
            let ((old, old_name), (new, new_name)) = (disk.parent(from)?, disk.parent(to)?);
            let &node = disk
                .names(old)
                .get(&old_name)
                .ok_or(io::ErrorKind::NotFound)?;
            if let Some(&target) = disk.names(new).get(&new_name)
                && let Node::Directory { history } = &disk.nodes[target]
            {
                if !matches!(disk.nodes[node], Node::Directory { .. }) {
                    return Err(io::ErrorKind::IsADirectory.into());
                }
                if !last(history).is_empty() {
                    return Err(io::ErrorKind::DirectoryNotEmpty.into());
                }
            }
            if old == new {
                return disk.change_names(old, |names| {
                    names.remove(&old_name);
                    names.insert(new_name, node)
                });
            }
            disk.change_names(new, |names| names.insert(new_name, node))?;
            disk.change_names(old, |names| names.remove(&old_name))
        })
    }

    fn exchange(&self, one: &Path, other: &Path) -> Result<bool> {
        self.change(one, |disk| {
            if !disk.exchanges {
                return Ok(false);
            }
            let ((parent, one_name), (_, other_name)) = (disk.parent(one)?, disk.parent(other)?);
            let names = disk.names(parent);
            let found = (
                names.get(&one_name).copied(),
                names.get(&other_name).copied(),
            );
            let (Some(first), Some(second)) = found else {
                return Err(io::ErrorKind::NotFound.into());
            };
            disk.change_names(parent, |names| {
                names.insert(one_name, second);
                names.insert(other_name, first)
            })?;
            Ok(true)
        })
    }

    fn symlink(&self, target: &Path, link: &Path) -> Result<bool> {
        let node = Node::Link {
            target: target.to_owned(),
        };
        self.change(link, |disk| disk.add(link, node).map(|_| true))
    }

    fn remove_file(&self, path: &Path) -> Result<bool> {
        self.change(path, |disk| {
            let (parent, name) = disk.parent(path)?;
            let node = disk.names(parent).get(&name);
            if node.is_some_and(|&node| matches!(disk.nodes[node], Node::Directory { .. })) {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            let is_there = disk.names(parent).contains_key(&name);
            disk.change_names(parent, |names| names.remove(&name))?;
            Ok(is_there)
        })
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        self.change(path, |disk| {
            let index = disk.existing(path)?;
            if !disk.names(index).is_empty() {
                return Err(io::ErrorKind::DirectoryNotEmpty.into());
            }
            let (parent, name) = disk.parent(path)?;
            disk.change_names(parent, |names| names.remove(&name))
        })
    }

    fn list(&self, path: &Path) -> Result<Vec<OsString>> {
        self.look(path, |disk| match disk.find(path) {
            Some(index) => Ok(disk.names(index).keys().cloned().collect()),
            None => Ok(Vec::new()),
        })
    }

    fn stat(&self, path: &Path) -> Result<Option<Stat>> {
        self.look(path, |disk| {
            let Some(index) = disk.find(path) else {
                return Ok(None);
            };
            let (size, mode, changes, is_directory) = match &disk.nodes[index] {
                Node::File {
                    history,
                    mode,
                    changes,
                } => (last(history).len(), *mode, *changes, false),
                Node::Directory { .. } => (0, 0o777, 0, true),
                Node::Link { .. } => return Ok(None),
            };
            let (size, inode, modified) = (size as u64, index as u64, (changes, 0));
            Ok(Some(Stat {
                size,
                mode,
                inode,
                modified,
                is_directory,
            }))
        })
    }

    fn is_directory(&self, path: &Path) -> Result<bool> {
        self.look(path, |disk| {
            let (parent, name) = disk.parent(path)?;
            let node = disk.names(parent).get(&name);
            Ok(node.is_some_and(|&node| matches!(disk.nodes[node], Node::Directory { .. })))
        })
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        Ok(path.to_owned())
    }

    fn random(&self, buffer: &mut [u8]) -> Result<()> {
        let mut disk = self.disk();
        disk.random = disk.random.wrapping_add(1);
        buffer.fill(disk.random);
        Ok(())
    }
}

#[derive(Debug)]
struct Open {
    fs: CrashFs,
    path: PathBuf,
    node: usize,
    offset: usize,
}

impl WriteFile for Open {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let mut disk = self.fs.disk();
        let fails = disk.next_fails();
        // An interrupted write has written a part.
        let written = if fails {
            &bytes[..bytes.len() / 2]
        } else {
            bytes
        };
        let Node::File {
            history, changes, ..
        } = &mut disk.nodes[self.node]
        else {
            panic!("{} is a file", self.path.display());
        };
        let mut content = last(history).clone();
        content.extend_from_slice(written);
        history.push(content);
        *changes += 1;
        at(
            &self.path,
            if fails {
                Err(io::Error::other("the power is off"))
            } else {
                Ok(())
            },
        )
    }

    fn begin_sync(&mut self) {}

    fn sync(&mut self) -> Result<()> {
        let node = self.node;
        self.fs.change(&self.path, |disk| {
            disk.sync(node);
            Ok(())
        })
    }
}

impl ReadFile for Open {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let (node, offset) = (self.node, self.offset);
        let read = self.fs.look(&self.path, |disk| {
            let Node::File { history, .. } = &disk.nodes[node] else {
                return Err(io::ErrorKind::IsADirectory.into());
            };
            let rest = last(history).get(offset..).unwrap_or_default();
            let read = rest.len().min(buffer.len());
            buffer[..read].copy_from_slice(&rest[..read]);
            Ok(read)
        })?;
        self.offset += read;
        Ok(read)
    }
}

fn last<T>(history: &[T]) -> &T {
    history.last().expect("there is a state")
}

fn pick<T>(history: &[T], number: u64) -> &T {
    let index = (number >> 8) % history.len() as u64;
    &history[usize::try_from(index).expect("it is below a length")]
}

/// A pseudo-random number. Source: `SplitMix64` (Steele, Lea, Flood 2014).
pub(super) fn mix(seed: u64, index: u64) -> u64 {
    let mut number = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(index);
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn at<T>(path: &Path, outcome: io::Result<T>) -> Result<T> {
    let path = path.to_owned();
    outcome.map_err(|source| {
        Failure::Io {
            operation: "use",
            path,
            source,
        }
        .into()
    })
}
