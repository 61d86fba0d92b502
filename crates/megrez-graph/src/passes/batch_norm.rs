//! A BatchNormalization right after a Conv, Gemm or MatMul becomes part of its weights.

use super::rewrite::Rewrite;
use crate::graph::{Attribute, Attributes, Graph, Id, Node};
use crate::layers::channel_affine;
use crate::problem::{Problem, Refusal};
use crate::tensor::Tensor;
use std::collections::HashMap;

/// Folds every BatchNormalization that directly follows a linear layer with constant weights, of
/// which it is the only reader. Others stay and are lowered as a product and a sum.
pub fn fold_batch_norm(graph: &Graph) -> Result<Graph, Problem> {
    let readers = graph.readers();
    let mut folded: HashMap<usize, Linear> = HashMap::new();
    for (n, node) in graph.nodes.iter().enumerate() {
        let &[norm] = &readers[node.output.0][..] else { continue };
        let norm_node = &graph.nodes[norm];
        let follows = norm_node.op == "BatchNormalization" && norm_node.inputs[0] == Some(node.output);
        if follows && !graph.is_output(node.output) {
            let linear =
                Linear::with(graph, node, norm_node).map_err(|r| r.at(&norm_node.name, &norm_node.op))?;
            folded.extend(linear.map(|linear| (n, linear)));
        }
    }
    let mut rewrite = Rewrite::new(graph)?;
    let mut gone = HashMap::new();
    for (n, node) in graph.nodes.iter().enumerate() {
        if let Some(linear) = folded.remove(&n) {
            let x = rewrite.place(linear.x);
            let weight = rewrite.new.constant(&format!("{}.weight", node.name), linear.weight);
            let bias = rewrite.new.constant(&format!("{}.bias", node.name), linear.bias);
            let node = Node { op: linear.op.into(), ..node.clone() };
            let y = rewrite.add(&node, &[Some(x), Some(weight), Some(bias)], linear.attributes)?;
            gone.insert(readers[node.output.0][0], y);
        } else if let Some(y) = gone.remove(&n) {
            rewrite.put(node.output, y);
        } else {
            rewrite.copy(node)?;
        }
    }
    Ok(rewrite.finish())
}

/// A linear layer with the normalisation in its weights.
struct Linear {
    op: &'static str,
    x: Id,
    weight: Tensor,
    bias: Tensor,
    attributes: Attributes,
}

impl Linear {
    /// `None` where the layer's form does not allow it.
    fn with(graph: &Graph, node: &Node, norm: &Node) -> Result<Option<Linear>, Refusal> {
        let constant =
            |node: &Node, i: usize| node.inputs.get(i).copied().flatten().and_then(|id| graph.floats(id));
        let parameters: Vec<&[f32]> = (1..5).filter_map(|i| Some(&constant(norm, i)?.data[..])).collect();
        let Ok(parameters) = <[&[f32]; 4]>::try_from(parameters) else { return Ok(None) };
        let epsilon = match norm.attributes.0.get("epsilon") {
            Some(Attribute::Float(e)) => *e,
            _ => 1e-5,
        };
        let [scale, offset] = channel_affine(parameters, epsilon)?;
        let (Some(Some(x)), Some(weight)) = (node.inputs.first(), constant(node, 1)) else { return Ok(None) };
        let flag = |name: &str| matches!(node.attributes.0.get(name), Some(Attribute::Int(v)) if *v != 0);
        let number = |name: &str| match node.attributes.0.get(name) {
            Some(Attribute::Float(v)) => *v,
            _ => 1.0,
        };
        // How far apart two weights of neighbouring output channels stand.
        let (op, stride) = match node.op.as_str() {
            "Conv" => ("Conv", weight.shape.strides()[0]),
            "Gemm" if flag("transB") => ("Gemm", weight.shape.strides()[0]),
            "Gemm" => ("Gemm", 1),
            "MatMul" if weight.shape.rank() == 2 && graph.shape(*x).rank() == 2 => ("Gemm", 1),
            _ => return Ok(None),
        };
        let channels = scale.len();
        let old = match (node.inputs.get(2), constant(node, 2)) {
            (Some(Some(_)), None) => return Ok(None),
            (_, None) => vec![0.0; channels],
            (_, Some(b)) if b.data.len() == channels && b.shape.dims().last() == Some(&channels) => {
                b.data.clone()
            }
            (_, Some(b)) if b.data.len() == 1 => vec![b.data[0]; channels],
            _ => return Ok(None),
        };
        let mut attributes = node.attributes.clone();
        let beta = if op == "Gemm" { number("beta") } else { 1.0 };
        attributes.0.remove("beta");
        let data = weight.data.iter().enumerate().map(|(i, w)| w * scale[i / stride % channels]).collect();
        let bias = (0..channels).map(|c| beta * old[c] * scale[c] + offset[c]).collect();
        let weight = Tensor::new(weight.shape.clone(), data);
        Ok(Some(Linear { op, x: *x, weight, bias: Tensor::new([channels], bias), attributes }))
    }
}
