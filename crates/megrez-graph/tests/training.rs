//! A whole step of training against references that share no code with it, and its plan.

use crate::common::{check, noise};
use megrez_graph::differentiate::{
    BACKWARD, Loss, Optimiser, Rate, Step, Trained, differentiate, differentiate_in_shards,
};
use megrez_graph::{
    Attributes, CompileOptions, Constant, Graph, Interval, RangePolicy, Tensor, calibrate, compile, models,
    plain,
};
use megrez_plan::{KEPT, Op, Plan};
use std::collections::BTreeMap;
use std::num::NonZeroU32;

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

/// One-hot rows.
fn labels(batch: usize, classes: usize) -> Tensor {
    let hot = |i: usize| if i % classes == (i / classes * 7 + 3) % classes { 1.0 } else { 0.0 };
    Tensor::new([batch, classes], (0..batch * classes).map(hot).collect())
}

/// A convolution, two pools, a frozen normalisation and two dense layers, small.
fn small(batch: usize) -> Graph {
    let mut g = Graph::new("small");
    let none = Attributes::none;
    let constant = |g: &mut Graph, name: &str, shape: &[usize], seed: u64| {
        let mut tensor = noise(shape.to_vec(), seed);
        tensor.data.iter_mut().for_each(|v| *v *= 0.5);
        g.constant(name, tensor)
    };
    let x = g.input("x", [batch, 2, 8, 8]).unwrap();
    let w = constant(&mut g, "conv.weight", &[4, 2, 3, 3], 1);
    let b = constant(&mut g, "conv.bias", &[4], 2);
    let y = g.add("conv", "Conv", &[x, w, b], none().with("pads", [1; 4])).unwrap();
    let y = g.add("relu1", "Relu", &[y], none()).unwrap();
    let pool = none().with("kernel_shape", [2, 2]).with("strides", [2, 2]);
    let y = g.add("pool1", "MaxPool", &[y], pool.clone()).unwrap();
    let normal: Vec<_> =
        [[0.5f32, 1.5, 1.0, 2.0], [0.1, 0.0, -0.2, 0.3], [0.2, 0.1, 0.0, 0.1], [1.0, 0.5, 2.0, 1.0]]
            .iter()
            .enumerate()
            .map(|(i, v)| g.constant(&format!("bn.{i}"), Tensor::new([4], v.to_vec())))
            .collect();
    let y = g.add("bn", "BatchNormalization", &[&[y], &normal[..]].concat(), none()).unwrap();
    let y = g.add("pool2", "AveragePool", &[y], pool).unwrap();
    let y = g.add("flat", "Flatten", &[y], none()).unwrap();
    let w = constant(&mut g, "fc1.weight", &[6, 16], 3);
    let b = constant(&mut g, "fc1.bias", &[6], 4);
    let y = g.add("fc1", "Gemm", &[y, w, b], none().with("transB", 1)).unwrap();
    let y = g.add("relu2", "Relu", &[y], none()).unwrap();
    let w = constant(&mut g, "fc2.weight", &[6, 5], 5);
    let y = g.add("fc2", "MatMul", &[y, w], none()).unwrap();
    let b = constant(&mut g, "fc2.bias", &[5], 6);
    let y = g.add("out", "Add", &[y, b], none()).unwrap();
    g.output("logits", y);
    g
}

/// Forward passes in f64, written down a second time: by the graph's operators, but with none of
/// its code.
mod reference {
    use super::{Graph, Loss, Tensor};
    use megrez_graph::{Attribute, Id, Node};
    use std::collections::HashMap;

    type Wide = (Vec<usize>, Vec<f64>);

    fn wide(t: &Tensor) -> Wide {
        (t.shape.dims().to_vec(), t.data.iter().map(|&v| f64::from(v)).collect())
    }

    fn number(node: &Node, name: &str, default: i64) -> usize {
        match node.attributes.0.get(name) {
            Some(Attribute::Int(v)) => *v as usize,
            Some(Attribute::Ints(v)) => v[0] as usize,
            _ => default as usize,
        }
    }

    fn conv((xs, x): &Wide, (ws, w): &Wide, b: &[f64], node: &Node) -> Wide {
        let (stride, pad) = (number(node, "strides", 1), number(node, "pads", 0));
        let side = |d: usize| (xs[d] + 2 * pad - ws[d]) / stride + 1;
        let (n, o, rows, columns) = (xs[0], ws[0], side(2), side(3));
        let mut y = vec![];
        for i in 0..n * o * rows * columns {
            let (n, o) = (i / (o * rows * columns), i / (rows * columns) % o);
            let (r, q) = (i / columns % rows, i % columns);
            let mut sum = b[o];
            for t in 0..ws[1] * ws[2] * ws[3] {
                let (c, i, j) = (t / (ws[2] * ws[3]), t / ws[3] % ws[2], t % ws[3]);
                let (row, column) = ((r * stride + i).wrapping_sub(pad), (q * stride + j).wrapping_sub(pad));
                if row < xs[2] && column < xs[3] {
                    sum += w[o * ws[1] * ws[2] * ws[3] + t]
                        * x[((n * xs[1] + c) * xs[2] + row) * xs[3] + column];
                }
            }
            y.push(sum);
        }
        (vec![n, o, rows, columns], y)
    }

    fn pool((xs, x): &Wide, node: &Node, average: bool) -> Wide {
        let (kernel, stride) = (number(node, "kernel_shape", 1), number(node, "strides", 1));
        let (rows, columns) = ((xs[2] - kernel) / stride + 1, (xs[3] - kernel) / stride + 1);
        let mut y = vec![];
        for plane in x.chunks(xs[2] * xs[3]) {
            for (r, q) in (0..rows * columns).map(|i| (i / columns * stride, i % columns * stride)) {
                let taps = (0..kernel * kernel).map(|t| plane[(r + t / kernel) * xs[3] + q + t % kernel]);
                y.push(match average {
                    true => taps.sum::<f64>() / (kernel * kernel) as f64,
                    false => taps.fold(f64::NEG_INFINITY, f64::max),
                });
            }
        }
        (vec![xs[0], xs[1], rows, columns], y)
    }

    fn dense((xs, x): &Wide, (ws, w): &Wide, b: Option<&[f64]>, turned: bool) -> Wide {
        let (outs, inner) = if turned { (ws[0], ws[1]) } else { (ws[1], ws[0]) };
        let at = |k: usize, o: usize| if turned { w[o * inner + k] } else { w[k * outs + o] };
        let cell = |row: &[f64], o: usize| {
            (0..inner).map(|k| row[k] * at(k, o)).sum::<f64>() + b.map_or(0.0, |b| b[o])
        };
        let y = x.chunks(inner).flat_map(|row| (0..outs).map(move |o| cell(row, o))).collect();
        (vec![xs[0], outs], y)
    }

    /// The mean loss of a model whose weights have moved by what `moved` says of each element.
    pub fn loss(g: &Graph, loss: Loss, x: &Tensor, y: &Tensor, moved: &dyn Fn(&str, usize) -> f64) -> f64 {
        let mut values: HashMap<Id, Wide> = HashMap::from([(g.inputs[0], wide(x))]);
        for node in &g.nodes {
            let ids: Vec<Id> = node.inputs.iter().flatten().copied().collect();
            let of = |i: usize| -> Wide {
                values.get(&ids[i]).cloned().unwrap_or_else(|| {
                    let (shape, mut data) = wide(g.floats(ids[i]).unwrap());
                    let name = &g.value(ids[i]).name;
                    data.iter_mut().enumerate().for_each(|(i, v)| *v += moved(name, i));
                    (shape, data)
                })
            };
            let x = of(0);
            let result = match node.op.as_str() {
                "Conv" => conv(&x, &of(1), &of(2).1, node),
                "Relu" => (x.0, x.1.iter().map(|v| v.max(0.0)).collect()),
                "MaxPool" => pool(&x, node, false),
                "AveragePool" => pool(&x, node, true),
                "Flatten" => (vec![x.0[0], x.1.len() / x.0[0]], x.1),
                "Gemm" => dense(&x, &of(1), Some(&of(2).1), true),
                "MatMul" => dense(&x, &of(1), None, false),
                "Add" => {
                    let b = of(1).1;
                    (x.0, x.1.iter().enumerate().map(|(i, v)| v + b[i % b.len()]).collect())
                }
                "BatchNormalization" => {
                    let [scale, bias, mean, variance] = [1, 2, 3, 4].map(|i| of(i).1);
                    let area = x.0[2] * x.0[3];
                    let normal = |(i, v): (usize, &f64)| {
                        let c = i / area % scale.len();
                        (v - mean[c]) / (variance[c] + 1e-5).sqrt() * scale[c] + bias[c]
                    };
                    (x.0.clone(), x.1.iter().enumerate().map(normal).collect())
                }
                other => panic!("{other}"),
            };
            values.insert(node.output, result);
        }
        let (shape, logits) = &values[&g.outputs[0].id];
        let rows = logits.chunks(shape[1]).zip(y.data.chunks(shape[1]));
        let of_row = |(z, y): (&[f64], &[f32])| match loss {
            Loss::CrossEntropy => {
                let sum: f64 = z.iter().map(|v| v.exp()).sum();
                z.iter().zip(y).map(|(z, &y)| f64::from(y) * (sum.ln() - z)).sum::<f64>()
            }
            Loss::MeanSquares => z.iter().zip(y).map(|(z, &y)| (z - f64::from(y)).powi(2) / 2.0).sum(),
            Loss::BinaryCrossEntropy => {
                let p = |z: f64| 1.0 / (1.0 + (-z).exp());
                let of = |(&z, &y): (&f64, &f32)| if y > 0.5 { -p(z).ln() } else { -p(-z).ln() };
                z.iter().zip(y).map(of).sum()
            }
            Loss::Hinge => {
                let of = |(z, &y): (&f64, &f32)| (1.0 - z * (2.0 * f64::from(y) - 1.0)).max(0.0);
                z.iter().zip(y).map(of).sum()
            }
        };
        rows.map(of_row).sum::<f64>() / shape[0] as f64
    }
}

fn inputs(step: &Step, x: &Tensor, y: &Tensor) -> Vec<Tensor> {
    let state = step.state.iter().map(|s| s.start.clone());
    [x.clone(), y.clone()].into_iter().chain(state).collect()
}

fn outputs(step: &Step, inputs: &[Tensor]) -> BTreeMap<String, Tensor> {
    let found = plain::run(&step.graph, inputs).unwrap_or_else(|p| panic!("{p}"));
    step.graph.outputs.iter().map(|o| o.name.clone()).zip(found).collect()
}

/// The step against the reference: the loss itself, and for every tensor of weights what it says of
/// the loss along two directions.
fn agrees(model: &Graph, loss: Loss, x: &Tensor, y: &Tensor, tolerance: f64) {
    // At this rate w − w' is the gradient of the mean loss.
    let step = differentiate(model, loss, &Trained::All, Optimiser::sgd(rate("1"))).unwrap();
    let found = outputs(&step, &inputs(&step, x, y));
    let mean = reference::loss(model, loss, x, y, &|_, _| 0.0);
    let got = f64::from(found[Step::LOSS].data[0]);
    assert!((got - mean).abs() < 1e-5 * (1.0 + mean.abs()), "{got} instead of {mean}");
    for (i, state) in step.state.iter().enumerate() {
        let after = &found[&state.name];
        assert_eq!(after.shape, state.start.shape);
        let name = state.name.strip_prefix("w.").unwrap();
        for seed in [1, 2] {
            let direction = noise(after.shape.clone(), 100 * seed + i as u64);
            let slope: f64 = (direction.data.iter().zip(&state.start.data).zip(&after.data))
                .map(|((&d, &before), &after)| f64::from(d) * (f64::from(before) - f64::from(after)))
                .sum();
            let h = 1e-6;
            let moved = |h: f64| {
                let by = |n: &str, i: usize| if n == name { h * f64::from(direction.data[i]) } else { 0.0 };
                reference::loss(model, loss, x, y, &by)
            };
            let want = (moved(h) - moved(-h)) / (2.0 * h);
            let error = (slope - want).abs() / (1e-2 + want.abs());
            assert!(error < tolerance, "{} along {seed}: {slope} instead of {want}", state.name);
        }
    }
}

#[test]
fn a_step_is_what_references_say() {
    let (x, y) = (noise([4, 2, 8, 8], 7), labels(4, 5));
    agrees(&small(4), Loss::CrossEntropy, &x, &y, 1e-4);
    for loss in [Loss::MeanSquares, Loss::BinaryCrossEntropy, Loss::Hinge] {
        agrees(&small(4), loss, &x, &y, 1e-4);
    }
    for (name, shape) in [("net-a", vec![2, 784]), ("lenet", vec![2, 1, 28, 28])] {
        let model = models::build(name, 2, 1).unwrap();
        agrees(&model, Loss::CrossEntropy, &noise(shape, 3), &labels(2, 10), 1e-3);
    }
}

#[test]
fn momentum_adds_up_steps_and_rates_divide_them() {
    let (x, y) = (noise([4, 2, 8, 8], 7), labels(4, 5));
    let run = |optimiser| {
        let step = differentiate(&small(4), Loss::CrossEntropy, &Trained::All, optimiser).unwrap();
        let mut inputs = inputs(&step, &x, &y);
        let place = |name: &str| step.graph.inputs.iter().position(|&id| step.graph.value(id).name == name);
        let v = place("v.fc1.weight");
        if let Some(v) = v {
            inputs[v].data.fill(0.5);
        }
        let w = inputs[place("w.fc1.weight").unwrap()].clone();
        let found = outputs(&step, &inputs);
        let moved: Vec<f32> = w.data.iter().zip(&found["w.fc1.weight"].data).map(|(a, b)| a - b).collect();
        assert_eq!(found.contains_key("v.fc1.weight"), v.is_some());
        moved
    };
    let plain = run(Optimiser::sgd(rate("1")));
    let slow = run(Optimiser::sgd(rate("3*2^-4")));
    let heavy = run(Optimiser::with_momentum(rate("1"), 0.75).unwrap());
    for ((p, s), h) in plain.iter().zip(&slow).zip(&heavy) {
        assert!((s - p * 3.0 / 16.0).abs() < 1e-6 && (h - p - 0.375).abs() < 1e-6, "{p} {s} {h}");
    }
    // As in torch: the gradient that momentum adds up has decay·w in it.
    let decay = |optimiser: Optimiser| Optimiser { decay: Some(rate("2^-3")), ..optimiser };
    let decayed = run(decay(Optimiser::sgd(rate("3*2^-4"))));
    let both = run(decay(Optimiser::with_momentum(rate("1"), 0.75).unwrap()));
    let model = small(4);
    let weight = model.values.iter().find(|v| v.name == "fc1.weight").unwrap();
    let Some(Constant::Floats(w)) = &weight.constant else { panic!("a constant") };
    assert_eq!(w.data.len(), plain.len());
    for (i, w) in w.data.iter().enumerate() {
        let want = [plain[i] * 3.0 / 16.0 + w * 3.0 / 128.0, plain[i] + 0.375 + w / 8.0];
        let off = (decayed[i] - want[0]).abs().max((both[i] - want[1]).abs());
        assert!(off < 1e-6, "{} {} instead of {want:?}", decayed[i], both[i]);
    }
}

/// How many elements a kind of step of some layers works on.
fn steps_of<'a>(plan: &'a megrez_plan::Plan, prefixes: &'a [&str]) -> impl Iterator<Item = &'a Op> {
    let named = move |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
    plan.steps.iter().filter(move |step| named(&step.name)).map(|step| &step.op)
}

fn compares(op: &Op) -> bool {
    matches!(
        op,
        Op::NonNegative(_)
            | Op::CompareMany { .. }
            | Op::Relu(_)
            | Op::Maximum(_)
            | Op::Offloaded(_)
            | Op::ToBits
            | Op::Lookup(_)
    )
}

#[test]
fn a_step_is_lowered_and_backward_compares_nothing() {
    let (x, y) = (noise([4, 2, 8, 8], 7), labels(4, 5));
    let momentum = Optimiser::with_momentum(rate("2^-3"), 0.9).unwrap();
    let decay = Some(rate("3*2^-5"));
    for optimiser in [
        Optimiser::sgd(rate("2^-3")),
        momentum,
        Optimiser { decay, ..Optimiser::sgd(rate("2^-3")) },
        Optimiser { decay, ..momentum },
        Optimiser::named("adam", rate("2^-5"), None, decay).unwrap(),
        Optimiser::named("amsgrad", rate("2^-5"), Some(0.0), None).unwrap(),
    ] {
        let step = differentiate(&small(4), Loss::CrossEntropy, &Trained::All, optimiser).unwrap();
        let inputs = inputs(&step, &x, &y);
        let calibration = calibrate::calibrate(&step.graph, [inputs.clone()], 4.0).unwrap();
        let options = CompileOptions {
            input_range: Interval::abs(1.0),
            policy: RangePolicy::Calibrated,
            measured: Some(calibration),
            ..CompileOptions::default()
        };
        let compiled = compile(&step.graph, &options).unwrap_or_else(|p| panic!("{p}"));
        // Adam's gradients are 64 times as large, and their squares; the step itself is compared on
        // shares.
        if optimiser.squares.is_none() {
            check(&compiled, &inputs, 4e-3);
        }
        let plan = &compiled.plan;
        let forward =
            steps_of(plan, &["conv", "relu", "pool", "fc", "loss"]).filter(|op| compares(op)).count();
        assert!(forward >= 5, "{forward}");
        let parts = [BACKWARD, "update.", "moved."];
        let backward: Vec<&Op> = steps_of(plan, &parts).collect();
        assert!(backward.iter().any(|op| matches!(op, Op::Select { .. })) && backward.len() > 20);
        // The root of Adam does, in the update.
        let backward = steps_of(plan, if optimiser.squares.is_some() { &[BACKWARD] } else { &parts });
        assert!(!backward.into_iter().any(compares), "backward compares");
        // Where selections truncate, that of a ReLU's gradient does: an opening and a round less.
        let fused = CompileOptions { selects_truncated: true, ..options.clone() };
        let fused = compile(&step.graph, &fused).unwrap_or_else(|p| panic!("{p}"));
        if optimiser.squares.is_none() {
            check(&fused, &inputs, 4e-3);
        }
        let truncations = |plan: &Plan| {
            let all: Vec<&Op> = steps_of(plan, &[BACKWARD]).collect();
            let count = |is: fn(&Op) -> bool| all.iter().filter(|op| is(op)).count();
            [
                count(|op| matches!(op, Op::Truncate { .. })),
                count(|op| matches!(op, Op::Select { truncate: 1.. })),
            ]
        };
        let ([apart, none], [left, within]) = (truncations(plan), truncations(&fused.plan));
        assert!(none == 0 && within >= 2 && left + within == apart, "{apart} {left} {within}");
        // With what lasts kept, nothing but the loss is opened.
        let kept = compile(&step.graph, &CompileOptions { kept: step.kept(), ..options }).unwrap();
        let opened: Vec<&str> =
            kept.plan.outputs.iter().filter(|o| o.recipient != KEPT).map(|o| o.name.as_str()).collect();
        assert_eq!(opened, [Step::LOSS]);
        let of_parties = kept.plan.inputs.iter().filter(|i| i.owner == KEPT).count();
        assert_eq!(of_parties, step.state.len());
        let silent = step.adding_up_losses().unwrap();
        let options =
            CompileOptions { policy: RangePolicy::Assume, kept: silent.kept(), ..CompileOptions::default() };
        let silent = compile(&silent.graph, &options).unwrap().plan;
        assert!(silent.outputs.iter().all(|o| o.recipient == KEPT) && silent.outputs.len() == of_parties + 1);
    }
}

#[test]
fn frozen_layers_get_no_gradient() {
    let all = differentiate(&small(2), Loss::CrossEntropy, &Trained::All, Optimiser::sgd(rate("1"))).unwrap();
    let only = |names: &[&str]| {
        let trained = Trained::Only(names.iter().map(|n| n.to_string()).collect());
        differentiate(&small(2), Loss::CrossEntropy, &trained, Optimiser::sgd(rate("1")))
    };
    let names = |step: &Step| step.state.iter().map(|s| s.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&all).len(), 6);
    let head = only(&["fc2", "out"]).unwrap();
    assert_eq!(names(&head), ["w.fc2.weight", "w.fc2.bias"]);
    assert!(
        !head.graph.nodes.iter().any(|n| n.name.starts_with("back.conv") || n.name.starts_with("back.fc1"))
    );
    assert_eq!(names(&only(&["conv.bias"]).unwrap()), ["w.conv.bias"]);
    assert!(only(&["fc3"]).unwrap_err().to_string().contains("`fc3`"));
    // Batch normalisation is frozen.
    let refused = only(&["bn"]).unwrap_err().to_string();
    assert!(refused.contains("`bn`"), "{refused}");
}

#[test]
fn what_cannot_be_trained_is_refused_by_name() {
    let of = |build: &dyn Fn(&mut Graph, megrez_graph::Id) -> megrez_graph::Id| {
        let mut g = Graph::new("test");
        let x = g.input("x", [2, 4]).unwrap();
        let w = g.constant("w", noise([4, 3], 1));
        let y = g.add("fc", "MatMul", &[x, w], Attributes::none()).unwrap();
        let y = build(&mut g, y);
        g.output("y", y);
        differentiate(&g, Loss::CrossEntropy, &Trained::All, Optimiser::sgd(rate("1")))
    };
    // A Softmax at the end is the loss's.
    assert!(of(&|g, y| g.add("p", "Softmax", &[y], Attributes::none()).unwrap()).is_ok());
    let several = of(&|g, y| {
        let y = g.add("a", "Sin", &[y], Attributes::none()).unwrap();
        g.add("b", "Abs", &[y], Attributes::none()).unwrap()
    });
    assert_eq!(several.unwrap_err().0.len(), 2);
    let vector = of(&|g, y| g.add("v", "ReduceSum", &[y], Attributes::none().with("keepdims", 0)).unwrap());
    assert!(vector.unwrap_err().to_string().contains("no matrix"));
}

/// Three steps of Adam and AMSGrad against their formulas, in f64.
#[test]
fn adaptive_steps_are_their_formulas() {
    let (x, y) = (noise([4, 2, 8, 8], 7), labels(4, 5));
    for (name, largest) in [("adam", false), ("amsgrad", true)] {
        let optimiser = Optimiser::named(name, rate("2^-5"), None, Some(rate("2^-2"))).unwrap();
        let step = differentiate(&small(4), Loss::CrossEntropy, &Trained::All, optimiser).unwrap();
        let plain_step =
            differentiate(&small(4), Loss::CrossEntropy, &Trained::All, Optimiser::sgd(rate("1"))).unwrap();
        assert_eq!(step.state.iter().any(|s| s.name == "h.fc1.weight"), largest);
        let mut given = inputs(&step, &x, &y);
        let (beta1, beta2, epsilon) = (230.0 / 256.0, 1023.0 / 1024.0, 1.0 / 4096.0 / 4096.0);
        let place = |name: &str| step.graph.inputs.iter().position(|&id| step.graph.value(id).name == name);
        let at = place("w.fc1.weight").unwrap();
        let count = given[at].data.len();
        let (mut m, mut u, mut h) = (vec![0f64; count], vec![0f64; count], vec![0f64; count]);
        let mut last = 0.0;
        for turn in 0..3 {
            // At rate 1 SGD takes the mean gradient off.
            let weights = plain_step.state.iter().map(|s| given[place(&s.name).unwrap()].clone());
            let weights: Vec<Tensor> = [x.clone(), y.clone()].into_iter().chain(weights).collect();
            let after = &outputs(&plain_step, &weights)["w.fc1.weight"];
            let found = outputs(&step, &given);
            for i in 0..count {
                let w = f64::from(given[at].data[i]);
                // Gradients get larger first and smaller then, as the largest square shows.
                let g = w - f64::from(after.data[i]);
                m[i] = beta1 * m[i] + (1.0 - beta1) * g;
                u[i] = beta2 * u[i] + (1.0 - beta2) * g * g;
                h[i] = if largest { h[i].max(u[i]) } else { u[i] };
                let want = w - (m[i] / (h[i] + epsilon).sqrt() + w / 4.0) / 32.0;
                let got = f64::from(found["w.fc1.weight"].data[i]);
                assert!((got - want).abs() < 2e-5, "{name}, step {turn}: {got} instead of {want}");
                last = w - want;
            }
            for (i, name) in step.graph.inputs.iter().map(|&id| &step.graph.value(id).name).enumerate() {
                if let Some(next) = found.get(name) {
                    given[i] = next.clone();
                }
            }
        }
        assert!(last.abs() > 1e-4);
        if largest {
            // A square that was larger before is still divided by.
            let h = place("h.fc1.weight").unwrap();
            given[h].data.fill(1e4);
            let found = outputs(&step, &given);
            assert!(found["h.fc1.weight"].data.iter().all(|&v| v == 1e4));
        }
    }
    assert!(Optimiser::named("adagrad", rate("1"), None, None).is_err());
}

/// A shard is dealt with without its rows' neighbours, the update without any row, and both
/// together are the step of all rows at once.
#[test]
fn a_step_in_shards_is_the_step_of_all_its_rows() {
    let (each, shards) = (2, 3);
    let decay = Some(rate("2^-6"));
    let optimisers = [
        Optimiser::sgd(rate("2^-3")),
        Optimiser::named("sgd", rate("3*2^-4"), Some(0.5), decay).unwrap(),
        Optimiser::named("amsgrad", rate("2^-6"), None, None).unwrap(),
    ];
    for (optimiser, loss) in
        optimisers.into_iter().zip([Loss::CrossEntropy, Loss::MeanSquares, Loss::CrossEntropy])
    {
        let all = each * shards;
        let whole = differentiate(&small(all), loss, &Trained::All, optimiser).unwrap();
        let whole = whole.adding_up_losses().unwrap();
        let count = NonZeroU32::new(shards as u32).unwrap();
        let step = differentiate_in_shards(&small(each), loss, &Trained::All, optimiser, count).unwrap();
        let step = step.adding_up_losses().unwrap();
        assert_eq!((&step.state, step.batch), (&whole.state, each));
        let [shard, update] = step.parts().unwrap().unwrap();
        assert!(whole.parts().unwrap().is_none());
        let (x, y) = (noise(vec![all, 2, 8, 8], 31), labels(all, 5));
        let rows = |tensor: &Tensor, of: usize| {
            let width = tensor.data.len() / all;
            let data = tensor.data[of * each * width..][..each * width].to_vec();
            Tensor::new([&[each], &tensor.shape.dims()[1..]].concat(), data)
        };
        // Something that lasts, of every kind.
        let lasts = |name: &str, start: &Tensor| {
            let mut tensor = noise(start.shape.dims().to_vec(), name.len() as u64);
            let square = name.starts_with("u.") || name.starts_with("h.");
            tensor.data.iter_mut().for_each(|v| *v = if square { v.abs() + 0.1 } else { *v });
            tensor
        };
        let mut values: BTreeMap<String, Tensor> =
            step.state.iter().map(|state| (state.name.clone(), lasts(&state.name, &state.start))).collect();
        let run = |graph: &Graph, values: &BTreeMap<String, Tensor>| -> BTreeMap<String, Tensor> {
            let inputs: Vec<Tensor> =
                graph.inputs.iter().map(|id| values[&graph.value(*id).name].clone()).collect();
            let outputs = plain::run(graph, &inputs).unwrap();
            graph.outputs.iter().map(|output| output.name.clone()).zip(outputs).collect()
        };
        let mut of_all = values.clone();
        of_all.extend([("x".into(), x.clone()), (Step::LABELS.into(), y.clone())]);
        let expected = run(&whole.graph, &of_all);
        for of in 0..shards {
            let mut inputs = values.clone();
            inputs.extend([("x".into(), rows(&x, of)), (Step::LABELS.into(), rows(&y, of))]);
            let gathered = run(&shard, &inputs);
            assert!(gathered.keys().all(|name| name.starts_with(Step::GATHERED)));
            values.extend(gathered.into_iter().map(|(name, tensor)| (format!("{of}/{name}"), tensor)));
        }
        let read: Vec<&str> = update.inputs.iter().map(|id| update.value(*id).name.as_str()).collect();
        assert!(!read.contains(&"x") && !read.contains(&Step::LABELS), "{read:?}");
        let found = run(&update, &values);
        assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (name, tensor) in &found {
            let off =
                tensor.data.iter().zip(&expected[name].data).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off < 2e-5, "{name}: {off:.1e}");
        }
    }
}
