//! Python values to bytes and back: `pedl_core::calls::value` with Python on the other side.
//!
//! A value comes back unchanged: the same types, dtypes, shapes and bits. Types are matched
//! exactly. A subclass (a namedtuple, an `OrderedDict`) may mean more than its items, so it is
//! opaque, and the caller receives its name.

use pedl_core::calls::Answer;
use pedl_core::calls::value::{
    ArrayClass, Decoder, Encoder, Leaf, MAX_DEPTH, Malformed, Shape, Token,
};
use pyo3::exceptions::{PyNotImplementedError, PyRecursionError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyTypeMethods,
};

use crate::array;
use crate::error::{Error, IntoPython};
use crate::numpy::Numpy;

/// Writes a value. Names of types that cannot be stored are added to `opaque`.
pub(crate) fn encode(
    value: &Bound<'_, PyAny>,
    encoder: &mut Encoder<'_>,
    opaque: &mut Vec<String>,
) -> PyResult<()> {
    Encoding { opaque, depth: 0 }.node(value, encoder)
}

struct Encoding<'a> {
    opaque: &'a mut Vec<String>,
    depth: usize,
}

impl Encoding<'_> {
    fn node(&mut self, value: &Bound<'_, PyAny>, encoder: &mut Encoder<'_>) -> PyResult<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(PyRecursionError::new_err(
                "a value is nested too deeply to be recorded",
            ));
        }
        if let Ok(dict) = value.cast_exact::<PyDict>() {
            encoder.dict(dict.len());
            for (key, item) in dict {
                self.node(&key, &mut encoder.key())?;
                self.node(&item, encoder)?;
            }
        } else if value.is_none() {
            encoder.none();
        } else if let Ok(number) = value.cast_exact::<PyFloat>() {
            encoder.float(number.extract()?);
        } else if let Ok(flag) = value.cast_exact::<PyBool>() {
            encoder.bool(flag.is_true());
        } else if let Ok(number) = value.cast_exact::<PyInt>() {
            match number.extract() {
                Ok(number) => encoder.int(number),
                Err(_) => encoder.big_int(&hexadecimal(number)?),
            }
        } else if let Ok(text) = value.cast_exact::<PyString>() {
            text_bytes(text, |bytes| encoder.str(bytes))?;
        } else if let Ok(bytes) = value.cast_exact::<PyBytes>() {
            encoder.bytes(bytes.as_bytes());
        } else if let Ok(list) = value.cast_exact::<PyList>() {
            encoder.list(list.len());
            for item in list {
                self.node(&item, encoder)?;
            }
        } else if let Ok(tuple) = value.cast_exact::<PyTuple>() {
            encoder.tuple(tuple.len());
            for item in tuple {
                self.node(&item, encoder)?;
            }
        } else {
            self.of_numpy(value, encoder)?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn of_numpy(&mut self, value: &Bound<'_, PyAny>, encoder: &mut Encoder<'_>) -> PyResult<()> {
        let py = value.py();
        let numpy = Numpy::get(py)?;
        let class = value.get_type();
        if class.is(&numpy.float32) {
            let number: f64 = value.extract()?;
            // A conversion makes signalling NaNs quiet, so NaNs are handled like all other types.
            if !number.is_nan() {
                #[expect(clippy::cast_possible_truncation, reason = "it was a float32")]
                let bytes = (number as f32).to_le_bytes();
                encoder.array(ArrayClass::Scalar, "<f4", &[], &bytes);
                return Ok(());
            }
        } else if class.is(&numpy.float64) {
            let bytes = value.extract::<f64>()?.to_le_bytes();
            encoder.array(ArrayClass::Scalar, "<f8", &[], &bytes);
            return Ok(());
        }
        if class.is(&numpy.ndarray) {
            return self.array(ArrayClass::Ndarray, value, value, encoder);
        }
        if class.is_subclass(numpy.generic.bind(py))? {
            let Some(dtype) = numpy.dtype_of_scalars(&class, value)? else {
                return self.array(ArrayClass::Scalar, value, value, encoder);
            };
            return array::with_bytes(value, |bytes| {
                encoder.array(ArrayClass::Scalar, &dtype, &[], bytes);
            });
        }
        if class.is_subclass(numpy.ndarray.bind(py))? {
            self.opaque(value, encoder);
            return Ok(());
        }
        match numpy.array_of(value) {
            Ok(Some(array)) if array.get_type().is(&numpy.ndarray) => {
                self.array(ArrayClass::Tensor, value, &array, encoder)
            }
            Ok(_) => {
                self.opaque(value, encoder);
                Ok(())
            }
            // A tensor without a value, such as a symbolic one. Other failures are the framework's.
            Err(error)
                if error.is_instance_of::<PyTypeError>(py)
                    || error.is_instance_of::<PyValueError>(py)
                    || error.is_instance_of::<PyNotImplementedError>(py) =>
            {
                self.opaque(value, encoder);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn array(
        &mut self,
        class: ArrayClass,
        value: &Bound<'_, PyAny>,
        array: &Bound<'_, PyAny>,
        encoder: &mut Encoder<'_>,
    ) -> PyResult<()> {
        let py = value.py();
        let dtype = array.getattr(pyo3::intern!(py, "dtype"))?;
        let shape: Vec<usize> = array.getattr(pyo3::intern!(py, "shape"))?.extract()?;
        match Numpy::get(py)?.name_of(&dtype)? {
            Some(name) if !name.is_object => array::with_bytes(array, |bytes| {
                encoder.array(class, &name.text, &shape, bytes);
            }),
            Some(_) if class == ArrayClass::Ndarray => {
                encoder.objects(&shape);
                for item in array.getattr(pyo3::intern!(py, "flat"))?.try_iter()? {
                    self.node(&item?, encoder)?;
                }
                Ok(())
            }
            _ => {
                self.opaque(value, encoder);
                Ok(())
            }
        }
    }

    fn opaque(&mut self, value: &Bound<'_, PyAny>, encoder: &mut Encoder<'_>) {
        let class = value.get_type();
        let name = class.fully_qualified_name().map_or_else(
            |_| "an object".to_owned(),
            |name| name.to_string_lossy().into_owned(),
        );
        encoder.opaque(&name);
        if !self.opaque.contains(&name) {
            self.opaque.push(name);
        }
    }
}

/// Calls `write` with a text as UTF-8, which may contain lone surrogates.
pub(crate) fn text_bytes<T>(
    text: &Bound<'_, PyString>,
    write: impl FnOnce(&[u8]) -> T,
) -> PyResult<T> {
    if let Ok(encoded) = text.encode_utf8() {
        return Ok(write(encoded.as_bytes()));
    }
    let encoded = text.call_method1("encode", ("utf-8", "surrogatepass"))?;
    Ok(write(encoded.cast_into::<PyBytes>()?.as_bytes()))
}

/// The text of bytes that [`text_bytes`] gave.
pub(crate) fn text_of<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyString>> {
    if let Ok(text) = str::from_utf8(bytes) {
        return Ok(PyString::new(py, text));
    }
    let decoded = PyBytes::new(py, bytes).call_method1("decode", ("utf-8", "surrogatepass"))?;
    Ok(decoded.cast_into::<PyString>()?)
}

fn hexadecimal(number: &Bound<'_, PyInt>) -> PyResult<String> {
    number.call_method1("__format__", ("#x",))?.extract()
}

/// Builds the value of a record.
///
/// Args:
///     `tensor`: called with each array that was a framework's tensor.
pub(crate) fn decode<'py>(
    py: Python<'py>,
    answer: &Answer,
    tensor: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    Decoding {
        py,
        answer,
        tensor,
        depth: 0,
    }
    .value(&mut answer.decoder())
}

struct Decoding<'a, 'py> {
    py: Python<'py>,
    answer: &'a Answer,
    tensor: Option<&'a Bound<'py, PyAny>>,
    depth: usize,
}

impl<'py> Decoding<'_, 'py> {
    fn value(&mut self, decoder: &mut Decoder<'_>) -> PyResult<Bound<'py, PyAny>> {
        let node = decoder.node().map_err(malformed)?;
        self.node(node, decoder, false)
    }

    fn key(&mut self, decoder: &mut Decoder<'_>) -> PyResult<Bound<'py, PyAny>> {
        let node = decoder.key().map_err(malformed)?;
        self.node(node, decoder, true)
    }

    fn item(&mut self, decoder: &mut Decoder<'_>, in_key: bool) -> PyResult<Bound<'py, PyAny>> {
        if in_key {
            self.key(decoder)
        } else {
            self.value(decoder)
        }
    }

    fn node(
        &mut self,
        node: Token<'_>,
        decoder: &mut Decoder<'_>,
        in_key: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(malformed(Malformed));
        }
        let value = match node {
            Token::None => py.None().into_bound(py),
            Token::Bool(value) => PyBool::new(py, value).to_owned().into_any(),
            Token::Int(value) => PyInt::new(py, value).into_any(),
            Token::BigInt(digits) => {
                let digits = match digits {
                    Leaf::Inline(digits) => text_of(py, digits)?,
                    Leaf::Large { index, size } => text_of(py, &self.large(index, size)?)?,
                };
                py.get_type::<PyInt>().call1((digits, 16))?
            }
            Token::Float(value) => PyFloat::new(py, value).into_any(),
            Token::Str(Leaf::Inline(text)) => text_of(py, text)?.into_any(),
            Token::Str(Leaf::Large { index, size }) => {
                text_of(py, &self.large(index, size)?)?.into_any()
            }
            Token::Bytes(Leaf::Inline(bytes)) => PyBytes::new(py, bytes).into_any(),
            Token::Bytes(Leaf::Large { index, size }) => {
                self.check_size(index, size)?;
                let read = |bytes: &mut [u8]| self.answer.read_large(index, bytes).into_python(py);
                PyBytes::new_with(py, size, read)?.into_any()
            }
            Token::List(count) => {
                let list = PyList::empty(py);
                for _ in 0..count {
                    list.append(self.item(decoder, in_key)?)?;
                }
                list.into_any()
            }
            Token::Tuple(count) => {
                let items = (0..count).map(|_| self.item(decoder, in_key));
                PyTuple::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any()
            }
            Token::Dict(count) => {
                let dict = PyDict::new(py);
                for _ in 0..count {
                    let key = self.key(decoder)?;
                    dict.set_item(key, self.item(decoder, in_key)?)?;
                }
                dict.into_any()
            }
            Token::Array {
                class,
                dtype,
                shape,
                bytes,
            } => self.array(class, dtype, shape, bytes)?,
            Token::Objects(shape) => self.objects(shape, decoder, in_key)?,
            Token::Opaque(name) => {
                return Err(Error::new_err(format!(
                    "a call is to be answered that returned `{name}`, which could not be recorded"
                )));
            }
        };
        self.depth -= 1;
        Ok(value)
    }

    /// Nothing is allocated for a leaf that is not stored with this size.
    fn check_size(&self, index: usize, size: usize) -> PyResult<()> {
        if self.answer.large_size(index) == Some(size) {
            return Ok(());
        }
        Err(malformed(Malformed))
    }

    fn large(&self, index: usize, size: usize) -> PyResult<Vec<u8>> {
        self.check_size(index, size)?;
        let mut bytes = vec![0; size];
        self.answer
            .read_large(index, &mut bytes)
            .into_python(self.py)?;
        Ok(bytes)
    }

    fn array(
        &self,
        class: ArrayClass,
        dtype: &str,
        shape: Shape<'_>,
        bytes: Leaf<'_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        let numpy = Numpy::get(py)?;
        let dtype = numpy.dtype_of(py, dtype)?;
        if let (ArrayClass::Scalar, Leaf::Inline(bytes)) = (class, bytes) {
            return numpy.scalar_of(py, &dtype, bytes);
        }
        let array = match bytes {
            Leaf::Inline(bytes) => {
                let dimensions: Vec<usize> = shape.dimensions().collect();
                numpy.small_array_of(py, &dimensions, &dtype, bytes)?
            }
            Leaf::Large { index, size } => {
                self.check_size(index, size)?;
                let dimensions: Vec<usize> = shape.dimensions().collect();
                let read = |out: &mut [u8]| self.answer.read_large(index, out);
                array::filled(py, &dimensions, &dtype, size, read)?.into_python(py)?
            }
        };
        match class {
            ArrayClass::Ndarray => Ok(array),
            ArrayClass::Scalar => array.get_item(PyTuple::empty(py)),
            ArrayClass::Tensor => match self.tensor {
                Some(tensor) => tensor.call1((array,)),
                None => Ok(array),
            },
        }
    }

    fn objects(
        &mut self,
        shape: Shape<'_>,
        decoder: &mut Decoder<'_>,
        in_key: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        let numpy = Numpy::get(py)?;
        let dimensions: Vec<usize> = shape.dimensions().collect();
        let array = numpy
            .zeros
            .bind(py)
            .call1((PyTuple::new(py, &dimensions)?, "O"))?;
        let flat = array.getattr(pyo3::intern!(py, "flat"))?;
        for place in 0..shape.num_elements().ok_or_else(|| malformed(Malformed))? {
            flat.set_item(place, self.item(decoder, in_key)?)?;
        }
        Ok(array)
    }
}

fn malformed(_: Malformed) -> PyErr {
    Error::new_err("a record holds a value that is not valid")
}
