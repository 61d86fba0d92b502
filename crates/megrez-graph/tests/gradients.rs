//! Every layer's backward against central differences, and lowered against the clear.

use crate::common::small::none;
use crate::common::{check, noise};
use megrez_graph::differentiate::gradients;
use megrez_graph::layers::registered;
use megrez_graph::{
    Attributes, CompileOptions, Constant, Graph, Id, Interval, PoolForm, RangePolicy, Tensor, compile, plain,
};
use std::collections::BTreeSet;

/// Operators that have no backward: they are refused by name.
const WITHOUT: &[&str] = &[
    "Abs",
    "AdaptiveStep",
    "And",
    "ArgMax",
    "AveragePoolGrad",
    "Ceil",
    "Clip",
    "Constant",
    "ConstantOfShape",
    "ConvGradInput",
    "ConvGradRows",
    "ConvGradWeight",
    "Cos",
    "CrossEntropy",
    "CumSum",
    "Equal",
    "Floor",
    "GatherElements",
    "GeluSlope",
    "Greater",
    "GreaterOrEqual",
    "InverseDeviation",
    "IsInf",
    "IsNaN",
    "Less",
    "LessOrEqual",
    "Max",
    "MaxPoolGrad",
    "Min",
    "Mod",
    "Not",
    "Or",
    "Range",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReluGrad",
    "Round",
    "Shape",
    "Sign",
    "Sin",
    "Size",
    "SoftmaxCrossEntropy",
    "Trilu",
    "Update",
    "Where",
    "Xor",
];

/// What a function is in each input by itself.
#[derive(Clone, Copy, PartialEq)]
enum Bend {
    /// Central differences are exact.
    Linear,
    /// As long as they do not reach its kinks.
    Kinks,
    /// They are off by the fourth power of their width.
    Smooth,
    /// The same, of positive inputs.
    Positive,
}

/// One node: its inputs' shapes, and the constants after them.
struct Case {
    op: &'static str,
    inputs: Vec<Vec<usize>>,
    constants: Vec<Constant>,
    attributes: Attributes,
    bend: Bend,
}

fn case(op: &'static str, inputs: &[&[usize]], attributes: Attributes) -> Case {
    let inputs = inputs.iter().map(|s| s.to_vec()).collect();
    let bend = match op {
        "LeakyRelu" | "Relu" | "MaxPool" => Bend::Kinks,
        "Erf" | "Exp" | "Gelu" | "LayerNormalization" | "LogSoftmax" | "MaskedSoftmax"
        | "RMSNormalization" | "Rotation" | "Sigmoid" | "Softmax" | "Swish" | "Tanh" => Bend::Smooth,
        "Log" | "Pow" | "Reciprocal" | "Sqrt" => Bend::Positive,
        _ => Bend::Linear,
    };
    Case { op, inputs, constants: vec![], attributes, bend }
}

fn with(constants: Vec<Constant>, case: Case) -> Case {
    Case { constants, ..case }
}

fn floats(data: &[f32]) -> Constant {
    Tensor::new([data.len()], data.to_vec()).into()
}

fn cases() -> Vec<Case> {
    let mut all = vec![];
    for (a, b, attributes) in [
        ([3, 4], [4, 5], none()),
        ([4, 3], [4, 5], none().with("transA", 1)),
        ([3, 4], [5, 4], none().with("transB", 1)),
        ([4, 3], [5, 4], none().with("transA", 1).with("transB", 1)),
    ] {
        all.push(case("Gemm", &[&a, &b], attributes.clone()));
        for addend in [&[5][..], &[3, 1], &[3, 5], &[1]] {
            all.push(case("Gemm", &[&a, &b, addend], attributes.clone()));
        }
        let scaled = attributes.with("alpha", 0.5).with("beta", 2.0);
        let constants = vec![dyadic(&b, 7).into(), dyadic(&[5], 8).into()];
        all.push(with(constants, case("Gemm", &[&a], scaled)));
    }
    for (a, b) in [
        (&[3, 4][..], &[4, 5][..]),
        (&[2, 3, 4], &[4, 5]),
        (&[2, 2, 3, 4], &[2, 1, 4, 5]),
        (&[3, 4], &[2, 4, 5]),
        (&[4], &[4, 5]),
        (&[2, 3, 4], &[4]),
        (&[4], &[4]),
    ] {
        all.push(case("MatMul", &[a, b], none()));
    }
    for op in ["Add", "Sub", "Mul"] {
        for (a, b) in [(&[2, 3][..], &[2, 3][..]), (&[2, 3, 4], &[3, 1]), (&[1, 3], &[2, 4, 1]), (&[2], &[1])]
        {
            all.push(case(op, &[a, b], none()));
        }
        all.push(with(vec![dyadic(&[3, 1], 9).into()], case(op, &[&[2, 3, 4]], none())));
    }
    all.push(with(vec![floats(&[-0.25])], case("Mul", &[&[2, 3]], none())));
    all.push(with(vec![floats(&[8.0])], case("Div", &[&[2, 3]], none())));
    all.push(with(vec![floats(&[3.0, -0.5, 7.0])], case("Div", &[&[2, 3]], none())));
    all.push(case("Neg", &[&[2, 3]], none()));
    all.push(case("Relu", &[&[3, 4, 5]], none()));
    all.push(case("LeakyRelu", &[&[3, 4, 5]], none().with("alpha", 0.2f32)));
    all.push(case("Flatten", &[&[2, 3, 4]], none()));
    all.push(case("Reshape", &[&[2, 3, 4]], none().with("shape", [4, 6])));
    all.push(case("Identity", &[&[2, 3]], none()));
    all.push(case("Dropout", &[&[2, 3]], none()));
    all.push(case("Cast", &[&[2, 3]], none().with("to", 1)));
    all.push(case("Squeeze", &[&[2, 1, 3]], none().with("axes", [1])));
    all.push(case("Unsqueeze", &[&[2, 3]], none().with("axes", [1])));
    for order in [[0, 2, 1], [2, 0, 1], [1, 2, 0]] {
        all.push(case("Transpose", &[&[2, 3, 4]], none().with("perm", order)));
        all.push(case("Transpose", &[&[2, 1, 4]], none().with("perm", order)));
    }
    let to: Constant = Tensor::new([3], vec![2i64, 3, 4]).into();
    all.push(with(vec![to], case("Expand", &[&[3, 1]], none())));
    all.extend(convolutions());
    all.extend(pools());
    all.extend(places());
    all.extend(functions());
    let normal = [[0.5, 2.0, -1.0], [1.0, 0.0, 0.5], [0.5, -1.0, 2.0], [1.0, 4.0, 0.25]];
    let constants = normal.iter().map(|c| floats(c)).collect();
    all.push(with(constants, case("BatchNormalization", &[&[2, 3, 2, 2]], none())));
    all
}

fn whole(data: &[i64]) -> Constant {
    Tensor::<i64>::new([data.len()], data.to_vec()).into()
}

/// What takes elements out of values, or puts them together.
fn places() -> Vec<Case> {
    let mut all = vec![];
    for (starts, ends, axes, steps) in [
        ([0, 1], [2, 3], [0, 1], [1, 1]),
        ([1, 2], [3, 4], [0, 2], [1, 1]),
        ([0, 3], [3, 0], [0, 2], [2, -1]),
        ([2, 0], [0, 4], [0, 2], [-1, 3]),
    ] {
        let steers = [starts, ends, axes, steps].map(|v| whole(&v)).to_vec();
        all.push(with(steers, case("Slice", &[&[3, 3, 4]], none())));
    }
    for (axis, indices) in [(0, vec![2, 0]), (1, vec![1, 1, 0, 1]), (2, vec![3]), (-1, vec![0, -1, 2, 3])] {
        let gather = case("Gather", &[&[3, 2, 4]], none().with("axis", axis));
        all.push(with(vec![whole(&indices)], gather));
    }
    let square: Constant = Tensor::<i64>::new([2, 2], vec![0, 2, 2, 1]).into();
    all.push(with(vec![square], case("Gather", &[&[3, 2]], none())));
    let parts: [&[usize]; 3] = [&[2, 1, 3], &[2, 2, 3], &[2, 1, 3]];
    all.push(case("Concat", &parts, none().with("axis", 1)));
    all.push(case("Concat", &[&[2, 3], &[1, 3]], none().with("axis", 0)));
    all.push(with(vec![dyadic(&[2, 2], 3).into()], case("Concat", &[&[2, 3]], none().with("axis", 1))));
    all.push(case("Pad", &[&[2, 3]], none().with("pads", [1, 0, 2, 3])));
    for (axes, keep) in [(vec![1], 1), (vec![0, 2], 0), (vec![], 1), (vec![-1], 0)] {
        for op in ["ReduceSum", "ReduceMean"] {
            let attributes = none().with("keepdims", keep).with("axes", axes.clone());
            all.push(case(op, &[&[2, 4, 2]], attributes));
        }
    }
    all.push(case("Affine", &[&[2, 3]], none().with("factor", -0.75).with("offset", 2.0)));
    all
}

/// Smooth functions.
fn functions() -> Vec<Case> {
    let mut all = vec![];
    for op in ["Tanh", "Sigmoid", "Erf", "Gelu", "Swish", "Exp"] {
        all.push(case(op, &[&[3, 4]], none()));
    }
    all.push(case("Gelu", &[&[3, 4]], none().with("approximate", "tanh")));
    for axis in [0, 1, -1] {
        for op in ["Softmax", "LogSoftmax"] {
            all.push(case(op, &[&[2, 3, 4]], none().with("axis", axis)));
        }
    }
    let mask: Constant = Tensor::<i64>::new([3, 4], vec![1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 1, 1]).into();
    all.push(with(vec![mask], case("MaskedSoftmax", &[&[2, 3, 4]], none())));
    all.push(case("LayerNormalization", &[&[3, 5]], none()));
    all.push(case("LayerNormalization", &[&[2, 2, 3]], none().with("axis", 1).with("epsilon", 0.5)));
    all.push(case("RMSNormalization", &[&[3, 5]], none().with("epsilon", 0.25)));
    all.push(case("RMSNormalization", &[&[2, 2, 3]], none().with("axis", 1).with("epsilon", 0.5)));
    all.push(case("Rotation", &[&[2, 3, 4]], none().with("start", 2).with("base", 100.0)));
    for exponent in [1.0, 2.0, 3.0, 5.0, -0.5, -1.0, 0.5] {
        all.push(with(vec![floats(&[exponent])], case("Pow", &[&[2, 3]], none())));
    }
    for op in ["Log", "Reciprocal", "Sqrt"] {
        all.push(case(op, &[&[2, 3]], none()));
    }
    all
}

fn convolutions() -> Vec<Case> {
    let mut all = vec![];
    for (x, w, strides, pads, dilations, group) in [
        ([2, 3, 5, 6], [4, 3, 3, 2], [1, 1], [0, 0, 0, 0], [1, 1], 1),
        ([2, 2, 6, 5], [3, 2, 3, 3], [2, 1], [1, 2, 0, 1], [1, 1], 1),
        ([1, 4, 7, 7], [6, 2, 3, 2], [2, 3], [1, 0, 2, 1], [1, 2], 2),
        ([3, 3, 6, 6], [3, 1, 2, 2], [1, 1], [0, 1, 0, 1], [2, 2], 3),
        ([1, 1, 7, 4], [2, 1, 1, 1], [3, 2], [0, 0, 0, 0], [1, 1], 1),
        ([1, 2, 4, 4], [2, 2, 2, 2], [1, 1], [3, 3, 3, 3], [1, 1], 1),
        ([2, 1, 9, 8], [1, 1, 2, 3], [3, 2], [0, 1, 1, 0], [3, 1], 1),
    ] {
        let attributes = none()
            .with("strides", strides)
            .with("pads", pads)
            .with("dilations", dilations)
            .with("group", group);
        all.push(case("Conv", &[&x, &w], attributes.clone()));
        all.push(case("Conv", &[&x, &w, &[w[0]]], attributes.clone()));
        all.push(with(vec![dyadic(&w, 5).into()], case("Conv", &[&x], attributes)));
    }
    all.push(case("Conv", &[&[1, 2, 5, 5], &[2, 2, 3, 3]], none().with("auto_pad", "SAME_UPPER")));
    all
}

fn pools() -> Vec<Case> {
    let mut all = vec![];
    for op in ["MaxPool", "AveragePool"] {
        for (x, kernel, strides, pads) in [
            ([2, 2, 6, 4], [2, 2], [2, 2], [0, 0, 0, 0]),
            ([1, 2, 5, 7], [3, 3], [2, 2], [1, 1, 1, 1]),
            ([1, 1, 6, 6], [3, 2], [1, 1], [0, 1, 2, 0]),
            ([1, 2, 5, 6], [1, 5], [1, 1], [0, 0, 0, 0]),
            ([1, 1, 7, 7], [2, 1], [3, 3], [0, 0, 0, 0]),
            ([1, 1, 4, 4], [4, 4], [4, 4], [0, 0, 0, 0]),
        ] {
            let attributes = none().with("kernel_shape", kernel).with("strides", strides).with("pads", pads);
            all.push(case(op, &[&x], attributes.clone()));
            all.push(case(op, &[&x], attributes.clone().with("dilations", [1, 1]).with("ceil_mode", 1)));
            if op == "AveragePool" {
                all.push(case(op, &[&x], attributes.with("count_include_pad", 1)));
            }
        }
        let dilated = none().with("kernel_shape", [2, 3]).with("dilations", [3, 2]);
        all.push(case(op, &[&[1, 2, 6, 7]], dilated));
    }
    all.push(case("GlobalAveragePool", &[&[2, 3, 4, 2]], none()));
    all.push(case("GlobalAveragePool", &[&[2, 3, 3, 5]], none()));
    all
}

/// Multiples of 1/8 whose products and sums f32 holds exactly; all different and none nearer to 0
/// than 1/16 where the shape is small enough.
fn dyadic(shape: &[usize], seed: u64) -> Tensor {
    let order = noise(shape.to_vec(), seed);
    let n = order.data.len();
    let mut places: Vec<usize> = (0..n).collect();
    places.sort_by(|&a, &b| order.data[a].total_cmp(&order.data[b]));
    let mut data = vec![0.0; n];
    places
        .iter()
        .enumerate()
        .for_each(|(rank, &at)| data[at] = (rank as f32 - n as f32 / 2.0) / 8.0 + 0.0625);
    Tensor::new(shape.to_vec(), data)
}

/// The node, a seed for the gradient of its output, and gradients of all inputs.
fn graph(case: &Case) -> (Graph, Id, Vec<Tensor>) {
    let mut g = Graph::new("test");
    let mut inputs = vec![];
    let mut data = vec![];
    for (i, shape) in case.inputs.iter().enumerate() {
        inputs.push(g.input(&format!("x{i}"), shape.clone()).unwrap());
        let mut numbers = dyadic(shape, i as u64 + 1);
        if case.bend == Bend::Positive {
            numbers.data.iter_mut().for_each(|v| *v = v.abs() + 0.5);
        }
        data.push(numbers);
    }
    let wanted = inputs.clone();
    for (i, constant) in case.constants.iter().enumerate() {
        inputs.push(g.constant(&format!("c{i}"), constant.clone()));
    }
    let y = g.add("node", case.op, &inputs, case.attributes.clone()).unwrap_or_else(|p| panic!("{p}"));
    let seed = g.input("seed", g.shape(y).clone()).unwrap();
    data.push(dyadic(g.shape(y).dims(), 11));
    let of_inputs = gradients(&mut g, y, seed, &wanted).unwrap_or_else(|p| panic!("{p}"));
    for (i, gradient) in of_inputs.into_iter().enumerate() {
        g.output(&format!("d{i}"), gradient.expect("the node depends on all its inputs"));
    }
    (g, y, data)
}

/// Σ seed · y.
fn directed(g: &Graph, y: Id, data: &[Tensor]) -> f64 {
    let trace = plain::trace(g, data).unwrap();
    let seed = &data[data.len() - 1].data;
    trace.value(y).unwrap().data.iter().zip(seed).map(|(&y, &s)| f64::from(y) * f64::from(s)).sum()
}

#[test]
fn every_backward_is_what_central_differences_are() {
    for (number, case) in cases().iter().enumerate() {
        let (g, y, data) = graph(case);
        let found = plain::run(&g, &data).unwrap();
        // Of a linear function central differences are exact, however far apart the ends; kinks are
        // further away than this. Of smooth ones two widths are joined, so that the third
        // derivative falls out; f32 holds no more of them.
        let (h, tolerance) = match case.bend {
            Bend::Linear => (1.0, 1e-6),
            Bend::Kinks => (0.03125, 1e-6),
            Bend::Smooth | Bend::Positive => (0.03125, 2e-4),
        };
        for (input, found) in found.iter().enumerate() {
            assert_eq!(found.shape, data[input].shape, "{number}: {}", case.op);
            let mut want = vec![];
            for at in 0..found.data.len() {
                let moved = |by: f32| {
                    let mut data = data.clone();
                    data[input].data[at] += by;
                    directed(&g, y, &data)
                };
                let slope = |h: f32| (moved(h) - moved(-h)) / f64::from(2.0 * h);
                want.push(match case.bend {
                    Bend::Linear | Bend::Kinks => slope(h),
                    _ => (4.0 * slope(h) - slope(2.0 * h)) / 3.0,
                });
            }
            let largest = want.iter().fold(1e-3f64, |m, v| m.max(v.abs()));
            for (i, (&f, w)) in found.data.iter().zip(&want).enumerate() {
                let error = (f64::from(f) - w).abs() / largest;
                assert!(error < tolerance, "{number}: {} d{input}[{i}] is {f} instead of {w}", case.op);
            }
        }
    }
}

#[test]
fn every_backward_is_lowered() {
    for case in &cases() {
        let (g, _, mut data) = graph(case);
        if case.bend != Bend::Positive {
            data.iter_mut().flat_map(|t| &mut t.data).for_each(|v| *v /= 4.0);
        }
        let bound = data.iter().flat_map(|t| &t.data).fold(1f32, |m, v| m.max(v.abs()));
        for pool in [PoolForm::Tournament, PoolForm::AllPairs] {
            let options = CompileOptions {
                pool,
                input_range: Interval::abs(bound.into()),
                policy: RangePolicy::Assume,
                ..CompileOptions::default()
            };
            let compiled = compile(&g, &options).unwrap_or_else(|p| panic!("{}: {p}", case.op));
            // What stands for a smooth function is off by more than rounding: a derivative of GELU
            // by 0.0116 times the gradient.
            let off = match case.bend {
                Bend::Linear | Bend::Kinks => 2e-3,
                Bend::Smooth | Bend::Positive => 0.02,
            };
            check(&compiled, &data, off);
        }
    }
}

#[test]
fn a_layer_without_a_test_of_its_backward_says_that_it_has_none() {
    let tested: BTreeSet<&str> = cases().iter().map(|case| case.op).collect();
    let without: BTreeSet<&str> = WITHOUT.iter().copied().collect();
    for op in registered() {
        let internal = !megrez_graph::layers::is_supported(op);
        let listed = without.contains(op) || internal && !tested.contains(op);
        assert!(tested.contains(op) != listed, "{op} is tested and listed, or neither");
    }
    // What is listed is refused, wherever a plain call makes a layer at all.
    let mut refused = 0;
    for op in registered().filter(|op| !tested.contains(op)) {
        for inputs in 1..4 {
            let mut g = Graph::new("test");
            let x: Vec<Id> = (0..inputs).map(|i| g.input(&format!("x{i}"), [2, 4]).unwrap()).collect();
            let Ok(y) = g.add("node", op, &x, none()) else { continue };
            if g.nodes.is_empty() {
                continue;
            }
            let seed = g.input("seed", g.shape(y).clone()).unwrap();
            if g.nodes.iter().any(|node| without.contains(node.op.as_str())) {
                let Err(problems) = gradients(&mut g, y, seed, &x) else { panic!("{op} has a backward") };
                assert!(problems.to_string().contains("has no backward yet"), "{problems}");
                refused += 1;
            }
        }
    }
    assert!(refused > 15, "{refused} layers were refused");
}

#[test]
fn all_layers_without_a_backward_are_named_at_once() {
    let mut g = Graph::new("test");
    let x = g.input("x", [2, 4]).unwrap();
    let a = g.add("first", "Abs", &[x], none()).unwrap();
    let b = g.add("second", "Relu", &[a], none()).unwrap();
    let c = g.add("third", "Sin", &[b], none()).unwrap();
    let seed = g.input("seed", [2, 4]).unwrap();
    let problems = gradients(&mut g, c, seed, &[x]).unwrap_err().0;
    let named: Vec<&str> = problems.iter().map(|p| p.node.as_str()).collect();
    assert_eq!(named, ["third", "first"]);
}

#[test]
fn gradients_of_a_value_with_many_readers_add_up() {
    let mut g = Graph::new("test");
    let x = g.input("x", [3]).unwrap();
    let square = g.add("square", "Mul", &[x, x], none()).unwrap();
    let y = g.add("sum", "Add", &[square, x], none()).unwrap();
    let seed = g.input("seed", [3]).unwrap();
    let beside = g.input("beside", [3]).unwrap();
    let found = gradients(&mut g, y, seed, &[x, beside]).unwrap();
    assert_eq!(found[1], None);
    g.output("d", found[0].unwrap());
    let of = |data: &[f32]| Tensor::new([3], data.to_vec());
    let d = plain::run(&g, &[of(&[1.0, -2.0, 0.5]), of(&[1.0, 1.0, 4.0]), of(&[0.0; 3])]).unwrap();
    assert_eq!(d[0].data, [3.0, -3.0, 8.0]);
}

#[test]
fn a_window_of_equals_gives_its_gradient_to_one_element() {
    let attributes = none().with("kernel_shape", [2, 2]).with("strides", [1, 1]);
    let (g, _, mut data) = graph(&case("MaxPool", &[&[1, 1, 3, 3]], attributes));
    data[0].data.fill(0.25);
    data[1].data.copy_from_slice(&[0.0625, 0.125, 0.25, 0.5]);
    let d = plain::run(&g, &data).unwrap().remove(0).data;
    assert_eq!(d.iter().sum::<f32>(), 0.9375);
    assert_eq!(d.iter().filter(|v| **v != 0.0).count(), 4, "{d:?}");
    let compiled = compile(&g, &CompileOptions::default()).unwrap_or_else(|p| panic!("{p}"));
    check(&compiled, &data, 1e-6);
}
