//! BatchNormalization at inference: a scale and an offset per channel. Folded into the linear layer
//! before it where there is one (`passes::batch_norm`); else one product and one addition.

use super::call::Call;
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::gradients::Gradients;
use crate::graph::{Attributes, Id};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::scale::Scale;
use crate::tensor::Tensor;
use megrez_plan::{Operation, ValueId};
use megrez_ring::Shape;
use std::sync::Arc;

struct BatchNorm {
    shape: Shape,
    scale: Tensor,
    offset: Tensor,
}

pub(super) fn batch_norm(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(5, &["epsilon", "momentum", "spatial", "training_mode"])?;
    let shape = call.shape(0)?.clone();
    let &[_, channels, ref rest @ ..] = shape.dims() else {
        return refuse(format!("takes [N, C, …], got {shape}"), "");
    };
    if call.int("training_mode", 0)? != 0 {
        return refuse("is in training mode", "call `model.eval()` before you export the model");
    }
    if call.int("spatial", 1)? != 1 {
        return refuse("`spatial` = 0 is not supported", "normalise per channel");
    }
    let mut parameters = [&[][..]; 4];
    for (i, parameter) in parameters.iter_mut().enumerate() {
        let tensor = call.floats(i + 1)?;
        if tensor.shape != Shape::from([channels]) {
            return refuse(format!("input {} does not have {channels} elements", i + 1), "");
        }
        *parameter = &tensor.data[..];
    }
    let epsilon = call.float("epsilon", 1e-5)?;
    let [scale, offset] = channel_affine(parameters, epsilon)?;
    let mut per_channel = vec![channels];
    per_channel.extend(rest.iter().map(|_| 1));
    let scale = Tensor::new(per_channel.clone(), scale);
    Ok(Arc::new(BatchNorm { shape, scale, offset: Tensor::new(per_channel, offset) }))
}

/// The scale and the offset per channel of scale, bias, mean and variance: a·x + b.
pub(crate) fn channel_affine(
    [scale, bias, mean, variance]: [&[f32]; 4],
    epsilon: f32,
) -> Result<[Vec<f32>; 2], Refusal> {
    let factor = |c: usize| f64::from(scale[c]) / (f64::from(variance[c]) + f64::from(epsilon)).sqrt();
    let a: Vec<f32> = (0..scale.len()).map(|c| factor(c) as f32).collect();
    let b: Vec<f32> =
        (0..scale.len()).map(|c| (f64::from(bias[c]) - f64::from(mean[c]) * factor(c)) as f32).collect();
    if a.iter().chain(&b).any(|v| !v.is_finite()) {
        return refuse(
            "a channel's variance plus epsilon is not positive, or its numbers are not finite",
            "",
        );
    }
    Ok([a, b])
}

impl Layer for BatchNorm {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let channels = self.scale.data.len();
        let area = self.shape.elements() / (self.shape.dims()[0] * channels);
        let affine = |(i, &x): (usize, &f32)| {
            let c = i / area % channels;
            (f64::from(x) * f64::from(self.scale.data[c]) + f64::from(self.offset.data[c])) as f32
        };
        Tensor::new(self.shape.clone(), inputs[0].data.iter().enumerate().map(affine).collect())
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let y = cx.mul_weight("product", inputs[0].secret()?, &self.scale)?;
        cx.bias(&y, &self.offset)
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let (x, scale) = (cx.value(&inputs[0]), cx.weights(self.scale.clone()));
        let y = cx.pair("product", Operation::Mul, x, scale, &self.shape)?;
        let offset = cx.weights(self.offset.clone());
        cx.pair("sum", Operation::Add, y, offset, &self.shape)
    }

    fn backward(
        &self,
        g: &mut Gradients,
        inputs: &[Id],
        _output: Id,
        of_output: Id,
        _wanted: &[bool],
    ) -> Result<Vec<Option<Id>>, Refusal> {
        // Scale and offset are constants, so frozen.
        let scale = g.constant("scale", self.scale.clone());
        let mut of_inputs = vec![None; inputs.len()];
        of_inputs[0] = Some(g.add("input", "Mul", &[of_output, scale], Attributes::none())?);
        Ok(of_inputs)
    }

    fn scale(&self) -> Scale {
        Scale::Product
    }

    fn work(&self) -> u64 {
        self.shape.elements() as u64
    }
}
