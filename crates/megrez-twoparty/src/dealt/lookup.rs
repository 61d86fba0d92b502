//! Rows of a public table at a secret index of n ≤ 8 bits: one-time truth tables (Ishai et al.,
//! TCC 2013) with a one-hot vector.
//!
//! The dealer deals e_q = [r = q] modulo 2; a worker's share of the row of x = m − r is ⊕_q e_q·T[m
//! − q], bit by bit. The row's bits are opened under masks ρ_i; an integer of the row is Σ_i
//! 2^i·(v_i + (1 − 2v_i)·ρ_i), opened as a form. Only bits that differ between rows are looked up;
//! ℓ of them, and of an integer of w bits those at places i.
//!
//! phase     rounds  bits per lane                    from → to
//! offline   1       2^n − 1 + Σ_ints Σ_i (w − i)     dealer → worker 0
//! online    2       2ℓ; 2w for each integer          worker ↔ worker
//!
//! A worker reads T at m − q for every q, so that nothing depends on its share.
//!
//! Security: `docs/security/float-dealer.md`.

use super::digits::OneHots;
use super::form::BitForms;
use super::link::Dealt;
use super::share::{Bits, Ints};
use megrez_float::blocks::{Blocks, Lookup, Row, Table};
use megrez_kernels::Device;
use megrez_ring::bits;
use megrez_session::Error;

/// A table as bits that differ between rows.
pub(super) struct Live {
    /// Of each column its width, and the places of its bits that differ.
    pub columns: Vec<(u32, Vec<u32>)>,
    /// All live bits of all columns.
    pub count: usize,
    /// Row after row, the live bits in words.
    rows: Vec<u64>,
    words: usize,
}

impl Live {
    pub fn new(table: &Table) -> Self {
        let all = table.columns();
        let width = |c: usize| table.ints.get(c).copied().unwrap_or(1);
        let entry = |row: usize, c: usize| table.entries[row * all + c];
        let rows = 1usize << table.index;
        let places = |c: usize| -> Vec<u32> {
            let differ = (0..rows).fold(0, |any, row| any | (entry(row, c) ^ entry(0, c)));
            (0..width(c)).filter(|i| differ >> i & 1 == 1).collect()
        };
        let columns: Vec<(u32, Vec<u32>)> = (0..all).map(|c| (width(c), places(c))).collect();
        let count = columns.iter().map(|c| c.1.len()).sum();
        let words = bits::words(count);
        let row = |row: usize| {
            let live = columns.iter().enumerate();
            let live: Vec<u64> =
                live.flat_map(|(c, (_, places))| places.iter().map(move |i| entry(row, c) >> i)).collect();
            bits::pack(count, |i| live[i])
        };
        let rows = (0..rows).flat_map(row).collect();
        Self { columns, count, rows, words }
    }

    /// Bits dealt for the forms of the integers, of which there are `ints`.
    pub fn dealt(&self, ints: usize) -> usize {
        self.columns[..ints].iter().flat_map(|(w, places)| places.iter().map(move |i| (w - i) as usize)).sum()
    }

    /// A worker's shares of the rows of m − r, word by word: lane `i` of word `k` is
    /// `[i * words + k]`.
    fn shares(&self, m: &[u64], hot: &OneHots) -> Vec<u64> {
        let n = self.rows.len() / self.words.max(1);
        // From row m on downwards, around.
        let down: Vec<u64> = (0..2 * n)
            .flat_map(|i| &self.rows[(2 * n - i) % n * self.words..][..self.words])
            .copied()
            .collect();
        let mut out = vec![0; m.len() * self.words];
        for (lane, (sum, &m)) in out.chunks_mut(self.words).zip(m).enumerate() {
            let from = &down[(n - m as usize) * self.words..];
            for (q, row) in from.chunks(self.words).take(n).enumerate() {
                let keep = (hot.words[q / 64][lane] >> (q % 64) & 1).wrapping_neg();
                sum.iter_mut().zip(row).for_each(|(s, t)| *s ^= t & keep);
            }
        }
        out
    }
}

impl<D: Device> Dealt<D> {
    /// The row at each index.
    pub(super) fn rows<B>(&mut self, jobs: &[Lookup<'_, B>]) -> Result<Vec<Row<B>>, Error>
    where
        B: Blocks<Int = Ints, Bit = Bits>,
    {
        for job in jobs {
            assert_eq!(job.index.width, job.table.index, "the index is not as wide as the table says");
        }
        let live: Vec<Live> = jobs.iter().map(|j| Live::new(j.table)).collect();
        // A table of one row over and over needs no index.
        let sizes: Vec<(u32, usize)> = jobs
            .iter()
            .zip(&live)
            .map(|(j, live)| (j.index.width, if live.count == 0 { 0 } else { j.index.lanes() }))
            .collect();
        let digits = || {
            let of = |(j, size): (&Lookup<'_, B>, &(u32, usize))| j.index.r[..size.1].to_vec();
            jobs.iter().zip(&sizes).map(of).collect()
        };
        let hot = self.one_hots(&sizes, digits)?;
        let deals = self.deals();
        let form = |((job, live), hot): ((&Lookup<'_, B>, &Live), &OneHots)| {
            let n = job.index.lanes();
            if deals || live.count == 0 {
                return BitForms::held(n, live.count, |_| vec![]);
            }
            let shares = live.shares(&job.index.m, hot);
            BitForms::held(n, live.count, |i| {
                bits::pack(n, |lane| shares[lane * live.words + i / 64] >> (i % 64))
            })
        };
        let forms = jobs.iter().zip(&live).zip(&hot).map(form).collect();
        let opened = self.open(vec![], forms)?.1;

        let mut forms = vec![];
        for ((job, live), row) in jobs.iter().zip(&live).zip(&opened) {
            let mut at = 0;
            for (c, (width, places)) in live.columns[..job.table.ints.len()].iter().enumerate() {
                let row = &row[at..at + places.len()];
                at += places.len();
                if !places.is_empty() {
                    let fixed = places.iter().fold(job.table.entries[c], |v, i| v & !(1 << i));
                    let bits: Vec<(u32, &Bits)> = places.iter().copied().zip(row).collect();
                    forms.push(self.weighted(*width, job.index.lanes(), fixed, &bits));
                }
            }
        }
        let mut ints = self.open_forms(forms)?.into_iter();
        let one = |((job, live), row): ((&Lookup<'_, B>, &Live), Vec<Bits>)| {
            let (lanes, mut row) = (job.index.lanes(), row.into_iter());
            let mut out = Row { ints: vec![], bits: vec![] };
            for (c, (width, places)) in live.columns.iter().enumerate() {
                let fixed = job.table.entries[c];
                let known = || self.known(*width, lanes, |_| fixed);
                if c < job.table.ints.len() {
                    row.by_ref().take(places.len()).for_each(drop);
                    out.ints.push(if places.is_empty() {
                        known()
                    } else {
                        ints.next().expect("one for each")
                    });
                } else if places.is_empty() {
                    out.bits.push(self.known_bits(lanes, |_| fixed));
                } else {
                    out.bits.push(row.next().expect("one for each live bit"));
                }
            }
            out
        };
        Ok(jobs.iter().zip(&live).zip(opened).map(one).collect())
    }
}
