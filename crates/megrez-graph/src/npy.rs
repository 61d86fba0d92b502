//! NumPy's .npy files, versions 1 to 3: little-endian numbers in C order, read as f32.
//!
//! The header is a Python dictionary with three known keys; that grammar is read here, because
//! general readers of Python literals are larger than this whole file.

use crate::tensor::{MAX_ELEMENTS, Tensor, half};
use megrez_ring::Shape;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// NumPy's headers take a line; more is no header.
const MAX_HEADER: usize = 1 << 16;

/// A file that is no array that megrez reads.
#[derive(Debug, thiserror::Error)]
pub enum NpyError {
    /// The file cannot be opened, read or written.
    #[error("{path}: {source}")]
    Io {
        /// Which file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The contents are not what they should be.
    #[error("{place}: {what}")]
    Content {
        /// Which file.
        place: String,
        /// What is wrong and what to do.
        what: String,
    },
}

/// The numbers' types and how to read one.
const TYPES: [(&str, usize, fn(&[u8]) -> f32); 13] = [
    ("<f2", 2, |b| half(u16::from_le_bytes(word(b)))),
    ("<f4", 4, |b| f32::from_le_bytes(word(b))),
    ("<f8", 8, |b| f64::from_le_bytes(word(b)) as f32),
    ("<i8", 8, |b| i64::from_le_bytes(word(b)) as f32),
    ("<i4", 4, |b| i32::from_le_bytes(word(b)) as f32),
    ("<i2", 2, |b| i16::from_le_bytes(word(b)).into()),
    ("|i1", 1, |b| i8::from_le_bytes(word(b)).into()),
    ("<u8", 8, |b| u64::from_le_bytes(word(b)) as f32),
    ("<u4", 4, |b| u32::from_le_bytes(word(b)) as f32),
    ("<u2", 2, |b| u16::from_le_bytes(word(b)).into()),
    ("|u1", 1, |b| b[0].into()),
    ("|b1", 1, |b| b[0].into()),
    ("<b1", 1, |b| b[0].into()),
];

fn word<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("the table's sizes are the types'")
}

/// Reads an array from a file.
pub fn load(path: &Path) -> Result<Tensor, NpyError> {
    let io = |source| NpyError::Io { path: path.display().to_string(), source };
    let file = File::open(path).map_err(io)?;
    let mut bytes = vec![];
    // No array that passes the check of its shape is larger.
    file.take((MAX_ELEMENTS * 8 + MAX_HEADER + 12) as u64).read_to_end(&mut bytes).map_err(io)?;
    parse(&bytes).map_err(|what| NpyError::Content { place: path.display().to_string(), what })
}

/// Reads an array from bytes; the error says what is wrong. Memory: 4 bytes per element that is
/// there.
pub fn parse(bytes: &[u8]) -> Result<Tensor, String> {
    let cut = || "the file is cut off".to_string();
    if !bytes.starts_with(MAGIC) {
        return Err("this is no .npy file: save it with numpy.save".into());
    }
    let (length, start) = match bytes.get(6).ok_or_else(cut)? {
        1 => (u16::from_le_bytes(word(bytes.get(8..10).ok_or_else(cut)?)) as usize, 10),
        2 | 3 => (u32::from_le_bytes(word(bytes.get(8..12).ok_or_else(cut)?)) as usize, 12),
        version => return Err(format!("version {version} of the format is unknown")),
    };
    if length > MAX_HEADER {
        return Err("the header is absurdly long".into());
    }
    let header = bytes.get(start..start + length).ok_or_else(cut)?;
    let header = std::str::from_utf8(header).map_err(|_| "the header is no text".to_string())?;
    let header = Header::parse(header)?;
    let known = TYPES.iter().find(|(name, ..)| *name == header.kind);
    let Some(&(_, size, read)) = known else {
        let remedy = "save it as float32: numpy.save(path, array.astype(numpy.float32))";
        return Err(format!("numbers of type `{}` are not supported; {remedy}", header.kind));
    };
    let shape = Shape::from(header.shape);
    let count = match shape.clone().checked() {
        Ok(s) if s.elements() <= MAX_ELEMENTS && s.rank() <= 8 => s.elements(),
        _ => return Err(format!("the shape {shape:?} is too large")),
    };
    let data = &bytes[start + length..];
    if data.len() != count * size {
        return Err(format!("holds {} bytes, its shape {shape:?} needs {}", data.len(), count * size));
    }
    let tensor = Tensor { shape: shape.clone(), data: data.chunks_exact(size).map(read).collect() };
    if header.kind == "<f8" {
        let double = |i: usize| f64::from_le_bytes(word(&data[8 * i..8 * i + 8]));
        let lost = |i: &usize| tensor.data[*i].is_infinite() && double(*i).is_finite();
        if let Some(i) = (0..count).find(lost) {
            return Err(format!("element {i} is {:e}, more than float32 holds", double(i)));
        }
    }
    Ok(if header.fortran { from_fortran(&tensor) } else { tensor })
}

/// Elements in Fortran order are the transposed array's in C order.
fn from_fortran(tensor: &Tensor) -> Tensor {
    let reversed: Shape = tensor.shape.dims().iter().rev().copied().collect::<Vec<_>>().into();
    let order: Vec<usize> = (0..reversed.rank()).rev().collect();
    let stored = Tensor { shape: reversed.clone(), data: tensor.data.clone() };
    stored.view(&megrez_plan::View::transpose(&reversed, &order))
}

/// Writes an array of float32 to a file.
pub fn save(path: &Path, tensor: &Tensor) -> Result<(), NpyError> {
    let write = || -> io::Result<()> {
        let mut out = BufWriter::new(File::create(path)?);
        write(&mut out, tensor)?;
        out.flush()
    };
    write().map_err(|source| NpyError::Io { path: path.display().to_string(), source })
}

/// Writes an array of float32.
pub fn write(out: &mut impl Write, tensor: &Tensor) -> io::Result<()> {
    let dims: String = tensor.shape.dims().iter().map(|d| format!("{d}, ")).collect();
    let dims = if tensor.shape.rank() == 1 { dims.trim_end() } else { dims.trim_end_matches(", ") };
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({dims}), }}");
    // The data starts at a multiple of 64, as NumPy wants it.
    let padding = 64 - (header.len() + 11) % 64;
    header.extend(std::iter::repeat_n(' ', padding % 64));
    header.push('\n');
    out.write_all(MAGIC)?;
    out.write_all(&[1, 0])?;
    out.write_all(&(header.len() as u16).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    tensor.data.iter().try_for_each(|v| out.write_all(&v.to_le_bytes()))
}

struct Header {
    kind: String,
    fortran: bool,
    shape: Vec<usize>,
}

impl Header {
    /// `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`: the keys in any order.
    fn parse(text: &str) -> Result<Self, String> {
        let bad = || {
            format!("the header `{}` is not understood", text.trim().chars().take(120).collect::<String>())
        };
        let body = text.trim().strip_prefix('{').and_then(|t| t.strip_suffix('}')).ok_or_else(bad)?;
        let value = |key: &str| {
            let at = ['\'', '"'].iter().find_map(|q| {
                let quoted = format!("{q}{key}{q}");
                body.find(&quoted).map(|i| i + quoted.len())
            })?;
            body[at..].trim_start().strip_prefix(':').map(str::trim_start)
        };
        let kind = value("descr").ok_or_else(bad)?;
        let quote = kind.chars().next().filter(|c| "'\"".contains(*c)).ok_or_else(bad)?;
        let kind = kind[1..].split(quote).next().ok_or_else(bad)?.to_string();
        let order = value("fortran_order").ok_or_else(bad)?;
        let fortran = order.starts_with("True");
        if !fortran && !order.starts_with("False") {
            return Err(bad());
        }
        let dims = value("shape").and_then(|v| v.strip_prefix('(')?.split_once(')')).ok_or_else(bad)?.0;
        let dims = dims.split(',').map(str::trim).filter(|d| !d.is_empty());
        let shape = dims.map(|d| d.parse().map_err(|_| bad())).collect::<Result<Vec<usize>, _>>()?;
        Ok(Header { kind, fortran, shape })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let length = (header.len() as u16).to_le_bytes();
        [MAGIC, &[1, 0][..], &length, header.as_bytes(), data].concat()
    }

    #[test]
    fn what_is_written_is_read() {
        for shape in [vec![], vec![3], vec![2, 3], vec![1, 2, 1, 5]] {
            let count: usize = shape.iter().product();
            let tensor = Tensor::new(shape, (0..count).map(|i| i as f32 - 1.5).collect());
            let mut bytes = vec![];
            write(&mut bytes, &tensor).unwrap();
            assert_eq!((bytes.len() - 4 * count) % 64, 0);
            assert_eq!(parse(&bytes).unwrap(), tensor);
        }
    }

    #[test]
    fn other_types_and_orders_are_read() {
        let ints = file(
            "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }\n",
            &[1, 0, 0, 0, 0, 0, 0, 0].repeat(2),
        );
        assert_eq!(parse(&ints).unwrap(), Tensor::new([2], vec![1.0, 1.0]));
        let fortran = file("{'shape': (2, 3), 'fortran_order': True, 'descr': '|u1'}", &[1, 4, 2, 5, 3, 6]);
        assert_eq!(parse(&fortran).unwrap(), Tensor::new([2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    }

    #[test]
    fn mistakes_are_named() {
        let error = |bytes: &[u8]| parse(bytes).unwrap_err();
        assert!(error(b"PK\x03\x04").contains("no .npy file"));
        assert!(
            error(&file("{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", &[0; 4]))
                .contains("`>f4`")
        );
        assert!(
            error(&file("{'descr': '<f4', 'fortran_order': False, 'shape': (9,)}", &[0; 4]))
                .contains("needs 36")
        );
        let huge = "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 99999999999)}";
        assert!(error(&file(huge, &[])).contains("too large"));
        assert!(error(&file("{'descr': '<f4'}", &[])).contains("not understood"));
        let halves = file("{'descr': '<f2', 'fortran_order': False, 'shape': (2,)}", &[0, 0x3e, 0, 0xb4]);
        assert_eq!(parse(&halves).unwrap().data, [1.5, -0.25]);
        let double =
            |v: f64| file("{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}", &v.to_le_bytes());
        assert!(error(&double(1e300)).contains("element 0 is 1e300"));
        assert!(parse(&double(f64::INFINITY)).unwrap().data[0].is_infinite(), "as it is in the file");
    }

    #[test]
    fn mutated_files_give_errors_or_arrays() {
        let save = |shape: &[usize]| {
            let count = shape.iter().product::<usize>();
            let mut bytes = vec![];
            write(&mut bytes, &Tensor::new(shape.to_vec(), (0..count).map(|i| i as f32).collect())).unwrap();
            bytes
        };
        let valid = [
            save(&[]),
            save(&[3]),
            save(&[2, 1, 4, 4]),
            file("{'shape': (2, 3), 'fortran_order': True, 'descr': '|u1'}", &[1, 4, 2, 5, 3, 6]),
            file("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2), }\n", &[0x40; 32]),
        ];
        crate::faults::each(&valid, |bytes| {
            if let Ok(tensor) = parse(bytes) {
                assert_eq!(tensor.shape.elements(), tensor.data.len());
                assert!(tensor.data.len() <= bytes.len());
            }
        });
    }

    proptest! {
        #[test]
        fn damaged_files_give_errors(flips in prop::collection::vec((0usize..160, any::<u8>()), 0..6), cut in 0usize..160) {
            let mut bytes = vec![];
            write(&mut bytes, &Tensor::new([2, 4], vec![1.0; 8])).unwrap();
            flips.iter().for_each(|&(at, value)| if let Some(b) = bytes.get_mut(at) { *b = value });
            bytes.truncate(cut);
            let _ = parse(&bytes);
        }
    }
}
