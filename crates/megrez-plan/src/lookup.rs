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
//!
//! With [`Beyond`] more bits are looked at: of y those below `bits`, as a signed number, which says
//! on which side of the segments x lies. To the left of them the result is 0, to the right of them
//! a line in x; the last segment is in bounds if its piece is good on the line's first segment, and
//! the others on the segment before as always. It is right for −2^(bits−1) + 2^(cut+low+n) ≤ x <
//! 2^(bits−1) − 2^(cut+low).

use crate::error::{Mistake, refuse};
use megrez_ring::Shape;
use serde::{Deserialize, Serialize};

/// The most segments of a [`Lookup`].
pub const MAX_SEGMENTS: usize = 1 << 16;

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
    /// What comes out beside the segments; the segments again if `None`.
    pub beyond: Option<Beyond>,
}

/// A function beside its segments: 0 to the left of them, constant + slope·x to the right.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Beyond {
    /// How many low bits of x are looked at in all, at least cut + low + n + 2.
    pub bits: u32,
    /// Words that fit the ring.
    pub constant: i64,
    /// By how much the result grows where x does by one.
    pub slope: i64,
}

impl Beyond {
    /// Words that a key pays for being to the right: none, 1, or 1 and the mask.
    pub fn parts(&self) -> usize {
        match (self.constant, self.slope) {
            (0, 0) => 0,
            (_, 0) => 1,
            _ => 2,
        }
    }
}

/// Levels of a key's tree for one value correction above its segments: a walk has digits of so many
/// bits, but the last, which has what is left.
pub const DIGIT: usize = 4;

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

    /// How many low bits of x are looked at: cut + low + n, or more with [`Beyond`].
    pub fn bits(&self) -> u32 {
        self.beyond.map_or(self.cut + self.low + self.index_bits(), |beyond| beyond.bits)
    }

    /// How many bits say which segment it is, or how far beside them x lies.
    pub fn depth(&self) -> usize {
        (self.bits() - self.cut - self.low) as usize
    }

    /// Words of the value corrections of a key.
    pub fn corrected(&self) -> usize {
        let above = self.depth() - self.index_bits() as usize;
        self.coefficients() + self.beyond.map_or(0, |beyond| beyond.parts() * above.div_ceil(DIGIT))
    }

    /// Whether it is dealt as keys, and not as tables: where these are of more bits.
    pub fn is_keyed(&self, ring: u32) -> bool {
        self.key_bits(ring) < self.table_bits(ring)
    }

    /// Bits that are dealt for one value on a ring of ℓ = `ring` bits, of a table or of a key.
    pub fn dealt_bits(&self, ring: u32) -> usize {
        self.key_bits(ring).min(self.table_bits(ring))
    }

    /// (d+1)·2^n·ℓ, n being the depth.
    fn table_bits(&self, ring: u32) -> usize {
        let segments = 1usize.checked_shl(self.depth() as u32).unwrap_or(usize::MAX);
        segments.saturating_mul(self.coefficients() * ring as usize)
    }

    /// 128·(2n − 1) + 2·v·ℓ, v being the words that are corrected: corrections and values for both
    /// workers.
    fn key_bits(&self, ring: u32) -> usize {
        128 * (2 * self.depth() - 1) + 2 * self.corrected() * ring as usize
    }

    /// The same function with all its segments written out, where there are few.
    pub fn whole(&self) -> Lookup {
        let Some(Beyond { bits, constant, slope }) = self.beyond else { return self.clone() };
        let (unit, half) = (1i64 << self.cut, 1i64 << (self.depth() - 1));
        let line = |h: i64| {
            let start = slope.wrapping_mul(h << self.low).wrapping_mul(unit);
            [constant.wrapping_add(start), slope.wrapping_mul(unit)]
        };
        let width = self.coefficients();
        let piece = |h: i64| {
            // The numbers below 0 are the upper half.
            let at = usize::try_from(if h < half { h } else { -1 });
            let mut words = vec![0; width];
            match at {
                Err(_) => {}
                Ok(at) if at < self.segments() => words.copy_from_slice(&self.pieces[at * width..][..width]),
                Ok(_) => words.iter_mut().zip(line(h)).for_each(|(word, of_line)| *word = of_line),
            }
            words
        };
        let pieces = (0..2 * half).flat_map(piece).collect();
        assert_eq!(self.bits(), bits);
        Lookup { pieces, beyond: None, ..self.clone() }
    }

    /// The value at the word x; `carries` say whether y and whether h is one more than the floor.
    /// Modulo 2^64, of which a ring of fewer bits takes the low ones.
    pub fn at(&self, x: u64, carries: [bool; 2]) -> u64 {
        self.read(x, carries)[0]
    }

    /// The value, and what else it may be: to the right of the segments the line is taken of x or
    /// of 2^cut·y.
    fn read(&self, x: u64, carries: [bool; 2]) -> [u64; 2] {
        let y = (x >> self.cut).wrapping_add(u64::from(carries[0]));
        let (carry, low) = (u64::from(carries[1]), self.low);
        let l = (y & ((1 << low) - 1)).wrapping_sub(carry << low);
        let h = (y >> low).wrapping_add(carry);
        let segment = match self.beyond {
            None => h as usize & (self.segments() - 1),
            Some(Beyond { constant, slope, .. }) => {
                let beside = 64 - self.depth() as u32;
                let h = (h << beside) as i64 >> beside;
                let line = |x: u64| (constant as u64).wrapping_add((slope as u64).wrapping_mul(x));
                match usize::try_from(h) {
                    Err(_) => return [0; 2],
                    Ok(h) if h >= self.segments() => return [line(x), line(y << self.cut)],
                    Ok(h) => h,
                }
            }
        };
        let piece = &self.pieces[segment * self.coefficients()..][..self.coefficients()];
        [piece.iter().rev().fold(0u64, |sum, &c| sum.wrapping_mul(l).wrapping_add(c as u64)); 2]
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
            found.extend(self.read(x, [first, false]));
            if y & ((1 << self.low) - 1) != 0 {
                found.extend(self.read(x, [first, true]));
            }
        }
        found.dedup();
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
        let within = self.cut < ring && self.low < ring && self.cut + self.low + self.index_bits() <= ring;
        if self.cut > frac || !within {
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
        if let Some(beyond) = self.beyond {
            let own = self.cut + self.low + self.index_bits();
            if beyond.bits > ring || beyond.bits < own + 2 {
                return refuse(format!(
                    "what lies beside {own} bits of segments is seen in 2 bits more or in up to {ring} bits, not in {}",
                    beyond.bits
                ));
            }
            if beyond.slope != 0 && self.degree == 0 {
                return refuse("pieces beside a line are of degree 1 at least");
            }
        }
        let half = 1i128 << (ring - 1);
        let line = self.beyond.map(|beyond| [beyond.constant, beyond.slope]);
        let mut words = self.pieces.iter().chain(line.iter().flatten());
        if let Some(c) = words.find(|&&c| !(-half..half).contains(&i128::from(c))) {
            return refuse(format!("the coefficient {c} does not fit {ring} bits"));
        }
        let bits = self.dealt_bits(ring);
        match Shape::from([bits, elements]).checked() {
            Ok(_) => Ok(()),
            Err(e) => refuse(format!("what is dealt for it is too large: {e}")),
        }
    }
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
        Lookup { cut: 1, low: 2, degree: 2, pieces: (0..8).flat_map(piece).collect(), frac: 2, beyond: None }
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
        let bits = |segments: usize, degree: u32, beyond: Option<Beyond>| {
            let pieces = vec![1; segments * (degree as usize + 1)];
            Lookup { pieces, degree, beyond, ..square() }.dealt_bits(64)
        };
        assert_eq!(bits(64, 3, None), 128 * 11 + 2 * 4 * 64);
        assert_eq!(bits(4, 0, None), 4 * 64);
        // 3 bits below the segments, 6 of them, 11 above; three digits.
        let beyond = |constant, slope| Some(Beyond { bits: 20, constant, slope });
        assert_eq!(bits(64, 3, beyond(0, 0)), 128 * 33 + 2 * 4 * 64);
        assert_eq!(bits(64, 3, beyond(9, 0)), 128 * 33 + 2 * (4 + 3) * 64);
        assert_eq!(bits(64, 3, beyond(0, 9)), 128 * 33 + 2 * (4 + 2 * 3) * 64);
    }

    /// Nothing, x² on [0, 4) with 2 fraction bits, and 16 + 8·(x − 4) from there on.
    fn bent() -> Lookup {
        let piece = |h: i64| [16 * h * h, 8 * h, 1];
        let beyond = Some(Beyond { bits: 8, constant: -16 * 16, slope: 8 * 4 });
        Lookup { cut: 0, low: 2, degree: 2, pieces: (0..4).flat_map(piece).collect(), frac: 4, beyond }
    }

    #[test]
    fn beside_the_segments_are_zeros_and_a_line() {
        let f = bent();
        assert_eq!((f.bits(), f.depth(), f.segments()), (8, 6, 4));
        for x in -112i64..124 {
            let line = 32 * x - 256;
            let of = |h: i64| {
                if h < 0 {
                    0
                } else if h < 4 {
                    x * x
                } else {
                    line
                }
            };
            let mut expected = vec![of(x.div_euclid(4)) as u64];
            if x % 4 != 0 {
                expected.push(of(x.div_euclid(4) + 1) as u64);
            }
            expected.dedup();
            assert_eq!(f.results(x as u64), expected, "{x}");
        }
    }

    /// Written out, it is the same function on all that is looked at.
    #[test]
    fn few_segments_may_be_written_out() {
        for cut in [0, 1] {
            let f = Lookup { cut, ..bent() };
            let f = Lookup { beyond: f.beyond.map(|beyond| Beyond { bits: 8 + cut, ..beyond }), ..f };
            let whole = f.whole();
            assert_eq!((whole.segments(), whole.bits(), whole.beyond), (64, 8 + cut, None));
            for x in 0..1u64 << (8 + cut) {
                let high = x >> (7 + cut) & 1 == 1;
                let x = if high { x.wrapping_sub(1 << (8 + cut)) } else { x };
                let found = f.results(x);
                assert!(whole.results(x).iter().all(|y| found.contains(y)), "{x}");
            }
        }
        assert_eq!(square().whole(), square());
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
        assert!(plan(16, 2, bent()).is_ok());
        let beside = |beyond: Beyond, degree: u32| {
            let pieces = vec![1; 4 * (degree as usize + 1)];
            plan(16, 2, Lookup { degree, pieces, beyond: Some(beyond), ..bent() })
        };
        let beyond = Beyond { bits: 8, constant: 5, slope: 3 };
        assert!(beside(beyond, 1).is_ok() && beside(beyond, 0).is_err());
        assert!(beside(Beyond { slope: 0, ..beyond }, 0).is_ok());
        for bits in [0, 5, 17, u32::MAX] {
            assert!(beside(Beyond { bits, ..beyond }, 1).is_err(), "{bits}");
        }
        assert!(beside(Beyond { bits: 6, ..beyond }, 1).is_ok());
        assert!(beside(Beyond { constant: 1 << 15, ..beyond }, 1).is_err());
        assert!(beside(Beyond { slope: i64::MIN, ..beyond }, 1).is_err());
        // As many values as a tensor may have, and a table for each.
        let mut many = Plan::new(64);
        let x = many.input("x", "alice", [1 << 33].into(), 2);
        let error = many.step("f", Op::Lookup(square()), &[x]).unwrap_err();
        assert!(error.to_string().contains("dealt for it is too large"), "{error}");
    }
}
