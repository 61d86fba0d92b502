//! A step of training under the symbolic checker: the bits of ReLUs and pools are used twice,
//! weights come from what was kept and are kept again.

use megrez_assurance::masks::examine_runs;
use megrez_engine::Options;
use megrez_graph::boosting::{Boosting, Objective};
use megrez_graph::calibrate::calibrate;
use megrez_graph::differentiate::{Loss, Optimiser, Step, Trained, differentiate, validation};
use megrez_graph::{Attributes, CompileOptions, Graph, Interval, RangePolicy, Tensor, compile};
use megrez_plan::{Input, KEPT, Kind, Op, Plan, Step as PlanStep, Value};

/// A convolution, a ReLU, a pool with a bit for it, and two dense layers; all trained.
fn model() -> Graph {
    let mut g = Graph::new("model");
    let number = |i: usize| ((i * 7 + 3) % 11) as f32 / 11.0 - 0.5;
    let weights = |g: &mut Graph, name: &str, shape: &[usize]| {
        let count = shape.iter().product::<usize>();
        g.constant(name, Tensor::new(shape.to_vec(), (0..count).map(number).collect()))
    };
    let x = g.input("x", [2, 1, 4, 4]).unwrap();
    let (w, b) = (weights(&mut g, "conv.weight", &[2, 1, 3, 3]), weights(&mut g, "conv.bias", &[2]));
    let y = g.add("conv", "Conv", &[x, w, b], Attributes::none()).unwrap();
    let y = g.add("relu1", "Relu", &[y], Attributes::none()).unwrap();
    let y = g.add("pool", "MaxPool", &[y], Attributes::none().with("kernel_shape", [2, 2])).unwrap();
    let y = g.add("flat", "Flatten", &[y], Attributes::none()).unwrap();
    let (w, b) = (weights(&mut g, "fc1.weight", &[2, 3]), weights(&mut g, "fc1.bias", &[3]));
    let y = g.add("fc1", "Gemm", &[y, w, b], Attributes::none()).unwrap();
    let y = g.add("relu2", "Relu", &[y], Attributes::none()).unwrap();
    let w = weights(&mut g, "fc2.weight", &[3, 3]);
    let y = g.add("fc2", "MatMul", &[y, w], Attributes::none()).unwrap();
    g.output("logits", y);
    g
}

/// One head of attention, a normalisation whose 1/σ both passes use, GELU with its derivative, and
/// what takes values apart.
fn attention() -> Graph {
    let mut g = Graph::new("attention");
    let number = |i: usize| ((i * 5 + 2) % 9) as f32 / 9.0 - 0.5;
    let weights = |g: &mut Graph, name: &str, shape: &[usize]| {
        let count = shape.iter().product::<usize>();
        g.constant(name, Tensor::new(shape.to_vec(), (0..count).map(number).collect()))
    };
    let none = Attributes::none;
    let x = g.input("x", [2, 2]).unwrap();
    let w = weights(&mut g, "qkv.weight", &[2, 6]);
    let all = g.add("qkv", "MatMul", &[x, w], none()).unwrap();
    let part = |g: &mut Graph, i: i64| {
        let own = none().with("axes", [1]).with("starts", [2 * i]).with("ends", [2 * i + 2]);
        g.add(&format!("part{i}"), "Slice", &[all], own).unwrap()
    };
    let (q, k, v) = (part(&mut g, 0), part(&mut g, 1), part(&mut g, 2));
    let k = g.add("turned", "Transpose", &[k], none()).unwrap();
    let y = g.add("scores", "MatMul", &[q, k], none()).unwrap();
    let y = g.add("softmax", "Softmax", &[y], none()).unwrap();
    let y = g.add("values", "MatMul", &[y, v], none()).unwrap();
    let y = g.add("residual", "Add", &[x, y], none()).unwrap();
    let (scale, offset) = (weights(&mut g, "norm.scale", &[2]), weights(&mut g, "norm.offset", &[2]));
    let norm = none().with("epsilon", 0.25);
    let y = g.add("norm", "LayerNormalization", &[y, scale, offset], norm).unwrap();
    let w = weights(&mut g, "fc.weight", &[2, 2]);
    let y = g.add("fc", "MatMul", &[y, w], none()).unwrap();
    let y = g.add("gelu", "Gelu", &[y], none()).unwrap();
    let index = g.constant("index", Tensor::<i64>::new([2], vec![1, 1]));
    let z = g.add("read", "Gather", &[y, index], none().with("axis", 1)).unwrap();
    let y = g.add("joined", "Concat", &[y, z], none().with("axis", 1)).unwrap();
    let y = g.add("tanh", "Tanh", &[y], none()).unwrap();
    g.output("logits", y);
    g
}

/// The step as a plan: rows of one owner, labels of another, the loss for a third.
fn plan(replicated: bool, optimiser: Optimiser, loss: Loss) -> Plan {
    plan_of(&model(), replicated, optimiser, loss)
}

fn plan_of(model: &Graph, replicated: bool, optimiser: Optimiser, loss: Loss) -> Plan {
    let step = differentiate(model, loss, &Trained::All, optimiser).unwrap();
    let options = CompileOptions {
        data_owner: "owner".into(),
        recipient: "recipient".into(),
        kept: step.kept(),
        policy: RangePolicy::Assume,
        defer_resharing: replicated,
        ..CompileOptions::default()
    };
    let mut plan = compile(&step.graph, &options).unwrap().plan;
    let labels = plan.inputs.iter_mut().find(|input| input.name == Step::LABELS).unwrap();
    labels.owner = "labeller".into();
    plan
}

#[test]
fn every_message_of_a_step_of_training_is_masked() {
    let rate = "2^-3".parse().unwrap();
    let momentum = Optimiser::with_momentum(rate, 0.5).unwrap();
    let momentum = Optimiser { decay: Some(rate), ..momentum };
    let adaptive = Optimiser::named("amsgrad", rate, None, None).unwrap();
    for (protocol, replicated) in [("mizar", false), ("aby3", true), ("alkaid", true)] {
        // The second run reads what the first has kept.
        for (optimiser, loss, runs) in [
            (Optimiser::sgd(rate), Loss::CrossEntropy, 1),
            (momentum, Loss::MeanSquares, 2),
            (adaptive, Loss::MeanSquares, 2),
        ] {
            let plan = plan(replicated, optimiser, loss);
            let opened: Vec<&str> =
                plan.outputs.iter().filter(|o| o.recipient != KEPT).map(|o| o.name.as_str()).collect();
            assert_eq!(opened, [Step::LOSS]);
            let options = Options { runs, ..Options::default() };
            let report = examine_runs(protocol, &plan, options).unwrap();
            let found: Vec<String> = report.unmasked.iter().take(4).map(ToString::to_string).collect();
            assert!(report.is_masked(), "{protocol}, {loss:?}: {found:?} {:?}", report.trouble);
            assert!(report.messages > 50 && report.views > 3, "{protocol}: {} messages", report.messages);
            println!(
                "{protocol}, {loss:?}: {} messages in {} views are masked",
                report.messages, report.views
            );
        }
    }
}

#[test]
fn every_message_of_a_step_of_attention_is_masked() {
    let optimiser = Optimiser::with_momentum("2^-3".parse().unwrap(), 0.5).unwrap();
    for (protocol, replicated) in [("mizar", false), ("aby3", true), ("alkaid", true)] {
        let plan = plan_of(&attention(), replicated, optimiser, Loss::MeanSquares);
        let options = Options { runs: 2, ..Options::default() };
        let report = examine_runs(protocol, &plan, options).unwrap();
        let found: Vec<String> = report.unmasked.iter().take(4).map(ToString::to_string).collect();
        assert!(report.is_masked(), "{protocol}: {found:?} {:?}", report.trouble);
        assert!(report.messages > 500, "{protocol}: {} messages", report.messages);
        println!("{protocol}: {} messages in {} views are masked", report.messages, report.views);
    }
}

#[test]
fn every_message_of_a_growing_tree_is_masked() {
    let boosting = Boosting { objective: Objective::Logistic, trees: 2, depth: 2, rate: 0.5, penalty: 1.0 };
    let (rows, columns) = (5, 3);
    let step = boosting.step(rows, columns).unwrap();
    let indicators = (0..rows * columns).map(|i| (i * i % 3 % 2) as f32).collect();
    let labels = (0..rows).map(|i| (i % 2) as f32).collect();
    let batch = [Tensor::new([rows, columns], indicators), Tensor::new([rows, 1], labels)];
    let inputs = batch.into_iter().chain(step.state.iter().map(|state| state.start.clone())).collect();
    let mut measured = calibrate(&step.graph, [inputs], 1.0).unwrap();
    for range in measured.ranges.values_mut() {
        *range = Interval::abs(8.0 * range.low.abs().max(range.high.abs()).max(1.0));
    }
    for (protocol, replicated) in [("mizar", false), ("aby3", true), ("alkaid", true)] {
        let options = CompileOptions {
            data_owner: "owner".into(),
            recipient: "recipient".into(),
            input_range: Interval { low: 0.0, high: 1.0 },
            kept: step.kept(),
            policy: RangePolicy::Calibrated,
            measured: Some(measured.clone()),
            defer_resharing: replicated,
            ..CompileOptions::default()
        };
        let plan = compile(&step.graph, &options).unwrap().plan;
        assert!(plan.outputs.iter().all(|output| output.recipient == KEPT), "nothing is opened");
        // The second tree reads what the first has left.
        let report = examine_runs(protocol, &plan, Options { runs: 2, ..Options::default() }).unwrap();
        let found: Vec<String> = report.unmasked.iter().take(4).map(ToString::to_string).collect();
        assert!(report.is_masked(), "{protocol}: {found:?} {:?}", report.trouble);
        assert!(report.messages > 500, "{protocol}: {} messages", report.messages);
        println!("{protocol}: {} messages in {} views are masked", report.messages, report.views);
    }
}

/// What is counted on held-out rows reads the weights' masks, which the steps read as well, and
/// adds up under masks of its own.
#[test]
fn every_message_of_a_validation_is_masked() {
    for (protocol, replicated) in [("mizar", false), ("aby3", true), ("alkaid", true)] {
        for loss in [Loss::CrossEntropy, Loss::MeanSquares] {
            let looks = validation(&model(), loss, &Trained::All).unwrap();
            let (sum, weights) = looks.state.split_last().unwrap();
            let options = CompileOptions {
                data_owner: "owner".into(),
                recipient: "recipient".into(),
                input_range: Interval { low: -1.0, high: 1.0 },
                kept: [(sum.name.clone(), sum.name.clone())].into(),
                policy: RangePolicy::Assume,
                defer_resharing: replicated,
                ..CompileOptions::default()
            };
            let plan = compile(&looks.graph, &options).unwrap().plan;
            assert!(plan.outputs.iter().all(|output| output.recipient == KEPT), "nothing is opened");
            // The second batch reads the sum of the first, and the same weights.
            let lasting: Vec<String> = weights.iter().map(|state| state.name.clone()).collect();
            let options = Options { runs: 2, lasting: &lasting, ..Options::default() };
            let report = examine_runs(protocol, &plan, options).unwrap();
            let found: Vec<String> = report.unmasked.iter().take(4).map(ToString::to_string).collect();
            assert!(report.is_masked(), "{protocol}, {loss:?}: {found:?} {:?}", report.trouble);
            assert!(report.messages > 30, "{protocol}: {} messages", report.messages);
        }
    }
}

/// What looks at weights after an epoch reads masks that the steps and the next epoch read as well.
#[test]
fn every_message_of_a_look_at_bounds_is_masked() {
    let value = |n: usize, frac| Value { shape: [n].into(), kind: Kind::Ring { frac } };
    let (w, v) = (value(5, 16), value(3, 28));
    for protocol in ["mizar", "aby3", "alkaid", "alkaid-masked", "meteor"] {
        let mut plan = Plan::within_bounds(64, &[("w", &w, 20), ("v", &v, 6)], "recipient").unwrap();
        // Given once, looked at twice.
        plan.inputs.iter_mut().for_each(|input| input.owner = "owner".into());
        let lasting = ["w".to_owned(), "v".to_owned()];
        let options = Options { runs: 2, lasting: &lasting, ..Options::default() };
        let report = examine_runs(protocol, &plan, options).unwrap();
        let found: Vec<String> = report.unmasked.iter().take(4).map(ToString::to_string).collect();
        assert!(report.is_masked(), "{protocol}: {found:?} {:?}", report.trouble);
        assert!(report.messages > 20, "{protocol}: {} messages", report.messages);
        println!("{protocol}: {} messages in {} views are masked", report.messages, report.views);
    }
}

/// Cuts the batch out of rows that are held from run to run, as a job of the parties does: their
/// masks are the same in every run, and each batch has rows of the one before.
fn of_held_rows(mut plan: Plan) -> Plan {
    let own = |input: &Input| input.owner != KEPT;
    let given: Vec<Input> = plan.inputs.iter().filter(|input| own(input)).cloned().collect();
    plan.inputs.retain(|input| !own(input));
    for (i, Input { name, owner, value }) in given.into_iter().enumerate() {
        let Value { shape, kind: Kind::Ring { frac } } = plan.value(value).clone() else { panic!("{name}") };
        let rows = [&[3], &shape.dims()[1..]].concat();
        let held = plan.input(&format!("rows.{name}"), &owner, rows.into(), frac);
        let op = Op::Gather { axis: 0, indices: vec![2, 0] };
        plan.steps
            .insert(i, PlanStep { name: format!("batch/{name}"), op, inputs: vec![held], output: value });
    }
    plan.validate().unwrap();
    plan
}

#[test]
fn rows_that_are_held_may_be_learnt_from_again() {
    let momentum = Optimiser::with_momentum("2^-3".parse().unwrap(), 0.5).unwrap();
    for (protocol, replicated) in [("mizar", false), ("aby3", true), ("alkaid", true)] {
        let plan = of_held_rows(plan(replicated, momentum, Loss::MeanSquares));
        let lasting: Vec<String> =
            plan.inputs.iter().filter(|i| i.owner != KEPT).map(|i| i.name.clone()).collect();
        assert_eq!(lasting.len(), 2);
        let options = Options { runs: 2, lasting: &lasting, streamed: false };
        let report = examine_runs(protocol, &plan, options).unwrap();
        let found: Vec<String> = report.unmasked.iter().take(4).map(ToString::to_string).collect();
        assert!(report.is_masked(), "{protocol}: {found:?} {:?}", report.trouble);
        assert!(report.messages > 50, "{protocol}: {} messages", report.messages);
    }
}
