//! The file of a matrix: a head, then the planes of its weights. Numbers are little-endian.
//!
//! | bytes | |
//! | --- | --- |
//! | 16 | `megrez-matrix-1` and a line feed |
//! | 4 each | rows, columns, bits of a weight, fraction bits |
//! | 4 a column | scales |
//! | 16 a column | sums of negative and of positive integers |
//! | to a multiple of 64 | zeros |
//! | the rest | one plane of bytes for every 8 bits of a weight, the lowest first |

use crate::bytes::Bytes;
use crate::digest::{Digest, Error, Result};
use crate::matrix::{Head, MAX_FRAC, Matrix, Width, check_size};

const MAGIC: &[u8; 16] = b"megrez-matrix-1\n";
/// Before the scales.
const FIXED: usize = 32;
/// Where planes begin is a multiple of this.
const LINE: usize = 64;

impl Head {
    /// Bytes before the planes.
    pub(crate) fn bytes(&self) -> usize {
        (FIXED + 20 * self.columns).next_multiple_of(LINE)
    }

    fn write(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let bits = 8 * self.width.planes();
        for number in [self.rows as u32, self.columns as u32, bits as u32, self.frac] {
            out.extend(number.to_le_bytes());
        }
        self.scales.iter().for_each(|scale| out.extend(scale.to_le_bytes()));
        self.sums.iter().flatten().for_each(|sum| out.extend(sum.to_le_bytes()));
        out.resize(self.bytes(), 0);
        out
    }

    /// Of a whole file, whose hash is known to be right or not.
    fn read(bytes: &[u8]) -> Result<Head> {
        let damaged = || Error::new("it is no file of public weights of this version");
        let fixed = bytes.get(..FIXED).filter(|fixed| fixed.starts_with(MAGIC)).ok_or_else(damaged)?;
        let number = |i: usize| u32::from_le_bytes(fixed[16 + 4 * i..][..4].try_into().expect("four bytes"));
        let [rows, columns] = [number(0) as usize, number(1) as usize];
        check_size(rows, columns)?;
        let width = match number(2) {
            8 => Width::Eight,
            16 => Width::Sixteen,
            _ => return Err(damaged()),
        };
        let frac = number(3);
        let mut head = Head { rows, columns, width, frac, scales: vec![], sums: vec![] };
        let size = head.bytes() as u64 + head.plane_bytes() as u64 * width.planes() as u64;
        if frac > MAX_FRAC || bytes.len() as u64 != size {
            return Err(damaged());
        }
        let (scales, rest) = bytes[FIXED..].split_at(4 * columns);
        head.scales = scales.as_chunks::<4>().0.iter().map(|&b| i32::from_le_bytes(b)).collect();
        let sums = &rest[..16 * columns];
        let sums = sums.as_chunks::<8>().0.iter().map(|&b| i64::from_le_bytes(b));
        head.sums = sums.collect::<Vec<_>>().as_chunks::<2>().0.to_vec();
        Ok(head)
    }
}

pub(crate) fn digest(bytes: &[u8]) -> Digest {
    let mut hasher = blake3::Hasher::new_derive_key("megrez 2026 public matrix");
    hasher.update(bytes);
    Digest(*hasher.finalize().as_bytes())
}

impl Matrix {
    pub(crate) fn assembled(head: Head, planes: &[u8]) -> Matrix {
        let mut bytes = head.write();
        bytes.extend_from_slice(planes);
        Matrix { digest: digest(&bytes), head, bytes: Bytes::Memory(bytes) }
    }

    /// A matrix of a file's bytes, which must have this hash.
    pub(crate) fn of(bytes: Bytes, name: &Digest) -> Result<Matrix> {
        let found = digest(bytes.get());
        if found != *name {
            return Err(Error::new("it is damaged: its bytes do not have the hash that it is named by"));
        }
        let head = Head::read(bytes.get())?;
        Ok(Matrix { head, digest: found, bytes })
    }

    /// The file's bytes.
    pub(crate) fn file(&self) -> &[u8] {
        self.bytes.get()
    }
}
