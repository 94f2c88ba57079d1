//! What a recorded call returned, as bytes. Knows no Python: the caller passes Python objects to
//! the [`Encoder`] piece by piece, and gets them back from the [`Decoder`].
//!
//! A value is split in two. The **skeleton** holds what stays the same from call to call:
//! structure, keys of dicts, dtypes, shapes. It is stored once and named by a number. The
//! **payload** holds the leaves, in order. `{"loss": float32, "accuracy": float32}` is eight bytes
//! of payload a call.
//!
//! ```text
//! skeleton  one node, depth first         its leaf in the payload
//!   0  None                               -
//!   1  Bool                               1 byte, 0 or 1
//!   2  Int                                zigzag varint
//!   3  BigInt                             length, digits as `hex` writes them
//!   4  Float                              8 bytes, IEEE 754, little-endian; NaNs keep their bits
//!   5  Str                                length, UTF-8 (lone surrogates as 3 bytes each)
//!   6  Bytes                              length, bytes
//!   7  List     count, nodes              -
//!   8  Tuple    count, nodes              -
//!   9  Dict     count, (key, node)…       -        a key: its node, then its leaf, in the skeleton
//!  10  Array    class, dtype, rank, dimensions…, size in bytes       the bytes, in C order
//!  11  Objects  rank, dimensions…, nodes  -        an array of Python objects
//!  12  Opaque   type name                 -        something that cannot be stored
//! ```
//!
//! Counts, lengths, dimensions are varints. A leaf of more than [`INLINE_BYTES`] is not in the
//! payload: it is stored once, by the hash of its content, and the record lists the numbers of its
//! blobs in the order of the leaves.

use std::fmt;

use crate::varint;

/// The longest leaf that a record itself holds. For longer leaves, the savings on repeated content
/// are worth a hash and a table entry (about 60 bytes, mostly memory).
pub const INLINE_BYTES: usize = 256;

/// Deeper values are not decoded: no framework returns them, and a damaged skeleton must not
/// exhaust the stack.
pub const MAX_DEPTH: usize = 100;

/// A reused buffer keeps this much memory. A large value (predictions, weights) comes once.
const KEPT_BYTES: usize = 1 << 20;

const NONE: u8 = 0;
const BOOL: u8 = 1;
const INT: u8 = 2;
const BIG_INT: u8 = 3;
const FLOAT: u8 = 4;
const STR: u8 = 5;
const BYTES: u8 = 6;
const LIST: u8 = 7;
const TUPLE: u8 = 8;
const DICT: u8 = 9;
const ARRAY: u8 = 10;
const OBJECTS: u8 = 11;
const OPAQUE: u8 = 12;

/// What an array was before it became bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayClass {
    /// A tensor of a framework.
    Tensor,
    /// A numpy array.
    Ndarray,
    /// A numpy scalar; its rank is 0.
    Scalar,
}

impl ArrayClass {
    const ALL: [Self; 3] = [Self::Tensor, Self::Ndarray, Self::Scalar];

    fn code(self) -> u8 {
        self as u8
    }

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.code() == code)
    }
}

/// An encoded value, or one under construction; a buffer that is used again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    pub(super) skeleton: Vec<u8>,
    pub(super) payload: Vec<u8>,
    /// The leaves that are too long for the payload, one after another.
    pub(super) large: Vec<u8>,
    /// Where each of them ends.
    pub(super) large_ends: Vec<usize>,
}

impl Encoded {
    /// Forgets the value. Keeps the memory, unless it is large.
    pub fn clear(&mut self) {
        self.skeleton.clear();
        self.payload.clear();
        self.large.clear();
        self.large_ends.clear();
        self.payload.shrink_to(KEPT_BYTES);
        self.large.shrink_to(KEPT_BYTES);
    }

    /// An encoder for one node, or for the nodes of a container that was begun.
    pub fn encoder(&mut self) -> Encoder<'_> {
        Encoder {
            encoded: self,
            in_key: false,
        }
    }

    /// A reader of the nodes of the value.
    pub fn decoder(&self) -> Decoder<'_> {
        Decoder::new(&self.skeleton, &self.payload)
    }

    pub(super) fn large_leaves(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.large_ends.iter().copied());
        starts
            .zip(&self.large_ends)
            .map(|(start, &end)| &self.large[start..end])
    }
}

/// Writes nodes, depth first. A container is begun with its count, and its nodes follow.
#[derive(Debug)]
pub struct Encoder<'a> {
    encoded: &'a mut Encoded,
    in_key: bool,
}

impl Encoder<'_> {
    /// `None`.
    pub fn none(&mut self) {
        self.encoded.skeleton.push(NONE);
    }

    /// `True` or `False`.
    pub fn bool(&mut self, value: bool) {
        self.encoded.skeleton.push(BOOL);
        self.leaf().push(u8::from(value));
    }

    /// An integer of 64 bits.
    pub fn int(&mut self, value: i64) {
        self.encoded.skeleton.push(INT);
        varint::put_signed(self.leaf(), value);
    }

    /// Any other integer, in the format of Python's `hex`.
    pub fn big_int(&mut self, digits: &str) {
        self.encoded.skeleton.push(BIG_INT);
        self.sized_leaf(digits.as_bytes());
    }

    /// A float.
    pub fn float(&mut self, value: f64) {
        self.encoded.skeleton.push(FLOAT);
        self.leaf().extend(value.to_bits().to_le_bytes());
    }

    /// A text, as UTF-8 that may contain lone surrogates.
    pub fn str(&mut self, text: &[u8]) {
        self.encoded.skeleton.push(STR);
        self.sized_leaf(text);
    }

    /// Bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.encoded.skeleton.push(BYTES);
        self.sized_leaf(bytes);
    }

    /// A list of `count` nodes, which follow.
    pub fn list(&mut self, count: usize) {
        self.container(LIST, count);
    }

    /// A tuple of `count` nodes, which follow.
    pub fn tuple(&mut self, count: usize) {
        self.container(TUPLE, count);
    }

    /// A dict of `count` items; for each, a node under [`Encoder::key`] and a node follow.
    pub fn dict(&mut self, count: usize) {
        self.container(DICT, count);
    }

    /// An encoder for a key of a dict.
    pub fn key(&mut self) -> Encoder<'_> {
        Encoder {
            encoded: self.encoded,
            in_key: true,
        }
    }

    /// A numpy array or scalar, or a tensor, with its bytes in C order.
    pub fn array(&mut self, class: ArrayClass, dtype: &str, shape: &[usize], bytes: &[u8]) {
        self.array_node(class, dtype, shape, bytes.len());
        self.put_leaf(bytes);
    }

    /// An array of Python objects, whose nodes follow.
    pub fn objects(&mut self, shape: &[usize]) {
        self.encoded.skeleton.push(OBJECTS);
        self.shape(shape);
    }

    /// Something that cannot be stored.
    pub fn opaque(&mut self, type_name: &str) {
        self.encoded.skeleton.push(OPAQUE);
        varint::put_len(&mut self.encoded.skeleton, type_name.len());
        self.encoded.skeleton.extend(type_name.as_bytes());
    }

    fn array_node(&mut self, class: ArrayClass, dtype: &str, shape: &[usize], size: usize) {
        let skeleton = &mut self.encoded.skeleton;
        skeleton.extend([ARRAY, class.code()]);
        varint::put_len(skeleton, dtype.len());
        skeleton.extend(dtype.as_bytes());
        self.shape(shape);
        varint::put_len(&mut self.encoded.skeleton, size);
    }

    fn container(&mut self, tag: u8, count: usize) {
        self.encoded.skeleton.push(tag);
        varint::put_len(&mut self.encoded.skeleton, count);
    }

    fn shape(&mut self, shape: &[usize]) {
        varint::put_len(&mut self.encoded.skeleton, shape.len());
        for &dimension in shape {
            varint::put_len(&mut self.encoded.skeleton, dimension);
        }
    }

    fn sized_leaf(&mut self, bytes: &[u8]) {
        let len = bytes.len();
        varint::put_len(self.leaf(), len);
        self.put_leaf(bytes);
    }

    fn put_leaf(&mut self, bytes: &[u8]) {
        if self.is_large(bytes.len()) {
            self.encoded.large.extend(bytes);
            self.encoded.large_ends.push(self.encoded.large.len());
        } else {
            self.leaf().extend(bytes);
        }
    }

    fn is_large(&self, size: usize) -> bool {
        size > INLINE_BYTES && !self.in_key
    }

    /// The buffer for leaves: keys are part of the structure.
    fn leaf(&mut self) -> &mut Vec<u8> {
        if self.in_key {
            &mut self.encoded.skeleton
        } else {
            &mut self.encoded.payload
        }
    }
}

/// One node of a value, as the decoder returns it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Token<'a> {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer of 64 bits.
    Int(i64),
    /// Any other integer, in the format of Python's `hex`.
    BigInt(Leaf<'a>),
    /// A float.
    Float(f64),
    /// A text, as UTF-8 that may contain lone surrogates.
    Str(Leaf<'a>),
    /// Bytes.
    Bytes(Leaf<'a>),
    /// A list; this many nodes follow.
    List(usize),
    /// A tuple; this many nodes follow.
    Tuple(usize),
    /// A dict; this many pairs of a node under [`Decoder::key`] and a node follow.
    Dict(usize),
    /// A numpy array or scalar, or a tensor.
    Array {
        /// What it was.
        class: ArrayClass,
        /// Its numpy dtype.
        dtype: &'a str,
        /// Its dimensions.
        shape: Shape<'a>,
        /// Its bytes in C order.
        bytes: Leaf<'a>,
    },
    /// An array of Python objects; as many nodes follow as the dimensions say.
    Objects(Shape<'a>),
    /// Something that could not be stored: its type.
    Opaque(&'a str),
}

/// The bytes of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf<'a> {
    /// The record holds them.
    Inline(&'a [u8]),
    /// They are stored elsewhere: the index of this large leaf in the value, and its size.
    Large {
        /// Index among the large leaves of the value.
        index: usize,
        /// Size in bytes.
        size: usize,
    },
}

impl Leaf<'_> {
    /// Size in bytes.
    pub fn size(self) -> usize {
        match self {
            Self::Inline(bytes) => bytes.len(),
            Self::Large { size, .. } => size,
        }
    }
}

/// Dimensions, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape<'a> {
    rank: usize,
    varints: &'a [u8],
}

impl Shape<'_> {
    /// The number of dimensions.
    pub fn rank(self) -> usize {
        self.rank
    }

    /// The product of the dimensions, if it fits.
    pub fn num_elements(self) -> Option<usize> {
        self.dimensions().try_fold(1_usize, usize::checked_mul)
    }

    /// The dimensions.
    pub fn dimensions(self) -> impl Iterator<Item = usize> {
        let mut rest = self.varints;
        // The decoder has already read them once, so all of them exist.
        (0..self.rank).map_while(move |_| varint::take_len(&mut rest))
    }
}

impl fmt::Display for Shape<'_> {
    /// As Python writes a shape.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("(")?;
        for (place, dimension) in self.dimensions().enumerate() {
            let separator = if place == 0 { "" } else { ", " };
            write!(formatter, "{separator}{dimension}")?;
        }
        formatter.write_str(if self.rank == 1 { ",)" } else { ")" })
    }
}

/// The bytes do not follow the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Reads the nodes of a value, depth first.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    skeleton: &'a [u8],
    payload: &'a [u8],
    num_large: usize,
    in_key: bool,
}

impl<'a> Decoder<'a> {
    /// A reader of a skeleton and the payload that belongs to it.
    pub fn new(skeleton: &'a [u8], payload: &'a [u8]) -> Self {
        Self {
            skeleton,
            payload,
            num_large: 0,
            in_key: false,
        }
    }

    /// The next node.
    ///
    /// # Errors
    ///
    /// [`Malformed`] at the end, and if the bytes do not follow the format.
    pub fn node(&mut self) -> Result<Token<'a>, Malformed> {
        self.try_node().ok_or(Malformed)
    }

    /// The next node, which is a key of a dict. Keys may be tuples, whose nodes are keys too.
    ///
    /// # Errors
    ///
    /// Like [`Decoder::node`].
    pub fn key(&mut self) -> Result<Token<'a>, Malformed> {
        self.in_key = true;
        let node = self.node();
        self.in_key = false;
        node
    }

    /// Whether the value was read to its end.
    pub fn is_at_end(&self) -> bool {
        self.skeleton.is_empty() && self.payload.is_empty()
    }

    fn try_node(&mut self) -> Option<Token<'a>> {
        Some(match varint::take_byte(&mut self.skeleton)? {
            NONE => Token::None,
            BOOL => match varint::take_byte(self.leaves())? {
                0 => Token::Bool(false),
                1 => Token::Bool(true),
                _ => return None,
            },
            INT => Token::Int(varint::take_signed(self.leaves())?),
            BIG_INT => Token::BigInt(self.sized_leaf()?),
            FLOAT => {
                let bytes = varint::take_bytes(self.leaves(), size_of::<f64>())?;
                Token::Float(f64::from_bits(u64::from_le_bytes(bytes.try_into().ok()?)))
            }
            STR => Token::Str(self.sized_leaf()?),
            BYTES => Token::Bytes(self.sized_leaf()?),
            LIST => Token::List(self.count()?),
            TUPLE => Token::Tuple(self.count()?),
            DICT => Token::Dict(self.count()?),
            ARRAY => {
                let class = ArrayClass::from_code(varint::take_byte(&mut self.skeleton)?)?;
                let dtype = self.name()?;
                let shape = self.shape()?;
                let size = varint::take_len(&mut self.skeleton)?;
                Token::Array {
                    class,
                    dtype,
                    shape,
                    bytes: self.leaf(size)?,
                }
            }
            OBJECTS => {
                let shape = self.shape()?;
                // As in a container, each node takes at least one byte of the skeleton.
                let count = shape.num_elements()?;
                if count > self.skeleton.len() {
                    return None;
                }
                Token::Objects(shape)
            }
            OPAQUE => Token::Opaque(self.name()?),
            _ => return None,
        })
    }

    fn leaves(&mut self) -> &mut &'a [u8] {
        if self.in_key {
            &mut self.skeleton
        } else {
            &mut self.payload
        }
    }

    fn count(&mut self) -> Option<usize> {
        let count = varint::take_len(&mut self.skeleton)?;
        // Every node takes at least one byte of the skeleton.
        (count <= self.skeleton.len()).then_some(count)
    }

    fn name(&mut self) -> Option<&'a str> {
        let len = varint::take_len(&mut self.skeleton)?;
        str::from_utf8(varint::take_bytes(&mut self.skeleton, len)?).ok()
    }

    fn shape(&mut self) -> Option<Shape<'a>> {
        let rank = varint::take_len(&mut self.skeleton)?;
        let varints = self.skeleton;
        for _ in 0..rank {
            varint::take_len(&mut self.skeleton)?;
        }
        Some(Shape {
            rank,
            varints: &varints[..varints.len() - self.skeleton.len()],
        })
    }

    fn sized_leaf(&mut self) -> Option<Leaf<'a>> {
        let size = varint::take_len(self.leaves())?;
        self.leaf(size)
    }

    fn leaf(&mut self, size: usize) -> Option<Leaf<'a>> {
        if size > INLINE_BYTES && !self.in_key {
            self.num_large += 1;
            return Some(Leaf::Large {
                index: self.num_large - 1,
                size,
            });
        }
        varint::take_bytes(self.leaves(), size).map(Leaf::Inline)
    }
}

#[cfg(test)]
pub(super) mod tests;
