//! Steps of training on shares, against the same steps in the clear.

use crate::common::noise;
use megrez_engine::local::{LocalOptions, run};
use megrez_graph::differentiate::{Loss, Optimiser, Step, Trained, differentiate};
use megrez_graph::{
    Attributes, Calibration, Comparison, CompileOptions, Compiled, Graph, Interval, ListStyle, RangePolicy,
    Tensor, calibrate, compile, plain,
};
use megrez_plan::{Fewest, Kind};
use megrez_ring::{decode_words, encode_words};
use megrez_session::Phase;
use std::collections::HashMap;

/// A convolution, a pool, and a dense layer.
pub(crate) fn small(batch: usize) -> Graph {
    with_pool(batch, [2, 2], [2, 2], 0)
}

/// The same with another pool: kernel, strides, and padding on all sides, of an image of 4×4.
fn with_pool(batch: usize, kernel: [i64; 2], strides: [i64; 2], pad: i64) -> Graph {
    let mut g = Graph::new("small");
    let half = |shape: &[usize], seed: u64| {
        let mut tensor = noise(shape.to_vec(), seed);
        tensor.data.iter_mut().for_each(|v| *v *= 0.5);
        tensor
    };
    let x = g.input("x", [batch, 1, 6, 6]).unwrap();
    let w = g.constant("conv.weight", half(&[3, 1, 3, 3], 1));
    let b = g.constant("conv.bias", half(&[3], 2));
    let y = g.add("conv", "Conv", &[x, w, b], Attributes::none()).unwrap();
    let y = g.add("relu", "Relu", &[y], Attributes::none()).unwrap();
    let pool =
        Attributes::none().with("kernel_shape", kernel).with("strides", strides).with("pads", [pad; 4]);
    let y = g.add("pool", "MaxPool", &[y], pool).unwrap();
    let y = g.add("flat", "Flatten", &[y], Attributes::none()).unwrap();
    let features = g.shape(y).dims()[1];
    let w = g.constant("fc.weight", half(&[4, features], 3));
    let b = g.constant("fc.bias", half(&[4], 4));
    let y = g.add("fc", "Gemm", &[y, w, b], Attributes::none().with("transB", 1)).unwrap();
    g.output("logits", y);
    g
}

/// Rows with a one at each label.
pub(crate) fn one_hot(labels: &[usize], classes: usize) -> Tensor {
    let hot = |i: usize| if labels[i / classes] == i % classes { 1.0 } else { 0.0 };
    Tensor::new([labels.len(), classes], (0..labels.len() * classes).map(hot).collect())
}

/// What the step's graph takes.
pub(crate) fn inputs(batch: &[Tensor; 2], state: &[Tensor]) -> Vec<Tensor> {
    batch.iter().chain(state).cloned().collect()
}

/// The state after a step in the clear, and the loss.
pub(crate) fn clear(step: &Step, batch: &[Tensor; 2], state: &[Tensor]) -> (Vec<Tensor>, f32) {
    let found = plain::run(&step.graph, &inputs(batch, state)).unwrap_or_else(|p| panic!("{p}"));
    let named = |name: &str| {
        let place = step.graph.outputs.iter().position(|output| output.name == name).unwrap();
        found[place].clone()
    };
    (step.state.iter().map(|s| named(&s.name)).collect(), named(Step::LOSS).data[0])
}

pub(crate) fn start(step: &Step) -> Vec<Tensor> {
    step.state.iter().map(|s| s.start.clone()).collect()
}

/// The step as a plan that tells its client everything, for tests alone, laid out for four times
/// what `seen` has.
pub(crate) fn lay_out(step: &Step, protocol: &str, seen: &[Vec<Tensor>]) -> Compiled {
    lay_out_on((64, 16), step, protocol, seen)
}

fn lay_out_on((ring, frac): (u32, u32), step: &Step, protocol: &str, seen: &[Vec<Tensor>]) -> Compiled {
    let mut calibration = calibrate::calibrate(&step.graph, seen.to_vec(), 4.0).unwrap();
    for range in calibration.ranges.values_mut() {
        *range = Interval::abs(range.low.abs().max(range.high.abs()));
    }
    let comparison = |calibration: Calibration| Comparison::Fitted {
        list: ListStyle::Digits(Fewest::Total),
        bits: None,
        calibration: Some(calibration),
    };
    let options = CompileOptions {
        ring,
        frac,
        input_range: Interval::abs(4.0),
        policy: RangePolicy::Calibrated,
        comparison: comparison(calibration.clone()),
        measured: Some(calibration),
        defer_resharing: protocol == "aby3" || protocol == "alkaid",
        ..CompileOptions::default()
    };
    compile(&step.graph, &options).unwrap_or_else(|p| panic!("{p}"))
}

/// One step on shares: the state after it, the loss, and the bytes that all parties sent and the
/// rounds, by phase.
pub(crate) fn on_shares(
    protocol: &str,
    step: &Step,
    compiled: &Compiled,
    batch: &[Tensor; 2],
    state: &[Tensor],
) -> (Vec<Tensor>, f32, [(u64, u32); 2]) {
    let plan = &compiled.plan;
    let given = inputs(batch, state);
    let names = step.graph.inputs.iter().map(|&id| step.graph.value(id).name.clone());
    let words = names.zip(&given).map(|(name, tensor)| {
        let input = plan.inputs.iter().find(|input| input.name == name).unwrap();
        let Kind::Ring { frac } = plan.value(input.value).kind else { panic!("{name} is no number") };
        (name, encode_words(plan.ring, &tensor.data, frac).unwrap())
    });
    let frozen = compiled.model_inputs.iter();
    let frozen = frozen.map(|w| (w.name.clone(), encode_words(plan.ring, &w.values, w.frac).unwrap()));
    let words: HashMap<String, Vec<u64>> = words.chain(frozen).collect();
    let done = run(protocol, plan, &words, &LocalOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    let decoded = |name: &str| {
        let place = plan.outputs.iter().position(|output| output.name == name).unwrap();
        let value = plan.value(plan.outputs[place].value);
        let Kind::Ring { frac } = value.kind else { panic!("{name} is no number") };
        Tensor::new(value.shape.clone(), decode_words(plan.ring, &done.outputs[0][place], frac))
    };
    let cost = [Phase::Offline, Phase::Online].map(|phase| {
        let of_parties = &done.reports[0];
        let sent = of_parties.iter().flat_map(|party| &party.sent).filter(|r| r.phase == phase);
        let rounds = of_parties.iter().filter_map(|party| party.phases.get(&phase)).map(|p| p.rounds);
        (sent.flat_map(|r| &r.sent).sum(), rounds.max().unwrap_or(0))
    });
    (step.state.iter().map(|s| decoded(&s.name)).collect(), decoded(Step::LOSS).data[0], cost)
}

pub(crate) fn largest_difference(a: &[Tensor], b: &[Tensor]) -> f32 {
    let pairs = a.iter().zip(b).flat_map(|(a, b)| a.data.iter().zip(&b.data));
    pairs.fold(0f32, |most, (a, b)| most.max((a - b).abs()))
}

#[test]
fn a_step_on_shares_is_the_step_in_the_clear() {
    let batch = [noise([4, 1, 6, 6], 9), one_hot(&[0, 3, 1, 2], 4)];
    for (optimiser, loss) in [
        (Optimiser::sgd("2^-2".parse().unwrap()), Loss::CrossEntropy),
        (
            Optimiser {
                decay: "2^-4".parse().ok(),
                ..Optimiser::with_momentum("2^-3".parse().unwrap(), 0.9).unwrap()
            },
            Loss::CrossEntropy,
        ),
        (Optimiser::sgd("2^-2".parse().unwrap()), Loss::MeanSquares),
        (Optimiser::sgd("2^-2".parse().unwrap()), Loss::BinaryCrossEntropy),
        (Optimiser::sgd("2^-2".parse().unwrap()), Loss::Hinge),
        (Optimiser::named("adam", "2^-5".parse().unwrap(), None, None).unwrap(), Loss::CrossEntropy),
        (Optimiser::named("amsgrad", "2^-5".parse().unwrap(), None, None).unwrap(), Loss::MeanSquares),
    ] {
        let step = differentiate(&small(4), loss, &Trained::All, optimiser).unwrap();
        let mut state = start(&step);
        // The last step of momentum is not zero any more.
        (state, _) = clear(&step, &batch, &state);
        let (want, want_loss) = clear(&step, &batch, &state);
        let moved = largest_difference(&state, &want);
        assert!(moved > 0.01, "the step moves the weights by {moved} only");
        for protocol in ["clear", "mizar", "aby3", "alkaid"] {
            let plan = lay_out(&step, protocol, &[inputs(&batch, &state)]);
            let (after, loss, [_, (bytes, rounds)]) = on_shares(protocol, &step, &plan, &batch, &state);
            let error = largest_difference(&after, &want);
            println!("{protocol}: off by {error:.1e}, {rounds} rounds, {bytes} bytes online");
            // Mean squares begin small: they are divided by with fewer bits.
            // A sigmoid has an error of its own.
            let most = match step.loss {
                _ if optimiser.squares.is_some() => 2e-2,
                Loss::BinaryCrossEntropy => 1e-3,
                _ => 3e-4,
            };
            assert!(error < most, "{protocol}: weights are off by {error}");
            assert!((loss - want_loss).abs() < 2e-3, "{protocol}: {loss} instead of {want_loss}");
        }
    }
}

/// The gradient of a pool goes to who has won, whatever its windows are, and takes one round.
#[test]
fn the_gradient_of_any_pool_is_that_in_the_clear() {
    let batch = [noise([4, 1, 6, 6], 9), one_hot(&[0, 3, 1, 2], 4)];
    let rounds = [
        ([2, 2], [2, 2], 0),
        ([4, 4], [4, 4], 0),
        ([4, 3], [4, 1], 0),
        // Rows that several windows see, and rows that none does.
        ([3, 3], [1, 2], 1),
        ([2, 2], [3, 3], 0),
    ]
    .map(|(kernel, strides, pad)| {
        let graph = with_pool(4, kernel, strides, pad);
        let optimiser = Optimiser::sgd("2^-2".parse().unwrap());
        let step = differentiate(&graph, Loss::MeanSquares, &Trained::All, optimiser).unwrap();
        let state = start(&step);
        let (want, _) = clear(&step, &batch, &state);
        let [_, rounds] = ["clear", "mizar"].map(|protocol| {
            let plan = lay_out(&step, protocol, &[inputs(&batch, &state)]);
            let (after, _, [_, (_, rounds)]) = on_shares(protocol, &step, &plan, &batch, &state);
            let error = largest_difference(&after, &want);
            assert!(error < 3e-4, "{protocol}, {kernel:?} by {strides:?}: weights are off by {error}");
            rounds
        });
        rounds
    });
    // Two levels more, of three rounds each, are rounds of the forward pass alone.
    assert_eq!(rounds[1], rounds[0] + 6, "{rounds:?}");
}

/// Less is sent there, and the gradient of the loss has fewer bits.
#[test]
fn a_step_on_shorter_rings_is_the_step_in_the_clear() {
    let batch = [noise([4, 1, 6, 6], 9), one_hot(&[0, 3, 1, 2], 4)];
    let optimiser = Optimiser::with_momentum("2^-3".parse().unwrap(), 0.9).unwrap();
    let step = differentiate(&small(4), Loss::CrossEntropy, &Trained::All, optimiser).unwrap();
    let (state, _) = clear(&step, &batch, &start(&step));
    let (want, want_loss) = clear(&step, &batch, &state);
    for protocol in ["mizar", "aby3", "alkaid", "meteor"] {
        // As many fraction bits as there is room for.
        let bytes = [(64, 16), (48, 16), (40, 10)].map(|(ring, frac)| {
            let plan = lay_out_on((ring, frac), &step, protocol, &[inputs(&batch, &state)]);
            let (after, loss, [_, (bytes, rounds)]) = on_shares(protocol, &step, &plan, &batch, &state);
            let error = largest_difference(&after, &want);
            println!("{protocol} on {ring} bits: off by {error:.1e}, {rounds} rounds, {bytes} bytes online");
            let unit = 2f32.powi(-(frac as i32));
            assert!(error < 16.0 * unit, "{protocol} on {ring} bits: weights are off by {error}");
            let off = (loss - want_loss).abs();
            assert!(off < 2e-3 + 16.0 * unit, "{protocol} on {ring} bits: the loss is off by {off}");
            bytes
        });
        assert!(bytes[1] < bytes[0] && bytes[2] < bytes[1], "{protocol}: {bytes:?}");
    }
}

#[test]
fn a_step_in_slices_is_the_step() {
    let labels: Vec<usize> = (0..64).map(|i| i * 7 % 4).collect();
    let batch = [noise([64, 1, 6, 6], 9), one_hot(&labels, 4)];
    let optimiser = Optimiser::sgd("2^-2".parse().unwrap());
    let step = differentiate(&small(64), Loss::CrossEntropy, &Trained::All, optimiser).unwrap();
    let state = start(&step);
    let (want, _) = clear(&step, &batch, &state);
    for protocol in ["clear", "mizar", "aby3", "alkaid", "meteor"] {
        let whole = lay_out(&step, protocol, &[inputs(&batch, &state)]);
        let mut sliced = whole.clone();
        megrez_passes::slice_rows(&mut sliced.plan, 256).unwrap();
        let of = |name: &str| sliced.plan.steps.iter().filter(|step| step.name.starts_with(name)).count();
        assert!(of("conv/") >= 4 && of("relu") >= 4 && of("back.relu") >= 4, "{protocol}");
        let [a, b] = [&whole, &sliced].map(|compiled| on_shares(protocol, &step, compiled, &batch, &state));
        let error = largest_difference(&b.0, &want);
        assert!(error < 3e-4, "{protocol}: weights are off by {error}");
        assert!((a.1 - b.1).abs() < 1e-3, "{protocol}: losses of {} and {}", a.1, b.1);
        // Messages are padded to whole bytes, and lists to whole words.
        for ((whole, _), (slices, _)) in a.2.into_iter().zip(b.2) {
            assert!(slices.abs_diff(whole) * 100 <= whole, "{protocol}: {slices} bytes in place of {whole}");
        }
        assert_eq!(a.2[1].1, b.2[1].1, "{protocol}: rounds online");
    }
}
