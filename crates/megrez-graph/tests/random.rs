//! Random graphs of many operators: every layer on words against the same layer on real numbers.
//!
//! Numbers begin on a coarse grid, and operators that keep it come first, jumps among them: there
//! fixed point is exact. Smooth operators, which it approximates, come after them.

use crate::common::check;
use megrez_graph::{
    Activations, Attributes, CompileOptions, Graph, Id, Interval, RangePolicy, Tensor, compile,
};
use proptest::prelude::*;

const SHAPE: [usize; 2] = [3, 4];

/// Operators of one value that keep the grid of quarters, and the shape.
const EXACT: [&str; 14] = [
    "Abs",
    "Neg",
    "Relu",
    "Floor",
    "Ceil",
    "Round",
    "Sign",
    "Hardmax",
    "ThresholdedRelu",
    "Shrink",
    "Clip",
    "HalfLeakyRelu",
    "CumSum",
    "Reverse",
];
/// Operators of two values that keep both.
const PAIRS: [&str; 8] = ["Add", "Sub", "Max", "Min", "Greater", "LessOrEqual", "Equal", "Where"];
/// Smooth operators, none much steeper than 1.
const SMOOTH: [&str; 13] = [
    "Sigmoid",
    "Tanh",
    "Elu",
    "Celu",
    "Selu",
    "Softplus",
    "Softsign",
    "HardSigmoid",
    "HardSwish",
    "Mish",
    "Gelu",
    "Softmax",
    "LogSoftmax",
];

fn one(g: &mut Graph, op: &str, x: Id) -> Id {
    let none = Attributes::none;
    let add = |g: &mut Graph, op: &str, inputs: &[Id], attributes| g.add("", op, inputs, attributes).unwrap();
    match op {
        "ThresholdedRelu" => add(g, op, &[x], none().with("alpha", 0.5)),
        "Shrink" => add(g, op, &[x], none().with("lambd", 0.5).with("bias", 0.25)),
        "Clip" => add(g, op, &[x], none().with("min", -1.25).with("max", 1.5)),
        "HalfLeakyRelu" => {
            let y = add(g, "LeakyRelu", &[x], none().with("alpha", 0.5));
            add(g, "Round", &[y], none())
        }
        "CumSum" => {
            let axis = g.constant("axis", Tensor::new([], vec![1i64]));
            add(g, op, &[x, axis], none())
        }
        "Reverse" => {
            let places = g.constant("places", Tensor::new([4], vec![3i64, 2, 1, 0]));
            add(g, "Gather", &[x, places], none().with("axis", 1))
        }
        _ => add(g, op, &[x], none()),
    }
}

fn two(g: &mut Graph, op: &str, x: Id, y: Id) -> Id {
    let mut add = |op: &str, inputs: &[Id]| g.add("", op, inputs, Attributes::none()).unwrap();
    match op {
        "Where" => {
            let choice = add("Greater", &[x, y]);
            add(op, &[choice, y, x])
        }
        _ => add(op, &[x, y]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    #[test]
    fn random_graphs_compute_what_their_operators_say(
        quarters in proptest::collection::vec(-12i32..=12, 12),
        exact in proptest::collection::vec((0..EXACT.len() + PAIRS.len(), 0usize..8), 1..5),
        smooth in proptest::collection::vec(0..SMOOTH.len(), 0..3),
        private_weights: bool,
    ) {
        let mut g = Graph::new("random");
        let mut values = vec![g.input("x", SHAPE).unwrap()];
        for (op, at) in exact {
            let (x, y) = (values[values.len() - 1], values[at % values.len()]);
            let next = match EXACT.get(op) {
                Some(op) => one(&mut g, op, x),
                None => two(&mut g, PAIRS[op - EXACT.len()], x, y),
            };
            values.push(next);
        }
        for op in smooth {
            let x = values[values.len() - 1];
            // Smooth operators are told apart best near zero, and sums do not leave it.
            let near = Attributes::none().with("min", -4.0).with("max", 4.0);
            let x = g.add("", "Clip", &[x], near).unwrap();
            values.push(one(&mut g, SMOOTH[op], x));
        }
        g.output("y", values[values.len() - 1]);
        let options = CompileOptions {
            input_range: Interval::abs(3.0),
            activations: Activations::Fine,
            policy: RangePolicy::Assume,
            private_weights,
            ..CompileOptions::default()
        };
        let x = Tensor::new(SHAPE, quarters.iter().map(|&q| q as f32 / 4.0).collect());
        check(&compile(&g, &options).unwrap(), &[x], 2e-2);
    }
}
