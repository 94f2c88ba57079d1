//! What can go wrong with checkpoints, as messages.

use std::error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use super::layout::{MANIFEST, committed_name};
use super::manifest;
use crate::error::{Class, Kind};

/// A failure of this module, on its way to a [`crate::Error`].
#[derive(Debug)]
pub(super) enum Failure {
    /// An operation on the file system failed.
    Io {
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A checkpoint is not what was committed.
    Damaged(Damaged),
    /// The newest checkpoint is of another version of pedl.
    Schema {
        folder: PathBuf,
        schema: u64,
        version: String,
    },
    /// A tensor has a type that the format does not have.
    Dtype { tensor: String, dtype: String },
    /// The number of bytes of a tensor does not fit its shape.
    Size {
        tensor: String,
        dtype: String,
        shape: Vec<usize>,
        bytes: usize,
    },
    /// The header of the tensors cannot be made.
    Header(String),
    /// Two tensors have one name.
    SameName { tensor: String },
    /// A path that a checkpoint should copy is not a file.
    NotAFile { path: PathBuf },
    /// A file that a checkpoint should copy has a path that JSON cannot hold.
    PathNotText { path: PathBuf },
    /// A file that a checkpoint should copy was written to during every attempt.
    Changing { path: PathBuf },
    /// There is no checkpoint of that batch any more.
    Gone { batch: u64 },
    /// The stored content of a file does not match its hash.
    Content { path: PathBuf, content: PathBuf },
}

/// A damaged checkpoint.
#[derive(Debug)]
pub(super) struct Damaged {
    pub(super) batch: u64,
    pub(super) folder: PathBuf,
    pub(super) what: String,
    /// When it was committed, and by which version; known if the manifest is intact.
    pub(super) origin: Option<(String, String)>,
    /// The batch of the checkpoint that is used in its place.
    pub(super) fallback: Option<u64>,
}

impl Kind for Failure {
    fn class(&self) -> Class {
        match self {
            // An operation that fails now may succeed later.
            Self::Io { .. } | Self::Changing { .. } => Class::StorageFailed,
            Self::Damaged(_) | Self::Content { .. } => Class::CheckpointCorrupt,
            Self::Schema { .. } => Class::OtherVersion,
            Self::Gone { .. } => Class::CheckpointGone,
            Self::Dtype { .. } | Self::NotAFile { .. } | Self::PathNotText { .. } => {
                Class::NotStorable
            }
            Self::Header(_) | Self::Size { .. } | Self::SameName { .. } => Class::Bug,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    "make room and run the same command again: it continues"
                }
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    "make the directory writable and run the same command again: it continues"
                }
                io::ErrorKind::InvalidInput => {
                    "copy the trial with what its links lead to: `cp -rL TRIAL COPY`"
                }
                io::ErrorKind::FileTooLarge => {
                    "allow larger files (`ulimit -f unlimited`) and run the same command again: it continues"
                }
                _ => "look after the file system and run the same command again: it continues",
            },
            Self::Damaged(Damaged {
                fallback: Some(_), ..
            }) => return None,
            Self::Damaged(_) => {
                "restore the folder from a backup, or begin a new trial with `--fresh`"
            }
            Self::Schema { version, .. } => {
                return Some(format!(
                    "continue with pedl-run {version}, or begin a new trial with `--fresh`"
                ));
            }
            Self::Dtype { .. } => "cast the variable to a type that is listed",
            Self::Header(_) | Self::Size { .. } | Self::SameName { .. } => {
                "this is a bug of pedl; report it with the lines above"
            }
            Self::NotAFile { .. } => "save to a single file",
            Self::PathNotText { .. } => "give the file a name in UTF-8",
            Self::Changing { .. } => {
                "write the file from the training thread only, or leave it out of the trial"
            }
            Self::Gone { .. } => {
                "`pedl checkpoint list` tells what there is now; name one with `--checkpoint`"
            }
            Self::Content { .. } => "restore the file from a backup, or begin anew with `--fresh`",
        };
        Some(hint.to_owned())
    }

    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl fmt::Display for Failure {
    #[expect(
        clippy::too_many_lines,
        reason = "one message for each failure, side by side"
    )]
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io {
                operation,
                path,
                source,
            } => {
                write!(
                    formatter,
                    "cannot {operation} `{}`\n  {source}",
                    path.display()
                )
            }
            Self::Damaged(damaged) => damaged.fmt(formatter),
            Self::Schema {
                folder,
                schema,
                version,
            } => {
                let (folder, known) = (folder.display(), manifest::SCHEMA);
                write!(
                    formatter,
                    "checkpoint `{folder}` was written by pedl-run {version}\n  "
                )?;
                write!(
                    formatter,
                    "schema of its `{MANIFEST}`: {schema}; known here: {known}\n  "
                )?;
                write!(formatter, "nothing was changed")
            }
            Self::Dtype { tensor, dtype } => {
                write!(
                    formatter,
                    "tensor `{tensor}` of type `{dtype}` cannot be stored\n  known: "
                )?;
                super::tensors::list_dtypes(formatter)?;
                write!(formatter, "\n  no checkpoint was written")
            }
            Self::Size {
                tensor,
                dtype,
                shape,
                bytes,
            } => write!(
                formatter,
                "tensor `{tensor}` of type {dtype} and shape {shape:?} came with {bytes} bytes\n  \
                 no checkpoint was written"
            ),
            Self::Header(why) => {
                write!(
                    formatter,
                    "the tensors cannot be listed: {why}\n  no checkpoint was written"
                )
            }
            Self::SameName { tensor } => {
                write!(
                    formatter,
                    "two tensors are named `{tensor}`\n  no checkpoint was written"
                )
            }
            Self::NotAFile { path } => write!(
                formatter,
                "`{}` is a directory; a checkpoint takes files along\n  no checkpoint was written",
                path.display()
            ),
            Self::PathNotText { path } => write!(
                formatter,
                "the path `{}` is not UTF-8\n  no checkpoint was written",
                path.display()
            ),
            Self::Changing { path } => write!(
                formatter,
                "`{}` changes while it is copied into a checkpoint\n  no checkpoint was written",
                path.display()
            ),
            Self::Gone { batch } => write!(
                formatter,
                "checkpoint `{}` is gone\n  the training that runs has replaced it meanwhile\n  nothing was changed",
                committed_name(*batch)
            ),
            Self::Content { path, content } => write!(
                formatter,
                "cannot restore `{}`: its content in the checkpoint is damaged\n  `{}` does not match \
                 its name\n  the file was left as it is",
                path.display(),
                content.display()
            ),
        }
    }
}

impl fmt::Display for Damaged {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            batch,
            folder,
            what,
            origin,
            fallback,
        } = self;
        writeln!(
            formatter,
            "checkpoint `{}` is damaged: {what}",
            committed_name(*batch)
        )?;
        write!(formatter, "  in {}", folder.display())?;
        if let Some((created, version)) = origin {
            write!(
                formatter,
                ", committed {created} by pedl-run {version}; the manifest is intact"
            )?;
        }
        match fallback {
            Some(batch) => write!(formatter, "\n  continued from `{}`", committed_name(*batch)),
            None => formatter.write_str("\n  no older checkpoint is left"),
        }
    }
}
