//! What the dealer sees of lists, and bicoptor's helper.

use super::{
    Lists, N, SECRETS, comparisons, digits, execute, execute_under, indistinguishable, lists_of, lists_with,
    messages,
};
use crate::common::list::{Order, Protocol};
use crate::common::session::{Transcript, unpack, unpack_field, zip};
use crate::common::stats::{self, MANY, SIGMAS, View, compare_views, count};
use crate::common::{Rng, list};
use megrez_kernels::ListSpec;
use megrez_plan::{Op, Relu, ReluForm, SignBit};
use megrez_protocols::bicoptor::Bicoptor;
use megrez_protocols::concurrent;
use megrez_session::Phase::{Offline, Online};

#[test]
fn the_dealer_sees_the_same_lists_whatever_the_secret() {
    for sign in comparisons() {
        for secret in SECRETS {
            let lists = lists_of(&execute(Op::NonNegative(sign.clone()), 2, &[secret]), &sign);
            let (statistic, surprise) = lists.worst();
            assert!(surprise < SIGMAS, "{sign:?}, x = {secret:#x}: {statistic} is off by {surprise:.1} σ");
        }
    }
}

/// Lists by the plain code.
fn simulated(protocol: Protocol, x: u64, rng: &mut Rng) -> (Lists, Vec<list::Run>) {
    let r: Vec<u8> = (0..N).map(|_| rng.next() as u8).collect();
    let runs: Vec<_> = r.iter().map(|&r| protocol.run(x, r.into(), rng)).collect();
    let entries =
        [0, 1].map(|j: usize| runs.iter().flat_map(|run| run.lists[j].iter().map(|&v| v as u8)).collect());
    (Lists { p: protocol.p as usize, length: 8, entries, r }, runs)
}

#[test]
fn lists_with_a_protection_missing_are_noticed() {
    let mut rng = Rng(5);
    let right = Protocol::corrected(8, 11);
    for x in [0, 0x7f, 0xff] {
        let (statistic, surprise) = simulated(right, x, &mut rng).0.worst();
        assert!(surprise < SIGMAS, "the right protocol: {statistic} is off by {surprise:.1} σ");
        let wrong = [
            ("in the order of the bits", Protocol { order: Order::AsComputed, ..right }),
            ("without the flip", Protocol { flip: false, ..right }),
            ("with a biased multiplier", Protocol { biased: true, ..right }),
        ];
        for (what, protocol) in wrong {
            let surprise = simulated(protocol, x, &mut rng).0.worst().1;
            assert!(surprise > 2.0 * SIGMAS, "lists {what} pass for right: {surprise:.1} σ");
        }
    }
}

/// The dealer made the shares of ρ: for a guess of x it computes the ratio of the first entry's
/// shares and looks for it in the list. Counts the lists that have it.
fn lists_that_fit(lists: &Lists, rho: [&[u8]; 2], dealt: usize, guess: u8) -> [u64; 2] {
    let p = lists.p as u64;
    let mut fit = 0;
    for e in 0..N {
        let m = guess.wrapping_add(lists.r[e]);
        let bit = u64::from(m >> 6 & 1);
        fit += u64::from((0..2).any(|common| {
            let share = |j: usize| list::entry(p, j as u64, 0, bit, rho[j][e * dealt].into(), common ^ bit).0;
            let [a, b] = [share(0), share(1)];
            let places = e * lists.length..(e + 1) * lists.length;
            places.into_iter().any(|i| {
                let [v, w] = [0, 1].map(|j: usize| u64::from(lists.entries[j][i]));
                v * b % p == w * a % p
            })
        }));
    }
    [fit, N as u64 - fit]
}

#[test]
fn the_dealers_shares_of_rho_do_not_help_it() {
    // The guess differs from the other secret in the first bit compared.
    let (one, other) = (0x10u8, 0x50u8);
    let spec = ListSpec::new(&SignBit::FULL, 8);
    let counts = [one, other].map(|secret| {
        let run = execute(Op::NonNegative(SignBit::FULL), 2, &[secret]);
        let lists = lists_of(&run, &SignBit::FULL);
        let rho_0 = unpack_field(run.message(Offline, 2, 0, "op/rho"), spec.prime, N * spec.dealt());
        let rho = |e: usize, i: usize| (lists.r[e].wrapping_sub(1) >> (6 - i)) & 1;
        let rho_1: Vec<u8> = (0..N * 7).map(|i| (rho(i / 7, i % 7) + 11 - rho_0[i]) % 11).collect();
        lists_that_fit(&lists, [&rho_0, &rho_1], 7, one)
    });
    let surprise = stats::same(&counts[0], &counts[1]);
    assert!(surprise < SIGMAS, "the shares of ρ tell secrets apart by {surprise:.1} σ");

    let mut rng = Rng(6);
    let unprotected = Protocol { zero_shares: false, ..Protocol::corrected(8, 11) };
    let counts = [one, other].map(|secret| {
        let (lists, runs) = simulated(unprotected, secret.into(), &mut rng);
        assert!(lists.worst().1 < SIGMAS, "without their shares the lists look right");
        let rho = [0, 1].map(|j: usize| -> Vec<u8> {
            runs.iter().flat_map(|run| run.rho[j][..7].iter().map(|&v| v as u8)).collect()
        });
        lists_that_fit(&lists, [&rho[0], &rho[1]], 7, one)
    });
    assert_eq!(counts[0], [N as u64, 0], "the true guess always fits a list without zero-shares");
    assert!(stats::same(&counts[0], &counts[1]) > 2.0 * SIGMAS);
}

/// Where the zeros of two lists of one value may be, jointly: as if the lists were of two
/// independent comparisons.
pub fn joint_zeros(length: usize, zeros: &[Vec<u8>]) -> f64 {
    let place = |z: usize| if z == length { 0.5 } else { 0.5 / length as f64 };
    let table: Vec<f64> =
        (0..(length + 1) * (length + 1)).map(|i| place(i / (length + 1)) * place(i % (length + 1))).collect();
    let pairs = zip(&zeros[0], &zeros[1], |a, b| a * (length as u8 + 1) + b);
    stats::fit(&count(table.len(), pairs.into_iter().map(usize::from)), &table)
}

#[test]
fn the_lists_of_many_thresholds_are_as_independent_as_those_of_many_values() {
    for sign in [SignBit::FULL, digits(&[4, 3], 0), digits(&[3, 2, 2], 0)] {
        let spec = ListSpec::new(&sign, 8);
        // Secrets below, between and above the thresholds.
        let thresholds = vec![-30i64, 20];
        let op = Op::CompareMany { sign: sign.clone(), thresholds: thresholds.clone() };
        let secrets = [0u8, 0xc0, 0x13, 0x40, 0xe1];
        let runs = secrets.map(|x| (x, execute(op.clone(), 2, &[x])));
        for (x, run) in &runs {
            let r = zip(&run.input_mask(0, 0, N), &run.input_mask(1, 0, N), u8::wrapping_add);
            let lists: Vec<Lists> = (0..2)
                .map(|i| {
                    let name = format!("op/threshold{i}/list");
                    let entries = [0, 1].map(|j| {
                        unpack_field(run.message(Online, j, 2, &name), spec.prime, N * spec.length())
                    });
                    Lists { p: spec.prime.p() as usize, length: spec.length(), entries, r: r.clone() }
                })
                .collect();
            for list in &lists {
                let (statistic, surprise) = list.worst();
                assert!(surprise < SIGMAS, "{sign:?}, x = {x:#x}: {statistic} is off by {surprise:.1} σ");
            }
            let zeros: Vec<Vec<u8>> = lists.iter().map(Lists::zeros).collect();
            let surprise = joint_zeros(spec.length(), &zeros);
            assert!(surprise < SIGMAS, "{sign:?}, x = {x:#x}: two lists are related by {surprise:.1} σ");
            let p = spec.prime.p() as u8;
            let first =
                |list: &Lists| -> Vec<u8> { list.sums().into_iter().step_by(spec.length()).collect() };
            let pairs =
                zip(
                    &first(&lists[0]),
                    &first(&lists[1]),
                    |a, b| if a * b == 0 { 0 } else { (a - 1) * (p - 1) + b },
                );
            let cells = usize::from(p - 1) * usize::from(p - 1);
            let pairs = pairs.into_iter().filter(|&v| v > 0).map(|v| usize::from(v) - 1);
            let surprise = stats::uniform(&count(cells, pairs));
            assert!(
                surprise < SIGMAS,
                "{sign:?}, x = {x:#x}: entries of two lists are related by {surprise:.1} σ"
            );
        }
        // All that the dealer gets of ring elements, bits and zeros, and a worker's view with all
        // its answers.
        for party in 0..3 {
            let views: Vec<_> = runs
                .iter()
                .map(|(x, run)| {
                    let mut view: View = vec![];
                    if party == 2 {
                        view.extend([0, 1].map(|j| (["r_0", "r_1"][j], run.input_mask(j, 0, N))));
                        for (i, name) in ["zero 0", "zero 1"].into_iter().enumerate() {
                            let name_of = format!("op/threshold{i}/list");
                            let entries = [0, 1].map(|j| {
                                unpack_field(
                                    run.message(Online, j, 2, &name_of),
                                    spec.prime,
                                    N * spec.length(),
                                )
                            });
                            let r = vec![0; N];
                            let lists =
                                Lists { p: spec.prime.p() as usize, length: spec.length(), entries, r };
                            view.push((name, lists.zeros()));
                        }
                    } else {
                        view.push(("m", run.masked_input(0)));
                        view.push(("r_j", run.input_mask(party, 0, N)));
                        let rho = run.message(Offline, 2, 0, "op/rho");
                        if party == 0 {
                            let rho = unpack_field(rho, spec.prime, N * spec.dealt());
                            view.push(("rho_0", rho.into_iter().step_by(spec.dealt()).collect()));
                        }
                        let answers = run.bits(Online, 2, party, "op/answer", 2 * N);
                        let sent = unpack(run.seen[party].outputs[0].as_bytes(), 1, 2 * N);
                        for (i, [answer, output]) in
                            [["answer 0", "output 0"], ["answer 1", "output 1"]].into_iter().enumerate()
                        {
                            view.push((answer, answers[i * N..(i + 1) * N].to_vec()));
                            view.push((output, sent[i * N..(i + 1) * N].to_vec()));
                        }
                    }
                    (format!("x = {x:#x}"), view)
                })
                .collect();
            indistinguishable(&format!("party {party}, {sign:?}"), &views);
        }
        for (x, run) in &runs {
            let x = i64::from(*x as i8);
            let expected: Vec<u8> = thresholds.iter().flat_map(|&t| vec![u8::from(x >= t); N]).collect();
            assert_eq!(run.outputs[0], expected);
        }
    }
}

#[test]
fn a_flip_used_for_two_thresholds_is_noticed() {
    // The plain code with one Δ for both comparisons of a value, and with one each.
    let right = Protocol::corrected(8, 11);
    for x in [0i64, 0xc0, 0x13, 0x40] {
        let relation = |same_flip: bool| {
            let mut rng = Rng(9);
            let zeros: [Vec<u8>; 2] = {
                let mut zeros = [vec![], vec![]];
                for _ in 0..N {
                    let r = rng.next() as u8;
                    let flip = rng.next() & 1;
                    for (i, t) in [-30i64, 20].into_iter().enumerate() {
                        let value = (x - t) as u8;
                        let run = loop {
                            let run = right.run(value.into(), r.into(), &mut rng);
                            if !same_flip || run.flip == flip {
                                break run;
                            }
                        };
                        let sum = |q: usize| (run.lists[0][q] + run.lists[1][q]) % 11;
                        zeros[i].push((0..8).find(|&q| sum(q) == 0).unwrap_or(8) as u8);
                    }
                }
                zeros
            };
            joint_zeros(8, &zeros)
        };
        let fresh = relation(false);
        assert!(fresh < SIGMAS, "x = {x:#x}: fresh flips are related by {fresh:.1} σ");
        let reused = relation(true);
        assert!(reused > 2.0 * SIGMAS, "x = {x:#x}: one flip for two thresholds passes: {reused:.1} σ");
    }
}

#[test]
fn the_dealer_sees_the_same_concurrent_lists_whatever_the_secret() {
    let cut_bits = SignBit { cut: 2, bits: Some(5), ..SignBit::FULL };
    for sign in [SignBit::FULL, cut_bits] {
        let spec = concurrent::spec(&sign, 8);
        for secret in SECRETS {
            let suite = concurrent::suite::<u8, megrez_device::AnyDevice>();
            let run = execute_under(&suite, Op::NonNegative(sign.clone()), 2, &[secret]);
            let (statistic, surprise) = lists_with(&run, &spec).worst();
            assert!(surprise < SIGMAS, "{sign:?}, x = {secret:#x}: {statistic} is off by {surprise:.1} σ");
        }
    }
}

/// The helper's side of bicoptor's lists. In the place of the mask: worker 1's share of the value,
/// which the helper may have dealt in an earlier step.
fn helped_lists(run: &Transcript, width: u32) -> Lists {
    // The smallest prime above 2^width, in width + 1 bits.
    let p = ((1usize << width) + 1..).find(|n| (2..*n).all(|d| n % d != 0)).unwrap();
    let length = width as usize + 1;
    let entries = [0, 1].map(|j| unpack(run.message(Online, j, 2, "op/list"), width + 1, N * length));
    Lists { p, length, entries, r: run.seen[1].data[0].as_bytes().to_vec() }
}

#[test]
fn bicoptors_helper_sees_the_same_lists_whatever_the_secret() {
    for (cut, bits, secrets) in [
        (0, 3, [0, 1, 3, 0xfc]),
        (0, 4, [0, 7, 0xff, 0xf8]),
        (0, 5, [0, 11, 0xf5, 0xf0]),
        (2, 4, [0, 0x1c, 0xff, 0xe0]),
    ] {
        let sign = SignBit { cut, bits: Some(bits), ..SignBit::FULL };
        for secret in secrets {
            for op in [
                Op::NonNegative(sign.clone()),
                Op::Relu(Relu { sign: sign.clone(), form: ReluForm::ThreeRounds, truncate: 0 }),
            ] {
                let run =
                    execute_under(&Bicoptor::<u8, megrez_device::AnyDevice>::default(), op, 2, &[secret]);
                let (statistic, surprise) = helped_lists(&run, bits).worst();
                assert!(
                    surprise < SIGMAS,
                    "{sign:?}, x = {secret:#x}: {statistic} is off by {surprise:.1} σ"
                );
            }
        }
    }
}

#[test]
fn no_party_of_bicoptor_sees_the_secret() {
    let sign = SignBit { bits: Some(4), ..SignBit::FULL };
    let relu = |truncate| Op::Relu(Relu { sign: sign.clone(), form: ReluForm::ThreeRounds, truncate });
    let one: &[&[u8]] = &[&[0], &[5], &[0xf8], &[0xff]];
    let two: &[&[u8]] = &[&[0, 0], &[1, 0x80], &[0xff, 0x7f], &[0x35, 0x35]];
    for (name, op, secrets) in [
        ("sign", Op::NonNegative(sign.clone()), one),
        ("relu", relu(0), one),
        ("relu and truncation", relu(2), one),
        ("truncation", Op::Truncate { bits: 2 }, one),
        ("product", Op::Mul, two),
    ] {
        let runs: Vec<_> = secrets
            .iter()
            .map(|secrets| {
                execute_under(&Bicoptor::<u8, megrez_device::AnyDevice>::default(), op.clone(), 2, secrets)
            })
            .collect();
        for party in 0..3 {
            let views: Vec<_> = runs
                .iter()
                .zip(secrets)
                .map(|(run, secrets)| {
                    let mut view = messages(run, party);
                    if party < 2 {
                        for i in 0..secrets.len() {
                            let share = run.seen[party].data[i].as_bytes().to_vec();
                            view.push((["x share", "y share"][i], share));
                        }
                        view.push(("output share", run.seen[party].outputs[0].as_bytes().to_vec()));
                    }
                    if party < 2 && matches!(name, "sign" | "relu") {
                        // The coin, from the zeros and the known sign.
                        let zeros = helped_lists(run, 4).zeros();
                        let coin = |zero: &u8| u8::from((*zero < 5) != (secrets[0] < 128));
                        view.push(("coin", zeros.iter().map(coin).collect()));
                    }
                    (format!("{secrets:x?}"), view)
                })
                .collect();
            indistinguishable(&format!("party {party}, {name}"), &views);
            // The control: the other worker's share as it is, beside this one's.
            if party < 2 {
                let bare = [0, 1].map(|i| {
                    let mut view = views[i].1.clone();
                    view.push(("bare", runs[i].seen[1 - party].data[0].as_bytes().to_vec()));
                    view
                });
                assert!(compare_views(&bare[0], &bare[1]).0 > 2.0 * MANY, "a bare share passes");
            }
        }
    }
}
