//! What models compute from tokens: rows of tables, and numbers that are looked up like rows.

use crate::common::onnx::{int_tensor, model, node, tensor, typed, value};
use crate::common::{decode, interpret, noise};
use megrez_graph::onnx::{ImportOptions, read};
use megrez_graph::passes::enumerate_tokens;
use megrez_graph::{Attributes, CompileOptions, Graph, Id, Tensor, compile, plain};

fn none() -> Attributes {
    Attributes::none()
}

/// A graph of what `build` makes of four tokens, two rows of two.
fn graph(build: impl Fn(&mut Graph, Id) -> Vec<Id>) -> Graph {
    let mut g = Graph::new("test");
    let x = g.input("x", [2, 2]).unwrap();
    for (i, y) in build(&mut g, x).into_iter().enumerate() {
        g.output(&format!("y{i}"), y);
    }
    g
}

/// That the graph computes what it did for all tokens of `rows`, in the clear and lowered.
fn expect(before: &Graph, rows: usize) {
    let after = enumerate_tokens(before).unwrap();
    let compiled = compile(&after, &CompileOptions::default()).unwrap();
    let input = &compiled.data_inputs[0];
    assert_eq!(input.tokens, Some(rows));
    for first in 0..rows {
        let tokens = (0..4).map(|i| ((first + i * i) % rows) as f32).collect();
        let tokens = [Tensor::new([2, 2], tokens)];
        input.check(&tokens[0]).unwrap();
        let want = plain::run(before, &tokens).unwrap();
        assert_eq!(plain::run(&after, &tokens).unwrap(), want);
        let ones = tokens[0].data.iter().flat_map(|&t| (0..rows).map(move |i| f32::from(i as f32 == t)));
        let values = interpret(&compiled, &[Tensor::new([2, 2, rows], ones.collect())]);
        for (output, want) in compiled.outputs.iter().zip(&want) {
            let id = compiled.plan.outputs.iter().find(|o| o.name == output.name).unwrap().value.0;
            let got = decode(values[id as usize].as_ref().unwrap(), output.frac);
            assert_eq!(got.len(), want.data.len());
            assert!(got.iter().zip(&want.data).all(|(a, b)| (a - f64::from(*b)).abs() < 1e-4), "{got:?}");
        }
    }
}

/// x, or x + n where x is negative, as Keras names rows from the end of a table.
fn from_the_end(g: &mut Graph, x: Id, n: f32) -> Id {
    let [zero, n] = [0.0, n].map(|v| g.constant("number", Tensor::new([], vec![v])));
    let negative = g.add("negative", "Less", &[x, zero], none()).unwrap();
    let other = g.add("other", "Add", &[x, n], none()).unwrap();
    let not = g.add("not", "Not", &[negative], none()).unwrap();
    let a = g.add("a", "Mul", &[negative, other], none()).unwrap();
    let b = g.add("b", "Mul", &[not, x], none()).unwrap();
    g.add("index", "Add", &[a, b], none()).unwrap()
}

#[test]
fn an_index_that_is_computed_from_a_token_names_rows_of_another_table() {
    let table = noise([7, 3], 4);
    let gathered = |g: &mut Graph, index: Id| {
        let table = g.constant("table", table.clone());
        g.add("rows", "Gather", &[table, index], none()).unwrap()
    };
    expect(
        &graph(|g, x| {
            let index = from_the_end(g, x, 7.0);
            vec![gathered(g, index)]
        }),
        7,
    );
    // Rows from 2 on: only five tokens are left.
    expect(
        &graph(|g, x| {
            let two = g.constant("two", Tensor::new([], vec![2.0f32]));
            let index = g.add("later", "Add", &[x, two], none()).unwrap();
            vec![gathered(g, index)]
        }),
        5,
    );
    // Through casts, which leave tokens as they are.
    expect(
        &graph(|g, x| {
            let real = g.add("real", "Cast", &[x], none().with("to", 1)).unwrap();
            let index = from_the_end(g, real, 7.0);
            let both = g.add("both", "Max", &[x, index], none()).unwrap();
            vec![gathered(g, index), gathered(g, both), gathered(g, real)]
        }),
        7,
    );
    // Through what rearranges tokens.
    expect(
        &graph(|g, x| {
            let turned = g.add("turned", "Transpose", &[x], none().with("perm", [1i64, 0])).unwrap();
            let index = from_the_end(g, turned, 7.0);
            vec![gathered(g, index), gathered(g, x)]
        }),
        7,
    );
}

#[test]
fn numbers_that_are_computed_from_tokens_are_looked_up() {
    // Padding is 0: its rows are hidden, and the mask is an output, too.
    let masked = graph(|g, x| {
        let table = g.constant("table", noise([5, 3], 4));
        let rows = g.add("rows", "Gather", &[table, x], none()).unwrap();
        let zero = g.constant("zero", Tensor::new([], vec![0.0f32]));
        let mask = g.add("mask", "Greater", &[x, zero], none()).unwrap();
        let axis = g.constant("axis", Tensor::new([1], vec![-1i64]));
        let column = g.add("column", "Unsqueeze", &[mask, axis], none()).unwrap();
        let hidden = g.add("hidden", "Mul", &[rows, column], none()).unwrap();
        vec![hidden, mask, x]
    });
    expect(&masked, 5);
    // What compares all tokens with each other is no function of one.
    let both = graph(|g, x| {
        let table = g.constant("table", noise([5, 3], 4));
        let turned = g.add("turned", "Transpose", &[x], none().with("perm", [1i64, 0])).unwrap();
        let difference = g.add("difference", "Sub", &[x, turned], none()).unwrap();
        vec![g.add("rows", "Gather", &[table, x], none()).unwrap(), difference]
    });
    expect(&both, 5);
}

#[test]
fn long_chains_are_computed_within_moments_or_left() {
    let chain = |length: usize, rows: usize| {
        graph(|g, x| {
            let zero = g.constant("zero", Tensor::new([], vec![0.0f32]));
            let add = |index, _| g.add("add", "Add", &[index, zero], none()).unwrap();
            let index = (0..length).fold(x, add);
            let table = g.constant("table", noise([rows, 1], 4));
            vec![g.add("rows", "Gather", &[table, index], none()).unwrap()]
        })
    };
    let after = enumerate_tokens(&chain(20_000, 4)).unwrap();
    assert_eq!(after.nodes.len(), 1);
    // Too much to compute: left as it is, and refused like any index that is computed.
    let large = chain(1000, 1 << 17);
    assert_eq!(enumerate_tokens(&large).unwrap().nodes.len(), large.nodes.len());
}

#[test]
fn an_index_that_no_table_holds_is_refused() {
    let halves = graph(|g, x| {
        let half = g.constant("half", Tensor::new([], vec![0.5f32]));
        let index = g.add("half", "Add", &[x, half], none()).unwrap();
        let table = g.constant("table", noise([5, 3], 4));
        vec![g.add("rows", "Gather", &[table, index], none()).unwrap()]
    });
    let after = enumerate_tokens(&halves).unwrap();
    let refusal = compile(&after, &CompileOptions::default()).unwrap_err().to_string();
    assert!(refusal.contains("secret index"), "{refusal}");
}

#[test]
fn inputs_may_be_constants() {
    let nodes = [
        node("rate", "Equal", &["sr", "known"], &["right"], &[]),
        node("real", "Cast", &["right"], &["number"], &[crate::common::onnx::int("to", 1)]),
        node("scaled", "Mul", &["x", "gain"], &["y"], &[]),
        node("sum", "Add", &["y", "number"], &["z"], &[]),
    ];
    let inputs = [value("x", &[0]), typed("sr", 7, &[]), value("gain", &[1])];
    let bytes = model(17, &nodes, &[int_tensor("known", &[], &[16000])], &inputs, &[value("z", &[0])]);
    let fixed = |sr: Tensor, gain: Tensor, more: Option<&str>| {
        let mut constants: std::collections::BTreeMap<String, Tensor> =
            [("sr".into(), sr), ("gain".into(), gain)].into();
        constants.extend(more.map(|name| (name.to_owned(), Tensor::filled([], 1.0))));
        read(&bytes, &ImportOptions { batch: 2, constants, ..ImportOptions::default() })
    };
    let gain = || Tensor::new([1], vec![0.5]);
    let graph = fixed(Tensor::new([], vec![16000.0]), gain(), None).unwrap();
    assert_eq!(graph.inputs.len(), 1);
    assert_eq!(plain::run(&graph, &[Tensor::new([2], vec![4.0, -2.0])]).unwrap()[0].data, [3.0, 0.0]);
    for (sr, gain, more, what) in [
        (Tensor::new([], vec![0.5]), gain(), None, "give whole numbers"),
        (Tensor::new([], vec![2f32.powi(25)]), gain(), None, "beyond 2^24"),
        (Tensor::new([1], vec![16000.0]), gain(), None, "the shape [1]"),
        (Tensor::new([], vec![16000.0]), Tensor::new([2], vec![1.0; 2]), None, "the shape [2]"),
        (Tensor::new([], vec![16000.0]), gain(), Some("rate"), "no such input"),
        (Tensor::new([], vec![16000.0]), gain(), Some("known"), "no such input"),
    ] {
        let refusal = fixed(sr, gain, more).unwrap_err().to_string();
        assert!(refusal.contains(what), "{refusal}");
    }
}

#[test]
fn nothing_is_joined_to_something() {
    let nodes = [
        node("none", "ConstantOfShape", &["dims"], &["none"], &[]),
        node("scaled", "Mul", &["none", "number"], &["still"], &[]),
        node("joined", "Concat", &["x", "still"], &["y"], &[crate::common::onnx::int("axis", 1)]),
    ];
    let tensors = [int_tensor("dims", &[2], &[1, 0]), tensor("number", &[], &[-1e9])];
    let bytes = model(17, &nodes, &tensors, &[value("x", &[1, 3])], &[value("y", &[1, 3])]);
    let graph = read(&bytes, &ImportOptions::default()).unwrap();
    let x = Tensor::new([1, 3], vec![1.0, -2.0, 3.0]);
    assert_eq!(plain::run(&graph, std::slice::from_ref(&x)).unwrap()[0], x);
}

#[test]
fn rows_of_quantised_tables_are_scaled_back() {
    let nodes = [
        node("rows", "Gather", &["table", "x"], &["q"], &[]),
        node("real", "DequantizeLinear", &["q", "scale", "zero"], &["y"], &[]),
    ];
    let bytes_of = |v: &[i8]| v.iter().map(|&v| v as u8).collect::<Vec<u8>>();
    let int8 = |name: &str, dims: &[i64], v: &[i8]| {
        let head = dims.iter().fold(crate::common::onnx::message(), |m, &d| m.int(1, d));
        head.int(2, 3).text(8, name).bytes(9, &bytes_of(v))
    };
    let tensors = [
        int8("table", &[3, 2], &[-100, 5, 7, 127, 0, -1]),
        tensor("scale", &[], &[0.5]),
        int8("zero", &[], &[2]),
    ];
    let bytes = model(17, &nodes, &tensors, &[typed("x", 7, &[1, 2])], &[value("y", &[1, 2, 2])]);
    let graph = read(&bytes, &ImportOptions::default()).unwrap();
    let y = plain::run(&graph, &[Tensor::new([1, 2], vec![0.0, 1.0])]).unwrap().remove(0);
    assert_eq!(y.data, [-51.0, 1.5, 2.5, 62.5]);
    compile(&graph, &CompileOptions::default()).unwrap();
}
