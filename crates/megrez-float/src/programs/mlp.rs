//! A multi-layer perceptron: forward, softmax with cross-entropy, backward, and a step of gradient
//! descent.
//!
//! All of it is single-precision arithmetic, operation by operation as written here, sums in the
//! order of [`sum`]. ReLU's gradient is 0 at 0, and the loss is the mean over the batch: both as
//! PyTorch has them.

use super::matrix::{Matrix, fold, sum};
use super::parts::pairwise;
use crate::add::{add, sub};
use crate::any::{AnyBlocks, Failure};
use crate::blocks::Blocks;
use crate::compare::{max, relu};
use crate::div::div;
use crate::float::{Float, choose};
use crate::format::Format;
use crate::math::{exp, ln};
use crate::mul::mul;

/// A dense layer x·weights + bias.
pub struct Layer {
    /// Inputs × outputs.
    pub weights: Matrix,
    /// One number per output.
    pub bias: Float,
}

/// Dense layers with ReLU between them.
pub struct Mlp {
    /// From the input on.
    pub layers: Vec<Layer>,
}

/// What a step of training gives.
pub struct Step {
    /// The network after the update.
    pub mlp: Mlp,
    /// The mean cross-entropy before it, one number.
    pub loss: Float,
}

/// Softmax along the rows, and its logarithm's ingredients: x − max, and the sum of their
/// exponentials (one per row).
struct Softmax {
    probabilities: Matrix,
    shifted: Matrix,
    total: Float,
}

impl Mlp {
    /// The values before each ReLU; the last are the logits.
    fn activations(&self, b: &mut AnyBlocks, x: &Matrix) -> Result<Vec<Matrix>, Failure> {
        let mut values: Vec<Matrix> = Vec::with_capacity(self.layers.len());
        for layer in &self.layers {
            let input = match values.last() {
                None => x.clone(),
                Some(z) => Matrix { data: relu(b, &z.data)?, ..*z },
            };
            let z = input.product(b, &layer.weights)?.add_row(b, &layer.bias)?;
            values.push(z);
        }
        Ok(values)
    }

    /// The logits of a batch, one row each.
    ///
    /// # Errors
    /// If the blocks fail.
    ///
    /// # Panics
    /// If there are no layers, or sizes do not fit.
    pub fn forward(&self, b: &mut AnyBlocks, x: &Matrix) -> Result<Matrix, Failure> {
        Ok(self.activations(b, x)?.pop().expect("a network has layers"))
    }

    /// One step of gradient descent on a batch, with labels as rows of 0 and 1 and a public rate.
    ///
    /// # Errors
    /// If the blocks fail.
    ///
    /// # Panics
    /// If there are no layers, or sizes do not fit.
    pub fn step(&self, b: &mut AnyBlocks, x: &Matrix, labels: &Matrix, rate: f32) -> Result<Step, Failure> {
        let values = self.activations(b, x)?;
        let soft = softmax_rows(b, values.last().expect("a network has layers"))?;
        let loss = cross_entropy(b, &soft, labels)?;

        let scale = constant(b, 1.0 / x.rows as f32, soft.probabilities.data.lanes(b));
        let error = sub(b, &soft.probabilities.data, &labels.data)?;
        let mut gradient = Matrix { data: mul(b, &error, &scale)?, ..soft.probabilities };
        let mut layers = Vec::with_capacity(self.layers.len());
        for (i, layer) in self.layers.iter().enumerate().rev() {
            let input = match i {
                0 => x.clone(),
                _ => Matrix { data: relu(b, &values[i - 1].data)?, ..values[i - 1] },
            };
            let weights = input.transpose(b).product(b, &gradient)?;
            let bias = gradient.sum_rows(b)?;
            if i > 0 {
                let back = gradient.product(b, &layer.weights.transpose(b))?;
                gradient = Matrix { data: passed(b, &values[i - 1].data, &back.data)?, ..back };
            }
            let weights = Matrix { data: descend(b, &layer.weights.data, &weights.data, rate)?, ..weights };
            layers.push(Layer { weights, bias: descend(b, &layer.bias, &bias, rate)? });
        }
        layers.reverse();
        Ok(Step { mlp: Self { layers }, loss })
    }
}

fn constant(b: &AnyBlocks, value: f32, lanes: usize) -> Float {
    Float::constant(b, Format::FLOAT32, u64::from(value.to_bits()), lanes)
}

/// y where x > 0, else +0.
fn passed(b: &mut AnyBlocks, x: &Float, y: &Float) -> Result<Float, Failure> {
    let (plus, nonzero) = (b.not(&x.sign), b.not(&x.zero));
    let positive = b.both(&plus, &nonzero)?;
    let zero = constant(b, 0.0, y.lanes(b));
    choose(b, &positive, y, &zero)
}

/// w − rate·g.
fn descend(b: &mut AnyBlocks, w: &Float, g: &Float, rate: f32) -> Result<Float, Failure> {
    pairwise(b, w, g, |b, w, g| {
        let rate = constant(b, rate, g.lanes(b));
        let step = mul(b, g, &rate)?;
        sub(b, w, &step)
    })
}

/// e^(x − max) / Σ e^(x − max) along the rows.
///
/// # Errors
/// If the blocks fail.
pub fn softmax(b: &mut AnyBlocks, x: &Matrix) -> Result<Matrix, Failure> {
    Ok(softmax_rows(b, x)?.probabilities)
}

fn softmax_rows(b: &mut AnyBlocks, x: &Matrix) -> Result<Softmax, Failure> {
    // Columns as blocks, so that rows are lanes.
    let columns = x.transpose(b).data;
    let most = fold(b, &columns, x.rows, max)?;
    let spread: Vec<_> = (0..x.rows * x.cols).map(|i| i % x.rows).collect();
    let most = most.gather(b, &spread);
    let shifted = sub(b, &columns, &most)?;
    let powers = exp(b, &shifted)?;
    let total = sum(b, &powers, x.rows)?;
    let divisor = total.gather(b, &spread);
    let probabilities = div(b, &powers, &divisor)?;
    let rows = |b: &AnyBlocks, data| Matrix { rows: x.cols, cols: x.rows, data }.transpose(b);
    Ok(Softmax { probabilities: rows(b, probabilities), shifted: rows(b, shifted), total })
}

/// The mean over the rows of ln Σ e^shifted − shifted[label].
fn cross_entropy(b: &mut AnyBlocks, soft: &Softmax, labels: &Matrix) -> Result<Float, Failure> {
    let rows = labels.rows;
    let picked = mul(b, &soft.shifted.data, &labels.data)?;
    let picked = Matrix { data: picked, ..*labels }.transpose(b).data;
    let picked = sum(b, &picked, rows)?;
    let logs = ln(b, &soft.total)?;
    let losses = add(b, &logs, &picked.neg(b))?;
    let total = sum(b, &losses, 1)?;
    let scale = constant(b, 1.0 / rows as f32, 1);
    mul(b, &total, &scale)
}
