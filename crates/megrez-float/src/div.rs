//! Division. SECFLOAT, Fig. 6 and 17, with one Newton step from a linear start.
//!
//! The quotient m' = ⌊m1·r⌋ is the correctly rounded one or one less, since r is at most the true reciprocal and less than
//! 2^−(q+2) of it below; m1·2^q against (m' + ½)·m2 decides. They are never equal: 2m' + 1 would divide m1·2^(q+1), yet it is odd
//! and larger than m1's odd part. Nor does rounding ever carry: m1/m2 ≤ 2 − 1/m2.

use crate::blocks::{Blocks, Extend, Factor, Msb};
use crate::finish::{Class, bounds, finish, two};
use crate::float::Float;
use crate::reciprocal::reciprocal;
use crate::single::Single;

/// x / y, correctly rounded.
///
/// # Errors
/// If the blocks fail.
pub fn div<B: Blocks>(b: &mut B, x: &Float<B>, y: &Float<B>) -> Result<Float<B>, B::Error> {
    quotient(b, x, y, true)
}

/// x / y at less cost: the correctly rounded quotient or its neighbour towards zero.
///
/// # Errors
/// If the blocks fail.
pub fn div_cheap<B: Blocks>(b: &mut B, x: &Float<B>, y: &Float<B>) -> Result<Float<B>, B::Error> {
    quotient(b, x, y, false)
}

fn quotient<B: Blocks>(b: &mut B, x: &Float<B>, y: &Float<B>, exact: bool) -> Result<Float<B>, B::Error> {
    let format = x.format;
    assert_eq!(format, y.format, "formats differ");
    let q = format.q;
    let (x_top, y_top) = (b.not(&x.zero), b.not(&y.zero));
    let wide = |man, top| Extend { x: man, width: q + 3, signed: false, msb: Msb::Shared(top) };
    let [m1, m2] = two(b.extend(&[wide(&x.man, &x_top), wide(&y.man, &y_top)])?);
    let less = b.is_negative(&b.sub(&m1, &m2))?;
    let again = b.times(&less, &m1)?;
    let m1 = b.add(&m1, &again);
    let r = reciprocal(b, &m2, q)?;
    let product = b.product(Factor::small(&m1), Factor::small(&r), 2 * q + 8)?;
    // The cheap quotient rounds, or x/x would be below 1.
    let product = if exact { product } else { b.offset(&product, 1 << (q + 4)) };
    let m = b.cut(&product, q + 5)?;

    // The exponent is that of m1 < m2, and a carry takes the rest.
    let exp = b.offset(&b.sub(&x.exp, &y.exp), u64::MAX);
    let carry = b.not(&less);
    let [low, high] = bounds(b, format, &exp);
    let (tests, man) = if exact {
        let odd = b.offset(&b.scale(&m, 2), 1);
        let product = b.product(Factor::unsigned(&odd), Factor::unsigned(&m2), q + 3)?;
        let rest = b.sub(&product, &b.shift(&b.low(&m1, 2), q + 1));
        let tests = b.negative_zero(&[&low, &high, &rest])?;
        let up = B::one(b.widen(&[(&tests[2].0, q + 1)])?);
        let man = b.add(&b.low(&m, q + 1), &up);
        (tests, man)
    } else {
        (b.negative_zero(&[&low, &high])?, b.low(&m, q + 1))
    };

    let zero = (x.vanishing(b), y.unbounded(b));
    let inf = (x.unbounded(b), y.vanishing(b));
    let special = (x.special(b), y.special(b));
    let sign = b.xor(&x.sign, &y.sign);
    let pairs = [(&zero.0, &zero.1), (&inf.0, &inf.1), (&special.0, &special.1)];
    finish(b, format, &exp, &man, &carry, (&tests[0], &tests[1]), &pairs, |b, gates| {
        let [zero, inf, special] = [0, 1, 2].map(|i| b.union(pairs[i].0, pairs[i].1, &gates[i]));
        Class { zero, inf, special, sign }
    })
}
