//! Numbers that are quantised as they come (DynamicQuantizeLinear). Their scale follows from the
//! data, so on shares it is a secret, and rounding to it costs much and makes the result worse.
//! Where all that is done with the integers is a product that is scaled back, the numbers
//! themselves go into the product: the result is that of exact integers, nearer to the model as it
//! was trained than the quantised one. Anything else would read the integers, and is refused.

use super::message::Node;
use std::collections::{HashMap, HashSet};

/// Products of integers, whose first operand has its zero point as third input.
const PRODUCTS: [&str; 2] = ["MatMulInteger", "ConvInteger"];

/// The first outputs of those nodes whose integers nobody reads but products that are scaled back;
/// `outputs` are those of the graph.
pub(super) fn scaled_back<'a>(
    nodes: &[Node<'a>],
    outputs: impl Iterator<Item = &'a str>,
) -> HashSet<&'a str> {
    let dynamic = || nodes.iter().filter(|n| n.op == "DynamicQuantizeLinear");
    // Graphs within this one may read its values.
    if dynamic().next().is_none() || nodes.iter().any(|n| matches!(n.op, "If" | "Loop" | "Scan")) {
        return HashSet::new();
    }
    let mut readers: HashMap<&str, Vec<(&Node<'a>, usize)>> = HashMap::new();
    for node in nodes {
        for (i, &name) in node.inputs.iter().enumerate() {
            readers.entry(name).or_default().push((node, i));
        }
    }
    let graph = Graph { readers, outputs: outputs.collect() };
    let good = dynamic().filter_map(|node| match node.outputs[..] {
        [y, scale, zero] if !y.is_empty() && graph.returns(y, scale, zero) => Some(y),
        _ => None,
    });
    good.collect()
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

    /// Whether every use of the integers y is a product that takes their zero point away and is
    /// multiplied by their scale once, and whether scale and zero point are used for nothing else.
    fn returns(&self, y: &str, scale: &str, zero: &str) -> bool {
        let (Some(of_y), Some(of_zero), Some(of_scale)) =
            (self.readers(y), self.readers(zero), self.readers(scale))
        else {
            return false;
        };
        let product = |(node, i): &(&Node, usize)| {
            PRODUCTS.contains(&node.op) && *i == 0 && node.inputs.get(2) == Some(&zero)
        };
        let minus = |(node, i): &(&Node, usize)| {
            PRODUCTS.contains(&node.op) && *i == 2 && node.inputs.first() == Some(&y)
        };
        if of_y.is_empty() || !of_y.iter().all(product) || !of_zero.iter().all(minus) {
            return false;
        }
        // The products as real numbers, and the scales: their own, and times another number.
        let mut numbers = HashSet::new();
        for (node, _) in of_y {
            let Some(casts) = node.outputs.first().and_then(|name| self.readers(name)) else { return false };
            if casts.len() != 1 || casts[0].0.op != "Cast" {
                return false;
            }
            numbers.extend(casts[0].0.outputs.first().copied());
        }
        let mut scales = HashSet::from([scale]);
        for (node, _) in of_scale {
            let [a, b] = node.inputs[..] else { return false };
            let other = if a == scale { b } else { a };
            if node.op != "Mul" || other == scale {
                return false;
            }
            if !numbers.contains(other) {
                scales.extend(node.outputs.first().copied());
            }
        }
        // Each number meets one scale, and each scale nothing but numbers.
        let meets = |(node, _): &(&Node, usize)| match node.inputs[..] {
            [a, b] if node.op == "Mul" => {
                (numbers.contains(a) && scales.contains(b)) || (numbers.contains(b) && scales.contains(a))
            }
            _ => false,
        };
        let one = |name: &&str| self.readers(name).is_some_and(|r| r.len() == 1 && meets(&r[0]));
        let others = scales.iter().filter(|name| **name != scale);
        numbers.iter().all(one)
            && others.clone().all(|name| self.readers(name).is_some_and(|readers| readers.iter().all(meets)))
    }
}
