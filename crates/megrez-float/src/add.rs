//! Addition. SECFLOAT, Fig. 5, with the smaller number shifted right instead of the larger one
//! left.
//!
//! Deviates from the figure: with three guard bits and a sticky bit below them the sum has q + 5
//! bits instead of 2q + 2 when its leading bit is sought. Shift distances of q + 3 and more are one
//! distance: the smaller number is then less than an eighth of the last place, and only that it is
//! there matters, which the sticky bit keeps. So the figure's case d > q + 1, which is wrong for
//! d = q + 2, is none. An exact zero is seen before rounding.
//!
//! Why q + 5 bits are enough: let the larger mantissa be M in [2^q, 2^(q+1)) and the exact sum v =
//! M·2^(q+3) ± m·2^(q+3−d). For d ≤ 1 the low q bits of v are zero, nothing is lost. For d ≥ 2, v ≥
//! 2^(2q+2), and after q bits have become sticky at least q + 3 remain: a mantissa, a guard and a
//! sticky bit.

use crate::any::{AnyBlocks, Bit, Extend, Factor, Failure, Int, Msb, Select};
use crate::blocks::{Blocks, Table, mask};
use crate::finish::{Class, finish, four, outside, settle_normal};
use crate::float::Float;
use crate::format::Format;
use crate::single::only;

/// |x| as an integer below 2^(p+q+1) that orders like it, in `spare` bits more, and the mantissas it is made of. From two spare
/// bits on the exponents have to be extended as well.
pub(crate) fn keys(b: &mut AnyBlocks, numbers: [&Float; 2], spare: u32) -> Result<[(Int, Int); 2], Failure> {
    let Format { p, q } = numbers[0].format;
    let width = p + q + 1 + spare;
    let tops = numbers.map(|x| b.not(&x.zero));
    let exps = numbers.map(|x| b.offset(&x.exp, (1 - x.format.min_exp()) as u64));
    let man = |i: usize| Extend { x: &numbers[i].man, width, signed: false, msb: Msb::Shared(&tops[i]) };
    let exp = |i: usize| Extend { x: &exps[i], width: p + 1 + spare, signed: false, msb: Msb::Zero };
    let jobs = [man(0), man(1), exp(0), exp(1)];
    let wide = b.extend(if spare > 1 { &jobs } else { &jobs[..2] })?;
    Ok([0, 1].map(|i| {
        let exp = wide.get(2 + i).unwrap_or(&exps[i]);
        (b.add(&b.shift(exp, q), &wide[i]), b.low(&wide[i], q + 2))
    }))
}

/// x + y, correctly rounded.
///
/// # Errors
/// If the blocks fail.
pub fn add(b: &mut AnyBlocks, x: &Float, y: &Float) -> Result<Float, Failure> {
    sum(b, x, y, true)
}

/// x + y at less cost: the neighbour of the sum towards zero, unless the sum is a float; within one
/// unit in the last place.
///
/// # Errors
/// If the blocks fail.
pub fn add_cheap(b: &mut AnyBlocks, x: &Float, y: &Float) -> Result<Float, Failure> {
    sum(b, x, y, false)
}

fn sum(b: &mut AnyBlocks, x: &Float, y: &Float, exact: bool) -> Result<Float, Failure> {
    let format = x.format;
    assert_eq!(format, y.format, "formats differ");
    let (q, lanes) = (format.q, x.lanes(b));
    let distance_bits = u32::BITS - (q + 3).leading_zeros();

    // Which is larger in magnitude, and whether the exponents are 2^distance_bits or more apart.
    let [(x_key, x_man), (y_key, y_man)] = keys(b, [x, y], 1)?;
    let d = b.sub(&x.exp, &y.exp);
    let beyond = [b.offset(&b.neg(&d), mask(distance_bits)), b.offset(&d, mask(distance_bits))];
    let signs = b.negative(&[&b.sub(&x_key, &y_key), &beyond[0], &beyond[1]])?;
    let less = &signs[0];
    let far = b.xor(&signs[1], &signs[2]);

    // The larger number is x + swap·(y − x), the smaller y − swap·(y − x).
    let apart = b.xor(&x.sign, &y.sign);
    let (exp_step, man_step) = (b.sub(&y.exp, &x.exp), b.sub(&y_man, &x_man));
    let (x_inf, y_inf) = (x.unbounded(b), y.unbounded(b));
    // AND gates that would take a round of their own join this one.
    let swap = b.select(&[
        Select { bit: less, ints: vec![&exp_step, &man_step], bits: vec![&apart] },
        Select { bit: &x_inf, ints: vec![], bits: vec![&y_inf] },
        Select { bit: &x.nan, ints: vec![], bits: vec![&y.nan] },
        Select { bit: &x.sign, ints: vec![], bits: vec![&apart] },
    ])?;
    let [swap, inf, nan, minus] = four(swap);
    let inf = b.union(&x_inf, &y_inf, &inf.bits[0]);
    let nan = b.union(&x.nan, &y.nan, &nan.bits[0]);
    // The larger one is negative and the other is not, or the other way round.
    let minus = b.xor(&minus.bits[0], &swap.bits[0]);
    let exp = b.add(&x.exp, &swap.ints[0]);
    let larger = b.add(&x_man, &swap.ints[1]);
    let smaller = b.sub(&y_man, &swap.ints[1]);
    let sign = b.xor(&x.sign, &swap.bits[0]);
    let distance = b.low(&b.sub(&exp, &b.sub(&y.exp, &swap.ints[0])), distance_bits);

    // v = larger·2^(q+3) ± smaller·2^(q+3−d).
    let table = Table::new(distance_bits, &[q + 5], 0, |d| vec![1 << u64::from(q + 3).saturating_sub(d)]);
    let near = only(b.row(&distance, &table)?.ints);
    let step = b.sub(&b.constant(lanes, q + 5, 1), &near);
    let step = b.times(&far, &step)?;
    let factor = b.add(&near, &step);
    let aligned = b.product(Factor::small(&smaller), Factor::small(&factor), 2 * q + 5)?;
    let aligned = b.negate_if(&apart, &aligned)?;
    let sum = b.add(&b.shift(&larger, q + 3), &aligned);

    let man = if exact { only(b.sticky(&[(&sum, q)])?) } else { b.cut(&sum, q)? };
    let top = only(b.leading(&[(&man, format.exp_width())])?);
    let man = b.product(Factor::unsigned(&man), Factor::unsigned(&top.scale), q + 5)?;
    let exp = b.offset(&b.add(&exp, &top.position), u64::from(q + 3).wrapping_neg());

    // ∞ − ∞ cancels exactly, so that it is zero and infinite at once: NaN. An exact zero of two
    // signs is +0.
    let pairs = [(&top.zero, &nan), (&top.zero, &inf), (&top.zero, &minus)];
    let class = |b: &AnyBlocks, both: &[Bit]| Class {
        zero: b.union(&top.zero, &nan, &both[0]),
        special: b.union(&top.zero, &inf, &both[1]),
        inf: inf.clone(),
        sign: b.xor(&sign, &both[2]),
    };
    if exact {
        return settle_normal(b, format, &exp, &man, &pairs, class);
    }
    let man = b.cut(&man, 4)?;
    let range = outside(b, format, &exp)?;
    let gates = b.gates(&pairs)?;
    let class = class(b, &gates);
    let carry = b.public_bits(&vec![false; lanes]);
    finish(b, format, &exp, &man, &carry, range.each_ref(), class)
}

/// x − y, correctly rounded.
///
/// # Errors
/// If the blocks fail.
pub fn sub(b: &mut AnyBlocks, x: &Float, y: &Float) -> Result<Float, Failure> {
    let y = y.neg(b);
    add(b, x, &y)
}
