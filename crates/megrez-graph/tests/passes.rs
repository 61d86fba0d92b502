//! Passes on graphs: the same values with fewer nodes.

use crate::common::small::none;
use crate::common::{check, noise, run};
use crate::lowering::pool;
use megrez_graph::passes::{fold_batch_norm, pool_before_activation, remove_identities};
use megrez_graph::{CompileOptions, Graph, Tensor, compile};

#[test]
fn batch_norm_is_folded_exactly() {
    let mut g = Graph::new("bn");
    let x = g.input("x", [2, 3, 5, 5]).unwrap();
    let parameters = |g: &mut Graph, n: usize| {
        let variance = Tensor::new([n], (0..n).map(|i| 0.5 + i as f32).collect());
        let all = [noise([n], 1), noise([n], 2), noise([n], 3), variance];
        all.map(|t| g.constant("p", t))
    };
    let w = g.constant("w", noise([4, 3, 3, 3], 4));
    let conv = g.add("conv", "Conv", &[x, w], none()).unwrap();
    let p = parameters(&mut g, 4);
    let bn = g
        .add("bn1", "BatchNormalization", &[conv, p[0], p[1], p[2], p[3]], none().with("epsilon", 1e-3))
        .unwrap();
    let flat = g.add("flat", "Flatten", &[bn], none()).unwrap();
    let (w, b) = (g.constant("w2", noise([36, 4], 5)), g.constant("b2", noise([1], 6)));
    let fc = g.add("fc", "Gemm", &[flat, w, b], none().with("beta", 0.5).with("alpha", 2.0)).unwrap();
    let bn = g.add("bn2", "BatchNormalization", &[fc, p[0], p[1], p[2], p[3]], none()).unwrap();
    let w = g.constant("w3", noise([4, 4], 7));
    let mm = g.add("mm", "MatMul", &[bn, w], none()).unwrap();
    let bn = g.add("bn3", "BatchNormalization", &[mm, p[0], p[1], p[2], p[3]], none()).unwrap();
    let relu = g.add("relu", "Relu", &[bn], none()).unwrap();
    // Nothing to fold this one into.
    let bn = g.add("bn4", "BatchNormalization", &[relu, p[0], p[1], p[2], p[3]], none()).unwrap();
    g.output("y", bn);
    let folded = fold_batch_norm(&g).unwrap();
    let ops: Vec<&str> = folded.nodes.iter().map(|n| n.op.as_str()).collect();
    assert_eq!(ops, ["Conv", "Flatten", "Gemm", "Gemm", "Relu", "BatchNormalization"]);
    let x = noise([2, 3, 5, 5], 8);
    for (a, b) in run(&g, &x).data.iter().zip(&run(&folded, &x).data) {
        assert!((a - b).abs() < 1e-4, "{a} {b}");
    }
    check(&compile(&g, &CompileOptions::default()).unwrap(), &[x], 2e-2);
}

#[test]
fn a_batch_norm_whose_input_is_read_elsewhere_stays() {
    let mut g = Graph::new("bn");
    let x = g.input("x", [1, 2, 2, 2]).unwrap();
    let w = g.constant("w", noise([2, 2, 1, 1], 1));
    let p = g.constant("p", Tensor::filled([2], 1.0));
    let conv = g.add("conv", "Conv", &[x, w], none()).unwrap();
    let bn = g.add("bn", "BatchNormalization", &[conv, p, p, p, p], none()).unwrap();
    let sum = g.add("sum", "Add", &[conv, bn], none()).unwrap();
    g.output("y", sum);
    assert_eq!(fold_batch_norm(&g).unwrap().nodes.len(), 3);
    check(&compile(&g, &CompileOptions::default()).unwrap(), &[noise([1, 2, 2, 2], 3)], 1e-3);
}

#[test]
fn activations_and_pools_trade_places_only_where_it_is_exact() {
    let ops = |activations: &[(&str, f32)], reads: usize| {
        let mut g = Graph::new("switch");
        let x = g.input("x", [1, 1, 4, 4]).unwrap();
        let mut y = x;
        for (i, &(op, alpha)) in activations.iter().enumerate() {
            let attributes = if op == "LeakyRelu" { none().with("alpha", alpha) } else { none() };
            let low = g.constant("low", Tensor::new([], vec![-0.25]));
            let inputs = if op == "Clip" { vec![y, low] } else { vec![y] };
            y = g.add(&format!("a{i}"), op, &inputs, attributes).unwrap();
        }
        let pooled = g.add("pool", "MaxPool", &[y], pool(2, 2)).unwrap();
        g.output("y", pooled);
        if reads > 1 {
            g.output("before", y);
        }
        let switched = pool_before_activation(&g).unwrap();
        let x = noise([1, 1, 4, 4], 5);
        assert_eq!(run(&g, &x), run(&switched, &x));
        switched.nodes.iter().map(|n| n.op.clone()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(ops(&[("Relu", 0.0)], 1), "MaxPool Relu");
    assert_eq!(ops(&[("LeakyRelu", 0.1)], 1), "MaxPool LeakyRelu");
    assert_eq!(ops(&[("LeakyRelu", -0.1)], 1), "LeakyRelu MaxPool");
    assert_eq!(ops(&[("Clip", 0.0), ("Relu", 0.0)], 1), "MaxPool Clip Relu");
    assert_eq!(ops(&[("Relu", 0.0)], 2), "Relu MaxPool");
    // Behind several pools at once; not behind one that shrinks nothing.
    let mut g = Graph::new("switch");
    let x = g.input("x", [1, 1, 6, 6]).unwrap();
    let mut y = g.add("relu", "Relu", &[x], none()).unwrap();
    for (kernel, stride) in [(2, 1), (2, 2), (1, 1)] {
        y = g.add("pool", "MaxPool", &[y], pool(kernel, stride)).unwrap();
    }
    let sum = g.add("sum", "Add", &[x, x], none()).unwrap();
    g.output("y", y);
    g.output("sum", sum);
    let switched = pool_before_activation(&g).unwrap();
    let order: Vec<&str> = switched.nodes.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(order, ["pool", "pool_2", "relu", "pool_3", "sum"]);
}

#[test]
fn identities_vanish_and_outputs_keep_their_names() {
    let mut g = Graph::new("test");
    let x = g.input("x", [1, 2]).unwrap();
    let y = g.add("id", "Identity", &[x], none()).unwrap();
    let y = g.add("relu", "Relu", &[y], none()).unwrap();
    let y = g.add("drop", "Dropout", &[y], none()).unwrap();
    g.output("result", y);
    let tidy = remove_identities(&g).unwrap();
    assert_eq!(tidy.nodes.iter().map(|n| n.op.as_str()).collect::<Vec<_>>(), ["Relu"]);
    assert_eq!(tidy.outputs[0].name, "result");
}
