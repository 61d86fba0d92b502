//! Steps of training on shares, against the same steps in the clear.

use megrez_graph::lower::DataInput;
use megrez_graph::{Attributes, CompileOptions, Graph, Interval, Tensor, models, npy};
use megrez_model::fixed::FixedModel;
use megrez_plan::{Input, KEPT, Kind, Plan};
use megrez_ring::{decode_words, encode_words};
use megrez_service::client::RunOptions;
use megrez_service::{Backend, Error, ErrorKind};
use megrez_train::{
    Clear, Loss, Optimiser, Rows, Step, Trained, accuracy, compile, differentiate, rehearse, with_weights,
};
use std::path::Path;

const CLIENT: &str = "local";

fn noise(shape: &[usize], seed: u64) -> Tensor {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 24) as f32
    };
    Tensor::new(shape.to_vec(), (0..shape.iter().product::<usize>()).map(|_| next()).collect())
}

/// A convolution, a pool, and a dense layer.
fn small(batch: usize) -> Graph {
    let mut g = Graph::new("small");
    let centred = |shape: &[usize], seed: u64| {
        let mut tensor = noise(shape, seed);
        tensor.data.iter_mut().for_each(|v| *v -= 0.5);
        tensor
    };
    let x = g.input("x", [batch, 1, 6, 6]).unwrap();
    let w = g.constant("conv.weight", centred(&[3, 1, 3, 3], 1));
    let b = g.constant("conv.bias", centred(&[3], 2));
    let y = g.add("conv", "Conv", &[x, w, b], Attributes::none()).unwrap();
    let y = g.add("relu", "Relu", &[y], Attributes::none()).unwrap();
    let pool = Attributes::none().with("kernel_shape", [2, 2]).with("strides", [2, 2]);
    let y = g.add("pool", "MaxPool", &[y], pool).unwrap();
    let y = g.add("flat", "Flatten", &[y], Attributes::none()).unwrap();
    let w = g.constant("fc.weight", centred(&[4, 12], 3));
    let b = g.constant("fc.bias", centred(&[4], 4));
    let y = g.add("fc", "Gemm", &[y, w, b], Attributes::none().with("transB", 1)).unwrap();
    g.output("logits", y);
    g
}

/// The plan of a step that tells its client everything, for tests alone.
fn open(model: &FixedModel) -> Plan {
    let mut plan = model.compiled.plan.clone();
    plan.outputs.iter_mut().for_each(|output| output.recipient = CLIENT.into());
    plan
}

/// One step on shares: the state after it in the step's order, and the loss.
fn run(
    protocol: &str,
    step: &Step,
    model: &FixedModel,
    state: &[Tensor],
    batch: &[Tensor; 2],
) -> (Vec<Tensor>, f32) {
    let plan = open(model);
    let data = |_: u32, input: &DataInput| {
        Ok(if input.name == Step::LABELS { batch[1].clone() } else { batch[0].clone() })
    };
    let words = |run: u32, input: &Input| match step.state.iter().position(|s| s.name == input.name) {
        Some(place) => Ok(encode_words(plan.ring, &state[place].data, model.compiled.frac)
            .map_err(|e| Error::of(ErrorKind::OutOfRange, e))?),
        None => Ok(model.words(run, input, &data)?),
    };
    let options = RunOptions { insecure: protocol == "clear", ..RunOptions::new(protocol) };
    let outcome = Backend::threads().run(&plan, &options, &words, &|_| {}).unwrap_or_else(|e| panic!("{e}"));
    let decoded = |name: &str| {
        let place = plan.outputs.iter().position(|output| output.name == name).unwrap();
        let value = plan.value(plan.outputs[place].value);
        let Kind::Ring { frac } = value.kind else { panic!("{name} is no number") };
        Tensor::new(value.shape.clone(), decode_words(plan.ring, &outcome.outputs[0][place], frac))
    };
    let after = step.state.iter().map(|s| decoded(&format!("next.{}", s.name))).collect();
    (after, decoded(Step::LOSS).data[0])
}

fn largest_difference(a: &[Tensor], b: &[Tensor]) -> f32 {
    let pairs = a.iter().zip(b).flat_map(|(a, b)| a.data.iter().zip(&b.data));
    pairs.fold(0f32, |most, (a, b)| most.max((a - b).abs()))
}

fn options(protocol: &str) -> CompileOptions {
    let replicated = protocol == "aby3" || protocol == "alkaid";
    CompileOptions {
        defer_resharing: replicated,
        input_range: Interval::abs(1.0),
        ..CompileOptions::default()
    }
}

#[test]
fn a_step_on_shares_is_the_step_in_the_clear() {
    let labels = Tensor::new([4], vec![0.0, 3.0, 1.0, 2.0]);
    for (optimiser, loss) in [
        (Optimiser::sgd("2^-2".parse().unwrap()), Loss::CrossEntropy),
        (Optimiser::with_momentum("2^-3".parse().unwrap(), 0.9).unwrap(), Loss::CrossEntropy),
        (Optimiser::sgd("2^-2".parse().unwrap()), Loss::MeanSquares),
    ] {
        let model = small(4);
        let one_hot = Rows::new(&model, Loss::CrossEntropy, noise(&[4, 1, 6, 6], 9), labels.clone()).unwrap();
        let batch = one_hot.batch(&[0, 1, 2, 3], 0, 4);
        let step = differentiate(&model, loss, &Trained::All, optimiser).unwrap();
        let rehearsal = rehearse(&step, [batch.clone(), batch.clone()]).unwrap();
        let mut clear = Clear::new(&step);
        let want_loss = clear.step(batch.clone()).unwrap().unwrap();
        let want: Vec<Tensor> = clear.state().into_iter().map(|(_, tensor)| tensor).collect();
        let start: Vec<Tensor> = step.state.iter().map(|s| s.start.clone()).collect();
        let moved = largest_difference(&start, &want);
        assert!(moved > 0.02, "the step moves the weights by {moved} only");
        for protocol in ["clear", "mizar", "aby3", "alkaid"] {
            let model = compile(&step, CLIENT, &options(protocol), &rehearsal, false).unwrap();
            let (after, loss) = run(protocol, &step, &model, &start, &batch);
            let error = largest_difference(&after, &want);
            assert!(error < 3e-4, "{protocol}: weights are off by {error}");
            assert!((loss - want_loss).abs() < 2e-3, "{protocol}: {loss} instead of {want_loss}");
        }
    }
}

#[test]
fn nothing_is_opened_but_the_loss() {
    let step =
        differentiate(&small(4), Loss::CrossEntropy, &Trained::All, Optimiser::sgd("2^-2".parse().unwrap()))
            .unwrap();
    let labels = Tensor::new([4], vec![0.0, 3.0, 1.0, 2.0]);
    let rows = Rows::new(&small(4), Loss::CrossEntropy, noise(&[4, 1, 6, 6], 9), labels).unwrap();
    let batch = rows.batch(&[0, 1, 2, 3], 0, 4);
    let revealing = rehearse(&step, [batch.clone()]).unwrap();
    let plan = compile(&step, CLIENT, &options("mizar"), &revealing, true).unwrap().compiled.plan;
    let opened = |plan: &Plan| -> Vec<String> {
        plan.outputs.iter().filter(|o| o.recipient != KEPT).map(|o| o.name.clone()).collect()
    };
    assert_eq!(opened(&plan), [Step::LOSS]);
    // In the loop not even that.
    let step = step.adding_up_losses().unwrap();
    let rehearsal = rehearse(&step, [batch]).unwrap();
    let plan = compile(&step, CLIENT, &options("mizar"), &rehearsal, true).unwrap().compiled.plan;
    assert!(opened(&plan).is_empty());
    let given: Vec<&str> =
        plan.inputs.iter().filter(|input| input.owner != KEPT).map(|input| input.name.as_str()).collect();
    assert_eq!(given, ["x", Step::LABELS]);
}

/// Digits of 28×28 in [0, 1], and their classes.
fn digits() -> (Tensor, Tensor) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits");
    let images = npy::load(&folder.join("test_images.npy")).unwrap();
    (images, npy::load(&folder.join("test_labels.npy")).unwrap())
}

/// 784-128-128-10 on digits under MIZAR, step by step; for the test, the client carries the weights from one to the next.
#[test]
fn a_perceptron_learns_digits_as_in_floating_point() {
    let model = models::build("net-a", 32, 5).unwrap();
    let (images, classes) = digits();
    let count = classes.data.len();
    let images = images.reshape([count, 784]);
    let rows = Rows::new(&model, Loss::CrossEntropy, images, classes).unwrap();
    let optimiser = Optimiser::sgd("2^-3".parse().unwrap());
    let step = differentiate(&model, Loss::CrossEntropy, &Trained::All, optimiser).unwrap();
    // Five epochs; the last 40 rows of the order are for testing only.
    let order = rows.order(1, 0);
    let (trained, steps) = (count - 40, (count - 40) / 32);
    let batches: Vec<[Tensor; 2]> = (0..5u32)
        .flat_map(|epoch| {
            let mut turned = order[..trained].to_vec();
            turned.rotate_left(13 * epoch as usize);
            (0..steps as u32).map(|run| rows.batch(&turned, run, 32)).collect::<Vec<_>>()
        })
        .collect();
    let rehearsal = rehearse(&step, batches.iter().cloned()).unwrap();
    let compiled = compile(&step, CLIENT, &options("mizar"), &rehearsal, false).unwrap();
    let mut clear = Clear::new(&step);
    let mut state: Vec<Tensor> = step.state.iter().map(|s| s.start.clone()).collect();
    let mut losses = vec![];
    for batch in &batches {
        let want = clear.step(batch.clone()).unwrap().unwrap();
        let loss;
        (state, loss) = run("mizar", &step, &compiled, &state, batch);
        losses.push(loss);
        assert!((loss - want).abs() < 0.02 + 0.05 * want, "step {}: {loss} instead of {want}", losses.len());
    }
    let of = |tensors: Vec<Tensor>| {
        let named = step.state.iter().map(|s| s.name.clone()).zip(tensors).collect::<Vec<_>>();
        accuracy(&with_weights(&model, &named), &rows).unwrap()
    };
    let floats = of(clear.state().into_iter().map(|(_, tensor)| tensor).collect());
    let shares = of(state);
    println!(
        "floating point {floats:.4}, on shares {shares:.4}, loss {} to {}",
        losses[0],
        losses[losses.len() - 1]
    );
    assert!(floats > 0.85 && shares > floats - 0.015, "{shares} on shares, {floats} in floating point");
    assert!(losses[losses.len() - 1] < losses[0] / 2.0);
}
