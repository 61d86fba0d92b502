//! Numbers that are quantised as they come (DynamicQuantizeLinear). Their scale follows from the
//! data, so on shares it is a secret, and rounding to it costs much and makes the result worse.
//! Where all that is done with the integers is a product that is scaled back, the numbers
//! themselves go into the product: the result is that of exact integers, nearer to the model as it
//! was trained than the quantised one. Anything else would read the integers, and is refused.

use super::message::{Node, RawAttribute};
use crate::graph::Attribute;
use crate::layers::SCALED_BACK;
use std::collections::{HashMap, HashSet};

const QUANTISED: &str = "DynamicQuantizeLinear";

/// Products of integers, whose first operand has its zero point as third input.
const PRODUCTS: [&str; 2] = ["MatMulInteger", "ConvInteger"];

/// What those nodes are to be read as whose integers nobody reads but products that are scaled
/// back, by their first outputs: the nodes themselves, and the products with the scale, which need
/// more fraction bits than others, since scales are small and what they meet is large. `outputs`
/// are those of the graph.
pub(super) fn scaled_back<'a>(
    nodes: &[Node<'a>],
    outputs: impl Iterator<Item = &'a str>,
) -> HashMap<&'a str, &'static str> {
    let dynamic = || nodes.iter().filter(|n| n.op == QUANTISED);
    // Graphs within this one may read its values.
    if dynamic().next().is_none() || nodes.iter().any(|n| matches!(n.op, "If" | "Loop" | "Scan")) {
        return HashMap::new();
    }
    let mut readers: HashMap<&str, Vec<(&Node<'a>, usize)>> = HashMap::new();
    for node in nodes {
        for (i, &name) in node.inputs.iter().enumerate() {
            readers.entry(name).or_default().push((node, i));
        }
    }
    let graph = Graph { readers, outputs: outputs.collect() };
    let mut read_as = HashMap::new();
    for node in dynamic() {
        let [y, scale, zero] = node.outputs[..] else { continue };
        if let Some(products) = (!y.is_empty()).then(|| graph.returns(y, scale, zero)).flatten() {
            read_as.insert(y, QUANTISED);
            read_as.extend(products.into_iter().map(|product| (product, SCALED_BACK)));
        }
    }
    read_as
}

struct Graph<'n, 'a> {
    readers: HashMap<&'a str, Vec<(&'n Node<'a>, usize)>>,
    outputs: HashSet<&'a str>,
}

impl<'n, 'a> Graph<'n, 'a> {
    /// Who reads a name, and as which input; `None` if the graph gives it.
    fn readers(&self, name: &str) -> Option<&[(&'n Node<'a>, usize)]> {
        let found = self.readers.get(name).map_or(&[][..], Vec::as_slice);
        (!self.outputs.contains(name)).then_some(found)
    }

    /// If every use of the integers y is a product that takes their zero point away and is
    /// multiplied once by their scale times another, and if scale and zero point are used for
    /// nothing else: what those last products give.
    fn returns(&self, y: &str, scale: &'a str, zero: &str) -> Option<HashSet<&'a str>> {
        let (of_y, of_zero, of_scale) = (self.readers(y)?, self.readers(zero)?, self.readers(scale)?);
        let product = |(node, i): &(&Node, usize)| {
            PRODUCTS.contains(&node.op) && *i == 0 && node.inputs.get(2) == Some(&zero)
        };
        let minus = |(node, i): &(&Node, usize)| {
            PRODUCTS.contains(&node.op) && *i == 2 && node.inputs.first() == Some(&y)
        };
        if of_y.is_empty() || !of_y.iter().all(product) || !of_zero.iter().all(minus) {
            return None;
        }
        // The products as real numbers.
        let mut numbers = HashSet::new();
        for (node, _) in of_y {
            match self.readers(node.outputs.first()?)? {
                [(cast, _)] if to_float32(cast) => numbers.insert(*cast.outputs.first()?),
                _ => return None,
            };
        }
        // The scale times that of the weights.
        let mut scales = HashSet::new();
        for (node, _) in of_scale {
            let [a, b] = node.inputs[..] else { return None };
            let other = if a == scale { b } else { a };
            if !multiplies(node) || other == scale || numbers.contains(other) {
                return None;
            }
            scales.insert(*node.outputs.first()?);
        }
        // Each number meets one scale, and each scale nothing but numbers.
        let meets = |node: &Node| match node.inputs[..] {
            [a, b] if multiplies(node) => {
                (numbers.contains(a) && scales.contains(b)) || (numbers.contains(b) && scales.contains(a))
            }
            _ => false,
        };
        let mut back = HashSet::new();
        for number in &numbers {
            match self.readers(number)? {
                [(node, _)] if meets(node) => back.insert(*node.outputs.first()?),
                _ => return None,
            };
        }
        let only = |name: &&str| self.readers(name).is_some_and(|r| r.iter().all(|(node, _)| meets(node)));
        scales.iter().all(only).then_some(back)
    }
}

fn multiplies(node: &Node) -> bool {
    node.op == "Mul" && matches!(node.domain, "" | "ai.onnx")
}

fn to_float32(node: &Node) -> bool {
    let to =
        |(name, raw): &(&str, RawAttribute)| *name == "to" && matches!(raw.decode(), Ok(Attribute::Int(1)));
    node.op == "Cast" && matches!(node.domain, "" | "ai.onnx") && node.attributes.iter().any(to)
}
