//! Models in floating point, from ONNX: on shares bit for bit what they are in the clear.

mod common;

use common::onnx::{float, int, model, node, sample, tensor, value};
use common::{check_floats, float_inputs, noise};
use megrez_engine::float::{float_price, in_the_clear, run_floats};
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

/// The model on shares: its outputs' bits are those in the clear, its bytes those of the price.
fn on_shares(file: &[u8], batch: usize, data: &Tensor) {
    let graph = read(file, &ImportOptions { batch, ..ImportOptions::default() }).unwrap();
    check_floats(&graph, std::slice::from_ref(data));
    let compiled = compile_floats(&graph, &FloatOptions::default()).unwrap();
    let numbers = float_inputs(&compiled, std::slice::from_ref(data));
    let given = |_: u32, input: &Input| {
        let place = compiled.plan.inputs.iter().position(|i| i.name == input.name).unwrap();
        Ok(numbers[place].clone())
    };
    let run = run_floats(&compiled.plan, &given, &|_| {}, &LocalOptions::default()).unwrap();
    let clear = in_the_clear(&compiled.plan, &numbers);
    for (output, got) in compiled.plan.outputs.iter().zip(&run.outputs[0]) {
        let want = &clear[output.value.0 as usize];
        assert!(got.iter().zip(want).all(|(g, w)| g.to_bits() == w.to_bits()), "{got:?} instead of {want:?}");
    }
    let price = float_price(&compiled.plan);
    for report in &run.reports[0] {
        let online = report.sent.iter().filter(|r| r.phase == Phase::Online);
        let sent: u64 = online.map(|r| r.sent[1 - report.party]).sum();
        assert_eq!(sent, price.iter().map(|b| b.bytes[report.party]).sum::<u64>(), "party {}", report.party);
    }
}

#[test]
fn a_perceptron_on_shares_is_single_precision() {
    let mut x = noise([2, 6], 4);
    x.data.iter_mut().enumerate().for_each(|(i, v)| *v *= 10f32.powi(i as i32 * 3 - 16));
    on_shares(&perceptron(), 2, &x);
}

#[test]
fn a_convolutional_network_on_shares_is_single_precision() {
    on_shares(&sample(), 1, &noise([1, 1, 4, 4], 5));
}

#[test]
fn every_layer_without_a_floating_point_form_is_listed_at_once() {
    let mut graph = Graph::new("test");
    let x = graph.input("x", [3]).unwrap();
    let a = graph.add("first", "Gelu", &[x], Attributes::none()).unwrap();
    let b = graph.add("second", "Erf", &[x], Attributes::none()).unwrap();
    let c = graph.add("third", "Add", &[a, b], Attributes::none()).unwrap();
    graph.output("y", c);
    let problems = compile_floats(&graph, &FloatOptions::default()).unwrap_err();
    let named: Vec<&str> = problems.0.iter().map(|p| p.node.as_str()).collect();
    assert_eq!(named, ["first", "second"]);
    assert!(problems.to_string().contains("--numbers fixed"), "{problems}");
}
