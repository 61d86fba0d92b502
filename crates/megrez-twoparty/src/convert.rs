//! Bits as integers, selection, extension: products of one bit by words ([`cot`](crate::cot)).
//!
//! A shared bit w = w_0 ⊕ w_1 is w_0 + w_1 − 2·w_0·w_1. Selection b·v is Σ_p of b_p·v_p, local,
//! plus the other's bit times (1 − 2b_p)·v_p. The wrap of an integer whose top bit is known is a
//! product of bits that the parties hold alone: with t_p party p's top bit it is t_0·t_1 for a top
//! bit of 1, t_0 + t_1 − t_0·t_1 for 0, and for a shared top bit b it is (b ⊕ t_0)(b ⊕ t_1) ⊕ b ⊕
//! t_0 ⊕ t_1 (SIRNN §3.4, with the shared case).
//!
//! block   rounds  bits per lane, both directions
//! widen   2       128/k + w − 1; nothing for w = 1
//! select  2       2·(128/k + Σ widths)
//! extend  2       128/k + (n − m) for a known top bit;  otherwise the wrap, then `widen` to n − m bits
//!
//! Security: `docs/security/secfloat.md`.

use crate::compare::{Ask, Carry};
use crate::cot::{Cot, Word};
use crate::link::Sirnn;
use crate::share::{Bits, Ints};
use megrez_float::blocks::{Blocks, Extend, Msb, Row, Select, mask};
use megrez_kernels::Device;
use megrez_session::Error;

/// How the shares of an unsigned integer wrap.
pub(crate) enum Wrap {
    /// The top bit is known to be this.
    Top(bool),
    /// The wrap, shared.
    Bit(Bits),
}

/// What is known of the top bit of `x`, which is an unsigned view of an integer: the top bit of a
/// signed one is flipped there.
pub(crate) enum Hint<'a> {
    Unknown,
    Known(bool),
    Shared(&'a Bits, bool),
}

impl<'a> Hint<'a> {
    pub fn new<B: Blocks<Bit = Bits>>(msb: &Msb<'a, B>, signed: bool) -> Self {
        match msb {
            Msb::Unknown => Self::Unknown,
            Msb::Zero => Self::Known(signed),
            Msb::One => Self::Known(!signed),
            Msb::Shared(bit) => Self::Shared(bit, signed),
        }
    }
}

impl<D: Device> Sirnn<D> {
    /// This party's shares of x + 2^(w−1) for a signed x, and of x otherwise: an unsigned view.
    pub(crate) fn unsigned(&self, x: &Ints, signed: bool) -> Ints {
        let offset = if signed && self.me() == 0 { 1 << (x.width - 1) } else { 0 };
        x.map(x.width, |v| v.wrapping_add(offset))
    }

    /// The wrap of each unsigned integer; no message for known top bits.
    pub(crate) fn wraps(&mut self, jobs: &[(&Ints, Hint<'_>)]) -> Result<Vec<Wrap>, Error> {
        let first = self.me() == 0;
        let mut carries = vec![];
        let mut factors = vec![];
        for (x, hint) in jobs {
            match hint {
                Hint::Unknown => carries.push(Carry { v: &x.v, cuts: vec![(x.width, Ask::Wrap)] }),
                Hint::Known(_) => {}
                Hint::Shared(bit, flip) => {
                    // (b ⊕ t_1)·(b ⊕ t_0): each party adds its top bit to the other's factor.
                    let bit = bit.flip(*flip && first);
                    let with = bit.xor(&x.bit(x.width - 1));
                    factors.push(if first { (bit, with) } else { (with, bit) });
                }
            }
        }
        let ands: Vec<(&Bits, &Bits)> = factors.iter().map(|(x, y)| (x, y)).collect();
        let (answers, products, _) = self.carries(&carries, &ands, &[])?;
        let (mut answers, mut products) = (answers.into_iter(), products.into_iter().zip(&factors));
        let one = |(x, hint): &(&Ints, Hint<'_>)| match hint {
            Hint::Known(top) => Wrap::Top(*top),
            Hint::Unknown => {
                let answer = answers.next().and_then(|mut a| a.pop()).and_then(|a| a.wrap);
                Wrap::Bit(answer.expect("asked for"))
            }
            Hint::Shared(..) => {
                let (product, (u, v)) = products.next().expect("one for each");
                let bit = if first { u } else { v };
                Wrap::Bit(product.xor(bit).xor(&x.bit(x.width - 1)))
            }
        };
        Ok(jobs.iter().map(one).collect())
    }

    /// Each bit as an integer of `width` bits.
    pub(crate) fn widen_bits(&mut self, jobs: &[(&Bits, u32)]) -> Result<Vec<Ints>, Error> {
        let gives: Vec<Vec<u64>> =
            jobs.iter().map(|(b, _)| (0..b.n).map(|i| b.get(i).wrapping_neg()).collect()).collect();
        let mut sums: Vec<Vec<u64>> = jobs.iter().map(|(b, _)| b.narrow().v).collect();
        let cot = |(i, ((bit, width), give))| -> Option<Cot<'_>> {
            let (bit, width): (&Bits, u32) = (bit, width);
            let word = Word { width: width.checked_sub(1).filter(|&w| w > 0)?, give, into: i, shift: 1 };
            Some(Cot { lanes: bit.n, from: Some(i % 2), choice: &bit.w, words: vec![word] })
        };
        let jobs_and_gives = jobs.iter().map(|&(b, w)| (b, w)).zip(gives.iter().map(Vec::as_slice));
        let cots: Vec<Cot<'_>> = jobs_and_gives.enumerate().filter_map(cot).collect();
        self.cots(&cots, &mut sums)?;
        Ok(sums.into_iter().zip(jobs).map(|(v, &(_, width))| Ints::new(width, v)).collect())
    }

    /// b·x for everything under each bit.
    pub(crate) fn select_words<B>(&mut self, jobs: &[Select<'_, B>]) -> Result<Vec<Row<B>>, Error>
    where
        B: Blocks<Int = Ints, Bit = Bits>,
    {
        // A bit is an integer of one bit: its sharing modulo 2 is additive.
        let words: Vec<Vec<Ints>> = jobs
            .iter()
            .map(|job| {
                let bits = job.bits.iter().map(|b| b.narrow());
                job.ints.iter().map(|&x| x.clone()).chain(bits).collect()
            })
            .collect();
        let mut gives: Vec<Vec<u64>> = vec![];
        let mut sums: Vec<Vec<u64>> = vec![];
        for (job, words) in jobs.iter().zip(&words) {
            for x in words {
                assert_eq!(x.v.len(), job.bit.n, "lanes differ");
                let bit = |i: usize| job.bit.get(i).wrapping_neg();
                sums.push(x.v.iter().enumerate().map(|(i, v)| v & bit(i)).collect());
                gives.push(x.v.iter().enumerate().map(|(i, v)| (v ^ bit(i)).wrapping_sub(bit(i))).collect());
            }
        }
        let mut next = 0;
        let cot = |(job, words): (&Select<'_, B>, &Vec<Ints>)| {
            let word = |x: &Ints| {
                next += 1;
                (x.width, next - 1)
            };
            (job.bit.n, job.bit.w.clone(), words.iter().map(word).collect::<Vec<_>>())
        };
        let shapes: Vec<_> = jobs.iter().zip(&words).map(cot).collect();
        let cots: Vec<Cot<'_>> = shapes
            .iter()
            .map(|(lanes, choice, words)| Cot {
                lanes: *lanes,
                from: None,
                choice,
                words: words
                    .iter()
                    .map(|&(width, into)| Word { width, give: &gives[into], into, shift: 0 })
                    .collect(),
            })
            .collect();
        self.cots(&cots, &mut sums)?;
        let mut sums = sums.into_iter();
        let row = |job: &Select<'_, B>| Row {
            ints: job.ints.iter().map(|x| Ints::new(x.width, sums.next().expect("a sum"))).collect(),
            bits: job.bits.iter().map(|_| Ints::new(1, sums.next().expect("a sum")).bit(0)).collect(),
        };
        Ok(jobs.iter().map(row).collect())
    }

    /// Zero- and sign-extension.
    pub(crate) fn extend_ints<B>(&mut self, jobs: &[Extend<'_, B>]) -> Result<Vec<Ints>, Error>
    where
        B: Blocks<Int = Ints, Bit = Bits>,
    {
        let views: Vec<Ints> = jobs.iter().map(|j| self.unsigned(j.x, j.signed)).collect();
        let wider = |job: &Extend<'_, B>| {
            assert!(job.width >= job.x.width, "extended to fewer bits");
            job.width - job.x.width
        };
        // Nothing is asked about integers that keep their width.
        let asked: Vec<(&Ints, Hint<'_>)> = jobs
            .iter()
            .zip(&views)
            .map(|(j, x)| (x, if wider(j) == 0 { Hint::Known(true) } else { Hint::new(&j.msb, j.signed) }))
            .collect();
        let wraps = self.wraps(&asked)?;
        // −w as a sum: what is local, and what is a product.
        let mut sums = vec![];
        let mut parts = vec![];
        for (x, wrap) in views.iter().zip(&wraps) {
            let bit = match wrap {
                Wrap::Top(_) => x.bit(x.width - 1),
                Wrap::Bit(bit) => bit.clone(),
            };
            let spread = |f: &dyn Fn(u64) -> u64| -> Vec<u64> { (0..bit.n).map(|i| f(bit.get(i))).collect() };
            // t_0·t_1, or t_0 + t_1 − t_0·t_1, or w_0 + w_1 − 2·w_0·w_1; all negated.
            let (local, give, shift) = match wrap {
                Wrap::Top(true) => (spread(&|_| 0), spread(&u64::wrapping_neg), 0),
                Wrap::Top(false) => (spread(&u64::wrapping_neg), spread(&|t| t), 0),
                Wrap::Bit(_) => (spread(&u64::wrapping_neg), spread(&|t| t), 1),
            };
            sums.push(local);
            parts.push((bit, give, shift));
        }
        let cot = |(i, (job, (bit, give, shift)))| -> Option<Cot<'_>> {
            let (job, bit, give, shift): (&Extend<'_, B>, &Bits, &Vec<u64>, u32) = (job, bit, give, shift);
            let width = wider(job).checked_sub(shift).filter(|&w| w > 0)?;
            let words = vec![Word { width, give, into: i, shift }];
            Some(Cot { lanes: bit.n, from: Some(i % 2), choice: &bit.w, words })
        };
        let indexed = jobs.iter().zip(parts.iter().map(|(b, g, s)| (b, g, *s)));
        let cots: Vec<Cot<'_>> = indexed.enumerate().filter_map(cot).collect();
        self.cots(&cots, &mut sums)?;
        let first = self.me() == 0;
        let done = |((job, x), sum): ((&Extend<'_, B>, &Ints), Vec<u64>)| {
            let w = x.width;
            let offset = if job.signed && first { 1 << (w - 1) } else { 0 };
            let lift = |s: u64| if wider(job) == 0 { 0 } else { (s & mask(wider(job))) << w };
            let v =
                x.v.iter().zip(&sum).map(|(&x, &s)| x.wrapping_add(lift(s)).wrapping_sub(offset)).collect();
            Ints::new(job.width, v)
        };
        Ok(jobs.iter().zip(&views).zip(sums).map(done).collect())
    }
}
