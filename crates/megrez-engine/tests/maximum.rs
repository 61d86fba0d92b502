//! The maximum by all pairs: every order of values, the edges of the range, what a cut can lose,
//! why values are cut and not differences, and what each party sees.

use crate::common::session::{Transcript, transcript, unpack, unpack_field, zip};
use crate::common::stats::{MANY, SIGMAS, View, compare_views};
use crate::common::{mask, run_locally, signed};
use crate::views::dealer::joint_zeros;
use crate::views::{Lists, N, digits, indistinguishable, opened_columns};
use megrez_engine::local::LocalOptions;
use megrez_kernels::ListSpec;
use megrez_plan::{List, Op, Plan, SignBit};
use megrez_session::Phase::{Offline, Online};
use std::collections::HashMap;

const NAMES: [&str; 4] = ["x0", "x1", "x2", "x3"];

fn plan(ring: u32, k: usize, n: usize, sign: &SignBit) -> Plan {
    let mut plan = Plan::new(ring);
    let x: Vec<_> = NAMES[..k].iter().map(|name| plan.input(name, "owner", [n].into(), 2)).collect();
    let z = plan.step("op", Op::Maximum(sign.clone()), &x).unwrap();
    plan.output("z", "owner", z);
    plan
}

/// The maxima of rows of k values on a ring.
fn maxima(ring: u32, sign: &SignBit, rows: &[Vec<i64>]) -> Vec<i64> {
    let k = rows[0].len();
    let column = |i: usize| rows.iter().map(|row| row[i] as u64 & mask(ring)).collect::<Vec<u64>>();
    let inputs: HashMap<_, _> = (0..k).map(|i| (NAMES[i].to_string(), column(i))).collect();
    let plan = plan(ring, k, rows.len(), sign);
    let outputs = run_locally("mizar", &plan, &inputs, &LocalOptions::default()).unwrap().outputs;
    outputs[0][0].iter().map(|&z| signed(z, ring)).collect()
}

/// All rows of `k` of these values, `times` times.
fn all_rows(values: &[i64], k: usize, times: usize) -> Vec<Vec<i64>> {
    let row = |i: usize| (0..k as u32).map(|t| values[i / values.len().pow(t) % values.len()]).collect();
    (0..times * values.len().pow(k as u32)).map(row).collect()
}

#[test]
fn the_largest_wins_in_every_order_and_under_every_bit_of_the_dealer() {
    // Four values have every weak order of four; 64 combinations of the dealer's bits, each often.
    for (k, sign) in
        [(2, SignBit::FULL), (3, digits(&[3, 2, 2], 0)), (4, digits(&[4, 3], 0)), (4, SignBit::FULL)]
    {
        for values in [[-1, 0, 1, 2], [-64, -63, 62, 63]] {
            let rows = all_rows(&values, k, 256);
            let got = maxima(8, &sign, &rows);
            assert!(rows.iter().zip(&got).all(|(row, z)| row.iter().max() == Some(z)), "{k}, {sign:?}");
        }
    }
    // Few bits without a cut: right while differences fit them.
    let few = digits(&[2, 2], 0);
    let rows = all_rows(&[-8, -3, 6, 7], 4, 64);
    assert!(rows.iter().zip(maxima(32, &few, &rows)).all(|(row, z)| row.iter().max() == Some(&z)));
}

#[test]
fn a_cut_gives_one_of_the_values_and_loses_less_than_twice_the_cut() {
    for (cut, lambda) in [(1, 7), (2, 5), (3, 5)] {
        let sign = SignBit { list: List::Bits, cut, bits: Some(lambda) };
        // The ends of the range, values that differ by less than the cut, and zero.
        let half = (1i64 << (cut + lambda - 1)) - (2 << cut);
        let (low, high) = (-half / 2, half - half / 2);
        for values in [[low, 0, high - 1, high], [-1, 0, 1, 2], [-3, -1, 2, 5]] {
            let rows = all_rows(&values, 4, 64);
            let mut lost = 0;
            for (row, z) in rows.iter().zip(maxima(8, &sign, &rows)) {
                let largest = *row.iter().max().unwrap();
                assert!(row.contains(&z) && largest - z < 2 << cut, "cut {cut}: {row:?} gives {z}");
                lost += i64::from(z < largest);
            }
            assert!(lost > 0 || values[2] - values[1] >= 2 << cut, "a cut that loses nothing, cut {cut}");
        }
    }
}

/// [y_p ≥ y_q] as a comparison after a cut of the difference, or of each value.
fn beats(m: [u64; 2], r: [u64; 2], cut: u32, ring: u32, each: bool) -> bool {
    let difference = if each {
        ((m[0] >> cut).wrapping_sub(r[0] >> cut)).wrapping_sub((m[1] >> cut).wrapping_sub(r[1] >> cut))
    } else {
        ((m[0].wrapping_sub(m[1]) & mask(ring)) >> cut)
            .wrapping_sub((r[0].wrapping_sub(r[1]) & mask(ring)) >> cut)
    };
    difference >> (ring - cut - 1) & 1 == 0
}

#[test]
fn values_that_are_cut_have_one_order_and_differences_have_not() {
    // Every triple of masks at ℓ = 5.
    let (ring, cut) = (5, 2);
    let mut circles = 0;
    for x in [[0u64, 0, 0], [2, 1, 0], [0, 1, 2], [1, 3, 2], [0, 3, 3], [0, 7, 6]] {
        for masks in 0..1u64 << (3 * ring) {
            let r = [0, 1, 2].map(|i| masks >> (i * ring) & mask(ring));
            let m = [0, 1, 2].map(|i| (x[i] + r[i]) & mask(ring));
            let winners = |each: bool| -> Vec<usize> {
                let first = |p: usize, q: usize| beats([m[p], m[q]], [r[p], r[q]], cut, ring, each);
                let wins = |i: usize, j: usize| if i < j { first(i, j) } else { !first(j, i) };
                (0..3).filter(|&i| (0..3).all(|j| i == j || wins(i, j))).collect()
            };
            let [winner] = winners(true)[..] else { panic!("x = {x:?}, r = {r:?}: {:?}", winners(true)) };
            assert!(x[winner] + (2 << cut) > *x.iter().max().unwrap());
            circles += u64::from(winners(false).is_empty());
        }
    }
    assert!(circles > 0, "differences that are cut never form a circle");
}

/// What the comparisons of one run leave at the parties, pair by pair.
struct Seen {
    lists: Vec<Lists>,
    /// The dealer's bits sgn ⊕ Δ, and Δ.
    b: Vec<Vec<u8>>,
    flips: Vec<Vec<u8>>,
    choices: Vec<Vec<u8>>,
}

const PAIRS: [(usize, usize); 3] = [(0, 1), (0, 2), (1, 2)];

fn seen(run: &Transcript, sign: &SignBit, x: [u8; 3]) -> Seen {
    let spec = ListSpec::new(&SignBit { cut: 0, ..sign.clone() }, 8);
    let entries = [0, 1].map(|j| {
        unpack_field(run.message(Online, j, 2, "op/list"), spec.prime, PAIRS.len() * N * spec.length())
    });
    let choices = run.bits(Online, 2, 0, "op/choice", PAIRS.len() * N);
    assert_eq!(choices, run.bits(Online, 2, 1, "op/choice", PAIRS.len() * N));
    let r: Vec<Vec<u8>> =
        (0..3).map(|i| zip(&run.input_mask(0, i, N), &run.input_mask(1, i, N), u8::wrapping_add)).collect();
    let y = |i: usize| -> Vec<u8> {
        r[i].iter().map(|&r| (x[i].wrapping_add(r) >> sign.cut).wrapping_sub(r >> sign.cut)).collect()
    };
    let mut seen = Seen { lists: vec![], b: vec![], flips: vec![], choices: vec![] };
    for (pair, &(p, q)) in PAIRS.iter().enumerate() {
        let part = |j: usize| entries[j][pair * N * spec.length()..][..N * spec.length()].to_vec();
        let compared = zip(&r[p], &r[q], |p, q| (p >> sign.cut).wrapping_sub(q >> sign.cut));
        let r = zip(&r[p], &r[q], u8::wrapping_sub);
        let lists =
            Lists { p: spec.prime.p() as usize, length: spec.length(), entries: [part(0), part(1)], r };
        let top = |v: u8| v >> (spec.width - 1) & 1;
        let b = zip(&lists.zeros(), &compared, |zero, r| {
            top(r.wrapping_neg()) ^ u8::from(usize::from(zero) == spec.length())
        });
        let less = zip(&y(p), &y(q), |p, q| top(p.wrapping_sub(q)));
        seen.flips.push(zip(&b, &less, |b, less| b ^ less));
        seen.choices.push(choices[pair * N..][..N].to_vec());
        seen.b.push(b);
        seen.lists.push(lists);
    }
    seen
}

#[test]
fn no_party_sees_the_values_in_a_maximum() {
    // Orders of all kinds, and equal values.
    let secrets = [[0u8, 0, 0], [3, 0xf8, 20], [20, 3, 3], [0xf0, 0xff, 0], [0xe8, 31, 0xe9]];
    for sign in [digits(&[4, 3], 0), digits(&[2, 2, 1], 2)] {
        let runs = secrets.map(|x| {
            let inputs = (0..3).map(|i| (NAMES[i].to_string(), vec![x[i]; N])).collect();
            let run = transcript(&plan(8, 3, N, &sign), &inputs);
            let seen = seen(&run, &sign, x);
            (x, run, seen)
        });
        for (x, _, seen) in &runs {
            for list in &seen.lists {
                let (statistic, surprise) = list.worst();
                assert!(surprise < SIGMAS, "{sign:?}, {x:?}: {statistic} is off by {surprise:.1} σ");
            }
            for (a, b) in [(0, 1), (0, 2), (1, 2)] {
                let zeros = [a, b].map(|pair: usize| seen.lists[pair].zeros());
                let surprise = joint_zeros(seen.lists[a].length, &zeros);
                assert!(surprise < SIGMAS, "{sign:?}, {x:?}: two lists are related by {surprise:.1} σ");
            }
        }
        for party in 0..3 {
            let views: Vec<_> = runs
                .iter()
                .map(|(x, run, seen)| {
                    let mut view: View = vec![];
                    let pair = |names: [&'static str; 3], columns: &[Vec<u8>]| {
                        names.into_iter().zip(columns.to_vec()).collect::<Vec<_>>()
                    };
                    if party == 2 {
                        for i in 0..3 {
                            view.push((["r_00", "r_10", "r_20"][i], run.input_mask(0, i, N)));
                            view.push((["r_01", "r_11", "r_21"][i], run.input_mask(1, i, N)));
                        }
                        view.extend(pair(["b_01", "b_02", "b_12"], &seen.b));
                        view.extend(pair(["f_01", "f_02", "f_12"], &seen.choices));
                        return (format!("{x:x?}"), view);
                    }
                    for i in 0..3 {
                        view.push((["m_0", "m_1", "m_2"][i], run.masked_input(i)));
                        view.push((["r_0j", "r_1j", "r_2j"][i], run.input_mask(party, i, N)));
                    }
                    view.extend(pair(["flip_01", "flip_02", "flip_12"], &seen.flips));
                    view.extend(pair(["f_01", "f_02", "f_12"], &seen.choices));
                    if party == 1 {
                        // Both values' first rows.
                        let winner = unpack(run.message(Offline, 2, 1, "op/winner"), 8, 6 * N);
                        let masked = unpack(run.message(Offline, 2, 1, "op/mask-winner"), 8, 6 * N);
                        for (i, row) in [0, 3].into_iter().enumerate() {
                            view.push((["e_1", "e_2"][i], winner[row * N..][..N].to_vec()));
                            view.push((["re_1", "re_2"][i], masked[row * N..][..N].to_vec()));
                        }
                    }
                    view.extend(opened_columns(party, &run.opened("op/maximum")));
                    (format!("{x:x?}"), view)
                })
                .collect();
            indistinguishable(&format!("party {party}, {sign:?}"), &views);
            // The control: the dealer forgets its bits a.
            if party < 2 {
                let bare = [2, 4].map(|i: usize| {
                    let mut view = views[i].1.clone();
                    let at = view.iter().position(|column| column.0 == "f_01").unwrap();
                    view[at].1 = runs[i].2.b[0].clone();
                    view
                });
                assert!(compare_views(&bare[0], &bare[1]).0 > 2.0 * MANY, "bare choices pass");
            }
        }
    }
}
