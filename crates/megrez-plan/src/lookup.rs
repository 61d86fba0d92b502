//! A function of one value by pieces: what [`Op::Lookup`](crate::Op::Lookup) computes, in words.
//!
//! Of the word x the `cut` lowest bits are ignored, the next `low` say where in its segment x lies,
//! and the n above them say in which of the 2^n segments: with y = ⌊x/2^cut⌋, h = ⌊y/2^low⌋ modulo
//! 2^n and l = y − 2^low·h the result is Σ c_i(h)·l^i modulo 2^ℓ. What lies above the cut + low + n
//! lowest bits of x is not looked at: outside of −2^(cut+low+n−1) ≤ x < 2^(cut+low+n−1) −
//! 2^(cut+low) + 1 the result is the function's value somewhere else.
//!
//! A protocol that splits a masked value adds carries of its mask's low bits, as a truncation does:
//! y may be one more than the floor unless the cut bits are zero, and h may be one more unless l is
//! 0, with l − 2^low for l. So the pieces of h must be good on the segment before it as well, and
//! the last segment is out of bounds: with a carry it is the first.

use crate::error::{Mistake, refuse};
use megrez_ring::Shape;
use serde::{Deserialize, Serialize};

/// The most segments of a [`Lookup`].
pub const MAX_SEGMENTS: usize = 1024;

/// The highest degree of its pieces.
pub const MAX_DEGREE: u32 = 3;

/// A function by pieces.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lookup {
    /// How many low bits of x are ignored.
    pub cut: u32,
    /// How many bits above them are the place in a segment.
    pub low: u32,
    /// The degree of the pieces.
    pub degree: u32,
    /// c_0(0) … c_d(0), c_0(1) …: words that fit the ring; segment h is that of h and h − 2^n.
    pub pieces: Vec<i64>,
    /// Fraction bits of the result.
    pub frac: u32,
}

impl Lookup {
    /// Coefficients of a piece, d + 1.
    pub fn coefficients(&self) -> usize {
        self.degree as usize + 1
    }

    /// 2^n.
    pub fn segments(&self) -> usize {
        self.pieces.len() / self.coefficients()
    }

    /// n.
    pub fn index_bits(&self) -> u32 {
        self.segments().trailing_zeros()
    }

    /// How many low bits of x are looked at: cut + low + n.
    pub fn bits(&self) -> u32 {
        self.cut + self.low + self.index_bits()
    }

    /// Whether it is dealt as keys of point functions, and not as tables: where these are of more
    /// bits.
    pub fn is_keyed(&self, ring: u32) -> bool {
        let (table, key) = dealt(ring, self.coefficients(), self.segments());
        key < table
    }

    /// Bits that are dealt for one value on a ring of ℓ = `ring` bits, of a table or of a key, with
    /// 2^n segments and pieces of d + 1 coefficients.
    pub fn dealt_bits(ring: u32, coefficients: usize, segments: usize) -> usize {
        let (table, key) = dealt(ring, coefficients, segments);
        table.min(key)
    }

    /// The value at the word x; `carries` say whether y and whether h is one more than the floor.
    /// Modulo 2^64, of which a ring of fewer bits takes the low ones.
    pub fn at(&self, x: u64, carries: [bool; 2]) -> u64 {
        let y = (x >> self.cut).wrapping_add(u64::from(carries[0]));
        let (carry, low) = (u64::from(carries[1]), self.low);
        let segment = (y >> low).wrapping_add(carry) as usize & (self.segments() - 1);
        let l = (y & ((1 << low) - 1)).wrapping_sub(carry << low);
        let piece = &self.pieces[segment * self.coefficients()..][..self.coefficients()];
        piece.iter().rev().fold(0u64, |sum, &c| sum.wrapping_mul(l).wrapping_add(c as u64))
    }

    /// All that may come out at the word x, the value without carries first.
    pub fn results(&self, x: u64) -> Vec<u64> {
        let mut found = vec![];
        let cut_bits = x & ((1 << self.cut) - 1) != 0;
        for first in [false, true] {
            if first && !cut_bits {
                continue;
            }
            let y = (x >> self.cut).wrapping_add(u64::from(first));
            found.push(self.at(x, [first, false]));
            if y & ((1 << self.low) - 1) != 0 {
                found.push(self.at(x, [first, true]));
            }
        }
        found
    }

    /// Whether a table of such pieces can be dealt for `elements` values with `frac` fraction bits
    /// on a ring of `ring` bits.
    pub(crate) fn check(&self, ring: u32, frac: u32, elements: usize) -> Result<(), Mistake> {
        if self.degree > MAX_DEGREE {
            return refuse(format!("pieces are of degree {MAX_DEGREE} at most, not {}", self.degree));
        }
        let segments = self.segments();
        let whole = self.pieces.len() == segments * self.coefficients();
        if !whole || !segments.is_power_of_two() || !(2..=MAX_SEGMENTS).contains(&segments) {
            return refuse(format!(
                "{} coefficients are not those of 2 to {MAX_SEGMENTS} segments, a power of two",
                self.pieces.len()
            ));
        }
        // One after the other: numbers from elsewhere may be as large as they like.
        if self.cut > frac || self.cut >= ring || self.low >= ring || self.bits() > ring {
            return refuse(format!(
                "cannot look at {} + {} + {} bits of {ring}, or cut more than {frac} fraction bits",
                self.cut,
                self.low,
                self.index_bits()
            ));
        }
        if self.frac >= ring {
            return refuse(format!("{} fraction bits do not fit {ring} bits", self.frac));
        }
        let half = 1i128 << (ring - 1);
        if let Some(c) = self.pieces.iter().find(|&&c| !(-half..half).contains(&i128::from(c))) {
            return refuse(format!("the coefficient {c} does not fit {ring} bits"));
        }
        let bits = Lookup::dealt_bits(ring, self.coefficients(), segments);
        match Shape::from([bits, elements]).checked() {
            Ok(_) => Ok(()),
            Err(e) => refuse(format!("what is dealt for it is too large: {e}")),
        }
    }
}

/// Bits of a table, (d+1)·2^n·ℓ, and of a key, 128·(2n − 1) + 2·(d+1)·ℓ: corrections and values for
/// both workers.
fn dealt(ring: u32, coefficients: usize, segments: usize) -> (usize, usize) {
    let (n, words) = (segments.trailing_zeros() as usize, coefficients * ring as usize);
    (segments * words, 128 * (2 * n - 1) + 2 * words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Op, Plan, PlanError, Value};

    /// x² on [−8, 8) with 2 fraction bits, a cut of one of them: pieces of width 2, in units of ½.
    fn square() -> Lookup {
        let piece = |h: i64| {
            let start = 4 * (if h < 4 { h } else { h - 8 });
            [start * start, 2 * start, 1]
        };
        Lookup { cut: 1, low: 2, degree: 2, pieces: (0..8).flat_map(piece).collect(), frac: 2 }
    }

    #[test]
    fn carries_move_by_one_unit_and_no_more() {
        let f = square();
        assert_eq!((f.segments(), f.index_bits(), f.bits()), (8, 3, 6));
        for x in -32i64..24 {
            let (y, exact) = (x >> 1, x & 1 == 0);
            let mut expected = vec![(y * y) as u64];
            if !exact {
                expected.push(((y + 1) * (y + 1)) as u64);
            }
            let mut found = f.results(x as u64);
            assert_eq!(found[0], expected[0], "{x}");
            // The pieces are one polynomial: which of them it is makes no difference.
            found.dedup();
            assert_eq!(found, expected, "{x}");
        }
    }

    /// Keys grow with the number of a segment's bits, tables with that of segments.
    #[test]
    fn keys_take_the_place_of_large_tables() {
        let keyed = |ring: u32, segments: usize, degree: u32| {
            let pieces = vec![1; segments * (degree as usize + 1)];
            Lookup { pieces, degree, ..square() }.is_keyed(ring)
        };
        assert!(!keyed(64, 2, 3) && !keyed(64, 4, 1) && keyed(64, 64, 3) && keyed(64, 16, 1));
        assert!(!keyed(8, 8, 3) && keyed(8, 1024, 3));
        assert_eq!(Lookup::dealt_bits(64, 4, 64), 128 * 11 + 2 * 4 * 64);
        assert_eq!(Lookup::dealt_bits(64, 1, 4), 4 * 64);
    }

    #[test]
    fn tables_from_elsewhere_are_checked() {
        let plan = |ring: u32, frac: u32, lookup: Lookup| {
            let mut plan = Plan::new(ring);
            let x = plan.input("x", "alice", [3, 5].into(), frac);
            let y = plan.step("f", Op::Lookup(lookup), &[x])?;
            plan.output("y", "alice", y);
            assert_eq!(Plan::from_bytes(&plan.to_bytes()).unwrap(), plan);
            Ok::<_, PlanError>(plan.value(y).clone())
        };
        let of = Value { shape: [3, 5].into(), kind: Kind::Ring { frac: 2 } };
        assert_eq!(plan(16, 2, square()), Ok(of));
        let wrong = |change: fn(&mut Lookup)| {
            let mut f = square();
            change(&mut f);
            assert!(plan(16, 2, f.clone()).is_err(), "{f:?}");
        };
        wrong(|f| f.degree = 4);
        wrong(|f| f.degree = u32::MAX);
        wrong(|f| f.degree = 1);
        wrong(|f| f.pieces.clear());
        wrong(|f| f.pieces.truncate(3));
        wrong(|f| f.pieces.truncate(23));
        wrong(|f| f.pieces = vec![0; 3 * 2 * MAX_SEGMENTS]);
        wrong(|f| f.pieces = vec![0; 3 * 6]);
        wrong(|f| f.cut = 3);
        wrong(|f| f.cut = u32::MAX);
        wrong(|f| f.low = 13);
        wrong(|f| f.low = u32::MAX);
        wrong(|f| f.frac = 16);
        wrong(|f| f.pieces[4] = 1 << 15);
        wrong(|f| f.pieces[4] = i64::MIN);
        assert!(plan(64, 2, Lookup { pieces: vec![i64::MIN; 24], ..square() }).is_ok());
        // As many values as a tensor may have, and a table for each.
        let mut many = Plan::new(64);
        let x = many.input("x", "alice", [1 << 33].into(), 2);
        let error = many.step("f", Op::Lookup(square()), &[x]).unwrap_err();
        assert!(error.to_string().contains("dealt for it is too large"), "{error}");
    }
}
