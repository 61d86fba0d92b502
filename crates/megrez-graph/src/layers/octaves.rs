//! 1/x, 1/√x, √x and ln x over many orders of magnitude: one comparison with all powers of two,
//! then a polynomial.
//!
//! With b_j = [x ≥ 2^j] for the powers within the range of x, both the factor M = 2^(K−j) that
//! moves x into [½, 1) and what undoes it (M for 1/x, √M for 1/√x, 1/√M for √x, −ln M for ln x) are
//! linear in the bits:
//!
//! ```text
//! u = M·x = 2^(K−k)·x − Σ 2^(K−j)·(b_j·x)          w = 4u − 3 ∈ [−1, 1)
//! f(x) = p(w)·r,  r = r_k + Σ (r_j − r_(j−1))·b_j  (or p(w) + r for the logarithm)
//! ```
//!
//! Σ is exact modulo 2^ℓ, though its terms wrap. Steps: one comparison with up to ℓ − 2 thresholds,
//! one selection of x beside one conversion of the bits, one truncation, the polynomial's three
//! products, and one more. The number of thresholds is the number of octaves in the proven range of
//! x: a declared range makes it cheaper.
//!
//! Under `--activations lookup` tables take the place of the polynomial ([`super::table`]): one
//! table where the range is a few octaves, and elsewhere one for every [`STRETCH`] octaves, all
//! looked up beside the comparison with where they begin; the bits choose among their values,
//! f(x) = T_0 + Σ [x ≥ 2^(j_k)]·(T_k − T_(k−1)), so what a table gives for numbers that it does not
//! hold is dropped. Where the result has the bits, all stretches share one table and one step: x is
//! moved into the highest by powers of 16, and f of it back by 16, 4 or ln 16. One round and a
//! truncation, or three rounds under `mizar`, where the polynomial takes twelve. Where messages
//! take long, keys that are 0 beside their octaves take the place of the comparison
//! ([`Octaves::by_fading_tables`]): one round and a truncation again.
//!
//! Largest relative error in exact arithmetic (absolute for the logarithm), from
//! `scripts/splines.py`: 1/x 1.6e-6, 1/√x 4e-7, √x 2e-7, ln x 3e-7. Rounding adds about 2^−18
//! relative (2^−7 on the 32-bit ring), and one unit of the result's last place. Below the smallest
//! unit of x: √0 is off by at most 0.25·√unit, the others have no value there.

use super::polynomial::{Coefficients, argument_bits, degree_7};
use super::table::{
    Bend, MOST, Price, Relative, Right, Table, WIDEST, Wanted, coarse, look_up, worth, worth_a_round,
};
use crate::lowering::{Lowering, Secret};
use crate::problem::{Refusal, refuse};
use crate::range::{Interval, Range};
use megrez_ring::Shape;
use std::ops::RangeInclusive;

/// Octaves of one table out of several.
const STRETCH: u32 = 3;
/// Octaves of the one table that serves all stretches: by so many 1/x, 1/√x and √x change by whole
/// powers of two.
const WHOLE_POWERS: u32 = 4;
/// Octaves over which a part of a function fades in or out.
const FADE: u32 = 2;
/// However many stretches there are, that table may have so many segments.
const FEWEST_SEGMENTS: usize = 128;

/// A logarithm is taken from 2^7 units on, where half a unit is 2^−8 of the number; of few fraction
/// bits from their root on.
fn logarithm_from(frac: u32) -> f64 {
    2f64.powi((frac / 2).min(7) as i32)
}

/// One function's numbers.
pub(super) struct Octaves {
    function: fn(f64) -> f64,
    coefficients: Coefficients,
    /// What the result for u is multiplied by, or for the logarithm what is added, for x = 2^e · u.
    undo: fn(f64) -> f64,
    adds: bool,
    /// Whether 0 has a value.
    takes_zero: bool,
    name: &'static str,
}

pub(super) const RECIPROCAL: Octaves = Octaves {
    function: |x| 1.0 / x,
    coefficients: [
        1.333_331_3,
        -0.444_443_8,
        0.148_212,
        -0.049_404,
        0.016_147_6,
        -0.005_382_5,
        0.002_306_8,
        -0.000_768_9,
    ],
    undo: |e| (-e).exp2(),
    adds: false,
    takes_zero: false,
    name: "1/x",
};

pub(super) const INVERSE_ROOT: Octaves = Octaves {
    function: |x| 1.0 / x.sqrt(),
    coefficients: [
        1.154_700_2,
        -0.192_449_6,
        0.048_123_3,
        -0.013_370_9,
        0.003_845_5,
        -0.001_147,
        0.000_437_5,
        -0.000_139_2,
    ],
    undo: |e| (-e / 2.0).exp2(),
    adds: false,
    takes_zero: false,
    name: "1/√x",
};

pub(super) const ROOT: Octaves = Octaves {
    function: f64::sqrt,
    coefficients: [
        0.866_025_4,
        0.144_337_5,
        -0.012_028_6,
        0.002_005_3,
        -0.000_415_1,
        0.000_095_9,
        -0.000_028_2,
        0.000_008,
    ],
    undo: |e| (e / 2.0).exp2(),
    adds: false,
    takes_zero: true,
    name: "√x",
};

pub(super) const LOGARITHM: Octaves = Octaves {
    function: f64::ln,
    coefficients: [
        -0.287_681_9,
        0.333_332_9,
        -0.055_561_4,
        0.012_350_6,
        -0.003_058_1,
        0.000_808_2,
        -0.000_272_1,
        0.000_081_9,
    ],
    undo: |e| e * std::f64::consts::LN_2,
    adds: true,
    takes_zero: false,
    name: "ln x",
};

impl Octaves {
    /// gain · f(x) with `frac` fraction bits, for x of any scale. Where x may leave the domain,
    /// refuses or assumes.
    pub(super) fn lower(
        &self,
        cx: &mut Lowering,
        x: &Secret,
        gain: f64,
        frac: u32,
    ) -> Result<Secret, Refusal> {
        let held = cx.proves();
        self.lower_held(cx, x, gain, frac..=frac, held)
    }

    /// As [`lower`](Self::lower), of a value that is known to lie in its range (`held`: whatever is
    /// proven of others), with any number of fraction bits out of `fracs`.
    pub(super) fn lower_held(
        &self,
        cx: &mut Lowering,
        x: &Secret,
        gain: f64,
        fracs: RangeInclusive<u32>,
        held: bool,
    ) -> Result<Secret, Refusal> {
        self.holds(cx, x)?;
        let frac = *fracs.start();
        if cx.activations().looks_up()
            && !self.takes_zero
            && let Some(y) = self.by_tables(cx, x, gain, fracs, held)?
        {
            return Ok(y);
        }
        self.polynomial(cx, x, gain, frac)
    }

    /// f(x) within 2^−`bits`, with any number of fraction bits out of `fracs`, in one round; `None`
    /// if no table is so good whose result need not be truncated. x is known to lie in its range,
    /// from 1 on; and that follows from nothing that is secret.
    pub(super) fn in_one_round(
        &self,
        cx: &mut Lowering,
        x: &Secret,
        fracs: RangeInclusive<u32>,
        bits: u32,
    ) -> Result<Option<Secret>, Refusal> {
        self.holds(cx, x)?;
        let (low, high) = x.range.hull();
        let top = 1i128 << (cx.ring() - 3);
        let low = low.clamp(1, top - 1);
        let whole = Secret { id: x.id, range: Range::uniform(low, high.clamp(low + 1, top)) };
        let most = worth(cx, x).max(worth_a_round(cx, x));
        let wanted = Wanted {
            target: 2f64.powi(-(bits as i32)),
            relative: Relative::No,
            cut: cx.frac_of(x).saturating_sub(bits),
            most: Some(most),
            frac: *fracs.start(),
            spare: *fracs.end(),
            widest: most,
            summed: 1,
            scale: None,
        };
        match Table::new(cx, &whole, &self.function, wanted).filter(Table::is_short) {
            Some(table) => table.look_up(cx, "table", &whole).map(Some),
            None => Ok(None),
        }
    }

    /// Refuses or assumes, where x may leave the domain.
    fn holds(&self, cx: &mut Lowering, x: &Secret) -> Result<(), Refusal> {
        let unit = 2f64.powi(-(cx.frac_of(x) as i32));
        // What a number is rounded by is half a unit, and of few units the logarithm shows it.
        let lowest = match (self.takes_zero, self.adds) {
            (true, _) => 0.0,
            (false, true) => unit * logarithm_from(cx.frac_of(x)),
            (false, false) => unit,
        };
        let domain = Interval { low: lowest, high: 2f64.powi(cx.ring() as i32 - 3) * unit };
        cx.holds_within(x, domain, &format!("{} must be taken of numbers from {lowest:.1e} up", self.name))
    }

    /// As [`lower`](Self::lower), always by a comparison and a polynomial: where there are many
    /// values, tables are dear.
    pub(super) fn by_bits(
        &self,
        cx: &mut Lowering,
        x: &Secret,
        gain: f64,
        frac: u32,
    ) -> Result<Secret, Refusal> {
        self.holds(cx, x)?;
        self.polynomial(cx, x, gain, frac)
    }

    fn polynomial(&self, cx: &mut Lowering, x: &Secret, gain: f64, frac: u32) -> Result<Secret, Refusal> {
        let (ring, fx) = (cx.ring(), cx.frac_of(x));
        let top = ring - 3;
        let (low, high) = x.range.hull();
        let log2 = |v: i128| v.max(1).ilog2();
        // At least one octave is cut off, so that there is something to compare.
        let last = log2(high).clamp(2, top);
        let first = log2(low).min(last - 1);
        let octaves: Vec<u32> = (first..=last).collect();
        let thresholds: Vec<i64> = octaves[1..].iter().map(|&j| 1 << j).collect();

        let bits = cx.thermometer("octave", x, &thresholds)?;
        let shape = cx.shape(x).clone();
        let many: Shape = [&[thresholds.len()], shape.dims()].concat().into();
        let copies = cx.broadcast("copies", x, &many)?;
        let selected = cx.select("select", &bits, &copies)?;
        let selected = cx.unstack("selected", &selected, &shape)?;
        let mut terms = vec![(1i64 << (last - first), x)];
        terms.extend(octaves[1..].iter().zip(&selected).map(|(&j, s)| (-(1i64 << (last - j)), s)));
        let lower_end = if low >= 1 { 1 << last } else { 0 };
        let u = cx.combine_within("u", &terms, 0, Range::uniform(lower_end, 1 << (last + 1)))?;
        // u / 2^(last + 1) lies in [½, 1); four times that has two fraction bits less.
        let u = cx.rescale("four-u", &u, last - 1)?;
        let g = argument_bits(ring);
        let u = cx.rounded("four-u-rounded", &u, g)?;
        let w = cx.combine("w", &[(1, &u)], -(3i64 << g))?;
        let p = degree_7(cx, &w, &self.coefficients)?;

        let undone: Vec<f64> =
            octaves.iter().map(|&j| (self.undo)(f64::from(j + 1) - f64::from(fx))).collect();
        let factor = |cx: &mut Lowering, gain: f64, frac: u32| -> Result<Secret, Refusal> {
            let word = |v: f64| (v * gain * 2f64.powi(frac as i32)).round() as i64;
            let words: Vec<i64> = undone.iter().map(|&r| word(r)).collect();
            let (Some(&least), Some(&most)) = (words.iter().min(), words.iter().max()) else {
                unreachable!("there are at least two octaves")
            };
            let ones = cx.bit_to_ring("octave-number", &bits)?;
            let ones = cx.unstack("octave-part", &ones, &shape)?;
            let steps: Vec<(i64, &Secret)> = words.windows(2).map(|w| w[1] - w[0]).zip(&ones).collect();
            let range = Range::uniform(least.into(), most.into());
            let r = cx.combine_within("undo", &steps, words[0], range)?;
            cx.rescale("undo-scale", &r, frac)
        };
        if self.adds {
            let p = cx.rounded("p", &p, frac)?;
            let r = factor(cx, 1.0, frac)?;
            return cx.combine("sum", &[(1, &p), (1, &r)], 0);
        }
        // p is between 0 and 2; p·r must leave the truncation its two bits.
        let largest = undone.iter().fold(0f64, |m, v| m.max(v * gain)).log2().ceil() as i32;
        let spare = ring as i32 - 4 - largest - frac as i32;
        if spare < 6 || largest + frac as i32 > ring as i32 - 10 {
            return refuse(
                format!("{} of numbers as small as these does not fit the ring", self.name),
                "add a larger epsilon, or use fewer fraction bits",
            );
        }
        // Where there is room, r is not what limits the result.
        let (guard, spare) = if spare >= 16 { (4, spare - 4) } else { (0, spare) };
        let q = (spare as u32).min(24);
        let p = cx.rounded("p", &p, q)?.within(Range::uniform(0, 2 << q));
        let r = factor(cx, gain, frac + guard)?;
        let y = cx.mul("product", &p, &r)?;
        cx.rounded("result", &y, frac)
    }

    /// By tables; `None` where coefficients have too few bits.
    fn by_tables(
        &self,
        cx: &mut Lowering,
        x: &Secret,
        gain: f64,
        fracs: RangeInclusive<u32>,
        held: bool,
    ) -> Result<Option<Secret>, Refusal> {
        let ring = cx.ring();
        let top = 1i128 << (ring - 3);
        let (low, high) = coarse(&x.range).hull();
        let low = low.clamp(1, top - 1);
        // Otherwise the tables hold all that the ring does.
        let high = if held { high.clamp(low + 1, top) } else { top };
        let function = |x: f64| gain * (self.function)(x);
        // Half of what the polynomials of a ring of so many bits are off by is left to the rounding
        // of the argument.
        let bits = if ring > 32 { 16 } else { 9 };
        let most = worth(cx, x);
        let wanted = |first: i128| Wanted {
            target: 2f64.powi(-bits),
            relative: if self.adds { Relative::No } else { Relative::Value },
            cut: first.ilog2().saturating_sub(bits as u32 + 1),
            most: Some(most),
            frac: *fracs.start(),
            spare: *fracs.end(),
            widest: most,
            summed: 1,
            scale: None,
        };
        let whole = Secret { id: x.id, range: Range::uniform(low, high) };
        if let Some(y) = look_up(cx, "table", &whole, &function, wanted(low))? {
            return Ok(Some(y));
        }
        let (first, last) = (low.ilog2(), high.ilog2());
        if let Some(y) = self.by_fading_tables(cx, &whole, gain, (first, last), &wanted)? {
            return Ok(Some(y));
        }
        if let Some(y) = self.by_one_table(cx, x, gain, (first, last), &wanted)? {
            return Ok(Some(y));
        }
        let begins: Vec<u32> = (first..=last).step_by(STRETCH as usize).collect();
        let stretch = |begin: u32| {
            let (from, to) = (1i128 << begin, 1i128 << (begin + STRETCH).min(last + 1));
            Secret { id: x.id, range: Range::uniform(from, to) }
        };
        // All of them or none.
        let tables = begins.iter().map(|&begin| {
            let wanted = Wanted { spare: *fracs.start(), ..wanted(1 << begin) };
            Table::new(cx, &stretch(begin), &function, wanted)
        });
        let Some(tables) = tables.collect::<Option<Vec<_>>>() else { return Ok(None) };
        let mut values = vec![];
        for (table, &begin) in tables.into_iter().zip(&begins) {
            values.push(table.look_up(cx, &format!("table{begin}"), &stretch(begin))?);
        }
        let thresholds: Vec<i64> = begins[1..].iter().map(|&begin| 1 << begin).collect();
        if thresholds.is_empty() {
            return Ok(values.pop());
        }
        let held = Secret { id: x.id, range: Range::uniform(low, high) };
        chosen(cx, &held, &thresholds, &values).map(Some)
    }

    /// By a key for every [`FADE`] octaves, each of a part of the function that fades in and out
    /// over as many, and is 0 elsewhere: their sum is the function, and nothing is compared. A
    /// carry that puts x beyond a border of one of them only does no harm, since all are near to 0
    /// there. `None` where that is dearer, or coefficients have too few bits.
    fn by_fading_tables(
        &self,
        cx: &mut Lowering,
        x: &Secret,
        gain: f64,
        (first, last): (u32, u32),
        wanted: &dyn Fn(i128) -> Wanted,
    ) -> Result<Option<Secret>, Refusal> {
        let ring = cx.ring();
        let count = (last + 1 - first).div_ceil(FADE).saturating_sub(1);
        if count < 2 {
            return Ok(None);
        }
        // One table at every fourth octave, and a comparison with where they begin.
        let others = (last + 1 - first).div_ceil(WHOLE_POWERS) as usize;
        let segments = Price { worker_ns: 1280, offline_bits: 2000, online_bits: 128, ..Price::default() };
        let price = |price: Price, other: Price| price.with(other);
        let compared =
            (0..others).map(|_| segments).fold(Price::of_thresholds(others, ring), price).of(cx, x);
        // Before any is fitted.
        let least = Price { rounds: 1, tables: count.into(), ..Price::default() };
        if least.of(cx, x) >= compared {
            return Ok(None);
        }
        let unit = 2f64.powi(-(cx.frac_of(x) as i32));
        let function = |x: f64| gain * (self.function)(x);
        // From 0 to 1 over the octaves from 2^at on.
        let fade = |x: f64, at: u32| smooth_step(((x / unit).log2() - f64::from(at)) / f64::from(FADE));
        // A part that is near to 0 is not below it, from where a truncation would take it to −1.
        let above = 2f64.powi(-(wanted(1).frac as i32) - 6);
        let table = |cx: &Lowering, i: u32, scale: Option<u32>| {
            let begin = first + i * FADE;
            let part = |x: f64| {
                let x = x.max(unit / 2.0);
                let come = if i > 0 { fade(x, begin) } else { 1.0 };
                let gone = if i + 1 < count { fade(x, begin + FADE) } else { 0.0 };
                function(x) * (come - gone) + if scale.is_none() { above } else { 0.0 }
            };
            let bend = Bend {
                from: 1 << begin,
                to: if i + 1 == count { x.range.hull().1 } else { 1 << (begin + 2 * FADE) },
                left: (i > 0).then_some(0.0),
                right: (i + 1 < count).then_some(Right::Constant(0.0)),
            };
            let of = wanted(1 << begin);
            let relative = if self.adds { Relative::No } else { Relative::Whole(self.function, gain) };
            let most = Some(MOST);
            let wanted = Wanted { target: of.target / 2.0, relative, most, spare: of.frac, scale, ..of };
            Table::beside(cx, x, &part, &bend, wanted)
        };
        let tables = |cx: &Lowering, scale: Option<u32>| -> Option<Vec<Table>> {
            (0..count).map(|i| table(cx, i, scale)).collect()
        };
        let priced =
            |tables: &[Table]| tables.iter().map(|table| table.price(ring)).fold(Price::default(), price);
        let Some(mut parts) = tables(cx, None) else { return Ok(None) };
        let own = priced(&parts).of(cx, x);
        if own >= compared {
            return Ok(None);
        }
        // All with the fraction bits of the largest part, so that their sum is what is truncated;
        // small parts need more segments then.
        let scale = parts.iter().map(Table::scale).min();
        let alike = scale.and_then(|scale| tables(cx, Some(scale)));
        let alike = alike.filter(|alike| priced(alike).of(cx, x) <= own + cx.delay_ns());
        let together = alike.is_some();
        parts = alike.unwrap_or(parts);
        let parts = parts.into_iter().enumerate().map(|(i, table)| {
            let name = format!("part{i}");
            if together { table.found(cx, &name, x) } else { table.look_up(cx, &name, x) }
        });
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        let frac = cx.frac_of(&parts[0]);
        let ends = [first, last + 1].map(|octave| {
            (function(2f64.powi(octave as i32) * unit) * 2f64.powi(frac as i32)).round() as i128
        });
        // The parts' errors, and a unit for each truncation: three parts are not 0 near a border.
        let slack = (ends[0].abs().max(ends[1].abs()) >> 12) + 4;
        let range = Range::uniform(ends[0].min(ends[1]) - slack, ends[0].max(ends[1]) + slack);
        let terms: Vec<(i64, &Secret)> = parts.iter().map(|part| (1, part)).collect();
        let sum = cx.combine_within("parts", &terms, 0, range)?;
        cx.rounded("parts-rounded", &sum, wanted(1).frac).map(Some)
    }

    /// By one table for all stretches of octaves: x is moved into the highest by powers of two,
    /// each move is looked up, and what comes out is moved back. Exact for the powers that it
    /// takes, and what wraps is of a stretch that is not chosen. `None` where the highest stretch
    /// has too few bits to be moved back.
    fn by_one_table(
        &self,
        cx: &mut Lowering,
        x: &Secret,
        gain: f64,
        (first, last): (u32, u32),
        wanted: &dyn Fn(i128) -> Wanted,
    ) -> Result<Option<Secret>, Refusal> {
        let top = (last + 1).saturating_sub(WHOLE_POWERS);
        if top <= first {
            return Ok(None);
        }
        // From the highest down to one that holds the lowest numbers: how far each is moved.
        let moves: Vec<u32> =
            (0..=(top - first).div_ceil(WHOLE_POWERS)).rev().map(|i| i * WHOLE_POWERS).collect();
        let function = |x: f64| gain * (self.function)(x);
        let ends = Range::uniform(1 << top, 1 << (top + WHOLE_POWERS));
        let unit = 2f64.powi(-(cx.frac_of(x) as i32));
        let smallest = function(2f64.powi((top + WHOLE_POWERS) as i32) * unit).abs();
        let Wanted { target, frac, spare, .. } = wanted(1 << top);
        // Bits of the smallest value, so that its rounding is no more than the table's own error.
        let bits =
            if self.adds { i32::MAX } else { (smallest * 2f64.powi(frac as i32)).log2().floor() as i32 };
        let guard = (1 - target.log2().round() as i32).saturating_sub(bits).max(0) as u32;
        let furthest = moves[0];
        let largest = if self.adds {
            0.0
        } else {
            (smallest * (self.undo)(-f64::from(furthest + WHOLE_POWERS))).log2()
        };
        let room = largest.ceil() as i32 + (frac + guard) as i32 + 4 < cx.ring() as i32;
        if guard > spare.saturating_sub(frac) || !room || furthest + 2 > cx.ring() {
            return Ok(None);
        }
        let shape = cx.shape(x).clone();
        let many = moves.len();
        let most = wanted(1).most.map(|most| (most / many).max(FEWEST_SEGMENTS));
        let widest = most.unwrap_or(WIDEST);
        let wanted = Wanted { most, widest, frac: frac + guard, spare: frac + guard, ..wanted(1 << top) };
        let highest = Secret { id: x.id, range: ends.clone() };
        let Some(table) = Table::new(cx, &highest, &function, wanted) else { return Ok(None) };

        let moved = moves
            .iter()
            .map(|&by| cx.combine_within("moved", &[(1 << by, x)], 0, ends.clone()))
            .collect::<Result<Vec<_>, _>>()?;
        let moved = cx.stack("moves", &moved.iter().collect::<Vec<_>>())?;
        let values = table.look_up(cx, "table", &moved)?;
        let values = cx.unstack("value", &values, &shape)?;
        let back = |cx: &mut Lowering, value: &Secret, by: u32| {
            let undo = (self.undo)(-f64::from(by));
            match self.adds {
                true => {
                    let word = (gain * undo * 2f64.powi(wanted.frac as i32)).round() as i64;
                    cx.combine("moved-back", &[(1, value)], word)
                }
                false => cx.combine("moved-back", &[(undo.round() as i64, value)], 0),
            }
        };
        let values =
            values.iter().zip(&moves).map(|(y, &by)| back(cx, y, by)).collect::<Result<Vec<_>, _>>()?;
        let thresholds: Vec<i64> = moves[1..].iter().map(|&by| 1 << (top - by)).collect();
        let held = Secret { id: x.id, range: Range::uniform(1 << first, 1 << (last + 1)) };
        chosen(cx, &held, &thresholds, &values).map(Some)
    }
}

/// From 0 to 1 as u is; four derivatives are 0 at both ends.
fn smooth_step(u: f64) -> f64 {
    let u = u.clamp(0.0, 1.0);
    u.powi(5) * (126.0 + u * (-420.0 + u * (540.0 + u * (-315.0 + u * 70.0))))
}

/// Of several values that of the stretch in which x lies: x ≥ thresholds\[k\] chooses the value
/// after the k-th.
fn chosen(cx: &mut Lowering, x: &Secret, thresholds: &[i64], values: &[Secret]) -> Result<Secret, Refusal> {
    let bits = cx.thermometer("stretch", x, thresholds)?;
    let steps = values
        .windows(2)
        .map(|pair| cx.combine("step", &[(1, &pair[1]), (-1, &pair[0])], 0))
        .collect::<Result<Vec<_>, _>>()?;
    let shape = cx.shape(x).clone();
    let steps = cx.stack("steps", &steps.iter().collect::<Vec<_>>())?;
    let steps = cx.select("select", &bits, &steps)?;
    let steps = cx.unstack("selected", &steps, &shape)?;
    let range = Range::hull_of(&values.iter().map(|y| &y.range).collect::<Vec<_>>());
    let mut terms = vec![(1, &values[0])];
    terms.extend(steps.iter().map(|step| (1, step)));
    cx.combine_within("chosen", &terms, 0, range)
}
