//! Division. SECFLOAT, Fig. 6 and 17, with one Newton step from a linear start.
//!
//! The quotient m' = ⌊m1·r⌋ is the correctly rounded one or one less, since r is at most the true
//! reciprocal and less than 2^−(q+2) of it below; m1·2^q against (m' + ½)·m2 decides. They are
//! never equal: 2m' + 1 would divide m1·2^(q+1), yet it is odd and larger than m1's odd part. Nor
//! does rounding ever carry: m1/m2 ≤ 2 − 1/m2.

use crate::any::{AnyBlocks, Extend, Factor, Failure, Msb, Select};
use crate::blocks::Blocks;
use crate::finish::{Class, beyond, finish, four, two};
use crate::float::Float;
use crate::reciprocal::reciprocal;
use crate::scaled::{powers, scaled};
use crate::single::only;

/// x / y, correctly rounded.
///
/// # Errors
/// If the blocks fail.
pub fn div(b: &mut AnyBlocks, x: &Float, y: &Float) -> Result<Float, Failure> {
    quotient(b, x, y, true)
}

/// x / y at less cost: the correctly rounded quotient or its neighbour towards zero.
///
/// # Errors
/// If the blocks fail.
pub fn div_cheap(b: &mut AnyBlocks, x: &Float, y: &Float) -> Result<Float, Failure> {
    quotient(b, x, y, false)
}

fn quotient(b: &mut AnyBlocks, x: &Float, y: &Float, exact: bool) -> Result<Float, Failure> {
    let format = x.format;
    assert_eq!(format, y.format, "formats differ");
    if let Some(exps) = powers(b, y) {
        return scaled(b, x, y, &exps.iter().map(|e| -e).collect::<Vec<_>>());
    }
    let q = format.q;
    let (x_top, y_top) = (b.not(&x.zero), b.not(&y.zero));
    let wide = |man, top| Extend { x: man, width: q + 2, signed: false, msb: Msb::Shared(top) };
    let [m1, m2] = two(b.extend(&[wide(&x.man, &x_top), wide(&y.man, &y_top)])?);
    let less = b.is_negative(&b.sub(&m1, &m2))?;
    let r = reciprocal(b, &m2, q)?;
    let product = b.product(Factor::small(&m1), Factor::small(&r), 2 * q + 8)?;

    // Where m1 < m2 it counts twice, and the exponent is one less. The AND gates of the special
    // values join in.
    let one = b.constant(x.lanes(b), format.exp_width(), 1);
    let zero = (x.vanishing(b), y.unbounded(b));
    let inf = (x.unbounded(b), y.vanishing(b));
    let special = (x.special(b), y.special(b));
    let m1 = b.low(&m1, 2);
    let rows = b.select(&[
        Select { bit: &less, ints: vec![&product, &one, &m1], bits: vec![] },
        Select { bit: &zero.0, ints: vec![], bits: vec![&zero.1] },
        Select { bit: &inf.0, ints: vec![], bits: vec![&inf.1] },
        Select { bit: &special.0, ints: vec![], bits: vec![&special.1] },
    ])?;
    let [twice, zeros, infs, specials] = four(rows);
    let product = b.add(&product, &twice.ints[0]);
    let exp = b.sub(&b.sub(&x.exp, &y.exp), &twice.ints[1]);
    let m1 = b.add(&m1, &twice.ints[2]);
    let class = Class {
        zero: b.union(&zero.0, &zero.1, &zeros.bits[0]),
        inf: b.union(&inf.0, &inf.1, &infs.bits[0]),
        special: b.union(&special.0, &special.1, &specials.bits[0]),
        sign: b.xor(&x.sign, &y.sign),
    };

    // The cheap quotient rounds, or x/x would be below 1.
    let product = if exact { product } else { b.offset(&product, 1 << (q + 4)) };
    let m = b.cut(&product, q + 5)?;
    let [low, high] = beyond(b, format, &exp);
    let (range, man) = if exact {
        let odd = b.offset(&b.scale(&m, 2), 1);
        let product = b.product(Factor::unsigned(&odd), Factor::small(&m2), q + 3)?;
        let rest = b.sub(&product, &b.shift(&m1, q + 1));
        let tests = b.negative(&[&low, &high, &rest])?;
        let up = only(b.widen(&[(&tests[2], q + 1)])?);
        (two(tests[..2].to_vec()), b.add(&b.low(&m, q + 1), &up))
    } else {
        (two(b.negative(&[&low, &high])?), b.low(&m, q + 1))
    };
    let carry = b.public_bits(&vec![false; x.lanes(b)]);
    finish(b, format, &exp, &man, &carry, range.each_ref(), class)
}
