//! How a replayed call differs from its record.
//!
//! The script runs again from its first line, and must make the same calls. If it does not, the run
//! stops at the first call that differs. Otherwise, calls would receive the results of other calls.

use std::fmt::{self, Write as _};

use super::reader::Answer;
use super::record::{Call, kind};
use super::tables::Tables;
use super::value::{Decoder, Encoded, Leaf, MAX_DEPTH, Malformed, Token};
use crate::error::{Class, Kind};

/// Values longer than this are cut in messages.
const SHOWN_CHARS: usize = 160;

/// A replayed call that is not the recorded one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// The number of the call in the run, counted from 1.
    pub number: u64,
    /// The record; `None` if this call has no record.
    pub recorded: Option<Side>,
    /// The call that the script makes now; `None` if the script ended instead.
    pub now: Option<Side>,
}

/// One of the two calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// Name of the kind of call.
    pub kind: &'static str,
    /// What is called.
    pub identity: String,
    /// File and line in the script.
    pub site: String,
    /// Random numbers that the script drew before the call.
    pub draws: u64,
    /// Checksum of the arguments.
    pub arguments: u64,
    /// What the call returned, if that is what differs.
    pub value: Option<String>,
}

impl Side {
    fn new(tables: &Tables, call: &Call) -> Self {
        let text = |id| String::from_utf8_lossy(tables.text(id)).into_owned();
        Self {
            kind: kind::name(call.kind),
            identity: text(call.identity),
            site: text(call.site),
            draws: call.draws,
            arguments: call.arguments,
            value: None,
        }
    }
}

impl Divergence {
    pub(super) fn no_record(tables: &Tables, number: u64, now: &Call) -> Self {
        Self {
            number,
            recorded: None,
            now: Some(Side::new(tables, now)),
        }
    }

    pub(crate) fn ended(tables: &Tables, number: u64, recorded: Option<&Call>) -> Self {
        Self {
            number,
            recorded: recorded.map(|call| Side::new(tables, call)),
            now: None,
        }
    }

    pub(super) fn of_calls(tables: &Tables, number: u64, recorded: &Call, now: &Call) -> Self {
        let recorded = Some(Side::new(tables, recorded));
        Self {
            number,
            recorded,
            now: Some(Side::new(tables, now)),
        }
    }

    pub(super) fn of_values(
        tables: &Tables,
        number: u64,
        call: &Call,
        recorded: &Answer,
        now: &Encoded,
    ) -> Self {
        let hashes: Vec<_> = now
            .large_leaves()
            .map(|leaf| *blake3::hash(leaf).as_bytes())
            .collect();
        let side = Side::new(tables, call);
        let recorded = describe(recorded.decoder(), |index| {
            recorded.large_hash(index).copied()
        });
        let now = describe(Decoder::new(&now.skeleton, &now.payload), |index| {
            hashes.get(index).copied()
        });
        Self {
            number,
            recorded: Some(Side {
                value: Some(recorded),
                ..side.clone()
            }),
            now: Some(Side {
                value: Some(now),
                ..side
            }),
        }
    }

    /// The first difference between the two sides.
    fn difference(&self) -> String {
        let Some(now) = &self.now else {
            return "the script ended before it made the recorded calls".to_owned();
        };
        let Some(recorded) = &self.recorded else {
            return format!("`{}` is called after the last recorded call", now.identity);
        };
        if (recorded.kind, &recorded.identity) != (now.kind, &now.identity) {
            format!(
                "`{}` is called instead of `{}`",
                now.identity, recorded.identity
            )
        } else if recorded.site != now.site {
            format!("`{}` is called from another line", now.identity)
        } else if recorded.draws != now.draws {
            format!(
                "`{}` is called after another number of random draws",
                now.identity
            )
        } else if recorded.arguments != now.arguments {
            format!("`{}` is given something else", now.identity)
        } else {
            format!("`{}` returns something else", now.identity)
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            identity,
            site,
            draws,
            arguments,
            value,
        } = self;
        write!(
            formatter,
            "`{identity}` ({kind}) at {site}, random draws {draws}"
        )?;
        if *arguments != 0 {
            write!(formatter, ", arguments {arguments:#x}")?;
        }
        match value {
            Some(value) => write!(formatter, ", returned {value}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "the replay differs from the record: {}",
            self.difference()
        )?;
        writeln!(formatter, "  call {} of the run", self.number)?;
        match &self.recorded {
            Some(recorded) => writeln!(formatter, "  recorded: {recorded}")?,
            None if self.now.is_none() => {
                writeln!(formatter, "  recorded: calls up to a checkpoint")?;
            }
            None => writeln!(
                formatter,
                "  recorded: nothing, the checkpoint was taken before"
            )?,
        }
        match &self.now {
            Some(now) => writeln!(formatter, "  now: {now}")?,
            None => writeln!(formatter, "  now: no further call")?,
        }
        write!(
            formatter,
            "  the run was stopped; the checkpoint and the log are kept"
        )
    }
}

impl Kind for Divergence {
    fn class(&self) -> Class {
        Class::Divergence
    }

    fn hint(&self) -> Option<String> {
        Some(
            "look for the clock, os.urandom, the order of a set, the environment, or a script or \
             data file that was changed; `--fresh` begins a new trial"
                .to_owned(),
        )
    }
}

/// A short text of a value, more or less as Python prints it.
pub(super) fn describe(
    mut decoder: Decoder<'_>,
    large_hash: impl Fn(usize) -> Option<[u8; 32]>,
) -> String {
    let mut text = String::new();
    if describe_node(&mut decoder, (false, 0), &mut text, &large_hash).is_err() {
        text.push_str("something that cannot be read");
    }
    if let Some((cut, _)) = text.char_indices().nth(SHOWN_CHARS) {
        text.truncate(cut);
        text.push('…');
    }
    text
}

fn describe_node(
    decoder: &mut Decoder<'_>,
    (in_key, depth): (bool, usize),
    out: &mut String,
    large_hash: &impl Fn(usize) -> Option<[u8; 32]>,
) -> Result<(), Malformed> {
    let leaf = |leaf: Leaf<'_>, out: &mut String| match leaf {
        Leaf::Inline(bytes) => write!(out, "{:?}", String::from_utf8_lossy(bytes)),
        Leaf::Large { index, size } => {
            let hash = large_hash(index).unwrap_or_default();
            write!(
                out,
                "<{size} bytes, hash {:02x}{:02x}{:02x}{:02x}>",
                hash[0], hash[1], hash[2], hash[3]
            )
        }
    };
    if depth > MAX_DEPTH {
        return Err(Malformed);
    }
    let inside = (in_key, depth + 1);
    let node = if in_key {
        decoder.key()?
    } else {
        decoder.node()?
    };
    // Writing to a String does not fail.
    let _ = match node {
        Token::None => write!(out, "None"),
        Token::Bool(value) => write!(out, "{}", if value { "True" } else { "False" }),
        Token::Int(value) => write!(out, "{value}"),
        Token::BigInt(Leaf::Inline(digits)) => write!(out, "{}", String::from_utf8_lossy(digits)),
        Token::BigInt(digits) => leaf(digits, out),
        Token::Float(value) => write!(out, "{value:?}"),
        Token::Str(text) => leaf(text, out),
        Token::Bytes(bytes) => out.write_char('b').and_then(|()| leaf(bytes, out)),
        Token::List(count) => {
            return describe_items(decoder, ("[", "]"), count, inside, out, large_hash);
        }
        Token::Tuple(count) => {
            return describe_items(decoder, ("(", ")"), count, inside, out, large_hash);
        }
        Token::Dict(count) => {
            for item in 0..count {
                out.push_str(if item == 0 { "{" } else { ", " });
                describe_node(decoder, (true, depth + 1), out, large_hash)?;
                out.push_str(": ");
                describe_node(decoder, inside, out, large_hash)?;
            }
            out.write_str(if count == 0 { "{}" } else { "}" })
        }
        Token::Array {
            dtype,
            shape,
            bytes: Leaf::Inline(bytes),
            ..
        } => {
            if shape.rank() > 0 {
                let _ = write!(out, "array{shape} ");
            }
            describe_elements(dtype, bytes, out);
            Ok(())
        }
        Token::Array {
            dtype,
            shape,
            bytes,
            ..
        } => {
            let _ = write!(out, "array{shape} {dtype} ");
            leaf(bytes, out)
        }
        Token::Objects(shape) => {
            let _ = write!(out, "array{shape} of objects ");
            let count = shape.num_elements().ok_or(Malformed)?;
            return describe_items(decoder, ("[", "]"), count, inside, out, large_hash);
        }
        Token::Opaque(name) => write!(out, "<{name}>"),
    };
    Ok(())
}

fn describe_items(
    decoder: &mut Decoder<'_>,
    (open, close): (&str, &str),
    count: usize,
    place: (bool, usize),
    out: &mut String,
    large_hash: &impl Fn(usize) -> Option<[u8; 32]>,
) -> Result<(), Malformed> {
    out.push_str(open);
    for item in 0..count {
        if item > 0 {
            out.push_str(", ");
        }
        describe_node(decoder, place, out, large_hash)?;
    }
    out.push_str(close);
    Ok(())
}

/// The elements of a small array: numbers if the dtype is a common one, otherwise bytes.
fn describe_elements(dtype: &str, bytes: &[u8], out: &mut String) {
    macro_rules! numbers {
        ($type:ty) => {
            bytes
                .chunks_exact(size_of::<$type>())
                .filter_map(|chunk| chunk.try_into().ok())
                .map(|chunk| <$type>::from_le_bytes(chunk).to_string())
                .collect::<Vec<_>>()
        };
    }
    let elements = match dtype {
        "<f4" => numbers!(f32),
        "<f8" => numbers!(f64),
        "<i8" => numbers!(i64),
        "<i4" => numbers!(i32),
        "<u4" => numbers!(u32),
        "<u8" => numbers!(u64),
        "|u1" => numbers!(u8),
        "|i1" => numbers!(i8),
        _ => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    let _ = write!(out, "{}", elements.join(" "));
}
