//! Reading ONNX: loops, conditions, scans, and operators that a model defines.

use crate::common::onnx::{Message, float, int, message, model, node, tensor, typed, value};
use crate::onnx::batch;
use megrez_graph::onnx::read;
use megrez_graph::{Tensor, plain};

/// A graph within the graph, as an attribute.
fn body(name: &str, graph: &Message) -> Message {
    message().text(1, name).message(6, graph).int(20, 5)
}

fn graph_of(nodes: &[Message], inputs: &[Message], outputs: &[Message]) -> Message {
    let graph = nodes.iter().fold(message(), |m, n| m.message(1, n)).text(2, "body");
    let graph = inputs.iter().fold(graph, |m, i| m.message(11, i));
    outputs.iter().fold(graph, |m, o| m.message(12, o))
}

/// A scalar of this type as an initializer.
fn scalar(name: &str, element: i64, v: i64) -> Message {
    message().int(2, element).text(8, name).int(if element == 7 { 7 } else { 5 }, v)
}

#[test]
fn loops_with_known_turns_become_their_bodies() {
    // x ← 2x, and what it was is collected.
    let nodes = [
        node("twice", "Add", &["before", "before"], &["after"], &[]),
        node("kept", "Identity", &["before"], &["seen"], &[]),
        node("goes", "Identity", &["go"], &["on"], &[]),
    ];
    let inputs = [typed("turn", 7, &[]), typed("go", 9, &[]), value("before", &[2])];
    let outputs = [typed("on", 9, &[]), value("after", &[2]), value("seen", &[2])];
    let graph = graph_of(&nodes, &inputs, &outputs);
    let run = |turns: i64| {
        let nodes = [node("loop", "Loop", &["turns", "", "x"], &["y", "all"], &[body("body", &graph)])];
        let outputs = [value("y", &[2]), value("all", &[0, 2])];
        read(&model(17, &nodes, &[scalar("turns", 7, turns)], &[value("x", &[2])], &outputs), &batch(2))
    };
    let got = plain::run(&run(3).unwrap(), &[Tensor::new([2], vec![1.0, -0.5])]).unwrap();
    assert_eq!(got[0].data, [8.0, -4.0]);
    assert_eq!(
        (got[1].shape.dims(), &got[1].data[..]),
        (&[3, 2][..], &[1.0, -0.5, 2.0, -1.0, 4.0, -2.0][..])
    );
    // As many turns as nobody has memory for are refused within moments.
    for turns in [1 << 40, i64::MAX] {
        let problem = run(turns).unwrap_err().to_string();
        assert!(problem.contains("`loop` (Loop)") && problem.contains("repeats too much"), "{problem}");
    }
}

#[test]
fn conditions_choose_and_scans_run_along_an_axis() {
    let branch = |op: &str| graph_of(&[node("b", op, &["x"], &["z"], &[])], &[], &[value("z", &[2, 2])]);
    for (condition, want) in [(1, [1.0, 0.0]), (0, [-1.0, 2.0])] {
        let branches = [body("then_branch", &branch("Relu")), body("else_branch", &branch("Neg"))];
        let nodes = [node("if", "If", &["c"], &["y"], &branches)];
        let bytes = model(17, &nodes, &[scalar("c", 9, condition)], &[value("x", &[2])], &[value("y", &[2])]);
        let graph = read(&bytes, &batch(2)).unwrap();
        assert_eq!(plain::run(&graph, &[Tensor::new([2], vec![1.0, -2.0])]).unwrap()[0].data, want);
    }
    let secret = [node("if", "If", &["x"], &["y"], &[body("then_branch", &branch("Relu"))])];
    let bytes = model(17, &secret, &[], &[typed("x", 9, &[1])], &[value("y", &[1])]);
    assert!(read(&bytes, &batch(1)).unwrap_err().to_string().contains("depends on secret data"));
    // A running sum of rows.
    let sum = [
        node("add", "Add", &["state", "row"], &["next"], &[]),
        node("show", "Identity", &["next"], &["shown"], &[]),
    ];
    let vector = |name: &str| value(name, &[2]);
    let graph = graph_of(&sum, &[vector("state"), vector("row")], &[vector("next"), vector("shown")]);
    let nodes = [node(
        "scan",
        "Scan",
        &["zero", "x"],
        &["last", "all"],
        &[body("body", &graph), int("num_scan_inputs", 1)],
    )];
    let zero = tensor("zero", &[2], &[0.0, 0.0]);
    let outputs = [vector("last"), value("all", &[3, 2])];
    let graph = read(&model(17, &nodes, &[zero], &[value("x", &[3, 2])], &outputs), &batch(3)).unwrap();
    let x = Tensor::new([3, 2], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let got = plain::run(&graph, &[x]).unwrap();
    assert_eq!(
        (&got[0].data[..], &got[1].data[..]),
        (&[9.0, 12.0][..], &[1.0, 2.0, 4.0, 6.0, 9.0, 12.0][..])
    );
}

#[test]
fn operators_that_the_model_defines_are_read() {
    // scaled(a, slope) = LeakyRelu(a + a) with the slope that the call gives, or the default.
    let reference = message().text(1, "alpha").int(20, 1).text(21, "slope");
    let function = message()
        .text(1, "scaled")
        .text(4, "a")
        .text(5, "b")
        .message(7, &node("n", "Add", &["a", "a"], &["t"], &[]))
        .message(7, &node("m", "LeakyRelu", &["t"], &["b"], &[reference]))
        .text(10, "mine")
        .message(11, &float("slope", 0.5));
    let run = |attributes: &[_], functions: &[&Message]| {
        let nodes = [node("call", "scaled", &["x"], &["y"], attributes).text(7, "mine")];
        let bytes = model(17, &nodes, &[], &[value("x", &[2])], &[value("y", &[2])]);
        let more = functions.iter().fold(message(), |m, f| m.message(25, f));
        read(&[bytes, more.0].concat(), &batch(2))
    };
    for (attributes, want) in [(vec![], -1.0), (vec![float("slope", 0.25)], -0.5)] {
        let graph = run(&attributes, &[&function]).unwrap();
        let y = plain::run(&graph, &[Tensor::new([2], vec![3.0, -1.0])]).unwrap().remove(0);
        assert_eq!(y.data, [6.0, want]);
    }
    assert!(run(&[], &[]).unwrap_err().to_string().contains("domain `mine`"));
    // One that calls itself has no end.
    let endless = message()
        .text(1, "scaled")
        .text(4, "a")
        .text(5, "b")
        .message(7, &node("n", "scaled", &["a"], &["b"], &[]).text(7, "mine"))
        .text(10, "mine");
    assert!(run(&[], &[&endless]).unwrap_err().to_string().contains("within each other"));
}
