//! Attacks that once worked: from P1's own view of a plan with deferred sums (messages that it
//! receives and its shares of the inputs), an estimate of a secret that was right while openings of
//! one sum shared a mask. Each must now be noise.

use crate::common::session::{Transcript, transcript_of};
use megrez_plan::{ConvGeometry, Op, Plan, Relu, ReluForm, SignBit, ValueId, View};
use megrez_prg::Key;
use megrez_session::Phase::Online;
use std::collections::HashMap;

const SEED: u64 = 0x1234_5678_9abc_def1;

fn values(n: usize, salt: u64) -> Vec<u8> {
    (0..n as u64).map(|i| ((i + salt).wrapping_mul(SEED) >> 40) as u8).collect()
}

fn combine(coefficients: &[i64]) -> Op {
    Op::Combine { coefficients: coefficients.to_vec(), constant: 0 }
}

const DROP: Op = Op::Truncate { bits: 2 };

fn relu() -> Op {
    Op::Relu(Relu { sign: SignBit::FULL, form: ReluForm::ThreeRounds, truncate: 2 })
}

/// What P1 sees of one run.
struct Sight<'a> {
    run: &'a Transcript,
    plan: &'a Plan,
}

impl Sight<'_> {
    /// What P0 sends for an opening.
    fn opened(&self, name: &str) -> &[u8] {
        self.run.message(Online, 0, 1, name)
    }

    /// x_1 + x_2 of an input: with x_0 it is the secret.
    fn held(&self, input: &str) -> Vec<u8> {
        let at = self.plan.inputs.iter().position(|i| i.name == input).unwrap();
        let (key, own) = self.run.seen[1].data[at].as_bytes().split_at(32);
        let words = Key::from_bytes(key.try_into().unwrap()).stream().words(own.len().div_ceil(8));
        let next = words.iter().flat_map(|w| w.to_le_bytes());
        own.iter().zip(next).map(|(a, b)| a.wrapping_add(b)).collect()
    }
}

fn add(a: &[u8], b: &[u8]) -> Vec<u8> {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a.wrapping_add(*b)).collect()
}

fn sub(a: &[u8], b: &[u8]) -> Vec<u8> {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a.wrapping_sub(*b)).collect()
}

/// Runs a plan with a product left as a sum, from P1's view estimates `secret`, and must fail to.
/// `build` gets the product x·y of 64 elements of this shape, and gives the values that are opened;
/// `estimate` gets what P1 sees and the inputs.
fn fails(
    shape: &[usize],
    w: &[usize],
    build: impl Fn(&mut Plan, ValueId, ValueId) -> Vec<ValueId>,
    estimate: impl Fn(&Sight<'_>) -> Vec<u8>,
    secret: impl Fn(&[u8]) -> Vec<u8>,
) {
    for protocol in ["aby3", "alkaid"] {
        let mut plan = Plan::new(8);
        let [x, y] = ["x", "y"].map(|name| plan.input(name, "owner", shape.to_vec().into(), 2));
        let w = plan.input("w", "owner", w.to_vec().into(), 4);
        let product = plan.step("product", Op::Additive(Box::new(Op::Mul)), &[x, y]).unwrap();
        for (i, opened) in build(&mut plan, product, w).into_iter().enumerate() {
            plan.output(&format!("z{i}"), "owner", opened);
        }
        plan.validate().unwrap();
        let given: HashMap<_, _> = (plan.inputs.iter().zip(1..))
            .map(|(i, salt)| (i.name.clone(), values(plan.value(i.value).shape.elements(), salt)))
            .collect();
        let run = transcript_of(protocol, &plan, &given);
        let estimate = estimate(&Sight { run: &run, plan: &plan });
        let secret = secret(&given["w"]);
        assert!(estimate.len() >= 16 && secret.len() == estimate.len());
        let right = estimate.iter().zip(&secret).filter(|(a, b)| a == b).count();
        // Noise is right once in 256 elements, or every other time for single bits.
        let chance = if secret.iter().all(|s| *s < 2) { 0.9 } else { 0.5 };
        assert!((right as f64) < chance * secret.len() as f64, "{protocol}: P1 learns {right} elements of w");
    }
}

#[test]
fn two_truncations_of_one_sum_do_not_tell_what_was_added_between() {
    fails(
        &[64],
        &[64],
        |plan, p, w| {
            let sum = plan.step("sum", combine(&[1, 1]), &[p, w]).unwrap();
            vec![plan.step("a", DROP, &[p]).unwrap(), plan.step("b", DROP, &[sum]).unwrap()]
        },
        |p1| add(&sub(p1.opened("b/share"), p1.opened("a/share")), &p1.held("w")),
        <[u8]>::to_vec,
    );
}

#[test]
fn padded_places_do_not_tell_what_is_added_there() {
    fails(
        &[64],
        &[128],
        |plan, p, w| {
            let padded = plan.step("pad", Op::Pad { before: vec![0], after: vec![64] }, &[p]).unwrap();
            let sum = plan.step("sum", combine(&[1, 1]), &[padded, w]).unwrap();
            vec![plan.step("z", DROP, &[sum]).unwrap()]
        },
        |p1| add(&p1.opened("z/share")[64..], &p1.held("w")[64..]),
        |w| w[64..].to_vec(),
    );
}

#[test]
fn repeated_elements_do_not_tell_differences_of_what_is_added() {
    let differences = |w: &[u8]| sub(&w[..32], &w[32..]);
    fails(
        &[1, 32],
        &[2, 32],
        |plan, p, w| {
            let rows = View::broadcast(&[1, 32].into(), &[2, 32].into()).unwrap();
            let rows = plan.step("rows", Op::View(rows), &[p]).unwrap();
            let sum = plan.step("sum", combine(&[1, 1]), &[rows, w]).unwrap();
            vec![plan.step("z", DROP, &[sum]).unwrap()]
        },
        |p1| differences(&add(p1.opened("z/share"), &p1.held("w"))),
        differences,
    );
}

#[test]
fn a_gathered_element_does_not_tell_differences_of_what_is_added() {
    let differences = |w: &[u8]| sub(&w[1..], &vec![w[0]; w.len() - 1]);
    fails(
        &[32],
        &[32],
        |plan, p, w| {
            let same = Op::Gather { axis: 0, indices: vec![3; 32] };
            let same = plan.step("same", same, &[p]).unwrap();
            let sum = plan.step("sum", combine(&[1, 1]), &[same, w]).unwrap();
            vec![plan.step("z", DROP, &[sum]).unwrap()]
        },
        |p1| differences(&add(p1.opened("z/share"), &p1.held("w"))),
        differences,
    );
}

#[test]
fn an_even_factor_does_not_tell_low_bits() {
    let low = |w: &[u8]| w.iter().map(|w| w & 1).collect::<Vec<_>>();
    fails(
        &[64],
        &[64],
        |plan, p, w| {
            let sum = plan.step("sum", combine(&[2, 1]), &[p, w]).unwrap();
            vec![plan.step("z", DROP, &[sum]).unwrap()]
        },
        |p1| low(&add(p1.opened("z/share"), &p1.held("w"))),
        low,
    );
}

/// `Relu(x + GlobalAveragePool(Conv(x)))` once gave P1 the differences of the client's pixels.
#[test]
fn a_pooled_residual_does_not_tell_the_clients_pixels() {
    let differences = |w: &[u8]| sub(&w[1..], &vec![w[0]; w.len() - 1]);
    fails(
        &[1, 1, 8, 8],
        &[1, 1, 8, 8],
        |plan, _, w| {
            let kernel = plan.input("kernel", "owner", [1, 1, 1, 1].into(), 0);
            let conv = Op::Additive(Box::new(Op::Conv(ConvGeometry::default())));
            let conv = plan.step("conv", conv, &[w, kernel]).unwrap();
            let rows = plan.step("rows", Op::Sum { axis: 2 }, &[conv]).unwrap();
            let mean = plan.step("mean", Op::Sum { axis: 3 }, &[rows]).unwrap();
            let all = View::broadcast(&[1, 1, 1, 1].into(), &[1, 1, 8, 8].into()).unwrap();
            let all = plan.step("all", Op::View(all), &[mean]).unwrap();
            let sum = plan.step("residual", combine(&[1, 1]), &[all, w]).unwrap();
            vec![plan.step("relu", relu(), &[sum]).unwrap()]
        },
        |p1| differences(&add(p1.opened("relu/truncate/share"), &p1.held("w"))),
        differences,
    );
}

/// `Relu(Pad(Conv(x)) + b)` once gave P1 the bias b.
#[test]
fn a_padded_convolution_does_not_tell_its_bias() {
    fails(
        &[1, 32, 1, 1],
        &[1, 32, 1, 1],
        |plan, p, b| {
            let pad = Op::Pad { before: vec![0; 4], after: vec![0, 0, 0, 1] };
            let padded = plan.step("pad", pad, &[p]).unwrap();
            let all = View::broadcast(&[1, 32, 1, 1].into(), &[1, 32, 1, 2].into()).unwrap();
            let bias = plan.step("bias", Op::View(all), &[b]).unwrap();
            let sum = plan.step("sum", combine(&[1, 1]), &[padded, bias]).unwrap();
            vec![plan.step("relu", relu(), &[sum]).unwrap()]
        },
        |p1| {
            let border: Vec<u8> =
                p1.opened("relu/truncate/share").iter().skip(1).step_by(2).copied().collect();
            add(&border, &p1.held("w"))
        },
        <[u8]>::to_vec,
    );
}
