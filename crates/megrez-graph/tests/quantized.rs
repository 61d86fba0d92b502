//! Reading ONNX: numbers that are quantised as they come.

use crate::common::onnx::{Message, int, message, model, node, tensor, value};
use crate::common::{decode, interpret};
use crate::onnx::batch;
use megrez_graph::onnx::read;
use megrez_graph::{CompileOptions, Interval, Tensor, compile, plain};

/// Integers of 8 bits as an initializer.
fn bytes(name: &str, dims: &[i64], values: &[i64]) -> Message {
    let m = dims.iter().fold(message(), |m, &d| m.int(1, d)).int(2, 3).text(8, name);
    values.iter().fold(m, |m, &v| m.int(5, v))
}

/// x · w + nothing, as the quantiser of onnxruntime writes a layer, with further nodes and outputs.
fn layer(more: &[Message], outputs: &[Message]) -> Vec<u8> {
    let back =
        [node("ss", "Mul", &["s", "ws"], &["t"], &[]), node("back", "Mul", &["r", "t"], &["out"], &[])];
    scaled(1, &[0.02], &[&back[..], more].concat(), outputs)
}

/// A product of integers, cast to a type, and scales of the columns; what is left to other nodes.
fn scaled(to: i64, scales: &[f32], more: &[Message], outputs: &[Message]) -> Vec<u8> {
    let nodes = [
        node("q", "DynamicQuantizeLinear", &["x"], &["y", "s", "z"], &[]),
        node("p", "MatMulInteger", &["y", "w", "z", "wz"], &["p"], &[]),
        node("c", "Cast", &["p"], &["r"], &[int("to", to)]),
    ];
    let scales = tensor("ws", if scales.len() == 1 { &[] } else { &[2] }, scales);
    let weights = [bytes("w", &[2, 2], &[100, -50, 7, 127]), bytes("wz", &[], &[3]), scales];
    model(13, &[&nodes[..], more].concat(), &weights, &[value("x", &[1, 2])], outputs)
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

/// The products are large and the scales small: what is lost of a scale counts many times.
#[test]
fn small_scales_keep_their_digits() {
    let back =
        [node("ss", "Mul", &["s", "ws"], &["t"], &[]), node("back", "Mul", &["r", "t"], &["out"], &[])];
    let scales = [0.000_3, 0.000_061];
    let graph = read(&scaled(1, &scales, &back, &[value("out", &[1, 2])]), &batch(1)).unwrap();
    let x = Tensor::new([1, 2], vec![31.5, -29.25]);
    let options = CompileOptions { input_range: Interval::abs(32.0), ..CompileOptions::default() };
    let compiled = compile(&graph, &options).unwrap();
    let (values, output) = (interpret(&compiled, std::slice::from_ref(&x)), compiled.layers.last().unwrap());
    let got = decode(values[output.value.0 as usize].as_ref().unwrap(), output.frac);
    // A scale of 16 bits would be off by 0.02 and 0.08.
    for (got, want) in got.iter().zip(&plain::run(&graph, &[x]).unwrap()[0].data) {
        assert!((got - f64::from(*want)).abs() < 2e-3, "{got} {want}");
    }
}

#[test]
fn what_is_not_scaled_back_in_float32_by_both_scales_is_refused() {
    let both =
        [node("ss", "Mul", &["s", "ws"], &["t"], &[]), node("back", "Mul", &["r", "t"], &["out"], &[])];
    let bare =
        [node("half", "Mul", &["r", "s"], &["t"], &[]), node("rest", "Mul", &["t", "ws"], &["out"], &[])];
    for (to, more) in [(10, &both), (7, &both), (1, &bare)] {
        let problem = read(&scaled(to, &[0.02], more, &[value("out", &[1, 2])]), &batch(1)).unwrap_err();
        assert!(problem.to_string().contains("scaled back by both scales"), "{to}: {problem}");
    }
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
