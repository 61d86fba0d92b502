//! Reading ONNX: numbers that are quantised as they come.

use crate::common::onnx::{Message, int, message, model, node, tensor, value};
use crate::onnx::batch;
use megrez_graph::onnx::read;
use megrez_graph::{CompileOptions, Tensor, compile, plain};

/// Integers of 8 bits as an initializer.
fn bytes(name: &str, dims: &[i64], values: &[i64]) -> Message {
    let m = dims.iter().fold(message(), |m, &d| m.int(1, d)).int(2, 3).text(8, name);
    values.iter().fold(m, |m, &v| m.int(5, v))
}

/// x · w + nothing, as the quantiser of onnxruntime writes a layer, with further nodes and outputs.
fn layer(more: &[Message], outputs: &[Message]) -> Vec<u8> {
    let nodes = [
        node("q", "DynamicQuantizeLinear", &["x"], &["y", "s", "z"], &[]),
        node("p", "MatMulInteger", &["y", "w", "z", "wz"], &["p"], &[]),
        node("c", "Cast", &["p"], &["r"], &[int("to", 1)]),
        node("ss", "Mul", &["s", "ws"], &["t"], &[]),
        node("back", "Mul", &["r", "t"], &["out"], &[]),
    ];
    let weights =
        [bytes("w", &[2, 2], &[100, -50, 7, 127]), bytes("wz", &[], &[3]), tensor("ws", &[], &[0.02])];
    let nodes: Vec<Message> = nodes.into_iter().chain(more.iter().cloned()).collect();
    model(13, &nodes, &weights, &[value("x", &[1, 2])], outputs)
}

#[test]
fn products_that_are_scaled_back_take_the_numbers_themselves() {
    let graph = read(&layer(&[], &[value("out", &[1, 2])]), &batch(1)).unwrap();
    let x = Tensor::new([1, 2], vec![0.3, -0.9]);
    let want = [0.02 * (97.0 * 0.3 - 4.0 * 0.9), 0.02 * (-53.0 * 0.3 - 124.0 * 0.9)];
    let got = plain::run(&graph, std::slice::from_ref(&x)).unwrap();
    assert!(got[0].data.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-5), "{:?} {want:?}", got[0].data);
    crate::common::check(&compile(&graph, &CompileOptions::default()).unwrap(), &[x], 1e-3);
}

#[test]
fn whoever_reads_the_integers_is_told_that_there_are_none() {
    let out = || value("out", &[1, 2]);
    let cases: [(&[Message], &[Message]); 7] = [
        (&[], &[out(), value("y", &[1, 2])]),
        (&[], &[out(), value("s", &[])]),
        (&[], &[out(), value("z", &[])]),
        (&[], &[out(), value("r", &[1, 2])]),
        (&[], &[out(), value("t", &[])]),
        (&[node("n", "Add", &["t", "t"], &["more"], &[])], &[out(), value("more", &[])]),
        (&[node("n", "Mul", &["s", "s"], &["more"], &[])], &[out(), value("more", &[])]),
    ];
    for (more, outputs) in cases {
        let problem = read(&layer(more, outputs), &batch(1)).unwrap_err().to_string();
        assert!(
            problem.contains("`q` (DynamicQuantizeLinear)") && problem.contains("scaled back"),
            "{problem}"
        );
    }
}
