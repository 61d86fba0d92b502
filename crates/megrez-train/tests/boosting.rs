//! Boosted trees: the step's graph against the algorithm in plain code, and on shares against the
//! graph.

use megrez_engine::local::{LocalOptions, run};
use megrez_graph::{Activations, CompileOptions, Interval, Tensor, plain};
use megrez_plan::Kind;
use megrez_ring::{decode_words, encode_words};
use megrez_train::{Boosting, Clear, Objective, Rehearsal, Step, compile, imagine_trees, rehearse_trees};
use std::collections::HashMap;

const ROWS: usize = 60;
const COLUMNS: usize = 11;

/// Indicators of two features with some noise, and what follows from them.
fn data(objective: Objective) -> [Tensor; 2] {
    let mut state = 7u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    let (mut x, mut y) = (vec![], vec![]);
    for _ in 0..ROWS {
        let [a, b, noise] = [next(), next(), next()];
        x.extend((1..=6).map(|i| f32::from(u8::from(a > i as f32 / 7.0))));
        x.extend((1..=5).map(|i| f32::from(u8::from(b > i as f32 / 6.0))));
        let target = (3.0 * a).sin() - b * b + 0.3 * noise;
        y.push(match objective {
            Objective::Logistic => f32::from(u8::from(target > 0.4)),
            Objective::Squares => target / 2.0,
        });
    }
    [Tensor::new([ROWS, COLUMNS], x), Tensor::new([ROWS, 1], y)]
}

/// The next tree by the algorithm: of each node in the order of levels its threshold, of each leaf
/// its value. Moves the scores.
fn grown(b: &Boosting, x: &Tensor, y: &Tensor, scores: &mut [f64]) -> (Vec<usize>, Vec<f64>) {
    let row = |i: usize| &x.data[i * COLUMNS..][..COLUMNS];
    let derivatives: Vec<(f64, f64)> = scores
        .iter()
        .zip(&y.data)
        .map(|(&s, &y)| match b.objective {
            Objective::Logistic => {
                let p = 1.0 / (1.0 + (-s).exp());
                (p - f64::from(y), p * (1.0 - p))
            }
            Objective::Squares => (s - f64::from(y), 1.0),
        })
        .collect();
    let mut node = vec![0usize; ROWS];
    let (mut chosen, mut leaves) = (vec![], vec![]);
    for level in 0..b.depth {
        let nodes = 1usize << level;
        let mut best = vec![];
        leaves = vec![0.0; 2 * nodes];
        for j in 0..nodes {
            let side = |c: usize, right: bool| {
                let of = (0..ROWS).filter(|&i| node[i] == j && (row(i)[c] == 1.0) == right);
                let (g, h) = of.fold((0.0, 0.0), |(g, h), i| (g + derivatives[i].0, h + derivatives[i].1));
                (g, g / (h + f64::from(b.penalty)))
            };
            let gain = |c: usize| [false, true].map(|right| side(c, right)).iter().map(|(g, v)| g * v).sum();
            let gains: Vec<f64> = (0..COLUMNS).map(gain).collect();
            let most = (0..COLUMNS).fold(0, |most, c| if gains[c] > gains[most] + 1e-9 { c } else { most });
            best.push(most);
            (leaves[j], leaves[nodes + j]) =
                (-f64::from(b.rate) * side(most, false).1, -f64::from(b.rate) * side(most, true).1);
        }
        for (i, node) in node.iter_mut().enumerate() {
            *node += nodes * usize::from(row(i)[best[*node]] == 1.0);
        }
        chosen.extend(best);
    }
    scores.iter_mut().zip(&node).for_each(|(score, &leaf)| *score += leaves[leaf]);
    (chosen, leaves)
}

fn state<'a>(clear: &'a [(String, Tensor)], name: &str) -> &'a Tensor {
    &clear.iter().find(|(n, _)| n == name).unwrap().1
}

fn of(objective: Objective, depth: u32) -> Boosting {
    Boosting { objective, trees: 3, depth, rate: 0.5, penalty: 1.0 }
}

#[test]
fn trees_are_those_of_the_algorithm() {
    for objective in [Objective::Logistic, Objective::Squares] {
        for depth in 1..=3 {
            let (boosting, [x, y]) = (of(objective, depth), data(objective));
            let step = boosting.step(ROWS, COLUMNS).unwrap();
            let mut clear = Clear::new(&step);
            let (mut scores, mut trees, mut losses) = (vec![0.0; ROWS], vec![], vec![]);
            for _ in 0..boosting.trees {
                clear.step([x.clone(), y.clone()]).unwrap();
                losses.push(state(&clear.state(), Step::LOSS_SO_FAR).data[0]);
                trees.push(grown(&boosting, &x, &y, &mut scores));
            }
            let now = clear.state();
            let (split, leaf) = (state(&now, "w.split"), state(&now, "w.leaf"));
            let ones: Vec<usize> = trees.iter().flat_map(|(chosen, _)| chosen).copied().collect();
            for (row, one) in split.data.chunks_exact(COLUMNS).zip(ones) {
                let expected: Vec<f32> = (0..COLUMNS).map(|c| f32::from(u8::from(c == one))).collect();
                assert_eq!(row, expected, "{objective:?} {depth}");
            }
            for (leaf, expected) in leaf.data.iter().zip(trees.iter().flat_map(|(_, leaves)| leaves)) {
                assert!((f64::from(*leaf) - expected).abs() < 1e-5, "{leaf} {expected}");
            }
            for (score, expected) in state(&now, "scores").data.iter().zip(&scores) {
                assert!((f64::from(*score) - expected).abs() < 1e-4, "{score} {expected}");
            }
            // Each tree helps.
            assert!(losses[1] < 2.0 * losses[0] && losses[2] - losses[1] < 0.8 * losses[0], "{losses:?}");
            // The model says what the step has said of the same rows.
            let (model, _) = boosting.model(ROWS, COLUMNS).unwrap();
            let found = plain::run(&model, &[x, split.clone(), leaf.clone()]).unwrap().remove(0);
            for (found, score) in found.data.iter().zip(&scores) {
                assert!((f64::from(*found) - score).abs() < 1e-4);
            }
        }
    }
}

/// The state after a step on shares.
fn on_shares(
    protocol: &str,
    step: &Step,
    rehearsal: &Rehearsal,
    numbers: &[(String, Tensor)],
) -> Vec<(String, Vec<f32>)> {
    let options = CompileOptions {
        input_range: Interval { low: 0.0, high: 1.0 },
        activations: Activations::Fine,
        ..CompileOptions::default()
    };
    let model = compile(step, "client", &options, rehearsal, false).unwrap();
    let (mut plan, constants) = (model.compiled.plan, model.compiled.model_inputs);
    plan.outputs.iter_mut().for_each(|output| output.recipient = "client".into());
    let frac = |value| match plan.value(value) {
        megrez_plan::Value { kind: Kind::Ring { frac }, .. } => *frac,
        other => panic!("{other:?} is no number"),
    };
    let words: HashMap<String, Vec<u64>> = plan
        .inputs
        .iter()
        .map(|input| {
            let given = numbers.iter().find(|(name, _)| *name == input.name).map(|(_, tensor)| &tensor.data);
            let constant =
                || constants.iter().find(|input_of| input_of.name == input.name).map(|c| &c.values);
            let data = given.or_else(constant).unwrap_or_else(|| panic!("nobody has `{}`", input.name));
            (input.name.clone(), encode_words(64, data, frac(input.value)).unwrap())
        })
        .collect();
    let found = run(protocol, &plan, &words, &LocalOptions::default()).unwrap().outputs.remove(0);
    let outputs = plan.outputs.iter().zip(found);
    outputs
        .map(|(output, words)| (output.name.clone(), decode_words(64, &words, frac(output.value))))
        .collect()
}

/// The second tree on shares is that in the clear, its thresholds exactly.
fn is_the_clear_ones(protocols: &[&str], boosting: &Boosting, rehearsal: &Rehearsal, [x, y]: [Tensor; 2]) {
    let step = boosting.step(ROWS, COLUMNS).unwrap();
    let mut clear = Clear::new(&step);
    clear.step([x.clone(), y.clone()]).unwrap();
    let before = clear.state();
    clear.step([x.clone(), y.clone()]).unwrap();
    let after = clear.state();
    let numbers: Vec<(String, Tensor)> =
        [("x".to_owned(), x), (Step::LABELS.to_owned(), y)].into_iter().chain(before).collect();
    for protocol in protocols {
        for (name, found) in on_shares(protocol, &step, rehearsal, &numbers) {
            let expected = state(&after, name.strip_prefix("next.").unwrap());
            for (found, expected) in found.iter().zip(&expected.data) {
                let exact = name == "next.w.split";
                let off = (found - expected).abs();
                assert!(off < if exact { 1e-9 } else { 1e-3 }, "{protocol} {name}: {found} {expected}");
            }
        }
    }
}

#[test]
fn a_tree_on_shares_is_the_one_in_the_clear() {
    for objective in [Objective::Logistic, Objective::Squares] {
        let (boosting, [x, y]) = (of(objective, 2), data(objective));
        let rehearsal = rehearse_trees(&boosting, &x, &y).unwrap();
        is_the_clear_ones(&["clear", "mizar", "aby3", "alkaid"], &boosting, &rehearsal, [x, y]);
    }
}

/// Where nobody may rehearse on rows, what is imagined of as many leaves room for these, whatever
/// their labels are, and trees on shares are those in the clear.
#[test]
fn imagined_rows_leave_room_for_others() {
    for objective in [Objective::Logistic, Objective::Squares] {
        let (boosting, [x, y]) = (of(objective, 2), data(objective));
        let imagined = imagine_trees(&boosting, ROWS, COLUMNS).unwrap();
        let few = Tensor::new([ROWS, 1], (0..ROWS).map(|i| f32::from(u8::from(i % 20 == 0))).collect());
        for labels in [&y, &few, &Tensor::filled([ROWS, 1], 1.0), &Tensor::filled([ROWS, 1], 0.0)] {
            let seen = rehearse_trees(&boosting, &x, labels).unwrap();
            for (layer, most) in &seen.calibration.layers {
                let room = imagined.calibration.layers[layer];
                assert!(*most <= room, "{objective:?} {layer}: {most}, and room for {room}");
            }
            for (layer, range) in &seen.calibration.ranges {
                let room = imagined.calibration.ranges[layer];
                assert!(range.high <= room.high * 1.001, "{objective:?} {layer}: {range:?} and {room:?}");
            }
        }
        is_the_clear_ones(&["mizar"], &boosting, &imagined, [x, y]);
    }
    assert!(imagine_trees(&of(Objective::Squares, 2), 0, 3).is_err());
    assert!(imagine_trees(&of(Objective::Squares, 2), 3, 0).is_err());
    // Whatever parties say of their rows.
    for rows in [1 << 27, usize::MAX] {
        assert!(imagine_trees(&of(Objective::Squares, 2), rows, 3).is_err());
    }
}

/// The error of what stands for a sigmoid, added up over all rows, makes no cover negative.
#[test]
fn trees_grow_on_many_rows_whatever_stands_for_functions() {
    let boosting = of(Objective::Logistic, 3);
    let [x, y] = data(Objective::Logistic);
    let times = 200;
    let x = Tensor::new([times * ROWS, COLUMNS], x.data.repeat(times));
    let y = Tensor::new([times * ROWS, 1], y.data.repeat(times));
    let rehearsal = rehearse_trees(&boosting, &x, &y).unwrap();
    let step = boosting.step(times * ROWS, COLUMNS).unwrap();
    for activations in [Activations::Minimax, Activations::Fine, Activations::Tables, Activations::Lookup] {
        let input_range = Interval { low: 0.0, high: 1.0 };
        let options = CompileOptions { input_range, activations, ..CompileOptions::default() };
        let plan = compile(&step, "client", &options, &rehearsal, true).unwrap().compiled.plan;
        megrez_service::protocols::cost("mizar", &plan).unwrap();
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let good = of(Objective::Logistic, 2);
    for (wrong, what) in [
        (Boosting { depth: 0, ..good }, "levels"),
        (Boosting { depth: 9, ..good }, "levels"),
        (Boosting { trees: 0, ..good }, "trees"),
        (Boosting { rate: 0.0, ..good }, "rate"),
        (Boosting { rate: f32::NAN, ..good }, "rate"),
        (Boosting { penalty: 0.0, ..good }, "penalty"),
    ] {
        assert!(wrong.step(ROWS, COLUMNS).unwrap_err().to_string().contains(what), "{wrong:?}");
        assert!(wrong.model(1, COLUMNS).is_err());
    }
    let [x, y] = data(Objective::Logistic);
    let refused = |x: &Tensor, y: &Tensor| rehearse_trees(&good, x, y).unwrap_err().to_string();
    assert!(refused(&x, &Tensor::filled([ROWS, 1], 0.5)).contains("label"));
    assert!(refused(&Tensor::filled([ROWS, COLUMNS], 0.5), &y).contains("indicator"));
    assert!(refused(&x, &Tensor::filled([ROWS, 2], 0.0)).contains("targets"));
    assert!(refused(&y.reshape([ROWS]), &y).contains("matrix"));
    assert!(refused(&Tensor::new([ROWS, 0], vec![]), &y).contains("no indicators"));
    let mut lost = y.clone();
    lost.data[3] = f32::NAN;
    assert!(refused(&x, &lost).contains("row 3"));
}
