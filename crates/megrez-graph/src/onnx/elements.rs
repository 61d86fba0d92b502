//! The elements of a tensor: in its message, packed or raw, or in another file.

use super::fields::{Decoded, each_double, each_float, each_int, name, push, words};
use super::protobuf::Reader;
use crate::after::MAX_NAMES;
use crate::tensor::{Constant, MAX_ELEMENTS, Tensor, half};

pub const MAX_RANK: usize = 8;
/// The ONNX data type of strings.
pub const STRINGS: i64 = 8;

/// TensorProto.
#[derive(Clone, Copy)]
pub struct NamedTensor<'a> {
    pub name: &'a str,
    bytes: &'a [u8],
}

/// Where the elements of a tensor stand in another file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place<'a> {
    /// The file, relative to the model's folder.
    pub location: &'a str,
    /// The first byte.
    pub offset: u64,
    /// How many bytes; all that the elements need, where the file does not say.
    pub length: Option<u64>,
}

impl<'a> Place<'a> {
    /// Reads a StringStringEntryProto of `external_data`.
    fn entry(&mut self, bytes: &'a [u8]) -> Decoded<()> {
        let (mut key, mut value) = ("", "");
        let mut reader = Reader::new(bytes);
        while let Some((number, field)) = reader.next()? {
            match number {
                1 => key = name(field)?,
                2 => value = name(field)?,
                _ => {}
            }
        }
        let number = || value.parse().map_err(|_| format!("has the {key} `{value}` in another file"));
        match key {
            "location" => self.location = value,
            "offset" => self.offset = number()?,
            "length" => self.length = Some(number()?),
            // A checksum, which nobody writes.
            _ => {}
        }
        Ok(())
    }
}

impl<'a> NamedTensor<'a> {
    /// Its bytes in the file.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Number of the element type.
    pub fn element(&self) -> Decoded<i64> {
        let mut element = 0;
        let mut reader = Reader::new(self.bytes);
        while let Some((number, field)) = reader.next()? {
            if number == 2 {
                element = field.int()?;
            }
        }
        Ok(element)
    }

    /// Finds the name; the elements are read by [`decode`](Self::decode).
    pub fn read(bytes: &'a [u8]) -> Decoded<Self> {
        let mut tensor = NamedTensor { name: "", bytes };
        let mut reader = Reader::new(bytes);
        while let Some((number, field)) = reader.next()? {
            if number == 8 {
                tensor.name = name(field)?;
            }
        }
        Ok(tensor)
    }

    /// The elements of a list of strings.
    pub fn strings(&self) -> Decoded<Vec<String>> {
        let (mut dims, mut list) = (vec![], vec![]);
        let mut reader = Reader::new(self.bytes);
        while let Some((number, field)) = reader.next()? {
            match number {
                1 => each_int(field, |v| push(&mut dims, v, MAX_RANK, "dimensions"))?,
                6 => push(&mut list, name(field)?.to_string(), MAX_NAMES, "strings")?,
                _ => {}
            }
        }
        let count = dims.iter().try_fold(1i64, |n, &d| n.checked_mul(d));
        match count {
            Some(n) if n > 0 && usize::try_from(n) == Ok(list.len()) => Ok(list),
            _ => Err("is no list of strings that its dimensions say".into()),
        }
    }

    /// The elements; as many as the dimensions say. `beside` gives the bytes of what is in another
    /// file, by their place and number.
    pub fn decode(&self, beside: impl FnOnce(&Place<'a>, u64) -> Decoded<Vec<u8>>) -> Decoded<Constant> {
        let (mut dims, mut kind, mut raw, mut external) = (vec![], 0, None, false);
        let mut place = Place::default();
        let mut reader = Reader::new(self.bytes);
        while let Some((number, field)) = reader.next()? {
            match number {
                1 => each_int(field, |v| push(&mut dims, v, MAX_RANK, "dimensions"))?,
                2 => kind = field.int()?,
                9 => raw = Some(field.bytes()?),
                13 => {
                    external = true;
                    place.entry(field.bytes()?)?;
                }
                14 => external |= field.int()? != 0,
                _ => {}
            }
        }
        let dims = dims.iter().map(|&d| usize::try_from(d).ok()).collect::<Option<Vec<usize>>>();
        let count = dims.as_ref().and_then(|d| d.iter().try_fold(1usize, |n, &d| n.checked_mul(d)));
        let (Some(dims), Some(count)) = (dims, count.filter(|&n| n <= MAX_ELEMENTS)) else {
            return Err("has absurd dimensions".into());
        };
        let file;
        if external {
            file = beside(&place, count as u64 * bytes_of(kind)?)?;
            raw = Some(&file);
        }
        // Numbers stand in raw bytes or in a list whose field depends on the type.
        let floats = |field: u32| -> Decoded<Vec<f32>> {
            let mut list = vec![];
            let mut reader = Reader::new(self.bytes);
            while let Some((number, value)) = reader.next()? {
                match (number == field, field) {
                    (true, 4) => each_float(value, |v| push(&mut list, v, count, "elements"))?,
                    (true, _) => each_double(value, |v| push(&mut list, v, count, "elements"))?,
                    _ => {}
                }
            }
            Ok(list)
        };
        let ints = |field: u32| -> Decoded<Vec<i64>> {
            let mut list = vec![];
            let mut reader = Reader::new(self.bytes);
            while let Some((number, value)) = reader.next()? {
                if number == field {
                    each_int(value, |v| push(&mut list, v, count, "elements"))?;
                }
            }
            Ok(list)
        };
        let constant: Constant = match (kind, raw) {
            (1, None) => Constant::from(filled(dims, floats(4)?)?),
            (1, Some(raw)) => filled(dims, words(raw, f32::from_le_bytes)?)?.into(),
            (11, None) => filled(dims, floats(10)?)?.into(),
            (11, Some(raw)) => filled(dims, words(raw, |b| f64::from_le_bytes(b) as f32)?)?.into(),
            // Numbers of 16 bits stand in the list of integers.
            (10, None) => filled(dims, ints(5)?.iter().map(|&v| half(v as u16)).collect())?.into(),
            (10, Some(raw)) => filled(dims, words(raw, |b| half(u16::from_le_bytes(b)))?)?.into(),
            (16, None) => filled(dims, ints(5)?.iter().map(|&v| bfloat(v as u16)).collect())?.into(),
            (16, Some(raw)) => filled(dims, words(raw, |b| bfloat(u16::from_le_bytes(b)))?)?.into(),
            (2..=6 | 9, None) => filled(dims, ints(5)?)?.into(),
            (12 | 13, None) => filled(dims, small(ints(11)?)?)?.into(),
            (2, Some(raw)) => filled(dims, words(raw, |[b]: [u8; 1]| i64::from(b))?)?.into(),
            (3, Some(raw)) => filled(dims, words(raw, |b| i64::from(i8::from_le_bytes(b)))?)?.into(),
            (4, Some(raw)) => filled(dims, words(raw, |b| i64::from(u16::from_le_bytes(b)))?)?.into(),
            (5, Some(raw)) => filled(dims, words(raw, |b| i64::from(i16::from_le_bytes(b)))?)?.into(),
            (12, Some(raw)) => filled(dims, words(raw, |b| i64::from(u32::from_le_bytes(b)))?)?.into(),
            (13, Some(raw)) => filled(dims, small(words(raw, i64::from_le_bytes)?)?)?.into(),
            (7, None) => filled(dims, ints(7)?)?.into(),
            (7, Some(raw)) => filled(dims, words(raw, i64::from_le_bytes)?)?.into(),
            (6, Some(raw)) => filled(dims, words(raw, |b| i64::from(i32::from_le_bytes(b)))?)?.into(),
            (9, Some(raw)) => filled(dims, words(raw, |[b]: [u8; 1]| i64::from(b))?)?.into(),
            _ => return Err(format!("has the ONNX data type {kind}: export the model in float32")),
        };
        match &constant {
            // Infinite values may be masks; sharing them is refused.
            Constant::Floats(t) if t.data.iter().any(|v| v.is_nan()) => {
                Err("holds values that are not numbers: check the training".into())
            }
            _ => Ok(constant),
        }
    }
}

/// The bytes of one element.
fn bytes_of(kind: i64) -> Decoded<u64> {
    match kind {
        2 | 3 | 9 => Ok(1),
        4 | 5 | 10 | 16 => Ok(2),
        1 | 6 | 12 => Ok(4),
        7 | 11 | 13 => Ok(8),
        _ => Err(format!("has the ONNX data type {kind}: export the model in float32")),
    }
}

/// The upper half of a float32.
fn bfloat(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Unsigned numbers of 64 bits that fit signed ones.
fn small(list: Vec<i64>) -> Decoded<Vec<i64>> {
    if list.iter().any(|&v| v < 0) { Err("holds integers above 2^63".into()) } else { Ok(list) }
}

fn filled<T: Copy>(dims: Vec<usize>, data: Vec<T>) -> Decoded<Tensor<T>> {
    let count: usize = dims.iter().product();
    if data.len() == count {
        Ok(Tensor::new(dims, data))
    } else {
        Err(format!("has {} elements, its dimensions say {count}", data.len()))
    }
}
