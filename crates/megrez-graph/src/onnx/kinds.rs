//! What secret values stand for. Shares hold numbers; the file's types say which are whole numbers
//! or truth values, and some operators mean something else on those.

use crate::graph::{Attribute, Attributes, Graph, Id};
use crate::problem::{Refusal, refuse};
use std::collections::HashMap;

/// What the elements of a value stand for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Real numbers.
    Real,
    /// Integers.
    Whole,
    /// 0 and 1.
    Bool,
}

impl Kind {
    /// Of an ONNX data type.
    pub(super) fn of(element: i64) -> Self {
        match element {
            1 | 10 | 11 | 16 => Kind::Real,
            9 => Kind::Bool,
            _ => Kind::Whole,
        }
    }

    /// An ONNX data type of this kind.
    pub(super) fn number(self) -> i64 {
        match self {
            Kind::Real => 1,
            Kind::Whole => 7,
            Kind::Bool => 9,
        }
    }

    /// Of an operator's outputs after the first, whose kind is given.
    pub(super) fn of_extra(op: &str, first: Kind) -> Self {
        match op {
            "TopK" | "MaxPool" => Kind::Whole,
            "Dropout" => Kind::Bool,
            "LinearClassifier" | "SVMClassifier" | "TreeEnsembleClassifier" => Kind::Real,
            _ => first,
        }
    }
}

/// The kind of a node's first output; refuses what means something else on integers than on real
/// numbers.
pub(super) fn output_kind(
    graph: &Graph,
    kinds: &HashMap<Id, Kind>,
    op: &str,
    inputs: &[Option<Id>],
    attributes: &Attributes,
) -> Result<Kind, Refusal> {
    let constant = |id: Id| graph.value(id).constant.is_some();
    let kind = |id: Id| match kinds.get(&id) {
        Some(kind) => *kind,
        None if graph.floats(id).is_none() && constant(id) => Kind::Whole,
        None => Kind::Real,
    };
    let of = |i: usize| inputs.get(i).copied().flatten().map_or(Kind::Real, kind);
    let secrets = || inputs.iter().flatten().filter(|id| !constant(**id)).map(|id| kind(*id));
    let whole = secrets().any(|kind| kind != Kind::Real);
    match op {
        "Cast" => match attributes.0.get("to") {
            Some(Attribute::Int(to)) => Ok(Kind::of(*to)),
            _ => refuse("`to` is missing", "export the model again"),
        },
        "CastLike" => Ok(of(1)),
        "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" | "Equal" | "And" | "Or" | "Xor" | "Not"
        | "IsNaN" | "IsInf" => Ok(Kind::Bool),
        "ArgMax" | "ArgMin" | "Shape" | "Size" => Ok(Kind::Whole),
        "Gather" | "GatherElements" | "GatherND" | "ReduceMean" | "AveragePool" | "Reciprocal" | "Sqrt"
            if of(0) == Kind::Real =>
        {
            Ok(Kind::Real)
        }
        "Gather" | "GatherElements" | "GatherND" => Ok(of(0)),
        "Where" => Ok(of(1)),
        "LinearClassifier" | "SVMClassifier" | "TreeEnsembleClassifier" => Ok(Kind::Whole),
        "DequantizeLinear"
        | "Imputer"
        | "LinearRegressor"
        | "Normalizer"
        | "SVMRegressor"
        | "Scaler"
        | "TreeEnsemble"
        | "TreeEnsembleRegressor" => Ok(Kind::Real),
        "LabelEncoder" if attributes.0.keys().any(|name| name == "values_floats") => Ok(Kind::Real),
        "ConvInteger" | "LabelEncoder" | "MatMulInteger" | "QLinearConv" | "QLinearMatMul"
        | "QuantizeLinear" => Ok(Kind::Whole),
        "OneHotEncoder" => Ok(Kind::Real),
        "Attention" if of(3) == Kind::Bool && inputs[3].is_some_and(|id| !constant(id)) => refuse(
            "has a secret mask of truth values",
            "make the mask a constant, or add numbers to the scores",
        ),
        "Attention" | "RotaryEmbedding" => Ok(Kind::Real),
        "Div" | "Pow" | "ReduceMean" | "AveragePool" | "Reciprocal" | "Sqrt" if whole => refuse(
            "computes with secret integers, which it would have to round",
            "cast them to float32 before",
        ),
        _ if whole => Ok(Kind::Whole),
        _ => Ok(Kind::Real),
    }
}
