//! The gradient of MaxPool: each window's gradient goes to the element that has won its tournament,
//! by the bits that the pool has left: nothing is compared. Level by level, last one first: the
//! winner's side gets bit · δ, the other side what is left, so exactly one element of a window gets
//! the gradient, also among equals. Windows that overlap add up.
//!
//! A selection for every comparison of the pool, all in one round: the bits of a level are joined
//! to those by which its window's gradient has come there, which waits for no gradient and runs in
//! the forward pass. Where windows overlap from row to row their gradients are added up between the
//! two axes, and it is two rounds.

use super::call::{Call, image};
use super::window::{Axis, windows};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::tensor::Tensor;
use megrez_ring::Shape;
use std::sync::Arc;

/// The name that the gradient of MaxPool has; no ONNX operator. Of the pool's input, its output,
/// and the output's gradient, with the pool's attributes.
pub(crate) const MAX_POOL_GRAD: &str = "MaxPoolGrad";

struct MaxPoolGrad {
    /// Of the pool's input.
    shape: Shape,
    rows: Axis,
    columns: Axis,
}

pub(super) fn max_pool_grad(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(
        3,
        &["auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "storage_order", "strides"],
    )?;
    let shape = call.shape(0)?.clone();
    let [n, c, height, width] = image(&shape)?;
    let [rows, columns] = windows(call, [height, width], None, false)?;
    let pooled = Shape::from([n, c, rows.windows, columns.windows]);
    match *call.shape(1)? == pooled && *call.shape(2)? == pooled {
        true => Ok(Arc::new(MaxPoolGrad { shape, rows, columns })),
        false => refuse("a value and its gradient have one shape", ""),
    }
}

/// The winner of a tournament as the pool holds it: of two equals the first.
fn winner(mut taps: Vec<(f32, usize)>) -> (f32, usize) {
    while taps.len() > 1 {
        let half = taps.len() / 2;
        let duel = |k: usize| if taps[k].0 >= taps[half + k].0 { taps[k] } else { taps[half + k] };
        let next: Vec<_> = (0..half).map(duel).chain(taps[2 * half..].iter().copied()).collect();
        taps = next;
    }
    taps[0]
}

/// The gradients of taps as they stand along one axis: those of their windows, where the window's
/// gradient has gone that way.
struct Gone {
    /// The gradient of each tap's window.
    of_window: Secret,
    /// Whether the tap has it; every tap has if there are no bits.
    bits: Option<Secret>,
    /// What the tap has.
    gone: Secret,
}

impl Gone {
    fn all(delta: &Secret) -> Self {
        Gone { of_window: delta.clone(), bits: None, gone: delta.clone() }
    }

    /// Each of the three, rearranged along `dimension`.
    fn pick(&self, cx: &mut Lowering, name: &str, dimension: usize, from: &[usize]) -> Result<Self, Refusal> {
        let bits = self.bits.as_ref().map(|bits| cx.pick_bits(name, bits, dimension, from)).transpose()?;
        let of_window = cx.pick(name, &self.of_window, dimension, from)?;
        Ok(Gone { of_window, bits, gone: cx.pick(name, &self.gone, dimension, from)? })
    }
}

/// Where the gradient at each place of an axis comes from: tap k of window o stands at k · windows
/// + o.
fn sources(axis: &Axis) -> Vec<Vec<usize>> {
    let mut sources = vec![vec![]; axis.size()];
    for k in 0..axis.kernel {
        (0..axis.windows).for_each(|o| sources[axis.nearest_tap(o, k)].push(k * axis.windows + o));
    }
    sources
}

/// The levels of one axis: the bits of each, the number of the first, and whether no other axis
/// comes after it.
struct Levels<'a> {
    bits: &'a [Secret],
    first: usize,
    last: bool,
}

impl MaxPoolGrad {
    /// From the gradient of the maxima along one axis to that of the taps that were compared, by
    /// the bits of `levels`. Where the taps' gradients are not split further, they are as all.
    fn along(
        cx: &mut Lowering,
        mut delta: Gone,
        dimension: usize,
        axis: &Axis,
        levels: &Levels,
    ) -> Result<Gone, Refusal> {
        // The taps before each level.
        let mut taps = vec![axis.kernel];
        while taps[taps.len() - 1] > 1 {
            taps.push(taps[taps.len() - 1].div_ceil(2));
        }
        for (level, (bit, &taps)) in levels.bits.iter().zip(&taps).enumerate().rev() {
            let name = |part: &str| format!("max/{}/{part}", levels.first + level);
            let (won, all) = (taps / 2 * axis.windows, taps.div_ceil(2) * axis.windows);
            let place = |from: usize, to: usize| (from..to).collect::<Vec<_>>();
            let larger = delta.pick(cx, &name("larger"), dimension, &place(0, won))?;
            let [lost, won_by] =
                cx.split([&name("right-bit"), &name("left-bit")], larger.bits.as_ref(), bit)?;
            let left = cx.select(&name("left"), &won_by, &larger.of_window)?;
            let right = cx.combine(&name("right"), &[(1, &larger.gone), (-1, &left)], 0)?;
            let right = right.within(larger.gone.range.merged().with_zero());
            let odd = match all > won {
                true => Some(delta.pick(cx, &name("odd"), dimension, &place(won, all))?),
                false => None,
            };
            let joined = |cx: &mut Lowering, part: &str, both: [&Secret; 2], odd: Option<&Secret>| {
                let parts: Vec<&Secret> = both.into_iter().chain(odd).collect();
                cx.concat(&name(part), &parts, dimension)
            };
            let gone = joined(cx, "taps", [&left, &right], odd.as_ref().map(|odd| &odd.gone))?;
            delta = if level == 0 && levels.last {
                Gone::all(&gone)
            } else {
                let of_odd = odd.as_ref().map(|odd| &odd.of_window);
                let of_window = joined(cx, "of", [&larger.of_window; 2], of_odd)?;
                // A tap that is left over has bits: at the first level that comes here two are
                // compared.
                let of_odd = odd.as_ref().and_then(|odd| odd.bits.as_ref());
                let parts: Vec<&Secret> = [&won_by, &lost].into_iter().chain(of_odd).collect();
                let bits = Some(cx.concat_bits(&name("bits"), &parts, dimension)?);
                Gone { of_window, bits, gone }
            };
        }
        Ok(delta)
    }
}

impl Layer for MaxPoolGrad {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let &[n, c, height, width] = self.shape.dims() else { unreachable!("understood as images") };
        let (rows, columns) = (&self.rows, &self.columns);
        let mut y = Tensor::filled(self.shape.clone(), 0.0);
        let mut of_windows = inputs[2].data.iter();
        for plane in 0..n * c {
            let x = &inputs[0].data[plane * height * width..][..height * width];
            for r in 0..rows.windows {
                for q in 0..columns.windows {
                    let across = |i: usize| {
                        let row = rows.nearest_tap(r, i) * width;
                        let places = (0..columns.kernel).map(|j| row + columns.nearest_tap(q, j));
                        winner(places.map(|at| (x[at], at)).collect())
                    };
                    let (_, at) = winner((0..rows.kernel).map(across).collect());
                    y.data[plane * height * width + at] += of_windows.next().copied().unwrap_or(0.0);
                }
            }
        }
        y
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let levels = |axis: &Axis| axis.kernel.next_power_of_two().ilog2() as usize;
        let (across, down) = (levels(&self.columns), levels(&self.rows));
        let bits = cx.given().to_vec();
        if bits.len() != across + down {
            return refuse("the pool has left no bits", "");
        }
        // The pool has compared columns of the rows that some window sees.
        let (all, seen) = (sources(&self.rows), self.rows.seen());
        let rows: Vec<Vec<usize>> = seen.iter().map(|&i| all[i].clone()).collect();
        // Where no row is added to another, what has gone to it is still its window's.
        let each = rows.iter().map(|of| <[usize; 1]>::try_from(&of[..]).ok()).collect::<Option<Vec<_>>>();
        let of_rows = Levels { bits: &bits[across..], first: across, last: across == 0 || each.is_none() };
        let of_columns = Levels { bits: &bits[..across], first: 0, last: true };
        let delta = Self::along(cx, Gone::all(inputs[2].secret()?), 2, &self.rows, &of_rows)?;
        let delta = match each {
            Some(rows) => delta.pick(cx, "max/rows", 2, rows.as_flattened())?,
            None => Gone::all(&cx.spread("max/rows", &delta.gone, 2, &rows)?),
        };
        let delta = Self::along(cx, delta, 3, &self.columns, &of_columns)?;
        let delta = cx.spread("max/columns", &delta.gone, 3, &sources(&self.columns))?;
        if seen.len() == all.len() {
            return Ok(delta);
        }
        let place = |i: usize| seen.binary_search(&i).into_iter().collect();
        cx.spread("max/unseen", &delta, 2, &(0..all.len()).map(place).collect::<Vec<_>>())
    }

    fn beside(&self) -> Option<usize> {
        Some(1)
    }

    fn unread(&self, input: usize) -> bool {
        input < 2
    }
}
