//! Models in floating point, from ONNX: on shares bit for bit what they are in the clear.

use crate::common::onnx::{float, int, model, node, sample, tensor, value};
use crate::common::{check_floats, float_inputs, nodes, noise};
use megrez_engine::float::{float_cost, in_the_clear, run_floats};
use megrez_engine::local::LocalOptions;
use megrez_graph::onnx::{ImportOptions, read};
use megrez_graph::{Attributes, FloatOptions, Graph, Tensor, compile_floats};
use megrez_plan::Input;
use megrez_session::Phase;

/// Dense layers with weights over fourteen orders of magnitude.
fn perceptron() -> Vec<u8> {
    let spread = |n: i32| (0..n).map(|i| (i as f32 - 7.3) * 10f32.powi(i * 5 % 15 - 9)).collect::<Vec<_>>();
    let nodes = [
        node("fc1", "Gemm", &["x", "w1", "b1"], &["h"], &[int("transB", 1), float("alpha", 0.5)]),
        node("relu", "Relu", &["h"], &["r"], &[]),
        node("fc2", "MatMul", &["r", "w2"], &["p"], &[]),
        node("add", "Add", &["p", "b2"], &["y"], &[]),
    ];
    let tensors = [
        tensor("w1", &[5, 6], &spread(30)),
        tensor("b1", &[5], &spread(5)),
        tensor("w2", &[5, 3], &spread(15)),
        tensor("b2", &[3], &spread(3)),
    ];
    model(17, &nodes, &tensors, &[value("x", &[0, 6])], &[value("y", &[0, 3])])
}

fn imported(file: &[u8], batch: usize) -> Graph {
    read(file, &ImportOptions { batch, ..ImportOptions::default() }).unwrap()
}

/// The model on shares: its outputs' bits are those in the clear, its bytes those of the formulas.
fn on_shares(graph: &Graph, data: &Tensor) {
    check_floats(graph, std::slice::from_ref(data));
    let compiled = compile_floats(graph, &FloatOptions::default()).unwrap();
    let numbers = float_inputs(&compiled, std::slice::from_ref(data));
    let given = |_: u32, input: &Input| {
        let place = compiled.plan.inputs.iter().position(|i| i.name == input.name).unwrap();
        Ok(numbers[place].clone())
    };
    let run = run_floats(2, &compiled.plan, &given, &|_| {}, &LocalOptions::default()).unwrap();
    let clear = in_the_clear(&compiled.plan, &numbers);
    for (output, got) in compiled.plan.outputs.iter().zip(&run.outputs[0]) {
        let want = &clear[output.value.0 as usize];
        assert!(got.iter().zip(want).all(|(g, w)| g.to_bits() == w.to_bits()), "{got:?} instead of {want:?}");
    }
    let costs = float_cost(&compiled.plan);
    for report in &run.reports[0] {
        let online = report.sent.iter().filter(|r| r.phase == Phase::Online);
        let sent: u64 = online.map(|r| r.sent[1 - report.party]).sum();
        assert_eq!(sent, costs.iter().map(|b| b.bytes[report.party]).sum::<u64>(), "party {}", report.party);
    }
}

#[test]
fn signs_and_whole_numbers_are_exact() {
    let x = vec![-2.5, -1.0, -0.5, -1e-30, 0.0, 1e-30, 0.5, 1.0, 1.5, 2.5, 8_388_609.0, -1e20];
    let x = Tensor::new([3, 4], x);
    for op in ["Floor", "Ceil", "Round", "Sign"] {
        let g = nodes::node(op, std::slice::from_ref(&x), &[], Attributes::none(), 1);
        on_shares(&g, &x);
    }
    // A remainder would be rounded.
    let g = nodes::node(
        "Mod",
        std::slice::from_ref(&x),
        &[Tensor::filled([], 3.0).into()],
        Attributes::none(),
        1,
    );
    let refused = compile_floats(&g, &FloatOptions::default()).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("loses digits"), "{refused}");
}

/// What fixed point makes of others, floating point has whole: also where the parts would cancel or
/// overflow. Those with an area are of a few rounded steps.
#[test]
fn functions_are_whole() {
    let small = [1e-30, 1e-10, 3e-5, 0.01];
    let some = [0.3, 0.9, 1.0, 1.5, 7.0, 80.0, 1e9, 1e25, f32::INFINITY];
    let both: Vec<f32> = small.iter().chain(&some).flat_map(|&x| [x, -x]).chain([0.0, -0.0]).collect();
    let unit: Vec<f32> = both.iter().copied().filter(|x| x.abs() <= 1.0).collect();
    let above: Vec<f32> = small.iter().map(|x| x + 1.0).chain(some).filter(|x| *x >= 1.0).collect();
    let cases: [(&str, &[f32], fn(f64) -> f64, f64); 11] = [
        ("Sin", &both, f64::sin, 1.0),
        ("Cos", &both, f64::cos, 1.0),
        ("Tan", &both, f64::tan, 1.0),
        ("Asin", &unit, f64::asin, 1.0),
        ("Acos", &unit, f64::acos, 1.0),
        ("Atan", &both, f64::atan, 1.0),
        ("Sinh", &both, f64::sinh, 1.0),
        ("Cosh", &both, f64::cosh, 1.0),
        ("Asinh", &both, f64::asinh, 4.0),
        ("Acosh", &above, f64::acosh, 4.0),
        ("Atanh", &unit, f64::atanh, 4.0),
    ];
    for (op, x, truth, ulp) in cases {
        let x = Tensor::new([x.len()], x.to_vec());
        let g = nodes::node(op, std::slice::from_ref(&x), &[], Attributes::none(), 1);
        let compiled = compile_floats(&g, &FloatOptions::default()).unwrap_or_else(|e| panic!("{op}: {e}"));
        let values = in_the_clear(&compiled.plan, &float_inputs(&compiled, std::slice::from_ref(&x)));
        let got = &values[compiled.plan.outputs[0].value.0 as usize];
        for (x, y) in x.data.iter().zip(got) {
            let error = megrez_float::accuracy::error(*y, truth(f64::from(*x)));
            assert!(error < ulp, "{op} {x:e}: {y:e}, {error} ULP");
        }
    }
    let x = Tensor::new([2, 3], vec![0.25, 3.0, 10.0, 1e-20, 1.0, 1e20]);
    let exponents = Tensor::new([3], vec![0.3, -1.7, 20.0]);
    let g = nodes::node("Pow", std::slice::from_ref(&x), &[exponents.clone().into()], Attributes::none(), 1);
    on_shares(&g, &Tensor::new([2, 3], vec![0.25, 3.0, 1.0, 0.5, 1.0, 0.75]));
    let got = computed(&g, std::slice::from_ref(&x));
    for (i, y) in got.iter().enumerate() {
        let want = f64::from(x.data[i]).powf(f64::from(exponents.data[i % 3]));
        let error = megrez_float::accuracy::error(f32::from_bits(*y), want);
        assert!(error < 1.0, "{:e}^{}: {error} ULP", x.data[i], exponents.data[i % 3]);
    }
}

/// The outputs of a graph on these inputs.
fn computed(graph: &Graph, inputs: &[Tensor]) -> Vec<u32> {
    let compiled = compile_floats(graph, &FloatOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    let values = in_the_clear(&compiled.plan, &float_inputs(&compiled, inputs));
    let plain = megrez_graph::plain::trace(&compiled.graph, inputs).unwrap();
    let output = &compiled.plan.outputs[0];
    let got: Vec<u32> = values[output.value.0 as usize].iter().map(|v| v.to_bits()).collect();
    let want = &plain.value(compiled.graph.outputs[0].id).unwrap().data;
    let alike =
        |(got, want): (&u32, &f32)| f32::from_bits(*got).is_nan() && want.is_nan() || *got == want.to_bits();
    assert!(got.iter().zip(want).all(alike), "{got:x?} instead of {want:?}");
    got
}

#[test]
fn comparisons_and_choices_are_of_the_numbers_as_they_are() {
    // Differences of some of these vanish, overflow or are no numbers.
    let some = [
        0.0,
        -0.0,
        f32::MIN_POSITIVE,
        f32::MIN_POSITIVE * (1.0 + f32::EPSILON),
        1.0,
        1.0 + f32::EPSILON,
        -1.0,
        3e38,
        -3e38,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    let n = some.len();
    let pairs = |pick: fn(usize, usize) -> usize| {
        Tensor::new([n, n], (0..n * n).map(|i| some[pick(i / n, i % n)]).collect())
    };
    let (x, y) = (pairs(|i, _| i), pairs(|_, j| j));
    let inputs = [x.clone(), y.clone()];
    type Holds = fn(f32, f32) -> bool;
    let tests: [(&str, Holds); 5] = [
        ("Greater", |x, y| x > y),
        ("GreaterOrEqual", |x, y| x >= y),
        ("Less", |x, y| x < y),
        ("LessOrEqual", |x, y| x <= y),
        ("Equal", |x, y| x == y),
    ];
    for (op, holds) in tests {
        let got = computed(&nodes::node(op, &inputs, &[], Attributes::none(), 1), &inputs);
        let want: Vec<u32> =
            x.data.iter().zip(&y.data).map(|(&x, &y)| f32::from(holds(x, y)).to_bits()).collect();
        assert_eq!(got, want, "{op}");
        // With the model's numbers on either side.
        let row = Tensor::new([n], some.to_vec());
        let one = [x.clone()];
        let got = computed(&nodes::node(op, &one, &[row.into()], Attributes::none(), 1), &one);
        assert_eq!(got, want, "{op} with weights");
    }
    // A choice gives every bit of what it chooses, also beside a mask of −3·10^38.
    let conditions = Tensor::new([n, n], (0..n * n).map(|i| f32::from(i % 3 == 0)).collect());
    let chosen: Vec<u32> =
        (0..n * n).map(|i| if i % 3 == 0 { x.data[i] } else { y.data[i] }).map(f32::to_bits).collect();
    let all = [conditions.clone(), x.clone(), y.clone()];
    let same = |(a, b): (&u32, &u32)| a == b || f32::from_bits(*a).is_nan() && f32::from_bits(*b).is_nan();
    let got = computed(&nodes::node("Where", &all, &[], Attributes::none(), 1), &all);
    assert!(got.iter().zip(&chosen).all(same), "{got:x?} {chosen:x?}");
    let masked = nodes::node("Where", &all[..2], &[Tensor::filled([], -3e38).into()], Attributes::none(), 1);
    let got = computed(&masked, &all[..2]);
    let want = (0..n * n).map(|i| if i % 3 == 0 { x.data[i] } else { -3e38 }).map(f32::to_bits);
    assert!(got.iter().zip(&want.collect::<Vec<_>>()).all(same));
    // Two numbers of the model.
    let two = [0.1, 1e30].map(|v| Tensor::filled([], v).into());
    let got = computed(&nodes::node("Where", &all[..1], &two, Attributes::none(), 1), &all[..1]);
    assert!((0..n * n).all(|i| got[i] == if i % 3 == 0 { 0.1f32 } else { 1e30 }.to_bits()));
}

#[test]
fn truths_are_joined() {
    let mut graph = Graph::new("test");
    let [x, y] = ["x", "y"].map(|name| graph.input(name, [4]).unwrap());
    let mut add = |op: &str, of: &[megrez_graph::Id]| graph.add(op, op, of, Attributes::none()).unwrap();
    let (less, equal) = (add("Less", &[x, y]), add("Equal", &[x, y]));
    let either = add("Or", &[less, equal]);
    let not = add("Not", &[either]);
    let odd = add("Xor", &[not, less]);
    let both = add("And", &[odd, not]);
    let largest = add("Where", &[both, x, y]);
    graph.output("largest", largest);
    let inputs = [[1.0, 2.0, 3.0, -1e30], [2.0, 2.0, 1e-30, -3e38]].map(|v| Tensor::new([4], v.to_vec()));
    let got = computed(&graph, &inputs);
    assert_eq!(got, [2.0f32, 2.0, 3.0, -1e30].map(f32::to_bits));
}

#[test]
fn a_perceptron_on_shares_is_single_precision() {
    let mut x = noise([2, 6], 4);
    x.data.iter_mut().enumerate().for_each(|(i, v)| *v *= 10f32.powi(i as i32 * 3 - 16));
    on_shares(&imported(&perceptron(), 2), &x);
}

#[test]
fn a_convolutional_network_on_shares_is_single_precision() {
    on_shares(&imported(&sample(), 1), &noise([1, 1, 4, 4], 5));
}

#[test]
fn every_layer_without_a_floating_point_form_is_listed_at_once() {
    let mut graph = Graph::new("test");
    let x = graph.input("x", [1, 3]).unwrap();
    let a = graph.add("first", "ArgMax", &[x], Attributes::none()).unwrap();
    let b = graph.add("second", "ArgMax", &[x], Attributes::none().with("axis", 1)).unwrap();
    let c = graph.add("third", "Add", &[a, b], Attributes::none()).unwrap();
    graph.output("y", c);
    let problems = compile_floats(&graph, &FloatOptions::default()).unwrap_err();
    let named: Vec<&str> = problems.0.iter().map(|p| p.node.as_str()).collect();
    assert_eq!(named, ["first", "second"]);
    assert!(problems.to_string().contains("--numbers fixed"), "{problems}");
}

/// Secret tokens in two shapes, a causal mask, both forms of GELU and Where: what transformers are
/// made of.
#[test]
fn attention_on_tokens_is_single_precision() {
    let (mut g, none) = (Graph::new("attention"), Attributes::none);
    let tokens = g.input("tokens", [2, 3]).unwrap();
    let turned = g.add("turned", "Transpose", &[tokens], none().with("perm", vec![1, 0])).unwrap();
    let tokens = g.add("back", "Transpose", &[turned], none().with("perm", vec![1, 0])).unwrap();
    let table =
        g.constant("table", Tensor::new([7, 4], noise([7, 4], 3).data.iter().map(|v| v * 2.0).collect()));
    let mask = (0..9).map(|i| if i % 3 > i / 3 { f32::NEG_INFINITY } else { 0.0 }).collect();
    let mask = g.constant("mask", Tensor::new([3, 3], mask));
    let even = g.constant("even", Tensor::new([4], vec![1i64, 0, 1, 0]));
    let rows = g.constant("rows", Tensor::new([2], vec![-1i64, 0]));
    let e = g.add("embed", "Gather", &[table, tokens], none()).unwrap();
    let t = g.add("transposed", "Transpose", &[e], none().with("perm", vec![0, 2, 1])).unwrap();
    let s = g.add("scores", "MatMul", &[e, t], none()).unwrap();
    let m = g.add("masked", "Add", &[s, mask], none()).unwrap();
    let p = g.add("softmax", "Softmax", &[m], none()).unwrap();
    let v = g.add("mixed", "MatMul", &[p, e], none()).unwrap();
    let v = g.add("gelu", "Gelu", &[v], none()).unwrap();
    let w = g.add("where", "Where", &[even, v, e], none()).unwrap();
    let h = g.add("gelu-tanh", "Gelu", &[w], none().with("approximate", "tanh")).unwrap();
    let r = g.add("erf", "Erf", &[h], none()).unwrap();
    let y = g.add("last", "Gather", &[r, rows], none().with("axis", 1)).unwrap();
    g.output("y", y);
    on_shares(&g, &Tensor::new([2, 3], vec![6.0, 0.0, 3.0, 1.0, 1.0, 5.0]));
}
