//! Language models: LLaMA by configuration on shares, and as Hugging Face exports it.

use crate::common::onnx::{Message, int, int_tensor, ints, message, model, node, tensor, typed, value};
use crate::common::{check, farthest, first_output, noise};
use megrez_graph::onnx::{ImportOptions, read};
use megrez_graph::{Activations, CompileOptions, Compiled, RangePolicy, Tensor, compile, models, plain};
use megrez_plan::Op;
use megrez_ring::encode_words;
use std::collections::HashMap;

fn options(protocol: &str, activations: Activations) -> CompileOptions {
    CompileOptions {
        activations,
        policy: RangePolicy::Assume,
        defer_resharing: ["aby3", "alkaid"].contains(&protocol),
        ..CompileOptions::default()
    }
}

/// The first output of a run on tokens.
fn on_shares(protocol: &str, compiled: &Compiled, tokens: &Tensor) -> Vec<f32> {
    let ring = compiled.plan.ring;
    let weights = compiled.model_inputs.iter();
    let weights = weights.map(|w| (w.name.clone(), encode_words(ring, &w.values, w.frac).unwrap()));
    let mut words: HashMap<String, Vec<u64>> = weights.collect();
    for input in &compiled.data_inputs {
        let rows = input.tokens.unwrap();
        let mut ones = vec![0; tokens.data.len() * rows];
        tokens.data.iter().enumerate().for_each(|(i, &t)| ones[i * rows + t as usize] = 1);
        words.insert(input.name.clone(), ones);
    }
    first_output(protocol, compiled, &words)
}

#[test]
fn llama_on_shares_is_as_in_the_clear() {
    let graph = models::build("llama-tiny", 1, 1).unwrap();
    let tokens = Tensor::new([1, 8], vec![7.0, 200.0, 3.0, 3.0, 91.0, 18.0, 255.0, 0.0]);
    let want = plain::run(&graph, std::slice::from_ref(&tokens)).unwrap().remove(0).data;
    let size = want.iter().fold(0f32, |m, v| m.max(v.abs()));
    assert!(size > 0.1, "{size}");
    for protocol in ["clear", "mizar", "aby3", "alkaid"] {
        let compiled = compile(&graph, &options(protocol, Activations::Fine)).unwrap();
        let off = farthest(&on_shares(protocol, &compiled, &tokens), &want);
        println!("{protocol}: off by {off:.1e} of {size:.2}");
        assert!(off < 2e-3, "{protocol}: off by {off}");
    }
}

/// One layer of LLaMA of width 16, with four heads of queries and two of keys, on five tokens out
/// of eleven, node by node as `torch.onnx.export` writes transformers' LlamaForCausalLM.
struct Export {
    nodes: Vec<Message>,
    tensors: Vec<Message>,
    weights: HashMap<&'static str, Tensor>,
}

impl Export {
    fn op(&mut self, op: &str, inputs: &[&str], output: &str) {
        self.with(op, inputs, output, &[]);
    }

    fn with(&mut self, op: &str, inputs: &[&str], output: &str, attributes: &[Message]) {
        self.nodes.push(node(&format!("/model/{output}/{op}"), op, inputs, &[output], attributes));
    }

    fn weight(&mut self, name: &'static str, shape: &[usize], factor: f32, offset: f32) {
        let mut numbers = noise(shape.to_vec(), self.weights.len() as u64 + 1);
        numbers.data.iter_mut().for_each(|v| *v = factor * *v + offset);
        let dims: Vec<i64> = shape.iter().map(|&d| d as i64).collect();
        self.tensors.push(tensor(name, &dims, &numbers.data));
        self.weights.insert(name, numbers);
    }

    fn integers(&mut self, name: &str, list: &[i64]) {
        self.tensors.push(int_tensor(name, &[list.len() as i64], list));
    }

    fn number(&mut self, name: &str, v: f32) {
        self.tensors.push(tensor(name, &[], &[v]));
    }

    /// weight · (x · 1/√(mean of x² + ε)), with casts to float32 and back.
    fn norm(&mut self, x: &str, weight: &str, y: &str) {
        let of = |part: &str| format!("{y}.{part}");
        self.with("Cast", &[x], &of("float"), &[int("to", 1)]);
        self.op("Pow", &[&of("float"), "two"], &of("squares"));
        self.with("ReduceMean", &[&of("squares")], &of("mean"), &[ints("axes", &[-1]), int("keepdims", 1)]);
        self.op("Add", &[&of("mean"), "epsilon"], &of("more"));
        self.op("Sqrt", &[&of("more")], &of("root"));
        self.op("Div", &["one", &of("root")], &of("inverse"));
        self.op("Mul", &[&of("float"), &of("inverse")], &of("normal"));
        self.with("Cast", &[&of("normal")], &of("back"), &[int("to", 1)]);
        self.op("Mul", &[weight, &of("back")], y);
    }

    /// x·cos + rotate_half(x)·sin.
    fn rotary(&mut self, x: &str, y: &str) {
        let of = |part: &str| format!("{y}.{part}");
        self.op("Mul", &[x, "cos"], &of("cosine"));
        self.op("Slice", &[x, "start0", "start2", "axis3"], &of("first"));
        self.op("Slice", &[x, "start2", "end", "axis3"], &of("second"));
        self.op("Neg", &[&of("second")], &of("negative"));
        self.with("Concat", &[&of("negative"), &of("first")], &of("half"), &[int("axis", -1)]);
        self.op("Mul", &[&of("half"), "sin"], &of("sine"));
        self.op("Add", &[&of("cosine"), &of("sine")], y);
    }

    /// Each head as often as heads of queries share it: the shape is computed as `expand` does.
    fn repeated(&mut self, x: &str, y: &str) {
        let of = |part: &str| format!("{y}.{part}");
        self.op("Unsqueeze", &[x, "axis2"], &of("apart"));
        let one = message().text(1, "value").message(5, &int_tensor("", &[1], &[1])).int(20, 4);
        self.with("ConstantOfShape", &["five"], &of("all"), &[one]);
        self.op("Mul", &[&of("all"), "minus"], &of("unknown"));
        self.op("Equal", &["wide", &of("unknown")], &of("open"));
        self.op("Where", &[&of("open"), &of("all"), "wide"], &of("to"));
        self.op("Expand", &[&of("apart"), &of("to")], &of("copies"));
        self.op("Reshape", &[&of("copies"), "joined"], y);
    }

    fn heads(&mut self, x: &str, weight: &str, shape: &str, y: &str) {
        let of = |part: &str| format!("{y}.{part}");
        self.op("MatMul", &[x, weight], &of("projected"));
        self.op("Reshape", &[&of("projected"), shape], &of("split"));
        self.with("Transpose", &[&of("split")], y, &[ints("perm", &[0, 2, 1, 3])]);
    }

    fn llama() -> Self {
        let mut e = Export { nodes: vec![], tensors: vec![], weights: HashMap::new() };
        for (name, v) in [("two", 2.0), ("one", 1.0), ("epsilon", 1e-5), ("scaling", 1.0), ("root", 0.5)] {
            e.number(name, v);
        }
        for (name, list) in [
            ("start0", &[0][..]),
            ("start2", &[2]),
            ("end", &[i64::MAX]),
            ("axis1", &[1]),
            ("axis2", &[2]),
            ("axis3", &[3]),
            ("five", &[5]),
            ("minus", &[-1]),
            ("wide", &[1, 2, 2, 5, 4]),
            ("joined", &[1, 4, 5, 4]),
            ("queries", &[1, 5, -1, 4]),
            ("rows", &[1, 5, -1]),
            ("axes01", &[0, 1]),
        ] {
            e.integers(name, list);
        }
        for (name, v) in [("zero", 0), ("steps", 5), ("step", 1)] {
            e.tensors.push(int_tensor(name, &[], &[v]));
        }
        e.weight("embed_tokens.weight", &[11, 16], 1.0, 0.0);
        for name in ["input_layernorm.weight", "post_attention_layernorm.weight", "norm.weight"] {
            e.weight(name, &[16], 0.3, 1.0);
        }
        for (name, shape) in [
            ("q_proj", [16, 16]),
            ("k_proj", [16, 8]),
            ("v_proj", [16, 8]),
            ("o_proj", [16, 16]),
            ("gate_proj", [16, 24]),
            ("up_proj", [16, 24]),
            ("down_proj", [24, 16]),
            ("lm_head", [16, 11]),
        ] {
            e.weight(name, &shape, 0.4, 0.0);
        }
        e.op("Gather", &["embed_tokens.weight", "input_ids"], "hidden");

        // Positions by the frequencies, as float32 numbers that are known when compiling.
        e.tensors.push(tensor("inv_freq", &[1, 2, 1], &[1.0, 0.01]));
        e.op("Range", &["zero", "steps", "step"], "positions");
        e.op("Unsqueeze", &["positions", "axes01"], "position_ids");
        e.with("Cast", &["position_ids"], "position_floats", &[int("to", 1)]);
        e.op("MatMul", &["inv_freq", "position_floats"], "freqs");
        e.with("Transpose", &["freqs"], "freqs_turned", &[ints("perm", &[0, 2, 1])]);
        e.with("Concat", &["freqs_turned", "freqs_turned"], "emb", &[int("axis", -1)]);
        for (op, plain, name) in [("Cos", "cosines", "cos"), ("Sin", "sines", "sin")] {
            e.op(op, &["emb"], plain);
            e.op("Mul", &[plain, "scaling"], &format!("{name}.scaled"));
            e.op("Unsqueeze", &[&format!("{name}.scaled"), "axis1"], name);
        }
        // The upper triangle of the lowest float.
        e.tensors.push(tensor("lowest", &[5, 5], &[f32::MIN; 25]));
        e.with("Trilu", &["lowest", "step"], "triangle", &[int("upper", 1)]);
        e.op("Unsqueeze", &["triangle", "axes01"], "causal_mask");

        e.norm("hidden", "input_layernorm.weight", "attention_in");
        e.heads("attention_in", "q_proj", "queries", "q");
        e.heads("attention_in", "k_proj", "queries", "k");
        e.heads("attention_in", "v_proj", "queries", "v");
        e.rotary("q", "q_turned");
        e.rotary("k", "k_turned");
        e.repeated("k_turned", "keys");
        e.repeated("v", "values");
        e.with("Transpose", &["keys"], "keys_turned", &[ints("perm", &[0, 1, 3, 2])]);
        e.op("MatMul", &["q_turned", "keys_turned"], "products");
        e.op("Mul", &["products", "root"], "scores");
        e.op("Add", &["scores", "causal_mask"], "masked");
        e.with("Softmax", &["masked"], "attended", &[int("axis", -1)]);
        e.op("MatMul", &["attended", "values"], "mixed");
        e.with("Transpose", &["mixed"], "mixed_turned", &[ints("perm", &[0, 2, 1, 3])]);
        e.op("Reshape", &["mixed_turned", "rows"], "mixed_rows");
        e.op("MatMul", &["mixed_rows", "o_proj"], "attention_out");
        e.op("Add", &["hidden", "attention_out"], "residual");

        e.norm("residual", "post_attention_layernorm.weight", "mlp_in");
        e.op("MatMul", &["mlp_in", "gate_proj"], "gate");
        e.op("Sigmoid", &["gate"], "gate_sigmoid");
        e.op("Mul", &["gate", "gate_sigmoid"], "gate_silu");
        e.op("MatMul", &["mlp_in", "up_proj"], "up");
        e.op("Mul", &["gate_silu", "up"], "gated");
        e.op("MatMul", &["gated", "down_proj"], "mlp_out");
        e.op("Add", &["residual", "mlp_out"], "hidden1");
        e.norm("hidden1", "norm.weight", "last");
        e.op("MatMul", &["last", "lm_head"], "logits");
        e
    }

    fn bytes(&self) -> Vec<u8> {
        model(
            17,
            &self.nodes,
            &self.tensors,
            &[typed("input_ids", 7, &[1, 5])],
            &[value("logits", &[1, 5, 11])],
        )
    }

    /// rows · weight.
    fn product(&self, rows: &[Vec<f64>], weight: &str) -> Vec<Vec<f64>> {
        let w = &self.weights[weight];
        let columns = w.shape.dims()[1];
        let cell = |row: &[f64], j: usize| {
            row.iter().enumerate().map(|(k, x)| x * f64::from(w.data[k * columns + j])).sum::<f64>()
        };
        rows.iter().map(|row| (0..columns).map(|j| cell(row, j)).collect()).collect()
    }

    fn normalised(&self, rows: &[Vec<f64>], weight: &str) -> Vec<Vec<f64>> {
        let scale = &self.weights[weight].data;
        let normal = |row: &Vec<f64>| {
            let mean = row.iter().map(|v| v * v).sum::<f64>() / row.len() as f64;
            let root = (mean + 1e-5).sqrt();
            row.iter().zip(scale).map(|(v, s)| f64::from(*s) * v / root).collect()
        };
        rows.iter().map(normal).collect()
    }

    /// What LLaMA is by definition, with complex numbers for positions.
    fn by_definition(&self, tokens: &[usize]) -> Vec<f64> {
        let table = &self.weights["embed_tokens.weight"].data;
        let row = |t: &usize| table[t * 16..(t + 1) * 16].iter().map(|&v| f64::from(v)).collect();
        let x: Vec<Vec<f64>> = tokens.iter().map(row).collect();
        let y = self.normalised(&x, "input_layernorm.weight");
        let turned = |rows: Vec<Vec<f64>>| -> Vec<Vec<f64>> {
            let turn = |(p, row): (usize, Vec<f64>)| {
                let pair = |i: usize| {
                    let (head, d) = (i / 4 * 4, i % 4);
                    let (a, b) = (row[head + d % 2], row[head + 2 + d % 2]);
                    let (sin, cos) = (p as f64 * [1.0, 0.01][d % 2]).sin_cos();
                    if d < 2 { a * cos - b * sin } else { a * sin + b * cos }
                };
                (0..row.len()).map(pair).collect()
            };
            rows.into_iter().enumerate().map(turn).collect()
        };
        let (q, k) = (turned(self.product(&y, "q_proj")), turned(self.product(&y, "k_proj")));
        let v = self.product(&y, "v_proj");
        let mut mixed = vec![vec![0.0; 16]; 5];
        for (i, head) in (0..20).map(|n| (n / 4, n % 4)) {
            let of_keys = head / 2 * 4;
            let score = |j: usize| (0..4).map(|d| q[i][head * 4 + d] * k[j][of_keys + d]).sum::<f64>() / 2.0;
            let weights: Vec<f64> = (0..=i).map(|j| score(j).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for d in 0..4 {
                let terms = weights.iter().enumerate().map(|(j, w)| w / sum * v[j][of_keys + d]);
                mixed[i][head * 4 + d] = terms.sum();
            }
        }
        let plus = |a: &[Vec<f64>], b: Vec<Vec<f64>>| -> Vec<Vec<f64>> {
            a.iter().zip(b).map(|(a, b)| a.iter().zip(b).map(|(a, b)| a + b).collect()).collect()
        };
        let x = plus(&x, self.product(&mixed, "o_proj"));
        let y = self.normalised(&x, "post_attention_layernorm.weight");
        let (gate, up) = (self.product(&y, "gate_proj"), self.product(&y, "up_proj"));
        let silu = |(g, u): (&f64, &f64)| g / (1.0 + (-g).exp()) * u;
        let gated: Vec<Vec<f64>> =
            gate.iter().zip(&up).map(|(g, u)| g.iter().zip(u).map(silu).collect()).collect();
        let x = plus(&x, self.product(&gated, "down_proj"));
        self.product(&self.normalised(&x, "norm.weight"), "lm_head").concat()
    }
}

#[test]
fn llama_is_read_as_hugging_face_exports_it() {
    let export = Export::llama();
    let graph = read(&export.bytes(), &ImportOptions { batch: 1, ..ImportOptions::default() });
    let graph = graph.unwrap_or_else(|p| panic!("{p}"));
    let tokens = [3, 10, 0, 3, 7];
    let input = Tensor::new([1, 5], tokens.iter().map(|&t| t as f32).collect());
    let want = export.by_definition(&tokens);
    let got = plain::run(&graph, std::slice::from_ref(&input)).unwrap().remove(0);
    let off = got.data.iter().zip(&want).map(|(g, w)| (f64::from(*g) - w).abs()).fold(0.0, f64::max);
    assert!(off < 1e-4, "off by {off}");

    let compiled = compile(&graph, &options("mizar", Activations::Fine)).unwrap_or_else(|p| panic!("{p}"));
    let count = |op: &str| compiled.layers.iter().filter(|l| l.op == op).count();
    let parts = ["RMSNormalization", "Rotation", "Swish", "MaskedSoftmax", "MatMul"].map(count);
    assert_eq!(parts, [3, 2, 1, 1, 10], "{:?}", compiled.layers.iter().map(|l| &l.op).collect::<Vec<_>>());
    for left in ["Pow", "Sqrt", "Div", "Neg", "Sigmoid", "Cos", "Slice"] {
        assert_eq!(count(left), 0, "{left}");
    }
    for protocol in ["clear", "mizar", "aby3", "alkaid"] {
        let compiled = compile(&graph, &options(protocol, Activations::Fine)).unwrap();
        let got = on_shares(protocol, &compiled, &input);
        let off = got.iter().zip(&want).map(|(g, w)| (f64::from(*g) - w).abs()).fold(0.0, f64::max);
        println!("{protocol}: off by {off:.1e}");
        assert!(off < 5e-3, "{protocol}: off by {off}");
    }
}

#[test]
fn a_rotation_by_public_positions_is_local() {
    let mut g = megrez_graph::Graph::new("turn");
    let x = g.input("x", [2, 3, 4]).unwrap();
    let attributes = megrez_graph::Attributes::none().with("start", 5).with("base", 100.0);
    let y = g.add("turn", "Rotation", &[x], attributes).unwrap();
    g.output("y", y);
    let compiled = compile(&g, &CompileOptions::default()).unwrap();
    // Products with public numbers; the truncation is left to the recipient.
    let talks = |op: &Op| matches!(op, Op::Truncate { .. } | Op::MatMul | Op::Additive(_));
    let plan = &compiled.plan;
    assert_eq!((plan.inputs.len(), plan.steps.iter().filter(|s| talks(&s.op)).count()), (1, 0));
    check(&compiled, &[noise([2, 3, 4], 3)], 6e-5);
    let small = CompileOptions { ring: 32, frac: 10, ..CompileOptions::default() };
    check(&compile(&g, &small).unwrap(), &[noise([2, 3, 4], 3)], 6e-3);
}
