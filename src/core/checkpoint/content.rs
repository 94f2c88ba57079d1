//! Bytes and their hash: writes, reads and copies them in one pass.

use std::path::Path;

use blake3::{Hash, Hasher};

use super::fs::{FileSystem, ReadFile, WriteFile};
use crate::error::Result;

/// Bytes that are hashed and passed on at once, 1 MiB: they are still in the cache of the processor
/// when they are written, and a write of that size costs no more per byte than a larger one.
const CHUNK_BYTES: usize = 1 << 20;

/// Bytes of a pack after which the disk begins to write them, while the next ones are still on
/// their way to the cache of the system. So, at the end, most of a pack is already on the disk.
const SYNC_BYTES: usize = 8 << 20;

/// Bytes that are collected for one write, and the size of a read if the caller has no buffer for
/// it, 64 KiB. A separate thread writes each checkpoint, and glibc gives each thread another of its
/// arenas, eight per processor, if other libraries have as many threads: in the end, every arena
/// holds what a commit allocates.
const BUFFER_BYTES: usize = 64 << 10;

/// Permission bits of the files that a checkpoint itself creates, less the umask.
pub(super) const MODE: u32 = 0o666;

/// A file being written, in large pieces.
#[derive(Debug)]
pub(super) struct Writer {
    file: Box<dyn WriteFile>,
    /// Small writes are collected here.
    pending: Vec<u8>,
    /// Bytes that the disk did not get yet; `None`: it gets none before the end.
    kept_back: Option<usize>,
}

impl Writer {
    pub(super) fn create<F: FileSystem>(fs: &F, path: &Path, mode: u32) -> Result<Self> {
        Ok(Self {
            file: fs.create(path, mode)?,
            pending: Vec::new(),
            kept_back: None,
        })
    }

    /// Like `create`, for a large file that will be finished durably.
    pub(super) fn create_durable<F: FileSystem>(fs: &F, path: &Path, mode: u32) -> Result<Self> {
        let kept_back = Some(0);
        Ok(Self {
            kept_back,
            ..Self::create(fs, path, mode)?
        })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        for chunk in bytes.chunks(CHUNK_BYTES) {
            if self.pending.len() + chunk.len() > BUFFER_BYTES {
                self.write_pending()?;
            }
            if chunk.len() >= BUFFER_BYTES {
                self.file.write(chunk)?;
                self.written(chunk.len());
            } else {
                self.pending.extend_from_slice(chunk);
            }
        }
        Ok(())
    }

    fn write_pending(&mut self) -> Result<()> {
        if !self.pending.is_empty() {
            self.file.write(&self.pending)?;
            self.written(self.pending.len());
            self.pending.clear();
        }
        Ok(())
    }

    fn written(&mut self, bytes: usize) {
        if let Some(kept_back) = &mut self.kept_back {
            *kept_back += bytes;
            if *kept_back >= SYNC_BYTES {
                *kept_back = 0;
                self.file.begin_sync();
            }
        }
    }

    /// Hands all of it to the operating system; it need not be on the disk yet.
    pub(super) fn finish(mut self) -> Result<()> {
        self.write_pending()
    }

    /// Returns when all of it is on the disk.
    pub(super) fn finish_durably(mut self) -> Result<()> {
        self.write_pending()?;
        self.file.sync()
    }
}

/// A file that is hashed while it is written.
#[derive(Debug)]
pub(super) struct HashingWriter {
    writer: Writer,
    hasher: Hasher,
    size: u64,
}

impl HashingWriter {
    pub(super) fn create<F: FileSystem>(fs: &F, path: &Path, mode: u32) -> Result<Self> {
        Ok(Self {
            writer: Writer::create(fs, path, mode)?,
            hasher: Hasher::new(),
            size: 0,
        })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.size += bytes.len() as u64;
        for chunk in bytes.chunks(CHUNK_BYTES) {
            self.hasher.update(chunk);
            self.writer.write(chunk)?;
        }
        Ok(())
    }

    /// Size and hash of all that was written. It need not be on the disk yet.
    pub(super) fn finish(self) -> Result<(u64, Hash)> {
        self.writer.finish()?;
        Ok((self.size, self.hasher.finalize()))
    }

    /// Size and hash of all that was written. All of it is on the disk.
    pub(super) fn finish_durably(self) -> Result<(u64, Hash)> {
        self.writer.finish_durably()?;
        Ok((self.size, self.hasher.finalize()))
    }
}

/// A file that is hashed while it is read.
#[derive(Debug)]
pub(super) struct HashingReader {
    file: Box<dyn ReadFile>,
    hasher: Hasher,
    size: u64,
}

impl HashingReader {
    pub(super) fn open<F: FileSystem>(fs: &F, path: &Path) -> Result<Self> {
        Ok(Self {
            file: fs.open(path)?,
            hasher: Hasher::new(),
            size: 0,
        })
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn of(file: Box<dyn ReadFile>) -> Self {
        Self {
            file,
            hasher: Hasher::new(),
            size: 0,
        }
    }

    /// Like `open`, for a file of a trial.
    pub(super) fn open_plain<F: FileSystem>(fs: &F, path: &Path) -> Result<Self> {
        Ok(Self {
            file: fs.open_plain(path)?,
            hasher: Hasher::new(),
            size: 0,
        })
    }

    /// Reads more bytes; fewer than requested only at the end of the file.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        for chunk in buffer.chunks_mut(CHUNK_BYTES) {
            let read = self.file.read(chunk)?;
            self.hasher.update(&chunk[..read]);
            filled += read;
            if read < chunk.len() {
                break;
            }
        }
        self.size += filled as u64;
        Ok(filled)
    }

    /// The hash of what was read since the last call, or since the start of the file.
    pub(super) fn take_hash(&mut self) -> Hash {
        let hash = self.hasher.finalize();
        self.hasher.reset();
        hash
    }

    /// Reads the rest. Size and hash of the whole file.
    pub(super) fn finish(self) -> Result<(u64, Hash)> {
        self.pass_on(|_| Ok(()))
    }

    /// Passes the rest to `sink`. Size and hash of the whole file.
    pub(super) fn pass_on(
        mut self,
        mut sink: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<(u64, Hash)> {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let read = self.read(&mut buffer)?;
            sink(&buffer[..read])?;
            if read < buffer.len() {
                return Ok((self.size, self.hasher.finalize()));
            }
        }
    }
}

/// Size and hash of a file.
pub(super) fn hash<F: FileSystem>(fs: &F, path: &Path) -> Result<(u64, Hash)> {
    HashingReader::open(fs, path)?.finish()
}

/// Copies a file to a new name. Size and hash of the copy.
pub(super) fn copy<F: FileSystem>(
    fs: &F,
    from: &Path,
    to: &Path,
    mode: u32,
) -> Result<(u64, Hash)> {
    let reader = HashingReader::open(fs, from)?;
    let mut writer = HashingWriter::create(fs, to, mode)?;
    reader.pass_on(|bytes| writer.write(bytes))?;
    writer.finish()
}
