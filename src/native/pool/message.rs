//! The message that a worker sends: a Python value, with the elements of its arrays beside it.
//!
//! ```text
//! 0    where the structure begins, 8 bytes
//! 8    its length
//! 16   bytes of all elements
//! 64   the elements of each array, each at a multiple of 64, which is best for computation
//! ..   the structure: nodes, depth first
//! ```
//!
//! Elements of arrays that were built in the slot ([`Region`]) may be there already.
//!
//! Lists, tuples, dicts, numbers, texts, scalars and arrays have separate kinds of nodes, by their
//! exact types. Anything else is a pickle, whose arrays are extracted too. An array that occurs
//! twice is sent once, and is one array again. Arrays keep their shape, dtype and the order of
//! their elements in memory, without gaps.
//!
//! Both sides are the same build of this program, so there are no versions. Numbers are
//! little-endian.

use std::collections::HashMap;

use pyo3::exceptions::PyMemoryError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::array::{self, Layout};
use crate::convert::{text_bytes, text_of};
use crate::error::Error;
use crate::numpy::Numpy;
use crate::pool::memory::{self, Memory};
use crate::pool::region::{ALIGNMENT, Region};

/// Deeper values are pickled; pickle has separate limits.
const MAX_DEPTH: usize = 50;

/// The words before the elements.
const STRUCTURE_AT: usize = 0;
const STRUCTURE_LENGTH_AT: usize = 8;
const ELEMENTS_AT: usize = 16;

/// Bytes before the elements: three words, and padding to where arrays may begin.
pub(crate) const HEAD: usize = ALIGNMENT;

const NONE: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const INT: u8 = 3;
const FLOAT: u8 = 4;
const STR: u8 = 5;
const BYTES: u8 = 6;
const LIST: u8 = 7;
const TUPLE: u8 = 8;
const DICT: u8 = 9;
const SCALAR: u8 = 10;
const ARRAY: u8 = 11;
/// An array that came before.
const AGAIN: u8 = 12;
const PICKLE: u8 = 13;

/// How a pickle is made and read, by functions of Python.
pub(crate) struct Pickling {
    /// `dumps(value)`: the pickle, and a list of the arrays in it, to which it refers by index.
    pub(crate) dumps: Py<PyAny>,
    /// `loads(pickle, arrays)`: the value.
    pub(crate) loads: Py<PyAny>,
}

/// A value that is to be sent.
pub(crate) struct Message<'a, 'py> {
    pickling: &'a Pickling,
    region: &'a mut Region,
    structure: Vec<u8>,
    /// Those whose elements are to be copied, and where to.
    arrays: Vec<(Layout<'py>, usize)>,
    /// The index of each array in the message, by address.
    known: HashMap<usize, usize>,
    /// Keeps them alive, so that no other object gets their addresses.
    alive: Vec<Bound<'py, PyAny>>,
    /// Bytes of all elements.
    elements: usize,
    /// Where the next elements go.
    end: usize,
}

impl<'a, 'py> Message<'a, 'py> {
    /// Takes a value apart. Its arrays are not copied.
    ///
    /// Args:
    ///     `region`: knows which of them were built in the slot.
    pub(crate) fn of(
        value: &Bound<'py, PyAny>,
        pickling: &'a Pickling,
        region: &'a mut Region,
    ) -> PyResult<Self> {
        let end = region.end().max(HEAD);
        let mut message = Self {
            pickling,
            region,
            structure: Vec::with_capacity(512),
            arrays: Vec::new(),
            known: HashMap::new(),
            alive: Vec::new(),
            elements: 0,
            end,
        };
        message.node(value, 0)?;
        Ok(message)
    }

    /// Bytes of the whole message.
    pub(crate) fn len(&self) -> usize {
        self.end + self.structure.len()
    }

    /// Writes the message.
    pub(crate) fn write(&self, out: &mut [u8]) -> PyResult<()> {
        for (at, number) in [
            (STRUCTURE_AT, self.end),
            (STRUCTURE_LENGTH_AT, self.structure.len()),
            (ELEMENTS_AT, self.elements),
        ] {
            out[at..at + 8].copy_from_slice(&(number as u64).to_le_bytes());
        }
        out[self.end..self.len()].copy_from_slice(&self.structure);
        for (layout, at) in &self.arrays {
            let place = &mut out[*at..*at + layout.size()];
            if !layout.copy_to(place) {
                memory::copy_into(place, layout)?;
            }
        }
        Ok(())
    }

    fn node(&mut self, value: &Bound<'py, PyAny>, depth: usize) -> PyResult<()> {
        if value.is_none() {
            self.structure.push(NONE);
        } else if let Ok(tuple) = value.cast_exact::<PyTuple>() {
            if depth == MAX_DEPTH {
                return self.pickle(value);
            }
            self.begin(TUPLE, tuple.len());
            for item in tuple {
                self.node(&item, depth + 1)?;
            }
        } else if let Ok(list) = value.cast_exact::<PyList>() {
            if depth == MAX_DEPTH {
                return self.pickle(value);
            }
            let count = list.len();
            self.begin(LIST, count);
            for place in 0..count {
                self.node(&list.get_item(place)?, depth + 1)?;
            }
        } else if let Ok(dict) = value.cast_exact::<PyDict>() {
            if depth == MAX_DEPTH {
                return self.pickle(value);
            }
            self.begin(DICT, dict.len());
            for (key, item) in dict {
                self.node(&key, depth + 1)?;
                self.node(&item, depth + 1)?;
            }
        } else if let Ok(flag) = value.cast_exact::<PyBool>() {
            self.structure
                .push(if flag.is_true() { TRUE } else { FALSE });
        } else if let Ok(number) = value.cast_exact::<PyFloat>() {
            self.structure.push(FLOAT);
            self.structure
                .extend(number.extract::<f64>()?.to_bits().to_le_bytes());
        } else if let Ok(number) = value.cast_exact::<PyInt>() {
            match number.extract::<i64>() {
                Ok(number) => {
                    self.structure.push(INT);
                    self.structure.extend(number.to_le_bytes());
                }
                Err(_) => return self.pickle(value),
            }
        } else if let Ok(text) = value.cast_exact::<PyString>() {
            text_bytes(text, |bytes| self.bytes(STR, bytes))?;
        } else if let Ok(bytes) = value.cast_exact::<PyBytes>() {
            self.bytes(BYTES, bytes.as_bytes());
        } else {
            return self.of_numpy(value);
        }
        Ok(())
    }

    fn of_numpy(&mut self, value: &Bound<'py, PyAny>) -> PyResult<()> {
        let numpy = Numpy::get(value.py())?;
        if value.is_exact_instance(numpy.ndarray.bind(value.py())) {
            return self.array(value);
        }
        let class = value.get_type();
        if class.is_subclass(numpy.generic.bind(value.py()))?
            && let Some(dtype) = numpy.dtype_of_scalars(&class, value)?
        {
            self.bytes(SCALAR, dtype.as_bytes());
            return crate::array::with_bytes(value, |bytes| self.sized(bytes));
        }
        self.pickle(value)
    }

    fn array(&mut self, array: &Bound<'py, PyAny>) -> PyResult<()> {
        if let Some(&place) = self.known.get(&array.as_ptr().addr()) {
            self.begin(AGAIN, place);
            return Ok(());
        }
        let py = array.py();
        let dtype = array.getattr(intern!(py, "dtype"))?;
        let name = Numpy::get(py)?.name_of(&dtype)?;
        if name.as_ref().map_or_else(
            || dtype.getattr("hasobject")?.extract(),
            |name| Ok::<_, PyErr>(name.is_object),
        )? {
            return self.pickle(array);
        }
        let layout = Layout::of(array)?;
        self.known.insert(array.as_ptr().addr(), self.known.len());
        self.structure.push(ARRAY);
        match name {
            Some(name) => self.bytes(STR, name.text.as_bytes()),
            // For example, that of records.
            None => self.pickle(&dtype)?,
        }
        self.count(layout.shape().len());
        for &size in layout.shape() {
            self.count(size.cast_unsigned());
        }
        for stride in layout.dense_strides() {
            self.structure.extend((stride as i64).to_le_bytes());
        }
        let built = layout
            .address()
            .and_then(|address| self.region.place_of(address, layout.size()));
        let at = built.unwrap_or(self.end);
        self.count(at);
        self.count(layout.size());
        self.elements = self.elements.saturating_add(layout.size());
        if built.is_none() {
            self.end = at
                .checked_add(layout.size())
                .and_then(|end| end.checked_next_multiple_of(ALIGNMENT))
                .ok_or_else(|| PyMemoryError::new_err("a batch is larger than any memory"))?;
            self.arrays.push((layout, at));
        }
        self.alive.push(array.clone());
        Ok(())
    }

    fn pickle(&mut self, value: &Bound<'py, PyAny>) -> PyResult<()> {
        let made = self.pickling.dumps.bind(value.py()).call1((value,))?;
        let (pickle, arrays) = made.extract::<(Bound<'py, PyBytes>, Bound<'py, PyList>)>()?;
        self.bytes(PICKLE, pickle.as_bytes());
        self.count(arrays.len());
        for array in arrays {
            self.array(&array)?;
        }
        Ok(())
    }

    fn begin(&mut self, tag: u8, count: usize) {
        self.structure.push(tag);
        self.count(count);
    }

    fn bytes(&mut self, tag: u8, bytes: &[u8]) {
        self.structure.push(tag);
        self.sized(bytes);
    }

    fn sized(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.structure.extend(bytes);
    }

    fn count(&mut self, count: usize) {
        self.structure.extend((count as u64).to_le_bytes());
    }
}

/// How many bytes of elements a message has.
pub(crate) fn elements(message: &[u8]) -> PyResult<usize> {
    word_at(message, ELEMENTS_AT)
}

fn word_at(message: &[u8], at: usize) -> PyResult<usize> {
    let mut rest = message.get(at..).unwrap_or_default();
    take_count(&mut rest).ok_or_else(malformed)
}

/// Builds the value of a message. Its arrays are copies.
pub(crate) fn copy<'py>(
    py: Python<'py>,
    message: &[u8],
    pickling: &Pickling,
) -> PyResult<Bound<'py, PyAny>> {
    Reading::of(py, message, None, pickling)?.node()
}

/// Builds the value of a message. Its arrays are views.
pub(crate) fn view<'py>(
    memory: &Bound<'py, Memory>,
    pickling: &Pickling,
) -> PyResult<Bound<'py, PyAny>> {
    let message = memory.get().bytes();
    Reading::of(memory.py(), message, Some(memory), pickling)?.node()
}

struct Reading<'a, 'py> {
    py: Python<'py>,
    message: &'a [u8],
    rest: &'a [u8],
    memory: Option<&'a Bound<'py, Memory>>,
    pickling: &'a Pickling,
    arrays: Vec<Bound<'py, PyAny>>,
    /// How many nodes are around the one that is read.
    depth: usize,
}

impl<'a, 'py> Reading<'a, 'py> {
    fn of(
        py: Python<'py>,
        message: &'a [u8],
        memory: Option<&'a Bound<'py, Memory>>,
        pickling: &'a Pickling,
    ) -> PyResult<Self> {
        let begin = word_at(message, STRUCTURE_AT)?;
        let length = word_at(message, STRUCTURE_LENGTH_AT)?;
        let rest = message
            .get(begin..)
            .and_then(|rest| rest.get(..length))
            .ok_or_else(malformed)?;
        Ok(Self {
            py,
            message,
            rest,
            memory,
            pickling,
            arrays: Vec::new(),
            depth: 0,
        })
    }

    fn node(&mut self) -> PyResult<Bound<'py, PyAny>> {
        if self.depth > MAX_DEPTH {
            return Err(malformed());
        }
        self.depth += 1;
        let value = self.value();
        self.depth -= 1;
        value
    }

    fn value(&mut self) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        Ok(match self.byte()? {
            NONE => py.None().into_bound(py),
            FALSE => PyBool::new(py, false).to_owned().into_any(),
            TRUE => PyBool::new(py, true).to_owned().into_any(),
            INT => PyInt::new(py, i64::from_le_bytes(self.eight()?)).into_any(),
            FLOAT => PyFloat::new(py, f64::from_bits(u64::from_le_bytes(self.eight()?))).into_any(),
            STR => text_of(py, self.sized()?)?.into_any(),
            BYTES => PyBytes::new(py, self.sized()?).into_any(),
            LIST => {
                let list = PyList::empty(py);
                for _ in 0..self.count()? {
                    list.append(self.node()?)?;
                }
                list.into_any()
            }
            TUPLE => {
                let count = self.count()?;
                let items = (0..count).map(|_| self.node());
                PyTuple::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any()
            }
            DICT => {
                let dict = PyDict::new(py);
                for _ in 0..self.count()? {
                    let key = self.node()?;
                    dict.set_item(key, self.node()?)?;
                }
                dict.into_any()
            }
            SCALAR => {
                let dtype = str::from_utf8(self.sized()?).map_err(|_| malformed())?;
                let numpy = Numpy::get(py)?;
                let dtype = numpy.dtype_of(py, dtype)?;
                numpy.scalar_of(py, &dtype, self.sized()?)?
            }
            ARRAY => self.array()?,
            AGAIN => {
                let place = self.count()?;
                self.arrays.get(place).ok_or_else(malformed)?.clone()
            }
            PICKLE => self.pickle()?,
            _ => return Err(malformed()),
        })
    }

    fn array(&mut self) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        // The sender numbered the array before those within it.
        let dtype = match self.byte()? {
            STR => {
                let text = str::from_utf8(self.sized()?).map_err(|_| malformed())?;
                Numpy::get(py)?.dtype_of(py, text)?.object.bind(py).clone()
            }
            PICKLE => self.pickle()?,
            _ => return Err(malformed()),
        };
        let rank = self.count()?;
        let shape = self.sizes(rank)?;
        let strides = self.sizes(rank)?;
        let (at, size) = (self.count()?, self.count()?);
        memory::check_size(&dtype, &shape, size)?;
        let array = if size == 0 {
            let shape = PyTuple::new(py, shape)?;
            Numpy::get(py)?.ndarray.bind(py).call1((shape, dtype))?
        } else if let Some(memory) = self.memory {
            memory::array_in(memory, &dtype, &shape, &strides, at)?
        } else {
            let bytes = self.message.get(at..).and_then(|rest| rest.get(..size));
            memory::check_fits(&dtype, &shape, &strides, bytes.map(<[u8]>::len))?;
            array::copied(&dtype, &shape, &strides, bytes.ok_or_else(malformed)?)?
        };
        self.arrays.push(array.clone());
        Ok(array)
    }

    fn pickle(&mut self) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        let pickle = PyBytes::new(py, self.sized()?);
        let arrays = PyList::empty(py);
        for _ in 0..self.count()? {
            let tag = self.byte()?;
            arrays.append(match tag {
                ARRAY => self.array()?,
                AGAIN => {
                    let place = self.count()?;
                    self.arrays.get(place).ok_or_else(malformed)?.clone()
                }
                _ => return Err(malformed()),
            })?;
        }
        self.pickling.loads.bind(py).call1((pickle, arrays))
    }

    fn byte(&mut self) -> PyResult<u8> {
        let (&byte, rest) = self.rest.split_first().ok_or_else(malformed)?;
        self.rest = rest;
        Ok(byte)
    }

    fn eight(&mut self) -> PyResult<[u8; 8]> {
        let (eight, rest) = self.rest.split_first_chunk().ok_or_else(malformed)?;
        self.rest = rest;
        Ok(*eight)
    }

    fn count(&mut self) -> PyResult<usize> {
        take_count(&mut self.rest).ok_or_else(malformed)
    }

    fn sizes(&mut self, rank: usize) -> PyResult<Vec<isize>> {
        let size = |eight| isize::try_from(i64::from_le_bytes(eight)).map_err(|_| malformed());
        (0..rank).map(|_| size(self.eight()?)).collect()
    }

    fn sized(&mut self) -> PyResult<&'a [u8]> {
        let length = self.count()?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or_else(malformed)?;
        self.rest = rest;
        Ok(bytes)
    }
}

fn take_count(rest: &mut &[u8]) -> Option<usize> {
    let (eight, after) = rest.split_first_chunk()?;
    *rest = after;
    u64::from_le_bytes(*eight).try_into().ok()
}

pub(crate) fn malformed() -> PyErr {
    Error::new_err("a worker process sent something that is no batch")
}
