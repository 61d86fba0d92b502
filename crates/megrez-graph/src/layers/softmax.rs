//! Softmax and LogSoftmax on shares: e^(x − max) / Σ e^(x − max), by a tournament, one decay
//! ([`super::exp`]) and one reciprocal per row ([`super::octaves`]). At an output the recipient
//! computes them on what is revealed, which costs nothing.
//!
//! A public mask ([`crate::passes::fuse_masks`] makes it of −∞ constants) takes elements out
//! exactly: they count in no maximum, they are not exponentiated, and their results are 0. No
//! stand-in for −∞ is needed, so no range grows.
//!
//! With tables, and ranges that the plan may tell, a number up to 1 below the maximum does as well,
//! which counts of wins find in two rounds ([`shift`]): the powers are larger, the quotients the
//! same.
//!
//! Largest error, absolute: about 3 units of 2^−f (f = 16: 5e-5), where ranges were measured and a
//! table holds the powers 2^−13; a row's results sum up to 1 within n units.

use super::call::{Call, axis};
use super::exp::{Powers, decay};
use super::lines::Lines;
use super::octaves::{LOGARITHM, RECIPROCAL};
use super::reduce::row_maxima;
use super::table::readable;
use crate::after::After;
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::gradients::{Gradients, list};
use crate::graph::{Attributes, Id};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::range::Range;
use crate::scale::Scale;
use crate::tensor::{Constant, Tensor};
use megrez_plan::{Function, Operation, ValueId, View};
use megrez_ring::Shape;
use std::sync::Arc;

/// What to take away from every row of x [rows, n] before powers of e are taken of it, as [rows,
/// 1]: its largest number, or one that is smaller by no more words than the second result, 1 as a
/// number at most.
pub(super) fn shift(cx: &mut Lowering, x: &Secret) -> Result<(Secret, i128), Refusal> {
    let one = 1 << cx.frac_of(x);
    if cx.activations().looks_up()
        && let Some(near) = cx.near_largest("largest", x, one)?
    {
        return Ok((near, one));
    }
    row_maxima(cx, x)
}

/// A sum of powers of e, of which one is of no less than 0, but for its error.
pub(super) fn at_least_one(cx: &Lowering, sum: Secret) -> Secret {
    let (f, frac) = (cx.frac(), cx.frac_of(&sum));
    let least = ((1i128 << f) - (1 << (f / 2)) - 1) << (frac - f);
    sum.within(Range::uniform(least, i128::MAX))
}

struct Softmax {
    lines: Lines,
    axis: usize,
    after: After,
    /// Where a row's elements count, row by row; everywhere if `None`.
    mask: Option<Vec<bool>>,
    shape: Shape,
}

pub(super) fn softmax(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &["axis"])?;
    let axis = axis(call.int("axis", -1)?, call.shape(0)?.rank())?;
    layer(call, After::Softmax { axis }, axis, None)
}

pub(super) fn log_softmax(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &["axis"])?;
    let axis = axis(call.int("axis", -1)?, call.shape(0)?.rank())?;
    layer(call, After::LogSoftmax { axis }, axis, None)
}

/// The name that a Softmax with a mask has; no ONNX operator.
pub(crate) const MASKED: &str = "MaskedSoftmax";

/// Softmax of input 0 where input 1, integers that broadcast to it, is not 0.
pub(super) fn masked_softmax(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &["axis"])?;
    let shape = call.shape(0)?;
    let axis = axis(call.int("axis", -1)?, shape.rank())?;
    let Some(Constant::Ints(mask)) = &call.graph.value(call.id(1)?).constant else {
        return refuse("its mask is not known when compiling", "masks are public constants");
    };
    let Some(view) = View::broadcast(&mask.shape, shape) else {
        return refuse(format!("the mask {} does not broadcast to {shape}", mask.shape), "");
    };
    let spread = mask.view(&view);
    let lines = Lines::new(shape, &[axis]);
    let flags = Tensor::new(shape.clone(), spread.data.iter().map(|&v| f32::from(v != 0)).collect());
    let rows: Vec<bool> = lines.plain(&flags).data.iter().map(|&v| v != 0.0).collect();
    if rows.chunks_exact(lines.size).any(|row| !row.contains(&true)) {
        return refuse("a row is masked as a whole, so its softmax has no value", "leave one element");
    }
    layer(call, After::Softmax { axis }, axis, Some(rows))
}

fn layer(call: &Call, after: After, axis: usize, mask: Option<Vec<bool>>) -> Result<Arc<dyn Layer>, Refusal> {
    let shape = call.shape(0)?.clone();
    let mask = mask.filter(|mask| mask.contains(&false));
    Ok(Arc::new(Softmax { lines: Lines::new(&shape, &[axis]), axis, after, mask, shape }))
}

impl Softmax {
    /// The size of the last dimension, if rows lie along it.
    fn last(&self) -> usize {
        match self.axis + 1 == self.shape.rank() {
            true => self.lines.size,
            false => usize::MAX,
        }
    }

    /// The elements that count, of a matrix [rows, n], in one row; or the matrix itself.
    fn kept(&self, cx: &mut Lowering, name: &str, x: &Secret) -> Result<Secret, Refusal> {
        let Some(mask) = &self.mask else { return Ok(x.clone()) };
        let places: Vec<usize> = (0..mask.len()).filter(|&i| mask[i]).collect();
        let flat = cx.view(&format!("{name}-flat"), x, View::whole([mask.len()].into()))?;
        cx.pick(name, &flat, 0, &places)
    }

    /// The inverse of `kept`, with zeros elsewhere.
    fn spread(&self, cx: &mut Lowering, x: &Secret) -> Result<Secret, Refusal> {
        let Some(mask) = &self.mask else { return Ok(x.clone()) };
        let zero = mask.iter().filter(|&&kept| kept).count();
        let mut next = 0..zero;
        let places: Vec<usize> =
            mask.iter().map(|&kept| if kept { next.next().unwrap_or(zero) } else { zero }).collect();
        let padded = cx.pad("with-zero", x, &[0], &[1])?;
        let all = cx.pick("spread", &padded, 0, &places)?;
        cx.view("spread-rows", &all, View::whole([self.lines.rows, self.lines.size].into()))
    }

    /// The matrix with every masked element replaced by one of its row that counts: the maxima are
    /// the same.
    fn filled(&self, cx: &mut Lowering, x: &Secret) -> Result<Secret, Refusal> {
        let Some(places) = self.filling() else { return Ok(x.clone()) };
        let flat = cx.view("scores", x, View::whole([self.lines.rows * self.lines.size].into()))?;
        let filled = cx.pick("filled", &flat, 0, &places.collect::<Vec<_>>())?;
        cx.view("filled-rows", &filled, View::whole([self.lines.rows, self.lines.size].into()))
    }

    /// The places of [`filled`](Self::filled)'s elements in the matrix.
    fn filling(&self) -> Option<impl Iterator<Item = usize> + '_> {
        let n = self.lines.size;
        let places = move |(r, row): (usize, &'_ [bool])| {
            let first = row.iter().position(|&kept| kept).unwrap_or(0);
            (0..n).map(|c| r * n + if row[c] { c } else { first }).collect::<Vec<_>>()
        };
        Some(self.mask.as_ref()?.chunks_exact(n).enumerate().flat_map(places))
    }

    /// As [`kept`](Self::kept), in floating point.
    fn float_kept(&self, cx: &mut FloatLowering, name: &str, x: ValueId) -> Result<ValueId, Refusal> {
        let Some(mask) = &self.mask else { return Ok(x) };
        let places: Vec<usize> = (0..mask.len()).filter(|&i| mask[i]).collect();
        cx.gather(name, &[x], [places.len()].into(), places.into_iter().map(Some))
    }

    /// As [`spread`](Self::spread), in floating point.
    fn float_spread(&self, cx: &mut FloatLowering, name: &str, x: ValueId) -> Result<ValueId, Refusal> {
        let Some(mask) = &self.mask else { return Ok(x) };
        let mut next = 0..;
        let places = mask.iter().map(|&kept| if kept { next.next() } else { None });
        cx.gather(name, &[x], [self.lines.rows, self.lines.size].into(), places)
    }
}

impl Layer for Softmax {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let Some(mask) = &self.mask else { return self.after.apply(inputs[0]) };
        let mut rows = self.lines.plain(inputs[0]);
        let hidden = rows.data.iter_mut().zip(mask).filter(|(_, kept)| !**kept);
        hidden.for_each(|(v, _)| *v = f32::NEG_INFINITY);
        let axis = After::Softmax { axis: 1 };
        self.lines.plain_join(axis.apply(&rows).data)
    }

    fn backward(
        &self,
        g: &mut Gradients,
        _inputs: &[Id],
        output: Id,
        of_output: Id,
        wanted: &[bool],
    ) -> Result<Vec<Option<Id>>, Refusal> {
        // y ⊙ (δ − Σ y ⊙ δ) of a row; what a mask hides has y = 0. Of the logarithm: δ − e^y · Σ δ.
        let mut of_inputs = vec![None; wanted.len()];
        let (axis, shape) = (self.axis as i64, self.shape.clone());
        let total = |g: &mut Gradients, x: Id| -> Result<Id, Refusal> {
            let sum = g.add("rows", "ReduceSum", &[x], list("axes", vec![axis]))?;
            g.repeated("total", sum, &shape)
        };
        let of_input = if matches!(self.after, After::LogSoftmax { .. }) {
            let powers = g.add("powers", "Exp", &[output], Attributes::none())?;
            let total = total(g, of_output)?;
            let part = g.product("part", powers, total)?;
            g.add("input", "Sub", &[of_output, part], Attributes::none())?
        } else {
            let products = g.product("products", output, of_output)?;
            let total = total(g, products)?;
            let rest = g.add("rest", "Sub", &[of_output, total], Attributes::none())?;
            g.product("input", output, rest)?
        };
        of_inputs[0] = Some(of_input);
        Ok(of_inputs)
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let f = cx.frac();
        let [rows, n] = [self.lines.rows, self.lines.size];
        let x = inputs[0].secret()?;
        let x = match (cx.activations(), &self.after) {
            (activations, After::Softmax { .. }) if activations.looks_up() => readable(cx, x, 4)?,
            _ => cx.settle(x)?,
        };
        let x = self.lines.split(cx, &x)?;
        let filled = self.filled(cx, &x)?;
        let (largest, wrong) = shift(cx, &filled)?;
        let largest = cx.broadcast("maxima", &largest, &[rows, n].into())?;
        let (kept, largest) = (self.kept(cx, "kept", &x)?, self.kept(cx, "kept-maxima", &largest)?);
        let shifted = cx.combine("shifted", &[(1, &kept), (-1, &largest)], 0)?;
        let below = shifted.range.map(|b| b.min(wrong));
        let shifted = shifted.within(below);
        let Powers { settled: powers, summand } = decay(cx, &shifted, wrong, n)?;
        let spread = self.spread(cx, &summand)?;
        let sum = cx.sum("sum", &spread, 1)?;
        let sum = at_least_one(cx, sum);
        let y = if matches!(self.after, After::LogSoftmax { .. }) {
            let log = LOGARITHM.lower_held(cx, &sum, 1.0, f..=f, true)?;
            let log = cx.broadcast("logarithms", &log, &[rows, n].into())?;
            cx.combine("log-softmax", &[(1, &shifted), (-1, &log)], 0)?
        } else {
            // Where what reads it has room, the product is not truncated: of an inverse that is not
            // truncated either, of few fraction bits.
            let short = match cx.spares && cx.activations().looks_up() {
                true => RECIPROCAL.in_one_round(cx, &sum, f + 1..=f + 2, f - 2)?,
                false => None,
            };
            let whole = short.is_some();
            let inverse = match short {
                Some(inverse) => inverse,
                None => {
                    // The product of a power with what is left untruncated must leave the last
                    // truncation its bits.
                    let fine = (cx.ring() / 2 - 8).max(f);
                    RECIPROCAL.lower_held(cx, &sum, 1.0, fine..=fine.max(cx.ring() - 3 - f), true)?
                }
            };
            let fine = cx.frac_of(&inverse);
            let inverse = cx.broadcast("inverses", &inverse, &[rows, n].into())?;
            let inverse = self.kept(cx, "kept-inverses", &inverse)?;
            let bound = 1i128 << (f + fine);
            let y = cx.mul_within("product", &powers, &inverse, Range::uniform(0, bound + bound / 64))?;
            let y = cx.rounded("softmax", &y, if whole { f + fine } else { f })?;
            self.spread(cx, &y)?
        };
        let y = self.lines.join(cx, &y)?;
        if matches!(self.after, After::Softmax { .. }) && self.lines.size == self.last() {
            // What a product may be off by, and a unit of rounding for each element.
            let one = 1i128 << cx.frac_of(&y);
            cx.rows_add_up_to(&y, one + one / 64 + n as i128);
        }
        Ok(y)
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let rows: Shape = [self.lines.rows, self.lines.size].into();
        let column: Shape = [self.lines.rows, 1].into();
        let x = cx.value(&inputs[0]);
        let x = self.lines.float_split(cx, x)?;
        let filled = match self.filling() {
            Some(places) => cx.gather("filled", &[x], rows.clone(), places.map(Some))?,
            None => x,
        };
        let largest = cx.largest_of_rows("largest", filled)?;
        let largest = cx.reshape("largest-column", largest, column.clone())?;
        let largest = cx.broadcast("maxima", largest, &rows)?;
        let (kept, largest) = (self.float_kept(cx, "kept", x)?, self.float_kept(cx, "kept-maxima", largest)?);
        let shape = cx.shape(kept).clone();
        let shifted = cx.pair("shifted", Operation::Sub, kept, largest, &shape)?;
        let powers = cx.map("powers", Function::Exp, shifted)?;
        let powers = self.float_spread(cx, "all-powers", powers)?;
        let total = cx.sum_rows("total", powers)?;
        let total = cx.reshape("total-column", total, column)?;
        let y = if matches!(self.after, After::LogSoftmax { .. }) {
            let log = cx.map("logarithm", Function::Ln, total)?;
            cx.pair("log-softmax", Operation::Sub, shifted, log, &rows)?
        } else {
            let total = cx.broadcast("totals", total, &rows)?;
            let kept = self.float_kept(cx, "kept-powers", powers)?;
            let total = self.float_kept(cx, "kept-totals", total)?;
            let y = cx.pair("softmax", Operation::Div, kept, total, &shape)?;
            self.float_spread(cx, "all", y)?
        };
        self.lines.float_join(cx, y)
    }

    fn after(&self) -> Option<After> {
        self.mask.is_none().then(|| self.after.clone())
    }

    fn scale(&self) -> Scale {
        Scale::Function
    }

    fn work(&self) -> u64 {
        8 * self.shape.elements() as u64
    }
}
