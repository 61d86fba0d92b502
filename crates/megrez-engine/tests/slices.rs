//! Plans in slices compute what they compute whole.

use crate::common::{Rng, mask, run_locally};
use megrez_engine::local::LocalOptions;
use megrez_engine::{check, local};
use megrez_passes::slice_rows;
use megrez_plan::{ConvGeometry, Op, Plan, Relu, ReluForm, SignBit, View};
use megrez_session::Phase;
use std::collections::HashMap;

/// Every kind of step whose rows are cut, on 8 rows, and steps that need all of them.
fn everything() -> Plan {
    let mut plan = Plan::new(64);
    let shape = [8, 4, 4, 4];
    let x = plan.input("x", "owner", shape.into(), 8);
    let w = plan.input("w", "owner", [4, 4, 1, 1].into(), 8);
    let m = plan.input("m", "owner", [32, 64].into(), 8);
    let mut step = |name: &str, op: Op, inputs: &[_]| plan.step(name, op, inputs).unwrap();
    let y = step("conv", Op::Conv(ConvGeometry::default()), &[x, w]);
    let y = step("cut", Op::Truncate { bits: 8 }, &[y]);
    let sum = step("sum", Op::Combine { coefficients: vec![1, -2], constant: 5 }, &[x, y]);
    let relu = Relu { sign: SignBit::FULL, form: ReluForm::ThreeRounds, truncate: 0 };
    let relu = step("relu", Op::Relu(relu), &[sum]);
    let bit = step("sign", Op::NonNegative(SignBit::FULL), &[y]);
    let other = step("not", Op::Not, &[bit]);
    let both = step("and", Op::And, &[bit, other]);
    let bit = step("xor", Op::Xor, &[bit, both]);
    let chosen = step("select", Op::SELECT, &[bit, relu]);
    let ring = step("ring", Op::BitToRing, &[bit]);
    let ring = step("scale", Op::Rescale { frac: 8 }, &[ring]);
    let product = step("product", Op::Mul, &[chosen, ring]);
    let product = step("product/cut", Op::Truncate { bits: 8 }, &[product]);
    let shape = shape.into();
    let turned = step("turn", Op::View(View::transpose(&shape, &[0, 2, 1, 3])), &[product]);
    let every = step("every", Op::View(View::slice(&shape, 2, 3, -1, 4)), &[turned]);
    let repeated = step(
        "repeat",
        Op::View(View { shape: [8, 2, 4, 4].into(), strides: vec![64, 0, 4, 1], offset: 16 }),
        &[every],
    );
    let joined = step("join", Op::Concat { axis: 1 }, &[repeated, every]);
    let padded = step("pad", Op::Pad { before: vec![0, 0, 1, 0], after: vec![0, 0, 3, 0] }, &[joined]);
    let picked = step("pick", Op::Gather { axis: 1, indices: vec![5, 0, 0, 3] }, &[padded]);
    let added = step("add", Op::Sum { axis: 1 }, &[picked]);
    // Rows of all rows: nothing to cut.
    let mixed =
        step("mix", Op::View(View { shape: [8, 32].into(), strides: vec![1, 8], offset: 0 }), &[added]);
    let dense = step("dense", Op::MatMul, &[mixed, m]);
    let dense = step("dense/cut", Op::Truncate { bits: 8 }, &[dense]);
    for (name, value) in [("product", product), ("added", added), ("dense", dense), ("bit", bit)] {
        plan.output(name, "owner", value);
    }
    plan.validate().unwrap();
    plan
}

/// The largest difference of words.
fn off(a: &[u64], b: &[u64]) -> u64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a.wrapping_sub(*b) as i64).unsigned_abs()).max().unwrap()
}

#[test]
fn plans_in_slices_compute_what_they_compute_whole() {
    let whole = everything();
    let mut sliced = whole.clone();
    // 512 bits, which are 8 words.
    slice_rows(&mut sliced, 8).unwrap();
    sliced.validate().unwrap();
    let cut = whole.steps.iter().filter(|step| {
        let slices = (0..4).map(|i| format!("{}/{i}", step.name));
        slices.into_iter().all(|name| sliced.steps.iter().any(|step| step.name == name))
    });
    // All but the view that mixes rows.
    assert_eq!(cut.count(), whole.steps.len() - 1);
    let mut rng = Rng(7);
    let words = |n: usize| (0..n).map(|_| rng.below(1 << 12).wrapping_sub(1 << 11) & mask(64)).collect();
    let inputs: HashMap<String, Vec<u64>> =
        ["x", "w", "m"].map(str::to_owned).into_iter().zip([512, 16, 2048].map(words)).collect();
    let run = |protocol: &str, plan: &Plan| {
        run_locally(protocol, plan, &inputs, &LocalOptions::default()).unwrap().outputs.remove(0)
    };
    let clear = run("clear", &whole);
    assert_eq!(clear, run("clear", &sliced));
    for protocol in ["mizar", "aby3", "alkaid", "alkaid-masked", "meteor"] {
        for (clear, shared) in clear.iter().zip(run(protocol, &sliced)) {
            // Roundings of a few layers.
            assert!(off(clear, &shared) < 1 << 9, "{protocol}");
        }
        let suite = local::suite(protocol, 64).unwrap();
        let [before, after] = [&whole, &sliced].map(|plan| check(&*suite, plan).unwrap());
        for phase in [Phase::Offline, Phase::Online] {
            assert_eq!(before.rounds(phase), after.rounds(phase), "{protocol}");
            assert_eq!(before.bits(phase).round(), after.bits(phase).round(), "{protocol}");
        }
    }
}

/// Masks of large linear steps are forgotten after the offline phase: of some that an interactive
/// step reads, of one that follows from another, and not of one that is opened.
#[test]
fn masks_that_follow_from_others_are_made_once_more() {
    let n = 1 << 16;
    let mut plan = Plan::new(64);
    let x = plan.input("x", "owner", [n].into(), 8);
    let mut step = |name: &str, op: Op, inputs: &[_]| plan.step(name, op, inputs).unwrap();
    let square = step("square", Op::Mul, &[x, x]);
    let square = step("cut", Op::Truncate { bits: 8 }, &[square]);
    let turned = step("turn", Op::View(View::slice(&[n].into(), 0, n - 1, -1, n)), &[square]);
    let sum = step("sum", Op::Combine { coefficients: vec![2, -1], constant: 3 }, &[turned, square]);
    let product = step("product", Op::Mul, &[sum, turned]);
    let bit = step("sign", Op::NonNegative(SignBit::FULL), &[sum]);
    let chosen = step("select", Op::SELECT, &[bit, product]);
    let back = step("back", Op::View(View::slice(&[n].into(), 0, n - 1, -1, n)), &[chosen]);
    plan.output("chosen", "owner", chosen);
    plan.output("back", "owner", back);
    let mut rng = Rng(3);
    let words = (0..n).map(|_| rng.below(1 << 10).wrapping_sub(1 << 9) & mask(64)).collect();
    let inputs = HashMap::from([("x".to_owned(), words)]);
    let run = |protocol: &str| {
        run_locally(protocol, &plan, &inputs, &LocalOptions::default()).unwrap().outputs.remove(0)
    };
    let clear = run("clear");
    assert!(off(&clear[0], &vec![0; n]) > 1 << 16);
    for protocol in ["mizar", "concurrent", "meteor", "alkaid-masked"] {
        let shared = run(protocol);
        // A unit of each square, times squares of up to 2^10.
        assert!(clear.iter().zip(&shared).all(|(a, b)| off(a, b) < 1 << 13), "{protocol}");
        let turned: Vec<u64> = shared[0].iter().rev().copied().collect();
        assert_eq!(turned, shared[1], "{protocol}");
    }
}

/// Large steps run as soon as their operands are there, whatever their wave: a comparison after a
/// product begins while another comparison is under way. Rounds are those of the longest chain, as
/// foretold, and the numbers are the same.
#[test]
fn large_steps_do_not_wait_for_waves_to_end() {
    let plan = |n: usize| {
        let mut plan = Plan::new(64);
        let x = plan.input("x", "owner", [n].into(), 8);
        let y = plan.input("y", "owner", [n].into(), 8);
        let mut step = |name: &str, op: Op, inputs: &[_]| plan.step(name, op, inputs).unwrap();
        let product = step("product", Op::Mul, &[x, y]);
        let positive = step("sign", Op::NonNegative(SignBit::FULL), &[x]);
        let alike = step("sign of the product", Op::NonNegative(SignBit::FULL), &[product]);
        let chosen = step("select", Op::SELECT, &[positive, x]);
        let both = step("both", Op::SELECT, &[alike, chosen]);
        plan.output("both", "owner", both);
        plan
    };
    let mut rng = Rng(5);
    for protocol in ["mizar", "concurrent", "aby3", "alkaid", "meteor"] {
        let rounds = [8, 1 << 16].map(|n| {
            let plan = plan(n);
            let mut words =
                || -> Vec<u64> { (0..n).map(|_| rng.below(1 << 12).wrapping_sub(1 << 11)).collect() };
            let (x, y) = (words(), words());
            let want: Vec<u64> =
                x.iter().zip(&y).map(|(&x, &y)| if x as i64 >= 0 && y as i64 >= 0 { x } else { 0 }).collect();
            let inputs = HashMap::from([("x".to_owned(), x), ("y".to_owned(), y)]);
            let done = run_locally(protocol, &plan, &inputs, &LocalOptions::default()).unwrap();
            assert_eq!(done.outputs[0][0], want, "{protocol}");
            let measured = done.reports[0].iter().map(|report| report.phases[&Phase::Online].rounds).max();
            let cost = check(&*local::suite(protocol, 64).unwrap(), &plan).unwrap();
            assert_eq!(measured, Some(cost.rounds(Phase::Online)), "{protocol}, {n}");
            cost.rounds(Phase::Online)
        });
        assert!(rounds[1] <= rounds[0], "{protocol}: {rounds:?}");
        // One round of a product or of a selection, two of a comparison.
        assert!(protocol != "mizar" || rounds == [5, 4], "{rounds:?}");
    }
}
