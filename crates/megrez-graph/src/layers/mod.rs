//! The layers: one file per operator or tight family, one line in the registry. Operators that are
//! made of others are in `decompose`.

mod adaptive;
mod affine;
mod appendix_b;
mod arithmetic;
mod average_pool;
mod average_pool_grad;
mod batch_norm;
pub(crate) mod call;
mod choose;
mod clip;
mod compare;
mod concat;
mod conv;
mod conv_grad;
mod cross_entropy;
mod curve;
mod embedding;
mod erf;
mod exact;
mod exp;
mod fine;
mod function;
mod gelu;
mod gemm;
mod known;
mod layer_norm;
mod leaky_relu;
mod lines;
mod matmul;
mod max_pool;
mod max_pool_grad;
mod octaves;
mod pad;
mod picked;
mod pieces;
mod polynomial;
mod private;
mod published;
mod rank;
mod rearrange;
mod reduce;
mod relu;
mod relu_grad;
mod revealed;
mod roots;
mod rotation;
mod shape;
mod sigmoid;
mod sine;
mod sliding;
mod softmax;
mod spline;
mod swish;
mod table;
mod tanh;
mod trees;
mod update;
mod window;
mod winner;

pub use crate::after::After;
pub use crate::layer::Layer;
pub use crate::scale::Scale;
pub use call::Call;
pub use spline::spline_error;

pub(crate) use crate::decompose::{FLATTENED, NOT_ZERO, SCALED_BACK, TO_TYPE};
pub(crate) use crate::gradients::AFFINE;
pub(crate) use adaptive::ADAPTIVE;
pub(crate) use average_pool_grad::AVERAGE_POOL_GRAD;
pub(crate) use batch_norm::channel_affine;
pub(crate) use call::FIXED_ONLY;
pub(crate) use call::{axis, image};
pub(crate) use choose::{CHOOSE, CHOSEN};
pub(crate) use compare::{EQUAL, LESS, LESS_OR_EQUAL, NOT_NEGATIVE, POSITIVE, TOWARDS_ZERO, ZERO};
pub(crate) use conv_grad::{CONV_GRAD_INPUT, CONV_GRAD_ROWS, CONV_GRAD_WEIGHT};
pub(crate) use cross_entropy::{CROSS_ENTROPY, SOFTMAX_CROSS_ENTROPY};
pub(crate) use curve::CURVE;
pub(crate) use function::FUNCTION;
pub(crate) use layer_norm::INVERSE_DEVIATION;
pub(crate) use lines::Lines;
pub(crate) use max_pool_grad::MAX_POOL_GRAD;
pub(crate) use picked::PICKED;
pub(crate) use polynomial::POLYNOMIAL;
pub(crate) use private::{NOISY_SUM, ROW_SCALE};
pub(crate) use published::PUBLISHED;
pub(crate) use rank::{MOST as MOST_RANKED, RANK};
pub(crate) use relu_grad::RELU_GRAD;
pub(crate) use revealed::LABELS;
pub(crate) use rotation::{Positions, ROTATION};
pub(crate) use softmax::MASKED;
pub(crate) use spline::GELU_SLOPE_OP;
pub(crate) use trees::{Forest, Next, TREES, Test};
pub(crate) use update::{MOMENTUM_BITS, UPDATE};
pub(crate) use winner::WINNER;

use crate::decompose::{decomposed, decomposition};
use crate::problem::{Refusal, refuse};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Understands a node or says why not.
type Understand = fn(&Call) -> Result<Arc<dyn Layer>, Refusal>;

/// Every operator.
const REGISTRY: &[(&str, Understand)] = &[
    ("Abs", relu::abs),
    ("Add", arithmetic::add),
    (ADAPTIVE, adaptive::adaptive),
    (AFFINE, affine::affine),
    ("And", known::and),
    ("ArgMax", revealed::arg_max),
    ("AveragePool", average_pool::average_pool),
    (AVERAGE_POOL_GRAD, average_pool_grad::average_pool_grad),
    ("BatchNormalization", batch_norm::batch_norm),
    ("Cast", rearrange::cast),
    ("Ceil", compare::ceil),
    (CHOOSE, choose::choose_secretly),
    (FUNCTION, function::function),
    (CHOSEN, choose::chosen),
    ("Clip", clip::clip),
    ("Concat", concat::concat),
    ("Constant", rearrange::constant),
    ("ConstantOfShape", known::constant_of_shape),
    ("Conv", conv::conv),
    (CONV_GRAD_INPUT, conv_grad::conv_grad_input),
    (CONV_GRAD_ROWS, conv_grad::conv_grad_rows),
    (CONV_GRAD_WEIGHT, conv_grad::conv_grad_weight),
    ("Cos", sine::cosine),
    (CROSS_ENTROPY, cross_entropy::loss),
    ("CumSum", known::cumulative_sum),
    (CURVE, curve::curve),
    ("Div", arithmetic::div),
    ("Dropout", rearrange::dropout),
    ("Equal", known::equal),
    ("Erf", erf::erf),
    ("Exp", exp::exp),
    ("Expand", rearrange::expand),
    ("Flatten", rearrange::flatten),
    ("Floor", compare::floor),
    ("Gather", shape::gather),
    ("GatherElements", known::gather_elements),
    ("Gelu", gelu::gelu),
    (GELU_SLOPE_OP, gelu::gelu_slope),
    ("Gemm", gemm::gemm),
    ("GlobalAveragePool", average_pool::global_average_pool),
    ("Greater", known::greater),
    ("GreaterOrEqual", known::greater_or_equal),
    ("Identity", rearrange::identity),
    (INVERSE_DEVIATION, layer_norm::inverse_deviation),
    ("IsInf", known::is_infinite),
    ("IsNaN", known::is_nan),
    (EQUAL, compare::equal),
    (LESS, compare::less),
    (LESS_OR_EQUAL, compare::less_or_equal),
    (NOT_NEGATIVE, compare::not_negative),
    (POSITIVE, compare::positive),
    (ZERO, compare::zero),
    (LABELS, revealed::labels),
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
    (MAX_POOL_GRAD, max_pool_grad::max_pool_grad),
    ("Min", arithmetic::min),
    ("Mod", known::modulo),
    ("Mul", arithmetic::mul),
    ("Neg", arithmetic::neg),
    (NOISY_SUM, private::noisy_sum),
    ("Not", known::not),
    ("Or", known::or),
    ("Pad", pad::pad),
    (POLYNOMIAL, polynomial::layer),
    ("Pow", roots::pow),
    ("Range", known::range),
    (PUBLISHED, published::published),
    ("RMSNormalization", layer_norm::rms_norm),
    (RANK, rank::rank),
    ("Reciprocal", roots::reciprocal),
    ("ReduceMax", reduce::max),
    ("ReduceMean", reduce::mean),
    ("ReduceMin", reduce::min),
    ("ReduceProd", known::product),
    ("ReduceSum", reduce::sum),
    ("Relu", relu::relu),
    (RELU_GRAD, relu_grad::relu_grad),
    ("Reshape", rearrange::reshape),
    (ROTATION, rotation::rotation),
    ("Round", compare::round),
    (ROW_SCALE, private::row_scale),
    ("Shape", shape::shape),
    ("Sigmoid", sigmoid::sigmoid),
    ("Sign", compare::sign),
    ("Sin", sine::sine),
    ("Size", known::size),
    ("Slice", rearrange::slice),
    ("Softmax", softmax::softmax),
    (SOFTMAX_CROSS_ENTROPY, cross_entropy::gradient),
    ("Sqrt", roots::sqrt),
    ("Squeeze", rearrange::squeeze),
    ("Sub", arithmetic::sub),
    ("Swish", swish::swish),
    ("Tanh", tanh::tanh),
    (TOWARDS_ZERO, compare::towards_zero),
    ("Transpose", rearrange::transpose),
    (TREES, trees::trees),
    ("Trilu", known::trilu),
    (UPDATE, update::update),
    ("Unsqueeze", rearrange::unsqueeze),
    ("Where", choose::choose),
    (PICKED, picked::picked),
    (WINNER, winner::winner),
    ("Xor", known::xor),
];

/// What decompositions and passes write; no file may.
const INTERNAL: [&str; 38] = [
    ADAPTIVE,
    AFFINE,
    AVERAGE_POOL_GRAD,
    CHOOSE,
    CHOSEN,
    CONV_GRAD_INPUT,
    CONV_GRAD_ROWS,
    CONV_GRAD_WEIGHT,
    CROSS_ENTROPY,
    CURVE,
    EQUAL,
    FUNCTION,
    GELU_SLOPE_OP,
    INVERSE_DEVIATION,
    LABELS,
    LESS,
    LESS_OR_EQUAL,
    MAX_POOL_GRAD,
    RELU_GRAD,
    ROTATION,
    SOFTMAX_CROSS_ENTROPY,
    UPDATE,
    MASKED,
    NOT_NEGATIVE,
    NOISY_SUM,
    NOT_ZERO,
    PICKED,
    POLYNOMIAL,
    POSITIVE,
    PUBLISHED,
    RANK,
    ROW_SCALE,
    SCALED_BACK,
    TOWARDS_ZERO,
    TREES,
    WINNER,
    ZERO,
    "Constant",
];
/// What the importer takes apart before there is a graph.
const OF_FILES: [&str; 13] = [
    "CastLike",
    "ConcatFromSequence",
    "Constant",
    "If",
    "Loop",
    "Scan",
    "SequenceAt",
    "SequenceConstruct",
    "SequenceEmpty",
    "SequenceErase",
    "SequenceInsert",
    "SequenceLength",
    "SplitToSequence",
];

/// Every operator of ONNX that a model may have, of its default domain and of `ai.onnx.ml`.
pub fn supported() -> BTreeSet<&'static str> {
    let known = REGISTRY.iter().map(|(op, _)| *op).chain(decomposed());
    known.filter(|op| !INTERNAL.contains(op)).chain(OF_FILES).collect()
}

/// Every operator of the table, those that no model may have among them.
#[doc(hidden)]
pub fn registered() -> impl Iterator<Item = &'static str> {
    REGISTRY.iter().map(|(op, _)| *op)
}

/// Whether a model may have an operator.
pub fn is_supported(op: &str) -> bool {
    let known = REGISTRY.iter().any(|(known, _)| *known == op) || decomposition(op).is_some();
    OF_FILES.contains(&op) || (known && !INTERNAL.contains(&op))
}

/// The layer of a call.
pub(crate) fn understand(op: &str, call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    match REGISTRY.iter().find(|(known, _)| *known == op) {
        Some((_, understand)) => understand(call),
        None => refuse("the operator is not supported", hint(op)),
    }
}

/// What to do instead of an operator that megrez lacks.
pub(crate) fn hint(op: &str) -> String {
    let known = match op {
        "Unique" | "NonZero" | "NonMaxSuppression" => {
            "end the model before it: the size of its result depends on the data, which is secret"
        }
        "Bernoulli" | "RandomUniform" | "RandomUniformLike" | "RandomNormal" | "RandomNormalLike"
        | "Multinomial" => "call `model.eval()` before you export the model: nothing here is drawn at random",
        "DynamicQuantizeLinear" => {
            "its scale depends on the data, which is secret: quantise with fixed scales (quantize_static), or use \
             the model in float32, which is more exact and costs less"
        }
        _ => "",
    };
    let names = supported();
    let nearest = names.iter().map(|name| distance(op, name)).min().filter(|&distance| distance <= 2);
    let near = names.into_iter().filter(|name| Some(distance(op, name)) == nearest).collect::<Vec<_>>();
    match (known, &near[..]) {
        ("", []) => {
            "remove it, or replace it by a supported operator: `megrez operators` lists them, and docs/operators.md".into()
        }
        ("", near) => format!("did you mean {}?", near.join(" or ")),
        (known, _) => known.into(),
    }
}

/// How many letters one name must change, lose or gain to become another; 3 stands for more.
fn distance(a: &str, b: &str) -> usize {
    if a.len().abs_diff(b.len()) > 2 || a.len() > 64 {
        return 3;
    }
    let (a, b) = (a.to_lowercase().into_bytes(), b.to_lowercase().into_bytes());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = changed.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()].min(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_nearly_right_are_guessed() {
        assert_eq!(hint("Sofmax"), "did you mean Softmax?");
        assert_eq!(hint("relu"), "did you mean Relu?");
        assert!(hint("StringNormalizer").contains("megrez operators"));
        assert!(hint("Unique").contains("depends on the data"));
        assert_eq!((distance("Add", "Add"), distance("Add", "And"), distance("Add", "Softmax")), (0, 1, 3));
    }
}
