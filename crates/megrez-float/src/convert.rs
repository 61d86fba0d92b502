//! Conversions from and to integers and fixed point.

use crate::any::{AnyBlocks, Bit, Extend, Factor, Failure, Int, Lookup, Msb, Select};
use crate::blocks::{Blocks, Table};
use crate::finish::{Class, settle_normal};
use crate::float::Float;
use crate::format::Format;
use crate::single::only;

/// x·2^−frac, correctly rounded, for integers x of up to 63 bits, two's complement if `signed`;
/// `frac` is 0 for integers.
///
/// # Errors
/// If the blocks fail.
pub fn from_fixed(
    b: &mut AnyBlocks,
    x: &Int,
    signed: bool,
    frac: u32,
    format: Format,
) -> Result<Float, Failure> {
    let lanes = b.lanes(x);
    let (sign, size) = if signed {
        let sign = b.is_negative(x)?;
        let size = b.negate_if(&sign, x)?;
        (sign, size)
    } else {
        (b.public_bits(&vec![false; lanes]), x.clone())
    };
    let exp = b.constant(lanes, format.exp_width(), u64::from(frac).wrapping_neg());
    rounded(b, format, &size, &exp, None, |b, zero, _| Class {
        zero: zero.clone(),
        inf: b.public_bits(&vec![false; lanes]),
        special: zero.clone(),
        sign,
    })
}

/// size·2^exp, correctly rounded, for an unsigned integer of at most 64 bits. `class` gets whether
/// it is zero, and that ∧ `other` where there is one.
pub(crate) fn rounded(
    b: &mut AnyBlocks,
    format: Format,
    size: &Int,
    exp: &Int,
    other: Option<&Bit>,
    class: impl FnOnce(&AnyBlocks, &Bit, Option<&Bit>) -> Class,
) -> Result<Float, Failure> {
    let width = b.width(size);
    let position = format.exp_width().max(7);
    let top = only(b.leading(&[(size, position)])?);
    let man = b.product(Factor::unsigned(size), Factor::unsigned(&top.scale), width)?;
    // A mantissa, and at least a guard and a sticky bit.
    let wanted = format.man_width() + 3;
    let man = match width {
        w if w > wanted => only(b.sticky(&[(&man, w - wanted)])?),
        w => b.shift(&man, wanted - w),
    };
    let exp = b.add(&b.low(&top.position, format.exp_width()), exp);
    let pairs: Vec<_> = other.map(|other| (&top.zero, other)).into_iter().collect();
    settle_normal(b, format, &exp, &man, &pairs, |b, gates| class(b, &top.zero, gates.first()))
}

/// x·2^frac as a two's complement integer of `width` bits: rounded to nearest, ties to even; the
/// nearest one there is if it does not fit, also for infinities; 0 for NaN. For formats with p = 8,
/// widths from 3 with width + q ≤ 60.
///
/// # Errors
/// If the blocks fail.
pub fn to_fixed(b: &mut AnyBlocks, x: &Float, width: u32, frac: u32) -> Result<Int, Failure> {
    let Format { p, q } = x.format;
    assert!(p == 8 && width >= 3 && width + q <= 60, "a width that the format can be converted to");
    // man·2^(r + 2) with r the place of the leading bit, from a quarter up; two bits below are
    // rounded away with man's q.
    let bias = x.format.max_exp();
    let table = Table::new(8, &[width + 2], 1, |i| {
        let r = i as i64 - bias + i64::from(frac);
        let inside = (-2..i64::from(width) - 1).contains(&r);
        vec![if inside { 1 << (r + 2) } else { 0 }, u64::from(r >= i64::from(width) - 1)]
    });
    let index = b.low(&b.offset(&x.exp, bias as u64), 8);
    let row = only(b.lookup(&[Lookup { index: &index, table: &table }])?);
    let top = b.not(&x.zero);
    let man = Extend { x: &x.man, width: q + 2, signed: false, msb: Msb::Shared(&top) };
    let man = only(b.extend(&[man])?);
    let product = b.product(Factor::small(&man), Factor::small(&row.ints[0]), width + q + 2)?;
    let size = only(b.round(&[(&product, q + 2)])?);

    // Rounding up may reach 2^(width−1), which only −2^(width−1) may be.
    let over = b.is_negative(&size)?;
    let large = b.both(&over, &row.bits[0])?;
    let large = b.union(&over, &row.bits[0], &large);
    let number = b.not(&x.nan);
    let outside = b.both(&large, &number)?;
    let inside = b.xor(&number, &outside);
    let value = b.negate_if(&x.sign, &size)?;
    let limit = only(b.widen(&[(&x.sign, width)])?);
    let limit = b.offset(&limit, (1 << (width - 1)) - 1);
    let rows = b.select(&[
        Select { bit: &outside, ints: vec![&limit], bits: vec![] },
        Select { bit: &inside, ints: vec![&value], bits: vec![] },
    ])?;
    Ok(b.add(&rows[0].ints[0], &rows[1].ints[0]))
}
