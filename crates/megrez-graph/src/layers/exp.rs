//! Exp. Numbers that are never positive: e^x = p(x/4)^4 with one polynomial and two squarings, on
//! max(x, −16); off by at most 4e-7 in exact arithmetic, absolute, in which e^−16 for everything
//! below is contained. This is what Softmax uses.
//!
//! Numbers within ±8: e^x = p(x/2^k)^(2^k) with k squarings, k ≤ 3, off by at most 4e-7·2^k
//! relative; nothing is compared.
//!
//! Others: one comparison with the multiples of ln 2 in the range of x gives 2^n and the rest x −
//! n·ln 2 ∈ [0, ln 2), both linear in the bits; e^x = p(rest)·2^n, off by at most 2e-7 relative.
//! Numbers below −(f + 1)·ln 2 are clamped there, where e^x is half a unit.
//!
//! Rounding adds about 2^−17 relative to 1 in the first form and relative to the result in the
//! others, and one unit in the last place.

use super::call::Call;
use super::polynomial::{Coefficients, argument_bits, degree_7};
use super::table::{Bend, MOST, Relative, Table, WIDEST, Wanted, coarse, look_up, look_up_twice, worth};
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::gradients::Gradients;
use crate::graph::Id;
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::range::{Interval, Range};
use crate::scale::Scale;
use crate::tensor::Tensor;
use megrez_plan::{Function, ValueId};
use megrez_ring::Shape;
use std::f64::consts::LN_2;
use std::sync::Arc;

/// Where the decay is cut off.
pub(super) const CUT: u32 = 16;

/// The same for a table; e^−15 is 3e-7.
const TABLE_CUT: u32 = 15;

/// e^(2w − 2).
const QUARTER: Coefficients =
    [0.135_318_6, 0.270_832_8, 0.270_502, 0.179_003_7, 0.094_121, 0.034_214_3, 0.008_465_2, 0.007_542_3];

/// e^w.
const WHOLE: Coefficients =
    [0.999_999_9, 1.000_001_1, 0.500_004_9, 0.166_658_3, 0.041_639_1, 0.008_348_7, 0.001_436_5, 0.000_193];

/// e^((w + 1) / 2).
const REST: Coefficients =
    [1.648_721_3, 0.824_360_6, 0.206_090_2, 0.034_348_3, 0.004_293_4, 0.000_429_4, 0.000_036_1, 0.000_002_5];

struct Exp {
    shape: Shape,
}

pub(super) fn exp(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &[])?;
    Ok(Arc::new(Exp { shape: call.shape(0)?.clone() }))
}

/// Powers of e.
pub(super) struct Powers {
    /// With f fraction bits.
    pub settled: Secret,
    /// What their sum is to be made of: before they are truncated, where that leaves the ring room.
    pub summand: Secret,
}

/// e^x for x ≤ 0, of which `summed` are to be added up. `over`: by how many words x may exceed 0
/// after all.
pub(super) fn decay(cx: &mut Lowering, x: &Secret, over: i128, summed: usize) -> Result<Powers, Refusal> {
    if cx.activations().looks_up() {
        return decay_by_table(cx, x, over, summed);
    }
    let settled = decay_by_polynomial(cx, x, over)?;
    Ok(Powers { summand: settled.clone(), settled })
}

/// On a value with f fraction bits.
fn decay_by_polynomial(cx: &mut Lowering, x: &Secret, over: i128) -> Result<Secret, Refusal> {
    let f = cx.frac();
    let end = i64::from(CUT) << f;
    let above = cx.combine("above-cut", &[(1, x)], end)?;
    let (low, high) = above.range.hull();
    let above = above.within(Range::uniform(low, high.min(i128::from(end) + over)));
    let above = if low >= 0 { above } else { cx.relu("cut", &above)? };
    // w = above/8 − 1.
    let w = cx.rescale("w-scale", &above, f + 3)?;
    let w = cx.combine("w", &[(1, &w)], -(1i64 << (f + 3)))?;
    let w = cx.rounded("w-rounded", &w, argument_bits(cx.ring()))?;
    let p = degree_7(cx, &w, &QUARTER)?;
    let h = cx.ring() / 2 - 4;
    let slack = 1i128 << (h - 4);
    let unit = Range::uniform(-slack, (1 << h) + slack);
    let p = cx.rounded("quarter", &p, h)?.within(unit);
    let p = cx.mul("half-product", &p, &p)?;
    let p = cx.rounded("half", &p, h)?;
    let p = cx.mul("whole-product", &p, &p)?;
    let y = cx.rounded("whole", &p, f)?;
    let range = y.range.map(|b| b.max(0));
    Ok(y.within(range))
}

/// How many times further below 0 than was measured a table of powers goes: what is beyond a table
/// comes out as another power, and not as 0.
const FURTHER: i128 = 2;

/// As [`decay`], by one table; where x may lie beyond [`TABLE_CUT`], a key gives 0 there, or a
/// comparison runs beside the table and says whether its value counts.
fn decay_by_table(cx: &mut Lowering, x: &Secret, over: i128, summed: usize) -> Result<Powers, Refusal> {
    let (f, frac) = (cx.frac(), cx.frac_of(x));
    let power = |x: f64| x.exp();
    let wanted = Wanted {
        target: 2f64.powi(-15),
        relative: Relative::No,
        cut: frac.saturating_sub(18),
        most: Some(worth(cx, x)),
        frac: f,
        spare: f,
        widest: worth(cx, x),
        summed,
        scale: None,
    };
    let (low, high) = x.range.hull();
    let x = x.clone().within(Range::uniform(low, high.min(over)));
    let (low, high) = coarse(&x.range).hull();
    let (low, target) = match cx.tells() {
        true => (low, wanted.target),
        false => (low.saturating_mul(FURTHER), 2.0 * wanted.target),
    };
    let told = Secret { id: x.id, range: Range::uniform(low, high.min(over)) };
    if (cx.tells() || cx.tells_measured())
        && let Some((settled, summand)) =
            look_up_twice(cx, "power", &told, &power, Wanted { target, ..wanted })?
    {
        return Ok(Powers { settled, summand });
    }
    let end = i64::from(TABLE_CUT) << frac;
    let bend = Bend { from: -i128::from(end), to: over, left: Some(0.0), right: None };
    let of_key = Wanted { most: Some(MOST), ..wanted };
    if let Some(table) = Table::beside(cx, &x, &power, &bend, of_key)
        && table.is_worth_a_comparison(cx, &x)
    {
        let (settled, summand) = table.look_up_twice(cx, "power", &x)?;
        return Ok(Powers { settled, summand });
    }
    let (bits, wrong) = cx.at_least("compare", &x, &[-end])?;
    let inside = Secret { id: x.id, range: Range::uniform(-i128::from(end) - wrong, over) };
    let Some(y) = look_up(cx, "power", &inside, &power, Wanted { most: None, widest: WIDEST, ..wanted })?
    else {
        return refuse(
            "has no room for a table on this ring",
            "choose other activations or fewer fraction bits",
        );
    };
    let shape = cx.shape(&x).clone();
    let bits = cx.reshape("bits", &bits, shape)?;
    let settled = cx.select("chosen", &bits, &y)?;
    Ok(Powers { summand: settled.clone(), settled })
}

/// The most squarings of [`near`].
const SQUARINGS: u32 = 3;

/// e^x for |x| ≤ 2^k with f fraction bits; the result has f as well.
fn near(cx: &mut Lowering, x: &Secret, k: u32) -> Result<Secret, Refusal> {
    let f = cx.frac();
    let w = cx.rescale("w-scale", x, f + k)?;
    let w = cx.rounded("w", &w, argument_bits(cx.ring()))?;
    let mut power = degree_7(cx, &w, &WHOLE)?;
    for i in 0..k {
        // e^(2^i) is below 2^whole; its square leaves the truncation its bits.
        let whole = [2, 3, 6][i as usize];
        let h = cx.ring() / 2 - 3 - whole;
        let range = Range::uniform(0, 1 << (h + whole));
        power = cx.rounded(&format!("power{i}"), &power, h)?.within(range);
        power = cx.mul(&format!("square{i}"), &power, &power)?;
    }
    let y = cx.rounded("result", &power, f)?;
    let range = y.range.map(|b| b.max(0));
    Ok(y.within(range))
}

/// e^x for any x with f fraction bits; the result has f as well.
fn rise(cx: &mut Lowering, x: &Secret) -> Result<Secret, Refusal> {
    let (f, ring) = (cx.frac(), cx.ring());
    let unit = 2f64.powi(-(f as i32));
    // p·2^n with p < 4 and 12 fraction bits must leave the truncation its two bits.
    let most = f64::from(ring - 2 - 14 - f) * LN_2;
    let domain = Interval { low: f64::NEG_INFINITY, high: most };
    cx.holds_within(x, domain, &format!("e^x fits the ring up to x = {most:.1} only"))?;
    let (low, high) = x.range.hull();
    let high = (high as f64 * unit).min(most);
    let least = (low as f64 * unit).max(-f64::from(f + 1) * LN_2);
    let (first, last) = ((least / LN_2).floor() as i32, (high / LN_2).floor() as i32);
    let last = last.max(first + 1);
    let word = |v: f64, frac: u32| (v * 2f64.powi(frac as i32)).round() as i64;
    let bottom = word(f64::from(first) * LN_2, f);
    let mut x = x.clone();
    if low < bottom.into() {
        let above = cx.combine("above-bottom", &[(1, &x)], -bottom)?;
        let above = cx.relu("bottom", &above)?;
        x = cx.combine("clamped", &[(1, &above)], bottom)?;
    }
    let multiples: Vec<i64> = (first..=last).map(|n| word(f64::from(n) * LN_2, f)).collect();
    let powers: Vec<i64> = (first..=last).map(|n| word(2f64.powi(n), f)).collect();
    let bits = cx.thermometer("multiple", &x, &multiples[1..])?;
    let ones = cx.bit_to_ring("multiple-number", &bits)?;
    let shape = cx.shape(&x).clone();
    let ones = cx.unstack("multiple-part", &ones, &shape)?;
    let steps = |words: &[i64]| words.windows(2).map(|w| w[1] - w[0]).collect::<Vec<i64>>();
    let zero = cx.rescale("x-words", &x, 0)?;
    let mut terms = vec![(1i64, &zero)];
    terms.extend(steps(&multiples).iter().map(|s| -s).zip(&ones));
    let span = i128::from(word(LN_2, f)) + 1;
    let rest = cx.combine_within("rest", &terms, -multiples[0], Range::uniform(-1, span))?;
    // w = 2·rest − 1.
    let rest = cx.rescale("rest-scale", &rest, f - 1)?;
    let w = cx.combine("w", &[(1, &rest)], -(1i64 << (f - 1)))?;
    let w = cx.rounded("w-rounded", &w, argument_bits(ring))?;
    let p = degree_7(cx, &w, &REST)?;
    let power: Vec<(i64, &Secret)> = steps(&powers).into_iter().zip(&ones).collect();
    let range = Range::uniform(powers[0].into(), powers[powers.len() - 1].into());
    let power = cx.combine_within("power-of-two", &power, powers[0], range)?;
    let power = cx.rescale("power-scale", &power, f)?;
    let bits = (i128::BITS - power.range.magnitude().leading_zeros()) as i32;
    let q = (ring as i32 - 2 - 2 - bits).clamp(6, 24) as u32;
    let p = cx.rounded("p", &p, q)?.within(Range::uniform(0, 3 << q));
    let y = cx.mul("product", &p, &power)?;
    cx.rounded("result", &y, f)
}

impl Layer for Exp {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let data = inputs[0].data.iter().map(|&v| f64::from(v).exp() as f32).collect();
        Tensor::new(self.shape.clone(), data)
    }

    fn backward(
        &self,
        g: &mut Gradients,
        _inputs: &[Id],
        output: Id,
        of_output: Id,
        _wanted: &[bool],
    ) -> Result<Vec<Option<Id>>, Refusal> {
        g.chain(output, of_output)
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let x = cx.settle(inputs[0].secret()?)?;
        let (low, high) = x.range.hull();
        let largest = low.unsigned_abs().max(high.unsigned_abs());
        match (0..=SQUARINGS).find(|k| largest <= 1 << (cx.frac() + k)) {
            Some(k) => near(cx, &x, k),
            // A table gives some number for what exceeds 0 after all.
            None if high <= 0 && (cx.proves() || !cx.activations().looks_up()) => {
                Ok(decay(cx, &x, 0, 1)?.settled)
            }
            None => rise(cx, &x),
        }
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let x = cx.value(&inputs[0]);
        cx.map("exp", Function::Exp, x)
    }

    fn scale(&self) -> Scale {
        Scale::Product
    }

    fn non_decreasing(&self) -> bool {
        true
    }
}
