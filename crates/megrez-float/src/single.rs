//! Batches of one, for the places where nothing else is ready.

use crate::blocks::{Blocks, Factor, Lookup, Multiply, Row, Select, Table, Truncate};

/// The selections that are these [gates](Single::gates).
pub(crate) fn gates<'a, B: Blocks + ?Sized>(pairs: &[(&'a B::Bit, &'a B::Bit)]) -> Vec<Select<'a, B>> {
    let of = |run: &[(&'a B::Bit, &'a B::Bit)]| {
        let bits = run.iter().map(|pair| pair.1).collect();
        Select { bit: run[0].0, ints: vec![], bits }
    };
    pairs.chunk_by(|one, next| std::ptr::eq(one.0, next.0)).map(of).collect()
}

/// [`Blocks`] with one job a call.
pub(crate) trait Single: Blocks {
    fn one<T>(results: Vec<T>) -> T {
        results.into_iter().next().expect("one job gives one result")
    }

    /// A public number in every lane.
    fn constant(&self, lanes: usize, width: u32, k: u64) -> Self::Int {
        self.public(width, &vec![k; lanes])
    }

    fn neg(&self, x: &Self::Int) -> Self::Int {
        self.scale(x, u64::MAX)
    }

    fn both(&mut self, x: &Self::Bit, y: &Self::Bit) -> Result<Self::Bit, Self::Error> {
        self.and(&[(x, y)]).map(Self::one)
    }

    /// x ∧ y for each pair, as [`and`](Blocks::and), for less where neighbours have the same x, the
    /// same reference: by transfers, all that a bit selects goes together.
    fn gates(&mut self, pairs: &[(&Self::Bit, &Self::Bit)]) -> Result<Vec<Self::Bit>, Self::Error> {
        let jobs = gates(pairs);
        Ok(self.select(&jobs)?.into_iter().flat_map(|row| row.bits).collect())
    }

    /// x ∨ y once x ∧ y is known.
    fn union(&self, x: &Self::Bit, y: &Self::Bit, both: &Self::Bit) -> Self::Bit {
        self.xor(&self.xor(x, y), both)
    }

    fn times(&mut self, bit: &Self::Bit, x: &Self::Int) -> Result<Self::Int, Self::Error> {
        let job = Select { bit, ints: vec![x], bits: vec![] };
        Ok(Self::one(Self::one(self.select(&[job])?).ints))
    }

    /// bit ? −x : x.
    fn negate_if(&mut self, bit: &Self::Bit, x: &Self::Int) -> Result<Self::Int, Self::Error> {
        let y = self.times(bit, x)?;
        Ok(self.sub(x, &self.scale(&y, 2)))
    }

    fn is_negative(&mut self, x: &Self::Int) -> Result<Self::Bit, Self::Error> {
        self.negative(&[x]).map(Self::one)
    }

    /// ⌊x / 2^cut⌋.
    fn cut(&mut self, x: &Self::Int, cut: u32) -> Result<Self::Int, Self::Error> {
        Ok(Self::one(Self::one(self.truncate(&[Truncate { x, cuts: &[cut] }])?)))
    }

    fn row(&mut self, index: &Self::Int, table: &Table) -> Result<Row<Self>, Self::Error> {
        self.lookup(&[Lookup { index, table }]).map(Self::one)
    }

    fn product(
        &mut self,
        x: Factor<'_, Self>,
        y: Factor<'_, Self>,
        width: u32,
    ) -> Result<Self::Int, Self::Error> {
        self.multiply(&[Multiply { x, y, width }]).map(Self::one)
    }
}

impl<B: Blocks> Single for B {}
