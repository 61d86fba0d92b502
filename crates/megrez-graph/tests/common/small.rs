//! Graphs of one layer.

use megrez_graph::{Attributes, Graph, Id, Tensor};

pub fn tensor<const R: usize>(shape: [usize; R], data: &[f32]) -> Tensor {
    Tensor::new(shape, data.to_vec())
}

/// A graph of one input and what `layers` adds.
pub fn graph(shape: &[usize], layers: impl FnOnce(&mut Graph, Id) -> Id) -> Graph {
    let mut graph = Graph::new("test");
    let x = graph.input("x", shape.to_vec()).unwrap();
    let y = layers(&mut graph, x);
    graph.output("y", y);
    graph
}

pub fn one(shape: &[usize], op: &str, constants: &[Tensor], attributes: Attributes) -> Graph {
    graph(shape, |g, x| {
        let mut inputs = vec![x];
        inputs.extend(constants.iter().enumerate().map(|(i, c)| g.constant(&format!("c{i}"), c.clone())));
        g.add("layer", op, &inputs, attributes).unwrap()
    })
}

pub fn none() -> Attributes {
    Attributes::none()
}
