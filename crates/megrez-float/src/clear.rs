//! The building blocks in the clear: the oracle of every other implementation, and what the
//! exhaustive checks run on.

use crate::blocks::{
    Blocks, Extend, Factor, Leading, Lookup, Msb, Multiply, Row, Select, Table, Truncate, mask,
    two_complement,
};
use std::convert::Infallible;

/// Values in the clear. Nothing is secret, nothing can fail.
#[derive(Clone, Copy, Default, Debug)]
pub struct Clear;

/// Integers of one width; the bits above it are zero.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ints {
    /// Bits of each.
    pub width: u32,
    /// The values.
    pub v: Vec<u64>,
}

/// Bits, each 0 or 1 in a word of its own, so that loops over both kinds vectorise alike.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bits(pub Vec<u64>);

impl Ints {
    fn map(&self, width: u32, f: impl Fn(u64) -> u64) -> Self {
        let m = mask(width);
        Self { width, v: self.v.iter().map(|&x| f(x) & m).collect() }
    }

    fn zip(&self, other: &[u64], width: u32, f: impl Fn(u64, u64) -> u64) -> Self {
        assert_eq!(self.v.len(), other.len(), "lanes differ");
        let m = mask(width);
        Self { width, v: self.v.iter().zip(other).map(|(&x, &y)| f(x, y) & m).collect() }
    }

    fn bit(&self, f: impl Fn(u64) -> bool) -> Bits {
        Bits(self.v.iter().map(|&x| u64::from(f(x))).collect())
    }
}

impl Bits {
    fn zip(&self, other: &Self, f: impl Fn(u64, u64) -> u64) -> Self {
        assert_eq!(self.0.len(), other.0.len(), "lanes differ");
        Self(self.0.iter().zip(&other.0).map(|(&a, &b)| f(a, b)).collect())
    }
}

/// Holds a promise about the top bit to the truth, in release builds too: on shares a broken one
/// gives a wrong result, and the exhaustive runs here are what shows that none is.
fn check(x: &Ints, msb: &Msb<'_, Clear>) {
    // One pass without a branch, so that it costs next to nothing.
    let top = x.width - 1;
    match msb {
        Msb::Unknown => {}
        Msb::Zero => assert!(x.v.iter().fold(0, |any, v| any | v) >> top == 0, "a top bit is not zero"),
        Msb::One => {
            assert!(x.v.iter().fold(u64::MAX, |all, v| all & v) >> top & 1 == 1, "a top bit is not one")
        }
        Msb::Shared(bits) => {
            assert_eq!(x.v.len(), bits.0.len(), "lanes differ");
            let wrong = x.v.iter().zip(&bits.0).fold(0, |any, (v, b)| any | (v >> top ^ b));
            assert!(wrong == 0, "a top bit is not as said");
        }
    }
}

/// The factor as 64-bit words whose products are right modulo 2^64.
fn words(factor: &Factor<'_, Clear>) -> Ints {
    check(factor.x, &factor.msb);
    let width = factor.x.width;
    if factor.signed { factor.x.map(64, |x| two_complement(x, width)) } else { factor.x.clone() }
}

fn row(job: &Lookup<'_, Clear>) -> Row<Clear> {
    let Table { index, ints, entries, .. } = job.table;
    assert_eq!(job.index.width, *index, "the index is not as wide as the table says");
    let columns = job.table.columns();
    let column = |c: usize| job.index.v.iter().map(|&i| entries[i as usize * columns + c]).collect();
    Row {
        ints: ints.iter().enumerate().map(|(c, &width)| Ints { width, v: column(c) }).collect(),
        bits: (ints.len()..columns).map(|c| Bits(column(c))).collect(),
    }
}

impl Blocks for Clear {
    type Int = Ints;
    type Bit = Bits;
    type Error = Infallible;

    fn lanes(&self, x: &Ints) -> usize {
        x.v.len()
    }
    fn bit_lanes(&self, x: &Bits) -> usize {
        x.0.len()
    }
    fn width(&self, x: &Ints) -> u32 {
        x.width
    }
    fn public(&self, width: u32, v: &[u64]) -> Ints {
        assert!((1..=64).contains(&width), "widths are 1 to 64");
        Ints { width, v: v.iter().map(|x| x & mask(width)).collect() }
    }
    fn public_bits(&self, v: &[bool]) -> Bits {
        Bits(v.iter().map(|&b| u64::from(b)).collect())
    }
    fn add(&self, x: &Ints, y: &Ints) -> Ints {
        assert_eq!(x.width, y.width, "widths differ");
        x.zip(&y.v, x.width, u64::wrapping_add)
    }
    fn sub(&self, x: &Ints, y: &Ints) -> Ints {
        assert_eq!(x.width, y.width, "widths differ");
        x.zip(&y.v, x.width, u64::wrapping_sub)
    }
    fn scale(&self, x: &Ints, k: u64) -> Ints {
        x.map(x.width, |v| v.wrapping_mul(k))
    }
    fn weigh(&self, x: &Ints, k: &[u64]) -> Ints {
        x.zip(k, x.width, u64::wrapping_mul)
    }
    fn offset(&self, x: &Ints, k: u64) -> Ints {
        x.map(x.width, |v| v.wrapping_add(k))
    }
    fn shift(&self, x: &Ints, s: u32) -> Ints {
        assert!(x.width + s <= 64, "shifted out of 64 bits");
        x.map(x.width + s, |v| v << s)
    }
    fn low(&self, x: &Ints, width: u32) -> Ints {
        assert!(width <= x.width, "low bits of a narrower integer");
        x.map(width, |v| v)
    }
    fn parity(&self, x: &Ints) -> Bits {
        x.bit(|v| v & 1 == 1)
    }
    fn narrow(&self, b: &Bits) -> Ints {
        Ints { width: 1, v: b.0.clone() }
    }
    fn xor(&self, a: &Bits, b: &Bits) -> Bits {
        a.zip(b, |a, b| a ^ b)
    }
    fn not(&self, a: &Bits) -> Bits {
        Bits(a.0.iter().map(|a| a ^ 1).collect())
    }
    fn gather(&self, x: &Ints, lanes: &[usize]) -> Ints {
        Ints { width: x.width, v: lanes.iter().map(|&i| x.v[i]).collect() }
    }
    fn gather_bits(&self, b: &Bits, lanes: &[usize]) -> Bits {
        Bits(lanes.iter().map(|&i| b.0[i]).collect())
    }
    fn concat(&self, x: &[&Ints]) -> Ints {
        assert!(x.iter().all(|y| y.width == x[0].width), "widths differ");
        Ints { width: x[0].width, v: x.iter().flat_map(|y| y.v.iter().copied()).collect() }
    }
    fn concat_bits(&self, b: &[&Bits]) -> Bits {
        Bits(b.iter().flat_map(|c| c.0.iter().copied()).collect())
    }

    fn and(&mut self, jobs: &[(&Bits, &Bits)]) -> Result<Vec<Bits>, Infallible> {
        Ok(jobs.iter().map(|(a, b)| a.zip(b, |a, b| a & b)).collect())
    }
    fn select(&mut self, jobs: &[Select<'_, Self>]) -> Result<Vec<Row<Self>>, Infallible> {
        let one = |job: &Select<'_, Self>| Row {
            ints: job.ints.iter().map(|x| x.zip(&job.bit.0, x.width, |x, b| x & b.wrapping_neg())).collect(),
            bits: job.bits.iter().map(|c| c.zip(job.bit, |c, b| c & b)).collect(),
        };
        Ok(jobs.iter().map(one).collect())
    }
    fn widen(&mut self, jobs: &[(&Bits, u32)]) -> Result<Vec<Ints>, Infallible> {
        Ok(jobs.iter().map(|(b, width)| Ints { width: *width, v: b.0.clone() }).collect())
    }
    fn negative(&mut self, jobs: &[&Ints]) -> Result<Vec<Bits>, Infallible> {
        Ok(jobs.iter().map(|x| x.bit(|v| v >> (x.width - 1) == 1)).collect())
    }
    fn negative_zero(&mut self, jobs: &[&Ints]) -> Result<Vec<(Bits, Bits)>, Infallible> {
        Ok(jobs.iter().map(|x| (x.bit(|v| v >> (x.width - 1) == 1), x.bit(|v| v == 0))).collect())
    }
    fn is_zero(&mut self, jobs: &[&Ints]) -> Result<Vec<Bits>, Infallible> {
        Ok(jobs.iter().map(|x| x.bit(|v| v == 0)).collect())
    }
    fn lookup(&mut self, jobs: &[Lookup<'_, Self>]) -> Result<Vec<Row<Self>>, Infallible> {
        Ok(jobs.iter().map(row).collect())
    }
    fn extend(&mut self, jobs: &[Extend<'_, Self>]) -> Result<Vec<Ints>, Infallible> {
        let one = |job: &Extend<'_, Self>| {
            let w = job.x.width;
            assert!(job.width >= w, "extended to fewer bits");
            check(job.x, &job.msb);
            job.x.map(job.width, |x| if job.signed { two_complement(x, w) } else { x })
        };
        Ok(jobs.iter().map(one).collect())
    }
    fn truncate(&mut self, jobs: &[Truncate<'_, Self>]) -> Result<Vec<Vec<Ints>>, Infallible> {
        let one = |job: &Truncate<'_, Self>| {
            assert!(
                job.cuts.is_sorted() && job.cuts.iter().all(|c| (1..job.x.width).contains(c)),
                "cuts rise inside"
            );
            job.cuts.iter().map(|&c| job.x.map(job.x.width - c, |x| x >> c)).collect()
        };
        Ok(jobs.iter().map(one).collect())
    }
    fn sticky(&mut self, jobs: &[(&Ints, u32)]) -> Result<Vec<Ints>, Infallible> {
        Ok(jobs
            .iter()
            .map(|&(x, s)| x.map(x.width - s, |v| (v >> s) | u64::from(v & mask(s) != 0)))
            .collect())
    }
    fn multiply(&mut self, jobs: &[Multiply<'_, Self>]) -> Result<Vec<Ints>, Infallible> {
        let one = |job: &Multiply<'_, Self>| {
            assert!(job.width >= job.x.x.width.max(job.y.x.width), "a product narrower than a factor");
            words(&job.x).zip(&words(&job.y).v, job.width, u64::wrapping_mul)
        };
        Ok(jobs.iter().map(one).collect())
    }
    fn leading(&mut self, jobs: &[(&Ints, u32)]) -> Result<Vec<Leading<Self>>, Infallible> {
        let one = |&(x, position_width): &(&Ints, u32)| {
            let w = x.width;
            assert!(position_width >= 32 - (w - 1).leading_zeros(), "too narrow for the position");
            let place = |v: u64| 63 - u64::from((v | 1).leading_zeros());
            Leading {
                scale: x.map(w, |v| u64::from(v != 0) << (u64::from(w) - 1 - place(v))),
                position: x.map(position_width, place),
                zero: x.bit(|v| v == 0),
            }
        };
        Ok(jobs.iter().map(one).collect())
    }
    fn round(&mut self, jobs: &[(&Ints, u32)]) -> Result<Vec<Ints>, Infallible> {
        let one = |&(x, r): &(&Ints, u32)| {
            assert!(r >= 2 && r < x.width && x.width < 64, "rounds at least two bits away, of at most 63");
            x.map(x.width - r, |v| (v + mask(r - 1) + (v >> r & 1)) >> r)
        };
        Ok(jobs.iter().map(one).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_promise_is_seen_in_every_build() {
        let (zero, one) = (Bits(vec![0; 3]), Bits(vec![0, 1, 0]));
        let x = Ints { width: 8, v: vec![127, 128, 5] };
        let extend = |msb: Msb<'_, Clear>| {
            std::panic::catch_unwind(|| {
                Clear.extend(&[Extend { x: &x, width: 16, signed: false, msb }]).is_ok()
            })
        };
        assert!(extend(Msb::Unknown).is_ok() && extend(Msb::Shared(&one)).is_ok());
        assert!(
            extend(Msb::Zero).is_err() && extend(Msb::One).is_err() && extend(Msb::Shared(&zero)).is_err()
        );
    }
}
