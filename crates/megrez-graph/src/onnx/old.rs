//! Operator sets below 7, which nobody exports any more and old files still have: broadcasting had
//! to be asked for, and some attributes had other names, places or defaults. A node becomes what it
//! is in set 7.

use super::importer::Importer;
use crate::graph::{Attribute, Attributes, Id};
use crate::problem::{Refusal, refuse};
use crate::tensor::Tensor;

/// What to do about a model in training mode.
const EVAL: &str = "call `model.eval()` before you export the model";

/// Says a node of an operator set below 7 as set 7 says it.
///
/// # Errors
/// What trains, and shapes that would have had to be equal.
pub(super) fn update(
    importer: &mut Importer,
    opset: i64,
    op: &str,
    inputs: &mut [Option<Id>],
    attributes: &mut Attributes,
) -> Result<(), Refusal> {
    let given = &mut attributes.0;
    // Where memory could be used again: a hint.
    given.remove("consumed_inputs");
    let int = |value: Option<Attribute>| match value {
        Some(Attribute::Int(v)) => Some(v),
        _ => None,
    };
    match op {
        "Add" | "Sub" | "Mul" | "Div" | "Pow" | "And" | "Or" | "Xor" | "Equal" | "Greater" | "Less" => {
            let broadcast = int(given.remove("broadcast")).unwrap_or(0) != 0;
            let axis = int(given.remove("axis"));
            let [Some(a), Some(b)] = inputs[..] else { return Ok(()) };
            let (a, mut to) = (importer.graph.shape(a).clone(), importer.graph.shape(b).dims().to_vec());
            if !broadcast && to != a.dims() {
                return refuse("its inputs differ in shape, and it does not broadcast", "export it again");
            }
            // The axis of the first input at which the second begins.
            let Some(axis) = axis.filter(|_| broadcast) else { return Ok(()) };
            let rank = a.rank() as i64;
            let axis = if axis < 0 { axis + rank } else { axis };
            let after = rank - axis - to.len() as i64;
            if !(0..=8).contains(&after) {
                return refuse(format!("broadcasts at axis {axis}, which does not fit its inputs"), "");
            }
            to.extend((0..after).map(|_| 1));
            inputs[1] = Some(reshape(importer, b, &to)?);
        }
        // A slope for each channel, whatever comes after it.
        "PRelu" => {
            let [Some(x), Some(slope)] = inputs[..] else { return Ok(()) };
            let (rank, slopes) = (importer.graph.shape(x).rank(), importer.graph.shape(slope).elements());
            if importer.graph.shape(slope).rank() == 1 && slopes > 1 && rank > 2 {
                let to: Vec<usize> = [slopes].into_iter().chain((2..rank).map(|_| 1)).collect();
                inputs[1] = Some(reshape(importer, slope, &to)?);
            }
        }
        "Gemm" => drop(given.remove("broadcast")),
        "BatchNormalization" | "Dropout" if int(given.remove("is_test")).unwrap_or(0) == 0 => {
            return refuse("is in training mode (`is_test` is not set)", EVAL);
        }
        "Concat" if opset < 4 => {
            given.entry("axis".into()).or_insert(Attribute::Int(1));
        }
        "Pad" => {
            if let Some(pads) = given.remove("paddings") {
                given.insert("pads".into(), pads);
            }
        }
        "Selu" if opset < 6 => {
            given.entry("alpha".into()).or_insert(Attribute::Float(1.6732));
            given.entry("gamma".into()).or_insert(Attribute::Float(1.0507));
        }
        "Cast" => {
            if let Some(Attribute::String(name)) = given.get("to") {
                let Some(to) = ELEMENTS.iter().position(|element| element == name) else {
                    return refuse(format!("casts to {name}"), "export the model in float32");
                };
                given.insert("to".into(), Attribute::Int(to as i64));
            }
        }
        // What these said with inputs and attributes meant something else.
        "Tile" | "Upsample" | "LpPool" | "GlobalLpPool" | "RNN" | "GRU" | "LSTM" if opset < 7 => {
            let known = match op {
                "Tile" => opset >= 6,
                "LpPool" | "GlobalLpPool" => opset >= 2,
                _ => false,
            };
            if !known {
                return refuse(format!("means something else in operator set {opset}"), "export it again");
            }
        }
        _ => {}
    }
    Ok(())
}

/// The names of ONNX's data types, by number.
const ELEMENTS: [&str; 12] = [
    "UNDEFINED",
    "FLOAT",
    "UINT8",
    "INT8",
    "UINT16",
    "INT16",
    "INT32",
    "INT64",
    "STRING",
    "BOOL",
    "FLOAT16",
    "DOUBLE",
];

fn reshape(importer: &mut Importer, x: Id, to: &[usize]) -> Result<Id, Refusal> {
    let dims = to.iter().map(|&d| d as i64).collect::<Vec<_>>();
    let shape = importer.graph.constant("shape", Tensor::new([dims.len()], dims));
    let name = importer.graph.value(x).name.clone();
    let added = importer.graph.add(&name, "Reshape", &[x, shape], Attributes::none());
    added.map_err(|p| Refusal { what: p.what, remedy: p.remedy, cause: p.cause })
}
