//! Addition. SECFLOAT, Fig. 5, with the smaller number shifted right instead of the larger one left.
//!
//! Deviates from the figure: with three guard bits and a sticky bit below them the sum has q + 5 bits instead of 2q + 2 when
//! its leading bit is sought. Shift distances of q + 3 and more are one distance: the smaller number is then less than an
//! eighth of the last place, and only that it is there matters, which the sticky bit keeps. So the figure's case d > q + 1,
//! which is wrong for d = q + 2, is none. An exact zero is seen before rounding.
//!
//! Why q + 5 bits are enough: let the larger mantissa be M in [2^q, 2^(q+1)) and the exact sum v = M·2^(q+3) ± m·2^(q+3−d).
//! For d ≤ 1 the low q bits of v are zero, nothing is lost. For d ≥ 2, v ≥ 2^(2q+2), and after q bits have become sticky at
//! least q + 3 remain: a mantissa, a guard and a sticky bit.

use crate::blocks::{Blocks, Extend, Factor, Msb, Select, Table, mask};
use crate::finish::{Class, bounds, finish, settle_normal, two};
use crate::float::Float;
use crate::single::Single;

/// Mantissas in q + 2 bits, and whether the first number is smaller in magnitude than the second.
pub(crate) struct Ordered<B: Blocks> {
    pub man: [B::Int; 2],
    pub less: B::Bit,
    /// The exponents are 2^k or more apart, for the `far` asked for.
    pub far: Option<B::Bit>,
}

/// |x| as an integer of p + q + 2 bits that orders like it, and the mantissas it is made of.
pub(crate) fn keys<B: Blocks>(b: &mut B, numbers: [&Float<B>; 2]) -> Result<[(B::Int, B::Int); 2], B::Error> {
    let format = numbers[0].format;
    let width = format.p + format.q + 2;
    let tops = numbers.map(|x| b.not(&x.zero));
    let job = |i: usize| Extend { x: &numbers[i].man, width, signed: false, msb: Msb::Shared(&tops[i]) };
    let wide = two(b.extend(&[job(0), job(1)])?);
    Ok([0, 1].map(|i| {
        let exp = b.offset(&numbers[i].exp, (1 - format.min_exp()) as u64);
        (b.add(&b.shift(&exp, format.q), &wide[i]), b.low(&wide[i], format.q + 2))
    }))
}

/// Compares magnitudes; with `far` = k also |x.exp − y.exp| with 2^k.
pub(crate) fn order<B: Blocks>(
    b: &mut B,
    x: &Float<B>,
    y: &Float<B>,
    far: Option<u32>,
) -> Result<Ordered<B>, B::Error> {
    assert_eq!(x.format, y.format, "formats differ");
    let [(x_key, x_man), (y_key, y_man)] = keys(b, [x, y])?;
    let mut tests = vec![b.sub(&x_key, &y_key)];
    if let Some(k) = far {
        let d = b.sub(&x.exp, &y.exp);
        tests.push(b.offset(&b.neg(&d), mask(k)));
        tests.push(b.offset(&d, mask(k)));
    }
    let signs = b.negative(&tests.iter().collect::<Vec<_>>())?;
    let far = far.map(|_| b.xor(&signs[1], &signs[2]));
    Ok(Ordered { man: [x_man, y_man], less: signs[0].clone(), far })
}

/// x + y, correctly rounded.
///
/// # Errors
/// If the blocks fail.
pub fn add<B: Blocks>(b: &mut B, x: &Float<B>, y: &Float<B>) -> Result<Float<B>, B::Error> {
    sum(b, x, y, true)
}

/// x + y at less cost: the neighbour of the sum towards zero, unless the sum is a float; within one unit in the last place.
///
/// # Errors
/// If the blocks fail.
pub fn add_cheap<B: Blocks>(b: &mut B, x: &Float<B>, y: &Float<B>) -> Result<Float<B>, B::Error> {
    sum(b, x, y, false)
}

fn sum<B: Blocks>(b: &mut B, x: &Float<B>, y: &Float<B>, exact: bool) -> Result<Float<B>, B::Error> {
    let format = x.format;
    let (q, lanes) = (format.q, x.lanes(b));
    let distance_bits = u32::BITS - (q + 3).leading_zeros();
    let Ordered { man: [x_man, y_man], less, far } = order(b, x, y, Some(distance_bits))?;
    let far = far.expect("asked for");

    // The larger number is x + swap·(y − x), the smaller y − swap·(y − x).
    let apart = b.xor(&x.sign, &y.sign);
    let (exp_step, man_step) = (b.sub(&y.exp, &x.exp), b.sub(&y_man, &x_man));
    let job = Select { bit: &less, ints: vec![&exp_step, &man_step], bits: vec![&apart] };
    let swap = b.select(&[job])?.remove(0);
    let exp = b.add(&x.exp, &swap.ints[0]);
    let larger = b.add(&x_man, &swap.ints[1]);
    let smaller = b.sub(&y_man, &swap.ints[1]);
    let sign = b.xor(&x.sign, &swap.bits[0]);
    let distance = b.low(&b.sub(&exp, &b.sub(&y.exp, &swap.ints[0])), distance_bits);

    // v = larger·2^(q+3) ± smaller·2^(q+3−d).
    let table = Table::new(distance_bits, &[q + 5], 0, |d| vec![1 << u64::from(q + 3).saturating_sub(d)]);
    let near = B::one(b.row(&distance, &table)?.ints);
    let step = b.sub(&b.constant(lanes, q + 5, 1), &near);
    let step = b.times(&far, &step)?;
    let factor = b.add(&near, &step);
    let aligned = b.product(Factor::small(&smaller), Factor::small(&factor), 2 * q + 5)?;
    let aligned = b.negate_if(&apart, &aligned)?;
    let sum = b.add(&b.shift(&larger, q + 3), &aligned);

    let man = if exact { B::one(b.sticky(&[(&sum, q)])?) } else { b.cut(&sum, q)? };
    let top = B::one(b.leading(&[(&man, format.exp_width())])?);
    let man = b.product(Factor::unsigned(&man), Factor::unsigned(&top.scale), q + 5)?;
    let exp = b.offset(&b.add(&exp, &top.position), u64::from(q + 3).wrapping_neg());

    // ∞ − ∞ cancels exactly, so that it is zero and infinite at once: NaN. An exact zero of two signs is +0.
    let (x_inf, y_inf) = (x.unbounded(b), y.unbounded(b));
    let gates = b.and(&[(&x_inf, &y_inf), (&x.nan, &y.nan), (&sign, &apart)])?;
    let inf = b.union(&x_inf, &y_inf, &gates[0]);
    let nan = b.union(&x.nan, &y.nan, &gates[1]);
    let pairs = [(&top.zero, &nan), (&top.zero, &inf), (&top.zero, &gates[2])];
    let class = |b: &B, both: &[B::Bit]| Class {
        zero: b.union(&top.zero, &nan, &both[0]),
        special: b.union(&top.zero, &inf, &both[1]),
        inf: inf.clone(),
        sign: b.xor(&sign, &both[2]),
    };
    if exact {
        return settle_normal(b, format, &exp, &man, &pairs, class);
    }
    let man = b.cut(&man, 4)?;
    let [low, high] = bounds(b, format, &exp);
    let tests = b.negative_zero(&[&low, &high])?;
    let carry = b.public_bits(&vec![false; lanes]);
    finish(b, format, &exp, &man, &carry, (&tests[0], &tests[1]), &pairs, class)
}

/// x − y, correctly rounded.
///
/// # Errors
/// If the blocks fail.
pub fn sub<B: Blocks>(b: &mut B, x: &Float<B>, y: &Float<B>) -> Result<Float<B>, B::Error> {
    let y = y.neg(b);
    add(b, x, &y)
}
