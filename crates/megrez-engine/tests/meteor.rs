//! METEOR as its paper prints it, in the clear, and what goes wrong; the suite's truncation as
//! often as it says; and what each of its parties sees, jointly, at ℓ = 8.

use crate::common::session::{
    Ends, Part, Transcript, each, give_and_take_under, prepare, session, transcript_under, unpack, zip,
};
use crate::common::stats::{self, MANY, SIGMAS, View as Seen, compare_views};
use crate::common::{Rng, run_locally, signed};
use megrez_device::AnyDevice;
use megrez_engine::local::LocalOptions;
use megrez_engine::{Options, serve, store};
use megrez_plan::{Op, Plan, Relu, ReluForm, SignBit, View};
use megrez_protocols::meteor::Meteor;
use megrez_protocols::meteor::printed::Extraction;
use megrez_session::Party;
use megrez_session::Phase::{Offline, Online};
use std::collections::HashMap;
use std::time::Duration;

// ---- the printed steps ----

#[test]
fn the_printed_extraction_reveals_zeros_and_errs_at_them() {
    let (printed, corrected) = (Extraction::printed(8), Extraction::corrected(8));
    assert_eq!((printed.q, corrected.q), (11, 11));
    for x in 0..256 {
        let runs = |e: Extraction| (0..512).map(move |i| e.run(x, i / 2, i % 2 == 1));
        let wrong = runs(printed).filter(|(msb, _)| *msb != x >> 7).count();
        let zeros = runs(printed).filter(|(_, zero)| *zero).count();
        if x & 127 == 0 {
            // λ = 1 takes "equal" for "below"; and nobody needs the answer to know x from d.
            assert_eq!((wrong, zeros), (256, 0), "x = {x}");
        } else {
            // m ∈ {0, L/2}: L − 2m does not fit.
            assert_eq!(wrong, 4, "x = {x}");
        }
        assert!(runs(corrected).all(|(msb, _)| msb == x >> 7), "x = {x}");
        assert_eq!(runs(corrected).filter(|(_, zero)| *zero).count(), 256, "x = {x}");
    }
}

#[test]
fn the_smallest_prime_from_l_on_is_too_small_at_sixteen_bits() {
    let mut rng = Rng(31);
    let errors = |q, rng: &mut Rng| {
        let e = Extraction { ring: 16, q, complement: true };
        (0..1 << 20)
            .filter(|_| {
                // Few equal bits, so that sums are large.
                let (x, psi) = (rng.next() & 0xff, rng.next() & 0xffff);
                e.run(x, psi, rng.next() & 1 == 1).0 != x >> 15
            })
            .count()
    };
    assert!(errors(17, &mut rng) > 0);
    assert_eq!(errors(19, &mut rng), 0);
}

#[test]
fn the_masks_of_the_printed_entries_are_not_known_before_the_inputs() {
    let (printed, mut rng) = (Extraction::printed(8), Rng(32));
    let mut draw = || [0; 4].map(|_| rng.below(11) as u32);
    let (u, s) = (draw(), draw());
    let product = |b: u64| printed.mask_product(&u, &s, &[0, 1, 2, 3].map(|k| b >> k & 1 == 1));
    let different: std::collections::HashSet<u32> = (0..16).map(product).collect();
    assert!(different.len() > 4, "{different:?}");
}

#[test]
fn the_printed_conversion_of_bits_lacks_a_term() {
    let right = |v: [i64; 3], term: i64| {
        let pairs = v[0] * v[1] + v[1] * v[2] + v[2] * v[0];
        v[0] + v[1] + v[2] - 2 * pairs + term * v[0] * v[1] * v[2] == v[0] ^ v[1] ^ v[2]
    };
    let all = || (0..8).map(|i| [i & 1, i >> 1 & 1, i >> 2]);
    // Step 4 subtracts the product once.
    assert_eq!(all().filter(|v| !right(*v, -1)).collect::<Vec<_>>(), [[1; 3]]);
    assert!(all().all(|v| right(v, 4)));
}

#[test]
fn shifting_m_and_psi_apart_is_wrong_by_a_lot_as_often_as_the_value_is_large() {
    // §4.3.1 with a pair (ψ, ψ >> f): exact up to the last bit but for |x + 1| of 256 masks.
    for f in 1..6 {
        for x in -128i64..128 {
            let large = (-128..128).filter(|psi| {
                let m = signed((x - psi) as u64, 8);
                let got = signed(((m >> f) + (psi >> f)) as u64, 8);
                !((x >> f) - 1..=x >> f).contains(&got)
            });
            assert_eq!(large.count() as u64, (x + 1).unsigned_abs(), "f = {f}, x = {x}");
        }
    }
}

// ---- the suite ----

#[test]
fn truncation_rounds_up_as_often_as_the_fraction_says() {
    let n = 1 << 12;
    for f in [1, 3, 5] {
        let mut plan = Plan::new(8);
        let x = plan.input("x", "owner", [128 * n].into(), f);
        let y = plan.step("op", Op::Truncate { bits: f }, &[x]).unwrap();
        plan.output("y", "owner", y);
        let words = (-64i64..64).flat_map(|x| vec![x as u64 & 255; n]).collect();
        let inputs = HashMap::from([("x".to_string(), words)]);
        let got = run_locally("meteor", &plan, &inputs, &LocalOptions::default())
            .unwrap()
            .outputs
            .remove(0)
            .remove(0);
        for (x, row) in (-64i64..64).zip(got.chunks_exact(n)) {
            let error = |&y: &u64| (signed(y, 8) - (x >> f)) as u64;
            let up = row.iter().map(error).inspect(|e| assert!(*e <= 1, "f = {f}, x = {x}")).sum();
            let off = stats::binomial(up, n as u64, (x.rem_euclid(1 << f)) as f64 / f64::from(1 << f));
            assert!(off < SIGMAS, "f = {f}, x = {x}: off by {off:.1} σ");
        }
    }
}

#[test]
fn products_with_one_large_operand_are_left_as_the_same_sums() {
    let mut rng = Rng(33);
    for (a, b) in [([2, 16], [16, 9]), ([9, 16], [16, 2]), ([9, 2], [2, 9])] {
        let mut plan = Plan::new(32);
        let [x, y] = [("x", a), ("y", b)].map(|(name, dims)| plan.input(name, "owner", dims.into(), 8));
        let sum = plan.step("product", Op::Additive(Box::new(Op::MatMul)), &[x, y]).unwrap();
        let z = plan.step("truncate", Op::Truncate { bits: 8 }, &[sum]).unwrap();
        plan.output("z", "owner", z);
        let mut draw = |n: usize| (0..n).map(|_| rng.below(1 << 10)).collect::<Vec<u64>>();
        let inputs = HashMap::from([("x".into(), draw(a[0] * a[1])), ("y".into(), draw(b[0] * b[1]))]);
        let [clear, got] = ["clear", "meteor"].map(|protocol| {
            run_locally(protocol, &plan, &inputs, &LocalOptions::default())
                .unwrap()
                .outputs
                .remove(0)
                .remove(0)
        });
        assert!(clear.iter().zip(&got).all(|(c, g)| (0..=1).contains(&(g - c))), "{a:?} {b:?}");
    }
}

#[test]
fn stored_material_computes_what_fresh_material_computes() {
    // Every kind of material that there is.
    let (suite, device, n) = (Meteor::<u32, AnyDevice>::default(), AnyDevice::default(), 70);
    let mut plan = Plan::new(32);
    let [x, y] = ["x", "y"].map(|name| plan.input(name, "owner", [n].into(), 8));
    let relu = |truncate| Op::Relu(Relu { sign: SignBit::FULL, form: ReluForm::ThreeRounds, truncate });
    let mut step = |name: &str, op, inputs: &[_]| plan.step(name, op, inputs).unwrap();
    let product = step("product", Op::Mul, &[x, y]);
    let sum = step("sum", Op::Additive(Box::new(Op::Mul)), &[x, y]);
    let truncate = Op::Truncate { bits: 8 };
    let cuts = [("cut", truncate.clone(), product), ("cut sum", truncate, sum), ("relu sum", relu(8), sum)];
    let mut outputs: Vec<_> = cuts.map(|(name, op, of)| step(name, op, &[of])).into();
    let positive = step("positive", relu(0), &[x]);
    let many = step("thresholds", Op::CompareMany { sign: SignBit::FULL, thresholds: vec![-5, 9] }, &[x]);
    let many = step("flat", Op::View(View::whole([2 * n].into())), &[many]);
    let bits = [0, n].map(|at| {
        let half = View { shape: [n].into(), strides: vec![1], offset: at };
        step(&format!("half{at}"), Op::View(half), &[many])
    });
    let both = step("and", Op::And, &bits);
    let chosen = step("select", Op::SELECT, &[both, positive]);
    outputs.extend([chosen, step("ring", Op::BitToRing, &[both])]);
    let words = [x, y].map(|x| step(&format!("bits{}", x.0), Op::ToBits, &[x]));
    let words = step("add", Op::AddBits, &words);
    outputs.extend([step("value", Op::FromBits, &[words]), step("many", Op::Mul, &[x, y, x, y])]);
    outputs.iter().enumerate().for_each(|(i, &z)| plan.output(&format!("z{i}"), "owner", z));

    let parts = each(|party: &mut Party<AnyDevice>, _: &mut Ends| prepare(&suite, &plan, party));
    let material = session(Duration::from_secs(60), parts, |_| ()).0.map(Result::unwrap);
    let binding = |party| store::Binding {
        batch: [3; 16],
        party,
        stock: false,
        protocol: "meteor",
        client: "owner",
        upload: None,
        plan: &plan,
    };
    let bytes =
        [0, 1, 2].map(|i| store::encode(&suite, &device, &binding(i), &[4; 16], &material[i]).unwrap());
    let again = [0, 1, 2].map(|i| store::decode(&suite, &device, &binding(i), &[4; 16], &bytes[i]).unwrap());
    let mut rng = Rng(8);
    let mut draw = || (0..n).map(|_| (rng.below(1 << 10) as i64 - (1 << 9)) as u32).collect();
    let inputs = HashMap::from([("x".to_string(), draw()), ("y".to_string(), draw())]);
    let [fresh, stored] = [material, again].map(|material| {
        let parts = material.map(|prepared| {
            let part: Part<'_, _> = Box::new(|party, ends| {
                let mut kept = HashMap::new();
                serve(&suite, &plan, party, &mut kept, Some(prepared), ends, Options::default())
            });
            part
        });
        let give = |ports: &mut _| give_and_take_under(&suite, &plan, &inputs, ports);
        let (results, outputs) = session(Duration::from_secs(60), parts, give);
        results.into_iter().for_each(|r| drop(r.unwrap()));
        outputs.unwrap()
    });
    // Last bits of truncations too: they depend on the masks alone. (Never reuse material outside a
    // test.)
    assert_eq!(fresh, stored);
    for i in 0..n {
        let [x, y] = ["x", "y"].map(|name| i64::from(inputs[name][i] as i32));
        let rounded = |z: u32, value: i64| (0..=1).contains(&(i64::from(z as i32) - (value >> 8)));
        assert!(rounded(fresh[0][i], x * y) && rounded(fresh[1][i], x * y), "{x} · {y}");
        assert!(if x * y < 0 { fresh[2][i] == 0 } else { rounded(fresh[2][i], x * y) }, "{x} · {y}");
        assert_eq!((fresh[3][i], fresh[4][i]), (if x >= 9 { x as u32 } else { 0 }, u32::from(x >= 9)), "{x}");
        assert_eq!((fresh[5][i], fresh[6][i]), ((x + y) as u32, (x * x * y * y) as u32), "{x}, {y}");
    }
}

const N: usize = 1 << 15;
const SECRETS: [u8; 4] = [0, 0x2f, 0xc1, 0xff];

fn execute(op: Op, secrets: &[u8]) -> Transcript {
    let mut plan = Plan::new(8);
    let names = ["x", "y", "z"];
    let ids: Vec<_> = secrets.iter().zip(names).map(|(_, n)| plan.input(n, "owner", [N].into(), 2)).collect();
    let z = plan.step("op", op, &ids).unwrap();
    plan.output("z", "owner", z);
    let inputs = names.iter().zip(secrets).map(|(n, &x)| (n.to_string(), vec![x; N])).collect();
    transcript_under(&Meteor::<u8, AnyDevice>::default(), &plan, &inputs)
}

/// What party `i` holds and what goes through its hands: masked inputs and their masks' components,
/// every message of `N` elements or of `N` bits, planes of the messages `split` names, and what it
/// tells the recipient.
fn view(run: &Transcript, i: usize, inputs: usize, split: &[&str]) -> Seen {
    let mut columns: Vec<(String, Vec<u8>)> = vec![];
    for input in 0..inputs {
        columns.push((format!("m {input}"), run.seen[i].data[input].as_bytes().to_vec()));
        for c in [i, (i + 1) % 3] {
            columns.push((format!("psi {input} {c}"), run.input_mask(c, input, N)));
        }
    }
    let mine = run.sent.iter().filter(|s| matches!(s.phase, Offline | Online) && (s.from == i || s.to == i));
    for s in mine {
        let name = format!("{:?} {} {}→{}", s.phase, s.name, s.from, s.to);
        let bits = s.bytes.len() * 8 / N;
        match bits {
            1 | 8 => columns.push((name, unpack(&s.bytes, bits as u32, N))),
            many if s.name.ends_with("/share") => {
                let all = unpack(&s.bytes, 8, many / 8 * N);
                let column = |(k, part): (usize, &[u8])| (format!("{name} {k}"), part.to_vec());
                columns.extend(all.chunks_exact(N).enumerate().map(column));
            }
            planes
                if split.iter().any(|ending| s.name.ends_with(ending))
                    && (s.phase == Online || s.to == i) =>
            {
                let all = unpack(&s.bytes, 1, planes * N);
                let column = |(k, plane): (usize, &[u8])| (format!("{name} {k}"), plane.to_vec());
                columns.extend(all.chunks_exact(N).enumerate().map(column));
            }
            _ => {}
        }
    }
    let output = run.seen[i].outputs[0].as_bytes();
    columns.push(("output".into(), unpack(output, (output.len() * 8 / N) as u32, N)));
    columns.sort_by(|a, b| a.0.cmp(&b.0));
    columns.into_iter().map(|(name, column)| (&*name.leak(), column)).collect()
}

/// No party's view differs between secrets; returns the first party's for controls.
fn indistinguishable(what: &str, runs: &[Transcript], inputs: usize, split: &[&str]) -> Vec<Seen> {
    let of = |i| runs.iter().map(|run| view(run, i, inputs, split)).collect::<Vec<_>>();
    for i in 0..3 {
        let views = of(i);
        for (k, view) in views.iter().enumerate().skip(1) {
            let (surprise, columns) = compare_views(&views[0], view);
            assert!(
                surprise < MANY,
                "{what}, P{i}: secrets 0 and {k} differ by {surprise:.1} σ in {columns}"
            );
        }
    }
    of(0)
}

#[test]
fn no_party_sees_the_value_compared() {
    let runs = SECRETS.map(|x| execute(Op::NonNegative(SignBit::FULL), &[x]));
    for (x, run) in SECRETS.iter().zip(&runs) {
        assert!(run.outputs[0].iter().all(|&bit| bit == 1 ^ x >> 7));
    }
    let views = indistinguishable("sign bit", &runs, 1, &["op/level0", "op/pairs"]);
    // The control: the upper digit's carry without its mask.
    let bare = [0, 1].map(|k| {
        let psi =
            (0..3).map(|c| runs[k].input_mask(c, 0, N)).reduce(|a, b| zip(&a, &b, u8::wrapping_add)).unwrap();
        let m = runs[k].seen[0].data[0].as_bytes();
        let carry = zip(m, &psi, |m, psi| ((m >> 3 & 15) + (psi >> 3 & 15)) >> 4);
        let mut view = views[k].clone();
        let column =
            view.iter_mut().find(|c| c.0 == "Online op/level0 2→0 0").expect("the upper digit's carry");
        column.1 = carry;
        view
    });
    assert!(compare_views(&bare[0], &bare[1]).0 > 2.0 * MANY, "a carry without a mask passes");
}

#[test]
fn no_party_sees_the_value_whose_bits_are_found() {
    let runs = [0u8, 0x2f, 0xff].map(|x| execute(Op::ToBits, &[x]));
    indistinguishable("bits", &runs, 1, &["op/level0", "op/level1"]);
}

#[test]
fn no_party_sees_the_value_of_a_relu() {
    for truncate in [0, 2] {
        let op = Op::Relu(Relu { sign: SignBit::FULL, form: ReluForm::ThreeRounds, truncate });
        let runs = [0u8, 0x2f, 0xc1, 0xff].map(|x| execute(op.clone(), &[x]));
        indistinguishable(&format!("relu, f = {truncate}"), &runs, 1, &["truncate/q"]);
    }
}

#[test]
fn no_party_sees_factors_or_what_is_truncated() {
    let runs = [[0u8, 0], [1, 0x80], [0xff, 0x7f]].map(|secrets| execute(Op::Mul, &secrets));
    let views = indistinguishable("product", &runs, 2, &[]);
    let bare = [0, 1].map(|k| {
        let mut view = views[k].clone();
        let [z, share] = [&runs[k].outputs[0], runs[k].message(Online, 2, 0, "op/product")];
        let mask = zip(share, z, u8::wrapping_sub);
        view.iter_mut().find(|c| c.0 == "output").unwrap().1 = mask;
        view
    });
    assert!(compare_views(&bare[0], &bare[1]).0 > 2.0 * MANY, "a component that tells the product passes");

    let runs = [[0u8; 3], [1, 0x80, 0x35], [0xff; 3]].map(|secrets| execute(Op::Mul, &secrets));
    assert!(runs[2].outputs[0].iter().all(|&z| z == 0xff));
    indistinguishable("product of three", &runs, 3, &[]);

    let runs = [0u8, 0x3f, 0xc0, 0xff].map(|x| execute(Op::Truncate { bits: 2 }, &[x]));
    indistinguishable("truncation", &runs, 1, &["op/q", "op/b"]);
}
