//! Rotary positions: pairs of numbers turned by an angle that grows with their place in the text.
//! Number i of a token's first half and of its second are turned by p · base^(−i/half) at position
//! p.
//!
//! Positions are public and the base belongs to the architecture, so cosines and sines stand in the
//! plan: a rotation is local, but for the truncation of its result. They have 16 fraction bits (8
//! on the 32-bit ring), so a result is off by at most 2^−16.5 of the pair's length, and a unit of
//! 2^−f.

use super::call::{Call, axis};
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::gradients::Gradients;
use crate::graph::{Attributes, Id};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::range::Range;
use crate::scale::Scale;
use crate::tensor::Tensor;
use megrez_plan::{Operation, ValueId};
use megrez_ring::Shape;
use std::sync::Arc;

/// The operator's name in a graph; ONNX's RotaryEmbedding takes tables of weights instead. Its
/// input is [.., positions, size].
pub(crate) const ROTATION: &str = "Rotation";

/// By what angles a rotation turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Positions {
    /// The first position.
    pub start: usize,
    /// What the angles' frequencies are powers of.
    pub base: f32,
}

impl Positions {
    /// As attributes of a node.
    pub(crate) fn attributes(self) -> Attributes {
        Attributes::none().with("start", self.start as i64).with("base", self.base)
    }

    /// Cosines and sines [steps, half].
    pub(crate) fn tables(self, steps: usize, half: usize) -> [Tensor; 2] {
        let angle = |i: usize| {
            let exponent = (i % half) as f64 / half as f64;
            (self.start + i / half) as f64 * f64::from(self.base).powf(-exponent)
        };
        [f64::cos, f64::sin]
            .map(|f| Tensor::new([steps, half], (0..steps * half).map(|i| f(angle(i)) as f32).collect()))
    }
}

struct Rotation {
    shape: Shape,
    positions: Positions,
    /// Whether it turns the other way: the gradient.
    back: bool,
}

pub(super) fn rotation(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &["start", "base", "back"])?;
    let shape = call.shape(0)?.clone();
    axis(-2, shape.rank())?;
    let base = call.float("base", 10000.0)?;
    let Ok(start) = usize::try_from(call.int("start", 0)?) else {
        return refuse("`start` is negative", "");
    };
    if shape.dims()[shape.rank() - 1] % 2 != 0 || base < 1.0 || start > 1 << 24 {
        return refuse("takes pairs, a base from 1 and positions below 2^24", "");
    }
    let back = call.int("back", 0)? != 0;
    Ok(Arc::new(Rotation { shape, positions: Positions { start, base }, back }))
}

impl Rotation {
    fn half(&self) -> usize {
        self.shape.dims()[self.shape.rank() - 1] / 2
    }

    /// Cosines, and sines as the first and as the second half of a result takes them, [steps,
    /// size].
    fn factors(&self) -> [Tensor; 2] {
        let (steps, half) = (self.shape.dims()[self.shape.rank() - 2], self.half());
        let [cos, sin] = self.positions.tables(steps, half);
        let sign = if self.back { -1.0 } else { 1.0 };
        let both = |table: &Tensor, first: f32, second: f32| {
            let row = |row: &[f32]| {
                let half = |factor: f32| row.iter().map(move |v| factor * v).collect::<Vec<f32>>();
                [half(first), half(second)].concat()
            };
            Tensor::new([steps, 2 * half], table.data.chunks_exact(half).flat_map(row).collect())
        };
        [both(&cos, 1.0, 1.0), both(&sin, -sign, sign)]
    }

    /// Both halves, exchanged.
    fn exchanged(&self) -> Vec<usize> {
        (self.half()..2 * self.half()).chain(0..self.half()).collect()
    }
}

impl Layer for Rotation {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let [cos, sin] = self.factors();
        let (size, half) = (2 * self.half(), self.half());
        let x = &inputs[0].data;
        let turned = |(i, &v): (usize, &f32)| {
            let at = i % cos.data.len();
            let other = if i % size < half { x[i + half] } else { x[i - half] };
            v * cos.data[at] + other * sin.data[at]
        };
        Tensor::new(self.shape.clone(), x.iter().enumerate().map(turned).collect())
    }

    fn backward(
        &self,
        g: &mut Gradients,
        _inputs: &[Id],
        _output: Id,
        of_output: Id,
        _wanted: &[bool],
    ) -> Result<Vec<Option<Id>>, Refusal> {
        let attributes = self.positions.attributes().with("back", i64::from(!self.back));
        Ok(vec![Some(g.add("input", ROTATION, &[of_output], attributes)?)])
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let x = inputs[0].secret()?;
        let x = Secret { range: x.range.merged(), ..x.clone() };
        let bits = cx.ring() / 4;
        let other = cx.pick("exchanged", &x, self.shape.rank() - 1, &self.exchanged())?;
        let [cos, sin] = self.factors();
        let cos = cx.mul_public("cosines", &x, &cos, bits)?;
        let sin = cx.mul_public("sines", &other, &sin, bits)?;
        // |a·cos + b·sin| ≤ √2 · max(|a|, |b|), and what the roundings of both factors add.
        let most = x.range.magnitude();
        let most = (most << bits).saturating_mul(3) / 2 + 2 * most;
        cx.combine_within("turned", &[(1, &cos), (1, &sin)], 0, Range::uniform(-most, most))
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let x = cx.value(&inputs[0]);
        let (size, rows) = (2 * self.half(), self.shape.elements() / (2 * self.half()));
        let order = self.exchanged();
        let places = (0..rows).flat_map(|row| order.iter().map(move |i| Some(row * size + i)));
        let other = cx.gather("exchanged", &[x], self.shape.clone(), places)?;
        let [cos, sin] = self.factors();
        let (cos, sin) = (cx.public("cosines", &cos)?, cx.public("sines", &sin)?);
        let a = cx.pair("cosine", Operation::Mul, x, cos, &self.shape)?;
        let b = cx.pair("sine", Operation::Mul, other, sin, &self.shape)?;
        cx.pair("turned", Operation::Add, a, b, &self.shape)
    }

    fn scale(&self) -> Scale {
        Scale::Product
    }

    fn work(&self) -> u64 {
        2 * self.shape.elements() as u64
    }
}
