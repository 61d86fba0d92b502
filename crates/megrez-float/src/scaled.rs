//! Products with and quotients by powers of two that everybody knows: the exponent moves, and
//! nothing is rounded.

use crate::any::{AnyBlocks, Bit, Failure, Int};
use crate::blocks::{Blocks, two_complement};
use crate::finish::{Class, beyond, finish};
use crate::float::Float;

/// The exponents of x where everybody knows x, and in every lane it is ±2^e.
pub(crate) fn powers(b: &AnyBlocks, x: &Float) -> Option<Vec<i64>> {
    let none = |bit: &Bit| b.known_bits(bit).is_some_and(|v| v.iter().all(|&v| v == 0));
    let one = 1 << x.format.q;
    let whole = b.known(&x.man)?.iter().all(|&man| man == one);
    b.known_bits(&x.sign)?;
    let exps = b.known(&x.exp)?.iter().map(|&e| two_complement(e, x.format.exp_width()) as i64);
    (whole && [&x.zero, &x.inf, &x.nan].into_iter().all(none)).then(|| exps.collect())
}

/// ±x·2^e, with the sign of x·`by`. By ±1 it is local; otherwise exponents are compared with the
/// end that they can pass.
///
/// # Errors
/// If the blocks fail.
pub(crate) fn scaled(b: &mut AnyBlocks, x: &Float, by: &Float, exps: &[i64]) -> Result<Float, Failure> {
    let format = x.format;
    assert_eq!(format, by.format, "formats differ");
    if exps.iter().all(|&e| e == 0) {
        // NaN has no sign.
        let number = b.not(&x.nan);
        let turned = b.both(&by.sign, &number)?;
        return Ok(Float { sign: b.xor(&x.sign, &turned), ..x.clone() });
    }
    let sign = b.xor(&x.sign, &by.sign);
    let steps: Vec<u64> = exps.iter().map(|&e| e as u64).collect();
    let exp = b.add(&x.exp, &b.public(format.exp_width(), &steps));
    let [low, high] = beyond(b, format, &exp);
    let (falls, grows) = (exps.iter().any(|&e| e < 0), exps.iter().any(|&e| e > 0));
    let asked: Vec<&Int> = [(falls, &low), (grows, &high)].into_iter().filter(|c| c.0).map(|c| c.1).collect();
    let mut tests = b.negative(&asked)?.into_iter();
    let never = b.public_bits(&vec![false; x.lanes(b)]);
    let mut test = |asked| if asked { tests.next().expect("one for each") } else { never.clone() };
    let range = [test(falls), test(grows)];
    let class = Class { zero: x.vanishing(b), inf: x.unbounded(b), special: x.special(b), sign };
    finish(b, format, &exp, &x.man, &never, range.each_ref(), class)
}
