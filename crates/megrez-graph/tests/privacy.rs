//! Steps whose weights tell little of a row: gradients of rows have a bound, whatever numbers do,
//! and noise of the deviation that was asked for is in the sum.

use crate::common::noise;
use crate::shares::{clear, inputs, largest_difference, lay_out, on_shares, one_hot, start};
use megrez_engine::local::{LocalOptions, run};
use megrez_graph::differentiate::{
    Loss, Optimiser, Privacy, Step, Trained, differentiate, differentiate_privately,
};
use megrez_graph::{Attributes, Graph, Tensor};
use megrez_plan::{Op, Plan};
use std::collections::{HashMap, HashSet};

const BATCH: usize = 6;

/// Two dense layers, the second of the other layout.
fn dense(scale: f32) -> Graph {
    dense_of(BATCH, scale)
}

fn dense_of(batch: usize, scale: f32) -> Graph {
    let mut g = Graph::new("dense");
    let scaled = |shape: &[usize], seed: u64| {
        let mut tensor = noise(shape.to_vec(), seed);
        tensor.data.iter_mut().for_each(|v| *v *= scale);
        tensor
    };
    let x = g.input("x", [batch, 7]).unwrap();
    let w = g.constant("in.weight", scaled(&[7, 5], 1));
    let b = g.constant("in.bias", scaled(&[5], 2));
    let y = g.add("in", "MatMul", &[x, w], Attributes::none()).unwrap();
    let y = g.add("in.plus", "Add", &[y, b], Attributes::none()).unwrap();
    let y = g.add("relu", "Relu", &[y], Attributes::none()).unwrap();
    let w = g.constant("out.weight", scaled(&[3, 5], 3));
    let b = g.constant("out.bias", scaled(&[3], 4));
    let y = g.add("out", "Gemm", &[y, w, b], Attributes::none().with("transB", 1)).unwrap();
    g.output("logits", y);
    g
}

/// Two convolutions, the second in groups, two products of several rows for each of the batch's,
/// and a dense layer.
fn images(batch: usize) -> Graph {
    let mut g = Graph::new("images");
    let scaled = |shape: &[usize], seed: u64| {
        let mut tensor = noise(shape.to_vec(), seed);
        tensor.data.iter_mut().for_each(|v| *v *= 0.5);
        tensor
    };
    let x = g.input("x", [batch, 2, 6, 5]).unwrap();
    let (w, b) = (g.constant("a.weight", scaled(&[4, 2, 3, 3], 1)), g.constant("a.bias", scaled(&[4], 2)));
    let windows = Attributes::none().with("pads", [1, 1, 0, 2]).with("strides", [2, 1]);
    let y = g.add("a", "Conv", &[x, w, b], windows).unwrap();
    let y = g.add("relu", "Relu", &[y], Attributes::none()).unwrap();
    let (w, b) = (g.constant("b.weight", scaled(&[4, 2, 2, 3], 3)), g.constant("b.bias", scaled(&[4], 4)));
    let windows = Attributes::none().with("group", 2).with("dilations", [2, 1]).with("pads", [1, 0, 0, 0]);
    let y = g.add("b", "Conv", &[y, w, b], windows).unwrap();
    let n = g.shape(y).dims()[2..].iter().product::<usize>();
    let dims = g.constant("dims", Tensor::<i64>::new([3], vec![batch as i64, 4, n as i64]));
    let y = g.add("matrices", "Reshape", &[y, dims], Attributes::none()).unwrap();
    let (w, b) = (g.constant("c.weight", scaled(&[n, 3], 5)), g.constant("c.bias", scaled(&[3], 6)));
    let y = g.add("c", "MatMul", &[y, w], Attributes::none()).unwrap();
    let y = g.add("c.plus", "Add", &[y, b], Attributes::none()).unwrap();
    let reshaped = |g: &mut Graph, name: &str, y, dims: [usize; 2]| {
        let to = Tensor::<i64>::new([2], dims.map(|n| n as i64).to_vec());
        let to = g.constant(&format!("{name}.to"), to);
        g.add(name, "Reshape", &[y, to], Attributes::none()).unwrap()
    };
    // The gradient of the turned weights is turned, too.
    let y = reshaped(&mut g, "all", y, [4 * batch, 3]);
    let w = g.constant("d.weight", scaled(&[3, 3], 8));
    let y = g.add("d", "Gemm", &[y, w], Attributes::none().with("transB", 1)).unwrap();
    let y = reshaped(&mut g, "rows", y, [batch, 12]);
    let w = g.constant("out.weight", scaled(&[12, 3], 7));
    let y = g.add("out", "Gemm", &[y, w], Attributes::none()).unwrap();
    g.output("logits", y);
    g
}

/// A model and a batch of it.
type Case = (&'static str, fn(usize) -> Graph, [Tensor; 2]);

fn cases() -> [Case; 2] {
    let labels = || one_hot(&[0, 2, 1, 2, 0, 1], 3);
    let of_images: fn(usize) -> Graph = images;
    [
        ("dense", |batch| dense_of(batch, 0.5), batch()),
        ("images", of_images, [noise([BATCH, 2, 6, 5], 9), labels()]),
    ]
}

fn batch() -> [Tensor; 2] {
    [noise([BATCH, 7], 9), one_hot(&[0, 2, 1, 2, 0, 1], 3)]
}

/// One row, so many times.
fn row(of: &Tensor, row: usize, times: usize) -> Tensor {
    let n = of.data.len() / of.shape.dims()[0];
    let shape: Vec<usize> = [&[times], &of.shape.dims()[1..]].concat();
    Tensor::new(shape, of.data[row * n..][..n].repeat(times))
}

fn rate() -> Optimiser {
    Optimiser::sgd("1".parse().unwrap())
}

fn private(model: &Graph, loss: Loss, clip: f32, noise: f32) -> Step {
    differentiate_privately(model, loss, &Trained::All, rate(), Privacy { clip, noise }).unwrap()
}

/// What each weight has moved, times the batch: the sum of gradients.
fn sums(before: &[Tensor], after: &[Tensor]) -> Vec<f64> {
    let moved = before.iter().zip(after).flat_map(|(a, b)| a.data.iter().zip(&b.data));
    moved.map(|(a, b)| (f64::from(*a) - f64::from(*b)) * BATCH as f64).collect()
}

fn norm(x: impl Iterator<Item = f64>) -> f64 {
    x.map(|x| x * x).sum::<f64>().sqrt()
}

/// The gradients of single rows in the clear: of a batch of one row again and again.
fn of_rows(model: &Graph, loss: Loss, batch: &[Tensor; 2], state: &[Tensor]) -> Vec<Vec<f64>> {
    let plain = differentiate(model, loss, &Trained::All, rate()).unwrap();
    let alone = |i: usize| {
        let (after, _) = clear(&plain, &batch.each_ref().map(|t| row(t, i, BATCH)), state);
        sums(state, &after).iter().map(|g| g / BATCH as f64).collect()
    };
    (0..BATCH).map(alone).collect()
}

#[test]
fn long_gradients_are_scaled_down_and_short_ones_are_not() {
    for ((name, model, batch), loss) in
        cases().iter().flat_map(|case| [Loss::CrossEntropy, Loss::MeanSquares].map(|loss| (case, loss)))
    {
        for clip in [0.25, 1.0, 64.0] {
            let step = private(&model(BATCH), loss, clip, 0.0);
            let state = start(&step);
            let rows = of_rows(&model(BATCH), loss, batch, &state);
            let (after, want_loss) = clear(&step, batch, &state);
            let sum = sums(&state, &after);
            // Each by a factor between four fifths of the ideal one and the ideal one; short ones
            // as they are.
            let norms: Vec<f64> = rows.iter().map(|row| norm(row.iter().copied())).collect();
            let ideal = |n: f64| (f64::from(clip) / n).min(1.0);
            let scaled = |weight: &dyn Fn(f64) -> f64, i: usize| {
                rows.iter().zip(&norms).map(|(row, &n)| weight(n) * row[i]).sum::<f64>()
            };
            let off: Vec<f64> = (0..sum.len()).map(|i| sum[i] - scaled(&ideal, i)).collect();
            let given_away: f64 =
                norms.iter().map(|&n| if n > f64::from(clip) { 0.2 * n * ideal(n) } else { 1e-3 }).sum();
            assert!(norm(off.iter().copied()) < given_away, "{name} {loss:?} {clip}: {norms:?}");
            for protocol in ["clear", "mizar", "aby3", "alkaid", "meteor"] {
                let plan = lay_out(&step, protocol, &[inputs(batch, &state)]);
                let (got, loss, [_, (bytes, rounds)]) = on_shares(protocol, &step, &plan, batch, &state);
                let error = largest_difference(&got, &after);
                println!(
                    "{name}, {protocol}, clip {clip}: off by {error:.1e}, {rounds} rounds, {bytes} bytes"
                );
                assert!(error < 2e-3, "{name}, {protocol}, clip {clip}: weights are off by {error}");
                assert!((loss - want_loss).abs() < 2e-3, "{name}, {protocol}: {loss} instead of {want_loss}");
            }
        }
    }
}

/// Weights up to a million times larger than those for which the plan was laid out: activations,
/// logits and gradients are anything. What a row adds is no longer than the clip all the same, and
/// where nothing is drawn at random another row in its place moves the sum by twice that at most.
#[test]
fn a_row_moves_no_sum_by_more_than_the_clip_whatever_numbers_do() {
    for ((name, model, batch), (loss, clip)) in cases().iter().flat_map(|case| {
        [(Loss::CrossEntropy, 0.5f32), (Loss::MeanSquares, 2.0)].map(|of_loss| (case, of_loss))
    }) {
        let largest = |x: Vec<f64>, most: f64, factor: f32, what: &str| {
            // What truncation of the step and float32 round, of each weight.
            let rounded = BATCH as f64 * (2f64.powi(-15) + f64::from(factor) * 2f64.powi(-23));
            let (length, room) = (norm(x.iter().copied()), rounded * (x.len() as f64).sqrt() * 2.0);
            assert!(length <= most * f64::from(clip) + room, "{name}, {what}, {loss:?}, {factor}: {length}");
            assert!(factor > 1.0 || length > 0.1 * f64::from(clip), "{name}, {what}: {length}");
        };
        let alone = private(&model(1), loss, clip, 0.0);
        let one = batch.each_ref().map(|t| row(t, 0, 1));
        let protocols = ["clear", "mizar", "aby3", "alkaid", "alkaid-masked", "meteor"];
        let plans = protocols.map(|p| (p, lay_out(&alone, p, &[inputs(&one, &start(&alone))])));
        let step = private(&model(BATCH), loss, clip, 0.0);
        let plan = lay_out(&step, "clear", &[inputs(batch, &start(&step))]);
        let mut other = batch.clone();
        let n = other[0].data.len() / BATCH;
        other[0].data[n..2 * n].iter_mut().for_each(|x| *x = -*x + 0.3);
        other[1].data[3..6].rotate_left(1);
        for factor in [1.0f32, 100.0, 1e4, 1e6] {
            let large = |step: &Step| {
                let mut state = start(step);
                state.iter_mut().flat_map(|t| &mut t.data).for_each(|w| *w *= factor);
                state
            };
            for (protocol, plan) in &plans {
                let (after, ..) = on_shares(protocol, &alone, plan, &one, &large(&alone));
                let moved = sums(&large(&alone), &after).iter().map(|g| g / BATCH as f64).collect();
                largest(moved, 1.0, factor, protocol);
            }
            let of = |batch: &[Tensor; 2]| {
                let state = large(&step);
                sums(&state, &on_shares("clear", &step, &plan, batch, &state).0)
            };
            let (a, b) = (of(batch), of(&other));
            largest(a.iter().zip(&b).map(|(a, b)| a - b).collect(), 2.0, factor, "another row");
        }
    }
}

/// Of many steps from the same weights, the deviation is √2 of what each party adds.
#[test]
fn noise_has_the_deviation_that_was_asked_for() {
    let (clip, noise) = (0.5f32, 3.0f32);
    let step = private(&dense(0.5), Loss::CrossEntropy, clip, noise);
    let silent = private(&dense(0.5), Loss::CrossEntropy, clip, 0.0);
    let state = start(&step);
    for protocol in ["plain", "clear", "mizar", "aby3", "meteor"] {
        let laid_out = |step| {
            (step, (protocol != "plain").then(|| lay_out(step, protocol, &[inputs(&batch(), &state)])))
        };
        let run = |(step, plan): &(&Step, Option<_>)| match plan {
            None => clear(step, &batch(), &state).0,
            Some(plan) => on_shares(protocol, step, plan, &batch(), &state).0,
        };
        let quiet = sums(&state, &run(&laid_out(&silent)));
        let noisy = laid_out(&step);
        let mut off = vec![];
        for _ in 0..12 {
            off.extend(sums(&state, &run(&noisy)).iter().zip(&quiet).map(|(a, b)| a - b));
        }
        let n = off.len() as f64;
        let deviation = norm(off.iter().copied()) / n.sqrt();
        let want = 2f64.sqrt() * f64::from(clip * noise);
        assert!((deviation / want - 1.0).abs() < 4.0 / (2.0 * n).sqrt(), "{protocol}: {deviation}, {want}");
        assert!((off.iter().sum::<f64>() / n).abs() < 4.0 * want / n.sqrt(), "{protocol}");
    }
}

/// Noise reads nothing, and is drawn anew in every run of a session all the same, streamed or not.
#[test]
fn every_run_draws_its_own_noise() {
    let mut plan = Plan::new(64);
    let noise = Op::Noise { shape: [40].into(), frac: 0, deviation: 1 << 30 };
    let noise = plan.step("noise", noise, &[]).unwrap();
    plan.output("noise", "client", noise);
    for protocol in ["clear", "mizar", "aby3", "alkaid", "alkaid-masked", "meteor"] {
        for streamed in [false, true] {
            let options = LocalOptions { runs: 3, streamed, ..LocalOptions::default() };
            let done = run(protocol, &plan, &HashMap::new(), &options).unwrap_or_else(|e| panic!("{e}"));
            let words: HashSet<u64> = done.outputs.iter().flat_map(|outputs| outputs[0].clone()).collect();
            assert_eq!(words.len(), 3 * 40, "{protocol}: a number came twice");
        }
    }
}

#[test]
fn what_has_no_bound_is_refused_by_name() {
    let privacy = Privacy { clip: 1.0, noise: 1.0 };
    let mut twice = Graph::new("twice");
    let x = twice.input("x", [4, 3]).unwrap();
    let w = twice.constant("same.weight", noise([3, 3], 1));
    let y = twice.add("first", "MatMul", &[x, w], Attributes::none()).unwrap();
    let y = twice.add("second", "MatMul", &[y, w], Attributes::none()).unwrap();
    let w = twice.constant("fc.weight", noise([3, 3], 2));
    let y = twice.add("fc", "MatMul", &[y, w], Attributes::none()).unwrap();
    twice.output("logits", y);
    let of =
        |trained: &Trained| differentiate_privately(&twice, Loss::CrossEntropy, trained, rate(), privacy);
    let text = of(&Trained::All).unwrap_err().to_string();
    assert!(text.contains("w.same.weight") && text.contains("--only") && !text.contains("fc"), "{text}");
    // A head on a body that stays as it is.
    of(&Trained::Only(vec!["fc".into()])).unwrap();
    for clip in [0.0, 1e-3, 100.0, f32::NAN] {
        let privacy = Privacy { clip, noise: 1.0 };
        let step = differentiate_privately(&dense(0.5), Loss::CrossEntropy, &Trained::All, rate(), privacy);
        assert!(step.unwrap_err().to_string().contains("clip"), "{clip}");
    }
}
