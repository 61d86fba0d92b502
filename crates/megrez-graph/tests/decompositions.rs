//! Operators on single numbers, their order and their places, against their definitions.

use crate::common::nodes::{expect, ints, node, none, tensor};
use megrez_graph::{Attributes, CompileOptions, Constant, Graph, Id, Interval, Tensor, compile, plain};

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
        let values = crate::common::interpret(&compiled, x);
        let last = compiled.layers.last().unwrap();
        let got = crate::common::decode(values[last.value.0 as usize].as_ref().unwrap(), last.frac);
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
        // As before opset 10.
        let attributes = none().with("largest", largest).with("k", 3);
        expect(
            &node("TopK", std::slice::from_ref(&x), &[], attributes, 2),
            std::slice::from_ref(&x),
            &want,
            1e-3,
        );
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
fn the_largest_of_a_long_row_is_found_by_a_tournament() {
    const N: usize = 97;
    // Rows: equal numbers everywhere; the largest twice; and at either end, by the smallest step.
    let step = 1.0 / 65536.0;
    let mut x = Tensor::filled([4, N], -0.25);
    let row = |r: usize, i: usize| r * N + i;
    [row(1, 20), row(1, 90)].into_iter().for_each(|i| x.data[i] = 0.75);
    (x.data[row(2, 0)], x.data[row(3, N - 1)]) = (-0.25 + step, -0.25 + step);
    let hard = |places: [usize; 4]| {
        let mut y = Tensor::filled([4, N], 0.0);
        places.iter().enumerate().for_each(|(r, &i)| y.data[row(r, i)] = 1.0);
        y
    };
    let x = std::slice::from_ref(&x);
    expect(&node("Hardmax", x, &[], none(), 1), x, &[hard([0, 20, 0, N - 1])], 1e-9);
    for (last, want) in [(0, [0, 20, 0, N - 1]), (1, [N - 1, 90, 0, N - 1])] {
        let mut g = Graph::new("test");
        let input = g.input("x", [4, N]).unwrap();
        let attributes = none().with("axis", 1).with("keepdims", 0).with("select_last_index", last);
        let place = g.add("place", "ArgMax", &[input], attributes).unwrap();
        let y = g.add("negative", "Neg", &[place], none()).unwrap();
        g.output("y", y);
        expect(&g, x, &[tensor(&[4], &want.map(|v| -(v as f32)))], 1e-9);
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
fn quantised_convolutions_are_those_of_whole_numbers() {
    let x = tensor(&[1, 1, 2, 2], &[10.0, 20.0, 30.0, 255.0]);
    let number = |v: f32| Constant::from(Tensor::new([], vec![v]));
    let (x_zero, weights) = (ints(&[], &[10]), ints(&[2, 1, 1, 1], &[3, 130]));
    // (x − 10) · (w − zero of w), one zero point for each channel.
    let products = |zeros: [f32; 2]| {
        let of = |(c, w): (usize, f32)| x.data.iter().map(move |v| (v - 10.0) * (w - zeros[c]));
        [(0, 3.0), (1, 130.0)].into_iter().flat_map(of).collect::<Vec<f32>>()
    };
    let constants = [weights.clone(), x_zero.clone(), ints(&[2], &[1, 128])];
    let want = [Tensor::new([1, 2, 2, 2], products([1.0, 128.0]))];
    let graph = node("ConvInteger", std::slice::from_ref(&x), &constants, none(), 1);
    expect(&graph, std::slice::from_ref(&x), &want, 1e-9);
    let constants = [
        number(0.5),
        x_zero,
        weights,
        Tensor::new([2], vec![0.25f32, 0.5]).into(),
        ints(&[], &[128]),
        number(2.0),
        ints(&[], &[7]),
        ints(&[2], &[16, -8]),
    ];
    let bias = [16.0, -8.0];
    let scaled = |(i, v): (usize, &f32)| {
        let c = i / 4;
        ((v + bias[c]) * 0.5 * [0.25, 0.5][c] / 2.0).round_ties_even() + 7.0
    };
    let want = products([128.0, 128.0]).iter().enumerate().map(scaled).map(|v| v.clamp(0.0, 255.0)).collect();
    let attributes = none().with("to_type", 2);
    let graph = node("QLinearConv", std::slice::from_ref(&x), &constants, attributes, 1);
    expect(&graph, std::slice::from_ref(&x), &[Tensor::new([1, 2, 2, 2], want)], 1e-9);
}

#[test]
fn categories_and_labels_are_found_among_numbers() {
    let x = tensor(&[2, 4], &[-2.0, -1.0, 0.0, 1.0, 0.5, -0.5, 2.5, 7.0]);
    let categories = [-2i64, -1, 0, 2];
    let hot = |v: &f32| categories.iter().map(|&c| f32::from(v.trunc() as i64 == c)).collect::<Vec<_>>();
    let want = [Tensor::new([2, 4, 4], x.data.iter().flat_map(hot).collect())];
    for zeros in [0, 1] {
        let attributes = none().with("cats_int64s", categories).with("zeros", zeros);
        let graph = node("OneHotEncoder", std::slice::from_ref(&x), &[], attributes, 1);
        expect(&graph, std::slice::from_ref(&x), &want, 1e-9);
    }
    let attributes = none()
        .with("keys_int64s", [1i64, -1, 7])
        .with("values_floats", megrez_graph::Attribute::Floats(vec![0.5, 2.0, -3.0]))
        .with("default_float", 9.0);
    let graph = node("LabelEncoder", std::slice::from_ref(&x), &[], attributes, 1);
    let want = [tensor(&[2, 4], &[9.0, 2.0, 9.0, 0.5, 9.0, 9.0, 9.0, -3.0])];
    expect(&graph, std::slice::from_ref(&x), &want, 1e-9);
}

#[test]
fn squares_and_weighted_means_have_the_ranges_that_they_have() {
    // Σ softmax(x)·v lies among the numbers of v, and x·x is not negative: what follows is proven.
    let mut g = Graph::new("test");
    let x = g.input("x", [1, 64]).unwrap();
    let v = g.input("v", [64, 2]).unwrap();
    let weights = g.add("weights", "Softmax", &[x], Attributes::none()).unwrap();
    let mean = g.add("mean", "MatMul", &[weights, v], Attributes::none()).unwrap();
    let square = g.add("square", "Mul", &[mean, mean], Attributes::none()).unwrap();
    g.output("y", square);
    let compiled = compile(&g, &CompileOptions::default()).unwrap();
    let range = |name: &str| compiled.ranges.iter().find(|r| r.layer == name).unwrap().output;
    assert!(range("mean").high < 1.05 && range("mean").low > -1.05, "{:?}", range("mean"));
    assert!(range("square").low >= 0.0 && range("square").high < 1.1, "{:?}", range("square"));
}
