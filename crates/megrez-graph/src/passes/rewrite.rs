//! Copying a graph while changing it.

use crate::graph::{Attributes, Graph, Id, Node};
use crate::problem::Problem;
use std::collections::HashMap;

/// A graph being copied, and where the old values are in the new one.
pub(crate) struct Rewrite<'a> {
    old: &'a Graph,
    pub(crate) new: Graph,
    places: HashMap<Id, Id>,
}

impl<'a> Rewrite<'a> {
    /// A copy with the inputs and nothing else.
    pub(crate) fn new(old: &'a Graph) -> Result<Self, Problem> {
        let mut new = Graph::new(&old.name);
        let mut places = HashMap::new();
        for &id in &old.inputs {
            places.insert(id, new.input(&old.value(id).name, old.shape(id).clone())?);
        }
        Ok(Rewrite { old, new, places })
    }

    /// Where an old value is; constants come along when they are first asked for.
    ///
    /// # Panics
    /// If the value is of a node that has not been copied.
    pub(crate) fn place(&mut self, id: Id) -> Id {
        if let Some(&place) = self.places.get(&id) {
            return place;
        }
        let value = self.old.value(id);
        let constant = value.constant.clone().expect("nodes are copied in order");
        let place = self.new.constant(&value.name, constant);
        self.places.insert(id, place);
        place
    }

    /// From now on the old value `id` is the new value `place`.
    pub(crate) fn put(&mut self, id: Id, place: Id) {
        self.places.insert(id, place);
    }

    /// Copies a node with other inputs and attributes.
    pub(crate) fn add(
        &mut self,
        node: &Node,
        inputs: &[Option<Id>],
        attributes: Attributes,
    ) -> Result<Id, Problem> {
        let id = self.new.add_node(&node.name, &node.op, inputs, attributes)?;
        self.new.values[id.0].name.clone_from(&self.old.value(node.output).name);
        Ok(id)
    }

    /// Copies a node as it is.
    pub(crate) fn copy(&mut self, node: &Node) -> Result<(), Problem> {
        let inputs: Vec<Option<Id>> = node.inputs.iter().map(|id| id.map(|id| self.place(id))).collect();
        let id = self.add(node, &inputs, node.attributes.clone())?;
        self.put(node.output, id);
        Ok(())
    }

    /// The new graph, with the old outputs.
    pub(crate) fn finish(mut self) -> Graph {
        for output in &self.old.outputs {
            let id = self.place(output.id);
            self.new.output(&output.name, id);
        }
        self.new
    }
}
