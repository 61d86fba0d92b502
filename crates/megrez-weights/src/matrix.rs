//! A public matrix: how it is rounded, and how its weights lie.

use crate::bytes::Bytes;
use crate::digest::{Digest, Error, Result};
use std::fmt;

/// Columns whose weights stand together.
pub const COLUMNS: usize = 32;
/// Rows whose weights stand together: of each column of a block, the weights of so many rows are
/// neighbours, as instructions that add four products of bytes want them.
pub const ROWS: usize = 4;
/// The most rows.
pub const MAX_ROWS: usize = 1 << 20;
/// Sums of the products of so many unsigned and signed bytes fit 32 bits.
pub const EXACT_ROWS: usize = 1 << 16;
/// The most columns.
pub const MAX_COLUMNS: usize = 1 << 20;
/// The most fraction bits of a scale.
pub const MAX_FRAC: u32 = 40;
/// The largest scale, in bits: the words of a matrix are as small as its precision allows.
const SCALE_BITS: i32 = 14;

/// How many bits a weight has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Width {
    /// Steps of a 127th of a column's largest weight.
    Eight,
    /// Steps of a 32,639th of it: as fine as 16 fraction bits where weights are below a half.
    Sixteen,
}

impl Width {
    /// Bytes of a weight; each is a plane of its own.
    pub fn planes(self) -> usize {
        match self {
            Width::Eight => 1,
            Width::Sixteen => 2,
        }
    }

    /// The largest integer: that of 16 bits is made of two signed bytes.
    fn largest(self) -> i32 {
        match self {
            Width::Eight => 127,
            Width::Sixteen => 127 * 256 + 127,
        }
    }
}

/// A public matrix.
pub struct Matrix {
    pub(crate) head: Head,
    pub(crate) digest: Digest,
    pub(crate) bytes: Bytes,
}

/// What stands before the weights.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Head {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) width: Width,
    pub(crate) frac: u32,
    /// Of each column.
    pub(crate) scales: Vec<i32>,
    /// Of each column, the sums of its negative and of its positive integers.
    pub(crate) sums: Vec<[i64; 2]>,
}

impl Matrix {
    /// Rounds a matrix: `column(n, out)` writes the `rows` weights of column n.
    ///
    /// # Errors
    /// If there are no rows or no columns or too many, or a weight is no number.
    pub fn rounded(
        rows: usize,
        columns: usize,
        width: Width,
        column: &mut dyn FnMut(usize, &mut [f32]),
    ) -> Result<Self> {
        check_size(rows, columns)?;
        // Twice over the columns: the scales' common unit follows from the largest weight of all.
        let mut weights = vec![0f32; rows];
        let mut largest = Vec::with_capacity(columns);
        for n in 0..columns {
            column(n, &mut weights);
            if let Some(k) = weights.iter().position(|w| !w.is_finite()) {
                return Err(Error::new(format!("the weight in row {k} and column {n} is {}", weights[k])));
            }
            largest.push(weights.iter().fold(0f32, |most, w| most.max(w.abs())));
        }
        let most = width.largest();
        let step = f64::from(largest.iter().fold(0f32, |most, &l| most.max(l))) / f64::from(most);
        let bits = if step > 0.0 { step.log2().ceil() as i32 } else { 0 };
        let frac = (SCALE_BITS - bits).clamp(0, MAX_FRAC as i32) as u32;
        let unit = 2f64.powi(frac as i32);
        let mut scales = Vec::with_capacity(columns);
        for (n, &largest) in largest.iter().enumerate() {
            // Rounded up: no weight is beyond the largest integer then.
            let scale = (f64::from(largest) / f64::from(most) * unit).ceil();
            if scale > f64::from(i32::MAX) {
                return Err(Error::new(format!(
                    "the weights of column {n} reach {largest:e}, which is too large"
                )));
            }
            scales.push(scale as i32);
        }
        let steps: Vec<f64> = scales.iter().map(|&scale| f64::from(scale) / unit).collect();
        let mut integers = |n: usize, out: &mut [i32]| {
            column(n, &mut weights);
            let nearest = |weight: f32| (f64::from(weight) / steps[n]).round() as i32;
            // A column of zeros has no step.
            out.iter_mut().zip(&weights).for_each(|(q, &w)| *q = if w == 0.0 { 0 } else { nearest(w) });
        };
        Matrix::of_integers([rows, columns], width, frac, scales, &mut integers)
    }

    /// Rounds the row-major matrix `data` of `sizes` = [rows, columns], or the one that it is the
    /// transpose of.
    ///
    /// # Errors
    /// Those of [`rounded`](Self::rounded).
    ///
    /// # Panics
    /// If `data` does not have so many elements.
    pub fn rounded_from(
        [rows, columns]: [usize; 2],
        transposed: bool,
        width: Width,
        data: &[f32],
    ) -> Result<Self> {
        assert_eq!(data.len(), rows * columns, "elements do not fill {rows}×{columns}");
        // Columns of row-major data are read some together: a line of memory holds several.
        let mut some = vec![0f32; if transposed { 0 } else { COLUMNS * rows }];
        let mut column = |n: usize, out: &mut [f32]| {
            if transposed {
                return out.copy_from_slice(&data[n * rows..][..rows]);
            }
            if n.is_multiple_of(COLUMNS) {
                for (k, row) in data.chunks_exact(columns).enumerate() {
                    let row = &row[n..columns.min(n + COLUMNS)];
                    row.iter().enumerate().for_each(|(j, &w)| some[j * rows + k] = w);
                }
            }
            out.copy_from_slice(&some[n % COLUMNS * rows..][..rows]);
        };
        Matrix::rounded(rows, columns, width, &mut column)
    }

    /// A matrix of `sizes` = [rows, columns] of integers with scales of `frac` fraction bits, one
    /// for each column: `column(n, out)` writes the integers of column n.
    ///
    /// # Errors
    /// If there are no rows or no columns or too many, not as many scales as columns, or an integer
    /// does not have so many bits.
    pub fn of_integers(
        [rows, columns]: [usize; 2],
        width: Width,
        frac: u32,
        scales: Vec<i32>,
        column: &mut dyn FnMut(usize, &mut [i32]),
    ) -> Result<Self> {
        check_size(rows, columns)?;
        if scales.len() != columns || frac > MAX_FRAC {
            let count = scales.len();
            return Err(Error::new(format!("{count} scales of {frac} fraction bits for {columns} columns")));
        }
        let mut head = Head { rows, columns, width, frac, scales, sums: vec![[0; 2]; columns] };
        let mut planes = vec![0u8; head.plane_bytes() * width.planes()];
        let mut integers = vec![0; rows];
        for n in 0..columns {
            column(n, &mut integers);
            for (k, &q) in integers.iter().enumerate() {
                if q.abs() > width.largest() {
                    let most = width.largest();
                    return Err(Error::new(format!("{q} in row {k} and column {n} is beyond ±{most}")));
                }
                head.sums[n][usize::from(q > 0)] += i64::from(q);
                head.split(q).into_iter().take(width.planes()).enumerate().for_each(|(plane, byte)| {
                    let at = plane * head.plane_bytes() + head.at(k, n);
                    planes[at] = byte as u8;
                });
            }
        }
        Ok(Matrix::assembled(head, &planes))
    }

    /// Rows: the inner dimension of a product.
    pub fn rows(&self) -> usize {
        self.head.rows
    }

    /// Columns.
    pub fn columns(&self) -> usize {
        self.head.columns
    }

    /// The fraction bits of its words.
    pub fn frac(&self) -> u32 {
        self.head.frac
    }

    /// How many bits a weight has.
    pub fn width(&self) -> Width {
        self.head.width
    }

    /// The hash of its file.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The scale of each column.
    pub fn scales(&self) -> &[i32] {
        &self.head.scales
    }

    /// Of each column, the sums of its negative and of its positive words.
    pub fn sums(&self) -> impl Iterator<Item = [i128; 2]> + '_ {
        let scaled = |(&scale, sums): (&i32, &[i64; 2])| sums.map(|sum| i128::from(sum) * i128::from(scale));
        self.head.scales.iter().zip(&self.head.sums).map(scaled)
    }

    /// The bytes of a weight that count 256^`plane`, signed: blocks of [`COLUMNS`] columns, in each
    /// groups of [`ROWS`] rows, in each the columns, of each its rows. What is past the end is 0.
    pub fn plane(&self, plane: usize) -> &[u8] {
        let size = self.head.plane_bytes();
        &self.bytes.get()[self.head.bytes() + plane * size..][..size]
    }

    /// Groups of rows.
    pub fn groups(&self) -> usize {
        self.head.groups()
    }

    /// The word in row k and column n.
    #[inline(always)]
    pub fn word(&self, k: usize, n: usize) -> i64 {
        let at = self.head.at(k, n);
        let byte = |plane: usize| i64::from(self.plane(plane)[at] as i8);
        let q = match self.head.width {
            Width::Eight => byte(0),
            Width::Sixteen => byte(0) + (byte(1) << 8),
        };
        q * i64::from(self.head.scales[n])
    }

    /// The words of row k with `frac` fraction bits, each the nearest.
    pub fn row(&self, k: usize, frac: u32) -> impl Iterator<Item = i64> + '_ {
        (0..self.head.columns).map(move |n| self.rounded_to(self.word(k, n), frac))
    }

    /// What no word of [`row`](Self::row) exceeds in magnitude.
    pub fn largest(&self, frac: u32) -> i64 {
        // The most negative byte is one more than the most positive.
        let most: i64 = (0..self.head.width.planes() as u32).map(|plane| 128 << (8 * plane)).sum();
        let scale = self.head.scales.iter().map(|s| i64::from(*s).abs()).max().unwrap_or(0);
        self.rounded_to(scale * most, frac)
    }

    fn rounded_to(&self, word: i64, frac: u32) -> i64 {
        match self.head.frac.checked_sub(frac) {
            Some(0) => word,
            Some(drop) => ((word >> (drop - 1)) + 1) >> 1,
            None => word << (frac - self.head.frac),
        }
    }

    /// All weights, row-major.
    pub fn values(&self) -> Vec<f32> {
        let (rows, columns) = (self.head.rows, self.head.columns);
        let unit = 2f64.powi(-(self.head.frac as i32));
        let mut out = vec![0f32; rows * columns];
        // Block by block, as they lie in memory.
        for first in (0..columns).step_by(COLUMNS) {
            for k in 0..rows {
                for n in first..columns.min(first + COLUMNS) {
                    out[k * columns + n] = (self.word(k, n) as f64 * unit) as f32;
                }
            }
        }
        out
    }

    /// The weight in row k and column n.
    pub fn value(&self, k: usize, n: usize) -> f32 {
        (self.word(k, n) as f64 / 2f64.powi(self.head.frac as i32)) as f32
    }
}

impl fmt::Debug for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "public {}×{} {}", self.head.rows, self.head.columns, self.digest)
    }
}

impl PartialEq for Matrix {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Head {
    fn groups(&self) -> usize {
        self.rows.div_ceil(ROWS)
    }

    pub(crate) fn plane_bytes(&self) -> usize {
        self.columns.div_ceil(COLUMNS) * self.groups() * ROWS * COLUMNS
    }

    fn at(&self, k: usize, n: usize) -> usize {
        ((n / COLUMNS * self.groups() + k / ROWS) * COLUMNS + n % COLUMNS) * ROWS + k % ROWS
    }

    /// An integer as signed bytes, the lowest first.
    fn split(&self, q: i32) -> [i8; 2] {
        let low = q as i8;
        [low, ((q - i32::from(low)) >> 8) as i8]
    }
}

pub(crate) fn check_size(rows: usize, columns: usize) -> Result<()> {
    match (1..=MAX_ROWS).contains(&rows) && (1..=MAX_COLUMNS).contains(&columns) {
        true => Ok(()),
        false => Err(Error::new(format!(
            "a public matrix has 1 to {MAX_ROWS} rows and 1 to {MAX_COLUMNS} columns, not {rows}×{columns}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weights of many sizes, columns of zeros among them.
    fn weight(k: usize, n: usize) -> f32 {
        if n % 7 == 3 {
            return 0.0;
        }
        let x = ((k * 7919 + n * 104_729) % 2003) as f32 / 1001.0 - 1.0;
        x * 0.3 / (1 + n % 5) as f32
    }

    fn made(rows: usize, columns: usize, width: Width) -> Matrix {
        let mut column = |n: usize, out: &mut [f32]| {
            out.iter_mut().enumerate().for_each(|(k, w)| *w = weight(k, n));
        };
        Matrix::rounded(rows, columns, width, &mut column).unwrap()
    }

    #[test]
    fn every_weight_is_rounded_to_the_nearest_step() {
        for (rows, columns) in [(1, 1), (4, 32), (5, 33), (130, 70)] {
            for width in [Width::Eight, Width::Sixteen] {
                let matrix = made(rows, columns, width);
                assert_eq!((matrix.rows(), matrix.columns()), (rows, columns));
                assert_eq!(matrix.plane(0).len(), matrix.groups() * 4 * columns.next_multiple_of(32));
                for n in 0..columns {
                    let largest = (0..rows).map(|k| weight(k, n).abs()).fold(0f32, f32::max);
                    let unit = 2f32.powi(-(matrix.frac() as i32));
                    // The scale is rounded up by less than a unit.
                    let step = largest / width.largest() as f32 + unit;
                    for k in 0..rows {
                        let off = (matrix.value(k, n) - weight(k, n)).abs();
                        assert!(off <= step * 0.5001, "{k} {n}: {off} of {step}");
                    }
                    assert_eq!(matrix.values()[n], matrix.value(0, n));
                    let words: Vec<i64> = (0..rows).map(|k| matrix.word(k, n)).collect();
                    for frac in [3, 8, 14, 60].map(|f: u32| f.min(matrix.frac() + 10)) {
                        let unit = 2f64.powi(frac as i32 - matrix.frac() as i32);
                        let nearest = |w: i64| (w as f64 * unit + 0.5).floor() as i64;
                        let found: Vec<i64> = (0..rows).filter_map(|k| matrix.row(k, frac).nth(n)).collect();
                        assert_eq!(found, words.iter().map(|&w| nearest(w)).collect::<Vec<_>>());
                        assert!(found.iter().all(|w| w.abs() <= matrix.largest(frac)));
                    }
                    let sum = |f: fn(i64) -> i64| words.iter().map(|&w| i128::from(f(w))).sum::<i128>();
                    assert_eq!(matrix.sums().nth(n), Some([sum(|w| w.min(0)), sum(|w| w.max(0))]));
                }
                assert!(matrix.scales().iter().all(|&s| s <= 1 << SCALE_BITS));
            }
        }
    }

    #[test]
    fn a_matrix_and_its_transpose_are_the_same() {
        for (rows, columns) in [(1, 40), (40, 1), (33, 65)] {
            let expected = made(rows, columns, Width::Sixteen);
            let at = |k: usize, n: usize| weight(k, n);
            let data: Vec<f32> = (0..rows * columns).map(|i| at(i / columns, i % columns)).collect();
            let turned: Vec<f32> = (0..rows * columns).map(|i| at(i % rows, i / rows)).collect();
            for (transposed, data) in [(false, data), (true, turned)] {
                let found = Matrix::rounded_from([rows, columns], transposed, Width::Sixteen, &data).unwrap();
                assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn integers_of_two_bytes_come_back() {
        let head = made(1, 1, Width::Sixteen).head;
        for q in -32639..=32639 {
            let [low, high] = head.split(q);
            assert_eq!(i32::from(low) + 256 * i32::from(high), q);
        }
    }

    #[test]
    fn no_numbers_and_no_sizes_are_refused() {
        let mut nan = |_: usize, out: &mut [f32]| out[1] = f32::NAN;
        let refused = Matrix::rounded(3, 2, Width::Eight, &mut nan).unwrap_err().to_string();
        assert!(refused.contains("row 1 and column 0 is NaN"), "{refused}");
        let mut huge = |_: usize, out: &mut [f32]| out.fill(f32::MAX);
        assert!(
            Matrix::rounded(3, 2, Width::Eight, &mut huge).unwrap_err().to_string().contains("too large")
        );
        for (rows, columns) in [(0, 1), (1, 0), (MAX_ROWS + 1, 1), (1, MAX_COLUMNS + 1)] {
            assert!(Matrix::rounded(rows, columns, Width::Eight, &mut |_, _| {}).is_err());
        }
        let integers = |q: i32, frac: u32, scales: usize| {
            Matrix::of_integers([3, 2], Width::Eight, frac, vec![1; scales], &mut |_, out| out.fill(q))
        };
        assert_eq!(integers(-127, 0, 2).unwrap().word(2, 1), -127);
        assert!(integers(128, 0, 2).unwrap_err().to_string().contains("beyond ±127"));
        assert!(
            integers(i32::MIN + 1, 0, 2).is_err()
                && integers(1, 0, 1).is_err()
                && integers(1, 41, 2).is_err()
        );
    }
}
