//! Operators that are made of others, against numbers worked out from their definitions, in the clear
//! and lowered.

mod common;

use common::{check, noise};
use megrez_graph::{
    Activations, Attributes, CompileOptions, Constant, Graph, Id, Interval, RangePolicy, Tensor, compile,
    plain,
};

fn none() -> Attributes {
    Attributes::none()
}

fn tensor(shape: &[usize], data: &[f32]) -> Tensor {
    Tensor::new(shape.to_vec(), data.to_vec())
}

fn ints(shape: &[usize], data: &[i64]) -> Constant {
    Tensor::new(shape.to_vec(), data.to_vec()).into()
}

/// A graph of secret inputs, constants after them, and one node of which `outputs` are read.
fn node(op: &str, x: &[Tensor], constants: &[Constant], attributes: Attributes, outputs: usize) -> Graph {
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

/// The numbers of all outputs by hand; then every layer lowered, with secret and with public weights.
fn expect(g: &Graph, x: &[Tensor], want: &[Tensor], tolerance: f64) {
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

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[test]
fn functions_of_one_number_are_as_defined() {
    type Function = fn(f64) -> f64;
    let soft: Function = |x| (1.0 + x.exp()).ln();
    let cases: Vec<(&str, Attributes, Function)> = vec![
        ("Abs", none(), f64::abs),
        ("Sign", none(), |x| if x == 0.0 { 0.0 } else { x.signum() }),
        ("Floor", none(), f64::floor),
        ("Ceil", none(), f64::ceil),
        ("Round", none(), f64::round_ties_even),
        ("Elu", none().with("alpha", 2.0), |x| if x < 0.0 { 2.0 * (x.exp() - 1.0) } else { x }),
        ("Selu", none(), |x| 1.050_701 * if x < 0.0 { 1.673_263_2 * (x.exp() - 1.0) } else { x }),
        ("Celu", none().with("alpha", 2.0), |x| x.max(0.0) + (2.0 * ((x / 2.0).exp() - 1.0)).min(0.0)),
        ("HardSigmoid", none(), |x| (0.2 * x + 0.5).clamp(0.0, 1.0)),
        ("HardSwish", none(), |x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0)),
        ("Softplus", none(), soft),
        ("Softsign", none(), |x| x / (1.0 + x.abs())),
        ("Mish", none(), |x| x * ((1.0 + x.exp()).ln()).tanh()),
        ("ThresholdedRelu", none().with("alpha", 0.5), |x| if x > 0.5 { x } else { 0.0 }),
        ("Shrink", none().with("lambd", 0.5).with("bias", 0.25), |x| match x {
            x if x > 0.5 => x - 0.25,
            x if x < -0.5 => x + 0.25,
            _ => 0.0,
        }),
        ("Sin", none(), f64::sin),
        ("Cos", none(), f64::cos),
        ("Sinh", none(), f64::sinh),
        ("Cosh", none(), f64::cosh),
        ("Atan", none(), f64::atan),
        ("Asinh", none(), f64::asinh),
        ("Swish", none(), |x| x * sigmoid(x)),
    ];
    let x = tensor(&[2, 4], &[-3.25, -2.5, -1.5, -0.5, 0.0, 0.5, 1.5, 3.75]);
    for (op, attributes, f) in cases {
        let want = Tensor::new([2, 4], x.data.iter().map(|&v| f(v.into()) as f32).collect());
        expect(
            &node(op, std::slice::from_ref(&x), &[], attributes, 1),
            std::slice::from_ref(&x),
            &[want],
            4e-3,
        );
    }
    let x = tensor(&[5], &[-0.875, -0.25, 0.0, 0.25, 0.75]);
    let cases: [(&str, Function); 3] = [("Asin", f64::asin), ("Acos", f64::acos), ("Atanh", f64::atanh)];
    for (op, f) in cases {
        let want = Tensor::new([5], x.data.iter().map(|&v| f(v.into()) as f32).collect());
        expect(&node(op, std::slice::from_ref(&x), &[], none(), 1), std::slice::from_ref(&x), &[want], 4e-3);
    }
}

#[test]
fn comparisons_of_secrets_are_exact_on_ties() {
    type Compare = fn(f32, f32) -> bool;
    let cases: [(&str, Compare); 5] = [
        ("Greater", |a, b| a > b),
        ("GreaterOrEqual", |a, b| a >= b),
        ("Less", |a, b| a < b),
        ("LessOrEqual", |a, b| a <= b),
        ("Equal", |a, b| a == b),
    ];
    let unit = 1.0 / 65536.0;
    let a = tensor(&[6], &[1.0, 1.0, 1.0 + unit, -2.0, 0.0, 3.5]);
    let b = tensor(&[6], &[1.0, 1.0 + unit, 1.0, 2.0, 0.0, -3.5]);
    for (op, f) in cases {
        let want = a.data.iter().zip(&b.data).map(|(&a, &b)| f32::from(f(a, b))).collect();
        let want = [Tensor::new([6], want)];
        expect(&node(op, &[a.clone(), b.clone()], &[], none(), 1), &[a.clone(), b.clone()], &want, 1e-9);
        let constant = [b.clone().into()];
        expect(
            &node(op, std::slice::from_ref(&a), &constant, none(), 1),
            std::slice::from_ref(&a),
            &want,
            1e-9,
        );
    }
}

#[test]
fn logic_of_secrets_is_logic() {
    let [a, b] = [tensor(&[4], &[0.0, 0.0, 1.0, 1.0]), tensor(&[4], &[0.0, 1.0, 0.0, 1.0])];
    for (op, want) in [("And", [0, 0, 0, 1]), ("Or", [0, 1, 1, 1]), ("Xor", [0, 1, 1, 0])] {
        let want = [tensor(&[4], &want.map(|v| v as f32))];
        expect(&node(op, &[a.clone(), b.clone()], &[], none(), 1), &[a.clone(), b.clone()], &want, 1e-9);
    }
    let not = [tensor(&[4], &[1.0, 1.0, 0.0, 0.0])];
    expect(&node("Not", std::slice::from_ref(&a), &[], none(), 1), std::slice::from_ref(&a), &not, 1e-9);
    let [x, y] = [tensor(&[4], &[5.0, 6.0, 7.0, 8.0]), tensor(&[4], &[-1.0, -2.0, -3.0, -4.0])];
    let inputs = [a, x, y];
    let want = [tensor(&[4], &[-1.0, -2.0, 7.0, 8.0])];
    expect(&node("Where", &inputs, &[], none(), 1), &inputs, &want, 1e-3);
}

#[test]
fn remainders_are_right_at_the_multiples() {
    let x = tensor(&[8], &[-6.0, -4.5, -3.0, -0.5, 0.0, 3.0, 6.0, 7.25]);
    let y: Vec<f32> = vec![3.0, 3.0, 3.0, -3.0, 3.0, -3.0, 1.5, -2.0];
    for (fmod, f) in [(0, (|a, b| a - b * (a / b).floor()) as fn(f32, f32) -> f32), (1, |a, b| a % b)] {
        let want = Tensor::new([8], x.data.iter().zip(&y).map(|(&a, &b)| f(a, b)).collect());
        let given = [tensor(&[8], &y).into()];
        let g = node("Mod", std::slice::from_ref(&x), &given, none().with("fmod", fmod), 1);
        let x = std::slice::from_ref(&x);
        assert_eq!(plain::run(&g, x).unwrap(), std::slice::from_ref(&want));
        // Quotients at a multiple may round either way: only the remainder must be right.
        let options = CompileOptions { input_range: Interval::abs(8.0), ..CompileOptions::default() };
        let compiled = compile(&g, &options).unwrap();
        let values = common::interpret(&compiled, x);
        let last = compiled.layers.last().unwrap();
        let got = common::decode(values[last.value.0 as usize].as_ref().unwrap(), last.frac);
        let near = |(g, w): (&f64, &f32)| (g - f64::from(*w)).abs() < 1e-3;
        assert!(got.iter().zip(&want.data).all(near), "{got:?} instead of {:?}", want.data);
    }
}

#[test]
fn the_order_of_a_row_is_right_with_equal_numbers() {
    let x = tensor(&[2, 4], &[2.0, 5.0, 5.0, -1.0, 0.5, 0.5, 0.5, 0.5]);
    let one = |op: &str, attributes| node(op, std::slice::from_ref(&x), &[], attributes, 1);
    let hard = tensor(&[2, 4], &[0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
    expect(&one("Hardmax", none()), std::slice::from_ref(&x), &[hard], 1e-9);
    for (largest, values, places) in [
        (1, [5.0, 5.0, 2.0, 0.5, 0.5, 0.5], [1.0, 2.0, 0.0, 0.0, 1.0, 2.0]),
        (0, [-1.0, 2.0, 5.0, 0.5, 0.5, 0.5], [3.0, 0.0, 1.0, 0.0, 1.0, 2.0]),
    ] {
        let g =
            node("TopK", std::slice::from_ref(&x), &[ints(&[1], &[3])], none().with("largest", largest), 2);
        let want = [tensor(&[2, 3], &values), tensor(&[2, 3], &places)];
        expect(&g, std::slice::from_ref(&x), &want, 1e-3);
    }
    // ArgMax within the plan: what reads it is no output.
    for (last, want) in [(0, [1.0, 0.0]), (1, [2.0, 3.0])] {
        let mut g = Graph::new("test");
        let input = g.input("x", [2, 4]).unwrap();
        let attributes = none().with("axis", 1).with("keepdims", 0).with("select_last_index", last);
        let place = g.add("place", "ArgMax", &[input], attributes).unwrap();
        let y = g.add("negative", "Neg", &[place], none()).unwrap();
        g.output("y", y);
        expect(&g, std::slice::from_ref(&x), &[tensor(&[2], &want.map(|v: f32| -v))], 1e-9);
    }
}

#[test]
fn reductions_are_as_defined() {
    let x = tensor(&[2, 3], &[1.0, -2.0, 3.0, 0.5, 4.0, 1.5]);
    let cases: [(&str, fn(&[f64]) -> f64); 7] = [
        ("ReduceL1", |r| r.iter().map(|v| v.abs()).sum()),
        ("ReduceL2", |r| r.iter().map(|v| v * v).sum::<f64>().sqrt()),
        ("ReduceSumSquare", |r| r.iter().map(|v| v * v).sum()),
        ("ReduceProd", |r| r.iter().product()),
        ("ReduceLogSumExp", |r| r.iter().map(|v| v.exp()).sum::<f64>().ln()),
        ("ReduceLogSum", |r| r.iter().sum::<f64>().ln()),
        ("ReduceMean", |r| r.iter().sum::<f64>() / r.len() as f64),
    ];
    for (op, f) in cases {
        let rows = x.data.chunks_exact(3).map(|r| f(&r.iter().map(|&v| v.into()).collect::<Vec<_>>()) as f32);
        let want = Tensor::new([2], rows.collect());
        let attributes = none().with("axes", [1]).with("keepdims", 0);
        expect(
            &node(op, std::slice::from_ref(&x), &[], attributes, 1),
            std::slice::from_ref(&x),
            &[want],
            5e-3,
        );
    }
    let sums = |exclusive: i64, reverse: i64| {
        let attributes = none().with("exclusive", exclusive).with("reverse", reverse);
        node("CumSum", std::slice::from_ref(&x), &[ints(&[], &[1])], attributes, 1)
    };
    let want = |data: &[f32]| [tensor(&[2, 3], data)];
    let x = std::slice::from_ref(&x);
    expect(&sums(0, 0), x, &want(&[1.0, -1.0, 2.0, 0.5, 4.5, 6.0]), 1e-9);
    expect(&sums(1, 0), x, &want(&[0.0, 1.0, -1.0, 0.0, 0.5, 4.5]), 1e-9);
    expect(&sums(0, 1), x, &want(&[2.0, 1.0, 3.0, 6.0, 5.5, 1.5]), 1e-9);
    expect(&sums(1, 1), x, &want(&[1.0, 3.0, 0.0, 5.5, 1.5, 0.0]), 1e-9);
    let products = node("CumProd", x, &[ints(&[], &[1])], none().with("reverse", 1), 1);
    expect(&products, x, &want(&[-6.0, -6.0, 3.0, 3.0, 6.0, 1.5]), 1e-3);
}

#[test]
fn places_are_as_defined() {
    let x = Tensor::new([2, 3], (0..6).map(|v| v as f32).collect());
    let x = std::slice::from_ref(&x);
    let with = |op: &str, constants: &[Constant], attributes| node(op, x, constants, attributes, 1);
    let y = tensor(&[2, 2], &[1.0, 0.0, 5.0, 3.0]);
    let indices = ints(&[2, 2], &[1, 0, -1, 0]);
    expect(&with("GatherElements", &[indices], none().with("axis", 1)), x, &[y], 1e-9);
    let y = tensor(&[2], &[5.0, 0.0]);
    expect(&with("GatherND", &[ints(&[2, 2], &[1, 2, 0, 0])], none()), x, &[y], 1e-9);
    let y = tensor(&[2, 6], &[0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 3.0, 4.0, 5.0]);
    expect(&with("Tile", &[ints(&[2], &[1, 2])], none()), x, &[y], 1e-9);
    let y = tensor(&[2, 3], &[0.0, 1.0, 2.0, 0.0, 4.0, 5.0]);
    expect(&with("Trilu", &[], none()), x, &[y], 1e-9);
    for (mode, row) in [
        ("reflect", [2.0, 1.0, 0.0, 1.0, 2.0, 1.0]),
        ("edge", [0.0, 0.0, 0.0, 1.0, 2.0, 2.0]),
        ("wrap", [1.0, 2.0, 0.0, 1.0, 2.0, 0.0]),
    ] {
        let y: Vec<f32> = [row, row.map(|v| v + 3.0)].concat();
        let attributes = none().with("mode", mode);
        expect(&with("Pad", &[ints(&[4], &[0, 2, 0, 1])], attributes), x, &[tensor(&[2, 6], &y)], 1e-9);
    }
    let y = tensor(&[2, 2], &[7.0, 0.0, 7.0, 3.0]);
    let padded = with("Pad", &[ints(&[4], &[0, 1, 0, -2]), tensor(&[], &[7.0]).into()], none());
    expect(&padded, x, &[y], 1e-4);
    let updates = || tensor(&[1, 2], &[10.0, 20.0]).into();
    let y = tensor(&[2, 3], &[10.0, 1.0, 2.0, 3.0, 20.0, 5.0]);
    expect(&with("ScatterElements", &[ints(&[1, 2], &[0, 1]), updates()], none()), x, &[y], 1e-4);
    // One place twice.
    for (reduction, first) in [("add", 30.0), ("mul", 0.0), ("max", 20.0), ("min", 0.0)] {
        let attributes = none().with("axis", 1).with("reduction", reduction);
        let y = tensor(&[2, 3], &[first, 1.0, 2.0, 3.0, 4.0, 5.0]);
        expect(&with("ScatterElements", &[ints(&[1, 2], &[0, 0]), updates()], attributes), x, &[y], 1e-3);
    }
    let y = tensor(&[2, 3], &[0.0, 1.0, 2.0, 7.0, 8.0, 9.0]);
    let row = tensor(&[1, 3], &[7.0, 8.0, 9.0]).into();
    expect(&with("ScatterND", &[ints(&[1, 1], &[1]), row], none()), x, &[y], 1e-4);
    let hot = tensor(&[2, 3, 2], &[9.0, 1.0, 1.0, 9.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    let g = with("OneHot", &[ints(&[], &[2]), tensor(&[2], &[1.0, 9.0]).into()], none());
    expect(&g, x, &[hot], 1e-9);
    let parts = [tensor(&[2, 1], &[0.0, 3.0]), tensor(&[2, 2], &[1.0, 2.0, 4.0, 5.0])];
    let split = node("Split", x, &[ints(&[2], &[1, 2])], none().with("axis", 1), 2);
    expect(&split, x, &parts, 1e-9);
}

#[test]
fn images_are_rearranged_in_blocks() {
    let x = Tensor::new([1, 4, 1, 2], (0..8).map(|v| v as f32).collect());
    let g = node("DepthToSpace", std::slice::from_ref(&x), &[], none().with("blocksize", 2), 1);
    let y = tensor(&[1, 1, 2, 4], &[0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]);
    expect(&g, std::slice::from_ref(&x), std::slice::from_ref(&y), 1e-9);
    let g = node("SpaceToDepth", std::slice::from_ref(&y), &[], none().with("blocksize", 2), 1);
    expect(&g, &[y], &[x], 1e-9);
}

#[test]
fn convolutions_of_other_dimensions_are_those_of_images() {
    // A kernel that adds neighbours, worked out by hand.
    let x = tensor(&[1, 1, 4], &[1.0, 2.0, 3.0, 4.0]);
    let w: Constant = tensor(&[1, 1, 2], &[1.0, 10.0]).into();
    let g = node("Conv", std::slice::from_ref(&x), std::slice::from_ref(&w), none().with("pads", [1, 0]), 1);
    expect(&g, std::slice::from_ref(&x), &[tensor(&[1, 1, 4], &[10.0, 21.0, 32.0, 43.0])], 1e-3);
    let g = node("ConvTranspose", std::slice::from_ref(&x), &[w], none().with("strides", [2]), 1);
    let y = tensor(&[1, 1, 8], &[1.0, 10.0, 2.0, 20.0, 3.0, 30.0, 4.0, 40.0]);
    expect(&g, std::slice::from_ref(&x), &[y], 1e-3);
    // One place of depth at a time is a convolution of images.
    let (x, w) = (noise([1, 2, 3, 4, 4], 1), noise([3, 2, 2, 3, 3], 2));
    let attributes = none().with("pads", [1, 1, 1, 0, 1, 1]).with("strides", [1, 2, 1]);
    let g = node("Conv", std::slice::from_ref(&x), &[w.clone().into()], attributes, 1);
    let mut want = 0.0;
    // Place [0, 1, 1, 1, 1] of the result: depths 0 and 1, rows 1 to 3, columns 0 to 2 of the data.
    for (c, d, i, j) in (0..36).map(|t| (t / 18, t / 9 % 2, t / 3 % 3, t % 3)) {
        want += x.data[((c * 3 + d) * 4 + i + 1) * 4 + j] * w.data[(((2 + c) * 2 + d) * 3 + i) * 3 + j];
    }
    let got = plain::run(&g, std::slice::from_ref(&x)).unwrap().remove(0);
    assert_eq!(got.shape.dims(), [1, 3, 3, 2, 4]);
    assert!((got.data[((3 + 1) * 2 + 1) * 4 + 1] - want).abs() < 1e-4);
    expect(&g, std::slice::from_ref(&x), &[got], 1e-3);
    let x = Tensor::new([1, 1, 2, 2, 2], (0..8).map(|v| v as f32).collect());
    let cube = || none().with("kernel_shape", [2, 2, 2]);
    for (op, y) in [("MaxPool", 7.0), ("AveragePool", 3.5), ("LpPool", 140f32.sqrt())] {
        let g = node(op, std::slice::from_ref(&x), &[], cube(), 1);
        expect(&g, std::slice::from_ref(&x), &[tensor(&[1, 1, 1, 1, 1], &[y])], 5e-3);
    }
}

#[test]
fn normalisations_are_as_defined() {
    let x = tensor(&[1, 2, 2, 2], &[1.0, 2.0, 3.0, 6.0, -1.0, 0.5, 0.0, 2.5]);
    let statistics = |part: &[f32]| {
        let mean = part.iter().sum::<f32>() / part.len() as f32;
        (mean, part.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / part.len() as f32)
    };
    let normalised = |part: &[f32], epsilon: f32| {
        let (mean, variance) = statistics(part);
        part.iter().map(|v| (v - mean) / (variance + epsilon).sqrt()).collect::<Vec<f32>>()
    };
    let weights = || [tensor(&[2], &[2.0, -1.0]).into(), tensor(&[2], &[0.5, 0.0]).into()];
    let weigh = |y: Vec<f32>| {
        y.iter().enumerate().map(|(i, v)| if i < 4 { 2.0 * v + 0.5 } else { -v }).collect::<Vec<f32>>()
    };
    let halves: Vec<f32> = x.data.chunks(4).flat_map(|c| normalised(c, 1e-5)).collect();
    let x = std::slice::from_ref(&x);
    let g = node("InstanceNormalization", x, &weights(), none(), 1);
    expect(&g, x, &[tensor(&[1, 2, 2, 2], &weigh(halves))], 4e-3);
    let g = node("GroupNormalization", x, &weights(), none().with("num_groups", 1), 1);
    expect(&g, x, &[tensor(&[1, 2, 2, 2], &weigh(normalised(&x[0].data, 1e-5)))], 4e-3);
    let g = node("MeanVarianceNormalization", x, &[], none(), 1);
    let halves: Vec<f32> = x[0].data.chunks(4).flat_map(|c| normalised(c, 0.0)).collect();
    expect(&g, x, &[tensor(&[1, 2, 2, 2], &halves)], 4e-3);
    let rms: Vec<f32> = (x[0].data.chunks(2))
        .flat_map(|c| {
            c.iter().map(|v| v / ((c[0] * c[0] + c[1] * c[1]) / 2.0 + 1e-5).sqrt()).collect::<Vec<_>>()
        })
        .collect();
    let g = node("RMSNormalization", x, &[tensor(&[2], &[1.0, 1.0]).into()], none(), 1);
    expect(&g, x, &[tensor(&[1, 2, 2, 2], &rms)], 4e-3);
    let g = node("LpNormalization", x, &[], none().with("p", 1), 1);
    let lp: Vec<f32> = (x[0].data.chunks(2))
        .flat_map(|c| c.iter().map(|v| v / (c[0].abs() + c[1].abs())).collect::<Vec<_>>())
        .collect();
    expect(&g, x, &[tensor(&[1, 2, 2, 2], &lp)], 4e-3);
    let lrn: Vec<f32> = (0..8)
        .map(|i| {
            let sum: f32 =
                if i < 4 { x[0].data[i].powi(2) + x[0].data[i + 4].powi(2) } else { x[0].data[i].powi(2) };
            x[0].data[i] / (1.0 + 0.01 / 2.0 * sum).powf(0.75)
        })
        .collect();
    let g = node("LRN", x, &[], none().with("size", 2).with("alpha", 0.01), 1);
    expect(&g, x, &[tensor(&[1, 2, 2, 2], &lrn)], 4e-3);
    // The mean and the inverse deviation are outputs, too.
    let g = node("LayerNormalization", x, &[tensor(&[2], &[1.0, 1.0]).into()], none(), 3);
    let layer: Vec<f32> = x[0].data.chunks(2).flat_map(|c| normalised(c, 1e-5)).collect();
    let mean: Vec<f32> = x[0].data.chunks(2).map(|c| statistics(c).0).collect();
    let inverse: Vec<f32> = x[0].data.chunks(2).map(|c| 1.0 / (statistics(c).1 + 1e-5).sqrt()).collect();
    let want = [tensor(&[1, 2, 2, 2], &layer), tensor(&[1, 2, 2, 1], &mean), tensor(&[1, 2, 2, 1], &inverse)];
    expect(&g, x, &want, 4e-3);
}

#[test]
fn images_are_resized_by_their_modes() {
    let x = tensor(&[1, 1, 1, 4], &[1.0, 2.0, 3.0, 4.0]);
    let x = std::slice::from_ref(&x);
    let resize = |attributes: Attributes, scale: f32| {
        let mut g = Graph::new("test");
        let input = g.input("x0", [1, 1, 1, 4]).unwrap();
        let scales = g.constant("scales", tensor(&[4], &[1.0, 1.0, 1.0, scale]));
        let y = g.add_node("resize", "Resize", &[Some(input), None, Some(scales)], attributes).unwrap();
        g.output("y", y);
        g
    };
    let wide = |data: &[f32]| [tensor(&[1, 1, 1, data.len()], data)];
    let y = wide(&[1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]);
    expect(&resize(none(), 2.0), x, &y, 1e-9);
    let linear = none().with("mode", "linear");
    let y = wide(&[1.0, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4.0]);
    expect(&resize(linear.clone(), 2.0), x, &y, 1e-3);
    expect(&resize(linear.clone(), 0.5), x, &wide(&[1.5, 3.5]), 1e-3);
    let corners = linear.with("coordinate_transformation_mode", "align_corners");
    let y: Vec<f32> = (0..8).map(|i| 1.0 + i as f32 * 3.0 / 7.0).collect();
    expect(&resize(corners, 2.0), x, &wide(&y), 1e-3);
    // Cubic weights half way are −3/32 and 19/32.
    let cubic = none().with("mode", "cubic").with("exclude_outside", 0);
    expect(
        &resize(cubic, 0.5),
        x,
        &wide(&[(-3.0 + 19.0 * 3.0 - 9.0) / 32.0, (-6.0 + 19.0 * 7.0 - 12.0) / 32.0]),
        1e-3,
    );
}

#[test]
fn einsum_is_a_sum_of_products() {
    let (a, b) = (noise([2, 3, 4], 1), noise([2, 4, 5], 2));
    let equation = |text: &str| none().with("equation", text);
    let g = node("Einsum", &[a.clone(), b.clone()], &[], equation("bij, bjk -> bki"), 1);
    let got = plain::run(&g, &[a.clone(), b.clone()]).unwrap().remove(0);
    assert_eq!(got.shape.dims(), [2, 5, 3]);
    let want: f32 = (0..4).map(|j| a.data[(3 + 2) * 4 + j] * b.data[(4 + j) * 5 + 3]).sum();
    assert!((got.data[(5 + 3) * 3 + 2] - want).abs() < 1e-5);
    expect(&g, &[a, b], &[got], 1e-3);
    let x = Tensor::new([2, 3, 3], (0..18).map(|v| v as f32).collect());
    let x = std::slice::from_ref(&x);
    let y = tensor(&[2, 3], &[0.0, 4.0, 8.0, 9.0, 13.0, 17.0]);
    expect(&node("Einsum", x, &[], equation("...ii->...i"), 1), x, &[y], 1e-9);
    expect(&node("Einsum", x, &[], equation("aij->"), 1), x, &[tensor(&[], &[153.0])], 1e-9);
}

#[test]
fn cells_are_as_defined() {
    // One number in, one hidden, two steps: worked out step by step.
    let x = tensor(&[2, 1, 1], &[0.5, -1.0]);
    let x = std::slice::from_ref(&x);
    let c = |shape: &[usize], data: &[f32]| Constant::from(tensor(shape, data));
    let s = |v: f64| 1.0 / (1.0 + (-v).exp());
    let hidden = || none().with("hidden_size", 1);
    let sequence =
        |h: [f64; 2]| [tensor(&[2, 1, 1, 1], &h.map(|v| v as f32)), tensor(&[1, 1, 1], &[h[1] as f32])];
    let (w, r) = (0.8, -0.6);
    let first = (w * 0.5f64).tanh();
    let want = sequence([first, (-w + r * first).tanh()]);
    let g = node("RNN", x, &[c(&[1, 1, 1], &[0.8]), c(&[1, 1, 1], &[-0.6])], hidden(), 2);
    expect(&g, x, &want, 4e-3);
    let (w, r) = ([0.5f64, -0.25, 1.0, 0.75], [0.25f64, 0.5, -0.5, 1.0]);
    let mut state = (0.0, 0.0);
    let mut shown = [0.0; 2];
    for (t, x) in [0.5, -1.0].into_iter().enumerate() {
        let gate = |i: usize| w[i] * x + r[i] * state.0;
        let cell = s(gate(2)) * state.1 + s(gate(0)) * gate(3).tanh();
        state = (s(gate(1)) * cell.tanh(), cell);
        shown[t] = state.0;
    }
    let [y, h] = sequence(shown);
    let g = node(
        "LSTM",
        x,
        &[c(&[1, 4, 1], &w.map(|v| v as f32)), c(&[1, 4, 1], &r.map(|v| v as f32))],
        hidden(),
        3,
    );
    expect(&g, x, &[y, h, tensor(&[1, 1, 1], &[state.1 as f32])], 4e-3);
    for linear in [0, 1] {
        let mut h = 0.0;
        let mut shown = [0.0; 2];
        for (t, x) in [0.5, -1.0].into_iter().enumerate() {
            let (z, reset) = (s(w[0] * x + r[0] * h), s(w[1] * x + r[1] * h));
            let new = (w[2] * x + r[2] * reset * h).tanh();
            h = (1.0 - z) * new + z * h;
            shown[t] = h;
        }
        let constants = [c(&[1, 3, 1], &[0.5, -0.25, 1.0]), c(&[1, 3, 1], &[0.25, 0.5, -0.5])];
        let g = node("GRU", x, &constants, hidden().with("linear_before_reset", linear), 2);
        expect(&g, x, &sequence(shown), 4e-3);
    }
}

#[test]
fn losses_take_the_numbers_of_the_labels() {
    let x = tensor(&[2, 3], &[-0.5, -1.0, -2.0, -3.0, -0.25, -1.5]);
    let x = std::slice::from_ref(&x);
    let labels = || ints(&[2], &[2, 1]);
    let with = |constants: &[Constant], reduction: &str| {
        node("NegativeLogLikelihoodLoss", x, constants, none().with("reduction", reduction), 1)
    };
    expect(&with(&[labels()], "none"), x, &[tensor(&[2], &[2.0, 0.25])], 1e-9);
    expect(&with(&[labels()], "mean"), x, &[tensor(&[], &[1.125])], 1e-3);
    let weights = || tensor(&[3], &[1.0, 4.0, 2.0]).into();
    expect(&with(&[labels(), weights()], "mean"), x, &[tensor(&[], &[5.0 / 6.0])], 1e-3);
    let sum = (0..3).map(|i| f64::from(x[0].data[i]).exp()).sum::<f64>().ln();
    let g = node("SoftmaxCrossEntropyLoss", x, &[labels()], none().with("reduction", "none"), 2);
    let got = plain::run(&g, x).unwrap();
    assert!((f64::from(got[0].data[0]) - (sum + 2.0)).abs() < 1e-5 && got[1].shape.dims() == [2, 3]);
}

#[test]
fn mistakes_and_absurd_sizes_are_refused() {
    let mut g = Graph::new("test");
    let x = g.input("x", [1, 2, 4, 4]).unwrap();
    let list = |g: &mut Graph, v: &[i64]| g.constant("i", Tensor::<i64>::new([v.len()], v.to_vec()));
    let huge = list(&mut g, &[1 << 20, 1 << 20, 1 << 20, 1]);
    let sizes = list(&mut g, &[1, 2, 1 << 30, 4]);
    let far = list(&mut g, &[9]);
    let mut refused = |op: &str, inputs: &[Option<Id>], attributes: Attributes, what: &str| {
        let error = g.add_node("bad", op, inputs, attributes).unwrap_err().to_string();
        assert!(error.contains(what), "{op}: {error}");
    };
    refused("Tile", &[Some(x), Some(huge)], none(), "no elements, more than 2^28");
    refused("Resize", &[Some(x), None, None, Some(sizes)], none(), "more than");
    refused("DepthToSpace", &[Some(x)], none().with("blocksize", i64::MAX), "not a size");
    refused("SpaceToDepth", &[Some(x)], none().with("blocksize", 3), "no multiple");
    refused("Compress", &[Some(x), Some(x)], none(), "known when compiling");
    refused("CenterCropPad", &[Some(x), Some(huge)], none(), "more than");
    refused("Split", &[Some(x), Some(far)], none(), "do not make up");
    refused("TopK", &[Some(x), Some(far)], none(), "between 1 and 4");
    refused("LRN", &[Some(x)], none().with("size", 1 << 40), "from 1 to 64");
    refused("Det", &[Some(x)], none().with("n", 4), "not supported");
    refused("Einsum", &[Some(x)], none().with("equation", "ij->i"), "does not fit");
    refused("AveragePool", &[Some(x)], none(), "kernel");
    refused("LpPool", &[Some(x)], none().with("kernel_shape", [0, 0]), "at least 1");
    refused("ConvTranspose", &[Some(x), Some(huge)], none(), "does not fit");
    refused("LSTM", &[Some(x), Some(x), Some(x)], none(), "takes sequences");
    refused("GridSample", &[Some(x), Some(x)], none(), "constant of the model");
    refused("Mod", &[Some(x), Some(x)], none(), "constant of the model");
}

#[test]
fn parts_keep_the_name_of_their_node_through_all_passes() {
    let mut g = Graph::new("test");
    let x = g.input("x", [2, 3]).unwrap();
    let two = g.constant("two", tensor(&[], &[2.0]));
    let power = g.add("power", "Pow", &[x, two], none()).unwrap();
    let pad = g.add("pad", "Pad", &[power], none().with("pads", [0, 1, 0, 0])).unwrap();
    let sum = g.add("sum", "ReduceSum", &[pad], none().with("axes", [1])).unwrap();
    let y = g.add("soft", "Softplus", &[sum], none()).unwrap();
    g.output("y", y);
    let compiled = compile(&g, &CompileOptions::default()).unwrap();
    let names: Vec<&str> = compiled.layers.iter().map(|l| l.name.as_str()).collect();
    assert_eq!(names[..3], ["power", "pad", "sum"]);
    assert!(names[3..].iter().all(|name| name.starts_with("soft.")), "{names:?}");
}

#[test]
fn attention_is_a_softmax_of_what_is_in_sight() {
    // Two heads of queries share one of keys; a key of the past comes first.
    let [q, k, v] = [noise([1, 2, 3, 4], 1), noise([1, 1, 3, 4], 2), noise([1, 1, 3, 2], 3)];
    let [past_k, past_v] = [noise([1, 1, 1, 4], 4), noise([1, 1, 1, 2], 5)];
    let mut g = Graph::new("test");
    let inputs = [&q, &k, &v, &past_k, &past_v];
    let ids: Vec<Option<Id>> = inputs
        .iter()
        .enumerate()
        .map(|(i, x)| Some(g.input(&format!("x{i}"), x.shape.clone()).unwrap()))
        .collect();
    let given = [ids[0], ids[1], ids[2], None, ids[3], ids[4]];
    let y = g.add_nodes("attention", "Attention", &given, none().with("is_causal", 1), &[true]).unwrap();
    g.output("y", y[0]);
    let key = |j: usize, d: usize| if j == 0 { past_k.data[d] } else { k.data[(j - 1) * 4 + d] };
    let value = |j: usize, d: usize| if j == 0 { past_v.data[d] } else { v.data[(j - 1) * 2 + d] };
    let mut want = vec![];
    for (h, i) in (0..6).map(|n| (n / 3, n % 3)) {
        let score = |j: usize| (0..4).map(|d| q.data[(h * 3 + i) * 4 + d] * key(j, d)).sum::<f32>() / 2.0;
        let weights: Vec<f32> = (0..4).map(|j| if j <= i + 1 { score(j).exp() } else { 0.0 }).collect();
        let sum: f32 = weights.iter().sum();
        want.extend((0..2).map(|d| (0..4).map(|j| weights[j] / sum * value(j, d)).sum::<f32>()));
    }
    let inputs = inputs.map(Clone::clone);
    expect(&g, &inputs, &[tensor(&[1, 2, 3, 2], &want)], 4e-3);
}

#[test]
fn places_are_turned_by_their_angles() {
    let x = tensor(&[1, 1, 2, 4], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let x = std::slice::from_ref(&x);
    // The first place stays, the second is turned by a right angle.
    let caches = || {
        [tensor(&[1, 2, 2], &[1.0, 1.0, 0.0, 0.0]).into(), tensor(&[1, 2, 2], &[0.0, 0.0, 1.0, 1.0]).into()]
    };
    for (interleaved, row) in [(0, [-7.0, -8.0, 5.0, 6.0]), (1, [-6.0, 5.0, -8.0, 7.0])] {
        let g = node("RotaryEmbedding", x, &caches(), none().with("interleaved", interleaved), 1);
        let y = [vec![1.0, 2.0, 3.0, 4.0], row.to_vec()].concat();
        expect(&g, x, &[tensor(&[1, 1, 2, 4], &y)], 1e-3);
    }
}

#[test]
fn quantised_numbers_are_rounded_and_held_in_their_type() {
    let x = tensor(&[6], &[-300.0, -1.3, 0.0, 0.7, 2.6, 300.0]);
    let scale = || Constant::from(tensor(&[], &[0.5]));
    for (to, zero, want) in
        [(2, 3, [0.0, 0.0, 3.0, 4.0, 8.0, 255.0]), (3, -2, [-128.0, -5.0, -2.0, -1.0, 3.0, 127.0])]
    {
        let constants = [scale(), ints(&[], &[zero])];
        let g = node("QuantizeLinear", std::slice::from_ref(&x), &constants, none().with("to_type", to), 1);
        expect(&g, std::slice::from_ref(&x), &[tensor(&[6], &want)], 1e-3);
    }
    let x = tensor(&[2, 2], &[10.0, 20.0, 128.0, 255.0]);
    let constants = [tensor(&[2], &[0.1, 2.0]).into(), ints(&[2], &[128, 0])];
    let g = node("DequantizeLinear", std::slice::from_ref(&x), &constants, none(), 1);
    expect(&g, std::slice::from_ref(&x), &[tensor(&[2, 2], &[-11.8, 40.0, 0.0, 510.0])], 1e-3);
}

#[test]
fn a_batch_of_weight_matrices_is_multiplied() {
    let (x, w) = (noise([2, 3, 4], 1), noise([2, 4, 2], 2));
    let g = node("MatMul", std::slice::from_ref(&x), &[w.clone().into()], none(), 1);
    let got = plain::run(&g, std::slice::from_ref(&x)).unwrap();
    let want: f32 = (0..4).map(|k| x.data[(3 + 2) * 4 + k] * w.data[(4 + k) * 2 + 1]).sum();
    assert!((got[0].data[(3 + 2) * 2 + 1] - want).abs() < 1e-6);
    expect(&g, std::slice::from_ref(&x), &got, 1e-3);
}
