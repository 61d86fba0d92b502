//! `aby3` and `alkaid`: how often truncation rounds up and the cut errs, and what each party sees,
//! jointly, at ℓ = 8.

use crate::common::session::{Transcript, transcript_of, unpack};
use crate::common::{run_locally, signed};

use crate::common::stats::{self, MANY, SIGMAS, View, compare_views};
use megrez_engine::local::LocalOptions;
use megrez_plan::{Op, Plan, Relu, ReluForm, SignBit};
use megrez_prg::Key;
use megrez_session::Phase::{Offline, Online};
use std::collections::HashMap;

const PROTOCOLS: [&str; 2] = ["aby3", "alkaid"];

/// The results of a step on every one of `values`, `n` times each.
fn results(protocol: &str, op: &Op, values: &[i64], n: usize) -> Vec<Vec<u64>> {
    let mut plan = Plan::new(8);
    let x = plan.input("x", "owner", [values.len() * n].into(), 4);
    let z = plan.step("op", op.clone(), &[x]).unwrap();
    plan.output("z", "owner", z);
    let words = values.iter().flat_map(|&x| vec![x as u64 & 255; n]).collect();
    let inputs = HashMap::from([("x".to_string(), words)]);
    let got =
        run_locally(protocol, &plan, &inputs, &LocalOptions::default()).unwrap().outputs.remove(0).remove(0);
    got.chunks(n).map(<[u64]>::to_vec).collect()
}

#[test]
fn truncation_rounds_up_as_often_as_the_fraction_says() {
    let (n, values): (usize, Vec<i64>) = (1 << 12, (-64..64).collect());
    for f in [1, 3, 4] {
        for (x, got) in values.iter().zip(results("aby3", &Op::Truncate { bits: f }, &values, n)) {
            let up = got.iter().filter(|&&y| signed(y, 8) == (x >> f) + 1).count();
            let down = got.iter().filter(|&&y| signed(y, 8) == x >> f).count();
            assert_eq!(up + down, n, "f = {f}, x = {x}: a large error");
            let fraction = (x & ((1 << f) - 1)) as f64 / 2f64.powi(f as i32);
            assert!(stats::binomial(up as u64, n as u64, fraction) < SIGMAS, "f = {f}, x = {x}");
        }
    }
}

#[test]
fn the_cut_errs_below_zero_only_and_as_often_as_stated() {
    let n = 1 << 12;
    for protocol in PROTOCOLS {
        for (cut, bits) in [(3, 5), (2, 4)] {
            let sign = SignBit { cut, bits: Some(bits), ..SignBit::FULL };
            let half = 1i64 << (cut + bits - 1);
            let values: Vec<i64> = (-half..=half - (1 << cut)).collect();
            for (x, got) in values.iter().zip(results(protocol, &Op::NonNegative(sign), &values, n)) {
                let positive = got.iter().sum::<u64>();
                let expected = match x {
                    0.. => 1.0,
                    x => (1.0 - x.unsigned_abs() as f64 / 2f64.powi(cut as i32)).max(0.0),
                };
                let surprise = stats::binomial(positive, n as u64, expected);
                assert!(surprise < SIGMAS, "{protocol}, cut {cut}: x = {x} is {positive} times of {n} ≥ 0");
            }
        }
    }
}

// ---- views ----

const N: usize = 1 << 15;

fn execute(protocol: &str, ops: &[Op], secrets: &[u8]) -> Transcript {
    let mut plan = Plan::new(8);
    let names = ["x", "y"];
    let ids: Vec<_> = secrets.iter().zip(names).map(|(_, n)| plan.input(n, "owner", [N].into(), 2)).collect();
    // The first step is on the inputs, each other one on what came before and the last input.
    let mut z = plan.step("op0", ops[0].clone(), &ids).unwrap();
    for (i, op) in ops.iter().enumerate().skip(1) {
        let inputs = if matches!(op, Op::Select { .. }) { vec![z, *ids.last().unwrap()] } else { vec![z] };
        z = plan.step(&format!("op{i}"), op.clone(), &inputs).unwrap();
    }
    plan.output("z", "owner", z);
    let inputs = names.iter().zip(secrets).map(|(n, &x)| (n.to_string(), vec![x; N])).collect();
    transcript_of(protocol, &plan, &inputs)
}

/// What party `i` holds and what goes through its hands: both components of every input, every
/// plane or word of every message that it sends or receives, and what it tells the recipient.
fn view(run: &Transcript, i: usize, inputs: usize) -> View {
    let mut columns: Vec<(String, Vec<u8>)> = vec![];
    for input in 0..inputs {
        let data = run.seen[i].data[input].as_bytes();
        let drawn = |key: &[u8]| -> Vec<u8> {
            let words = Key::from_bytes(key.try_into().unwrap()).stream().words(N.div_ceil(8));
            words.iter().flat_map(|w| w.to_le_bytes()).take(N).collect()
        };
        let second = if i == 2 { drawn(&data[32..]) } else { data[32..].to_vec() };
        columns.push((format!("input {input} a"), drawn(&data[..32])));
        columns.push((format!("input {input} b"), second));
    }
    let mine = run.sent.iter().filter(|s| matches!(s.phase, Offline | Online) && (s.from == i || s.to == i));
    for s in mine {
        let name = format!("{:?} {} {}→{}", s.phase, s.name, s.from, s.to);
        let bits = s.bytes.len() * 8 / N;
        if bits == 8 && !s.name.contains("level") {
            columns.push((name, s.bytes.clone()));
            continue;
        }
        let all = unpack(&s.bytes, 1, bits * N);
        let column = |(k, plane): (usize, &[u8])| (format!("{name} {k}"), plane.to_vec());
        columns.extend(all.chunks_exact(N).enumerate().map(column));
    }
    let output = run.seen[i].outputs[0].as_bytes();
    columns.push(("output".into(), unpack(output, (output.len() * 8 / N) as u32, N)));
    columns.sort_by(|a, b| a.0.cmp(&b.0));
    columns.into_iter().map(|(name, column)| (&*name.leak(), column)).collect()
}

/// No party's view differs between two secrets; returns P0's for controls.
fn indistinguishable(what: &str, runs: &[Transcript; 2], inputs: usize) -> [View; 2] {
    for i in 0..3 {
        let [a, b] = [0, 1].map(|k| view(&runs[k], i, inputs));
        let (surprise, columns) = compare_views(&a, &b);
        assert!(surprise < MANY, "{what}, P{i}: {surprise:.1} σ in {columns}");
    }
    [0, 1].map(|k| view(&runs[k], 0, inputs))
}

/// Five carries: two digits and a node above them, or a level of two nodes and one above them.
fn few() -> SignBit {
    SignBit { bits: Some(6), ..SignBit::FULL }
}

#[test]
fn no_party_sees_the_value_compared() {
    for name in PROTOCOLS {
        let runs = [0x05u8, 0xe9].map(|x| execute(name, &[Op::NonNegative(few())], &[x]));
        assert!(runs[0].outputs[0].iter().all(|&b| b == 1) && runs[1].outputs[0].iter().all(|&b| b == 0));
        let views = indistinguishable(name, &runs, 1);
        // The control: what P1 tells P0 about the result, without the sharing of zero that hides
        // it.
        let column = if name == "aby3" { "Online op0/level0 1→0 0" } else { "Online op0/top 1→0 0" };
        let bare = [0, 1].map(|k| {
            let mut view = views[k].clone();
            let secret = if k == 0 { 1 } else { 0 };
            let found = view.iter_mut().find(|c| c.0 == column).expect("the last message");
            found.1 = vec![secret; N];
            view
        });
        assert!(compare_views(&bare[0], &bare[1]).0 > 2.0 * MANY, "{name}: a result without a mask passes");
    }
}

#[test]
fn no_party_sees_the_value_selected() {
    for name in PROTOCOLS {
        let two = SignBit { bits: Some(2), cut: 6, ..SignBit::FULL };
        let ops = [Op::NonNegative(two.clone()), Op::SELECT];
        let runs = [0x40u8, 0xc0].map(|x| execute(name, &ops, &[x]));
        assert!(runs[0].outputs[0].iter().all(|&z| z == 0x40) && runs[1].outputs[0].iter().all(|&z| z == 0));
        indistinguishable(&format!("{name} select"), &runs, 1);
        let ops = [Op::NonNegative(two), Op::BitToRing];
        let runs = [0x40u8, 0xc0].map(|x| execute(name, &ops, &[x]));
        indistinguishable(&format!("{name} bit to ring"), &runs, 1);
    }
}

#[test]
fn no_party_sees_factors_or_what_is_truncated() {
    let runs = [[0u8, 0], [0xff, 0x7f]].map(|secrets| execute("aby3", &[Op::Mul], &secrets));
    let views = indistinguishable("product", &runs, 2);
    // The control: P1's additive share of x·y without its sharing of zero, from the components that
    // P1 holds.
    let bare = [0, 1].map(|k| {
        let held = view(&runs[k], 1, 2);
        let column = |name: &str| &held.iter().find(|c| c.0 == name).expect("a component").1;
        let [x1, x2, y1, y2] =
            [column("input 0 b"), column("input 0 a"), column("input 1 b"), column("input 1 a")];
        let share = (0..N).map(|e| {
            let own = x1[e].wrapping_add(x2[e]).wrapping_mul(y1[e]);
            own.wrapping_add(x1[e].wrapping_mul(y2[e]))
        });
        let mut view = views[k].clone();
        view.iter_mut().find(|c| c.0 == "Online op0/share 1→0").expect("a share").1 = share.collect();
        view
    });
    assert!(compare_views(&bare[0], &bare[1]).0 > 2.0 * MANY, "a share without a mask passes");

    let runs = [0x3fu8, 0xc1].map(|x| execute("aby3", &[Op::Truncate { bits: 2 }], &[x]));
    indistinguishable("truncation", &runs, 1);
    let ops = [Op::Additive(Box::new(Op::Mul)), Op::Truncate { bits: 2 }];
    let runs = [[0u8, 0x05], [0xfb, 0x07]].map(|secrets| execute("aby3", &ops, &secrets));
    indistinguishable("truncated product", &runs, 2);
}

#[test]
fn no_party_sees_the_value_of_a_relu() {
    for name in PROTOCOLS {
        let sign = SignBit { bits: Some(3), cut: 2, ..SignBit::FULL };
        let op = Op::Relu(Relu { sign, form: ReluForm::ThreeRounds, truncate: 2 });
        let runs = [0x0cu8, 0xf2].map(|x| execute(name, std::slice::from_ref(&op), &[x]));
        indistinguishable(&format!("{name} relu"), &runs, 1);
        // By two workers and a dealer.
        let dealt = [Op::Offloaded(Box::new(op.clone()))];
        let runs = [0x0cu8, 0xf2].map(|x| execute(name, &dealt, &[x]));
        indistinguishable(&format!("{name} dealt relu"), &runs, 1);
        // Of a sum, whose parts two parties open to each other while the third deals its own.
        let ops = [Op::Additive(Box::new(Op::Mul)), op];
        let runs = [[0x03u8, 0x05], [0xfb, 0x04]].map(|secrets| execute(name, &ops, &secrets));
        indistinguishable(&format!("{name} relu of a product"), &runs, 2);
    }
}
