//! Models whose weights every party knows: matrices in files, products that send nothing.

use crate::common::{farthest, first_output, noise};
use megrez_graph::models::{self, Decoder};
use megrez_graph::{
    Activations, Attributes, CompileOptions, Compiled, Graph, Publisher, RangePolicy, Tensor, compile, plain,
};
use megrez_plan::Op;
use megrez_ring::encode_words;
use megrez_weights::{Folder, Width};
use std::collections::HashMap;

fn options(protocol: &str, publisher: &Publisher) -> CompileOptions {
    CompileOptions {
        activations: Activations::Fine,
        policy: RangePolicy::Assume,
        defer_resharing: ["aby3", "alkaid"].contains(&protocol),
        private_weights: false,
        publisher: Some(publisher.clone()),
        ..CompileOptions::default()
    }
}

/// The first output of a run on one input of data or tokens.
fn on_shares(protocol: &str, compiled: &Compiled, data: &Tensor) -> Vec<f32> {
    assert!(compiled.model_inputs.is_empty(), "no weight is shared");
    let (ring, input) = (compiled.plan.ring, &compiled.data_inputs[0]);
    input.check(data).unwrap();
    let words = match (&input.table, input.tokens) {
        (Some(table), _) => {
            let row = |&token: &f32| table.row(token as usize, input.frac).map(|w| w as u64);
            data.data.iter().flat_map(row).collect()
        }
        (None, Some(rows)) => {
            let row = |&token: &f32| (0..rows).map(move |row| u64::from(row == token as usize));
            data.data.iter().flat_map(row).collect()
        }
        _ => encode_words(ring, &data.data, input.frac).unwrap(),
    };
    let words = HashMap::from([(input.name.clone(), words)]);
    first_output(protocol, compiled, &words)
}

fn products(compiled: &Compiled) -> usize {
    compiled.plan.steps.iter().filter(|step| matches!(step.op, Op::TimesPublic(_))).count()
}

#[test]
fn llama_with_public_weights_is_as_in_the_clear() {
    let graph = models::build("llama-tiny", 1, 1).unwrap();
    let tokens = Tensor::new([1, 8], vec![7.0, 200.0, 3.0, 3.0, 91.0, 18.0, 255.0, 0.0]);
    let clear = |graph: &Graph| plain::run(graph, std::slice::from_ref(&tokens)).unwrap().remove(0).data;
    let exact = clear(&graph);
    for (width, rounding) in [(Width::Sixteen, 1e-4), (Width::Eight, 2e-2)] {
        let publisher = Publisher::new(width, None);
        let want = clear(&publisher.publish(&graph).unwrap());
        let off = farthest(&want, &exact);
        assert!(off > 0.0 && off < rounding, "{width:?}: rounding weights is worth {off}");
        for protocol in ["clear", "mizar", "aby3", "alkaid"] {
            for embed in [true, false] {
                let options = CompileOptions { embed, ..options(protocol, &publisher) };
                let compiled = compile(&graph, &options).unwrap();
                // Five products a layer, one for the result, and one for the table if the parties
                // look up.
                assert_eq!(products(&compiled), 2 * 5 + 1 + usize::from(!embed));
                let off = farthest(&on_shares(protocol, &compiled, &tokens), &want);
                assert!(off < 2e-3, "{protocol}, {width:?}, {embed}: off by {off}");
            }
        }
    }
}

#[test]
fn matrices_of_every_kind_of_product_become_public() {
    let mut graph = Graph::new("products");
    let x = graph.input("x", [2, 3, 64]).unwrap();
    let weight = graph.constant("w", noise([64, 80], 1));
    let y = graph.add("matmul", "MatMul", &[x, weight], Attributes::none()).unwrap();
    let rows = graph.constant("rows", Tensor::new([2], vec![6i64, 80]));
    let y = graph.add("flat", "Reshape", &[y, rows], Attributes::none()).unwrap();
    let (turned, bias) = (noise([70, 80], 2), noise([70], 3));
    let (turned, bias) = (graph.constant("t", turned), graph.constant("b", bias));
    let transposed = Attributes::none().with("transB", 1);
    let y = graph.add("gemm", "Gemm", &[y, turned, bias], transposed).unwrap();
    // Few weights, which stand in the plan.
    let small = graph.constant("s", noise([70, 3], 4));
    let y = graph.add("small", "MatMul", &[y, small], Attributes::none()).unwrap();
    graph.output("y", y);
    let publisher = Publisher::new(Width::Sixteen, None);
    let published = publisher.publish(&graph).unwrap();
    let x = noise([2, 3, 64], 5);
    let want = plain::run(&graph, std::slice::from_ref(&x)).unwrap().remove(0).data;
    let rounded = plain::run(&published, std::slice::from_ref(&x)).unwrap().remove(0).data;
    let size = want.iter().fold(0f32, |most, v| most.max(v.abs()));
    assert!(farthest(&want, &rounded) < 1e-4 * size);
    // A word of a matrix has as many bits as the smaller ring.
    for policy in [RangePolicy::Prove, RangePolicy::Assume] {
        let options = CompileOptions { ring: 32, frac: 10, policy, ..options("mizar", &publisher) };
        assert!(compile(&graph, &options).unwrap_err().to_string().contains("40 bits or more"));
    }
    for protocol in ["mizar", "meteor", "alkaid"] {
        // Ranges are proven: a public matrix has bounds as weights have.
        let options = CompileOptions { policy: RangePolicy::Prove, ..options(protocol, &publisher) };
        let compiled = compile(&graph, &options).unwrap();
        assert_eq!(products(&compiled), 2);
        let off = farthest(&on_shares(protocol, &compiled, &x), &want);
        assert!(off < 1e-3 * size, "{protocol}: off by {off} of {size}");
    }
}

#[test]
fn a_network_that_was_drawn_once_is_found_again() {
    let path = std::env::temp_dir().join(format!("megrez-drawn-{}", std::process::id()));
    let publisher = || Publisher::new(Width::Eight, Some(Folder::at(&path)));
    let tokens = Tensor::new([1, 3], vec![9.0, 90.0, 200.0]);
    let logits = |decoder: &Decoder| {
        plain::run(&decoder.graph(0, 3).unwrap(), std::slice::from_ref(&tokens)).unwrap().remove(0).data
    };
    let drawn = logits(&Decoder::public("llama-tiny", 1, &publisher()).unwrap());
    let files = || std::fs::read_dir(&path).unwrap().count();
    // A table, five matrices a layer, the result's, and the index.
    assert_eq!(files(), 2 * 5 + 3);
    assert_eq!(logits(&Decoder::public("llama-tiny", 1, &publisher()).unwrap()), drawn);
    let private = logits(&Decoder::new("llama-tiny", 1).unwrap());
    assert!(farthest(&private, &drawn) < 2e-2, "the same weights, rounded");
    // A file that is damaged is drawn again.
    let mut all = std::fs::read_dir(&path).unwrap().map(|f| f.unwrap().path());
    let any = all.find(|f| f.extension().is_some_and(|e| e == "weights")).unwrap();
    std::fs::remove_file(&any).unwrap();
    assert_eq!(logits(&Decoder::public("llama-tiny", 1, &publisher()).unwrap()), drawn);
    assert!(any.exists());
    std::fs::remove_dir_all(path).unwrap();
}
