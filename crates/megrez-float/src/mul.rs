//! Multiplication. SECFLOAT, Fig. 4 with Appendix I1.
//!
//! The product of the mantissas has 2q + 2 bits; all but q + 4 of them go into a sticky bit, one
//! comparison normalises. A power of two that everybody knows moves the exponent alone.

use crate::any::{AnyBlocks, Factor, Failure, Msb};
use crate::blocks::Blocks;
use crate::finish::{Class, settle};
use crate::float::Float;
use crate::scaled::{powers, scaled};
use crate::single::only;

/// x·y, correctly rounded.
///
/// # Errors
/// If the blocks fail.
pub fn mul(b: &mut AnyBlocks, x: &Float, y: &Float) -> Result<Float, Failure> {
    let format = x.format;
    assert_eq!(format, y.format, "formats differ");
    for (x, y) in [(x, y), (y, x)] {
        if let Some(exps) = powers(b, y) {
            return scaled(b, x, y, &exps);
        }
    }
    let exp = b.add(&x.exp, &y.exp);
    let (x_top, y_top) = (b.not(&x.zero), b.not(&y.zero));
    let product = b.product(
        Factor { x: &x.man, signed: false, msb: Msb::Shared(&x_top) },
        Factor { x: &y.man, signed: false, msb: Msb::Shared(&y_top) },
        2 * format.q + 2,
    )?;
    let man = only(b.sticky(&[(&product, format.q - 2)])?);
    let zero = (x.vanishing(b), y.vanishing(b));
    let inf = (x.unbounded(b), y.unbounded(b));
    let special = (x.special(b), y.special(b));
    let sign = b.xor(&x.sign, &y.sign);
    let pairs = [(&zero.0, &zero.1), (&inf.0, &inf.1), (&special.0, &special.1)];
    settle(b, format, &exp, &man, &pairs, |b, gates| {
        let [zero, inf, special] = [0, 1, 2].map(|i| b.union(pairs[i].0, pairs[i].1, &gates[i]));
        Class { zero, inf, special, sign }
    })
}

/// x², correctly rounded: the square of a mantissa takes fewer products than two different ones.
///
/// # Errors
/// If the blocks fail.
pub fn square(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    mul(b, x, x)
}
