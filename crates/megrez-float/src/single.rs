//! Batches of one, for the places where nothing else is ready.

use crate::any::{AnyBlocks, Bit, Factor, Failure, Int, Lookup, Multiply, Row, Select, Truncate};
use crate::blocks::{Blocks, Table};

/// The selections that are these [gates](AnyBlocks::gates).
pub(crate) fn gates<'a>(pairs: &[(&'a Bit, &'a Bit)]) -> Vec<Select<'a>> {
    let of = |run: &[(&'a Bit, &'a Bit)]| {
        let bits = run.iter().map(|pair| pair.1).collect();
        Select { bit: run[0].0, ints: vec![], bits }
    };
    pairs.chunk_by(|one, next| std::ptr::eq(one.0, next.0)).map(of).collect()
}

/// The result of one job.
pub(crate) fn only<T>(results: Vec<T>) -> T {
    results.into_iter().next().expect("one job gives one result")
}

/// [`Blocks`] with one job a call.
impl AnyBlocks {
    /// A public number in every lane.
    pub(crate) fn constant(&self, lanes: usize, width: u32, k: u64) -> Int {
        self.public(width, &vec![k; lanes])
    }

    pub(crate) fn neg(&self, x: &Int) -> Int {
        self.scale(x, u64::MAX)
    }

    pub(crate) fn both(&mut self, x: &Bit, y: &Bit) -> Result<Bit, Failure> {
        self.and(&[(x, y)]).map(only)
    }

    /// x ∧ y for each pair, as [`and`](Blocks::and), for less where neighbours have the same x, the
    /// same reference: by transfers, all that a bit selects goes together.
    pub(crate) fn gates(&mut self, pairs: &[(&Bit, &Bit)]) -> Result<Vec<Bit>, Failure> {
        let jobs = gates(pairs);
        Ok(self.select(&jobs)?.into_iter().flat_map(|row| row.bits).collect())
    }

    /// x ∨ y once x ∧ y is known.
    pub(crate) fn union(&self, x: &Bit, y: &Bit, both: &Bit) -> Bit {
        self.xor(&self.xor(x, y), both)
    }

    pub(crate) fn times(&mut self, bit: &Bit, x: &Int) -> Result<Int, Failure> {
        let job = Select { bit, ints: vec![x], bits: vec![] };
        Ok(only(only(self.select(&[job])?).ints))
    }

    /// bit ? −x : x.
    pub(crate) fn negate_if(&mut self, bit: &Bit, x: &Int) -> Result<Int, Failure> {
        let y = self.times(bit, x)?;
        Ok(self.sub(x, &self.scale(&y, 2)))
    }

    pub(crate) fn is_negative(&mut self, x: &Int) -> Result<Bit, Failure> {
        self.negative(&[x]).map(only)
    }

    /// ⌊x / 2^cut⌋.
    pub(crate) fn cut(&mut self, x: &Int, cut: u32) -> Result<Int, Failure> {
        Ok(only(only(self.truncate(&[Truncate { x, cuts: &[cut] }])?)))
    }

    pub(crate) fn row(&mut self, index: &Int, table: &Table) -> Result<Row, Failure> {
        self.lookup(&[Lookup { index, table }]).map(only)
    }

    pub(crate) fn product(&mut self, x: Factor<'_>, y: Factor<'_>, width: u32) -> Result<Int, Failure> {
        self.multiply(&[Multiply { x, y, width }]).map(only)
    }
}
