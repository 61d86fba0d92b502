//! Sigmoid and GELU as MIZAR prints them in its Appendix B, to compare with
//! ([`crate::Activations::Mizar`]): a line between two constants, off by up to 0.1332, and
//! polynomials of degrees 3 and 6 between 0 and x, off by up to 0.0199.
//!
//! With a, b, … = max(x − border, 0) from one comparison and one selection, x clamped between two
//! borders is linear, and each polynomial is computed on x clamped to its own segment, where its
//! powers are small. For the sigmoid that is the printed function: ½ + ⅛·clamp(x, −4, 4) = (a −
//! b)/8. GELU's segments do not meet, so the bits of the comparison e0, e1, e2 bring the jumps
//! back:
//!
//! ```text
//! v0 = clamp(x, −4, −1.95)     v1 = clamp(x, −1.95, 3)     u = v / 4 ∈ [−1, 1]
//! F0(v0) + F1(v1) − F1(−1.95) + c − (1 − e0)·F0(−4) + e1·(F1(−1.95) − F0(−1.95)) + e2·(3 − F1(3))
//! ```
//!
//! Rounds online under `mizar`: comparison 2, selection 1, products with truncations 3 · 2 for
//! GELU, the last truncation 1.

use crate::lowering::{Lowering, Secret};
use crate::problem::Refusal;
use crate::range::Range;
use megrez_ring::Shape;

/// An approximation that somebody else has published.
#[derive(Clone, Copy)]
pub(super) struct Printed {
    /// On a value with f fraction bits.
    pub lower: fn(&mut Lowering, &Secret) -> Result<Secret, Refusal>,
    /// The largest error in exact arithmetic.
    pub error: f32,
}

pub(super) const SIGMOID: Printed = Printed { lower: sigmoid, error: 0.1333 };
pub(super) const GELU: Printed = Printed { lower: gelu, error: 0.0199 };

/// Where the segments of GELU meet.
const BORDERS: [f64; 3] = [-4.0, -1.95, 3.0];
/// From the constant up.
const F0: [f64; 7] =
    [-0.5054031199708174, -0.42226581151983866, -0.11807612951181953, -0.011034134030615728, 0.0, 0.0, 0.0];
const F1: [f64; 7] =
    [0.008526321541038084, 0.5, 0.3603292692789629, 0.0, -0.037688200365904236, 0.0, 0.0018067462606141187];

fn value(polynomial: &[f64; 7], x: f64) -> f64 {
    polynomial.iter().rev().fold(0.0, |y, c| y * x + c)
}

/// On a value with f fraction bits; the result has f + 3.
fn sigmoid(cx: &mut Lowering, x: &Secret) -> Result<Secret, Refusal> {
    let f = cx.frac();
    let above = cx.above("compare", x, &[-4 << f, 4 << f])?;
    let [a, b] = &above.parts[..] else { unreachable!("one part per border") };
    let y = cx.combine("clamped", &[(1, a), (-1, b)], 0)?;
    let y = y.within(Range::uniform(-2 * above.wrong, (8 << f) + 2 * above.wrong));
    cx.rescale("eighth", &y, f + 3)
}

/// On a value with f fraction bits; the result has 2f.
fn gelu(cx: &mut Lowering, x: &Secret) -> Result<Secret, Refusal> {
    let f = cx.frac();
    let borders = [cx.encode(-4.0, f)?, cx.encode(-1.95, f)?, cx.encode(3.0, f)?];
    let above = cx.above("compare", x, &borders)?;
    let [a, b, c] = &above.parts[..] else { unreachable!("one part per border") };
    let shape = cx.shape(x).clone();
    let bits = cx.bit_to_ring("bits", &above.bits)?;
    let bits = cx.unstack("bit", &bits, &shape)?;
    let slack = 2 * above.wrong;
    let [low, middle, high] = borders.map(i128::from);
    let v0 = cx.combine("lower", &[(1, a), (-1, b)], borders[0])?;
    let v0 = v0.within(Range::uniform(low - slack, middle + slack));
    let v1 = cx.combine("upper", &[(1, b), (-1, c)], borders[1])?;
    let v1 = v1.within(Range::uniform(middle - slack, high + slack));

    // u0, u1; then u0², u1²; u0³, u1⁴; u1⁶: each truncated to f fraction bits.
    let twice: Shape = [&[2], shape.dims()].concat().into();
    let pair = |cx: &mut Lowering, name: &str, x: [&Secret; 2], y: &Secret| -> Result<Secret, Refusal> {
        let both = cx.stack(&format!("{name}-factors"), &x)?;
        let products = cx.mul(name, &both, y)?;
        cx.settle(&products)
    };
    let [u0, u1] = [cx.rescale("u0", &v0, f + 2)?, cx.rescale("u1", &v1, f + 2)?];
    let both = cx.stack("u", &[&u0, &u1])?;
    assert_eq!(cx.shape(&both), &twice);
    let squares = pair(cx, "squares", [&u0, &u1], &both)?;
    let square = cx.unstack("square", &squares, &shape)?;
    let raised = cx.scaled_up(&square[1], f + 2)?;
    let higher = pair(cx, "higher", [&u0, &raised], &squares)?;
    let higher = cx.unstack("higher-power", &higher, &shape)?;
    let sixth = cx.mul("sixth", &square[1], &higher[1])?;
    let sixth = cx.settle(&sixth)?;

    let jumps = [
        value(&F0, BORDERS[0]),
        value(&F1, BORDERS[1]) - value(&F0, BORDERS[1]),
        BORDERS[2] - value(&F1, BORDERS[2]),
    ];
    let powers = [
        (F0[1], &v0),
        (F0[2] * 16.0, &square[0]),
        (F0[3] * 64.0, &higher[0]),
        (F1[1], &v1),
        (F1[2] * 16.0, &square[1]),
        (F1[4] * 256.0, &higher[1]),
        (F1[6] * 4096.0, &sixth),
    ];
    let mut terms = vec![(1i64 << f, c)];
    for (coefficient, power) in powers {
        terms.push((cx.encode(coefficient as f32, f)?, power));
    }
    // A bit is 2^−f at the scale of the powers.
    let bits =
        bits.iter().map(|bit| cx.rescale("bit-scaled", bit, f)).collect::<Result<Vec<Secret>, Refusal>>()?;
    for (jump, bit) in jumps.into_iter().zip(&bits) {
        terms.push((cx.encode(jump as f32, 2 * f)?, bit));
    }
    let constant = F0[0] + F1[0] - value(&F1, BORDERS[1]) - jumps[0];
    let y = cx.combine("polynomial", &terms, cx.encode(constant as f32, 2 * f)?)?;
    // Between −0.2 and max(x, 0) + 0.1, roundings included, if no comparison is wrong; f is 6 at
    // least for that.
    let y = if above.wrong == 0 && f >= 10 {
        let (_, highest) = c.range.hull();
        y.within(Range::uniform(-(1 << (2 * f)) / 4, ((highest + (3 << f)) << f) + ((1 << (2 * f)) / 4)))
    } else {
        y
    };
    cx.rescale("scale", &y, 2 * f)
}
