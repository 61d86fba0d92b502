//! Functions that are approximated, on shares' arithmetic against f64: each stays within the error
//! that it promises.

use crate::common::small::none;
use crate::common::{decode, frac, interpret, noise, run};
use megrez_graph::{Attributes, CompileOptions, Graph, Id, Interval, RangePolicy, Tensor, compile};

fn graph(shape: &[usize], layers: impl FnOnce(&mut Graph, Id) -> Id) -> Graph {
    let mut graph = Graph::new("test");
    let x = graph.input("x", shape.to_vec()).unwrap();
    let y = layers(&mut graph, x);
    graph.output("y", y);
    graph
}

fn one(shape: &[usize], op: &str, constants: &[Tensor], attributes: Attributes) -> Graph {
    graph(shape, |g, x| {
        let mut inputs = vec![x];
        inputs.extend(constants.iter().enumerate().map(|(i, c)| g.constant(&format!("c{i}"), c.clone())));
        g.add("layer", op, &inputs, attributes).unwrap()
    })
}

/// What the compiled graph gives for inputs in `range`.
fn computed(graph: &Graph, inputs: &[Tensor], range: Interval, ring: u32, f: u32) -> Vec<f64> {
    let options = CompileOptions { ring, frac: f, input_range: range, ..CompileOptions::default() };
    let compiled = compile(graph, &options).unwrap_or_else(|p| panic!("{p}"));
    assert!(compiled.ranges.iter().all(|r| r.proven));
    let values = interpret(&compiled, inputs);
    let id = compiled.plan.outputs[0].value;
    let y = decode(values[id.0 as usize].as_ref().unwrap(), frac(&compiled.plan, id.0));
    let bounds = compiled.ranges.last().unwrap().output;
    assert!(y.iter().all(|v| (bounds.low..=bounds.high).contains(v)), "{bounds:?}");
    y
}

/// The largest |computed − exact| / (relative·|exact| + absolute) on a grid.
fn worst(
    op: &Graph,
    range: Interval,
    ring: u32,
    f: u32,
    exact: fn(f64) -> f64,
    relative: f64,
    absolute: f64,
) -> f64 {
    let n = op.shape(op.inputs[0]).elements();
    let unit = 2f64.powi(-(f as i32));
    let place = |i: usize| {
        // Even in the logarithm where zero is far, so that every octave is met.
        let t = i as f64 / (n - 1) as f64;
        let v = if range.low > 0.0 {
            range.low * (range.high / range.low).powf(t)
        } else {
            range.low + (range.high - range.low) * t
        };
        (v / unit).round() * unit
    };
    let x: Vec<f32> = (0..n).map(|i| (place(i) as f32).clamp(range.low as f32, range.high as f32)).collect();
    let y = computed(op, &[Tensor::new([n], x.clone())], range, ring, f);
    x.iter().zip(&y).fold(0.0, |worst, (&x, y)| {
        let want = exact(x.into());
        worst.max((y - want).abs() / (relative * want.abs() + absolute * unit))
    })
}

#[test]
fn functions_of_many_octaves() {
    let wide = Interval { low: 2f64.powi(-10), high: 4000.0 };
    let functions: [(&str, fn(f64) -> f64, f64, f64); 4] = [
        ("Reciprocal", |x| 1.0 / x, 2e-5, 1.1),
        ("Sqrt", f64::sqrt, 1e-5, 1.1),
        ("Log", f64::ln, 0.0, 2.1),
        ("Exp", f64::exp, 2e-5, 1.1),
    ];
    for (op, exact, relative, absolute) in functions {
        let range = match op {
            "Exp" => Interval { low: -30.0, high: 10.0 },
            "Log" => Interval { low: 2f64.powi(-9), ..wide },
            _ => wide,
        };
        let w = worst(&one(&[4001], op, &[], none()), range, 64, 16, exact, relative, absolute);
        assert!(w <= 1.0, "{op}: {w} of what is promised");
    }
    let pow = one(&[4001], "Pow", &[Tensor::new([], vec![-0.5])], none());
    let w = worst(&pow, wide, 64, 16, |x| 1.0 / x.sqrt(), 1e-5, 1.1);
    assert!(w <= 1.0, "1/√x: {w}");
    let decay = one(&[4001], "Exp", &[], none());
    let w = worst(&decay, Interval { low: -40.0, high: 0.0 }, 64, 16, f64::exp, 0.0, 2.1);
    assert!(w <= 1.0, "e^x below 0: {w}");
    for end in [0.5, 1.0, 4.0, 8.0] {
        let near = one(&[4001], "Exp", &[], none());
        let w = worst(&near, Interval::abs(end), 64, 16, f64::exp, 2e-5, 1.1);
        assert!(w <= 1.0, "e^x within ±{end}: {w}");
        let relative = if end > 4.0 { 0.04 } else { 0.02 };
        let w = worst(&near, Interval::abs(end), 32, 10, f64::exp, relative, 8.0);
        assert!(w <= 1.0, "e^x within ±{end} on 32 bits: {w}");
    }
}

#[test]
fn logarithms_of_a_few_units_are_refused() {
    let below = Interval { low: 2f64.powi(-10), high: 1.0 };
    let graph = one(&[4], "Log", &[], none());
    let ranged = |policy| CompileOptions { input_range: below, policy, ..CompileOptions::default() };
    let refusal = compile(&graph, &ranged(RangePolicy::Prove)).unwrap_err().to_string();
    assert!(refusal.contains("ln x must be taken of numbers from 2.0e-3 up"), "{refusal}");
    let assumed = compile(&graph, &ranged(RangePolicy::Assume)).unwrap();
    assert_eq!(assumed.layers[0].domain.unwrap().1.low, 2f64.powi(-9));
}

#[test]
fn the_small_ring_is_coarse_but_right() {
    let range = Interval { low: 0.25, high: 30.0 };
    let functions: [(&str, fn(f64) -> f64); 3] =
        [("Reciprocal", |x| 1.0 / x), ("Sqrt", f64::sqrt), ("Log", f64::ln)];
    for (op, exact) in functions {
        let w = worst(&one(&[2001], op, &[], none()), range, 32, 10, exact, 0.02, 8.0);
        assert!(w <= 1.0, "{op}: {w}");
    }
}

#[test]
fn the_square_root_of_zero_is_small() {
    let y = computed(
        &one(&[3], "Sqrt", &[], none()),
        &[Tensor::new([3], vec![0.0, 1.0, 0.25])],
        Interval { low: 0.0, high: 1.0 },
        64,
        16,
    );
    assert!(y[0].abs() < 0.25 / 256.0 + 1e-4 && (y[1] - 1.0).abs() < 1e-4, "{y:?}");
}

#[test]
fn quotients_of_secrets() {
    let mut g = Graph::new("test");
    let ids = ["a", "b"].map(|n| g.input(n, [2, 64]).unwrap());
    let y = g.add("div", "Div", &ids, none()).unwrap();
    g.output("y", y);
    let a = noise([2, 64], 1);
    let b = Tensor::new(
        [2, 64],
        noise([2, 64], 2).data.iter().map(|v| v + if *v < 0.0 { -0.25 } else { 0.25 }).collect(),
    );
    // A divisor that may be 0 cannot be proven.
    let problem = compile(&g, &CompileOptions::default()).unwrap_err().to_string();
    assert!(problem.contains("1/x") && problem.contains("div"), "{problem}");
    let options = CompileOptions { policy: RangePolicy::Assume, ..CompileOptions::default() };
    let compiled = compile(&g, &options).unwrap();
    assert!(!compiled.ranges[0].proven);
    let options = CompileOptions { input_range: Interval::abs(2.0), ..options };
    let compiled = compile(&g, &options).unwrap();
    let values = interpret(&compiled, &[a.clone(), b.clone()]);
    let id = compiled.plan.outputs[0].value;
    let y = decode(values[id.0 as usize].as_ref().unwrap(), frac(&compiled.plan, id.0));
    for (i, y) in y.iter().enumerate() {
        let want = f64::from(a.data[i]) / f64::from(b.data[i]);
        assert!((y - want).abs() < 1e-4 * (1.0 + want.abs()), "{y} instead of {want}");
    }
}

#[test]
fn softmax_within_a_model() {
    let twice = |op: &str| {
        graph(&[3, 9], |g, x| {
            let y = g.add("soft", op, &[x], none().with("axis", 0)).unwrap();
            g.add("negative", "Neg", &[y], none()).unwrap()
        })
    };
    let x = Tensor::new([3, 9], noise([3, 9], 5).data.iter().map(|v| v * 20.0).collect());
    for (op, bound) in [("Softmax", 8e-5), ("LogSoftmax", 2e-4)] {
        let g = twice(op);
        let y = computed(&g, std::slice::from_ref(&x), Interval::abs(20.0), 64, 16);
        let want = run(&g, &x);
        for (y, w) in y.iter().zip(&want.data) {
            assert!((y - f64::from(*w)).abs() < bound, "{op}: {y} instead of {w}");
        }
    }
}

#[test]
fn masks_hide_exactly() {
    let mask =
        Tensor::new([4, 4], (0..16).map(|i| if i % 4 > i / 4 { f32::NEG_INFINITY } else { 0.0 }).collect());
    let g = graph(&[2, 4, 4], |g, x| {
        let mask = g.constant("mask", mask);
        let x = g.add("masked", "Add", &[x, mask], none()).unwrap();
        let y = g.add("softmax", "Softmax", &[x], none()).unwrap();
        g.add("negative", "Neg", &[y], none()).unwrap()
    });
    let x = Tensor::new([2, 4, 4], noise([2, 4, 4], 5).data.iter().map(|v| v * 8.0).collect());
    let y = computed(&g, std::slice::from_ref(&x), Interval::abs(8.0), 64, 16);
    let want = run(&g, &x);
    for (i, (y, w)) in y.iter().zip(&want.data).enumerate() {
        assert!((y - f64::from(*w)).abs() < 8e-5 && (*w != 0.0 || *y == 0.0), "{i}: {y} instead of {w}");
    }
    // The same by Where, whose hidden value is finite.
    let keep = Tensor::new([4, 4], (0..16).map(|i| i64::from(i % 4 <= i / 4)).collect());
    let g = graph(&[2, 4, 4], |g, x| {
        let keep = g.constant("keep", keep);
        let low = g.constant("low", Tensor::new([], vec![f32::MIN]));
        let x = g.add("masked", "Where", &[keep, x, low], none()).unwrap();
        let y = g.add("softmax", "Softmax", &[x], none()).unwrap();
        g.add("negative", "Neg", &[y], none()).unwrap()
    });
    assert_eq!(computed(&g, &[x], Interval::abs(8.0), 64, 16), y);
}

#[test]
fn layer_normalisation_and_its_parts() {
    let (scale, offset) = (noise([24], 1), noise([24], 2));
    let fused = one(
        &[2, 5, 24],
        "LayerNormalization",
        &[scale.clone(), offset.clone()],
        none().with("epsilon", 1e-5),
    );
    let parts = graph(&[2, 5, 24], |g, x| {
        let axes = none().with("axes", [-1]);
        let number = |g: &mut Graph, v: f32| g.constant("number", Tensor::new([], vec![v]));
        let mean = g.add("mean", "ReduceMean", &[x], axes.clone()).unwrap();
        let centred = g.add("centred", "Sub", &[x, mean], none()).unwrap();
        let two = number(g, 2.0);
        let squares = g.add("squares", "Pow", &[centred, two], none()).unwrap();
        let variance = g.add("variance", "ReduceMean", &[squares], axes).unwrap();
        let epsilon = number(g, 1e-5);
        let sum = g.add("sum", "Add", &[variance, epsilon], none()).unwrap();
        let root = g.add("root", "Sqrt", &[sum], none()).unwrap();
        let normal = g.add("normal", "Div", &[centred, root], none()).unwrap();
        let scale = g.constant("scale", scale);
        let scaled = g.add("scaled", "Mul", &[normal, scale], none()).unwrap();
        let offset = g.constant("offset", offset);
        g.add("offset", "Add", &[scaled, offset], none()).unwrap()
    });
    for (size, bound) in [(4.0, 1e-4), (0.01, 8e-3)] {
        let x = Tensor::new([2, 5, 24], noise([2, 5, 24], 3).data.iter().map(|v| v * size).collect());
        let want = run(&fused, &x);
        let range = Interval::abs(size.into());
        for g in [&fused, &parts] {
            let y = computed(g, std::slice::from_ref(&x), range, 64, 16);
            for (y, w) in y.iter().zip(&want.data) {
                assert!((y - f64::from(*w)).abs() < bound, "{size}: {y} instead of {w}");
            }
        }
    }
}

#[test]
fn gelu_is_recognised_in_its_parts() {
    let number = |g: &mut Graph, v: f32| g.constant("number", Tensor::new([], vec![v]));
    let by_erf = graph(&[33], |g, x| {
        let root = number(g, std::f32::consts::SQRT_2);
        let y = g.add("scaled", "Div", &[x, root], none()).unwrap();
        let y = g.add("erf", "Erf", &[y], none()).unwrap();
        let one = number(g, 1.0);
        let y = g.add("one", "Add", &[y, one], none()).unwrap();
        let y = g.add("product", "Mul", &[x, y], none()).unwrap();
        let half = number(g, 0.5);
        g.add("half", "Mul", &[y, half], none()).unwrap()
    });
    let by_tanh = graph(&[33], |g, x| {
        let three = number(g, 3.0);
        let cube = g.add("cube", "Pow", &[x, three], none()).unwrap();
        let c = number(g, 0.044_715);
        let cube = g.add("scaled-cube", "Mul", &[cube, c], none()).unwrap();
        let sum = g.add("sum", "Add", &[x, cube], none()).unwrap();
        let c = number(g, 0.797_884_6);
        let sum = g.add("scaled", "Mul", &[sum, c], none()).unwrap();
        let tanh = g.add("tanh", "Tanh", &[sum], none()).unwrap();
        let c = number(g, 1.0);
        let step = g.add("one", "Add", &[tanh, c], none()).unwrap();
        let c = number(g, 0.5);
        let half = g.add("half", "Mul", &[x, c], none()).unwrap();
        g.add("product", "Mul", &[half, step], none()).unwrap()
    });
    for g in [by_erf, by_tanh] {
        let compiled = compile(&g, &CompileOptions::default()).unwrap();
        assert_eq!(compiled.layers.iter().map(|l| l.op.as_str()).collect::<Vec<_>>(), ["Gelu"]);
        let x = Tensor::new([33], (0..33).map(|i| (i as f32 - 16.0) / 4.0).collect::<Vec<_>>());
        let got = run(&compiled.graph, &x);
        let want = run(&g, &x);
        assert!(got.data.iter().zip(&want.data).all(|(a, b)| (a - b).abs() < 1e-5));
    }
}

#[test]
fn tokens_pick_rows() {
    let table = noise([7, 3], 4);
    let g = graph(&[1, 4], |g, x| {
        let table = g.constant("table", table.clone());
        let flat = g.constant("flat", Tensor::new([1], vec![-1i64]));
        let x = g.add("flatten", "Reshape", &[x, flat], none()).unwrap();
        g.add("embedding", "Gather", &[table, x], none()).unwrap()
    });
    let compiled = compile(&g, &CompileOptions::default()).unwrap();
    let input = &compiled.data_inputs[0];
    assert_eq!((input.tokens, input.frac, input.shape.dims()), (Some(7), 0, &[1usize, 4][..]));
    let tokens = Tensor::new([1, 4], vec![6.0, 0.0, 3.0, 3.0]);
    assert!(input.check(&tokens).is_ok());
    assert!(input.check(&Tensor::new([1, 4], vec![7.0, 0.0, 0.0, 0.0])).is_err());
    assert!(input.check(&Tensor::new([1, 4], vec![0.5, 0.0, 0.0, 0.0])).is_err());
    let ones = Tensor::new(
        [1, 4, 7],
        tokens.data.iter().flat_map(|&t| (0..7).map(move |i| f32::from(i as f32 == t))).collect(),
    );
    let values = interpret(&compiled, &[ones]);
    let y = decode(values[compiled.plan.outputs[0].value.0 as usize].as_ref().unwrap(), 16);
    let want = run(&g, &tokens);
    assert!(y.iter().zip(&want.data).all(|(a, b)| (a - f64::from(*b)).abs() < 1e-5));
    // Computing with tokens is refused.
    let g = graph(&[4], |g, x| {
        let table = g.constant("table", table);
        let y = g.add("double", "Add", &[x, x], none()).unwrap();
        g.add("embedding", "Gather", &[table, y], none()).unwrap()
    });
    assert!(compile(&g, &CompileOptions::default()).unwrap_err().to_string().contains("secret index"));
}
