//! Recognising what exporters write in several nodes: looking from a node at what makes its inputs.

use crate::graph::{Attribute, Graph, Id, Node};
use crate::tensor::{Constant, Tensor};
use std::collections::HashMap;

/// A graph with the nodes found by what they define.
pub(crate) struct Pattern<'a> {
    graph: &'a Graph,
    makers: HashMap<Id, usize>,
}

impl<'a> Pattern<'a> {
    pub(crate) fn new(graph: &'a Graph) -> Self {
        let makers = graph.nodes.iter().enumerate().map(|(n, node)| (node.output, n)).collect();
        Pattern { graph, makers }
    }

    /// The node that makes a value, if it is of this operator.
    pub(crate) fn made_by(&self, id: Id, op: &str) -> Option<&'a Node> {
        let node = &self.graph.nodes[*self.makers.get(&id)?];
        (node.op == op).then_some(node)
    }

    pub(crate) fn input(&self, node: &Node, i: usize) -> Option<Id> {
        node.inputs.get(i).copied().flatten()
    }

    /// The inputs of a node of two inputs, both ways round.
    pub(super) fn pairs(&self, node: &Node) -> Vec<(Id, Id)> {
        match (self.input(node, 0), self.input(node, 1)) {
            (Some(a), Some(b)) => vec![(a, b), (b, a)],
            _ => vec![],
        }
    }

    /// The one number that a constant holds.
    pub(super) fn number(&self, id: Id) -> Option<f32> {
        self.graph.floats(id).filter(|t| t.data.len() == 1).map(|t| t.data[0])
    }

    /// Whether a constant is one number within a thousandth of `value`.
    pub(super) fn is(&self, id: Id, value: f64) -> bool {
        self.number(id).is_some_and(|v| (f64::from(v) - value).abs() <= 1e-3 * value.abs())
    }

    /// What a node multiplies by the number `value`, be it a product or a quotient.
    pub(super) fn times(&self, id: Id, value: f64) -> Option<Id> {
        let product = || {
            let node = self.made_by(id, "Mul")?;
            self.pairs(node).into_iter().find(|&(_, c)| self.is(c, value)).map(|(x, _)| x)
        };
        let quotient = || {
            let node = self.made_by(id, "Div")?;
            let divisor = self.input(node, 1)?;
            self.is(divisor, 1.0 / value).then(|| self.input(node, 0))?
        };
        product().or_else(quotient)
    }

    /// What a node adds the number `value` to.
    pub(super) fn plus(&self, id: Id, value: f64) -> Option<Id> {
        let node = self.made_by(id, "Add")?;
        self.pairs(node).into_iter().find(|&(_, c)| self.is(c, value)).map(|(x, _)| x)
    }

    /// What a node raises to a whole power.
    pub(super) fn power(&self, id: Id, exponent: f64) -> Option<Id> {
        if let Some(node) = self.made_by(id, "Pow") {
            return self.is(self.input(node, 1)?, exponent).then(|| self.input(node, 0))?;
        }
        let node = self.made_by(id, "Mul")?;
        let (a, b) = (self.input(node, 0)?, self.input(node, 1)?);
        match exponent as u32 {
            2 => (a == b).then_some(a),
            n => self
                .pairs(node)
                .into_iter()
                .find(|&(x, y)| self.power(y, f64::from(n - 1)) == Some(x))
                .map(|p| p.0),
        }
    }

    /// The integers of an attribute or of a constant input.
    pub(crate) fn integers(&self, node: &Node, i: usize, attribute: &str) -> Option<Vec<i64>> {
        match node.attributes.0.get(attribute) {
            Some(Attribute::Ints(v)) => return Some(v.clone()),
            Some(_) => return None,
            None => {}
        }
        match &self.graph.value(self.input(node, i)?).constant {
            Some(Constant::Ints(t)) => Some(t.data.clone()),
            _ => None,
        }
    }

    pub(crate) fn int(&self, node: &Node, attribute: &str, default: i64) -> Option<i64> {
        match node.attributes.0.get(attribute) {
            None => Some(default),
            Some(Attribute::Int(v)) => Some(*v),
            Some(_) => None,
        }
    }

    pub(super) fn floats(&self, id: Id) -> Option<&'a Tensor> {
        self.graph.floats(id).map(|t| &**t)
    }
}
