//! The layers: one file per operator or tight family, one line in the registry.
//!
//! A layer is a node that has been understood: attributes checked, constants read, output shape known. It says how to
//! compute in the clear (the oracle) and how to compute on secret values (a few primitive steps). The range of its
//! output follows from the steps that it emits, unless it knows a tighter one.

mod appendix_b;
mod arithmetic;
mod average_pool;
mod batch_norm;
mod choose;
mod clip;
mod concat;
mod conv;
mod embedding;
mod erf;
mod exp;
mod gelu;
mod gemm;
mod known;
mod layer_norm;
mod leaky_relu;
mod lines;
mod matmul;
mod max_pool;
mod octaves;
mod pad;
mod polynomial;
mod rearrange;
mod reduce;
mod relu;
mod revealed;
mod roots;
mod shape;
mod sigmoid;
mod softmax;
mod spline;
mod swish;
mod tanh;
mod window;

pub use revealed::After;
pub use spline::spline_error;

use crate::float::{FloatLowering, FloatOperand};
use crate::graph::{Attribute, Attributes, Constant, Graph, Id, Tensor};
use crate::lower::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use megrez_plan::{ValueId, View};
use megrez_ring::Shape;
use std::sync::Arc;

pub(crate) use batch_norm::channel_affine;
pub(crate) use softmax::MASKED;

/// An operator applied to operands of known shapes.
pub trait Layer: Send + Sync {
    /// The output's dimensions.
    fn shape(&self) -> &Shape;

    /// Computes in the clear. `inputs` are the node's inputs in order, omitted ones left out; constants included.
    fn plain(&self, inputs: &[&Tensor]) -> Tensor;

    /// Emits the steps that compute on secret values. At least one of `inputs` is secret; omitted inputs are left out.
    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal>;

    /// Emits the steps that compute in floating point, for layers that have such a form.
    fn float(&self, _cx: &mut FloatLowering, _inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        refuse("has no floating-point form yet", "run the model in fixed point: --numbers fixed")
    }

    /// What the layer does to the number of fraction bits.
    fn scale(&self) -> Scale {
        Scale::Passes
    }

    /// The layer as a rearrangement of its first input; every other input only steers it.
    fn view(&self) -> Option<&View> {
        None
    }

    /// The elements of the output if they follow from shapes or from integer constants alone.
    fn fold_ints(&self, _inputs: &[&Tensor<i64>]) -> Option<Tensor<i64>> {
        None
    }

    /// The result, where shapes and constants alone decide it.
    fn known(&self) -> Option<Constant> {
        None
    }

    /// Whether x ≤ y implies f(x) ≤ f(y), element by element: only then may the layer trade places with a maximum.
    fn non_decreasing(&self) -> bool {
        false
    }

    /// The layer as work for the recipient, on what is revealed to them.
    fn after(&self) -> Option<After> {
        None
    }

    /// Multiplications or comparisons in the clear, roughly: what a report divides times by.
    fn work(&self) -> u64 {
        self.shape().elements() as u64
    }
}

/// What a layer does to the number of fraction bits, for the placement of truncations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Takes any scale and keeps it: comparisons, sums, rearrangements.
    Passes,
    /// Takes any scale; adds fraction bits without a product (division by 2^bits), and needs as many bits of room.
    Divides {
        /// The bits added.
        bits: u32,
    },
    /// Multiplies: takes operands that have been truncated, gives a product that must be truncated before the next one.
    Product,
    /// Multiplies, but truncates its operand itself after having made it smaller.
    ShrinksThenProduct,
}

/// Understands a node or says why not.
type Understand = fn(&Call) -> Result<Arc<dyn Layer>, Refusal>;

/// Every operator.
const REGISTRY: &[(&str, Understand)] = &[
    ("Add", arithmetic::add),
    ("And", known::and),
    ("ArgMax", revealed::arg_max),
    ("AveragePool", average_pool::average_pool),
    ("BatchNormalization", batch_norm::batch_norm),
    ("Cast", rearrange::cast),
    ("Clip", clip::clip),
    ("Concat", concat::concat),
    ("Constant", rearrange::constant),
    ("ConstantOfShape", known::constant_of_shape),
    ("Conv", conv::conv),
    ("CumSum", known::cumulative_sum),
    ("Div", arithmetic::div),
    ("Dropout", rearrange::dropout),
    ("Equal", known::equal),
    ("Erf", erf::erf),
    ("Exp", exp::exp),
    ("Expand", rearrange::expand),
    ("Flatten", rearrange::flatten),
    ("Gather", shape::gather),
    ("GatherElements", known::gather_elements),
    ("Gelu", gelu::gelu),
    ("Gemm", gemm::gemm),
    ("GlobalAveragePool", average_pool::global_average_pool),
    ("Greater", known::greater),
    ("GreaterOrEqual", known::greater_or_equal),
    ("Identity", rearrange::identity),
    ("IsNaN", known::is_nan),
    ("LayerNormalization", layer_norm::layer_norm),
    ("LeakyRelu", leaky_relu::leaky_relu),
    ("Less", known::less),
    ("LessOrEqual", known::less_or_equal),
    ("Log", roots::log),
    ("LogSoftmax", softmax::log_softmax),
    (MASKED, softmax::masked_softmax),
    ("MatMul", matmul::matmul),
    ("Max", arithmetic::max),
    ("MaxPool", max_pool::max_pool),
    ("Min", arithmetic::min),
    ("Mod", known::modulo),
    ("Mul", arithmetic::mul),
    ("Neg", arithmetic::neg),
    ("Not", known::not),
    ("Or", known::or),
    ("Pad", pad::pad),
    ("Pow", roots::pow),
    ("Range", known::range),
    ("Reciprocal", roots::reciprocal),
    ("ReduceMax", reduce::max),
    ("ReduceMean", reduce::mean),
    ("ReduceMin", reduce::min),
    ("ReduceProd", known::product),
    ("ReduceSum", reduce::sum),
    ("Relu", relu::relu),
    ("Reshape", rearrange::reshape),
    ("Shape", shape::shape),
    ("Sigmoid", sigmoid::sigmoid),
    ("Size", known::size),
    ("Slice", rearrange::slice),
    ("Softmax", softmax::softmax),
    ("Sqrt", roots::sqrt),
    ("Squeeze", rearrange::squeeze),
    ("Sub", arithmetic::sub),
    ("Swish", swish::swish),
    ("Tanh", tanh::tanh),
    ("Transpose", rearrange::transpose),
    ("Trilu", known::trilu),
    ("Unsqueeze", rearrange::unsqueeze),
    ("Where", choose::choose),
    ("Xor", known::xor),
];

/// Every operator that megrez understands, sorted.
pub fn supported() -> impl Iterator<Item = &'static str> {
    REGISTRY.iter().map(|(op, _)| *op)
}

/// Whether megrez understands an operator.
pub fn is_supported(op: &str) -> bool {
    REGISTRY.iter().any(|(known, _)| *known == op)
}

/// The layer of a call.
pub(crate) fn understand(op: &str, call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    match REGISTRY.iter().find(|(known, _)| *known == op) {
        Some((_, understand)) => understand(call),
        None => refuse("the operator is not supported", hint(op)),
    }
}

/// What to do instead of an operator that megrez lacks.
pub(crate) fn hint(op: &str) -> &'static str {
    match op {
        "Elu" | "Selu" | "Softplus" | "HardSigmoid" | "HardSwish" | "Mish" => {
            "train with Relu, Sigmoid, Tanh, Gelu, LeakyRelu or Clip (relu6), or move it behind the output where the recipient applies it"
        }
        "InstanceNormalization" | "GroupNormalization" | "LpNormalization" | "LRN" => {
            "use BatchNormalization, which costs nothing once folded into the layer before it, or LayerNormalization"
        }
        "LSTM" | "GRU" | "RNN" | "Loop" | "If" | "Scan" => "unroll it when you export the model",
        "ConvTranspose" | "Upsample" | "Resize" => {
            "use strided views of a Conv: upsampling is not supported yet"
        }
        "GlobalMaxPool" => "use MaxPool with the size of the image as its kernel",
        "QuantizeLinear" | "DequantizeLinear" | "QLinearConv" | "QLinearMatMul" | "ConvInteger" => {
            "export the model in float32: megrez quantises to fixed point itself"
        }
        _ => "remove it, replace it by a supported operator, or ask for it",
    }
}

/// A node while it is being understood.
pub struct Call<'a> {
    /// The graph so far.
    pub graph: &'a Graph,
    /// The node's attributes.
    pub attributes: &'a Attributes,
    /// The node's inputs.
    pub inputs: &'a [Option<Id>],
}

impl Call<'_> {
    /// Refuses attributes other than these, and more inputs than `inputs`: what is not understood is not ignored.
    fn only(&self, inputs: usize, attributes: &[&str]) -> Result<(), Refusal> {
        if self.inputs.len() > inputs {
            return refuse(format!("has {} inputs, takes {inputs}", self.inputs.len()), "");
        }
        match self.attributes.0.keys().find(|name| !attributes.contains(&name.as_str())) {
            Some(name) => refuse(format!("the attribute `{name}` is not supported"), "remove it"),
            None => Ok(()),
        }
    }

    fn id(&self, input: usize) -> Result<Id, Refusal> {
        match self.inputs.get(input) {
            Some(Some(id)) => Ok(*id),
            _ => refuse(format!("input {input} is missing"), ""),
        }
    }

    fn has(&self, input: usize) -> bool {
        matches!(self.inputs.get(input), Some(Some(_)))
    }

    /// The shape of an input that holds real numbers.
    fn shape(&self, input: usize) -> Result<&Shape, Refusal> {
        let value = self.graph.value(self.id(input)?);
        match value.constant {
            Some(Constant::Ints(_)) => {
                refuse(format!("input {input} (`{}`) holds integers", value.name), "use float32")
            }
            _ => Ok(&value.shape),
        }
    }

    /// The shape of an input of any type.
    fn any_shape(&self, input: usize) -> Result<&Shape, Refusal> {
        Ok(self.graph.shape(self.id(input)?))
    }

    /// An input that must be weights of the model.
    fn floats(&self, input: usize) -> Result<&Arc<Tensor>, Refusal> {
        let id = self.id(input)?;
        match self.graph.floats(id) {
            Some(t) => Ok(t),
            None => refuse(
                format!("input {input} (`{}`) must be a constant of the model", self.graph.value(id).name),
                "",
            ),
        }
    }

    fn is_constant(&self, input: usize) -> bool {
        self.id(input).is_ok_and(|id| self.graph.value(id).constant.is_some())
    }

    /// A real number given as attribute (older opsets) or as a constant input.
    fn number(&self, input: usize, attribute: &str) -> Result<Option<f32>, Refusal> {
        if !self.has(input) {
            return Ok(match self.attributes.0.get(attribute) {
                Some(Attribute::Float(v)) => Some(*v),
                Some(_) => return refuse(format!("`{attribute}` is not a number"), ""),
                None => None,
            });
        }
        match self.floats(input)?.data[..] {
            [v] => Ok(Some(v)),
            _ => refuse(format!("input {input} is not one number"), ""),
        }
    }

    /// Integers given as attribute (older opsets) or as a constant input.
    fn integers(&self, input: usize, attribute: &str) -> Result<Option<Vec<i64>>, Refusal> {
        if !self.has(input) {
            return self.ints(attribute);
        }
        let value = self.graph.value(self.id(input)?);
        match &value.constant {
            Some(Constant::Ints(t)) => Ok(Some(t.data.clone())),
            _ => refuse(
                format!("input {input} (`{}`) must be integers known when compiling", value.name),
                "export the model with static shapes",
            ),
        }
    }

    fn int(&self, name: &str, default: i64) -> Result<i64, Refusal> {
        match self.attributes.0.get(name) {
            Some(Attribute::Int(v)) => Ok(*v),
            Some(_) => refuse(format!("`{name}` is not an integer"), ""),
            None => Ok(default),
        }
    }

    fn float(&self, name: &str, default: f32) -> Result<f32, Refusal> {
        match self.attributes.0.get(name) {
            Some(Attribute::Float(v)) if v.is_finite() => Ok(*v),
            Some(_) => refuse(format!("`{name}` is not a finite number"), ""),
            None => Ok(default),
        }
    }

    fn string(&self, name: &str, default: &str) -> Result<String, Refusal> {
        match self.attributes.0.get(name) {
            Some(Attribute::String(v)) => Ok(v.clone()),
            Some(_) => refuse(format!("`{name}` is not a string"), ""),
            None => Ok(default.into()),
        }
    }

    fn ints(&self, name: &str) -> Result<Option<Vec<i64>>, Refusal> {
        match self.attributes.0.get(name) {
            Some(Attribute::Ints(v)) => Ok(Some(v.clone())),
            Some(_) => refuse(format!("`{name}` is not a list of integers"), ""),
            None => Ok(None),
        }
    }

    /// A list of `N` small non-negative integers.
    fn sizes<const N: usize>(&self, name: &str, default: [usize; N]) -> Result<[usize; N], Refusal> {
        let Some(list) = self.ints(name)? else { return Ok(default) };
        let sizes: Vec<usize> =
            list.iter().filter_map(|&v| usize::try_from(v).ok()).filter(|&v| v < 1 << 24).collect();
        match <[usize; N]>::try_from(sizes) {
            Ok(sizes) if list.len() == N => Ok(sizes),
            _ => refuse(format!("`{name}` = {list:?} is not {N} sizes"), "only 2-D images are supported"),
        }
    }
}

/// A dimension counted from the end if negative.
fn axis(axis: i64, rank: usize) -> Result<usize, Refusal> {
    let from_start = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
    match from_start.and_then(|a| usize::try_from(a).ok()) {
        Some(a) if a < rank => Ok(a),
        _ => refuse(format!("axis {axis} is outside of {rank} dimensions"), ""),
    }
}

/// The four dimensions of a batch of images.
fn image(shape: &Shape) -> Result<[usize; 4], Refusal> {
    match shape.dims().try_into() {
        Ok(dims) => Ok(dims),
        Err(_) => refuse(format!("takes images [N, C, H, W], got {shape}"), "only 2-D images are supported"),
    }
}
