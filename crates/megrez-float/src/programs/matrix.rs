//! Matrices, with sums in a stated order.

use crate::add::add;
use crate::any::{AnyBlocks, Failure};
use crate::float::Float;
use crate::mul::mul;
use crate::programs::fused::fused_dots;
use crate::programs::parts::{in_parts, pairwise};

/// A matrix in row-major lanes.
#[derive(Clone)]
pub struct Matrix {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// rows·cols numbers.
    pub data: Float,
}

/// Sums the terms of each lane: `terms` holds n blocks of `lanes` numbers, the result is one.
///
/// The order, which makes results the same everywhere: n terms become ⌈n/2⌉ by adding term i +
/// ⌈n/2⌉ to term i; the middle one of an odd number waits. Every addition is correctly rounded.
///
/// # Errors
/// If the blocks fail.
pub fn sum(b: &mut AnyBlocks, terms: &Float, lanes: usize) -> Result<Float, Failure> {
    fold(b, terms, lanes, add)
}

/// As [`sum`], with another operation than addition.
///
/// # Errors
/// If the blocks fail.
pub fn fold(
    b: &mut AnyBlocks,
    terms: &Float,
    lanes: usize,
    f: impl Fn(&mut AnyBlocks, &Float, &Float) -> Result<Float, Failure> + Sync,
) -> Result<Float, Failure> {
    let mut terms = terms.clone();
    loop {
        let n = terms.lanes(b) / lanes;
        if n == 1 {
            return Ok(terms);
        }
        let (half, pairs) = (n.div_ceil(2), n / 2);
        let first = terms.slice(b, 0..pairs * lanes);
        let second = terms.slice(b, half * lanes..n * lanes);
        let folded = pairwise(b, &first, &second, &f)?;
        let waits = terms.slice(b, pairs * lanes..half * lanes);
        terms = Float::concat(b, &[&folded, &waits]);
    }
}

impl Matrix {
    /// A matrix of so many rows of the numbers.
    ///
    /// # Panics
    /// If they do not fill it.
    pub fn new(b: &AnyBlocks, rows: usize, cols: usize, data: Float) -> Self {
        assert_eq!(data.lanes(b), rows * cols, "a matrix that is not full");
        Self { rows, cols, data }
    }

    /// The transpose: local.
    #[must_use]
    pub fn transpose(&self, b: &AnyBlocks) -> Self {
        let lanes: Vec<_> = (0..self.cols).flat_map(|c| (0..self.rows).map(move |r| (r, c))).collect();
        let lanes: Vec<_> = lanes.into_iter().map(|(r, c)| r * self.cols + c).collect();
        Self { rows: self.cols, cols: self.rows, data: self.data.gather(b, &lanes) }
    }

    /// self·other: products are rounded, then [`sum`]med over the inner dimension, in parts.
    ///
    /// # Errors
    /// If the blocks fail.
    ///
    /// # Panics
    /// If the inner dimensions differ.
    pub fn product(&self, b: &mut AnyBlocks, other: &Self) -> Result<Self, Failure> {
        assert_eq!(self.cols, other.rows, "inner dimensions differ");
        let (m, k, n) = (self.rows, self.cols, other.cols);
        let data = in_parts(b, m * n, k, |b, outputs| {
            let places = |f: &dyn Fn(usize, usize) -> usize| -> Vec<usize> {
                (0..k).flat_map(|inner| outputs.clone().map(move |i| f(inner, i))).collect()
            };
            let left = self.data.gather(b, &places(&|inner, i| i / n * k + inner));
            let right = other.data.gather(b, &places(&|inner, i| inner * n + i % n));
            let products = mul(b, &left, &right)?;
            sum(b, &products, outputs.len())
        })?;
        Ok(Self { rows: m, cols: n, data })
    }

    /// self·other: every element is summed over the inner dimension and rounded once, as
    /// [`fused_dots`] does.
    ///
    /// # Errors
    /// If the blocks fail.
    ///
    /// # Panics
    /// If the inner dimensions differ.
    pub fn fused_product(&self, b: &mut AnyBlocks, other: &Self) -> Result<Self, Failure> {
        assert_eq!(self.cols, other.rows, "inner dimensions differ");
        let (m, k, n) = (self.rows, self.cols, other.cols);
        let left = (&self.data, &(|inner, i: usize| i / n * k + inner) as _);
        let right = (&other.data, &(|inner, i: usize| inner * n + i % n) as _);
        let data = fused_dots(b, left, right, k, m * n)?;
        Ok(Self { rows: m, cols: n, data })
    }

    /// self with the row `bias` (cols numbers) added to every row.
    ///
    /// # Errors
    /// If the blocks fail.
    pub fn add_row(&self, b: &mut AnyBlocks, bias: &Float) -> Result<Self, Failure> {
        let lanes: Vec<_> = (0..self.rows * self.cols).map(|i| i % self.cols).collect();
        let bias = bias.gather(b, &lanes);
        Ok(Self { data: pairwise(b, &self.data, &bias, add)?, ..*self })
    }

    /// The sum of the rows, cols numbers.
    ///
    /// # Errors
    /// If the blocks fail.
    pub fn sum_rows(&self, b: &mut AnyBlocks) -> Result<Float, Failure> {
        sum(b, &self.data, self.cols)
    }
}
