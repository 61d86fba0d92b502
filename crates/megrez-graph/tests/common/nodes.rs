//! One node as a graph, held to numbers worked out from its definition, in the clear and lowered.

use super::check;
pub use super::small::none;
use megrez_graph::{
    Activations, Attributes, CompileOptions, Constant, Graph, Id, Interval, RangePolicy, Tensor, compile,
    plain,
};

pub fn tensor(shape: &[usize], data: &[f32]) -> Tensor {
    Tensor::new(shape.to_vec(), data.to_vec())
}

pub fn ints(shape: &[usize], data: &[i64]) -> Constant {
    Tensor::new(shape.to_vec(), data.to_vec()).into()
}

/// A graph of secret inputs, constants after them, and one node of which `outputs` are read.
pub fn node(op: &str, x: &[Tensor], constants: &[Constant], attributes: Attributes, outputs: usize) -> Graph {
    let mut g = Graph::new("test");
    let mut inputs: Vec<Option<Id>> = vec![];
    for (i, x) in x.iter().enumerate() {
        inputs.push(Some(g.input(&format!("x{i}"), x.shape.clone()).unwrap()));
    }
    for (i, c) in constants.iter().enumerate() {
        inputs.push(Some(g.constant(&format!("c{i}"), c.clone())));
    }
    let ids = g.add_nodes("node", op, &inputs, attributes, &vec![true; outputs]).unwrap();
    for (i, id) in ids.into_iter().take(outputs).enumerate() {
        g.output(&format!("y{i}"), id);
    }
    g
}

/// The numbers of all outputs by hand; then every layer lowered, with secret and with public
/// weights.
pub fn expect(g: &Graph, x: &[Tensor], want: &[Tensor], tolerance: f64) {
    let got = plain::run(g, x).unwrap();
    for (got, want) in got.iter().zip(want) {
        assert_eq!(got.shape, want.shape);
        let near = |(g, w): (&f32, &f32)| (g - w).abs() <= 1e-5 * (1.0 + w.abs());
        assert!(got.data.iter().zip(&want.data).all(near), "{:?} instead of {:?}", got.data, want.data);
    }
    for private_weights in [true, false] {
        let ranges = g.inputs.iter().zip(x).map(|(id, x)| {
            let (low, high) = x.data.iter().fold((0f32, 0f32), |(l, h), &v| (l.min(v), h.max(v)));
            (g.value(*id).name.clone(), Interval { low: low.into(), high: high.into() })
        });
        let options = CompileOptions {
            private_weights,
            input_ranges: ranges.collect(),
            activations: Activations::Fine,
            policy: RangePolicy::Assume,
            ..CompileOptions::default()
        };
        check(&compile(g, &options).unwrap_or_else(|p| panic!("{p}")), x, tolerance);
    }
}
