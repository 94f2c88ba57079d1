//! `manifest.json`: the contents of a checkpoint, with a hash of every part and of itself.
//!
//! The text begins with the line of its own hash. That hash is of the whole text with zeros in
//! place of its 64 digits, so it reveals a flipped bit anywhere in the file.

use std::path::{Path, PathBuf};

use blake3::Hash;
use serde::{Deserialize, Serialize};

use super::layout::MANIFEST;
use super::tensors;
use crate::printable::printable;

/// The version of the manifest.
pub(super) const SCHEMA: u64 = 2;

const HEAD: &str = "{\n  \"blake3\": \"";
const HASH_DIGITS: usize = 64;

/// The table of contents of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Now 2. In version 1, all tensors of a checkpoint were in a separate file.
    pub schema: u64,
    /// Identifies this checkpoint among all others: a random UUID (version 4).
    pub uuid: String,
    /// Batches trained so far.
    pub batch: u64,
    /// Steps completed so far.
    pub step: u64,
    /// The epoch of the last batch, from 0; none in a training loop of the script.
    pub epoch: Option<u64>,
    /// Calls recorded so far.
    pub calls: u64,
    /// Size in bytes of the log with those calls.
    pub log_offset: u64,
    /// When it was written (RFC 3339, UTC).
    pub created: String,
    /// The version of pedl that wrote it.
    pub pedl_version: String,
    /// The packs that hold its tensors.
    pub packs: Vec<PackFile>,
    /// The tensors, in the order in which they were given.
    pub tensors: Vec<StoredTensor>,
    /// Bytes of tensors that were written for it; the other tensors were already stored.
    pub written: u64,
    /// The files in the folder of the checkpoint.
    pub files: Vec<OwnFile>,
    /// Files of the script that were copied.
    pub kept: Vec<KeptFile>,
}

/// A file with tensors, in the folder `tensors`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackFile {
    /// Hash of the header, 64 hexadecimal digits; the name of the file.
    pub blake3: String,
    /// Size in bytes.
    pub size: u64,
    /// Size of the tensors in it in bytes; includes tensors that only other checkpoints use.
    pub tensors_size: u64,
}

/// A tensor, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredTensor {
    /// Unique within a checkpoint.
    pub name: String,
    /// NumPy's name of the type.
    pub dtype: String,
    /// Sizes of the axes; empty for a scalar.
    pub shape: Vec<usize>,
    /// Size in bytes.
    pub size: u64,
    /// Hash of the bytes, 64 hexadecimal digits.
    pub blake3: String,
    /// Index into `packs`.
    pub pack: usize,
    /// Its name in the pack: that of the first tensor that had these bytes.
    pub key: String,
}

/// A file in the folder of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnFile {
    /// Its name in the folder.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
    /// Hash of the content, 64 hexadecimal digits.
    pub blake3: String,
}

/// A file of the script, whose content is in the folder `files`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptFile {
    /// Its original path: absolute, or relative to the trial directory
    /// ([`Store::within`](super::Store::within)).
    pub path: PathBuf,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Hash of the content, 64 hexadecimal digits; the name of its copy.
    pub blake3: String,
}

impl Manifest {
    /// The text of `manifest.json`.
    pub(super) fn to_text(&self) -> serde_json::Result<String> {
        let json = serde_json::to_string_pretty(self)?;
        let body = json.strip_prefix('{').unwrap_or(&json);
        let tail = format!("\",{body}\n");
        Ok(format!("{HEAD}{}{tail}", hash_of(tail.as_bytes())))
    }

    /// A text with its own hash filled in.
    #[cfg(any(test, fuzzing))]
    pub(super) fn with_hash(text: &[u8]) -> Vec<u8> {
        let tail = text.get(HEAD.len() + HASH_DIGITS..).unwrap_or_default();
        [HEAD.as_bytes(), hash_of(tail).to_hex().as_bytes(), tail].concat()
    }

    /// Whether a text is that of this manifest.
    pub(crate) fn is_in(&self, text: &[u8]) -> bool {
        Self::parse(text).is_ok_and(|other| other == *self)
    }

    /// The manifest in a text, or what is wrong with it.
    pub(super) fn parse(text: &[u8]) -> Result<Self, Unreadable> {
        let rest = text.strip_prefix(HEAD.as_bytes());
        let (hash, tail) = rest
            .and_then(|rest| rest.split_at_checked(HASH_DIGITS))
            .ok_or_else(|| damaged("has no hash of itself"))?;
        if hash != hash_of(tail).to_hex().as_bytes() {
            return Err(damaged("does not match its hash"));
        }
        let Version {
            schema,
            pedl_version,
        } = from_json(text)?;
        if schema != SCHEMA {
            return Err(Unreadable::Schema {
                schema,
                version: pedl_version,
            });
        }
        let manifest: Self = from_json(text)?;
        manifest.check().map_err(|what| damaged(&what))?;
        Ok(manifest)
    }

    /// The hash of itself proves that nothing was damaged by chance. But who writes a manifest by
    /// hand gives it the right hash. So its content is compared with what pedl writes, before any
    /// file is opened by a name in it.
    fn check(&self) -> Result<(), String> {
        let packs = self.packs.iter().map(|pack| &pack.blake3);
        let tensors = self.tensors.iter().map(|stored| &stored.blake3);
        let files = self.files.iter().map(|own| &own.blake3);
        let kept = self.kept.iter().map(|kept| &kept.blake3);
        let mut hashes = packs.chain(tensors).chain(files).chain(kept);
        if let Some(hash) = hashes.find(|hash| !is_hash(hash)) {
            return Err(format!("names `{}`, which is no hash", printable(hash)));
        }
        for own in &self.files {
            if !is_plain_name(&own.path) {
                let name = printable(&own.path);
                return Err(format!("names `{name}`, which is no file of a checkpoint"));
            }
        }
        for stored in &self.tensors {
            let size = tensors::size_of(&stored.dtype, &stored.shape);
            if size.is_none_or(|size| size as u64 != stored.size) {
                return Err(format!(
                    "has a tensor `{}` of type `{}`, shape {:?} and {} bytes",
                    printable(&stored.name),
                    printable(&stored.dtype),
                    stored.shape,
                    stored.size
                ));
            }
            if stored.pack >= self.packs.len() {
                let name = printable(&stored.name);
                return Err(format!("names no pack of `{name}`"));
            }
        }
        Ok(())
    }

    /// The copied file of a path.
    pub(super) fn kept(&self, path: &Path) -> Option<&KeptFile> {
        self.kept.iter().find(|kept| kept.path == path)
    }
}

/// Why a text is not accepted as a manifest.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// It differs from what was written.
    Damaged(String),
    /// It is intact, but of another version.
    Schema { schema: u64, version: String },
}

/// The members that every version of the manifest has.
#[derive(Deserialize)]
struct Version {
    schema: u64,
    pedl_version: String,
}

fn from_json<'text, T: Deserialize<'text>>(text: &'text [u8]) -> Result<T, Unreadable> {
    serde_json::from_slice(text).map_err(|error| {
        damaged(&format!(
            "is no manifest ({})",
            printable(&error.to_string())
        ))
    })
}

fn is_hash(text: &str) -> bool {
    text.len() == HASH_DIGITS
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a name is that of an entry directly in a folder, neither outside it nor deeper.
fn is_plain_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
}

fn damaged(what: &str) -> Unreadable {
    Unreadable::Damaged(format!("`{MANIFEST}` {what}"))
}

fn hash_of(tail: &[u8]) -> Hash {
    let mut hasher = blake3::Hasher::new();
    hasher
        .update(HEAD.as_bytes())
        .update(&[b'0'; HASH_DIGITS])
        .update(tail);
    hasher.finalize()
}

/// The text of a random UUID, version 4 (RFC 9562, 5.4), of 16 random bytes.
pub(super) fn uuid_of(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        for digit in [byte >> 4, byte & 0x0f] {
            text.push(char::from_digit(u32::from(digit), 16).expect("half a byte is one digit"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            schema: SCHEMA,
            uuid: uuid_of([0xff; 16]),
            batch: u64::MAX,
            step: 2,
            epoch: Some(1),
            calls: 300,
            log_offset: 4096,
            created: "2026-03-01T10:22:05.000Z".to_owned(),
            pedl_version: "0.1.0".to_owned(),
            packs: vec![PackFile {
                blake3: "0".repeat(64),
                size: 200,
                tensors_size: 4,
            }],
            tensors: vec![StoredTensor {
                name: "\"\\ ü\u{1F980}".to_owned(),
                dtype: "float32".to_owned(),
                shape: Vec::new(),
                size: 4,
                blake3: "0".repeat(64),
                pack: 0,
                key: "first".to_owned(),
            }],
            written: 4,
            files: Vec::new(),
            kept: Vec::new(),
        }
    }

    #[test]
    fn a_manifest_survives_its_text() {
        let of_own_loop = Manifest {
            epoch: None,
            ..manifest()
        };
        let text = of_own_loop.to_text().expect("it is JSON");
        assert_eq!(Manifest::parse(text.as_bytes()), Ok(of_own_loop));
        let text = manifest().to_text().expect("it is JSON");
        assert_eq!(Manifest::parse(text.as_bytes()), Ok(manifest()));
        let json: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(json["uuid"], "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }

    /// The refusal of a manifest that was made by hand, with its right hash.
    fn refusal(change: impl FnOnce(&mut Manifest)) -> String {
        let mut changed = manifest();
        change(&mut changed);
        let text = changed.to_text().expect("it is JSON");
        match Manifest::parse(text.as_bytes()) {
            Err(Unreadable::Damaged(what)) => what,
            other => panic!("it was taken: {other:?}"),
        }
    }

    #[test]
    fn names_that_lead_out_are_refused() {
        for name in ["/etc/passwd", "../state.json", "a/b", "..", ".", "", "a\0b"] {
            let own = OwnFile {
                path: name.to_owned(),
                size: 1,
                blake3: "0".repeat(64),
            };
            let what = refusal(|manifest| manifest.files.push(own));
            assert!(what.ends_with("which is no file of a checkpoint"), "{what}");
        }
    }

    #[test]
    fn what_is_no_hash_is_no_name_of_a_file() {
        for name in [
            "../../../x",
            "/dev/zero",
            "",
            &"A".repeat(64),
            &"0".repeat(65),
        ] {
            let what = refusal(|manifest| manifest.packs[0].blake3 = name.to_owned());
            assert!(what.ends_with("which is no hash"), "{what}");
            let kept = KeptFile {
                path: "a".into(),
                size: 1,
                mode: 0o644,
                blake3: name.to_owned(),
            };
            let what = refusal(|manifest| manifest.kept.push(kept));
            assert!(what.ends_with("which is no hash"), "{what}");
        }
    }

    #[test]
    fn shapes_that_are_larger_than_anything_are_refused() {
        for (shape, size) in [
            (vec![usize::MAX, 2], 4),
            (vec![1 << 40, 1 << 40], 4),
            (vec![2], 4),
            (vec![], u64::MAX),
        ] {
            let what = refusal(|manifest| {
                manifest.tensors[0].shape = shape;
                manifest.tensors[0].size = size;
            });
            assert!(what.contains("has a tensor `"), "{what}");
        }
        let what = refusal(|manifest| manifest.tensors[0].dtype = "|O".to_owned());
        assert!(what.contains("of type `|O`"), "{what}");
        let what = refusal(|manifest| manifest.tensors[0].pack = usize::MAX);
        assert!(what.contains("names no pack of `"), "{what}");
    }

    #[test]
    fn what_is_said_of_a_name_is_for_a_terminal() {
        let what = refusal(|manifest| manifest.packs[0].blake3 = "\u{1b}[2J\nhint: x".to_owned());
        assert!(what.contains(r"`\u{1b}[2J\u{a}hint: x`"), "{what}");
    }

    #[test]
    fn a_manifest_of_another_schema_is_no_damage() {
        let later = Manifest {
            schema: 3,
            pedl_version: "9.0.0".to_owned(),
            ..manifest()
        };
        let expected = Unreadable::Schema {
            schema: 3,
            version: "9.0.0".to_owned(),
        };
        let text = later.to_text().expect("it is JSON");
        assert_eq!(Manifest::parse(text.as_bytes()), Err(expected));
    }
}
