//! What a row of a batch tells by its gradient, bounded and hidden: differential privacy of what is
//! trained. A row's gradient of dense weights is a product of two vectors, aᵀδ, and that of a bias
//! δ, so its norm over all weights follows from the norms of vectors, ‖g‖² = Σ ‖a‖²·‖δ‖², without
//! the gradient itself. A gradient that is no such product, of a convolution, is made for each row
//! and taken for one vector. [`ROW_SCALE`] finds from it by which factor c ≤ 1 each row is too
//! long; [`NOISY_SUM`] adds the scaled rows up and the noise to the sum.
//!
//! *No range is believed.* Ranges of training are rehearsed, and whoever computes with a number
//! outside of its range gets anything. So a and δ are held within bounds by comparisons of all bits
//! ([`Lowering::bounded`]) and what follows has no more room than these bounds leave: squares, sums
//! and products are those of integers. The factor is a step function of ‖g‖² by exact comparisons,
//! on each step small enough for the longest row that it scales. What is added up is neither
//! truncated nor rounded before the noise is in it, so c·‖a‖·‖δ‖ ≤ clip holds for the very words,
//! and sums may outgrow the ring: modulo 2^ℓ they differ by that row, too. Data, `a` of a first
//! layer, is within the range that its owner declares, by the owner's word.
//!
//! `docs/security/privacy.md` has the proof; `megrez_model::privacy` finds it again in every plan.

use super::call::Call;
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::range::Range;
use crate::scale::Scale;
use crate::tensor::Tensor;
use megrez_plan::{MAX_DEVIATION, MAX_THRESHOLDS, View};
use megrez_prg::{Key, gaussian};
use megrez_ring::Shape;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// The factors by which the rows of a batch are scaled, [B, 1]; no ONNX operator. Of vectors,
/// [B, n] each; `left` and `right` say which are multiplied, −1 for none.
pub(crate) const ROW_SCALE: &str = "RowScale";

/// The sum over a batch of the scaled rows' gradients of one weight, with noise; no ONNX operator.
/// Of the factors and the vectors of this weight.
pub(crate) const NOISY_SUM: &str = "NoisySum";

/// Fraction bits of factors.
const FACTOR_BITS: u32 = 10;

/// Fraction bits that gradients of rows have less than other numbers: noise is far above them, and
/// the sum leaves room for momentum.
const FEWER_BITS: u32 = 4;

/// The clip is a multiple of 2^−16.
const CLIP_BITS: u32 = 16;

/// Words that a vector's squared norm may be larger than what its truncation says.
const ROUNDED: i64 = 1;

/// Two vectors of a row, by their places among the inputs.
#[derive(Clone, Copy)]
struct Pair {
    left: Option<usize>,
    right: usize,
}

struct RowScale {
    shape: Shape,
    pairs: Vec<Pair>,
    /// Of each input what its elements are held within; `None` for data.
    bounds: Vec<Option<i64>>,
    /// In units of 2^−[`CLIP_BITS`].
    clip: i64,
}

/// [B, n] of an input.
fn rows(call: &Call, input: usize) -> Result<[usize; 2], Refusal> {
    match *call.shape(input)?.dims() {
        [batch, n] if batch > 0 && n > 0 => Ok([batch, n]),
        _ => refuse("takes one vector for each row", ""),
    }
}

fn clip_of(call: &Call) -> Result<i64, Refusal> {
    let clip = (call.float("clip", 0.0)? * 2f32.powi(CLIP_BITS as i32)) as i64;
    match (1 << 10..=1 << 22).contains(&clip) {
        true => Ok(clip),
        false => refuse("the clip is from 2^-6 to 64", ""),
    }
}

pub(super) fn row_scale(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(256, &["bounds", "clip", "left", "right"])?;
    let list = |name: &str| call.ints(name).map(Option::unwrap_or_default);
    let (left, right, bounds) = (list("left")?, list("right")?, list("bounds")?);
    let inputs = call.inputs.len();
    let [batch, _] = rows(call, 0)?;
    for i in 1..inputs {
        if rows(call, i)?[0] != batch {
            return refuse("takes vectors of the same rows", "");
        }
    }
    let place = |i: i64| usize::try_from(i).ok().filter(|&i| i < inputs);
    let pair = |(&l, &r): (&i64, &i64)| Some(Pair { left: place(l), right: place(r)? });
    let pairs: Option<Vec<Pair>> = left.iter().zip(&right).map(pair).collect();
    let bounded = bounds.len() == inputs && bounds.iter().all(|b| (0..=1 << 10).contains(b));
    match pairs.filter(|pairs| !pairs.is_empty() && bounded && left.len() == right.len()) {
        Some(pairs) => Ok(Arc::new(RowScale {
            shape: [batch, 1].into(),
            pairs,
            bounds: bounds.into_iter().map(|b| (b > 0).then_some(b)).collect(),
            clip: clip_of(call)?,
        })),
        None => refuse("its vectors are none", ""),
    }
}

/// The steps of the factor: thresholds of ‖g‖² with `frac` fraction bits, ascending, and the factor
/// below each, in units of 2^−[`FACTOR_BITS`]; beyond the last it is 0. The last is at least
/// `most`, unless that is more than 2^20 times the clip's square.
///
/// For every ‖g‖² = s below a threshold, and not below the one before, factor·√s ≤ clip.
fn steps(clip: i64, frac: u32, most: i128) -> Vec<(i64, i64)> {
    let (clip_square, one) = (i128::from(clip) * i128::from(clip), 1i64 << FACTOR_BITS);
    let first = (clip_square << frac) >> (2 * CLIP_BITS);
    let mut steps = vec![];
    for k in 0..MAX_THRESHOLDS as u32 {
        let growth = 2f64.powf(f64::from(2 * FACTOR_BITS * k) / (MAX_THRESHOLDS - 1) as f64);
        let threshold = (first as f64 * growth) as i128;
        if threshold >= 1 << 61 {
            break;
        }
        let mut factor = (one as f64 / growth.sqrt()) as i64;
        // (factor/2^10)²·threshold/2^frac ≤ (clip/2^16)², in integers.
        let too_large = |factor: i64| {
            let square = i128::from(factor) * i128::from(factor) * threshold;
            square << (2 * CLIP_BITS) > clip_square << (frac + 2 * FACTOR_BITS)
        };
        while factor > 0 && too_large(factor) {
            factor -= 1;
        }
        steps.push((threshold as i64, factor));
        if threshold > most {
            break;
        }
    }
    steps
}

impl RowScale {
    fn held(&self, i: usize, x: f32) -> f32 {
        self.bounds[i].map_or(x, |bound| x.clamp(-(bound as f32), bound as f32))
    }
}

/// The squared norm of a row.
fn norm(x: &Tensor, row: usize, held: impl Fn(f32) -> f32) -> f64 {
    let n = x.shape.dims()[1];
    x.data[row * n..][..n].iter().map(|&x| f64::from(held(x)).powi(2)).sum()
}

impl Layer for RowScale {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let frac = 24;
        let steps = steps(self.clip, frac, i128::MAX);
        let factor = |row: usize| {
            let of = |i: usize| norm(inputs[i], row, |x| self.held(i, x));
            let square: f64 = self.pairs.iter().map(|p| p.left.map_or(1.0, of) * of(p.right)).sum();
            let words = square * 2f64.powi(frac as i32);
            let step = steps.iter().find(|(threshold, _)| words < *threshold as f64);
            step.map_or(0.0, |(_, factor)| *factor as f32 / (1 << FACTOR_BITS) as f32)
        };
        Tensor::new(self.shape.clone(), (0..self.shape.elements()).map(factor).collect())
    }

    /// Leaves of each pair the left vector as it is held, and then the right one, scaled.
    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let f = cx.frac();
        if cx.ring() != 64 {
            return refuse("bounds what a row tells", "use the 64-bit ring");
        }
        let fine = |i: usize| match self.pairs.iter().any(|pair| pair.right == i) {
            true => f.saturating_sub(FEWER_BITS),
            false => f,
        };
        let mut held = vec![];
        for (i, (input, bound)) in inputs.iter().zip(&self.bounds).enumerate() {
            let x = input.secret()?;
            held.push(match bound {
                Some(bound) => {
                    let x = cx.rounded("rounded", x, fine(i))?;
                    cx.bounded(&x, bound << fine(i))?
                }
                None if cx.is_data(x) && cx.frac_of(x) == f => x.clone(),
                None => return refuse("bounds data that is computed", ""),
            });
        }
        // ‖x‖² in whole numbers, at most, and how many fraction bits that leaves for ‖g‖².
        let most = |cx: &Lowering, x: &Secret| {
            let one = i128::from(x.range.magnitude() as u64 >> cx.frac_of(x)) + 1;
            one * one * cx.shape(x).dims()[1] as i128 + 1
        };
        let of = |pair: &Pair| pair.left.map_or(1, |l| most(cx, &held[l])) * most(cx, &held[pair.right]);
        let total: i128 = self.pairs.iter().map(of).sum();
        let room = 61u32.saturating_sub(i128::BITS - total.leading_zeros());
        let most_of = |i: usize| 2 * cx.frac_of(&held[i]);
        let most_left = self.pairs.iter().filter_map(|pair| pair.left).map(most_of).min().unwrap_or(0);
        let most_right = self.pairs.iter().map(|pair| most_of(pair.right)).min().unwrap_or(0);
        let of_right = (room / 2 + 4).min(most_right);
        let of_left = room.saturating_sub(of_right).min(most_left).min(f);
        let frac = of_left + of_right;
        // The clip's square has to be some words, or steps are none.
        let clip_square = (i128::from(self.clip * self.clip) << frac) >> (2 * CLIP_BITS);
        let products = self.pairs.iter().any(|pair| pair.left.is_some());
        if products && of_left < 4 || clip_square < 1 << 6 {
            return refuse(
                "has no room for the norm of a row's gradient",
                "use a larger clip, or narrower layers",
            );
        }
        // Squared norms, rounded up.
        let mut norms = vec![];
        for (i, x) in held.iter().enumerate() {
            let left = self.pairs.iter().any(|pair| pair.left == Some(i));
            let right = self.pairs.iter().any(|pair| pair.right == i);
            let square = cx.mul("square", x, x)?;
            let sum = cx.sum("norm", &square, 1)?;
            let mut rounded = |wanted: bool, to: u32| -> Result<Option<Secret>, Refusal> {
                if !wanted {
                    return Ok(None);
                }
                let sum = cx.rounded("norm-rounded", &sum, to)?;
                cx.combine("norm-at-most", &[(1, &sum)], ROUNDED).map(Some)
            };
            norms.push([rounded(left, of_left)?, rounded(right, of_right)?]);
        }
        let mut squares = vec![];
        for pair in &self.pairs {
            let right = norms[pair.right][1].as_ref().expect("made above");
            squares.push(match pair.left {
                Some(left) => cx.mul("norms", norms[left][0].as_ref().expect("made above"), right)?,
                None => cx.scaled_up(right, frac)?,
            });
        }
        let terms: Vec<_> = squares.iter().map(|square| (1, square)).collect();
        let square = cx.combine("square-of-row", &terms, 0)?;
        // The factor: 1, less what each threshold that is reached takes away.
        let steps = steps(self.clip, frac, square.range.magnitude());
        let thresholds: Vec<i64> = steps.iter().map(|(threshold, _)| *threshold).collect();
        let bits = cx.thermometer("too-long", &square, &thresholds)?;
        let bits = cx.bit_to_ring("too-long-number", &bits)?;
        let bits = cx.unstack("step", &bits, &self.shape)?;
        let after = steps.iter().skip(1).map(|(_, factor)| *factor).chain([0]);
        let drops: Vec<i64> = steps.iter().zip(after).map(|((_, factor), next)| next - factor).collect();
        let terms: Vec<_> = drops.iter().copied().zip(&bits).collect();
        let factor =
            cx.combine_within("factor", &terms, steps[0].1, Range::uniform(0, i128::from(steps[0].1)))?;
        let factor = cx.rescale("factor-scale", &factor, FACTOR_BITS)?;
        let mut scaled: HashMap<usize, Secret> = HashMap::new();
        for pair in &self.pairs {
            if let Some(left) = pair.left {
                cx.leave(held[left].clone());
            }
            if let Entry::Vacant(new) = scaled.entry(pair.right) {
                let right = &held[pair.right];
                let shape = cx.shape(right).clone();
                let all = cx.broadcast("factors", &factor, &shape)?;
                new.insert(cx.mul("scaled", &all, right)?);
            }
            cx.leave(scaled[&pair.right].clone());
        }
        Ok(factor)
    }

    fn scale(&self) -> Scale {
        Scale::Settles
    }

    fn work(&self) -> u64 {
        64 * self.shape.elements() as u64
    }
}

struct NoisySum {
    shape: Shape,
    batch: usize,
    /// Whether there is a left vector.
    product: bool,
    /// Whether the weight is right by left.
    turned: bool,
    /// Its vectors, counted through among what [`RowScale`] leaves.
    first: usize,
    bounds: [Option<f32>; 2],
    clip: i64,
    /// The standard deviation of what each of two parties adds, over the clip.
    noise: f32,
}

pub(super) fn noisy_sum(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(3, &["bounds", "clip", "first", "noise", "shape", "turned"])?;
    let shape: Vec<usize> =
        call.ints("shape")?.unwrap_or_default().iter().map(|&n| n.max(0) as usize).collect();
    let (shape, product) = (Shape::new(shape), call.inputs.len() == 3);
    let [batch, _] = rows(call, 1)?;
    let size = match product {
        true => rows(call, 1)?[1] * rows(call, 2)?[1],
        false => rows(call, 1)?[1],
    };
    let bounds = call.ints("bounds")?.unwrap_or_default();
    let bound = |i: usize| bounds.get(i).filter(|&&b| b > 0).map(|&b| b as f32);
    let noise = call.float("noise", 0.0)?;
    if shape.elements() != size || !(0.0..=1e6).contains(&noise) {
        return refuse("its vectors are none", "");
    }
    Ok(Arc::new(NoisySum {
        shape,
        batch,
        product,
        turned: call.int("turned", 0)? != 0,
        first: call.int("first", 0)?.max(0) as usize,
        bounds: [bound(0), bound(1)],
        clip: clip_of(call)?,
        noise,
    }))
}

impl NoisySum {
    /// Of one party, in words of `frac` fraction bits.
    fn deviation(&self, frac: u32) -> f64 {
        let clip = self.clip as f64 * 2f64.powi(frac as i32 - CLIP_BITS as i32);
        (f64::from(self.noise) * clip).ceil()
    }
}

impl Layer for NoisySum {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Noise and all: what training is to expect.
    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let held = |i: usize, x: f32| self.bounds[i].map_or(x, |bound| x.clamp(-bound, bound));
        let width = |x: &Tensor| x.shape.dims()[1];
        let (m, n) = match self.product {
            true => (width(inputs[1]), width(inputs[2])),
            false => (1, width(inputs[1])),
        };
        let mut sum = vec![0f64; m * n];
        for row in 0..self.batch {
            let factor = f64::from(inputs[0].data[row]);
            for i in 0..m {
                let left = if self.product { f64::from(held(0, inputs[1].data[row * m + i])) } else { 1.0 };
                for j in 0..n {
                    let right = held(1, inputs[inputs.len() - 1].data[row * n + j]);
                    sum[if self.turned { j * m + i } else { i * n + j }] += factor * left * f64::from(right);
                }
            }
        }
        let frac = 24;
        let mut noise = vec![0i64; 2 * sum.len()];
        if self.noise > 0.0 {
            let key = Key::random().expect("the operating system has randomness");
            let deviation = self.deviation(frac).min(MAX_DEVIATION as f64);
            gaussian::fill(&key.stream(), deviation as u64, &mut noise);
        }
        let unit = 2f64.powi(-(frac as i32));
        let noisy = sum.iter().zip(noise.chunks_exact(2)).map(|(s, n)| s + (n[0] + n[1]) as f64 * unit);
        Tensor::new(self.shape.clone(), noisy.map(|x| x as f32).collect())
    }

    fn lower(&self, cx: &mut Lowering, _: &[Operand]) -> Result<Secret, Refusal> {
        let given = cx.given().get(self.first..).unwrap_or_default().to_vec();
        let sum = match (&given[..], self.product) {
            ([left, right, ..], true) => {
                let columns = |cx: &mut Lowering, name: &str, x: &Secret| {
                    let turned = View::transpose(cx.shape(x), &[1, 0]);
                    cx.view(name, x, turned)
                };
                match self.turned {
                    false => {
                        let left = columns(cx, "columns", left)?;
                        cx.matmul_modulo("sum", &left, right)?
                    }
                    true => {
                        let right = columns(cx, "columns", right)?;
                        cx.matmul_modulo("sum", &right, left)?
                    }
                }
            }
            ([right, ..], false) => cx.sum_modulo("sum", right, 0)?,
            _ => return refuse("has no rows to add up", ""),
        };
        let frac = cx.frac_of(&sum);
        let deviation = self.deviation(frac);
        if deviation > MAX_DEVIATION as f64 {
            return refuse("draws more noise than the ring has room for", "use a smaller clip");
        }
        // A gradient beyond that is wrong, and no less private.
        let clip = (self.clip as i128) << (frac - CLIP_BITS);
        let bound = clip * self.batch as i128 + 24 * deviation as i128;
        let sum = cx.shaped_modulo("weight", &sum, self.shape.clone())?;
        cx.with_noise("noisy", &sum, deviation as u64, bound)
    }

    fn beside(&self) -> Option<usize> {
        Some(0)
    }

    fn unread(&self, input: usize) -> bool {
        input > 0
    }

    fn scale(&self) -> Scale {
        Scale::Settles
    }

    fn work(&self) -> u64 {
        (self.shape.elements() * self.batch) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On every step, the longest row that it scales has at most the clip's length afterwards: in
    /// integers, for clips of all sizes.
    #[test]
    fn no_step_leaves_a_row_longer_than_the_clip() {
        for clip in [1 << 10, 12345, 1 << 16, 3 << 16, 1 << 22] {
            for frac in [12, 20, 28, 32] {
                if ((clip * clip) << frac) >> (2 * CLIP_BITS) < 1 << 6 {
                    continue;
                }
                let found = steps(clip, frac, 1 << 60);
                assert!(found.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 >= w[1].1), "{clip} {frac}");
                for &(threshold, factor) in &found {
                    // The largest ‖g‖² below the threshold.
                    let square = i128::from(threshold) - 1;
                    let left = (i128::from(factor) * i128::from(factor) * square) << (2 * CLIP_BITS);
                    let right = (i128::from(clip) * i128::from(clip)) << (frac + 2 * FACTOR_BITS);
                    assert!(left <= right, "{clip} {frac} {threshold} {factor}");
                }
                assert_eq!(found[0].1, 1 << FACTOR_BITS);
                // And on none is more than a fifth given away that need not be.
                for pair in found.windows(2) {
                    let least = (pair[0].0 as f64 * 2f64.powi(-(frac as i32))).sqrt();
                    let kept = least * pair[1].1 as f64 / f64::from(1 << FACTOR_BITS);
                    let clip = clip as f64 / f64::from(1 << CLIP_BITS);
                    assert!(pair[1].1 < 16 || kept > 0.8 * clip, "{clip} {frac} {pair:?}");
                }
            }
        }
    }
}
