//! From an exact or nearly exact result to a canonical float: rounding, range, special values.

use crate::any::{AnyBlocks, Bit, Failure, Int, Select, Tally};
use crate::blocks::Blocks;
use crate::float::Float;
use crate::format::Format;
use crate::single::{gates, only};

/// What a result is before its range is known. `zero` and `inf` together mean NaN; `special` is
/// their union.
pub(crate) struct Class {
    pub zero: Bit,
    pub inf: Bit,
    pub special: Bit,
    pub sign: Bit,
}

/// x is negative, x is zero.
type Compared = (Bit, Bit);

/// Differences whose signs tell how an exponent lies to the smallest and the largest one, before a
/// carry.
fn bounds(b: &AnyBlocks, format: Format, exp: &Int) -> [Int; 2] {
    let from = |k: i64| b.offset(exp, k.wrapping_neg() as u64);
    [from(format.min_exp() - 1), from(format.max_exp())]
}

/// Whether an exponent that takes a carry is below the smallest or above the largest one, from the
/// comparisons of its [`bounds`], and from the carry's gates with low = 0 and high = 0.
fn beyond_with_carry(b: &AnyBlocks, (low, high): (&Compared, &Compared), carried: &[Bit]) -> [Bit; 2] {
    let under = b.xor(&low.0, &b.xor(&low.1, &carried[0]));
    [under, b.not(&b.xor(&b.xor(&high.0, &high.1), &carried[1]))]
}

/// FPCheck with special values (Fig. 1, corrected): what is zero or infinite already stays so; then
/// underflow and overflow, both judged by the original exponent and the carry of rounding, which
/// `range` has; then the canonical form. NaN loses its sign.
pub(crate) fn finish(
    b: &mut AnyBlocks,
    format: Format,
    exp: &Int,
    man: &Int,
    carry: &Bit,
    range: [&Bit; 2],
    class: Class,
) -> Result<Float, Failure> {
    let regular = b.not(&class.special);
    let nan = b.xor(&b.xor(&class.zero, &class.inf), &class.special);
    let number = b.not(&nan);
    let gates = b.gates(&[(&regular, range[0]), (&regular, range[1]), (&number, &class.sign)])?;
    let zero = b.xor(&b.xor(&class.zero, &nan), &gates[0]);
    let inf = b.xor(&b.xor(&class.inf, &nan), &gates[1]);
    let sign = gates[2].clone();
    let draft = Float { format, zero, inf, nan, sign, exp: exp.clone(), man: man.clone() };
    canonical(b, draft, carry)
}

/// Gives zeros, infinities and NaNs their exponent and mantissa, and adds the carry to the exponent
/// of the rest.
pub(crate) fn canonical(b: &mut AnyBlocks, x: Float, carry: &Bit) -> Result<Float, Failure> {
    let format = x.format;
    let unbounded = x.unbounded(b);
    let finite = b.not(&x.special(b));
    let job = Select { bit: &finite, ints: vec![&x.exp, &x.man], bits: vec![carry] };
    let kept = b.select(&[job])?.remove(0);
    let w = format.exp_width();
    let (low, high) = ((format.min_exp() - 1) as u64, (format.max_exp() + 1) as u64);
    let terms = vec![(&kept.bits[0], 1), (&x.zero, low), (&unbounded, high)];
    let ends = only(b.tally(&[Tally { terms, width: w }])?);
    let exp = b.add(&kept.ints[0], &ends);
    let man = b.add(&kept.ints[1], &b.shift(&b.narrow(&unbounded), format.q));
    Ok(Float { exp, man, ..x })
}

/// Normalises and rounds a mantissa in [1, 4) times 2^exp, then [`finish`]. With g guard bits, at
/// least 3, `man` has q + 1 + g bits and lies in [2^(q+g−1), 2^(q+g+1)). Its lowest bit is sticky
/// where the result is to be correctly rounded.
///
/// One comparison decides about both the leading bit and the carry of rounding: from 2^(q+g) −
/// 2^(g−2) on the result has the higher exponent. Below it twice the mantissa rounds to less than
/// 2^(q+1).
pub(crate) fn settle(
    b: &mut AnyBlocks,
    format: Format,
    exp: &Int,
    man: &Int,
    pairs: &[(&Bit, &Bit)],
    class: impl FnOnce(&AnyBlocks, &[Bit]) -> Class,
) -> Result<Float, Failure> {
    let [low, high] = bounds(b, format, exp);
    let guard = b.width(man) - format.man_width();
    let above = b.offset(man, (1u64 << (guard - 2)).wrapping_sub(1 << (format.q + guard)));
    let tests = b.negative_zero(&[&above, &low, &high])?;
    let carry = b.not(&tests[0].0);
    let (low, high) = (&tests[1], &tests[2]);
    // What the carry chooses, and gates that wait for nothing else.
    let mut jobs = vec![Select { bit: &carry, ints: vec![man], bits: vec![&low.1, &high.1] }];
    jobs.extend(gates(pairs));
    let mut rows = b.select(&jobs)?.into_iter();
    let carried = rows.next().expect("a job gives a row");
    let both: Vec<Bit> = rows.flat_map(|row| row.bits).collect();
    let man = b.sub(&b.scale(man, 2), &carried.ints[0]);
    let man = only(b.round(&[(&man, guard)])?);
    let [under, over] = beyond_with_carry(b, (low, high), &carried.bits);
    let class = class(b, &both);
    finish(b, format, exp, &man, &carry, [&under, &over], class)
}

/// Rounds a mantissa in [1, 2) times 2^exp, then [`finish`]. With g guard bits, at least 2, `man`
/// has q + 1 + g bits, of which the highest is set, or is zero in special lanes. Rounding up to
/// 2^(q+1) leaves zero and a carry.
pub(crate) fn settle_normal(
    b: &mut AnyBlocks,
    format: Format,
    exp: &Int,
    man: &Int,
    pairs: &[(&Bit, &Bit)],
    class: impl FnOnce(&AnyBlocks, &[Bit]) -> Class,
) -> Result<Float, Failure> {
    let [low, high] = bounds(b, format, exp);
    let guard = b.width(man) - format.man_width();
    let tests = b.negative_zero(&[&b.offset(man, 1 << (guard - 1)), &low, &high])?;
    let carry = b.not(&tests[0].0);
    let man = only(b.round(&[(man, guard)])?);
    let man = b.add(&man, &b.shift(&b.narrow(&carry), format.q));
    let (low, high) = (&tests[1], &tests[2]);
    let ends = [(&carry, &low.1), (&carry, &high.1)];
    let gates = b.gates(&ends.into_iter().chain(pairs.iter().copied()).collect::<Vec<_>>())?;
    let [under, over] = beyond_with_carry(b, (low, high), &gates[..2]);
    let class = class(b, &gates[2..]);
    finish(b, format, exp, &man, &carry, [&under, &over], class)
}

/// Underflow and overflow of an exponent that takes no carry.
pub(crate) fn outside(b: &mut AnyBlocks, format: Format, exp: &Int) -> Result<[Bit; 2], Failure> {
    let [low, high] = beyond(b, format, exp);
    Ok(two(b.negative(&[&low, &high])?))
}

/// Numbers that are negative where an exponent is below the smallest or above the largest one.
pub(crate) fn beyond(b: &AnyBlocks, format: Format, exp: &Int) -> [Int; 2] {
    let low = b.offset(exp, format.min_exp().wrapping_neg() as u64);
    let high = b.offset(&b.scale(exp, u64::MAX), format.max_exp() as u64);
    [low, high]
}

/// The four results of four jobs.
pub(crate) fn four<T>(results: Vec<T>) -> [T; 4] {
    results.try_into().map_err(|_| ()).expect("four jobs give four results")
}

/// The two results of two jobs.
pub(crate) fn two<T>(results: Vec<T>) -> [T; 2] {
    results.try_into().map_err(|_| ()).expect("two jobs give two results")
}
