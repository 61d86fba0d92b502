//! The layers: one file per operator or tight family, one line in the registry.

mod appendix_b;
mod arithmetic;
mod average_pool;
mod batch_norm;
pub(crate) mod call;
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

pub use crate::after::After;
pub use crate::layer::Layer;
pub use crate::scale::Scale;
pub use call::Call;
pub use spline::spline_error;

pub(crate) use batch_norm::channel_affine;
pub(crate) use softmax::MASKED;

use crate::problem::{Refusal, refuse};
use std::sync::Arc;

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
