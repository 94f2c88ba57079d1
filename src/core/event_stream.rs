//! The events of a trial for the process that started it: an inherited file descriptor also gets
//! the lines of the journal (`--events-fd`).
//!
//! Training never waits for its reader, and never ends with it:
//!
//! - A pipe or a file is opened once more through `/proc`, because the flag that makes a write
//!   return at once (`O_NONBLOCK`) is a property of the open file, which other processes share. A
//!   pipe is opened for reading too: while this process is a reader, there is no SIGPIPE, however
//!   the script handles that signal. A socket cannot be opened again; it has flags for each call.
//! - If there is no room for a line, it is kept, and the lines that follow are counted and left
//!   out. When there is room again, the event `events_lost` reports how many. The journal has all
//!   of them.
//!
//! The script has the descriptor too: it may close it, and open another file under that number. So
//! the device and inode identify the right file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The open file of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    descriptor: u32,
    device: u64,
    inode: u64,
}

impl Target {
    /// The file that is open under this number, in this process.
    ///
    /// # Errors
    ///
    /// No file is open; it cannot be written to; it is a pipe that is also standard output or
    /// error.
    pub fn of(descriptor: u32) -> io::Result<Self> {
        let metadata = fs::metadata(path_of(descriptor))?;
        let target = Self {
            descriptor,
            device: metadata.dev(),
            inode: metadata.ino(),
        };
        if !is_writable(descriptor)? {
            return Err(io::Error::other("it is open for reading only"));
        }
        // If this process reads the pipe too, the script never learns that the other reader has
        // gone.
        let is_standard = |number: u32| {
            fs::metadata(path_of(number)).is_ok_and(|standard| {
                (standard.dev(), standard.ino()) == (target.device, target.inode)
            })
        };
        if metadata.file_type().is_fifo() && (1..=2).any(is_standard) {
            let what = "it is the pipe that standard output or standard error goes to";
            return Err(io::Error::other(what));
        }
        Ok(target)
    }
}

/// The destination of the events.
#[derive(Debug)]
enum Sink {
    File(File),
    Socket(OwnedFd),
}

/// An open stream.
#[derive(Debug)]
pub struct Stream {
    /// `None`: it can no longer be written to.
    sink: Option<Sink>,
    /// The unsent rest of the last line.
    unsent: Vec<u8>,
    lost: u64,
}

impl Stream {
    /// Opens the stream.
    ///
    /// # Errors
    ///
    /// The descriptor is of another file by now, or cannot be written to.
    pub fn open(target: Target) -> io::Result<Self> {
        if Target::of(target.descriptor)? != target {
            let what = "it was closed, and another file has its number";
            return Err(io::Error::other(what));
        }
        Ok(Self {
            sink: Some(open_again(target.descriptor)?),
            unsent: Vec::new(),
            lost: 0,
        })
    }

    /// Sends a line, if there is room.
    pub(crate) fn send(&mut self, line: &str) {
        if !self.has_sent_all() {
            self.lost += 1;
            return;
        }
        if self.lost > 0 {
            let lost = json!({
                "schema": super::events::SCHEMA,
                "time": super::events::now(),
                "event": "events_lost",
                "count": self.lost,
            });
            self.unsent = format!("{lost}\n").into_bytes();
            self.lost = 0;
        }
        self.unsent.extend_from_slice(line.as_bytes());
        self.has_sent_all();
    }

    /// Sends the rest, as far as there is room. If the sink has failed, the rest is dropped.
    fn has_sent_all(&mut self) -> bool {
        while !self.unsent.is_empty() {
            let Some(sink) = &mut self.sink else {
                self.unsent.clear();
                return true;
            };
            match sink.write(&self.unsent) {
                Ok(written) => drop(self.unsent.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) => {
                    tracing::debug!("the stream of events has ended: {error}");
                    self.sink = None;
                }
            }
        }
        true
    }
}

impl Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.write(bytes),
            Self::Socket(socket) => Ok(send(
                socket,
                bytes,
                SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
            )?),
        }
    }
}

/// Whether a descriptor was opened for writing, according to the kernel. Opening the file again
/// would only check the permissions of the file.
fn is_writable(descriptor: u32) -> io::Result<bool> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}"))?;
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    let access = OFlags::from_bits_retain(flags.unwrap_or_default()) & OFlags::ACCMODE;
    Ok(access != OFlags::RDONLY)
}

fn path_of(descriptor: u32) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{descriptor}"))
}

fn open_again(descriptor: u32) -> io::Result<Sink> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options
        .append(true)
        .custom_flags(flags.bits().cast_signed());
    let path = path_of(descriptor);
    let opened = match options.clone().read(true).open(&path) {
        // A file that may be written to, but not read.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => options.open(&path),
        opened => opened,
    };
    match opened {
        Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
            let this_process = pidfd_open(getpid(), PidfdFlags::empty())?;
            let number = descriptor.cast_signed();
            let socket = pidfd_getfd(this_process, number, PidfdGetfdFlags::empty())?;
            Ok(Sink::Socket(socket))
        }
        opened => opened.map(Sink::File),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, pipe};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn stream_to(file: &impl AsRawFd) -> Stream {
        let descriptor = u32::try_from(file.as_raw_fd()).expect("it is open");
        let target = Target::of(descriptor).expect("it is open");
        Stream::open(target).expect("it can be written to")
    }

    #[test]
    fn a_full_pipe_loses_events_and_says_how_many() {
        let (mut reader, writer) = pipe().expect("a pipe");
        let mut stream = stream_to(&writer);
        let line = format!("{}\n", "x".repeat(999));
        for _ in 0..200 {
            stream.send(&line);
        }
        let lost = stream.lost;
        assert!((100..200).contains(&lost), "{lost}");
        // More than a page, less than the pipe holds.
        let mut bytes = vec![0; 40_000];
        reader.read_exact(&mut bytes).expect("they are there");
        stream.send("last\n");
        drop((stream, writer));
        let mut text = String::from_utf8(bytes).expect("text");
        reader.read_to_string(&mut text).expect("text");
        let lines: Vec<_> = text.lines().collect();
        let count = lines
            .iter()
            .filter(|found| **found == line.trim_end())
            .count();
        assert_eq!(count as u64, 200 - lost, "whole lines");
        let note: serde_json::Value = serde_json::from_str(lines[count]).expect("an event");
        assert_eq!(
            (&note["event"], &note["count"]),
            (&json!("events_lost"), &json!(lost))
        );
        assert_eq!(lines[count + 1..], ["last"]);
    }

    #[test]
    fn a_reader_that_has_gone_is_no_failure() {
        let (reader, writer) = pipe().expect("a pipe");
        let mut stream = stream_to(&writer);
        drop(reader);
        for _ in 0..200 {
            stream.send(&"x".repeat(999));
        }
        let (reader, writer) = UnixStream::pair().expect("sockets");
        let mut stream = stream_to(&writer);
        stream.send("first\n");
        drop(reader);
        stream.send("second\n");
        assert!(stream.sink.is_none());
    }

    #[test]
    fn a_number_that_stands_for_another_file_is_refused() {
        let (_reader, writer) = pipe().expect("a pipe");
        let descriptor = u32::try_from(writer.as_raw_fd()).expect("it is open");
        let target = Target::of(descriptor).expect("it is open");
        let other = Target {
            inode: target.inode + 1,
            ..target
        };
        let error = Stream::open(other).expect_err("another file");
        assert!(error.to_string().contains("another file"), "{error}");
    }

    #[test]
    fn what_is_open_for_reading_is_refused() {
        let (reader, _writer) = pipe().expect("a pipe");
        let descriptor = u32::try_from(reader.as_raw_fd()).expect("it is open");
        let error = Target::of(descriptor).expect_err("it is for reading");
        assert!(error.to_string().contains("reading only"), "{error}");
    }

    #[test]
    fn what_others_share_with_us_still_waits() {
        let (_reader, writer) = pipe().expect("a pipe");
        let _stream = stream_to(&writer);
        let flags = rustix::fs::fcntl_getfl(&writer).expect("flags");
        assert!(!flags.contains(OFlags::NONBLOCK));
    }
}
