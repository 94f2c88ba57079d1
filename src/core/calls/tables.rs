//! The definitions of a log in memory: texts, skeletons, and the places of blobs.
//!
//! A text has two numbers. Its [`TextId`] belongs to this process; the text gets it when it is
//! first seen, perhaps before the log is open. Its number in the log is assigned when a record
//! first needs it. So a replay may see texts in another order than the recorded run did.

use std::collections::HashMap;
use std::sync::Arc;

/// The number of a text in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TextId(u32);

impl TextId {
    /// The number as an integer, to pass it to Python.
    pub fn number(self) -> u32 {
        self.0
    }

    fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where the bytes of a blob are in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlobPlace {
    /// Of the first byte.
    pub(super) offset: u64,
    /// Size in bytes.
    pub(super) size: usize,
    /// blake3 of the bytes.
    pub(super) hash: [u8; 32],
}

#[derive(Debug)]
struct Text {
    bytes: Arc<[u8]>,
    /// Its number in the log, once the log has it.
    in_log: Option<u64>,
}

/// All definitions of one log. Every list is ordered by number.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    texts: Vec<Text>,
    text_ids: HashMap<Arc<[u8]>, TextId>,
    texts_in_log: Vec<TextId>,
    skeletons: Vec<Arc<[u8]>>,
    skeleton_numbers: HashMap<Arc<[u8]>, u64>,
    blobs: Vec<BlobPlace>,
    blob_numbers: HashMap<[u8; 32], u64>,
}

impl Tables {
    /// The id of a text, new or known.
    pub(crate) fn intern(&mut self, text: &[u8]) -> TextId {
        if let Some(&id) = self.text_ids.get(text) {
            return id;
        }
        let id = TextId(u32::try_from(self.texts.len()).expect("texts are few: places in code"));
        let bytes: Arc<[u8]> = text.into();
        self.texts.push(Text {
            bytes: Arc::clone(&bytes),
            in_log: None,
        });
        self.text_ids.insert(bytes, id);
        id
    }

    /// The id that has this number, if there is one.
    pub(crate) fn id(&self, number: u32) -> Option<TextId> {
        ((number as usize) < self.texts.len()).then_some(TextId(number))
    }

    pub(crate) fn text(&self, id: TextId) -> &Arc<[u8]> {
        &self.texts[id.index()].bytes
    }

    /// The number of a text in the log, or `None` as long as the log does not have it.
    pub(super) fn text_in_log(&self, id: TextId) -> Option<u64> {
        self.texts[id.index()].in_log
    }

    /// Notes that the log now has a text, and returns its number there.
    pub(super) fn define_text(&mut self, id: TextId) -> u64 {
        let number = self.texts_in_log.len() as u64;
        self.texts_in_log.push(id);
        self.texts[id.index()].in_log = Some(number);
        number
    }

    pub(super) fn text_of_log(&self, number: u64) -> Option<TextId> {
        self.texts_in_log
            .get(usize::try_from(number).ok()?)
            .copied()
    }

    /// The number of a skeleton in the log. `guess` is tried first.
    pub(super) fn skeleton_in_log(&self, skeleton: &[u8], guess: u64) -> Option<u64> {
        if self
            .skeleton(guess)
            .is_some_and(|known| **known == *skeleton)
        {
            return Some(guess);
        }
        self.skeleton_numbers.get(skeleton).copied()
    }

    pub(super) fn define_skeleton(&mut self, skeleton: &[u8]) -> u64 {
        let number = self.skeletons.len() as u64;
        let bytes: Arc<[u8]> = skeleton.into();
        self.skeletons.push(Arc::clone(&bytes));
        self.skeleton_numbers.insert(bytes, number);
        number
    }

    pub(super) fn skeleton(&self, number: u64) -> Option<&Arc<[u8]>> {
        self.skeletons.get(usize::try_from(number).ok()?)
    }

    pub(super) fn blob_in_log(&self, hash: &[u8; 32]) -> Option<u64> {
        self.blob_numbers.get(hash).copied()
    }

    pub(super) fn define_blob(&mut self, place: BlobPlace) -> u64 {
        let number = self.blobs.len() as u64;
        self.blobs.push(place);
        self.blob_numbers.insert(place.hash, number);
        number
    }

    pub(super) fn blob(&self, number: u64) -> Option<&BlobPlace> {
        self.blobs.get(usize::try_from(number).ok()?)
    }

    /// Forgets the content of the log; texts keep their ids. For a log that is read again.
    pub(super) fn forget_log(&mut self) {
        self.texts.iter_mut().for_each(|text| text.in_log = None);
        self.texts_in_log.clear();
        self.skeletons.clear();
        self.skeleton_numbers.clear();
        self.blobs.clear();
        self.blob_numbers.clear();
    }
}
